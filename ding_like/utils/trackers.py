"""Experiment trackers: their interface, and the threads of a run that send to them what it writes to `metrics.jsonl`.

The run waits for none of them.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import math
import os
import queue
import re
import secrets
import shlex
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar

from ding_like.errors import ConfigError
from ding_like.types import Config, Json
from ding_like.utils.files import write_text
from ding_like.utils.metrics import MetricsSink
from ding_like.utils.registries import TRACKER_REGISTRY, pip_line

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from trackio.run import Run as TrackioRun
    from wandb import Run

logger = logging.getLogger(__name__)

_QUIET_S = 3.0  # of waiting at the end before it is logged
_LEAVE_S = 20.0  # of waiting at most, where the run was interrupted or has failed
_TRIES = 4  # of whatever fails, one after another, before the tracker is given up
_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 30.0
_REST = 100.0  # after so much CPU time it rests so many times as long: a run on one core pays a hundredth
_LONGEST_REST_S = 10.0
_LONGEST_REASON = 240  # characters of an error that are logged
_FILES = ("curve.png", "agent.gif", "result.json", "total_config.py")
_MOST_ROWS = 5_000  # of one batch
_HEAD = frozenset(("source", "env_step", "train_iter", "time_s"))

# How a run ended.
Status = Literal["finished", "interrupted", "failed"]
# One line of metrics.jsonl.
Report = Mapping[str, Any]


class TrackerRefusedError(Exception):
    """Error of a tracker for which trying again is of no use, such as a missing key."""


@dataclass(frozen=True)
class TrackedRun:
    """Run as a tracker receives it when the run begins."""

    name: str  # exp_name
    folder: Path
    config: Config  # the compiled one, as plain values
    run_id: str | None  # what `begin` returned when the run was begun; None of a new run


class Tracker(Protocol):
    """Receiver of a run's numbers; made with its settings, and called by one thread of the run.

    What a method raises is logged once and tried again a few times; then the tracker is given up, and the run goes on.
    Registered with TRACKER_REGISTRY; `config` are the defaults of its settings.
    """

    config: ClassVar[dict[str, Any]]
    config_types: ClassVar[Mapping[str, tuple[type, ...]]]
    package: ClassVar[str]  # that it needs
    extra: ClassVar[str]  # of ding-like, which installs that

    def __init__(self, settings: Config) -> None: ...

    def begin(self, run: TrackedRun) -> str:
        """Begin a run, or go on with `run.run_id`; return its id. Raises TrackerRefusedError where it never can."""

    def describe(self) -> str:
        """Return where the run can be seen, in a few words."""

    def send(self, reports: Sequence[Report]) -> None:
        """Send lines of metrics.jsonl."""

    def finish(self, result: Config, files: Sequence[Path], *, status: Status) -> None:
        """Send the result (empty if there is none) and files, and end the run."""


def values_of(report: Report) -> dict[str, float]:
    """Return the numbers of a line by `source/name`; "nan" and "inf", which JSON has as texts alone, are numbers."""
    return {f"{report['source']}/{name}": float(value) for name, value in report.items() if name not in _HEAD}


def numbers_of(result: Config) -> dict[str, float]:
    """Return the finite numbers of a result by `result/name`, those of its sections by `result/section/name`."""
    found = ((name, value) for name, value in flattened(result, "result", "/") if isinstance(value, (bool, int, float)))
    return {name: float(value) for name, value in found if math.isfinite(value)}


class Tracked(AbstractContextManager["Tracked"]):
    """Trackers of a run, which `follow` starts; when the block ends they send how the run ended, waited for in bounds.

    Of several learners only the first (`is_first`) has some. Raises ConfigError at once where the package of one is
    missing.
    """

    def __init__(self, cfg: Config, *, is_first: bool = True) -> None:
        self._cfg = cfg
        given = ((cfg.get("trackers") if is_first else None) or {}).items()
        self._wanted = {name: settings for name, settings in given if settings is not None}
        self._threads: list[_TrackerThread] = []
        for name, settings in self._wanted.items():
            found = TRACKER_REGISTRY.get(settings.get("type", name))
            package = getattr(found, "package", None)
            if package is not None and importlib.util.find_spec(package) is None:
                raise ConfigError(f"trackers.{name} needs {package}; install it with: {pip_line(found.extra)}")

    def follow(self, metrics: MetricsSink | None = None) -> None:
        """Start the trackers; `metrics` notifies them when a run goes back to a saved point."""
        # Without the section of the trackers, whose addresses may hold a password.
        config = _plain({key: value for key, value in self._cfg.items() if key != "trackers"})
        self._threads = [_TrackerThread(name, settings, config) for name, settings in self._wanted.items()]
        if metrics is not None and self._threads:
            metrics.before_cut = self._cut

    def _cut(self, path: Path, num_bytes: int) -> None:
        lines = list(lines_behind(path, num_bytes))
        for thread in self._threads:
            thread.messages.put(lambda follower: follower.cut(num_bytes, lines))

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        is_stopped = kind is not None and issubclass(kind, (KeyboardInterrupt, SystemExit))
        status: Status = "finished" if kind is None else "interrupted" if is_stopped else "failed"
        for thread in self._threads:
            thread.messages.put(status)
        began_s = time.monotonic()
        for thread in self._threads:
            thread.wait(began_s, status)


class _TrackerThread:
    """Thread that sends a run's metrics to one tracker as they are written, until the run ends or too much failed."""

    def __init__(self, name: str, settings: Config, config: Config) -> None:
        # How the run ended, or a change of the follower.
        self.messages: queue.SimpleQueue[Status | Callable[[Follower], None]] = queue.SimpleQueue()
        self._name, self._settings, self._config = name, settings, config
        self._folder = Path(str(config["exp_name"])).resolve()
        self._follower = Follower(self._folder / "metrics.jsonl", self._folder / "log/trackers" / f"{name}.json")
        self._status: Status | None = None  # how the run ended, once that is known
        self._has_warned = False
        self._thread = threading.Thread(target=self._run, name=f"tracker {name}", daemon=True)
        self._thread.start()

    def wait(self, began_s: float, status: Status) -> None:
        """Wait until the tracker is done, at most `finish_s` after `began_s`; then leave it behind."""
        longest_s = float(self._settings.get("finish_s", 60.0))
        longest_s = longest_s if status == "finished" else min(longest_s, _LEAVE_S)
        self._thread.join(min(_QUIET_S, longest_s))
        if self._thread.is_alive() and longest_s > _QUIET_S:
            logger.info("%s sends the last of this run", self._name)
            self._thread.join(max(longest_s - (time.monotonic() - began_s), 0.0))
        if self._thread.is_alive():
            text = "%s has not finished within %.0f s and is left behind; set trackers.%s.finish_s to wait longer"
            logger.warning(text, self._name, longest_s, self._name)

    def _run(self) -> None:
        tracker: Tracker = TRACKER_REGISTRY.get(self._settings.get("type", self._name))(_plain(self._settings))
        if not self._tried("begin", lambda: self._begin(tracker)):
            return
        logger.info("%s: %s", self._name, tracker.describe())
        used_s = time.thread_time()
        while self._status is None:
            if not self._tried("send metrics", lambda: self._send(tracker)):
                return
            rest_s = min(_REST * (time.thread_time() - used_s), _LONGEST_REST_S)
            used_s = time.thread_time()
            if self._status is None:
                self._listen(max(float(self._settings["every_s"]), rest_s))
        if self._tried("send metrics", lambda: self._send(tracker)):
            self._tried("finish", lambda: self._finish(tracker))

    def _begin(self, tracker: Tracker) -> None:
        run = TrackedRun(self._folder.name, self._folder, self._config, self._follower.run_id)
        self._follower.run_id = tracker.begin(run)
        self._follower.save()

    def _send(self, tracker: Tracker) -> None:
        while True:
            reports = self._follower.read()
            if self._listen(0.0):
                continue  # the file was cut back: what was read may be of neither state
            if reports:
                tracker.send(reports)
            if not self._follower.keep():
                return

    def _finish(self, tracker: Tracker) -> None:
        assert self._status is not None, "the run has ended"
        has_finished, path = self._status == "finished", self._folder / "result.json"
        result = json.loads(path.read_text(encoding="utf-8")) if has_finished and path.is_file() else {}
        files = [self._folder / name for name in _FILES if has_finished and (self._folder / name).is_file()]
        tracker.finish(result, files, status=self._status)

    def _listen(self, timeout_s: float) -> bool:
        """Process a message that waits, or arrives in time; return whether the file was cut back."""
        try:
            message = self.messages.get(timeout=timeout_s) if timeout_s else self.messages.get_nowait()
        except queue.Empty:
            return False
        if callable(message):
            message(self._follower)
            return True
        self._status = message
        return False

    def _tried(self, what: str, act: Callable[[], None]) -> bool:
        """Do something, again if it fails; return False, and log it, where the tracker is given up."""
        wait_s = _FIRST_WAIT_S
        for count in range(1, _TRIES + 1):
            try:
                act()
                return True
            except Exception as error:  # a tracker's library may raise anything; the run continues
                is_last = count == _TRIES or isinstance(error, TrackerRefusedError) or self._status is not None
                if not self._has_warned:
                    text = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST_REASON]
                    more = "it is off" if is_last else "it is tried again"
                    kept = f"the run goes on, and {self._folder}/metrics.jsonl has everything"
                    logger.warning("%s cannot %s (%s): %s; %s", self._name, what, text, more, kept)
                    self._has_warned = True
                elif is_last:
                    logger.info("%s still cannot %s: it is off", self._name, what)
                if is_last:
                    return False
                self._listen(wait_s)
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        return False


class Follower:
    """Reader of what is new in a run's metrics; `keep` records that it was sent, in a file that outlives the run."""

    def __init__(self, metrics: Path, state: Path) -> None:
        self._metrics = metrics
        self._state = state
        self.run_id: str | None = None
        self._offset = self._read_to = 0  # until there the lines were sent, and read
        self._skip: Counter[str] = Counter()  # by source, lines sent that a run which went back will write again
        self._left: Counter[str] = Counter()  # of which so many follow what was read
        # A new run, or one whose record is lost, begins anew at the tracker.
        with suppress(OSError, ValueError, KeyError, TypeError):
            saved = json.loads(state.read_text(encoding="utf-8"))
            self.run_id, self._offset, self._skip = saved["run"], int(saved["offset"]), Counter(saved["skip"])

    def read(self) -> list[Report]:
        """Return the next whole lines that were not sent yet; more of them may wait."""
        self._read_to, self._left = self._offset, Counter(self._skip)
        reports: list[Report] = []
        for end, report in islice(lines_behind(self._metrics, self._offset), _MOST_ROWS):
            self._read_to = end
            if report is not None and self._left[report["source"]]:
                self._left[report["source"]] -= 1
            elif report is not None:
                reports.append(report)
        return reports

    def keep(self) -> bool:
        """Record that what `read` returned last was sent; return False if that was nothing."""
        if self._read_to == self._offset:
            return False
        self._offset, self._skip = self._read_to, +self._left
        self.save()
        return True

    def cut(self, num_bytes: int, lines: Sequence[tuple[int, Report | None]]) -> None:
        """Take note that the file is cut back to `num_bytes`, behind which it has `lines`.

        A run that goes on from a saved point writes equal lines: as many of each source are left out as were sent.
        """
        sent = [report for end, report in lines if report is not None and end <= self._offset]
        self._skip.update(report["source"] for report in sent)
        self._offset = min(self._offset, num_bytes)
        self.save()

    def save(self) -> None:
        """Write the id of the run at the tracker, and how far it is."""
        write_text(self._state, json.dumps({"run": self.run_id, "offset": self._offset, "skip": self._skip}))


def lines_behind(metrics: Path, num_bytes: int) -> Iterator[tuple[int, Report | None]]:
    """Yield the whole lines behind `num_bytes` of a file, each with where it ends; None for one that is no report."""
    with suppress(OSError), open(metrics, "rb") as file:  # a run that has begun may have written nothing
        file.seek(num_bytes)
        end = num_bytes
        for line in file:
            end += len(line)
            if line.endswith(b"\n"):
                yield end, _report_of(line)


def _report_of(line: bytes) -> Report | None:
    try:
        report: Report = json.loads(line)
        _ = report["source"], int(report["env_step"]), int(report["train_iter"])
    except (ValueError, KeyError, TypeError):
        return None  # readers of the whole file report what is wrong with it
    return report


def _plain(value: Json) -> Json:
    """Return sections as dicts, and what JSON has no form for as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


T = TypeVar("T")

_STATUS = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
_MOST_METRICS, _MOST_PARAMS = 1000, 100  # of one request
_LONGEST_PARAM = 500  # characters that every server takes
_NOT_IN_NAMES = re.compile(r"[^\w\-. :/]")
# A server that does not answer: seconds of a request, and how often it is tried again; MLflow's own are 120 and 7.
_BOUNDS = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "20", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2"}


@TRACKER_REGISTRY.register("mlflow")
class MlflowTracker:
    """Tracker of MLflow: metrics over env steps, the config as parameters, the result, curve and video as artifacts.

    It writes to `uri`: a server, a database (sqlite:///mlflow.db) or a folder.
    """

    config: ClassVar[dict[str, Any]] = dict(
        # Server, database or folder of MLflow; None: MLFLOW_TRACKING_URI, else MLflow's own default, or ./mlruns where
        # its database packages are missing.
        uri=None,
        # Name of the experiment that the run belongs to.
        experiment="ding_like",
        # Name of the run; None: exp_name.
        name=None,
        # Tags of the run: names and values.
        tags={},
        # Seconds that the run waits at its end until everything is sent.
        finish_s=60.0,
        # Seconds between two batches of metrics.
        every_s=5.0,
    )
    config_types: ClassVar[Mapping[str, tuple[type, ...]]] = {"uri": (str,), "name": (str,)}
    config_free: ClassVar[tuple[str, ...]] = ("tags",)
    package: ClassVar[str] = "mlflow"
    extra: ClassVar[str] = "mlflow"
    _client: MlflowClient  # of `begin`, which is called first

    def __init__(self, settings: Config) -> None:
        self._settings = settings
        self._run_id = ""
        self._env_step = 0

    def begin(self, run: TrackedRun) -> str:
        for name, value in {**_BOUNDS, "MLFLOW_ALLOW_FILE_STORE": "true"}.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient
        from mlflow.entities import Param

        cfg = self._settings
        default = None if importlib.util.find_spec("sqlalchemy") is not None else "mlruns"
        self._uri = cfg["uri"] or os.environ.get("MLFLOW_TRACKING_URI") or default
        self._client = client = MlflowClient(tracking_uri=self._uri)
        if run.run_id is not None:
            client.update_run(run.run_id, status="RUNNING")
            self._run_id = run.run_id
            return run.run_id
        tags = {str(name): str(value) for name, value in cfg["tags"].items()}
        made = client.create_run(self._experiment_id(), run_name=cfg["name"] or run.name, tags=tags)
        self._run_id = str(made.info.run_id)
        params = (Param(_name(key), str(value)[:_LONGEST_PARAM]) for key, value in flattened(run.config))
        for part in _parts(params, _MOST_PARAMS):
            client.log_batch(self._run_id, params=part)
        return self._run_id

    def _experiment_id(self) -> str:
        from mlflow.exceptions import MlflowException

        name, client = str(self._settings["experiment"]), self._client
        found = client.get_experiment_by_name(name)
        if found is None:
            try:
                return str(client.create_experiment(name))
            except MlflowException:  # another run made it meanwhile
                found = client.get_experiment_by_name(name)
                if found is None:
                    raise
        return str(found.experiment_id)

    def describe(self) -> str:
        store = re.sub(r"//[^@/]*@", "//", self._uri or "the default store")  # no password in logs
        return f"run {self._run_id} of experiment '{self._settings['experiment']}' at {store}"

    def send(self, reports: Sequence[Report]) -> None:
        self._send((report["env_step"], values_of(report)) for report in reports)

    def _send(self, values: Iterator[tuple[int, Mapping[str, float]]]) -> None:
        from mlflow.entities import Metric

        now_ms = int(time.time() * 1000)
        metrics = []
        for env_step, numbers in values:
            self._env_step = max(self._env_step, env_step)
            step = self._env_step if env_step < 0 else env_step
            metrics += [Metric(_name(name), value, now_ms, step) for name, value in numbers.items()]
        for part in _parts(iter(metrics), _MOST_METRICS):
            self._client.log_batch(self._run_id, metrics=part)

    def finish(self, result: Config, files: Sequence[Path], *, status: Status) -> None:
        self._send(iter([(int(result.get("env_step", -1)), numbers_of(result))]))
        for path in files:
            self._client.log_artifact(self._run_id, str(path))
        self._client.set_terminated(self._run_id, _STATUS[status])


def flattened(config: Config, path: str = "", mark: str = ".") -> Iterator[tuple[str, Any]]:
    """Yield (path.to.key, value) of every value of nested sections; `mark` stands between the keys."""
    for key, value in config.items():
        here = f"{path}{mark}{key}" if path else str(key)
        if isinstance(value, Mapping) and value:
            yield from flattened(value, here, mark)
        else:
            yield here, value


def _name(name: str) -> str:
    """Return a name with the characters that MLflow takes."""
    return _NOT_IN_NAMES.sub("_", name)


def _parts(items: Iterator[T], size: int) -> Iterator[list[T]]:
    while part := list(islice(items, size)):
        yield part


_EXIT_CODES = {"finished": 0, "interrupted": 255, "failed": 1}  # 255: how wandb marks a run as killed


@TRACKER_REGISTRY.register("wandb")
class WandbTracker:
    """Tracker of wandb: curves over env steps, its config, its result, the learning curve and the video.

    Offline its files lie in the run's folder, and `wandb sync` sends them later.
    """

    config: ClassVar[dict[str, Any]] = dict(
        # Name of the project that the run belongs to.
        project="ding_like",
        # User or team that the project belongs to; None: your own.
        entity=None,
        # Name of the run; None: exp_name.
        name=None,
        # Name of a group of runs; None: no group.
        group=None,
        # Tags of the run, a list of words.
        tags=[],
        # "online", or "offline": written to the run's folder, to be sent later.
        mode="online",
        # Seconds that the run waits for the service at its start.
        init_timeout_s=60.0,
        # Seconds that the run waits at its end until everything is sent.
        finish_s=60.0,
        # Seconds between two batches of metrics.
        every_s=5.0,
    )
    config_types: ClassVar[Mapping[str, tuple[type, ...]]] = {"entity": (str,), "name": (str,), "group": (str,)}
    package: ClassVar[str] = "wandb"
    extra: ClassVar[str] = "wandb"
    _run: Run  # of `begin`, which is called first

    @classmethod
    def check_config(cls, cfg: Config) -> Sequence[tuple[str, str]]:
        """Return (key, what is wrong) for every value that wandb cannot use."""
        if cfg["mode"] not in ("online", "offline"):
            return [("mode", f"is {cfg['mode']!r}; expected 'online' or 'offline'")]
        return []

    def __init__(self, settings: Config) -> None:
        self._settings = settings

    def begin(self, run: TrackedRun) -> str:
        import wandb
        from wandb.errors import AuthenticationError, UsageError

        cfg, run_id = self._settings, run.run_id or secrets.token_hex(4)
        wandb.setup(wandb.Settings(silent=True))  # its messages would go into the run's console
        init_s, finish_s = float(cfg["init_timeout_s"]), float(cfg["finish_s"])
        settings = wandb.Settings(silent=True, console="off", init_timeout=init_s, finish_timeout=finish_s)
        try:
            self._run = wandb.init(
                **{name: cfg[name] for name in ("project", "entity", "group", "mode")},
                name=cfg["name"] or run.name,
                tags=list(cfg["tags"]),
                id=run_id,
                resume="allow",
                dir=str(run.folder),
                config=dict(run.config),
                allow_val_change=True,
                settings=settings,
            )
        except (AuthenticationError, UsageError) as error:
            raise TrackerRefusedError(f"{error} (or set trackers.wandb.mode=offline)") from error
        self._run.define_metric("env_step")
        self._run.define_metric("*", step_metric="env_step")
        return run_id

    def describe(self) -> str:
        if self._settings["mode"] == "offline":
            return f"run {self._run.id}, offline; send it later with  wandb sync {Path(self._run.dir).parent}"
        return f"run {self._run.id}, {self._run.url}"

    def send(self, reports: Sequence[Report]) -> None:
        for report in reports:
            steps = {name: report[name] for name in ("env_step", "train_iter") if report[name] >= 0}
            self._run.log({**values_of(report), **steps})

    def finish(self, result: Config, files: Sequence[Path], *, status: Status) -> None:
        import wandb

        self._run.summary.update(numbers_of(result))
        for path in files:
            if path.suffix == ".png":
                self._run.log({path.stem: wandb.Image(str(path))})
            elif path.suffix == ".gif":
                self._run.log({path.stem: wandb.Video(str(path), format="gif")})
            else:
                self._run.save(str(path), base_path=str(path.parent), policy="now")
        self._run.finish(exit_code=_EXIT_CODES[status])
        wandb.teardown()  # the service process ends, too


@TRACKER_REGISTRY.register("trackio")
class TrackioTracker:
    """Tracker of trackio: curves over env steps, its config, its result, the learning curve and the video.

    It writes into a database on this machine, which `trackio show` opens; with `space_id` to a Space of Hugging Face.
    """

    config: ClassVar[dict[str, Any]] = dict(
        # Name of the project that the run belongs to.
        project="ding_like",
        # Name of the run; None: exp_name.
        name=None,
        # Name of a group of runs; None: no group.
        group=None,
        # Folder of the database; None: TRACKIO_DIR, else trackio's own below the home folder.
        dir=None,
        # Space of Hugging Face that is written to, "user/name"; None: this machine alone.
        space_id=None,
        # Seconds that the run waits at its end until everything is sent.
        finish_s=60.0,
        # Seconds between two batches of metrics.
        every_s=5.0,
    )
    config_types: ClassVar[Mapping[str, tuple[type, ...]]] = dict.fromkeys(("name", "group", "dir", "space_id"), (str,))
    package: ClassVar[str] = "trackio"
    extra: ClassVar[str] = "trackio"
    _run: TrackioRun  # of `begin`, which is called first

    def __init__(self, settings: Config) -> None:
        self._settings = settings
        self._env_step = 0

    def begin(self, run: TrackedRun) -> str:
        cfg = self._settings
        if cfg["dir"] is not None:
            os.environ["TRACKIO_DIR"] = os.path.abspath(cfg["dir"])  # trackio reads it when it is imported
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
        import trackio
        from trackio import run as run_module
        from trackio import utils

        if cfg["dir"] is not None and utils.TRACKIO_DIR.resolve() != Path(cfg["dir"]).resolve():
            raise TrackerRefusedError(f"this process has written to {utils.TRACKIO_DIR}: trackio takes one folder")
        for module in (trackio, run_module, utils):
            setattr(module, "print", lambda *texts, **settings: None)  # noqa: B010  # into the run's console
        self._run = trackio.init(
            **{name: cfg[name] for name in ("project", "group", "space_id")},
            name=cfg["name"] or run.name,
            config={name: value for name, value in flattened(run.config) if not name.startswith("_")},
            resume="never" if run.run_id is None else "must",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        if run.run_id not in (None, self._run.id):
            raise TrackerRefusedError(f"another run of the name '{self._run.name}' began later in '{cfg['project']}'")
        return str(self._run.id)

    def describe(self) -> str:
        project = self._settings["project"]
        if self._settings["space_id"]:
            return f"run {self._run.name} of project '{project}' at huggingface.co/spaces/{self._settings['space_id']}"
        folder = self._settings["dir"]
        where = "" if folder is None else f"TRACKIO_DIR={shlex.quote(os.path.abspath(folder))} "
        return f"run {self._run.name}; see it with  {where}trackio show --project {shlex.quote(project)}"

    def send(self, reports: Sequence[Report]) -> None:
        for report in reports:
            self._env_step = max(self._env_step, report["env_step"])
            steps = {name: report[name] for name in ("env_step", "train_iter") if report[name] >= 0}
            self._run.log({**values_of(report), **steps}, step=self._env_step)

    def finish(self, result: Config, files: Sequence[Path], *, status: Status) -> None:
        import trackio

        media = {path.stem: trackio.Image(str(path)) for path in files if path.suffix == ".png"}
        media |= {path.stem: trackio.Video(str(path), format="gif") for path in files if path.suffix == ".gif"}
        self._run.log({**numbers_of(result), **media, "status": status}, step=self._env_step)
        self._run.finish()
