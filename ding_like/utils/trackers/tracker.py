"""Experiment trackers: their interface, and the threads of a run that send to them what it writes to `metrics.jsonl`.

The run waits for none of them.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import math
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from ding_like.errors import ConfigError
from ding_like.types import Config, Json
from ding_like.utils.files import write_text
from ding_like.utils.imports import pip_line
from ding_like.utils.metrics import MetricsSink
from ding_like.utils.registries import TRACKER_REGISTRY

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
    found: dict[str, float] = {}
    for name, value in result.items():
        if isinstance(value, Mapping):
            found |= {f"result/{name}/{key.removeprefix('result/')}": each for key, each in numbers_of(value).items()}
        elif isinstance(value, (bool, int, float)) and math.isfinite(value):
            found[f"result/{name}"] = float(value)
    return found


@contextmanager
def tracked(cfg: Config, *, is_first: bool = True) -> Iterator[Trackers]:
    """Yield the trackers of a run, which `Trackers.follow` starts; when the block ends they send how the run ended.

    Of several learners only the first (`is_first`) has some.
    """
    trackers = Trackers(cfg if is_first else {})
    try:
        yield trackers
    except BaseException as error:
        trackers.close("interrupted" if isinstance(error, (KeyboardInterrupt, SystemExit)) else "failed")
        raise
    trackers.close("finished")


class Trackers:
    """Trackers of a run: `follow` starts them, `close` waits in bounds until they have sent the last of it.

    Raises ConfigError at once where the package of one is missing.
    """

    def __init__(self, cfg: Config) -> None:
        self._cfg = cfg
        given = (cfg.get("trackers") or {}).items()
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

    def close(self, status: Status) -> None:
        """Have the trackers send how the run ended, and wait for them in bounds; may be called again."""
        threads, self._threads = self._threads, []
        for thread in threads:
            thread.messages.put(status)
        began_s = time.monotonic()
        for thread in threads:
            thread.wait(began_s, status)


class _TrackerThread:
    """Thread that sends a run's metrics to one tracker as they are written, until the run ends or too much failed."""

    def __init__(self, name: str, settings: Config, config: Config) -> None:
        # How the run ended, or a change of the follower.
        self.messages: queue.SimpleQueue[Status | Callable[[Follower], None]] = queue.SimpleQueue()
        self._name = name
        self._settings = settings
        self._config = config
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
            logger.warning(
                "%s has not finished within %.0f s and is left behind; set trackers.%s.finish_s to wait longer",
                self._name, longest_s, self._name,
            )  # fmt: skip

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
        try:
            saved = json.loads(state.read_text(encoding="utf-8"))
            self.run_id, self._offset, self._skip = saved["run"], int(saved["offset"]), Counter(saved["skip"])
        except (OSError, ValueError, KeyError, TypeError):
            pass  # a new run, or one whose record is lost: it begins anew at the tracker

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
