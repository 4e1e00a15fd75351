"""Soft actor-critic (Haarnoja et al. 2018) with a learned temperature (Haarnoja et al. 2018b).

A stochastic actor pi, a Gaussian squashed by tanh, maximises reward plus alpha times its entropy; alpha is learned so
that the entropy stays near a target. A row is (obs, action, R, discount, next_obs, terminated), R the discounted sum of
its rewards; a' ~ pi(next_obs) and a ~ pi(obs) are drawn afresh; Q' are the target networks. The losses are

    y           = R + discount * (min_i Q_i'(next_obs, a') - alpha * log pi(a'))     second part only if not terminated
    critic_loss = sum_i mean(weight * (Q_i(obs, action) - y)^2 / 2)
    actor_loss  = mean(alpha * log pi(a) - min_i Q_i(obs, a))
    alpha_loss  = -log alpha * mean(log pi(a) + target_entropy)

and after each step Q' moves a share theta towards Q.

Discrete actions (Christodoulou 2019): the actor pi is a softmax over A actions, so that what is estimated above from an
action drawn is a sum over all of them: no gradient has noise from drawing. Q_i(s) are the values of all actions, and
Q_i' those of the target networks. The losses are

    V(s; Q)     = sum_a pi(a|s) * (min_i Q_i(s)[a] - alpha * log pi(a|s))
    y           = R + discount * V(next_obs; Q')                  second part only if not terminated
    critic_loss = sum_i mean(weight * (Q_i(obs)[action] - y)^2 / 2)
    actor_loss  = -mean(V(obs; Q))
    alpha_loss  = log alpha * mean(H(pi(.|obs)) - target_entropy)

By default the target entropy is 0.98 * log A, nearly that of
drawing uniformly. Actions that a mask forbids have probability 0 and are in no sum, and A counts those it allows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, cast

import torch
from torch import Tensor, nn

from ding_like.data.batch import TransitionBatch, split_mask
from ding_like.policy.forward import ForwardActor, OfFamily, SquashedGaussian
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.offpolicy import OffPolicyActorCritic, Rows
from ding_like.policy.qac_by_hand import NumpyQAC
from ding_like.policy.trained_network import TrainedNetwork
from ding_like.rl_utils.distributions import (
    MAX_LOG_SIGMA,
    MIN_LOG_SIGMA,
    Categorical,
    SquashedByHand,
    squashed_gaussian,
    squashed_gaussian_by_hand,
    unsquashed,
)
from ding_like.rl_utils.td import (
    entropy_of,
    least_value,
    log_softmax,
    nstep_td_target,
    soft_value,
    where_some_legal,
)
from ding_like.types import Array, Info
from ding_like.utils.bounds import ABOVE_0, FINITE, FROM_0, Bounds
from ding_like.utils.registries import POLICY_REGISTRY


class Learned(NamedTuple):
    """Result of filling the critics' gradient."""

    loss: Tensor  # 0-dim
    prediction: Tensor  # [N, B], or quantiles [N, B, M]
    target: Tensor  # [B], or [B, K]
    error: Tensor  # [N, B]
    every: Tensor | None  # [N, B, A], the values of all actions where the critic gives them


class Improved(NamedTuple):
    """What an update does to the actor, and what it sees of the entropy."""

    losses: dict[str, Tensor]  # the actor's, by the name it is logged under
    entropy: Tensor  # [B], or an estimate of it: -log of the probability of an action drawn
    default_target: Tensor | float  # of the entropy, one for all rows or [B]


class SoftActorCritic(OffPolicyActorCritic):
    """SAC for any kind of action: critics with targets, a temperature, an actor where there is one, and their steps."""

    config: dict[str, Any] = dict(
        model=dict(
            # Two critics, the smaller of whose values is the target.
            twin_critic=True,
        ),
        learn=dict(
            # Learning rate of the critics.
            learning_rate_q=3e-4,
            # Learning rate of the actor.
            learning_rate_policy=3e-4,
            # Learning rate of the temperature.
            learning_rate_alpha=3e-4,
            # Temperature, the weight of the entropy; its first value if it is learned.
            alpha=0.2,
            # Learn the temperature, so that the entropy stays near target_entropy.
            auto_alpha=True,
            # Compute the temperature's loss from log(alpha); False: from alpha, as in the paper.
            log_space=True,
            # Entropy of the actor that the temperature aims at; None: the algorithm's own default.
            target_entropy=None,
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "learn.learning_rate_q": ABOVE_0,
        "learn.learning_rate_policy": ABOVE_0,
        "learn.learning_rate_alpha": FROM_0,
        "learn.alpha": ABOVE_0,
        "learn.target_entropy": FINITE,
    }

    config_idle: ClassVar[Mapping[str, tuple[Any, tuple[str, ...]]]] = {
        "learn.auto_alpha": (False, ("learn.learning_rate_alpha", "learn.log_space", "learn.target_entropy")),
    }

    # False: the policy follows from the critics, and there is no network of an actor.
    has_actor: ClassVar[bool] = True
    # False: values that follow are those of the critics themselves.
    has_target: ClassVar[bool] = True

    def _init_learn(self) -> None:
        super()._init_learn()
        if self.has_actor:
            self._actor = self._trained(self._model.actor, "learning_rate_policy", has_target=False)
        self._critic = self._trained(self._model.critic, "learning_rate_q", has_target=self.has_target)
        self._temperature = self._trained(self._log_alpha, "learning_rate_alpha", has_target=False)

    @cached_property
    def _log_alpha(self) -> nn.ParameterDict:
        """Logarithm of alpha, `log_alpha` [], so that alpha stays above 0."""
        log_alpha = nn.Parameter(torch.tensor(math.log(self._cfg.learn.alpha)))
        return nn.ParameterDict({"log_alpha": log_alpha}).to(self._device)

    # ---- what the kinds of action differ in

    def _target(self, rows: Rows, alpha: Tensor) -> Tensor:
        """Return the targets [B] of the critics, without a gradient."""
        raise NotImplementedError

    def _chosen(self, rows: Rows) -> tuple[Tensor, Tensor | None]:
        """Return (values [N, B] of rows' actions, the values [N, B, A] of all actions where the critic gives them)."""
        raise NotImplementedError

    def _compare(self, prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return (the loss, the TD error) of each critic and row, both [N, B], of what `_chosen` and `_target` give."""
        error = prediction - target
        return 0.5 * error.square(), error

    def _means(self, prediction: Tensor) -> Tensor:
        """Return the values to log of what critics or targets say."""
        return prediction

    def _predict(self, rows: Rows, alpha: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return (what `_chosen` gives of rows' actions, its targets without a gradient, the values of all actions)."""
        with torch.no_grad():
            target = self._target(rows, alpha)
        prediction, every = self._chosen(rows)
        return prediction, target, every

    def _learn_values(self, rows: Rows, alpha: Tensor) -> Learned:
        """Fill the critics' gradient."""
        prediction, target, every = self._predict(rows, alpha)
        each, error = self._compare(prediction, target)
        loss = self._critic.backward((rows.weight * each).mean(dim=1).sum())
        return Learned(loss, prediction.detach(), target, error, every)

    def _improve(self, rows: Rows, values: Tensor | None, alpha: Tensor) -> Improved:
        """Fill the actor's gradient, where there is an actor; `values` are what `_chosen` gave."""
        raise NotImplementedError

    def grad(self, batch: TransitionBatch) -> tuple[Info, Array | None]:
        """Fill the gradients of critics, actor and temperature; priorities are absolute TD errors [B]."""
        rows = self._rows(batch)
        alpha = self._temperature.network.log_alpha.detach().exp()
        learned = self._learn_values(rows, alpha)
        info = {
            "critic_loss": learned.loss,
            "q_value": self._means(learned.prediction),
            "target_q_value": self._means(learned.target),
            "alpha": alpha,
        }
        if self._is_actors_turn():
            losses, entropy, default_target = self._improve(rows, learned.every, alpha)
            info |= {**losses, "total_loss": sum(losses.values(), learned.loss), "entropy": entropy}
            if self._cfg.learn.auto_alpha:
                info["alpha_loss"] = self._temperature.backward(self._alpha_loss(-entropy, default_target))
        return info, self._priority(learned.error)

    def _is_actors_turn(self) -> bool:
        """Tell whether the update under way is one of the actor and the temperature too."""
        return True

    def _alpha_loss(self, log_prob: Tensor, default_target: Tensor | float) -> Tensor:
        """Return the loss whose gradient raises alpha where the entropy, -mean(log_prob [B]), is below its target.

        `default_target`, one for all rows or [B], is the target unless the config gives one.
        """
        learn, log_alpha = self._cfg.learn, self._temperature.network.log_alpha
        target_entropy = default_target if learn.target_entropy is None else learn.target_entropy
        return cast(Tensor, -(log_alpha if learn.log_space else log_alpha.exp()) * (log_prob + target_entropy).mean())

    def apply(self) -> None:
        """Take one step of critics and, in their turn, of actor and temperature; move the critics' targets."""
        is_actors_turn = self._is_actors_turn()
        self._end_update()
        self._critic.optimizer.step()
        if self.has_actor and is_actors_turn:
            self._actor.optimizer.step()
        if self._cfg.learn.auto_alpha and is_actors_turn:
            self._temperature.optimizer.step()
        if self.has_target:
            self._critic.move_target(self._cfg.learn.target_theta)

    def _networks(self) -> dict[str, TrainedNetwork]:
        of_actor = {"actor": self._actor} if self.has_actor else {}
        return {**of_actor, "critic": self._critic, "temperature": self._temperature}

    def _grad_modules(self) -> dict[str, nn.Module]:
        return {**super()._grad_modules(), "temperature": self._temperature.network}

    monitored: tuple[str, ...] = (
        "total_loss", "critic_loss", "actor_loss", "alpha_loss", "alpha", "entropy", "q_value", "target_q_value",
    )  # fmt: skip

    def _saved(self) -> dict[str, Any]:
        return {"log_alpha": self._log_alpha}


@POLICY_REGISTRY.register("sac")
class SACPolicy(SoftActorCritic):
    """Stochastic actor of continuous actions, two critics and a temperature, learned off-policy.

    The target of the entropy over [-1, 1]^A is by default minus the number of dimensions.
    """

    model_methods: tuple[ModelMethod, ...] = (
        ModelMethod("actor", gives=("B 2A",)),
        ModelMethod("critic", "obs, action", ("N B",)),
    )
    config: dict[str, Any] = dict(
        type="sac",
        model=dict(
            # Head of the actor: "reparameterization", which the algorithm needs.
            action_space="reparameterization",
        ),
    )

    def _make_actor(self, *, explores: bool) -> ForwardActor:
        return self._actor_that(SquashedGaussian(self._action_range(), is_random=explores))

    def _init_learn(self) -> None:
        super()._init_learn()
        # An algorithm of the user's own that replaces one of these is autograd's: by hand nothing calls them.
        is_own = self._replaces(SACPolicy, "_target", "_chosen", "_draw") or (
            self._replaces(SACPolicy, "_compare") and not self._replaces(SACPolicy, "_compare_by_hand")
        )
        self._by_hand = None if is_own else self._in_numpy(self._actor, self._critic)

    def _replaces(self, cls: type, *names: str) -> bool:
        """Tell whether one of the methods that a class has is another one here."""
        return any(getattr(type(self), name) is not getattr(cls, name) for name in names)

    def _target(self, rows: Rows, alpha: Tensor) -> Tensor:
        action, log_prob = self._draw(rows.next_obs)
        return self._backup(rows, self._critic.target(rows.next_obs, action), alpha * log_prob)

    def _backup(self, rows: Rows, next_values: Tensor, cost: Tensor) -> Tensor:
        """Return the targets of the critics, given what follows: values [N, B] and alpha * log pi [B]."""
        next_value = next_values.amin(dim=0) - cost
        return nstep_td_target(rows.reward, next_value, discount=rows.discount, terminated=rows.terminated)

    def _target_by_hand(self, hand: NumpyQAC, rows: Rows, alpha: Tensor) -> Tensor:
        """Do what `_target` does, in numpy."""
        drawn = self._draw_by_hand(hand.act(rows.next_obs))
        next_values = hand.next_values(rows.next_obs, drawn.action)
        return self._backup(rows, next_values, alpha * torch.from_numpy(drawn.log_prob))

    def _chosen(self, rows: Rows) -> tuple[Tensor, None]:
        return self._critic.network(rows.obs, rows.action), None

    def _learn_values(self, rows: Rows, alpha: Tensor) -> Learned:
        hand = self._by_hand
        if hand is None:
            return super()._learn_values(rows, alpha)
        target = self._target_by_hand(hand, rows, alpha)
        prediction = hand.predict(rows.obs, rows.action.numpy())
        each, error, slope = self._compare_by_hand(prediction, target)
        weight = rows.weight / len(target)
        by_value = slope * (weight[:, None] if isinstance(weight, Tensor) and slope.dim() > 2 else weight)
        loss = hand.learn_values((weight * each).sum(), by_value)
        return Learned(loss, prediction, target, error, None)

    def _compare_by_hand(self, prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return what `_compare` does, and the slope [N, B] of each loss by the prediction."""
        each, error = self._compare(prediction, target)
        return each, error, error

    def _improve(self, rows: Rows, values: Tensor | None, alpha: Tensor) -> Improved:
        hand = self._by_hand
        if hand is None:
            action, log_prob = self._draw(rows.obs)
            value, _ = self._value(self._critic.network(rows.obs, action))
            loss = self._actor.backward((alpha * log_prob - value).mean())
            return Improved({"actor_loss": loss}, -log_prob.detach(), -action.shape[1])
        drawn = self._draw_by_hand(hand.act(rows.obs))
        batch, num_actions = drawn.action.shape
        log_prob = torch.from_numpy(drawn.log_prob)
        value, slope = self._value(hand.judge(rows.obs, drawn.action))
        by_action = hand.slope_by_action(slope / -batch, num_actions)
        loss = hand.improve((alpha * log_prob - value).mean(), drawn.backward(by_action, float(alpha) / batch))
        return Improved({"actor_loss": loss}, -log_prob, -num_actions)

    def _value(self, prediction: Tensor) -> tuple[Tensor, Tensor]:
        """Return (the value [B] that the actor maximises, of what critics [N, B] give; its slope by that [N, B])."""
        return least_value(prediction)

    def _draw(self, obs: Any) -> tuple[Tensor, Tensor]:
        """Return actions [B, A] that the actor draws for observations [B, O...], and their log densities [B]."""
        mean, log_sigma = self._actor.network(obs).chunk(2, dim=1)
        return squashed_gaussian(mean, log_sigma, self._normal_like(mean))

    has_log_prob: ClassVar[bool] = True

    def log_prob(self, obs: Any, action: Tensor, mask: Tensor | None) -> Tensor:
        """Return the log densities [N] of actions; of one at a bound, which tanh never reaches, that just before it."""
        mean, log_sigma = self._model.actor(obs).chunk(2, dim=1)
        log_sigma = log_sigma.clamp(MIN_LOG_SIGMA, MAX_LOG_SIGMA)
        noise = (unsquashed(self._inside(action)) - mean) * (-log_sigma).exp()
        return squashed_gaussian(mean, log_sigma, noise)[1]

    def _draw_by_hand(self, output: Array) -> SquashedByHand:
        """Do what `_draw` does, in numpy, given what the actor gives."""
        return squashed_gaussian_by_hand(output, self._normal_like(output[:, : output.shape[1] // 2]).numpy())


# Christodoulou 2019, appendix: the share of the largest possible entropy that the temperature aims at.
_SHARE_OF_LARGEST_ENTROPY = 0.98


@POLICY_REGISTRY.register("discrete_sac")
class DiscreteSACPolicy(SoftActorCritic):
    """Softmax over discrete actions, two critics and a temperature, learned off-policy."""

    model_methods: tuple[ModelMethod, ...] = (ModelMethod("actor"), ModelMethod("critic", gives=("N B A",)))
    config: dict[str, Any] = dict(type="discrete_sac")
    # Keys of DI-engine's configs.
    without_effect: ClassVar[dict[str, str]] = {
        "model.agent_obs_shape": "the model is that of a single agent: model.obs_shape",
        "model.global_obs_shape": "the critic sees what the actor sees",
    }
    config_unused: ClassVar[Mapping[str, str]] = {"learn.backend": "the gradient of discrete actions is autograd's"}
    action_spaces = ("Discrete",)

    model_name = "discrete_qac"

    def _make_actor(self, *, explores: bool) -> ForwardActor:
        # No log probabilities: rows made at random have none, and the losses take their own.
        return self._actor_that(OfFamily(Categorical(), is_greedy=not explores, with_log_prob=False))

    def _chosen(self, rows: Rows) -> tuple[Tensor, Tensor]:
        values = self._critic.network(split_mask(rows.obs)[0])
        return values.gather(2, rows.action.expand(len(values), -1).unsqueeze(2)).squeeze(2), values

    def _log_pi(self, obs: Any, mask: Tensor | None) -> Tensor:
        """Return the log probabilities [B, A] of all actions, with the actor's gradient."""
        return log_softmax(self._actor.network(obs), mask)

    has_log_prob: ClassVar[bool] = True

    def log_prob(self, obs: Any, action: Tensor, mask: Tensor | None) -> Tensor:
        """Return the log probabilities [N] of actions [N]."""
        return self._log_pi(obs, mask).gather(1, action.unsqueeze(1)).squeeze(1)

    def _improve(self, rows: Rows, values: Tensor | None, alpha: Tensor) -> Improved:
        assert values is not None, "they come from `_chosen`"
        obs, mask = split_mask(rows.obs)
        log_pi = self._log_pi(obs, mask)
        loss = self._actor.backward(-soft_value(log_pi, values.detach().amin(dim=0), alpha=alpha).mean())
        return Improved({"actor_loss": loss}, entropy_of(log_pi.detach()), target_entropy(log_pi, mask))

    def _target(self, rows: Rows, alpha: Tensor) -> Tensor:
        """Return the targets [B]; where a mask allows nothing, nothing can follow, and what follows counts 0."""
        obs, mask = split_mask(rows.next_obs)
        log_pi = self._log_pi(obs, mask)
        next_value = where_some_legal(soft_value(log_pi, self._critic.target(obs).amin(dim=0), alpha=alpha), mask)
        return nstep_td_target(rows.reward, next_value, discount=rows.discount, terminated=rows.terminated)

    def _inside(self, action: Tensor) -> Tensor:
        return action.long()


def target_entropy(log_pi: Tensor, mask: Tensor | None) -> Tensor | float:
    """Return the default target of the entropy: a number, or one for each row [...] where masks [..., A] differ."""
    if mask is None:
        return _SHARE_OF_LARGEST_ENTROPY * math.log(log_pi.shape[-1])
    return _SHARE_OF_LARGEST_ENTROPY * (mask != 0).reshape(log_pi.shape).sum(dim=-1).log()
