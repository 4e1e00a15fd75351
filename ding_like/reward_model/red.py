"""Random expert distillation (Wang et al. 2019, "Random expert distillation: imitation learning via expert policy
support estimation").

A network f is drawn at random and stays; another, f', learns once, before the first batch, to give the same for the
expert's transitions, and from then on errs little where the expert has been:

    error(s, a) = mean_k (f'(s, a)[k] - f(s, a)[k])^2
    loss        = mean_expert(error)
    reward      = exp(-sigma * error(s, a))

By default sigma is such that the reward of the expert's mean error is 0.9: the paper asks for a reward near 1 on most
of the expert's transitions. Vectors of observations are shifted and scaled by the expert's mean and deviation, so that
f differs within what the expert does; actions are not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ding_like.model.encoder import FlatPart
from ding_like.reward_model.base import Moments, PairNetwork, RewardModel, Transitions
from ding_like.types import Info
from ding_like.utils.bounds import ABOVE_0, FROM_1, Bounds
from ding_like.utils.registries import REWARD_MODEL_REGISTRY

_EXPERT_REWARD = 0.9


@REWARD_MODEL_REGISTRY.register("red")
class REDRewardModel(RewardModel):
    """Predictor of a random network's outputs whose error shows where the expert has not been."""

    config: dict[str, Any] = dict(
        type="red",
        # File of the expert's demonstrations, which `ding collect` writes.
        data_path="",
        # Widths of the hidden layers, of both networks.
        hidden_size_list=[64, 64],
        # Outputs of both networks.
        output_size=32,
        # Gradient steps before the first batch; there are no others.
        pretrain_updates=3000,
        # How fast the reward falls with the error; None: such that the expert's mean error gives 0.9.
        sigma=None,
        update_per_collect=0,
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "output_size": FROM_1,
        "pretrain_updates": FROM_1,
        "sigma": ABOVE_0,
    }
    config_unused: ClassVar[Mapping[str, str]] = {
        "update_per_collect": "the predictor learns once, by pretrain_updates steps, before the first batch"
    }
    needs_expert = True

    def build(self) -> nn.Module:
        """Return `target`, `predictor`, the scale of observations and sigma."""
        sizes, cfg = self.sizes, self._cfg
        shape = dict(action_size=sizes.action_size, output_size=cfg.output_size, activation="tanh")
        module: Any = nn.Module()
        module.target = PairNetwork(sizes.obs_shape, cfg.hidden_size_list, **shape).requires_grad_(False)
        module.predictor = PairNetwork(sizes.obs_shape, cfg.hidden_size_list, **shape)
        features = module.target.features
        scale = Moments(features.output_size) if isinstance(features, FlatPart) else None
        module.register_module("scale", scale)
        module.register_buffer("sigma", torch.tensor(1.0 if cfg.sigma is None else float(cfg.sigma)))
        return module

    def errors(self, transitions: Transitions) -> Tensor:
        """Return the mean squared error [N] of the predictor, which alone has a gradient."""
        obs, scale = transitions.obs, self.module.scale
        if scale is not None:
            obs = scale.normalise(obs.flatten(1), math.inf).reshape(obs.shape)
        given = obs, transitions.action
        out: Tensor = (self.module.predictor(*given) - self.module.target(*given)).square().mean(dim=1)
        return out

    def pretrain(self) -> Info:
        """Train the predictor on the expert's transitions, and choose sigma."""
        assert self._params is not None, "the predictor learns"
        if self.module.scale is not None:
            self.module.scale.update(self.expert.obs.flatten(1))
        info: Info = {}
        for _ in range(self._cfg.pretrain_updates):
            info = self._step(self._params, self.draw(self.expert))
        if self._cfg.sigma is None:
            with torch.no_grad():
                mean = self.errors(self.expert).mean().clamp(min=torch.finfo(torch.float32).tiny)
            self.module.sigma.copy_(-math.log(_EXPERT_REWARD) / mean)
        return info

    def update(self, minibatch: Transitions) -> tuple[Tensor, Info]:
        """Return (the predictor's loss on transitions of the expert, nothing more)."""
        return self.errors(minibatch).mean(), {}

    def rewards(self, transitions: Transitions) -> Tensor:
        """Return exp(-sigma * error) [N]."""
        out: Tensor = (-self.module.sigma * self.errors(transitions)).exp()
        return out
