"""Take a run's turns for as long as what its workers run on is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from ding_like.errors import CommError
from ding_like.pipeline.turns import Turns, TurnsLostError
from ding_like.types import Setting, State

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


def watched(make_turns: MakeTurns, watch: Watch | None) -> MakeTurns:
    """Return what makes turns that end, with a point saved, when a watch says that they are lost; None: the same."""
    if watch is None:
        return make_turns
    return lambda is_leaving: WatchedTurns(make_turns(lambda: is_leaving() or watch.lost is not None), watch)


class WatchedTurns:
    """Implement Turns over others: each turn begins with a look at the watch, which knows what turns see too late."""

    def __init__(self, turns: Turns, watch: Watch) -> None:
        self._turns = turns
        self._watch = watch

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
        """Bring the parts to a state that can be saved; of a lost cluster, they are in one."""
        self._check()
        self._turns.settle()

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
        """End what was started."""
        self._turns.close()

    def _check(self) -> None:
        try:
            self._watch.check()
        except CommError as error:
            raise TurnsLostError(f"{str(error).rstrip('.')}.") from error
