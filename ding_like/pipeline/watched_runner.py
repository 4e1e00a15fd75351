"""Take a run's runner for as long as what its workers run on is there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from ding_like.errors import CommError
from ding_like.pipeline.runner import Runner, RunnerLostError
from ding_like.types import Setting, State

_RESCUE_S = 15.0  # for workers of a lost cluster to answer: Ray ends this process after a minute

MakeRunner = Callable[[Callable[[], bool]], Runner]


class Watch(Protocol):
    """Know whether what the workers run on is there."""

    @property
    def lost(self) -> str | None:
        """Return why it is lost, None while it is not."""

    def check(self) -> None:
        """Raise CommError if it is lost."""

    def store(self) -> object:
        """Return what says in words how much is stored there."""


def watched(make_runner: MakeRunner, watch: Watch | None, lose: Callable[[str], None]) -> MakeRunner:
    """Return what makes runner that end, with a point saved, when a watch says that they are lost; None: the same.

    `lose` is told why before they are closed, so that nobody waits for workers that are lost.
    """
    if watch is None:
        return make_runner
    return lambda is_leaving: WatchedRunner(make_runner(lambda: is_leaving() or watch.lost is not None), watch, lose)


class WatchedRunner:
    """Implement Runner over others: each turn begins with a look at the watch, which knows what runner see too late."""

    def __init__(self, runner: Runner, watch: Watch, lose: Callable[[str], None]) -> None:
        self._runner = runner
        self._watch = watch
        self._lose = lose

    @property
    def setting(self) -> Setting:
        """Return what collectors were told last."""
        return self._runner.setting

    def start(self) -> None:
        """Begin a run; see `Turns`."""
        self._check()
        self._runner.start()
        self._check()

    def step(self) -> None:
        """Take one turn. Raises RunnerLostError where what the workers run on is lost."""
        self._check()
        self._runner.step()

    def flush(self) -> None:
        """Bring the parts to a state that can be saved, also of a lost cluster whose workers answer."""
        self._runner.flush()

    def rescue(self) -> bool:
        """Settle with whoever is left: workers may answer while the head of their cluster does not."""
        if self._watch.lost is None:
            return self._runner.rescue()
        giving_up = threading.Timer(_RESCUE_S, self._lose, [self._watch.lost])
        giving_up.daemon = True
        giving_up.start()
        try:
            return self._runner.rescue()
        finally:
            giving_up.cancel()
            giving_up.join()

    def workers(self) -> Mapping[str, str]:
        """Return how the workers stand, and what is stored for them."""
        return {**self._runner.workers(), "store": str(self._watch.store())}

    def state_dict(self) -> State:
        """Return what the runner of a resumed run go on from."""
        return self._runner.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Go on from what `state_dict` returned."""
        self._runner.load_state_dict(state)

    def close(self) -> None:
        """End what was started; of what is lost, without waiting for it."""
        if self._watch.lost is not None:
            self._lose(self._watch.lost)
        self._runner.close()

    def _check(self) -> None:
        try:
            self._watch.check()
        except CommError as error:
            raise RunnerLostError(f"{str(error).rstrip('.')}.") from error
