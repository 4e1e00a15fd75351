"""Carry requests from the real client to the real WSGI application: late, twice, never, or with the answer lost."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from random import Random
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import requests

from tests.simulation.scheduler import Process, SimThread, World

_THREADS = 16  # of the server


class Weather:
    """Probabilities of network faults, for each request."""

    CALM: Mapping[str, float] = {"lost": 0.0, "answer_lost": 0.0, "reset": 0.0, "copied": 0.0, "late": 0.0}
    ROUGH: Mapping[str, float] = {"lost": 0.04, "answer_lost": 0.08, "reset": 0.05, "copied": 0.08, "late": 0.15}


class _Call:
    """Request that is under way."""

    def __init__(self, process: Process, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> None:
        self.process = process
        self.method, self.path, self.body, self.headers = method, path, body, dict(headers)
        self.waiting: tuple[SimThread, int] | None = None
        self.answer: Response | None = None
        self.error: Exception | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Response:
    """Simulated `requests.Response`."""

    def __init__(self, status_code: int, content: bytes, headers: Mapping[str, str]) -> None:
        self.status_code = status_code
        self.content = content
        self.headers = requests.structures.CaseInsensitiveDict(headers)
        self.raw = _Raw(content)

    def json(self, **kwargs: Any) -> Any:
        return json.loads(self.content, **kwargs)

    @property
    def text(self) -> str:
        return self.content.decode()

    def iter_content(self, chunk_size: int = 1) -> Any:
        return iter([self.content[at : at + chunk_size] for at in range(0, len(self.content), chunk_size)])

    def close(self) -> None: ...

    def __enter__(self) -> Response:
        return self

    def __exit__(self, *error: object) -> None: ...


class _Raw(io.BytesIO):
    """Stream below a response."""

    def read1(self, size: int | None = -1, /, decode_content: bool = False) -> bytes:
        return super().read1(-1 if size is None else size)


class Network:
    """Connect every process with the one that listens."""

    def __init__(self, world: World, count: Callable[[str], None]) -> None:
        self.world = world
        self.count = count
        self.rng = Random(f"{world.seed}/network")
        self.weather: Mapping[str, float] = Weather.CALM
        self.cut_off: set[str] = set()  # names of processes whose packets are lost
        self._server: tuple[Process, Any] | None = None
        self._busy: list[_Call] = []  # taken by the server, not answered yet
        self._queue: list[_Call] = []
        self._num_threads = 0

    def listen(self, process: Process, app: Any) -> None:
        """Serve a WSGI application in a process."""
        self._server, self._busy, self._queue, self._num_threads = (process, app), [], [], 0

    def stop_listening(self) -> None:
        """Refuse connections from now on; those that are open are reset."""
        self._server = None
        broken, self._busy, self._queue = self._busy + self._queue, [], []
        for call in broken:
            self._reset(call, self.latency())

    def latency(self) -> float:
        if self.weather["late"] and self.rng.random() < self.weather["late"]:
            self.count("late")
            return self.rng.uniform(0.01, 7.0)
        return self.rng.uniform(0.0002, 0.003)

    # --- the client's side

    def requests(self) -> SimpleNamespace:
        """Return what stands for the module requests."""
        network = self

        class Session:
            """Simulated `requests.Session`; connections cost nothing here."""

            trust_env = True

            def request(self, method: str, url: str, **kwargs: Any) -> Response:
                return network.request(method, url, **kwargs)

            def get_adapter(self, url: str) -> object:
                return object()

            def mount(self, prefix: str, adapter: Any) -> None: ...

            def close(self) -> None: ...

        names = ("RequestException", "ConnectionError", "Timeout", "exceptions", "Response", "structures", "adapters")
        return SimpleNamespace(Session=Session, **{name: getattr(requests, name) for name in names})

    def request(
        self, method: str, url: str, *, data: bytes, headers: Mapping[str, str], timeout: Any, **_: Any
    ) -> Response:
        """Send one request and wait for its answer. Raises what requests raises."""
        world = self.world
        world.check_alive()
        assert world.current is not None
        process = world.current.process
        parts = urlsplit(url)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        call = _Call(process, method, path, data or b"", headers)
        read_s = timeout[-1] if isinstance(timeout, tuple) else timeout
        self.count("request")
        self._send(call)
        deadline_s = world.now_s + float(read_s)

        def register(thread: SimThread, token: int) -> None:
            call.waiting = (thread, token)

        world.block(deadline_s, register)
        call.waiting = None
        if call.answer is not None:
            return call.answer
        if call.error is not None:
            raise call.error
        self.count("timeout")
        raise requests.exceptions.ReadTimeout(f"no answer to {call} in {read_s:g} s")

    def _send(self, call: _Call) -> None:
        chance, weather = self.rng.random, self.weather
        if weather["copied"] and chance() < weather["copied"]:
            self.count("copied")
            copy = _Call(call.process, call.method, call.path, call.body, call.headers)
            self.world.after(self.rng.uniform(0.0, 20.0), lambda: self._arrive(copy, is_copy=True))
        if call.process.name in self.cut_off or (weather["lost"] and chance() < weather["lost"]):
            self.count("request_lost")
            return
        if weather["reset"] and chance() < weather["reset"]:
            self.count("reset")
            self._reset(call, self.latency())
            return
        self.world.after(self.latency(), lambda: self._arrive(call))

    def _reset(self, call: _Call, after_s: float) -> None:
        self.world.after(after_s, lambda: self._fail(call))

    def _fail(self, call: _Call) -> None:
        call.error = requests.exceptions.ConnectionError(ConnectionResetError(104, "Connection reset by peer"))
        self._wake(call)

    def _wake(self, call: _Call) -> None:
        if call.waiting is not None:
            self.world.wake(*call.waiting)

    # --- the server's side

    def _arrive(self, call: _Call, *, is_copy: bool = False) -> None:
        if self._server is None or not self._server[0].is_alive:
            self._reset(call, 0.0)
            return
        self.count("copy_arrived" if is_copy else "arrived")
        self._queue.append(call)
        self._start_next()

    def _start_next(self) -> None:
        if self._server is None or not self._queue or self._num_threads >= _THREADS:
            return
        process, app = self._server
        call = self._queue.pop(0)
        self._busy.append(call)
        self._num_threads += 1
        process.spawn(lambda: self._serve(app, call), "http")

    def _serve(self, app: Any, call: _Call) -> None:
        self.world.check_alive()
        answer = _call_wsgi(app, call)
        self.world.check_alive()
        if call not in self._busy:  # the connection is gone, and maybe the server with it
            return
        self._busy.remove(call)
        self._num_threads -= 1
        self._start_next()
        self.world.note(f"{call} of {call.process.name}: {answer.status_code} {_code(answer)}")
        if answer.status_code == 500:
            self.world.fail("internal", f"the coordinator failed at {call}: {answer.text}")
        weather = self.weather
        if call.process.name in self.cut_off or (weather["answer_lost"] and self.rng.random() < weather["answer_lost"]):
            self.count("answer_lost")
            if self.rng.random() < 0.5:
                self._reset(call, self.latency())
            return
        self.world.after(self.latency(), lambda: self._deliver(call, answer))

    def _deliver(self, call: _Call, answer: Response) -> None:
        call.answer = answer
        self._wake(call)


def _call_wsgi(app: Any, call: _Call) -> Response:
    path, _, query = call.path.partition("?")
    environ = {
        "REQUEST_METHOD": call.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "80",
        "HTTP_HOST": "127.0.0.1",
        "REMOTE_ADDR": "127.0.0.1",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(call.body),
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "CONTENT_LENGTH": str(len(call.body)),
    }
    for name, value in call.headers.items():
        key = name.upper().replace("-", "_")
        environ["CONTENT_TYPE" if key == "CONTENT_TYPE" else f"HTTP_{key}"] = value
    started: list[Any] = []
    found = app(environ, lambda status, headers, exc_info=None: started.append((status, headers)))
    try:
        content = b"".join(found)
    finally:
        close = getattr(found, "close", None)
        if close is not None:
            close()
    status, headers = started[-1]
    return Response(int(status.split()[0]), content, dict(headers))


def _code(answer: Response) -> str:
    if answer.status_code == 200:
        return ""
    try:
        return str(answer.json()["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return ""
