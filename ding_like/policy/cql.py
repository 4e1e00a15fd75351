"""Conservative Q-learning (Kumar et al. 2020), CQL(H): values of actions that the data do not have are pushed down.

A row is that of `policy/sac.py`, as are actor and temperature. Besides the action of the row, the critics judge K = 3 n
actions a_j drawn for it, n uniform ones, n of pi(obs) and n of pi(next_obs), with densities p_j. The losses are

    y           = R + discount * min_i Q_i'(next_obs, a')        second part only if not terminated
    soft_i      = log(1/K sum_j exp(Q_i(obs, a_j)) / p_j)        an estimate of the log of the integral of exp(Q_i)
    gap_i       = w * (soft_i - Q_i(obs, action))                w is `learn.min_q_weight`; equation 4, appendix F
    critic_loss = sum_i mean(weight * ((Q_i(obs, action) - y)^2 / 2 + gap_i))

With `learn.with_q_entropy` the next value in y is that of SAC, less alpha * log pi(a'). With `learn.min_q_version` 2
soft_i is the log of the plain sum of exp(Q_i) over these actions and the row's own. With `learn.with_lagrange` gap_i
gives way to m * (gap_i - t), t = `learn.lagrange_thresh` (equation 30), whose multiplier m rises where the mean gap is
above t:

    multiplier_loss = -m * mean_i mean(gap_i - t)

Discrete actions: QR-DQN's loss (`policy/dqn.py`) plus the gap, where Q is the mean of the quantiles and soft is exact:

    loss = qrdqn_loss + w * mean(weight * (log sum_a exp(Q(obs, a)) - Q(obs, action)))      over legal actions
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ding_like.data.batch import TransitionBatch, map_obs, split_mask
from ding_like.policy.dqn import QRDQNPolicy
from ding_like.policy.offline import FromData
from ding_like.policy.offpolicy import Rows
from ding_like.policy.sac import Learned, SACPolicy
from ding_like.policy.trained_network import TrainedNetwork
from ding_like.rl_utils.distributions import allowed_logits, squashed_gaussian
from ding_like.types import Array, Info
from ding_like.utils.bounds import FINITE, FROM_0, FROM_1, Bounds
from ding_like.utils.registries import POLICY_REGISTRY

_LARGEST_MULTIPLIER = 1e6


@POLICY_REGISTRY.register("cql")
class CQLPolicy(FromData, SACPolicy):
    """SAC with conservative critics, learned from a data set."""

    config: dict[str, Any] = dict(
        type="cql",
        learn=dict(
            # Actions that are drawn for each row of each kind: uniform, of the actor, of the actor at next_obs.
            num_actions=10,
            # Weight of the gap between the values of drawn actions and of the data's.
            min_q_weight=1.0,
            # Soft maximum over drawn actions: 3 weighs them by their densities, 2 takes them as they are.
            min_q_version=3,
            # Let next values count the entropy, as SAC's do.
            with_q_entropy=False,
            # Learn a multiplier of the gap, so that the gap stays near lagrange_thresh.
            with_lagrange=False,
            # Gap that the multiplier aims at, after min_q_weight.
            lagrange_thresh=-1.0,
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "learn.num_actions": FROM_1,
        "learn.min_q_weight": FROM_0,
        "learn.min_q_version": Bounds(2, 3),
        "learn.lagrange_thresh": FINITE,
    }
    config_choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {"learn.min_q_version": (2, 3)}
    config_idle: ClassVar[Mapping[str, tuple[Any, tuple[str, ...]]]] = {
        "learn.with_lagrange": (False, ("learn.lagrange_thresh",)),
    }

    def _init_learn(self) -> None:
        super()._init_learn()
        if self._cfg.learn.with_lagrange:
            self._multiplier = self._trained(self._log_multiplier, "learning_rate_q", has_target=False)

    @cached_property
    def _log_multiplier(self) -> nn.ParameterDict:
        """Logarithm of the multiplier, `log` [], so that the multiplier stays above 0."""
        return nn.ParameterDict({"log": nn.Parameter(torch.zeros(()))}).to(self._device)

    def _backup(self, rows: Rows, next_values: Tensor, cost: Tensor) -> Tensor:
        return super()._backup(rows, next_values, cost if self._cfg.learn.with_q_entropy else torch.zeros_like(cost))

    def _learn_values(self, rows: Rows, alpha: Tensor) -> Learned:
        hand = self._by_hand
        with torch.no_grad():
            target = self._target(rows, alpha) if hand is None else self._target_by_hand(hand, rows, alpha)
            drawn, log_density = self._drawn(rows)
        action = torch.cat([rows.action.unsqueeze(1), drawn], dim=1)  # [B, 1 + K, A]
        batch, number, _ = action.shape
        obs = map_obs(lambda part: part.repeat_interleave(number, dim=0), rows.obs)
        action = action.flatten(0, 1)
        if hand is None:
            values = self._critic.network(obs, action)
        else:
            values = hand.predict(obs, action.numpy()).requires_grad_()
        loss, error = self._conservative_loss(values.view(-1, batch, number), log_density, target, rows.weight)
        if hand is None:
            loss = self._critic.backward(loss)
        else:
            (slope,) = torch.autograd.grad(loss, values)
            loss = hand.learn_values(loss.detach(), slope)
        return Learned(loss, target + error, target, error, None)

    def _conservative_loss(
        self, values: Tensor, log_density: Tensor, target: Tensor, weight: Tensor | float
    ) -> tuple[Tensor, Tensor]:
        """Return (the critics' loss, their TD errors [N, B]) by values [N, B, 1 + K], those of rows' actions first."""
        learn = self._cfg.learn
        prediction = values[..., 0]
        each, error = self._compare(prediction, target)
        if learn.min_q_version == 3:
            soft = (values[..., 1:] - log_density).logsumexp(dim=2) - math.log(values.shape[2] - 1)
        else:
            soft = values.logsumexp(dim=2)
        gap = learn.min_q_weight * (soft - prediction)
        self._gap_info = {"conservative_gap": gap.detach()}
        if learn.with_lagrange:
            multiplier = self._multiplier.network.log.exp().clamp(max=_LARGEST_MULTIPLIER)
            gap = gap - learn.lagrange_thresh
            self._multiplier.backward(-multiplier * (weight * gap.detach()).mean())
            gap = multiplier.detach() * gap
            self._gap_info["multiplier"] = multiplier.detach()
        return (weight * (each + gap)).mean(dim=1).sum(), error.detach()

    def _drawn(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return actions [B, K, A] that are drawn for rows, and their log densities [B, K]."""
        batch, size = rows.action.shape
        number, hand = self._cfg.learn.num_actions, self._by_hand
        uniform = 2.0 * self._noise.uniform(batch, number * size, share=self._share) - 1.0
        drawn = [uniform.view(batch, number, size)]
        log_density = [torch.full((batch, number), -size * math.log(2.0), device=self._device)]
        for obs in (rows.obs, rows.next_obs):
            output = self._actor.network(obs) if hand is None else torch.from_numpy(hand.act(obs))
            mean, log_sigma = output.repeat_interleave(number, dim=0).chunk(2, dim=1)
            noise = self._noise.normal(batch, number * size, share=self._share).view(-1, size)
            action, log_prob = squashed_gaussian(mean, log_sigma, noise)
            drawn.append(action.view(batch, number, size))
            log_density.append(log_prob.view(batch, number))
        return torch.cat(drawn, dim=1), torch.cat(log_density, dim=1)

    def grad(self, batch: TransitionBatch) -> tuple[Info, Array | None]:
        """Fill the gradients of critics, actor, temperature and multiplier; priorities are absolute TD errors [B]."""
        info, priority = super().grad(batch)
        return {**info, **self._gap_info}, priority

    def apply(self) -> None:
        """Take one step of all that is trained; move the critics' targets."""
        super().apply()
        if self._cfg.learn.with_lagrange:
            self._multiplier.optimizer.step()

    def _networks(self) -> dict[str, TrainedNetwork]:
        own = {"multiplier": self._multiplier} if self._cfg.learn.with_lagrange else {}
        return {**super()._networks(), **own}

    def _grad_modules(self) -> dict[str, nn.Module]:
        own = {"multiplier": self._log_multiplier} if self._cfg.learn.with_lagrange else {}
        return {**super()._grad_modules(), **own}

    def _saved(self) -> dict[str, Any]:
        own = {"log_multiplier": self._log_multiplier} if self._cfg.learn.with_lagrange else {}
        return {**super()._saved(), **own}

    monitored: tuple[str, ...] = (*SACPolicy.monitored, "conservative_gap", "multiplier")


@POLICY_REGISTRY.register("discrete_cql")
class DiscreteCQLPolicy(FromData, QRDQNPolicy):
    """QR-DQN with conservative values, learned from a data set."""

    config: dict[str, Any] = dict(
        type="discrete_cql",
        learn=dict(
            # Weight of the gap between the soft maximum of all values and that of the data's action.
            min_q_weight=1.0,
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {"learn.min_q_weight": FROM_0}
    config_unused: ClassVar[Mapping[str, str]] = {"learn.backend": "no gradient by hand is known for this loss"}

    def _added_loss(self, rows: TransitionBatch, values: Tensor) -> Tensor:
        mask = split_mask(self._obs(rows))[1]
        chosen = values.gather(1, rows["action"].long().unsqueeze(1)).squeeze(1)
        gap: Tensor = self._cfg.learn.min_q_weight * (allowed_logits(values, mask).logsumexp(dim=1) - chosen)
        self._gap = gap.detach()
        return gap

    def grad(self, batch: TransitionBatch) -> tuple[Info, Array | None]:
        """Fill the gradient of the loss for rows; priorities are those of QR-DQN."""
        info, priority = super().grad(batch)
        return {**info, "conservative_gap": self._gap}, priority

    monitored: tuple[str, ...] = (*QRDQNPolicy.monitored, "conservative_gap")
