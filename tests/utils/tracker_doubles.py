"""Trackers for tests: one writes what it receives into a file, others fail or hang."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ding_like.utils.trackers import Report, Status, TrackedRun, TrackerRefusedError


class FileTracker:
    """Tracker that writes every call as a line of `EXP/tracked.jsonl`."""

    config: ClassVar[dict[str, Any]] = dict(every_s=0.05, finish_s=20.0)

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._file = Path()

    def begin(self, run: TrackedRun) -> str:
        self._file = run.folder / "tracked.jsonl"
        run.folder.mkdir(exist_ok=True)  # the run may not have written anything yet
        other = {key: value for key, value in run.config.items() if key not in ("exp_name", "policy")}
        self._write(begin=run.run_id, name=run.name, policy=run.config["policy"]["type"], other=other)
        return run.run_id or "first"

    def describe(self) -> str:
        return "a file"

    def send(self, reports: Sequence[Report]) -> None:
        for report in reports:
            self._write(report=report)

    def finish(self, result: Mapping[str, Any], files: Sequence[Path], *, status: Status) -> None:
        self._write(finish=status, result=result.get("eval_value"), files=[path.name for path in files])

    def _write(self, **said: Any) -> None:
        with open(self._file, "a", encoding="utf-8") as file:
            file.write(json.dumps(said) + "\n")


class RefusedTracker(FileTracker):
    def begin(self, run: TrackedRun) -> str:
        raise TrackerRefusedError("no API key")


class FlakyTracker(FileTracker):
    """Tracker that fails the first time that it sends."""

    fails: ClassVar[int] = 1

    def send(self, reports: Sequence[Report]) -> None:
        if type(self).fails:
            type(self).fails -= 1
            raise ConnectionError("no route")
        super().send(reports)


class HangingTracker(FileTracker):
    """Tracker that hangs until a test sets `let_go`."""

    config: ClassVar[dict[str, Any]] = dict(every_s=0.05, finish_s=1.0)
    let_go: ClassVar[threading.Event] = threading.Event()

    def send(self, reports: Sequence[Report]) -> None:
        self.let_go.wait(60)


class AbsentTracker(FileTracker):
    package: ClassVar[str] = "no_such_package_1"
    extra: ClassVar[str] = "wandb"
