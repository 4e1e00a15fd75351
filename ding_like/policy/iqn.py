"""Implicit quantile networks (Dabney et al. 2018b), with the additions of DQN.

The network gives the quantile Z_t(obs, action) of an action's return at any fraction t that it is asked for. A row is
(obs, action, R, discount, next_obs, terminated), R the discounted sum of its rewards; Z' is the target network. With
fractions drawn afresh for every row, t_i for N predictions and t'_j for N' targets, the loss is

    a*   = argmax_a 1/K sum_k Z_{(k - 0.5) / K}(next_obs, a)
    d_ij = R + discount * Z'_{t'_j}(next_obs, a*) - Z_{t_i}(obs, action)      second part only if not terminated
    loss = mean(weight * sum_i 1/N' sum_j |t_i - 1{d_ij < 0}| * H(d_ij) / kappa)

where H is Huber's loss, a square up to kappa. Actions are chosen like a*, by K quantiles at equally spaced fractions:
the paper draws these too, and the middles of K equal parts are that mean with less noise. The update around the loss is
`policy/value_based.py`. Where the network is made of plain layers, quantiles and gradients are computed in numpy, where
quantiles are [B, N, A].

The fully parameterised quantile function (FQF, Yang et al. 2019) is like IQN, but for each observation a network P
proposes which fractions are asked for. It divides [0, 1] into N parts with bounds t_0 = 0 to t_N = 1; m_i is the middle
of part i and w_i its width; primes mark the target network, its fractions included. The loss of values is

    Q(obs, a) = sum_i w_i * Z_{m_i}(obs, a)
    a*        = argmax_a Q(next_obs, a)
    d_ij      = R + discount * Z'_{m'_j}(next_obs, a*) - Z_{m_i}(obs, action)      second part only if not terminated
    loss      = mean(weight * sum_i sum_j w'_j * |m_i - 1{d_ij < 0}| * H(d_ij) / kappa)

where H is Huber's loss, a square up to kappa. P is trained to make Z on its parts as close as it can be to Z in full: W
is their 1-Wasserstein distance, which is not computed, but for its gradient

    dW / dt_i = 2 Z_{t_i}(obs, action) - Z_{m_i}(obs, action) - Z_{m_{i-1}}(obs, action)

less `ent_coef` times the entropy of the widths. Neither loss trains the other's network.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from ding_like.data.batch import TransitionBatch, num_rows, split_mask
from ding_like.model.flat_params import FlatParams
from ding_like.model.numpy_networks import NumpyIQN, NumpyProposal, is_plain_iqn
from ding_like.model.optimizer import FlatOptimizer, build_rule
from ding_like.policy.dqn import QuantilePolicy
from ding_like.policy.forward import EpsilonGreedy, ForwardActor, NetworkForward
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.value_based import attributes_of
from ding_like.rl_utils.td import best_action
from ding_like.rl_utils.value_family import (
    ImplicitQuantiles,
    ProposedQuantiles,
    Quantiles,
    fraction_gradient,
    fraction_loss,
    quantile_huber_by_hand,
    weighted_mean,
)
from ding_like.types import Array, Info
from ding_like.utils.bounds import ABOVE_0, FROM_0, FROM_1, Bounds
from ding_like.utils.registries import POLICY_REGISTRY


class Asked(NamedTuple):
    """Fractions at which quantiles are computed, and the share of the distribution that each stands for."""

    fractions: Array  # [B, N]
    weights: Array  # [B or 1, N]


class ImplicitQuantilePolicy(QuantilePolicy):
    """Q-learning of quantiles at any fractions, by their Huber loss; a model's `q` acts and chooses next actions."""

    # ---- what an algorithm says. Any: observations as the model takes them

    def _target_quantiles(self, next_obs: Any) -> Quantiles:
        """Return what the target network says of next observations, [B, A, N']."""
        raise NotImplementedError(f"{type(self).__name__} must say at which fractions: _target_quantiles().")

    def _ask(self, features: Array, *, of_target: bool) -> Asked:
        """Return the fractions for encoded observations [B, D], of the online or the target network, in numpy."""
        raise NotImplementedError(f"{type(self).__name__} must say at which fractions: _ask().")

    # Any: a NumpyIQN, where the frame has another back-end.
    def _use_quantiles(self, model: Any, features: Array, asked: Asked, chosen: Array, rows: TransitionBatch) -> None:
        """Do what else an algorithm does, in numpy, with the quantiles [B, N] of rows' actions."""

    # ---- the same for all

    @cached_property
    def _family(self) -> ImplicitQuantiles:
        return ImplicitQuantiles(kappa=self._cfg.learn.kappa)

    # Any: tensors, in a dict or not.
    def _next_value(self, next_obs: Any, mask: Any) -> Quantiles:
        """Return quantiles [B, N'] of the best legal action of next observations, by the target network."""
        return self._family.of_best(
            self._target_quantiles(next_obs),
            (self._online if self._cfg.double else self._target).tensor(next_obs),
            mask,
        )

    def _make_actor(self, *, explores: bool) -> ForwardActor:
        return ForwardActor(self._predictions(self._model), EpsilonGreedy())

    # Any: a model with `q`.
    def _predictions(self, model: Any) -> NetworkForward:
        """Return what gives expected returns [B, A]."""
        return NetworkForward(model.q, model, self._device)

    # ---- in numpy

    # Any: a NumpyIQN, or None.
    def _numpy_gradient(self) -> Any:
        online, target = (self._value_network(model) for model in (self._model, self._target_model))
        if self._cfg.learn.backend != "auto" or not (is_plain_iqn(online) and is_plain_iqn(target)):
            return None
        self._numpy_target = NumpyIQN(target, self._target_params)
        return NumpyIQN(online, self._params)

    # Any: a NumpyIQN, where the frame has another back-end.
    def _fill_by_hand(self, model: Any, rows: TransitionBatch) -> tuple[Tensor, Tensor, Quantiles, Array | None]:
        """Do what `_fill` does, in numpy."""
        target, target_weights = self._target_of_arrays(rows)
        features = model.features(split_mask(self._obs(rows))[0])
        asked = self._ask(features, of_target=False)
        values = model.quantiles(features, asked.fractions)
        row, action, kappa = np.arange(len(values)), rows["action"], self._family.kappa
        chosen = values[row, :, action]
        each, slope = quantile_huber_by_hand(chosen, asked.fractions, target, target_weights, kappa=kappa)
        weight = self._weight(rows)
        weighted = each
        if weight is not None:
            slope, weighted = slope * weight[:, None], each * weight
        grad = np.zeros(values.shape, values.dtype)
        grad[row, :, action] = slope / len(values)
        model.backward(grad)
        self._use_quantiles(model, features, asked, chosen, rows)
        loss = self._params.loss.fill_(float(np.add.reduce(weighted)) / len(values)).clone()
        expected = torch.from_numpy(np.matmul(asked.weights[:, None], values)[:, 0])
        told = Quantiles(*(torch.from_numpy(part) for part in (target, target_weights, target_weights)))
        return loss, expected, told, each if self._cfg.priority else None

    def _target_of_arrays(self, rows: TransitionBatch) -> tuple[Array, Array]:
        """Return (quantiles of rows' targets [B, N'], their weights [B or 1, N']), in numpy."""
        next_obs, mask = split_mask(self._obs(rows, "next_obs"))
        features = self._numpy_target.features(next_obs)
        asked = self._ask(features, of_target=True)
        values = self._numpy_target.quantiles(features, asked.fractions)
        judge = self._online if self._cfg.double else self._target
        best, nothing_legal = best_action(torch.from_numpy(judge.array(next_obs)), mask)
        step = self._following(rows)
        has_end, discount = step["terminated"], step["discount"]
        if nothing_legal is not None:
            has_end = has_end | nothing_legal.numpy()
        following = np.where(has_end[:, None], np.float32(0.0), values[np.arange(len(values)), :, best.numpy()])
        following *= discount if isinstance(discount, float) else discount[:, None]
        following += rows["reward"][:, None]
        return following, asked.weights


@POLICY_REGISTRY.register("iqn")
class IQNPolicy(ImplicitQuantilePolicy):
    """Q-learning of quantiles of returns at drawn fractions."""

    model_methods: tuple[ModelMethod, ...] = (
        ModelMethod("q"),
        ModelMethod("quantiles", "obs, fractions", ("B A N",)),
        ModelMethod("midpoints", "", ("N",)),
    )
    config: dict[str, Any] = dict(
        type="iqn",
        learn=dict(
            # Fractions that are drawn for the prediction of each row, N; None: model.num_quantiles.
            num_quantiles=None,
            # Fractions that are drawn for the target of each row, N'; None: model.num_quantiles.
            num_target_quantiles=None,
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "learn.num_quantiles": FROM_1,
        "learn.num_target_quantiles": FROM_1,
    }

    model_name = "iqn"

    @property
    def _draws(self) -> bool:
        return True

    def _init_learn(self) -> None:
        [number] = attributes_of(self._model, "num_quantiles", policy=self._cfg.type)
        super()._init_learn()
        learn = self._cfg.learn
        self._num_drawn = number if learn.num_quantiles is None else learn.num_quantiles
        self._num_drawn_of_target = number if learn.num_target_quantiles is None else learn.num_target_quantiles

    def _draw(self, rows: int, number: int) -> Tensor:
        """Return fractions [B, N] for a minibatch of so many rows."""
        assert self._noise is not None, "it is there, as `_draws` says"
        return self._noise.uniform(rows, number, share=self._share)

    # Any: tensors, in a dict or not.
    def _predict(self, obs: Any) -> Quantiles:
        """Return the quantiles [B, A, N] of observations at drawn fractions, with a gradient."""
        return self._family.predict_at(self._model, obs, self._draw(num_rows(obs), self._num_drawn))

    # Any: tensors, in a dict or not.
    def _target_quantiles(self, next_obs: Any) -> Quantiles:
        fractions = self._draw(num_rows(next_obs), self._num_drawn_of_target)
        return self._family.predict_at(self._target_model, next_obs, fractions)

    def _ask(self, features: Array, *, of_target: bool) -> Asked:
        number = self._num_drawn_of_target if of_target else self._num_drawn
        fractions = self._draw(len(features), number).numpy()
        return Asked(fractions, np.full((1, number), 1.0 / number, np.float32))


@POLICY_REGISTRY.register("fqf")
class FQFPolicy(ImplicitQuantilePolicy):
    """Q-learning of quantiles of returns at proposed fractions."""

    model_methods: tuple[ModelMethod, ...] = (
        ModelMethod("q"),
        ModelMethod("predict", gives=("B A N", "fractions")),
        ModelMethod("values", None),
        ModelMethod("proposal", None),
    )
    config: dict[str, Any] = dict(
        type="fqf",
        learn=dict(
            # Refused: there are learning_rate_quantile and learning_rate_fraction.
            learning_rate=None,
            # Learning rate of the network that proposes fractions, by RMSprop.
            learning_rate_fraction=2.5e-9,
            # Learning rate of all else, by learn.optimizer.
            learning_rate_quantile=5e-5,
            # Weight of the entropy of the fractions' widths: it keeps proposals from becoming one wide part.
            ent_coef=0.0,
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "learn.learning_rate_fraction": ABOVE_0,
        "learn.learning_rate_quantile": ABOVE_0,
        "learn.ent_coef": FROM_0,
    }

    config_fixed: ClassVar[Mapping[str, tuple[Any, str]]] = {
        "learn.learning_rate": (None, "give two: learn.learning_rate_quantile and learn.learning_rate_fraction")
    }

    model_name = "fqf"

    @cached_property
    def _family(self) -> ProposedQuantiles:
        return ProposedQuantiles(kappa=self._cfg.learn.kappa)

    # ---- the loss of values

    # Any: a network of two parts, `values` and `proposal`.
    def _value_network(self, model: Any) -> nn.Module:
        return cast(nn.Module, model.values)

    # Any: tensors, in a dict or not.
    def _target_quantiles(self, next_obs: Any) -> Quantiles:
        return self._family.predict(self._target_model, next_obs)

    def _ask(self, features: Array, *, of_target: bool) -> Asked:
        widths = self._numpy_proposals[of_target].widths(features)
        return Asked(widths.cumsum(axis=1) - 0.5 * widths, widths)

    # ---- the loss of fractions

    def _init_learn(self) -> None:
        super()._init_learn()
        learn = self._cfg.learn
        proposals = self._model.proposal, self._target_model.proposal
        params = [FlatParams(proposal) for proposal in proposals]
        self._fraction_params = params[0]
        self._moved.append((params[0], params[1]))
        self._optimizer = FlatOptimizer.from_config(self._params, learn, learning_rate=learn.learning_rate_quantile)
        self._fraction_optimizer = FlatOptimizer(
            params[0],
            learning_rate=learn.learning_rate_fraction,
            grad_clip_norm=learn.grad_clip_norm,
            # eps: where proposals are good their gradient fades, and must not be scaled up to full steps again.
            rule=build_rule(dict(type="rmsprop", alpha=0.95, eps=1e-5)),
            max_nonfinite_steps=1 if learn.nonfinite == "raise" else learn.max_nonfinite_steps,
        )
        if self._by_hand is not None:
            self._numpy_proposals = [NumpyProposal(each.linear, of) for each, of in zip(proposals, params, strict=True)]

    def grad(self, batch: TransitionBatch) -> tuple[Info, Array | None]:
        """Fill the gradients of values and of proposed fractions; priorities are the rows' losses of values [B]."""
        info, priority = super().grad(batch)
        return {**info, **self._fraction_info}, priority

    # Any: what the family makes of targets.
    def _fill(self, rows: TransitionBatch) -> tuple[Tensor, Tensor, Any, Array | None]:
        filled = super()._fill(rows)
        self._fraction_info = self._fill_fractions(rows)
        return filled

    def _fill_fractions(self, rows: TransitionBatch) -> Info:
        """Fill the gradient of the network that proposes fractions; return what to log."""
        self._fraction_params.follow()
        obs = split_mask(self._obs(rows))[0]
        with torch.no_grad():
            features = self._model.values.encoder(obs)
        proposal = self._model.proposal(features)
        with torch.no_grad():
            fractions = torch.cat([proposal.bounds, proposal.midpoints], dim=1)
            quantiles = Quantiles(self._model.values.of_features(features, fractions), fractions, fractions)
            chosen = self._family.of_action(quantiles, rows["action"]).values
            slope = fraction_gradient(*chosen.tensor_split([proposal.bounds.shape[1]], dim=1))
        entropy = proposal.entropy
        each = fraction_loss(proposal.bounds, slope, entropy, entropy_weight=self._cfg.learn.ent_coef)
        self._fraction_params.backward(weighted_mean(each, self._weight(rows)))
        return {"fraction_slope": slope.abs().mean(), "fraction_entropy": entropy.detach().mean()}

    # Any: a NumpyIQN.
    def _use_quantiles(self, model: Any, features: Array, asked: Asked, chosen: Array, rows: TransitionBatch) -> None:
        """Do what `_fill_fractions` does, in numpy."""
        bounds = asked.weights.cumsum(axis=1)[:, :-1]
        at_bounds = model.quantiles(features, bounds)[np.arange(len(bounds)), :, rows["action"]]
        slope = fraction_gradient(at_bounds, chosen)
        proposal, entropy_weight = self._numpy_proposals[0], self._cfg.learn.ent_coef
        entropy = proposal.log_total[:, 0] - np.add.reduce(asked.weights * proposal.log_widths, axis=1)
        # As widths sum to 1, what is the same for all widths of a row has no effect. Bound i is the sum of the widths
        # up to i, so that a width moves all bounds from its own on.
        grad = entropy_weight * proposal.log_widths
        grad[:, :-1] += slope[:, ::-1].cumsum(axis=1)[:, ::-1]
        each = np.add.reduce(bounds * slope, axis=1) - entropy_weight * entropy
        weight = self._weight(rows)
        if weight is not None:
            grad, each = grad * weight[:, None], each * weight
        proposal.backward(grad / np.float32(len(grad)))
        self._fraction_params.loss.fill_(float(np.add.reduce(each)) / len(each))
        self._fraction_info = {"fraction_slope": float(np.abs(slope).mean()), "fraction_entropy": float(entropy.mean())}

    def apply(self) -> None:
        """Take a step of each optimizer and move the target network by period or by momentum."""
        self._fraction_optimizer.step()
        super().apply()

    def _optimizers(self) -> Iterable[FlatOptimizer]:
        return self._optimizer, self._fraction_optimizer

    monitored: tuple[str, ...] = (*ImplicitQuantilePolicy.monitored, "fraction_slope", "fraction_entropy")

    def _saved(self) -> dict[str, Any]:
        return {**super()._saved(), "fraction_optimizer": self._fraction_optimizer}
