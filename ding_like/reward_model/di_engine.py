"""Reward models in DI-engine's style, which take and give rows as dicts, behind the methods of ours."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from ding_like.data.batch import TransitionBatch
from ding_like.data.rows import as_batch
from ding_like.errors import SchemaError
from ding_like.types import Config, Info, State


class BaseRewardModel(ABC):
    """DI-engine's base class of reward models, for classes written for it.

    A learner calls `collect_data`, `train`, `clear_data` and `estimate`, in this order, with each batch.
    """

    config: dict[str, Any] = {}

    def __init__(self, config: Config, device: str, tb_logger: Any) -> None:  # Any: a SummaryWriter, None here
        self.cfg, self.device, self.tb_logger = config, device, tb_logger

    @abstractmethod
    def estimate(self, data: list[dict[str, Any]]) -> Any:
        """Return rows with other rewards, or write these into `data`."""

    @abstractmethod
    def train(self) -> None:
        """Learn from the rows collected."""

    @abstractmethod
    def collect_data(self, data: list[dict[str, Any]]) -> None:
        """Keep rows to learn from."""

    @abstractmethod
    def clear_data(self) -> None:
        """Forget the rows collected."""


class DiEngineRewardModel:
    """Reward model that hands rows, one dict each, to a reward model in DI-engine's style."""

    monitored: Sequence[str] = ()

    def __init__(self, model: Any) -> None:  # Any: a class of the user's own
        self.model = model

    def collect(self, batch: TransitionBatch) -> None:
        """Hand the rows of a batch to `collect_data`."""
        self.model.collect_data(batch.to_list())

    def train(self) -> Info:
        """Run `train`, then `clear_data`, and return what it reported."""
        info = self.model.train()
        self.model.clear_data()
        return dict(info) if isinstance(info, dict) else {}

    def estimate(self, batch: TransitionBatch) -> TransitionBatch:
        """Return the batch with the rewards that `estimate` returned, or wrote into its rows."""
        rows = batch.to_list()
        returned = self.model.estimate(rows)
        told = as_batch(rows if returned is None else returned)
        name = type(self.model).__name__
        if told is None or "reward" not in told.columns or len(told) != len(batch):
            raise SchemaError(
                f"{name}.estimate() gave no rows with a reward for each of the {len(batch)} it was given."
            )
        reward = np.asarray(told["reward"], batch["reward"].dtype).reshape(batch["reward"].shape)
        return batch.with_columns(reward=reward)

    def state_dict(self) -> State:
        """Return the model's own state, where it has one."""
        own = getattr(self.model, "state_dict", None)
        return {"model": own()} if callable(own) else {}

    def load_state_dict(self, state: State) -> None:
        """Take over what `state_dict` returned."""
        if "model" in state:
            self.model.load_state_dict(state["model"])
