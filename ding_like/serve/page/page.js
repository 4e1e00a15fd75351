// The page of a run: asks for its state once a second and shows it. All texts are inserted as text, never as HTML.
"use strict";

const token = new URLSearchParams(location.search).get("token") || "";
const MOST_LINES = 200, EVERY_MS = 1000, HIDDEN_MS = 5000, TIMEOUT_MS = 5000;
const OVER = ["ended", "interrupted", "failed"];
const byId = (id) => document.getElementById(id);
const known = { evals: [], rollouts: [], lines: [], states: new Map(), status: "", cursor: "", state: null };
let lastAnswer = performance.now(), hasAnswered = false, chart = null, axis = 0, isNewChart = true, isChosen = false;

// --- words for numbers

function number(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  return String(Number(value.toPrecision(size >= 100 ? 4 : digits)));
}
function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const whole = Math.round(seconds), minutes = Math.floor(whole / 60) % 60;
  return `${Math.floor(whole / 3600)}:${String(minutes).padStart(2, "0")}:${String(whole % 60).padStart(2, "0")}`;
}
function bytes(value) {
  if (!value) return "–";
  return value >= 1 << 30 ? `${(value / (1 << 30)).toFixed(1)} GiB` : `${Math.round(value / (1 << 20))} MiB`;
}

// --- nodes

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
function setState(node, state, extra = "") {
  setText(node, state);
  const name = `state ${state} ${extra}`.trim();
  if (node.className !== name) node.className = name;
}
function setTiles(list, pairs) {
  while (list.children.length > 2 * pairs.length) list.lastChild.remove();
  pairs.forEach(([name, value], at) => {
    if (list.children.length < 2 * at + 2) {
      list.append(document.createElement("dt"), document.createElement("dd"));
    }
    setText(list.children[2 * at], name);
    setText(list.children[2 * at + 1], value);
  });
}
// Names and values alternate in a grid: each pair is one cell.
function setGrid(list, pairs) {
  while (list.children.length > pairs.length) list.lastChild.remove();
  pairs.forEach((pair, at) => {
    if (list.children.length <= at) list.append(document.createElement("div"));
    setTiles(list.children[at], [pair]);
  });
}

// --- parts of the page

function showHead(state) {
  setText(byId("experiment"), state.experiment || "no run yet");
  document.title = `${state.status}: ${state.experiment || "ding_like run"}`;
  setState(byId("status"), state.status);
  setText(byId("phase"), state.phase);
  byId("why").hidden = !state.why;
  setText(byId("why"), state.why);
  setText(byId("resume"), state.resume_command || "(no command yet)");
  setText(byId("saved"), state.saved_at ? `; the newest point is that of ${state.saved_at}.` : "");
  byId("save").disabled = !state.can_save;
  byId("stop").disabled = OVER.includes(state.status) || state.status === "stopping";
}
function showNumbers(state) {
  const bar = byId("bar");
  bar.hidden = state.fraction === null;
  bar.value = state.fraction === null ? 0 : state.fraction;
  const interval = state.eval_interval ? ` [${state.eval_interval.map((end) => number(end)).join(", ")}]` : "";
  const buffer = state.buffer, pairs = [
    ["until", state.until],
    ["env steps", number(state.env_step)],
    ["updates", number(state.train_iter)],
    ["time", duration(state.duration_s)],
    ["time left", duration(state.eta_s)],
    ["evaluation, 95% interval", `${number(state.eval_mean)}${interval}`],
    ["best evaluation", number(state.best_eval)],
    ["training return", number(state.mean_return)],
    ["env steps/s", number(state.env_steps_per_s)],
    ["updates/s", number(state.updates_per_s)],
  ];
  if (state.policy_lag !== null) pairs.push(["policy lag", `${number(state.policy_lag)} updates`]);
  if (state.data_age_s !== null) pairs.push(["age of arriving rows", duration(state.data_age_s)]);
  if (buffer) {
    pairs.push(["buffer", `${number(buffer.rows)} of ${number(buffer.capacity)} rows`]);
    pairs.push(["oldest row", state.oldest_row_s === null ? "–" : `about ${duration(state.oldest_row_s)}`]);
  }
  setGrid(byId("numbers"), pairs);
  const learning = Object.entries({ ...state.learn, ...state.setting }).map(([name, value]) => [name, number(value)]);
  setGrid(byId("learning"), [...learning, ...Object.entries(state.workers)]);
}

const COLUMNS = [
  ["process", (row) => row.name, "name"],
  ["state", (row) => row.state, "state-cell"],
  ["host", (row) => row.host, ""],
  ["pid", (row) => (row.pid === null ? "" : String(row.pid)), "number"],
  ["CPU", (row) => (row.cpu === null ? "" : `${Math.round(row.cpu * 100)}%`), "number"],
  ["memory", (row) => (row.memory_bytes === null ? "" : bytes(row.memory_bytes)), "number"],
  ["heartbeat", (row) => (row.heartbeat_s === null ? "" : `${duration(row.heartbeat_s)} ago`), "number"],
  ["env steps/s", (row) => (row.env_steps_per_s === null ? "" : number(row.env_steps_per_s)), "number"],
  ["rows/s", (row) => (row.rows_per_s === null ? "" : number(row.rows_per_s)), "number"],
  ["lag", (row) => (row.policy_lag === null ? "" : number(row.policy_lag)), "number"],
  ["note", (row) => row.note, "note"],
];
function makeRow() {
  const line = document.createElement("tr");
  line.setAttribute("role", "row");
  for (const [label, , name] of COLUMNS) {
    const cell = document.createElement("td");
    cell.setAttribute("role", "cell");
    cell.dataset.label = label;
    cell.className = name;
    if (name === "state-cell") cell.append(document.createElement("span"));
    line.append(cell);
  }
  return line;
}
function showProcesses(state) {
  const body = byId("rows"), isUsed = COLUMNS.map(([, text]) => state.processes.some((row) => text(row)));
  isUsed.forEach((each, place) => { byId("head").children[place].hidden = !each; });
  while (body.children.length > state.processes.length) body.lastChild.remove();
  state.processes.forEach((row, at) => {
    if (body.children.length <= at) body.append(makeRow());
    COLUMNS.forEach(([, text, name], place) => {
      const cell = body.children[at].children[place];
      cell.hidden = !isUsed[place];
      if (name === "state-cell") setState(cell.firstChild, row.state);
      else {
        const shown = text(row);
        setText(cell, shown);
        cell.className = shown ? name : `${name} empty`;
      }
    });
  });
}
function showLosses(state) {
  const rows = Object.entries(state.lost_rows).map(([reason, count]) => `${number(count)} rows ${reason}`);
  const workers = state.num_failures ? [`workers lost: ${state.num_failures}`] : [];
  setText(byId("losses"), [...workers, ...rows].join("; ") || "none");
  const list = byId("failures"), failures = [...state.failures].reverse();
  while (list.children.length > failures.length) list.lastChild.remove();
  failures.forEach((each, at) => {
    if (list.children.length <= at) list.append(document.createElement("li"));
    const lost = each.rows_lost ? `, ${number(each.rows_lost)} rows lost` : "";
    const outcome = each.outcome ? `; ${each.outcome}` : "";
    setText(list.children[at], `${each.time}  ${each.worker}: ${each.cause}${lost}${outcome}`);
  });
}
function showLog(lines) {
  if (!lines.length) return;
  const log = byId("log"), isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 30;
  known.lines = [...known.lines, ...lines].slice(-MOST_LINES);
  log.textContent = known.lines.join("\n");
  if (isAtEnd) log.scrollTop = log.scrollHeight;
}

// --- what changed, in words, for those who do not see it

function announce(state) {
  const news = [];
  if (state.status !== known.status) news.push(`the run is ${state.status}${state.why ? `: ${state.why}` : ""}`);
  const states = new Map(state.processes.map((row) => [`${row.name} ${row.pid}`, row]));
  for (const [key, row] of states) {
    const before = known.states.get(key);
    if (before !== undefined && before !== row.state && !OVER.includes(state.status)) news.push(`${row.name} is ${row.state}`);
  }
  known.states = new Map([...states].map(([key, row]) => [key, row.state]));
  known.status = state.status;
  if (news.length) setText(byId("news"), news.join("; "));
}

// --- the curve

function takeSeries(name, part) {
  const rows = [...known[name].slice(0, part.start), ...part.rows];
  if (part.rows.length || rows.length !== known[name].length) isNewChart = true;
  known[name] = rows;
}
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
function chartOptions(width) {
  const line = { stroke: colour("--muted"), font: "12px system-ui, sans-serif", grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
  const value = (plot, at) => number(at);
  const time = (plot, splits) => splits.map(duration), count = (plot, splits) => splits.map((each) => number(each));
  return {
    width, height: 260, cursor: { y: false },
    scales: { x: { time: false } },
    axes: [{ ...line, values: axis === 2 ? time : count }, { ...line, size: 60 }],
    series: [
      { label: ["env steps", "updates", "seconds"][axis], value },
      { label: "evaluation", stroke: colour("--eval"), width: 2, spanGaps: true, points: { size: 5 }, value },
      { label: "low", stroke: "transparent", spanGaps: true, points: { show: false }, value },
      { label: "high", stroke: "transparent", spanGaps: true, points: { show: false }, value },
      { label: "training", stroke: colour("--roll"), width: 1, spanGaps: true, points: { show: false }, value },
    ],
    bands: [{ series: [3, 2], fill: colour("--band") }],
  };
}
function columnsOf(rows, numbers) {
  const order = rows.filter((row) => row[axis] !== null).sort((one, other) => one[axis] - other[axis]);
  const seen = order.filter((row, at) => at + 1 === order.length || order[at + 1][axis] !== row[axis]);
  return [seen.map((row) => row[axis]), ...numbers.map((place) => seen.map((row) => row[place]))];
}
function showCurve(state) {
  if (!isNewChart) return;
  isNewChart = false;
  const collectsNothing = state.env_step === 0 && state.train_iter > 0;
  if (!isChosen && collectsNothing && axis === 0) { // a run that learns from a data set
    axis = 1;
    document.querySelector("#axis input[value='1']").checked = true;
  }
  const data = uPlot.join([columnsOf(known.evals, [3, 4, 5]), columnsOf(known.rollouts, [3])]);
  if (data[0].length && chart === null) chart = new uPlot(chartOptions(byId("chart").clientWidth), data, byId("chart"));
  else if (chart !== null) chart.setData(data);
  const interval = state.eval_interval ? state.eval_interval.map((end) => number(end)).join(" to ") : "";
  setText(byId("curve-text"), known.evals.length
    ? `${known.evals.length} evaluations; the last one returned ${number(state.eval_mean)} (95% interval ${interval})`
    : data[0].length ? "returns of training episodes; no evaluation yet" : "no episode has ended yet");
}
function renewChart() {
  if (chart !== null) chart.destroy();
  chart = null;
  isNewChart = true;
  if (known.state !== null) showCurve(known.state);
}

// --- asking

async function ask(path, settings = {}) {
  const timer = new AbortController(), late = setTimeout(() => timer.abort(), TIMEOUT_MS);
  try {
    const headers = { Authorization: `Bearer ${token}`, ...settings.headers };
    return await fetch(path, { ...settings, headers, signal: timer.signal, cache: "no-store" });
  } finally {
    clearTimeout(late);
  }
}
function show(state) {
  if (known.state !== null && state.started_s !== known.state.started_s) known.states = new Map(); // another run
  known.state = state;
  known.cursor = state.cursor;
  takeSeries("evals", state.evals);
  takeSeries("rollouts", state.rollouts);
  showHead(state);
  showNumbers(state);
  showProcesses(state);
  showLosses(state);
  showLog(state.log);
  announce(state);
  showCurve(state);
}
function showContact() {
  const silent = (performance.now() - lastAnswer) / 1000, state = known.state;
  if (!hasAnswered || silent > 3) {
    setText(byId("contact"), `no answer for ${duration(silent)}: the run's process is paused or lost, or cannot be reached`);
    if (hasAnswered && !OVER.includes(state.status)) {
      setState(byId("status"), "silent");
      if (known.status !== "silent") setText(byId("news"), "the run does not answer");
      known.status = "silent";
    }
    return;
  }
  if (state.is_last) {
    setText(byId("contact"), "the process of the run has ended; this is its last state");
    return;
  }
  const age = state.progress_age_s;
  const old = age !== null && age > 5 ? `; it reported progress ${duration(age)} ago` : "";
  setText(byId("contact"), `process ${state.pid} on ${state.host} answers${old}`);
}
async function poll() {
  try {
    const answer = await ask(`api/state?cursor=${encodeURIComponent(known.cursor)}`);
    if (answer.ok) {
      const state = await answer.json();
      [lastAnswer, hasAnswered] = [performance.now(), true];
      show(state);
    }
  } catch (error) {
    if (!(error instanceof TypeError || error.name === "AbortError")) throw error; // else: no answer
  } finally {
    showContact();
    if (known.state === null || !known.state.is_last) setTimeout(poll, document.hidden ? HIDDEN_MS : EVERY_MS);
  }
}
async function command(path, button) {
  const reply = byId("reply");
  button.disabled = true;
  setText(reply, "…");
  try {
    const answer = await ask(path, { method: "POST", headers: { "X-Run-Key": byId("key").value.trim() } });
    setText(reply, (await answer.text()).trim());
  } catch (error) {
    setText(reply, "the run did not answer");
  }
  button.disabled = false;
}

for (const [label, , name] of COLUMNS) {
  const cell = document.createElement("th");
  cell.setAttribute("role", "columnheader");
  cell.scope = "col";
  cell.className = name === "number" ? "number" : "";
  cell.textContent = label;
  byId("head").append(cell);
}
byId("axis").addEventListener("change", (event) => {
  [axis, isChosen] = [Number(event.target.value), true];
  renewChart();
});
byId("control").addEventListener("submit", (event) => event.preventDefault());
byId("save").addEventListener("click", () => command("save", byId("save")));
byId("stop").addEventListener("click", () => command("stop", byId("stop")));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", renewChart);
addEventListener("resize", () => { if (chart !== null) chart.setSize({ width: byId("chart").clientWidth, height: 260 }); });
poll();
