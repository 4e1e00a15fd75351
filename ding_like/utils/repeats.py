"""Say equal warnings once, and how often there were more."""

from __future__ import annotations

import logging
from collections import Counter

_MOST = 1000  # warnings that are told apart; what comes after them is said each time
_SHOWN = 100  # characters of a warning in the summary


class RepeatFilter(logging.Filter):
    """Let the first of equal warnings pass, and count the others until `take_summary`."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: Counter[tuple[str, str]] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a record is to be shown; the answer is the same for each handler that asks."""
        if record.levelno != logging.WARNING:
            return True
        answered: bool | None = getattr(record, "is_first", None)
        if answered is None:
            answered = self._note((record.name, record.getMessage()))
            record.is_first = answered
        return answered

    def _note(self, key: tuple[str, str]) -> bool:
        if key not in self._seen and len(self._seen) >= _MOST:
            return True
        self._seen[key] += 1
        return self._seen[key] == 1

    def begin(self) -> None:
        """Begin a run: what was said before may be said again."""
        self._seen.clear()

    def take_summary(self) -> list[str]:
        """Return a line for each warning that came several times, and begin anew to count."""
        lines = []
        for (_, message), count in self._seen.items():
            if count > 1:
                first = message.partition("\n")[0]
                shown = first if len(first) <= _SHOWN else f"{first[:_SHOWN]}..."
                lines.append(f"{count - 1} more time{'s' if count > 2 else ''}: {shown}")
        self._seen.update({key: 1 - count for key, count in self._seen.items()})
        return lines
