"""What algorithms that learn from an expert's rows beside the agent's own share: where these come from, how many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from ding_like.data.batch import TransitionBatch, columns_to_obs
from ding_like.data.data_files import read_data
from ding_like.data.demonstrations import NOT_SET, Demonstrations
from ding_like.data.expert_rows import IS_EXPERT, ExpertRows
from ding_like.errors import ConfigError, SchemaError
from ding_like.policy.base import Policy
from ding_like.policy.rows import STATE
from ding_like.types import Array, Config
from ding_like.utils.bounds import FROM_0, Bounds


class FromExperts(Policy):
    """Policy each of whose batches has rows of an expert behind `learn.batch_size` rows of the agent."""

    config: dict[str, Any] = dict(
        learn=dict(
            # Share of the expert's rows in each batch, where they come on top of the agent's batch_size rows.
            expert_share=0.5,
            # Updates on the expert's rows alone, with which a new run begins, before anything is collected.
            pretrain_updates=0,
        ),
        collect=dict(
            # File of the expert's episodes, which `ding collect` wrote.
            data_path="",
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "learn.expert_share": Bounds(0, 0.999, is_above_low=True),
        "learn.pretrain_updates": FROM_0,
    }
    # Rewards of all steps in place of the env's, of (the agent, the expert); None: those of the env stay.
    rewards_instead: ClassVar[tuple[float, float] | None] = None

    @classmethod
    def check_config(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the policy section."""
        yield from super().check_config(cfg)
        if not cfg["collect"]["data_path"]:
            yield "collect.data_path", NOT_SET

    def expert_rows(self, rng: np.random.Generator) -> ExpertRows:
        """Return the rows that this policy makes of the demonstrations. Raises ConfigError where they do not fit it."""
        demonstrations = read_data(self._cfg.collect.data_path)
        columns = {**demonstrations.batch().columns, **self._state_columns(demonstrations)}
        own_reward = None
        if self.rewards_instead is not None:
            own_reward, reward = self.rewards_instead
            columns["reward"] = np.full(len(demonstrations), reward, np.float32)
        rows, _ = self.segment(replace(demonstrations, columns=columns).rollout())
        return ExpertRows(rows.own_memory(), float(self._cfg.learn.expert_share), rng, own_reward=own_reward)

    def _state_columns(self, demonstrations: Demonstrations) -> dict[str, Array]:
        """Return the recurrent state [N, S...] that the expert's steps begin with: that before an episode.

        The policy acts once on the first observation, by which a file of another env is noticed.
        """
        columns, source = demonstrations.batch()[:1].columns, demonstrations.source
        obs = columns_to_obs("obs", columns)
        actor, lanes = self._make_actor(explores=False), np.zeros(1, np.int64)
        assert actor is not None, "a policy of this library"
        try:
            acted = actor.act(obs, lanes=lanes, is_first=np.ones(1, bool), rng=np.random.default_rng(0))
        except (KeyError, RuntimeError, SchemaError, ValueError) as error:
            raise ConfigError(f"{source} does not fit this env, whose observations are others: {error}") from error
        action, number = acted["action"], self._model_sizes().get("A", 2**63 - 1)
        demonstrations.check_actions(action[0].size, None if action.dtype.kind == "f" else [number])
        return {
            name: np.broadcast_to(column, (len(demonstrations), *column.shape[1:]))
            for name, column in acted.items()
            if name.startswith(STATE)
        }


def expert_mask(rows: TransitionBatch) -> Tensor | None:
    """Return which rows [B] of a batch are an expert's, as 0 and 1; None where none is."""
    found = rows.columns.get(IS_EXPERT)
    return None if found is None else found.float()
