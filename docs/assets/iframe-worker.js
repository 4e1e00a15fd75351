// Browsers start no worker from file://. Pages that are read from the disk get one that lives in a hidden frame instead,
// so that their search works without a server.
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      const home = new URL(url, location)
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      const inside = frame.contentWindow
      const waiting = []
      let ready = false

      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      this.postMessage = data => (ready ? deliver(data) : waiting.push(data))
      this.terminate = () => frame.remove()

      const deliver = data => inside.dispatchEvent(new inside.MessageEvent("message", { data }))
      const load = address =>
        new Promise((done, failed) => {
          const script = inside.document.createElement("script")
          script.src = new URL(address, home).href
          script.onload = done
          script.onerror = () => failed(new Error("cannot load " + script.src))
          inside.document.body.appendChild(script)
        })
      inside.importScripts = (...addresses) => addresses.reduce((before, each) => before.then(() => load(each)), Promise.resolve())

      load(home).then(() => {
        ready = true
        waiting.forEach(deliver)
      })
    }
  }
}
