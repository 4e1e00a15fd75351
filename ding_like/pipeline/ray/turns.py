"""Take a run's turns by a scheme: collect by one strategy, learn by another."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ding_like.pipeline.ray.gradients import Gradients

from ding_like.comm.local import LocalRows
from ding_like.comm.workers.pool import WorkerPool
from ding_like.errors import CommError, TrainingError
from ding_like.pipeline.ray.collection import Collection
from ding_like.pipeline.turns import TurnsLostError
from ding_like.types import Setting, State


class SchemeTurns:
    """Take turns as `Turns` says, over rows that one strategy fills and another one learns from.

    `random_rows` are collected before a run's first turn, `describe` says how the workers stand, and `close` ends them.
    """

    def __init__(
        self,
        rows: LocalRows,
        collection: Collection,
        gradients: Gradients,
        *,
        random_rows: int = 0,
        pools: tuple[WorkerPool, ...] = (),
        describe: Callable[[], Mapping[str, str]] = dict,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self._rows = rows
        self._collection = collection
        self._gradients = gradients
        self._random_rows = random_rows
        self._pools = pools
        self._describe = describe
        self._close = close

    @property
    def setting(self) -> Setting:
        """Return what collectors were told last."""
        return self._collection.setting

    def begin(self) -> None:
        """Collect the rows of random actions."""
        self._or_lost(lambda: self._collection.begin(self._random_rows))

    def take(self) -> None:
        """Collect what is ordered, unless updates are behind, and learn from what there is."""
        order = self._rows.order(timeout_s=0.0)
        if order.rows:
            self._or_lost(lambda: self._collection.collect(order))
        self._or_lost(self._gradients.train_ready)

    def settle(self) -> None:
        """Apply the gradients that are under way; rows that are still to come are put after."""
        self._or_lost(self._gradients.settle)

    def workers(self) -> Mapping[str, str]:
        """Return how the workers stand, for the run's panel."""
        return self._describe()

    def state_dict(self) -> State:
        """Return how much was collected and how many updates were made of it."""
        return {"rows": self._rows.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Go on from what `state_dict` returned."""
        if state:
            self._rows.load_state_dict(state["rows"])

    def close(self) -> None:
        """End the strategies, then the workers."""
        self._collection.close()
        self._gradients.close()
        self._close()

    def _or_lost(self, act: Callable[[], object]) -> None:
        """Do it. Raises TurnsLostError where the workers or their host are lost."""
        try:
            act()
        except CommError as error:
            raise TurnsLostError(str(error)) from error
        except TrainingError:
            for pool in self._pools:
                try:
                    pool.check()
                except TrainingError as spent:
                    raise TurnsLostError(str(spent)) from spent
            raise
