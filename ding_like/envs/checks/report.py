"""Collect what a check finds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Level = Literal["fault", "warning", "note"]
LEVELS: tuple[Level, ...] = ("fault", "warning", "note")


@dataclass(frozen=True)
class Finding:
    """Tell one thing about an env: a fault breaks a run, a warning may spoil it, a note is good to know."""

    level: Level
    topic: str
    seen: str
    expected: str = ""
    fix: str = ""
    count: int = 1  # how often it was seen; `seen` tells the first


class UncheckableError(Exception):
    """End a check: what was found, and stands in the report, makes the rest meaningless."""


class Report:
    """Collect findings; one that comes again is counted."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, ...], Finding] = {}

    def add(self, level: Level, topic: str, seen: str, expected: str = "", fix: str = "") -> None:
        """Note a finding; those that differ in `seen` only are one."""
        key = (level, topic, expected, fix)
        old = self._found.get(key)
        new = Finding(level, topic, seen, expected, fix)
        self._found[key] = new if old is None else replace(old, count=old.count + 1)

    def stop(self, topic: str, seen: str, expected: str, fix: str) -> UncheckableError:
        """Note a fault after which nothing can be checked, and return the exception to raise."""
        self.add("fault", topic, seen, expected, fix)
        self.add("note", "check", "it ended at a fault; there may be more behind it", fix="fix that and check again")
        return UncheckableError(seen)

    def findings(self) -> list[Finding]:
        """Return all findings, faults first, each level in the order of discovery."""
        return [each for level in LEVELS for each in self._found.values() if each.level == level]
