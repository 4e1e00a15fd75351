"""Interface of experiment trackers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

# How a run ended.
Status = Literal["finished", "interrupted", "failed"]
# One line of metrics.jsonl.
Report = Mapping[str, Any]

_HEAD = frozenset(("source", "env_step", "train_iter", "time_s"))


class TrackerRefusedError(Exception):
    """Error of a tracker for which trying again is of no use: it has no key, say."""


@dataclass(frozen=True)
class TrackedRun:
    """Run as a tracker receives it when the run begins."""

    name: str  # exp_name
    folder: Path
    config: Mapping[str, Any]  # the compiled one, as plain values
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

    def __init__(self, settings: Mapping[str, Any]) -> None: ...

    def begin(self, run: TrackedRun) -> str:
        """Begin a run, or go on with `run.run_id`; return its id. Raises TrackerRefusedError where it never can."""

    def describe(self) -> str:
        """Return where the run can be seen, in a few words."""

    def send(self, reports: Sequence[Report]) -> None:
        """Send lines of metrics.jsonl."""

    def finish(self, result: Mapping[str, Any], files: Sequence[Path], *, status: Status) -> None:
        """Send the result (empty if there is none) and files, and end the run."""


def values_of(report: Report) -> dict[str, float]:
    """Return the numbers of a line by `source/name`; "nan" and "inf", which JSON knows as texts alone, are numbers."""
    return {f"{report['source']}/{name}": float(value) for name, value in report.items() if name not in _HEAD}


def numbers_of(result: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers of a result by `result/name`, those of its sections by `result/section/name`."""
    found: dict[str, float] = {}
    for name, value in result.items():
        if isinstance(value, Mapping):
            found |= {f"result/{name}/{key.removeprefix('result/')}": each for key, each in numbers_of(value).items()}
        elif isinstance(value, (bool, int, float)) and math.isfinite(value):
            found[f"result/{name}"] = float(value)
    return found
