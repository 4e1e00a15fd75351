"""Take a run's turns for as long as what its workers run on is there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from ding_like.errors import CommError
from ding_like.pipeline.turns import Turns, TurnsLostError
from ding_like.types import Setting, State

_RESCUE_S = 15.0  # for workers of a lost cluster to answer: Ray ends this process after a minute

MakeTurns = Callable[[Callable[[], bool]], Turns]


class Watch(Protocol):
    """Know whether what the workers run on is there."""

    @property
    def lost(self) -> str | None:
        """Return why it is lost, None while it is not."""

    def check(self) -> None:
        """Raise CommError if it is lost."""

    def store(self) -> object:
        """Return what says in words how much is stored there."""


def watched(make_turns: MakeTurns, watch: Watch | None, lose: Callable[[str], None]) -> MakeTurns:
    """Return what makes turns that end, with a point saved, when a watch says that they are lost; None: the same.

    `lose` is told why before they are closed, so that nobody waits for workers that are lost.
    """
    if watch is None:
        return make_turns
    return lambda is_leaving: WatchedTurns(make_turns(lambda: is_leaving() or watch.lost is not None), watch, lose)


class WatchedTurns:
    """Implement Turns over others: each turn begins with a look at the watch, which knows what turns see too late."""

    def __init__(self, turns: Turns, watch: Watch, lose: Callable[[str], None]) -> None:
        self._turns = turns
        self._watch = watch
        self._lose = lose

    @property
    def setting(self) -> Setting:
        """Return what collectors were told last."""
        return self._turns.setting

    def begin(self) -> None:
        """Begin a run; see `Turns`."""
        self._check()
        self._turns.begin()
        self._check()

    def take(self) -> None:
        """Take one turn. Raises TurnsLostError where what the workers run on is lost."""
        self._check()
        self._turns.take()

    def settle(self) -> None:
        """Bring the parts to a state that can be saved, also of a lost cluster whose workers answer."""
        self._turns.settle()

    def rescue(self) -> bool:
        """Settle with whoever is left: workers may answer while the head of their cluster does not."""
        if self._watch.lost is None:
            return self._turns.rescue()
        giving_up = threading.Timer(_RESCUE_S, self._lose, [self._watch.lost])
        giving_up.daemon = True
        giving_up.start()
        try:
            return self._turns.rescue()
        finally:
            giving_up.cancel()
            giving_up.join()

    def workers(self) -> Mapping[str, str]:
        """Return how the workers stand, and what is stored for them."""
        return {**self._turns.workers(), "store": str(self._watch.store())}

    def state_dict(self) -> State:
        """Return what the turns of a resumed run go on from."""
        return self._turns.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Go on from what `state_dict` returned."""
        self._turns.load_state_dict(state)

    def close(self) -> None:
        """End what was started; of what is lost, without waiting for it."""
        if self._watch.lost is not None:
            self._lose(self._watch.lost)
        self._turns.close()

    def _check(self) -> None:
        try:
            self._watch.check()
        except CommError as error:
            raise TurnsLostError(f"{str(error).rstrip('.')}.") from error
