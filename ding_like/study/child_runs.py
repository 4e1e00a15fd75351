"""Runs as child processes: `ding` commands, a few at a time, each with its output in a file, and what they report."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import queue
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from ding_like.pipeline.parallel.core.state import STATE_FILE
from ding_like.pipeline.process import StopSignal
from ding_like.pipeline.record import resume_store
from ding_like.utils.files import FolderLock, is_held, retry
from ding_like.utils.processes import (
    ENDING_SIGNALS,
    describe_status,
    end_processes,
    forget_child,
    one_thread,
    start_child,
)
from ding_like.utils.trackers import Report, lines_behind

logger = logging.getLogger(__name__)

_GRACE_S = 60.0  # to save a point; a large replay buffer takes a while
_FOLDER_S = 60.0  # for the process of a killed command to save its point and leave the folder
_ASKED = (signal.SIGINT, *ENDING_SIGNALS)


class Ended(NamedTuple):
    """End of a child."""

    name: str
    status: int  # Popen's: below 0 the signal
    duration_s: float

    @property
    def how(self) -> str:
        """How it ended, in words."""
        return describe_status(self.status) if self.status else "ended without a result"

    @property
    def was_asked(self) -> bool:
        """Whether it left because it was asked to, by SIGTERM, SIGINT or SIGHUP."""
        return -self.status in _ASKED or self.status - 128 in _ASKED


class ChildRuns:
    """Runs of `ding ARGUMENTS` in child processes, at most `limit` at a time; used with `with`.

    Each computes in one thread unless OMP_NUM_THREADS is set otherwise, finds modules where this process does, is in a
    session of its own, so that Ctrl-C is for the parent, and saves a point and leaves when it is asked to stop or when
    this process has ended, in whatever way. At the block's end all are asked to leave, and killed `grace_s` later.
    """

    def __init__(self, limit: int, *, grace_s: float = _GRACE_S) -> None:
        self._limit = limit
        self._grace_s = grace_s
        self._waiting: dict[str, tuple[Callable[[], Sequence[str]], Path]] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._asked: set[str] = set()  # to leave
        self._watches = ThreadPoolExecutor(limit, "child")
        self._ended: queue.SimpleQueue[Ended] = queue.SimpleQueue()  # that `wait` has not returned yet

    def start(self, name: str, arguments: Callable[[], Sequence[str]], *, log: Path) -> None:
        """Run a command as soon as there is room; `arguments` makes it then, and its output is appended to `log`."""
        self._waiting[name] = arguments, log
        self._fill()

    @property
    def running(self) -> list[str]:
        """Names of the children at work."""
        return [name for name, process in self._processes.items() if process.poll() is None]

    @property
    def is_over(self) -> bool:
        """Whether all have ended, and `wait` has returned them."""
        return not self._waiting and not self._processes

    def pid(self, name: str) -> int:
        """Return the process id of a child at work."""
        return self._processes[name].pid

    def wait(self, timeout_s: float) -> list[Ended]:
        """Return those that have ended since, waiting at most `timeout_s` for one; start others in their place."""
        ended: list[Ended] = []
        with suppress(queue.Empty):
            ended.append(self._ended.get(timeout=timeout_s))
            while True:
                ended.append(self._ended.get_nowait())
        for each in ended:
            forget_child(self._processes.pop(each.name))
            self._asked.discard(each.name)
        self._fill()
        return ended

    def supervise(
        self,
        signals: StopSignal,
        *,
        what: str,
        end: Callable[[Ended, bool], None],
        look: Callable[[], None],
        fill: Callable[[], None] = lambda: None,
        every_s: float = 0.5,
    ) -> None:
        """Run until all have ended; once `signals` has received one, ask all to save a point and leave.

        `fill` starts more where there is room. `end` gets each that has ended, and whether all are leaving; `look` is
        called between.
        """
        is_leaving = False
        while True:
            if signals.received is not None and not is_leaving:
                is_leaving = True
                logger.info("interrupted: %d %s save a point and leave", len(self.running), what)
                self.stop_all()
            if not is_leaving:
                fill()
            if self.is_over:
                return
            for ended in self.wait(every_s):
                end(ended, is_leaving or signals.received is not None)
            if not is_leaving:
                look()

    def stop(self, name: str) -> None:
        """Ask a child to save a point and leave, or forget it if it has not been started."""
        self._waiting.pop(name, None)
        if name in self.running and name not in self._asked:
            self._asked.add(name)  # once: a second signal would end it before it has saved its point
            self._processes[name].terminate()
            self._processes[name].send_signal(signal.SIGCONT)  # one that was stopped receives it too

    def stop_all(self) -> None:
        """Ask all to leave, and start no more."""
        for name in [*self._waiting, *self._processes]:
            self.stop(name)

    def close(self) -> None:
        """End all that is left; may be called again."""
        self.stop_all()
        end_processes(list(self._processes.values()), own_s=self._grace_s, asked_s=0.0)
        self._processes = {}
        self._watches.shutdown()

    def __enter__(self) -> ChildRuns:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    def _fill(self) -> None:
        while self._waiting and len(self._processes) < self._limit:
            name = next(iter(self._waiting))
            arguments, log = self._waiting.pop(name)
            log.parent.mkdir(parents=True, exist_ok=True)
            command = json.dumps({"path": sys.path, "arguments": list(arguments())})
            with open(log, "ab") as output:
                process = self._processes[name] = start_child(
                    [sys.executable, "-m", "ding_like.entry.child_run", command],
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=one_thread(),
                    start_new_session=True,
                )
            self._watches.submit(self._watch, name, process, time.monotonic())

    def _watch(self, name: str, process: subprocess.Popen[bytes], started_s: float) -> None:
        self._ended.put(Ended(name, process.wait(), time.monotonic() - started_s))


def wait_until_free(folders: Sequence[Path], signals: StopSignal) -> None:
    """Wait while processes of a command that was killed save their points and leave their folders, 60 s at most."""

    def look() -> None:
        if signals.received is None and any(map(is_held, folders)):
            raise BlockingIOError("held")

    with suppress(BlockingIOError):  # the new process reports which process holds it
        retry(look, BlockingIOError, timeout_s=_FOLDER_S, max_wait_s=0.5)


def has_point(folder: Path) -> bool:
    """Return whether a run's folder holds a saved point that it can be resumed from."""
    return (folder / STATE_FILE).is_file() or bool(resume_store(str(folder)).steps())


def set_aside(folder: Path) -> None:
    """Rename what a seed or trial left that died before it saved a point, so that it can begin again in its place."""
    if not folder.exists():
        return
    aside = folder.with_name(f"{folder.name}_unfinished_{datetime.now():%y%m%d_%H%M%S_%f}")
    with FolderLock(folder):  # raises where its process still runs
        folder.rename(aside)
    logger.info("%s has saved no point to go on from: it begins again, and what was there is in %s", folder, aside)


def text_hash(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file's bytes."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def command_line(arguments: Sequence[str]) -> str:
    """Return a command as it is typed: `ding` and its arguments, quoted where the shell needs it."""
    return shlex.join(["ding", *arguments])


class MetricsTail:
    """Newest numbers of a run's `metrics.jsonl`, which another process writes; NaN where there are none yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begin()

    def _begin(self) -> None:
        self._offset = self.env_step = self.train_iter = 0
        self.train_return = self.eval_return = self.best_eval = math.nan

    def read(self) -> None:
        """Read the whole lines that were written since; a file that is shorter than before is read from its start."""
        with suppress(OSError):  # the run has not begun
            if self._path.stat().st_size < self._offset:
                self._begin()
        for end, report in lines_behind(self._path, self._offset):
            self._offset = end
            if report is not None:
                self._add(report)

    def _add(self, report: Report) -> None:
        env_step, source, value = int(report["env_step"]), report["source"], report.get("reward_mean")
        if 0 <= env_step < self.env_step and source == "collector":
            self.env_step = env_step  # resumed from an earlier point
        self.env_step = max(self.env_step, env_step)
        self.train_iter = max(self.train_iter, int(report["train_iter"]))
        if source == "evaluator" and isinstance(value, (int, float)):
            self.eval_return = float(value)
            self.best_eval = float(value) if math.isnan(self.best_eval) else max(self.best_eval, float(value))
        elif source == "collector" and isinstance(value, (int, float)):
            self.train_return = float(value)
