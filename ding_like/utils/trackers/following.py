"""Trackers of a run: a thread for each sends what the run writes to `metrics.jsonl`; the run waits for none of them."""

from __future__ import annotations

import importlib.util
import json
import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from ding_like.errors import ConfigError
from ding_like.utils.files import atomic_write
from ding_like.utils.imports import pip_line
from ding_like.utils.metrics import MetricsSink
from ding_like.utils.registries import TRACKER_REGISTRY
from ding_like.utils.trackers.tracker import Report, Status, TrackedRun, Tracker, TrackerRefusedError

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

# What tells a line from others: source, env step, iteration.
Key: TypeAlias = "tuple[str, int, int]"


@contextmanager
def tracked(cfg: Mapping[str, Any], *, is_first: bool = True) -> Iterator[Trackers]:
    """Give the trackers of a run, which `Trackers.follow` starts; when the block ends they send how the run ended.

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

    def __init__(self, cfg: Mapping[str, Any]) -> None:
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
        """Start the trackers; `metrics` tells them when a run goes back to a saved point."""
        # Without where other trackers send it, which may hold a password.
        config = _plain({key: value for key, value in self._cfg.items() if key != "trackers"})
        self._threads = [_TrackerThread(name, settings, config) for name, settings in self._wanted.items()]
        if metrics is not None and self._threads:
            metrics.before_cut = self._cut

    def _cut(self, path: Path, num_bytes: int) -> None:
        ends = ends_behind(path, num_bytes)
        for thread in self._threads:
            thread.messages.put(("cut", (num_bytes, ends)))

    def close(self, status: Status) -> None:
        """Have the trackers send how the run ended, and wait for them in bounds; may be called again."""
        threads, self._threads = self._threads, []
        for thread in threads:
            thread.messages.put(("end", status))
        began_s = time.monotonic()
        for thread in threads:
            thread.wait(began_s, status)


class _TrackerThread:
    """Thread that sends a run's metrics to one tracker as they come, until the run ends or too much has failed."""

    def __init__(self, name: str, settings: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        self.messages: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()  # ("cut", ...) and ("end", status)
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
        """Process a message that waits, or comes in time; return whether the file was cut back."""
        try:
            kind, content = self.messages.get(timeout=timeout_s) if timeout_s else self.messages.get_nowait()
        except queue.Empty:
            return False
        if kind == "end":
            self._status = content
            return False
        self._follower.cut(*content)
        return True

    def _tried(self, what: str, act: Callable[[], None]) -> bool:
        """Do something, again if it fails; return False, and log it, where the tracker is given up."""
        wait_s = _FIRST_WAIT_S
        for count in range(1, _TRIES + 1):
            try:
                act()
                return True
            except Exception as error:  # a tracker's library may raise anything; the run continues
                text = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST_REASON]
                is_last = count == _TRIES or isinstance(error, TrackerRefusedError) or self._status is not None
                if not self._has_warned:
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
    """Reader of what is new in a run's metrics; `keep` notes that it was sent, in a file that outlives the run."""

    def __init__(self, metrics: Path, state: Path) -> None:
        self._metrics = metrics
        self._state = state
        self.run_id: str | None = None
        self._offset = 0  # until here the lines were sent
        self._read_to = 0  # until here they were read
        self._sent: Counter[Key] = Counter()  # lines that a run which went back is going to write again
        self._load()

    def read(self) -> list[Report]:
        """Return the next whole lines that were not sent yet; more of them may wait."""
        self._read_to = self._offset
        lines: list[bytes] = []
        try:
            with open(self._metrics, "rb") as file:
                file.seek(self._offset)
                for line in file:
                    if not line.endswith(b"\n") or len(lines) >= _MOST_ROWS:
                        break
                    lines.append(line)
        except OSError:  # it has not begun
            return []
        self._read_to = self._offset + sum(map(len, lines))
        self._again = Counter(self._sent)
        return [report for report in map(_parsed, lines) if report is not None and not self._was_sent(report)]

    def _was_sent(self, report: Report) -> bool:
        key = key_of(report)
        if not self._again[key]:
            return False
        self._again[key] -= 1
        return True

    def keep(self) -> bool:
        """Note that what `read` returned last was sent; return False if that was nothing."""
        if self._read_to == self._offset:
            return False
        self._offset, self._sent = self._read_to, +self._again
        self.save()
        return True

    def cut(self, num_bytes: int, ends: Iterable[tuple[int, Key]]) -> None:
        """Take note that the file is cut back to `num_bytes`; `ends` are where the lines behind that end, by key.

        Those that were sent will be written once more, and are not sent again.
        """
        self._sent.update(key for end, key in ends if end <= self._offset)
        self._offset = min(self._offset, num_bytes)
        self.save()

    def save(self) -> None:
        """Write the id of the run at the tracker, and how far it is."""
        sent = [[*key, count] for key, count in self._sent.items()]
        with atomic_write(self._state) as file:
            file.write(json.dumps({"run": self.run_id, "offset": self._offset, "sent": sent}).encode())

    def _load(self) -> None:
        try:
            state: dict[str, Any] = json.loads(self._state.read_text(encoding="utf-8"))
            self.run_id, self._offset = state["run"], int(state["offset"])
            self._sent = Counter({(str(s), int(e), int(t)): int(n) for s, e, t, n in state["sent"]})
        except (OSError, ValueError, KeyError, TypeError):
            return  # a new run, or one whose note is lost: it begins anew at the tracker


def key_of(report: Report) -> Key:
    """Return what tells a line from others."""
    return str(report["source"]), int(report["env_step"]), int(report["train_iter"])


def ends_behind(metrics: Path, num_bytes: int) -> list[tuple[int, Key]]:
    """Return where the lines behind `num_bytes` of a file end, with their keys."""
    found, end = [], num_bytes
    with open(metrics, "rb") as file:
        file.seek(num_bytes)
        for line in file:
            end += len(line)
            report = _parsed(line)
            if report is not None:
                found.append((end, key_of(report)))
    return found


def _parsed(line: bytes) -> Report | None:
    try:
        report: Report = json.loads(line)
        key_of(report)
    except (ValueError, KeyError, TypeError):
        return None  # readers of the whole file report what is wrong with it
    return report


def _plain(value: Any) -> Any:  # Any: a section of a config, or a value of one
    """Return sections as dicts, and what JSON does not know as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)
