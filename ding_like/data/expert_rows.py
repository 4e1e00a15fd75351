"""Rows of an expert that join the batches of a policy's own rows."""

from __future__ import annotations

import numpy as np

from ding_like.data.batch import TransitionBatch
from ding_like.errors import ConfigError
from ding_like.types import Array, State
from ding_like.utils.seeding import rng_state, set_rng_state

IS_EXPERT = "is_expert"  # bool [B], the column that tells an expert's rows


class ExpertRows:
    """Rows of demonstrations, of which a share joins each batch.

    `rows` are what the policy makes of demonstrations. Of a joined batch the expert's rows are `share`. With
    `own_reward` the rows of the policy have this reward in place of the env's.
    """

    def __init__(
        self,
        rows: TransitionBatch,
        share: float,
        rng: np.random.Generator,
        *,
        own_reward: float | None = None,
    ) -> None:
        if not 0 < share < 1:
            raise ConfigError(f"the share of an expert's rows is {share}; give a number above 0 and below 1.")
        self._rows, self._share, self._rng, self._own_reward = rows, share, rng, own_reward
        self._filled: tuple[frozenset[str], TransitionBatch] | None = None
        self.num_joined = 0  # rows of the expert in the last batch, which are its last ones

    def __len__(self) -> int:
        return len(self._rows)

    def join(self, batch: TransitionBatch) -> TransitionBatch:
        """Return a batch with rows of the expert behind its own, and a column `is_expert`; one of `alone` as it is."""
        if IS_EXPERT in batch.columns:
            self.num_joined = int(np.count_nonzero(batch[IS_EXPERT]))
            return batch
        own = len(batch)
        self.num_joined = max(1, round(own * self._share / (1 - self._share)))
        index = self._rng.integers(len(self._rows), size=self.num_joined)
        rows = self._as_in(batch)
        columns = {
            name: np.concatenate([column, rows.columns[name].take(index, axis=0)])
            for name, column in batch.columns.items()
        }
        columns[IS_EXPERT] = np.arange(own + self.num_joined) >= own
        if self._own_reward is not None:
            columns["reward"][:own] = self._own_reward
        return TransitionBatch(columns)

    def alone(self, size: int) -> TransitionBatch:
        """Return a batch of the expert's rows alone."""
        rows = self._rows.take(self._rng.integers(len(self._rows), size=size))
        return TransitionBatch({**rows.columns, IS_EXPERT: np.ones(size, bool), "weight": np.ones(size, np.float32)})

    def _as_in(self, batch: TransitionBatch) -> TransitionBatch:
        """Return the expert's rows with the columns of a batch; those that only a buffer or an actor adds are zero."""
        names = frozenset(batch.columns)
        if self._filled is None or self._filled[0] != names:
            columns = {name: self._column(name, column) for name, column in batch.columns.items()}
            self._filled = names, TransitionBatch(columns)
        return self._filled[1]

    def _column(self, name: str, like: Array) -> Array:
        own = self._rows.columns.get(name)
        if own is None:
            fill = 1 if name == "weight" else 0
            return np.full((len(self._rows), *like.shape[1:]), fill, like.dtype)
        if own.shape[1:] != like.shape[1:]:
            raise ConfigError(
                f"the expert's rows have a column '{name}' of shape {list(own.shape[1:])}, the policy's own "
                f"{list(like.shape[1:])}: the demonstrations are of another env, or of other wrappers."
            )
        column: Array = own.astype(like.dtype, copy=False)
        return column

    def state_dict(self) -> State:
        """Return the generator."""
        return {"rng": rng_state(self._rng)}

    def load_state_dict(self, state: State) -> None:
        """Take over what `state_dict` returned."""
        set_rng_state(self._rng, state["rng"])
