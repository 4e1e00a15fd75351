"""Deep deterministic policy gradient (Lillicrap et al. 2016).

An actor mu learns to do what a critic Q values most. A row is (obs, action, R, discount, next_obs, terminated), R the
discounted sum of its rewards; primes mark the target networks. The losses are

    y           = R + discount * Q'(next_obs, mu'(next_obs))     second part only if not terminated
    critic_loss = mean(weight * (Q(obs, action) - y)^2)
    actor_loss  = -mean(Q(obs, mu(obs)))

and after each step of both the targets move a share theta towards the networks.

Twin delayed DDPG (TD3, Fujimoto et al. 2018) is the same code with other defaults: three cures for values that are too
high, the smaller of two critics, a target that is smooth around the next action, and an actor that waits for its
critics. There

    a'          = clip(mu'(next_obs) + clip(noise, -c, c), -1, 1),  noise ~ N(0, sigma)
    y           = R + discount * min_i Q_i'(next_obs, a')       second part only if not terminated
    critic_loss = sum_i mean(weight * (Q_i(obs, action) - y)^2)
    actor_loss  = -mean(Q_1(obs, mu(obs)))                      every `actor_update_freq` updates

and targets move with each step of the actor. What a critic predicts, a value here, is its family's to know
(`rl_utils/value_family.py`): D4PG has another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from ding_like.data.batch import TransitionBatch
from ding_like.model.qac import FirstCritic
from ding_like.policy.forward import ForwardActor, GaussianNoise
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.offpolicy import OffPolicyActorCritic, Rows
from ding_like.policy.trained_network import TrainedNetwork
from ding_like.rl_utils.value_family import ScalarValue, ValueFamily
from ding_like.types import Array, Config, Info
from ding_like.utils.bounds import ABOVE_0, FINITE, FROM_0, FROM_1, Bounds
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("ddpg")
class DDPGPolicy(OffPolicyActorCritic):
    """Deterministic actor and one critic, learned off-policy."""

    model_methods: tuple[ModelMethod, ...] = (ModelMethod("actor"), ModelMethod("critic", "obs, action", ("N B",)))
    config: dict[str, Any] = dict(
        type="ddpg",
        model=dict(
            # Head of the actor: "regression", which the algorithm needs.
            action_space="regression",
            # Two critics, the smaller of whose values is the target.
            twin_critic=False,
        ),
        learn=dict(
            # Learning rate of the actor.
            learning_rate_actor=1e-3,
            # Learning rate of the critics.
            learning_rate_critic=1e-3,
            # Updates of the critics per update of the actor.
            actor_update_freq=1,
            # Updates of the critics per move of the target networks; None: they move with the actor.
            target_update_freq=None,
            # Add noise to the next action of a target, which smooths it.
            noise=False,
            # Standard deviation of that noise; 1 is half of the action's range.
            noise_sigma=0.2,
            noise_range=dict(
                # Lowest noise on the next action of a target; 1 is half of the action's range.
                min=-0.5,
                # Highest noise on the next action of a target; 1 is half of the action's range.
                max=0.5,
            ),
        ),
        collect=dict(
            # Standard deviation of the exploration noise; 1 is half of the action's range.
            noise_sigma=0.1,
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "learn.learning_rate_actor": ABOVE_0,
        "learn.learning_rate_critic": ABOVE_0,
        "learn.actor_update_freq": FROM_1,
        "learn.target_update_freq": FROM_1,
        "learn.noise_sigma": FROM_0,
        "learn.noise_range.min": FINITE,
        "learn.noise_range.max": FINITE,
        "collect.noise_sigma": FROM_0,
    }
    config_idle: ClassVar[Mapping[str, tuple[Any, tuple[str, ...]]]] = {
        "learn.noise": (False, ("learn.noise_sigma", "learn.noise_range.min", "learn.noise_range.max")),
    }

    @classmethod
    def check_config(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the policy section."""
        yield from super().check_config(cfg)
        limits = cfg["learn"]["noise_range"]
        if limits["min"] > limits["max"]:
            yield "learn.noise_range", f"min must not be above max, got {dict(limits)}"

    def _init_learn(self) -> None:
        super()._init_learn()
        self._actor = self._trained(self._model.actor, "learning_rate_actor")
        self._critic = self._trained(self._model.critic, "learning_rate_critic")
        self._family = self._make_family()
        self._first_critic = FirstCritic(self._critic.network)
        # By hand the loss of plain values alone is known.
        is_plain = isinstance(self._family, ScalarValue)
        self._by_hand = self._in_numpy(self._actor, self._critic) if is_plain else None

    def _make_actor(self, *, explores: bool) -> ForwardActor:
        sigma = self._cfg.collect.noise_sigma if explores else 0.0
        return self._actor_that(GaussianNoise(self._action_range(), sigma))

    def grad(self, batch: TransitionBatch) -> tuple[Info, Array | None]:
        """Fill the gradients of the critic and, in its turn, of the actor; priorities [B] are those of the family."""
        rows = self._rows(batch)
        info, priority = self._learn_values(rows)
        if self._is_turn_of(self._cfg.learn.actor_update_freq):
            info["actor_loss"] = self._improve(rows)
            info["total_loss"] = info["critic_loss"] + info["actor_loss"]
        return info, self._priority(priority)

    def _make_family(self) -> ValueFamily[Tensor]:
        """Return what each critic predicts of an action: its expected return, or a distribution of returns."""
        return ScalarValue("mse")

    def _next_value(self, prediction: Tensor, action: Tensor, rows: Rows) -> Tensor:
        """Return the next value [B, ...] of what the critics predict [N, B, ...] of next actions [B, A].

        It is that of the least expected return.
        """
        return prediction.amin(dim=0)

    def _learn_values(self, rows: Rows) -> tuple[dict[str, Any], Tensor]:
        """Fill the critics' gradient; return (what to log, the priorities [N, B])."""
        hand, family = self._by_hand, self._family
        with torch.no_grad():
            if hand is None:
                next_action = self._next_action(rows)
                following = self._critic.target(rows.next_obs, next_action)
            else:
                next_action = self._smoothed(torch.from_numpy(hand.act_of_target(rows.next_obs)))
                following = hand.next_values(rows.next_obs, next_action.numpy())
            next_value = self._next_value(following, next_action, rows)
            target = family.backup(rows.reward, next_value, discount=rows.discount, terminated=rows.terminated)
        if hand is None:
            q = self._critic.network(rows.obs, rows.action)
        else:
            q = hand.predict(rows.obs, rows.action.numpy())
        each = family.loss(q, target.expand_as(q))
        loss = (rows.weight * each.loss).mean(dim=1).sum()
        if hand is None:
            loss = self._critic.backward(loss)
        else:
            loss = hand.learn_values(loss, (2.0 / len(target)) * rows.weight * (q - target))
        info = {"critic_loss": loss, "q_value": family.expected(q.detach())}
        return {**info, "target_q_value": family.expected_target(target)}, each.priority

    def _improve(self, rows: Rows) -> Tensor:
        """Fill the actor's gradient; return its loss."""
        hand = self._by_hand
        if hand is None:
            value = self._first_critic(rows.obs, self._actor.network(rows.obs))[0]
            return self._actor.backward(-self._family.expected(value).mean())
        action = hand.act(rows.obs)
        value = hand.judge(rows.obs, action, by_first=True)
        slope = torch.full_like(value, -1.0 / len(action))
        return hand.improve(-value.mean(), hand.slope_by_action(slope, action.shape[1]))

    def _next_action(self, rows: Rows) -> Tensor:
        """Return the next actions [B, A] of a target, without a gradient."""
        return self._smoothed(self._actor.target(rows.next_obs))

    def _smoothed(self, action: Tensor) -> Tensor:
        """Return actions [B, A]; with `learn.noise` each has clipped noise on it, and stays within [-1, 1]."""
        learn = self._cfg.learn
        if not learn.noise:
            return action
        noise = (learn.noise_sigma * self._normal_like(action)).clamp_(learn.noise_range.min, learn.noise_range.max)
        return cast(Tensor, (action + noise).clamp_(-1.0, 1.0))

    def apply(self) -> None:
        """Take one step of the critic and, in their turns, of the actor and both targets."""
        learn = self._cfg.learn
        is_actors_turn = self._is_turn_of(learn.actor_update_freq)
        move = is_actors_turn if learn.target_update_freq is None else self._is_turn_of(learn.target_update_freq)
        self._end_update()
        self._critic.optimizer.step()
        if is_actors_turn:
            self._actor.optimizer.step()
        if move:
            for network in (self._critic, self._actor):
                network.move_target(learn.target_theta)

    def _networks(self) -> dict[str, TrainedNetwork]:
        return {"actor": self._actor, "critic": self._critic}

    monitored: tuple[str, ...] = ("total_loss", "critic_loss", "actor_loss", "q_value", "target_q_value")


@POLICY_REGISTRY.register("td3")
class TD3Policy(DDPGPolicy):
    """Deterministic actor and two critics, learned off-policy; networks and acting are those of DDPG."""

    config: dict[str, Any] = dict(
        type="td3",
        model=dict(twin_critic=True),
        learn=dict(actor_update_freq=2, noise=True),
    )

    monitored: tuple[str, ...] = ("critic_loss", "actor_loss", "q_value", "target_q_value")
