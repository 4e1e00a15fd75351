"""CrossQ (Bhatt et al. 2024): SAC without target networks, whose networks have batch renormalisation.

A row is that of `policy/sac.py`; a' ~ pi(next_obs) and a ~ pi(obs) are drawn afresh. Both kinds of pairs go through the
critics in one batch, so that the statistics that normalise are those of their mixture:

    [q_i, q_i']  = Q_i([obs, next_obs], [action, a'])     by the statistics of the batch
    y            = R + discount * (min_i q_i' - alpha * log pi(a'))     second part only if not terminated
    critic_loss  = sum_i mean(weight * (q_i - y)^2 / 2)     without a gradient through y
    actor_loss   = mean(alpha * log pi(a) - min_i Q_i(obs, a))     every `learn.actor_update_freq` updates

The actor uses the statistics of its batch for a, and running ones for a' and to act; for the actor's loss the critics
use running ones. The temperature is learned as in SAC, with the actor.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import torch
from torch import Tensor

from ding_like.model.crossq import batch_statistics, renorms_of
from ding_like.policy.offpolicy import Rows
from ding_like.policy.sac import Improved, SACPolicy
from ding_like.utils.bounds import FROM_0, FROM_1, SHARE_ABOVE_0, Bounds
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("crossq")
class CrossQPolicy(SACPolicy):
    """Stochastic actor of continuous actions, two critics without targets and a temperature, learned off-policy."""

    config: dict[str, Any] = dict(
        type="crossq",
        learn=dict(
            learning_rate_q=1e-3,
            learning_rate_policy=1e-3,
            learning_rate_alpha=1e-3,
            # Updates of the critics per update of the actor and the temperature.
            actor_update_freq=3,
            # Share of the statistics of a batch that is mixed into the running ones with every step.
            statistics_theta=0.01,
            # Updates before normalised features are corrected towards the running statistics.
            renorm_warmup=100_000,
            optimizer=dict(betas=[0.5, 0.999]),
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "learn.actor_update_freq": FROM_1,
        "learn.statistics_theta": SHARE_ABOVE_0,
        "learn.renorm_warmup": FROM_0,
    }
    config_unused: ClassVar[Mapping[str, str]] = {
        "learn.target_theta": "there are no target networks",
        "learn.backend": "the gradient through the statistics of a batch is autograd's",
    }
    model_name = "crossq"
    has_target: ClassVar[bool] = False

    def _init_learn(self) -> None:
        super()._init_learn()
        self._renorms = {"actor": renorms_of(self._model.actor), "critic": renorms_of(self._model.critic)}

    def _predict(self, rows: Rows, alpha: Tensor) -> tuple[Tensor, Tensor, None]:
        with torch.no_grad():
            next_action, log_prob = self._draw(rows.next_obs)
        with self._by_batch("critic"):
            both = self._critic.network(_stacked(rows.obs, rows.next_obs), torch.cat([rows.action, next_action]))
        prediction, following = both.chunk(2, dim=1)
        return prediction, self._backup(rows, following.detach(), alpha * log_prob), None

    def _improve(self, rows: Rows, values: Tensor | None, alpha: Tensor) -> Improved:
        with self._by_batch("actor"):
            return super()._improve(rows, values, alpha)

    def _is_actors_turn(self) -> bool:
        return self._is_turn_of(self._cfg.learn.actor_update_freq)

    def _by_batch(self, name: str) -> AbstractContextManager[None]:
        """Let the layers of a network normalise by the statistics of batches."""
        warm = self._num_updates.now >= self._cfg.learn.renorm_warmup
        return batch_statistics(self._renorms[name], corrects=warm)

    why_alone = "normalises by the statistics of whole batches"

    def grad_vectors(self) -> list[Tensor]:
        """Return the live vectors that `grad` fills, the statistics of the batch that `apply` takes over among them."""
        return [*super().grad_vectors(), *(layer.batch.view(-1) for one in self._renorms.values() for layer in one)]

    def apply(self) -> None:
        """Take one step of critics and, in their turn, of actor and temperature; move the running statistics."""
        moved = ["critic", "actor"] if self._is_actors_turn() else ["critic"]
        super().apply()
        for layer in (layer for name in moved for layer in self._renorms[name]):
            layer.follow(self._cfg.learn.statistics_theta)


# Any: observations, tensors or dicts of them.
def _stacked(obs: Any, next_obs: Any) -> Any:
    """Return the rows of both, [2 B, ...]."""
    if isinstance(obs, dict):
        return {name: torch.cat([part, next_obs[name]]) for name, part in obs.items()}
    return torch.cat([obs, next_obs])
