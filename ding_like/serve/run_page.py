"""Page of a run: an HTTP server of its state as a page, as JSON and as Prometheus' text, which also stops and saves it.

Every route needs the token of the page's URL. What changes the run needs the run's key besides, which is in a file of
its folder that only the owner can read.
"""

from __future__ import annotations

import hmac
import json
import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from flask import Flask, Response, abort, request
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from werkzeug.exceptions import HTTPException

from ding_like.comm.http_server import HttpServer, is_called_by, local_names
from ding_like.report.live import LiveRun, RunState
from ding_like.report.run_console import WATCHERS, RunConsole
from ding_like.utils.processes import OWN_HOST, check_known, is_loopback, reachable_url

logger = logging.getLogger(__name__)

KEY_FILE = "page.key"
KEY_HEADER = "X-Run-Key"
_THREADS = 2
_LAST_WORD_S = 3.0  # for an open page to see how the run has ended
_FILES = Path(__file__).parent / "page"
_MIMETYPES = {".js": "text/javascript", ".css": "text/css"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_CURSOR = 200  # characters at most


class PagedRun(LiveRun):
    """Watcher of the runs of this process that keeps the key by which they are stopped in their folders."""

    def __init__(self) -> None:
        super().__init__()
        self.key = secrets.token_urlsafe(32)
        self._key_file: Path | None = None

    def begin(self, run: RunConsole) -> None:
        """Watch a run that begins, and write its key."""
        super().begin(run)
        self._remove_key()
        path = Path(run.title) / KEY_FILE
        try:
            path.unlink(missing_ok=True)  # of a run that was killed
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            self._key_file = path
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(f"{self.key}\n")
        except OSError as error:
            logger.warning("%s cannot be written (%s): the page shows the run, but cannot stop or save it", path, error)

    def end(self, error: BaseException | None) -> None:
        """Take the news that the run has ended, and delete its key."""
        super().end(error)
        self._remove_key()

    def _remove_key(self) -> None:
        path, self._key_file = self._key_file, None
        if path is not None:
            with suppress(OSError):  # the folder of a run that had not begun is deleted with it
                path.unlink()


class RunPage:
    """Page of the runs of this process, served between `open` and `close`; use it with `with`.

    Raises ConfigError for a host that is not known, CommError for a port that is in use.
    """

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0) -> None:
        check_known(host, "--page", OWN_HOST)
        self.run = PagedRun()
        self._token = secrets.token_urlsafe(24)
        app = make_app(self.run, token=self._token, names=local_names(host))
        self._server = HttpServer(
            app, host=host, port=port, threads=_THREADS, failing="the page cannot be served on",
            fix="Give --page another port (--page alone takes any that is free), or --page HOST:PORT with a host of "
            "this machine.",
        )  # fmt: skip
        if not is_loopback(host):
            logger.warning("the page on %s is not encrypted: use a TLS proxy, a private net, or ssh -L", host)

    @property
    def url(self) -> str:
        """Address of the page, with its token."""
        return f"{reachable_url(self._server.url)}/?token={self._token}"

    def open(self) -> None:
        """Begin to answer, and to watch the runs that begin from now on."""
        self.run.open()
        WATCHERS.append(self.run)
        self._server.start()

    def close(self, error: BaseException | None = None) -> None:
        """Let an open page see how the run has ended, then end; may be called again."""
        if self.run in WATCHERS:
            WATCHERS.remove(self.run)
            self.run.end(error)
            self.run.give_last_state(_LAST_WORD_S)
        self.run.close()
        self._server.close(grace_s=1.0)

    def __enter__(self) -> RunPage:
        self.open()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close(error)


def make_app(run: PagedRun, *, token: str, names: tuple[str, ...] | None) -> Flask:
    """Return the application with its routes; `names` are those it may be called by, None for any."""
    app = Flask(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = 1024
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    _add_pages(app, (_FILES / "index.html").read_text(encoding="utf-8").replace("TOKEN", token))
    _add_answers(app, run)

    @app.before_request
    def check_access() -> Response | None:
        given = request.args.get("token") or request.headers.get("Authorization", "").removeprefix("Bearer ")
        origin = request.headers.get("Origin")
        is_own = origin is None or origin.partition("://")[2] == request.headers.get("Host")
        if not (is_called_by(names) and is_own and _is_equal(given, token)):
            abort(403)
        if request.method == "POST" and not _is_equal(request.headers.get(KEY_HEADER, ""), run.key):
            return _text(f"this needs the run's key, the line in {KEY_FILE} of its folder, as header {KEY_HEADER}", 403)
        return None

    @app.after_request
    def add_headers(response: Response) -> Response:
        response.headers.update(_HEADERS)
        return response

    @app.errorhandler(Exception)
    def refuse(error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            logger.error("a request of the page failed", exc_info=error)
            return _text("the server failed at this request; the log has the cause", 500)
        return _text(error.name, error.code or 500)

    return app


def _add_pages(app: Flask, index: str) -> None:
    @app.get("/")
    def page() -> Response:
        return Response(index, mimetype="text/html")

    @app.get("/files/<path:name>")
    def file(name: str) -> Response:
        path = _FILES / name
        if path not in _STATIC:
            abort(404)
        return Response(path.read_bytes(), mimetype=_MIMETYPES[path.suffix])


def _add_answers(app: Flask, run: PagedRun) -> None:
    registry = CollectorRegistry()
    registry.register(_Metrics(run))

    @app.get("/api/state")
    def state() -> Response:
        found = run.state(request.args.get("cursor", "")[:_CURSOR])
        return Response(json.dumps(found.to_plain(), allow_nan=False), mimetype="application/json")

    @app.get("/metrics")
    def metrics() -> Response:
        return Response(generate_latest(registry), content_type="text/plain; version=0.0.4; charset=utf-8")

    @app.post("/stop")
    def stop() -> Response:
        return _answer(run.stop(), done="stopping, as by Ctrl-C")

    @app.post("/save")
    def save() -> Response:
        return _answer(run.save(), done="a point to resume from is saved after this iteration")


_STATIC = frozenset(path for path in _FILES.rglob("*") if path.suffix in _MIMETYPES)


def _is_equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), expected.encode())


def _answer(refusal: str, *, done: str) -> Response:
    return _text(refusal or done, 409 if refusal else 202)


def _text(text: str, status: int) -> Response:
    return Response(f"{text}\n", status, mimetype="text/plain")


# Gauges of a run: field of its state -> (name, help).
_GAUGES = {
    "duration_s": ("duration_seconds", "Seconds that the run has taken"),
    "eta_s": ("eta_seconds", "Seconds that are left"),
    "fraction": ("fraction_done", "Part of the budget that is used up"),
    "env_steps_per_s": ("env_steps_per_second", "Env steps per second over the last ten seconds"),
    "updates_per_s": ("updates_per_second", "Updates per second over the last ten seconds"),
    "mean_return": ("rollout_return_mean", "Mean return of the last training episodes"),
    "eval_mean": ("eval_return_mean", "Mean return of the last evaluation"),
    "best_eval": ("eval_return_best", "Mean return of the best evaluation"),
    "policy_lag": ("policy_lag_updates", "Updates between the policy that collected rows and the learner's"),
    "data_age_s": ("data_age_seconds", "Age of rows when they are stored"),
    "progress_age_s": ("progress_age_seconds", "Seconds since the run last reported progress"),
}
# The same of a process.
_OF_PROCESS = {
    "cpu": ("cpu_cores", "CPU cores that a process uses"),
    "memory_bytes": ("memory_bytes", "Memory of a process"),
    "heartbeat_s": ("heartbeat_age_seconds", "Seconds since the last message of a process"),
    "env_steps_per_s": ("env_steps_per_second", "Env steps per second of a process"),
    "rows_per_s": ("rows_per_second", "Rows per second of a process"),
    "policy_lag": ("policy_lag_updates", "Updates that the policy of a process was behind the learner's"),
}
_LABELS = ("name", "host", "pid")


class _Metrics(Collector):
    """Metrics of a run, of its state when they are asked for."""

    def __init__(self, run: LiveRun) -> None:
        self._run = run

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Yield nothing: names are not checked for doubles, as nothing else is registered."""
        yield from ()

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield the metrics that are known."""
        state = self._run.state()
        info = GaugeMetricFamily("ding_run_info", "Run and its status", labels=("experiment", "status"))
        info.add_metric((state.experiment, state.status), 1.0)
        yield info
        yield CounterMetricFamily("ding_env_steps", "Env steps of the run", value=state.env_step)
        yield CounterMetricFamily("ding_updates", "Updates of the run", value=state.train_iter)
        yield CounterMetricFamily("ding_failures", "Workers that were lost", value=state.num_failures)
        for field, (name, text) in _GAUGES.items():
            if (value := getattr(state, field)) is not None:
                yield GaugeMetricFamily(f"ding_{name}", text, value=value)
        yield from _of_rows(state)
        yield from _of_processes(state)


def _of_rows(state: RunState) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
    if state.buffer is not None:
        yield GaugeMetricFamily("ding_buffer_rows", "Rows in the replay buffer", value=state.buffer.rows)
        yield GaugeMetricFamily("ding_buffer_capacity_rows", "Most rows that fit", value=state.buffer.capacity)
    lost = CounterMetricFamily("ding_lost_rows", "Rows that were not learned from, by the reason", labels=("reason",))
    for reason, rows in state.lost_rows.items():
        lost.add_metric((reason,), rows)
    yield lost


def _of_processes(state: RunState) -> Iterator[GaugeMetricFamily]:
    rows = [((row.name, row.host, str(row.pid or "")), row) for row in state.processes]
    up = GaugeMetricFamily("ding_process_running", "Whether a process runs", labels=(*_LABELS, "state"))
    for labels, row in rows:
        up.add_metric((*labels, row.state), float(row.state == "running"))
    yield up
    for field, (name, text) in _OF_PROCESS.items():
        family = GaugeMetricFamily(f"ding_process_{name}", text, labels=_LABELS)
        for labels, row in rows:
            if (value := getattr(row, field)) is not None:
                family.add_metric(labels, value)
        yield family
