"""Run the networks of PDQN to act: the values of all choices and their parameters, small ones in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from ding_like.model.numpy_forward import NumpyForward, numpy_forward
from ding_like.model.pdqn import PDQN
from ding_like.policy.forward import NetworkForward
from ding_like.types import Array


class HybridForward(NetworkForward):
    """Be the `Forward` of a model with `choose(obs) -> [B, K + P]`."""

    def __init__(self, model: Any, device: torch.device) -> None:  # Any: the model has `choose`
        super().__init__(model.choose, None, device)
        if device.type == "cpu" and type(model) is PDQN:
            self._fast = _fast_choose(model)  # type: ignore[assignment]  # called the same way


def _fast_choose(model: PDQN) -> _FastChoose | None:
    """Return what does `model.choose` in numpy, None where the networks are not small and plain."""
    if model.critic.encoder is not None:
        return None
    actor, q = numpy_forward(model.actor), numpy_forward(model.critic.q)
    return None if actor is None or q is None else _FastChoose(actor, q, model.critic)


class _FastChoose:
    """Do what `PDQN.choose` does on live views of its weights, for vectors [R, O]."""

    def __init__(self, actor: NumpyForward, q: NumpyForward, critic: nn.Module) -> None:
        self._actor = actor
        self._q = q
        self._critic: Any = critic  # a HybridCritic

    def __call__(self, obs: Array) -> Array:
        parameters = self._actor(obs)
        features = obs.reshape(len(obs), -1).astype(parameters.dtype, copy=False)
        if not self._critic.multi_pass:
            values = self._q(np.concatenate([features, parameters], axis=1))
            return np.concatenate([values, parameters], axis=1)
        mask = self._critic.mask.numpy().astype(parameters.dtype, copy=False)
        num_choices = len(mask)
        own = (parameters[:, None] * mask).reshape(-1, mask.shape[1])
        every = self._q(np.concatenate([features.repeat(num_choices, axis=0), own], axis=1))
        values = every.reshape(-1, num_choices, num_choices).diagonal(axis1=1, axis2=2)
        return np.concatenate([values, parameters], axis=1)
