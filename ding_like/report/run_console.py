"""Show the user how a run goes, in at most a hundredth of its time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from types import TracebackType

from ding_like.report.progress import Limits, Progress, Speed
from ding_like.report.views import LineView, choose_view
from ding_like.utils.log import REPEATS

logger = logging.getLogger(__name__)

# A report that took t seconds is followed by none for this many times t.
_REST = 100.0


class RunConsole:
    """Show a run from its opening lines to its summary; use it with `with`, so that the terminal is given back.

    On a terminal a panel is kept up to date below the log; elsewhere a line is logged every ten seconds. It draws in
    the thread that calls it; only in a `phase` another one shows that time goes by.
    """

    def __init__(
        self,
        title: str,
        limits: Limits,
        *,
        opening: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits
        self._opening = opening
        self._clock = clock
        self._view = choose_view(title, limits)
        self._speed = Speed(limits)
        self._next_s = clock() + self._view.every_s

    def __enter__(self) -> RunConsole:
        REPEATS.begin()
        self._view.open(self._opening)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._view.close()
        self._view.tell(REPEATS.take_summary())

    def tell(self, lines: Sequence[str]) -> None:
        """Show the opening lines of a run whose parts had to be built first."""
        self._view.tell(lines)

    def phase(self, what: str) -> AbstractContextManager[object]:
        """Show, while the block runs, what is done that does not say how far it is: building envs, say."""
        return self._view.phase(what)

    @property
    def is_due(self) -> bool:
        """Tell whether the next `update` is due; asking costs next to nothing, making a Progress does not."""
        return self._clock() >= self._next_s

    def start(self, progress: Progress) -> None:
        """Measure speed and time left from here: call it once, before the loop or after a resume."""
        self._speed.add(progress)
        with suppress(OSError):  # the first update finds a terminal that has gone away
            self._view.begin(progress, self._speed)

    def update(self, progress: Progress) -> None:
        """Show the newest state."""
        started = self._clock()
        self._speed.add(progress)
        try:
            self._view.show(progress, self._speed)
        except OSError:  # the terminal has gone away: the run goes on without it
            self._view.close()
            self._view = LineView(self._limits)
        now = self._clock()
        self._next_s = now + max(self._view.every_s, _REST * (now - started))

    def event(self, text: str) -> None:
        """Say something that happened, in the log and above the panel."""
        logger.info("%s", text)

    def close_summary(self, lines: Sequence[str]) -> None:
        """Put the panel to rest and show the run's last lines below it, after what is to be said of warnings."""
        self._view.close()
        self._view.tell([*REPEATS.take_summary(), *lines])


class NoConsole(RunConsole):
    """Show nothing, where another process shows the run."""

    def __init__(self) -> None:
        """Open nothing."""

    def __enter__(self) -> RunConsole:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close nothing."""

    @property
    def is_due(self) -> bool:
        """Never ask for an update."""
        return False

    def start(self, progress: Progress) -> None:
        """Measure nothing."""

    def tell(self, lines: Sequence[str]) -> None:
        """Show nothing."""

    def phase(self, what: str) -> AbstractContextManager[object]:
        """Show nothing."""
        return nullcontext()

    def update(self, progress: Progress) -> None:
        """Show nothing."""

    def event(self, text: str) -> None:
        """Say nothing."""

    def close_summary(self, lines: Sequence[str]) -> None:
        """Show nothing."""
