"""Be the frame of algorithms whose network gives quantiles at any fractions: IQN and FQF say at which.

Where the network is made of plain layers, quantiles and gradients are computed in numpy. Quantiles are [B, N, A] there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ding_like.data.batch import TransitionBatch
from ding_like.data.obs import split_mask
from ding_like.model.numpy_grad import NumpyIQN, is_plain_iqn
from ding_like.policy.choose import EpsilonGreedy
from ding_like.policy.dqn import DQNPolicy
from ding_like.policy.forward import ForwardActor, NetworkForward
from ding_like.rl_utils.quantile import ImplicitQuantiles, Quantiles, quantile_huber_by_hand
from ding_like.rl_utils.td import best_action
from ding_like.types import Array
from ding_like.utils.bounds import ABOVE_0, Bounds


class Asked(NamedTuple):
    """Hold the fractions that a network is asked at, and what share of the distribution each stands for."""

    fractions: Array  # [B, N]
    weights: Array  # [B or 1, N]


class ImplicitQuantilePolicy(DQNPolicy):
    """Learn quantiles of returns by their Huber loss; a model's `q` acts and chooses next actions."""

    config: dict[str, Any] = dict(
        learn=dict(
            # Difference at which the Huber loss turns from a square into a straight line.
            kappa=1.0,
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "learn.kappa": ABOVE_0,
    }
    config_types = {**DQNPolicy.config_types, "learn.kappa": (int, float)}

    @classmethod
    def check_config(cls, cfg: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the policy section."""
        yield from super().check_config(cfg)
        yield from cls._no_effect(cfg, ("learn.loss",), "the loss is that of quantiles, with learn.kappa")

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
        return self._family.of_best(self._target_quantiles(next_obs), self._judge.tensor(next_obs), mask)

    @property
    def _judge(self) -> NetworkForward:
        """Return what says which next action is best."""
        return self._online if self._cfg.double else self._target

    def _epsilon_greedy(self) -> ForwardActor:
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
        best, nothing_legal = best_action(torch.from_numpy(self._judge.array(next_obs)), mask)
        step = self._following(rows)
        has_end, discount = step["terminated"], step["discount"]
        if nothing_legal is not None:
            has_end = has_end | nothing_legal.numpy()
        following = np.where(has_end[:, None], np.float32(0.0), values[np.arange(len(values)), :, best.numpy()])
        following *= discount if isinstance(discount, float) else discount[:, None]
        following += rows["reward"][:, None]
        return following, asked.weights
