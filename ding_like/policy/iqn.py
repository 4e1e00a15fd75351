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

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from torch import Tensor

from ding_like.policy.dqn import DQNPolicy
from ding_like.rl_utils.implicit_quantile import ImplicitQuantiles, Quantiles
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("iqn")
class IQNPolicy(DQNPolicy):
    """Learn the return of discrete actions, as quantiles at drawn fractions, off-policy."""

    config: dict[str, Any] = dict(
        type="iqn",
        learn=dict(
            # Where the loss of a difference turns from a square into a line.
            kappa=1.0,
            # Fractions drawn for each row, N for its prediction and N' for its target; None: model.num_quantiles.
            num_quantiles=None,
            num_target_quantiles=None,
        ),
    )
    config_types = {**DQNPolicy.config_types, "learn.num_quantiles": (int,), "learn.num_target_quantiles": (int,)}

    @classmethod
    def check_config(cls, cfg: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the policy section."""
        yield from super().check_config(cfg)
        yield from check_quantile_config(cls, cfg)
        for name in ("num_quantiles", "num_target_quantiles"):
            number = cfg["learn"][name]
            if number is not None and number < 1:
                yield f"learn.{name}", f"must be at least 1, or None for model.num_quantiles; got {number}"

    def default_model(self) -> tuple[str, list[str]]:
        return "iqn", []

    @cached_property
    def _family(self) -> ImplicitQuantiles:
        return ImplicitQuantiles(kappa=self._cfg.learn.kappa)

    @property
    def _draws(self) -> bool:
        return True

    # Any: tensors, in a dict or not.
    def _predict(self, obs: Any) -> Quantiles:
        """Return the quantiles [B, A, N] of observations at drawn fractions, with a gradient."""
        return self._family.predict_at(self._model, obs, self._fractions(obs, "num_quantiles"))

    # Any: tensors, in a dict or not.
    def _next_value(self, next_obs: Any, mask: Any) -> Quantiles:
        """Return quantiles [B, N'] of the best legal action of next observations, by the target network."""
        values = self._family.predict_at(
            self._target_model, next_obs, self._fractions(next_obs, "num_target_quantiles")
        )
        judge = self._model if self._cfg.double else self._target_model
        return self._family.of_best(values, self._family.expected(self._family.predict(judge, next_obs)), mask)

    def _fractions(self, obs: Any, name: str) -> Tensor:
        """Draw fractions [B, N] for observations, as many as the config says under `name`."""
        number = self._cfg.learn[name]
        rows = len(next(iter(obs.values())) if isinstance(obs, dict) else obs)
        return self._uniform_rows(rows, self._model.num_quantiles if number is None else number)


def check_quantile_config(cls: type[DQNPolicy], cfg: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Yield (path, message) for what policies that learn quantiles have in common."""
    if cfg["learn"]["kappa"] <= 0:
        yield "learn.kappa", f"must be above 0, got {cfg['learn']['kappa']}"
    yield from cls._no_effect(cfg, ("learn.loss",), "the loss is that of quantiles, with learn.kappa")
