"""The fully parameterised quantile function (Yang et al. 2019), with the additions of DQN.

Like IQN (`policy/iqn.py`), but for each observation a network P proposes which fractions are asked for. It divides
[0, 1] into N parts with bounds t_0 = 0 to t_N = 1; m_i is the middle of part i and w_i its width. A row is (obs,
action, R, discount, next_obs, terminated), R the discounted sum of its rewards; primes mark the target network, its
fractions included. The loss of values is

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
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from ding_like.data.batch import TransitionBatch
from ding_like.data.obs import split_mask
from ding_like.model.flat_params import FlatParams
from ding_like.model.numpy_grad import NumpyProposal
from ding_like.policy.iqn import Asked, ImplicitQuantilePolicy
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.optimizer import FlatOptimizer, build_rule
from ding_like.rl_utils.quantile import ProposedQuantiles, Quantiles, fraction_gradient, fraction_loss
from ding_like.rl_utils.value_family import weighted_mean
from ding_like.types import Array, Config, Info, State
from ding_like.utils.bounds import ABOVE_0, FROM_0, Bounds
from ding_like.utils.registries import POLICY_REGISTRY


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
    config_types = {**ImplicitQuantilePolicy.config_types, "learn.learning_rate": (float, int)}

    @classmethod
    def check_config(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the policy section."""
        yield from super().check_config(cfg)
        if cfg["learn"]["learning_rate"] is not None:
            yield "learn.learning_rate", "give two: learn.learning_rate_quantile and learn.learning_rate_fraction"

    def default_model(self) -> tuple[str, list[str]]:
        return "fqf", []

    @cached_property
    def _family(self) -> ProposedQuantiles:
        return ProposedQuantiles(kappa=self._cfg.learn.kappa)

    # ---- the loss of values

    # Any: a network of two parts, `values` and `proposal`.
    def _value_network(self, model: Any) -> nn.Module:
        values: nn.Module = model.values
        return values

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
        self._fraction_params.zero_grad()
        obs = split_mask(self._obs(rows))[0]
        with torch.no_grad():
            features = self._model.values.encoder(obs)
        proposal = self._model.proposal(features)
        with torch.no_grad():
            slope = self._slope(features, rows["action"], proposal.bounds, proposal.midpoints)
        entropy = proposal.entropy
        each = fraction_loss(proposal.bounds, slope, entropy, entropy_weight=self._cfg.learn.ent_coef)
        loss = weighted_mean(each, self._weight(rows))
        loss.backward()  # type: ignore[no-untyped-call]  # torch gives it no types
        self._fraction_params.loss.copy_(loss.detach())
        return {"fraction_slope": slope.abs().mean(), "fraction_entropy": entropy.detach().mean()}

    def _slope(self, features: Tensor, action: Tensor, bounds: Tensor, midpoints: Tensor) -> Tensor:
        """Return the gradient [B, N - 1] of the Wasserstein distance by the bounds, of the actions' returns."""
        fractions = torch.cat([bounds, midpoints], dim=1)
        values = self._model.values.of_features(features, fractions)
        chosen = self._family.of_action(Quantiles(values, fractions, fractions), action).values
        num_bounds = bounds.shape[1]
        slope: Tensor = fraction_gradient(chosen[:, :num_bounds], chosen[:, num_bounds:])
        return slope

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

    def _monitor_vars_learn(self) -> list[str]:
        return [*super()._monitor_vars_learn(), "fraction_slope", "fraction_entropy"]

    def _state_dict_learn(self) -> State:
        return {**super()._state_dict_learn(), "fraction_optimizer": self._fraction_optimizer.state_dict()}

    def _load_state_dict_learn(self, state: Mapping[str, Any]) -> None:
        super()._load_state_dict_learn(state)
        if "fraction_optimizer" in state:
            self._fraction_optimizer.load_state_dict(state["fraction_optimizer"])
