"""Take a run's turns by a scheme: collect by one strategy, learn by another."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ding_like.errors import CommError, TrainingError
from ding_like.pipeline.ray.scheme import Scheme
from ding_like.pipeline.runner import RunnerLostError
from ding_like.types import Setting, State


class RayRunner:
    """Take turns as `Turns` says, by the strategies of a scheme, in the caller's thread."""

    def __init__(self, scheme: Scheme) -> None:
        self._scheme = scheme
        self._gradients = scheme.gradients
        self._random_rows = scheme.end.random_rows  # that are still to be collected

    @property
    def setting(self) -> Setting:
        """Return what collectors were told last."""
        return self._scheme.collection.setting

    def start(self) -> None:
        """Collect the rows of random actions."""
        self._or_lost(self._collect_at_random)

    def _collect_at_random(self) -> None:
        for rows in self._scheme.collection.begin(self._random_rows):
            self._random_rows -= rows

    def step(self) -> None:
        """Collect what is ordered, unless updates are behind, and learn from what there is."""
        self._or_lost(self._scheme.collect)
        self._or_lost(self._learn)

    def _learn(self) -> None:
        self._gradients.train_ready(is_leaving=self._scheme.is_leaving)

    def flush(self) -> None:
        """Apply the gradients that are under way; rows that are still to come are put after."""
        self._or_lost(self._gradients.settle)

    def rescue(self) -> bool:
        """Settle with whoever is left; decentralised updates that nobody can tell of leave the parts torn."""
        try:
            self._gradients.settle()
        except (CommError, TrainingError):
            return not self._scheme.is_decentralized
        return True

    def workers(self) -> Mapping[str, str]:
        """Return how the workers stand, for the run's panel."""
        return self._scheme.describe()

    def state_dict(self) -> State:
        """Return how much was collected and how many updates were made of it."""
        return {"rows": self._scheme.end.rows_state(), "random_rows": self._random_rows}

    def load_state_dict(self, state: State) -> None:
        """Go on from what `state_dict` returned: collect what is left of the random actions, make the updates due."""
        if state:
            self._scheme.end.rows.load_state_dict(state["rows"])
        self._random_rows = max(0, state.get("random_rows", 0))
        if self._random_rows:
            self.start()
        self._or_lost(self._learn)

    def close(self) -> None:
        """End the strategies and the workers."""
        self._scheme.stop()

    def _or_lost(self, act: Callable[[], object]) -> None:
        """Do it. Raises RunnerLostError where the workers or their host are lost."""
        try:
            act()
        except CommError as error:
            raise RunnerLostError(str(error)) from error
        except TrainingError as error:
            if self._scheme.has_lost_workers:
                raise RunnerLostError(str(error)) from error
            raise
