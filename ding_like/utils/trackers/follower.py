"""Follow a run's metrics.jsonl for a tracker: what is new, and what was sent before a run went back."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

from ding_like.utils.files import atomic_write
from ding_like.utils.trackers.tracker import Report

# What tells a line from others: source, env step, iteration.
Key: TypeAlias = "tuple[str, int, int]"

_MOST_ROWS = 5_000  # of one batch


class Follower:
    """Read what is new in a run's metrics; `keep` notes that it was sent, in a file that outlives the process."""

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
        try:
            with open(self._metrics, "rb") as file:
                file.seek(self._offset)
                lines = []
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

    @property
    def position(self) -> int:
        """Return up to which byte the file was sent."""
        return self._offset

    def keep(self) -> None:
        """Note that what `read` returned last was sent."""
        if self._read_to != self._offset:
            self._offset, self._sent = self._read_to, +self._again
            self.save()

    def cut(self, num_bytes: int, ends: Iterable[tuple[int, Key]]) -> None:
        """Take note that the file is cut back to `num_bytes`; `ends` say where the lines behind that end, by key.

        Those that were sent will be written once more, and are not sent again.
        """
        self._sent.update(key for end, key in ends if end <= self._offset)
        self._offset = min(self._offset, num_bytes)
        self.save()

    def save(self) -> None:
        """Write the id of the run at the tracker, and how far it is."""
        sent = [[*key, count] for key, count in self._sent.items()]
        self._state.parent.mkdir(parents=True, exist_ok=True)
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
        return None  # what is wrong with it says whoever reads the whole file
    return report
