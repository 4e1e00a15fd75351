"""Implicit quantile networks (Dabney et al. 2018b), with the additions of DQN.

The network gives the quantile Z_t(obs, action) of an action's return at any fraction t that it is asked for. A row is
(obs, action, R, discount, next_obs, terminated), R the discounted sum of its rewards; Z' is the target network. With
fractions drawn afresh for every row, t_i for N predictions and t'_j for N' targets, the loss is

    a*   = argmax_a 1/K sum_k Z_{(k - 0.5) / K}(next_obs, a)
    d_ij = R + discount * Z'_{t'_j}(next_obs, a*) - Z_{t_i}(obs, action)      second part only if not terminated
    loss = mean(weight * sum_i 1/N' sum_j |t_i - 1{d_ij < 0}| * H(d_ij) / kappa)

where H is Huber's loss, a square up to kappa. Actions are chosen like a*, by K quantiles at equally spaced fractions:
the paper draws these too, and the middles of K equal parts are that mean with less noise. The update around the loss is
`policy/value_based.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ding_like.policy.implicit_quantile import Asked, ImplicitQuantilePolicy
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.value_based import attributes_of
from ding_like.rl_utils.quantile import Quantiles
from ding_like.types import Array
from ding_like.utils.bounds import FROM_1, Bounds
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("iqn")
class IQNPolicy(ImplicitQuantilePolicy):
    """Learn the return of discrete actions, as quantiles at drawn fractions, off-policy."""

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
    config_types = {
        **ImplicitQuantilePolicy.config_types,
        "learn.num_quantiles": (int,),
        "learn.num_target_quantiles": (int,),
    }

    def default_model(self) -> tuple[str, list[str]]:
        return "iqn", []

    @property
    def _draws(self) -> bool:
        return True

    def _init_learn(self) -> None:
        [number] = attributes_of(self._model, "num_quantiles", policy=self._cfg.type)
        super()._init_learn()
        learn = self._cfg.learn
        self._num_drawn = number if learn.num_quantiles is None else learn.num_quantiles
        self._num_drawn_of_target = number if learn.num_target_quantiles is None else learn.num_target_quantiles

    # Any: tensors, in a dict or not.
    def _predict(self, obs: Any) -> Quantiles:
        """Return the quantiles [B, A, N] of observations at drawn fractions, with a gradient."""
        return self._family.predict_at(self._model, obs, self._uniform_rows(_rows_of(obs), self._num_drawn))

    # Any: tensors, in a dict or not.
    def _target_quantiles(self, next_obs: Any) -> Quantiles:
        fractions = self._uniform_rows(_rows_of(next_obs), self._num_drawn_of_target)
        return self._family.predict_at(self._target_model, next_obs, fractions)

    def _ask(self, features: Array, *, of_target: bool) -> Asked:
        number = self._num_drawn_of_target if of_target else self._num_drawn
        fractions = self._uniform_rows(len(features), number).numpy()
        return Asked(fractions, np.full((1, number), 1.0 / number, np.float32))


# Any: tensors, in a dict or not.
def _rows_of(obs: Any) -> int:
    return len(next(iter(obs.values())) if isinstance(obs, dict) else obs)
