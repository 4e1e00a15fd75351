"""Advantage actor-critic (Mnih et al. 2016), its synchronous form: all lanes act, then one step is taken on their rows.

With advantages A (generalised; `gae_lambda=1` gives those of the paper), values V and R = A + V when acting:

    loss = mean(-log_prob * A) + value_weight * mean((V - R)^2) - entropy_weight * mean(entropy)

REINFORCE with a baseline (Williams 1992; Sutton and Barto 2018, section 13.4), policy 'pg', is this loss on whole
returns, generalised advantages with lambda 1. Episodes are played to their ends, then each row is learned from once.
With G the discounted sum of the rewards from a row on, and V, the baseline, what a critic says of its observation:

    loss = mean(-log_prob * (G - V)) + value_weight * mean((V - G)^2) - entropy_weight * mean(entropy)

The first V is a constant, that of when the episode was played. An episode that was truncated counts as going on: its
rewards are followed by V of its true last observation, and so are those of one that is cut where a batch ends
(collect.n_sample in place of collect.n_episode).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from ding_like.data.batch import TransitionBatch
from ding_like.errors import ConfigError
from ding_like.policy.onpolicy import OnPolicyActorCritic
from ding_like.rl_utils.policy_gradient import a2c_loss
from ding_like.types import Array, Info
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("a2c")
class A2CPolicy(OnPolicyActorCritic):
    """Policy gradients with a critic, for discrete or continuous actions."""

    config: dict[str, Any] = dict(
        type="a2c",
        learn=dict(
            # Rows of a mini-batch; None: all that were collected, in one step.
            batch_size=None,
            learning_rate=1e-3,
            entropy_weight=0.01,
            # Normalise advantages to mean 0 and deviation 1.
            adv_norm=False,
        ),
        collect=dict(n_sample=64),
    )

    def _get_batch_size(self) -> int:
        given = self._n_sample if self._cfg.learn.batch_size is None else self._cfg.learn.batch_size
        if given is None:
            raise ConfigError(
                "policy.learn.batch_size is None, which means policy.collect.n_sample rows, but collect.n_episode "
                "replaces that: set learn.batch_size."
            )
        return int(given)

    def minibatches(self, batch: TransitionBatch, rng: np.random.Generator) -> Iterator[TransitionBatch]:
        """Yield every row once: all together, or in shuffled minibatches of `batch_size`."""
        self._begin_train(batch, num_rows=len(batch))
        if self._cfg.learn.batch_size is None:
            yield self._own_rows(batch)
        else:
            yield from self._shuffled(batch, self._cfg.learn.batch_size, rng)

    def grad(self, batch: TransitionBatch) -> tuple[Info, Array | None]:
        """Fill the gradient of the loss for one minibatch."""
        learn, rows = self._cfg.learn, batch.to(self._device)
        log_prob, entropy, value = self._evaluate(rows)
        losses = a2c_loss(log_prob, value, advantage=self._advantage(rows), return_=rows["return_"])
        entropy = entropy.mean()
        loss = self._params.backward(losses.policy + learn.value_weight * losses.value - learn.entropy_weight * entropy)
        info = {
            "cur_lr": self._now(self._learning_rate),
            "total_loss": loss,
            "policy_loss": losses.policy.detach(),
            "value_loss": losses.value.detach(),
            "entropy": entropy.detach(),
        }
        return info, None


@POLICY_REGISTRY.register("pg")
class PGPolicy(A2CPolicy):
    """REINFORCE with a baseline: policy gradients on whole returns."""

    config: dict[str, Any] = dict(type="pg", learn=dict(batch_size=64), collect=dict(n_sample=1024, gae_lambda=1.0))

    # Type of a collector -> what it has as a default with this policy, which learns from the rows of episodes.
    collector_config: ClassVar[dict[str, dict[str, Any]]] = {"episode": {"get_train_sample": True}}

    config_fixed: ClassVar[Mapping[str, tuple[Any, str]]] = {
        "collect.gae_lambda": (
            1,
            "whole returns are what this algorithm learns from; choose policy 'a2c' for a shorter mean",
        )
    }

    model_name = "pg"
