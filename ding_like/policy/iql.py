"""Implicit Q-learning (Kostrikov et al. 2022): values of a data set's own actions, and an actor that clones good ones.

No action that the data lacks is ever valued: the value V of a state is an upper expectile, tau, of the values of the
data's actions, and the actor, a Gaussian with one deviation for all states, clones each action as much as its advantage
weighs. A row is (obs, action, R, discount, next_obs, terminated), R the discounted sum of its rewards; Q' are the
target networks, u is the action in [-1, 1]^A. The losses are

    A           = min_i Q_i'(obs, action) - V(obs)
    value_loss  = mean(weight * |tau - 1{A < 0}| * A^2)
    y           = R + discount * V(next_obs)     second part only if not terminated
    critic_loss = sum_i mean(weight * (Q_i(obs, action) - y)^2)
    actor_loss  = -mean(min(exp(beta * A), max_weight) * log N(u; mu(obs), sigma))

each by its own network alone, and after each step Q' moves a share theta towards Q.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ding_like.data.batch import TransitionBatch
from ding_like.model.numpy_networks import can_differentiate
from ding_like.policy.forward import ForwardActor, OfFamily
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.offline import FromData
from ding_like.policy.offpolicy import OffPolicyActorCritic, Rows
from ding_like.policy.qac_by_hand import NumpyQVAC
from ding_like.policy.trained_network import TrainedNetwork
from ding_like.rl_utils.distributions import Gaussian
from ding_like.rl_utils.td import nstep_td_target
from ding_like.types import Array, Info
from ding_like.utils.bounds import ABOVE_0, FROM_0, SHARE, Bounds
from ding_like.utils.registries import POLICY_REGISTRY

LOG_SIGMA_RANGE = (-5.0, 2.0)  # without a lower end, sigma would shrink for ever on actions that are cloned exactly


@POLICY_REGISTRY.register("iql")
class IQLPolicy(FromData, OffPolicyActorCritic):
    """Gaussian actor, critics and values of states, learned from the actions of a data set alone."""

    model_methods: tuple[ModelMethod, ...] = (
        ModelMethod("actor", gives=("B 2A",)),
        ModelMethod("critic", "obs, action", ("N B",)),
        ModelMethod("value", gives=("B 1",)),
    )
    config: dict[str, Any] = dict(
        type="iql",
        learn=dict(
            # Learning rate of the critics.
            learning_rate_q=3e-4,
            # Learning rate of the values of states.
            learning_rate_value=3e-4,
            # Learning rate of the actor.
            learning_rate_policy=3e-4,
            # Expectile that the value of a state is; 0.5 is the mean, nearer 1 the best of the data's actions.
            tau=0.7,
            # Inverse temperature of the advantages that weigh cloning; 0 is cloning alone.
            beta=3.0,
            # Largest weight of an action in the actor's loss.
            max_weight=100.0,
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "learn.learning_rate_q": ABOVE_0,
        "learn.learning_rate_value": ABOVE_0,
        "learn.learning_rate_policy": ABOVE_0,
        "learn.tau": SHARE,
        "learn.beta": FROM_0,
        "learn.max_weight": ABOVE_0,
    }
    model_name = "continuous_qvac"

    def _init_learn(self) -> None:
        super()._init_learn()
        self._actor = self._trained(self._model.actor, "learning_rate_policy", has_target=False)
        self._critic = self._trained(self._model.critic, "learning_rate_q")
        self._value = self._trained(self._model.value, "learning_rate_value", has_target=False)
        is_known = self._in_numpy(self._actor, self._critic) is not None and can_differentiate(self._model.value)
        self._by_hand = NumpyQVAC(self._actor, self._critic, self._value) if is_known else None

    @cached_property
    def _family(self) -> Gaussian:
        """Distribution of actions; what is drawn beyond their bounds is clipped."""
        reach, size = self._action_range(), int(np.prod(self._cfg.model.action_shape))
        low, high = (np.broadcast_to(end, size) for end in (reach.centre - reach.half, reach.centre + reach.half))
        return Gaussian(size, low=low, high=high)

    def _make_actor(self, *, explores: bool) -> ForwardActor:
        return self._actor_that(OfFamily(self._family, is_greedy=not explores, with_log_prob=False))

    def grad(self, batch: TransitionBatch) -> tuple[Info, Array | None]:
        """Fill the gradients of values, critics and actor; priorities are absolute TD errors [B]."""
        rows, hand = self._rows(batch), self._by_hand
        if hand is None:
            with torch.no_grad():
                least = self._critic.target(rows.obs, rows.action).amin(dim=0)
                next_value = self._value.network(rows.next_obs).squeeze(1)
            value = self._value.network(rows.obs).squeeze(1)
        else:
            least = hand.next_values(rows.obs, rows.action.numpy()).amin(dim=0)
            next_value, value = hand.value(rows.next_obs), hand.value(rows.obs)
        target = nstep_td_target(rows.reward, next_value, discount=rows.discount, terminated=rows.terminated)
        advantage = least - value
        losses = {"value_loss": self._learn_value(rows, advantage)}
        losses["critic_loss"], prediction = self._learn_critics(rows, target)
        losses["actor_loss"] = self._clone(rows, advantage.detach())
        info = {"q_value": prediction, "target_q_value": target, "value": value.detach()}
        info |= {**losses, "total_loss": sum(losses.values()), "advantage": advantage.detach()}
        return info, self._priority(prediction - target)

    def _learn_value(self, rows: Rows, advantage: Tensor) -> Tensor:
        """Fill the gradient of the values of states; return the loss."""
        tau = self._cfg.learn.tau
        side = torch.where(advantage.detach() < 0, 1.0 - tau, tau) * rows.weight
        loss = (side * advantage.square()).mean()
        if self._by_hand is None:
            return self._value.backward(loss)
        return self._by_hand.learn_value(loss, side * advantage * (-2.0 / len(advantage)))

    def _learn_critics(self, rows: Rows, target: Tensor) -> tuple[Tensor, Tensor]:
        """Fill the critics' gradient; return (the loss, what they predicted [N, B])."""
        hand = self._by_hand
        q = self._critic.network(rows.obs, rows.action) if hand is None else hand.predict(rows.obs, rows.action.numpy())
        error = q - target
        loss = (rows.weight * error.square()).mean(dim=1).sum()
        if hand is None:
            return self._critic.backward(loss), q.detach()
        return hand.learn_values(loss, (2.0 / len(target)) * rows.weight * error), q

    def _clone(self, rows: Rows, advantage: Tensor) -> Tensor:
        """Fill the actor's gradient; return the loss."""
        learn, hand, size = self._cfg.learn, self._by_hand, rows.action.shape[1]
        weight = (learn.beta * advantage).exp().clamp(max=learn.max_weight)
        if hand is None:
            mean, log_sigma = self._actor.network(rows.obs).split(size, dim=1)
            within = torch.cat([mean, log_sigma.clamp(*LOG_SIGMA_RANGE)], dim=1)
            log_prob, _ = self._family.log_prob_and_entropy(within, rows.action)
            return self._actor.backward(-(weight * log_prob).mean())
        output = hand.act(rows.obs)
        clipped = np.concatenate([output[:, :size], output[:, size:].clip(*LOG_SIGMA_RANGE)], axis=1)
        found = self._family.by_hand(clipped, rows.action.numpy())
        slope = found.backward(weight.numpy() / -len(weight), 0.0) * (clipped == output)
        return hand.improve(-(weight * torch.from_numpy(found.log_prob)).mean(), slope)

    def apply(self) -> None:
        """Take one step of values, critics and actor; move the critics' targets."""
        self._end_update()
        for network in self._networks().values():
            network.optimizer.step()
        self._critic.move_target(self._cfg.learn.target_theta)

    def _networks(self) -> dict[str, TrainedNetwork]:
        return {"actor": self._actor, "critic": self._critic, "value": self._value}

    has_log_prob: ClassVar[bool] = True

    def log_prob(self, obs: Any, action: Tensor, mask: Tensor | None) -> Tensor:
        """Return the log densities [N] of actions, as if they were drawn without being clipped."""
        return self._family.log_prob_and_entropy(self._model.actor(obs), self._inside(action))[0]

    monitored: tuple[str, ...] = (
        "total_loss", "value_loss", "critic_loss", "actor_loss", "q_value", "target_q_value", "value", "advantage",
    )  # fmt: skip
