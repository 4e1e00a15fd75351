"""PPO on rows from a replay buffer: the policy that acted may be some updates old.

The rows keep the log probabilities, values and advantages of that time, so the loss of `policy/ppo.py` holds as it is;
the clip bounds what old rows can do. A small buffer keeps them recent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ding_like.data.batch import TransitionBatch
from ding_like.policy.onpolicy import OnPolicyActorCritic
from ding_like.policy.ppo import PPOPolicy
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("ppo_offpolicy")
class PPOOffPolicy(PPOPolicy):
    """Learn as PPO does, one update for each batch that a buffer gives."""

    config: dict[str, Any] = dict(
        type="ppo_offpolicy",
        on_policy=False,
        learn=dict(update_per_collect=5, batch_size=64, epoch_per_collect=1),
        collect=dict(n_sample=64),
        other=dict(replay_buffer=dict(replay_buffer_size=1000)),
    )
    action_spaces = OnPolicyActorCritic.action_spaces

    @classmethod
    def check_config(cls, cfg: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the policy section."""
        yield from super().check_config(cfg)
        for path, value, only in (
            ("recompute_adv", cfg["recompute_adv"], False),
            ("learn.target_kl", cfg["learn"]["target_kl"], None),
            ("learn.epoch_per_collect", cfg["learn"]["epoch_per_collect"], 1),
        ):
            if value != only:
                yield (
                    path,
                    f"must be {only} where rows come from a buffer: use learn.update_per_collect, or policy 'ppo'",
                )

    def minibatches(self, batch: TransitionBatch, rng: np.random.Generator) -> Iterator[TransitionBatch]:
        """Yield the batch itself; the schedules count it as the env steps that it stands for."""
        learn, n_sample = self._cfg.learn, self._cfg.collect.n_sample
        # update_per_collect batches follow each n_sample env steps.
        share = 1.0 if n_sample is None else n_sample / (learn.update_per_collect * learn.batch_size)
        self._begin_train(batch, num_rows=share * len(batch))
        yield self._own_rows(batch)
