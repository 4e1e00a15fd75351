"""Actor and critics run in numpy, with gradients by hand: what DDPG, TD3, SAC, TQC and CQL take on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ding_like.model.numpy_networks import NumpyGrad, can_differentiate, numpy_forward
from ding_like.model.qac import Critic, FirstCritic
from ding_like.policy.trained_network import TrainedNetwork
from ding_like.types import Array


class NumpyQAC:
    """Actor and critics of vectors, and their targets, on live views of their parameters and gradients.

    Observations are [B, O], actions [B, A]. Values are [N, B] of N critics, or quantiles [N, B, M]; the slope of a loss
    is its gradient by them, or by what the actor gives.
    """

    def __init__(self, actor: TrainedNetwork, critic: TrainedNetwork) -> None:
        self._actor_params, self._critic_params = actor.params, critic.params
        self._is_plain = critic.network.num_points is None
        self._actor, self._critic = NumpyGrad(actor.network, actor.params), NumpyGrad(critic.network, critic.params)
        # Any: they are there, as `of` has looked.
        self._actor_target: Any = None if actor.target is None else numpy_forward(actor.target)
        self._critic_target: Any = numpy_forward(critic.target)
        # Gradients go through these to the action, and to no parameter.
        self._judges: list[Any] = [numpy_forward(one) for one in (critic.network, FirstCritic(critic.network))]

    @classmethod
    def of(cls, actor: TrainedNetwork, critic: TrainedNetwork) -> NumpyQAC | None:
        """Return both in numpy; None where torch is needed: for images, on a GPU, for models of the user's own."""
        is_known = type(critic.network) is Critic and all(can_differentiate(one.network) for one in (actor, critic))
        return cls(actor, critic) if is_known else None

    def act(self, obs: Tensor) -> Array:
        """Return what the actor gives [B, P], and keep what `improve` needs."""
        return self._actor.forward(obs.numpy())

    def act_of_target(self, obs: Tensor) -> Array:
        """Return what the actor's target gives [B, P]."""
        output: Array = self._actor_target(obs.numpy())
        return output

    def next_values(self, obs: Tensor, action: Array) -> Tensor:
        """Return the values that the critics' targets give."""
        return self._values(self._critic_target(_side_by_side(obs, action)))

    def predict(self, obs: Tensor, action: Array) -> Tensor:
        """Return the values that the critics give, and keep what `learn_values` needs."""
        return self._values(self._critic.forward(_side_by_side(obs, action)))

    def learn_values(self, loss: Tensor, slope: Tensor) -> Tensor:
        """Fill the critics' gradient by the slope of a loss of what they predicted last; return the loss."""
        self._critic.backward(slope.numpy()[..., None] if self._is_plain else slope.numpy())
        return self._critic_params.loss.copy_(loss).clone()

    def judge(self, obs: Tensor, action: Array, *, by_first: bool = False) -> Tensor:
        """Return the values that the critics, or the first alone, give; keep what `slope_by_action` needs."""
        self._judge = self._judges[by_first]
        return self._values(self._judge(_side_by_side(obs, action)))

    def slope_by_action(self, slope: Tensor, num_actions: int) -> Array:
        """Return the gradient by the actions [B, A] of a loss of what they were judged last."""
        by_input: Array = self._judge.back(slope.numpy()[..., None] if self._is_plain else slope.numpy())
        return by_input[:, -num_actions:]

    def improve(self, loss: Tensor, slope: Array) -> Tensor:
        """Fill the actor's gradient by the slope of a loss of what it gave last; return the loss."""
        self._actor.backward(slope)
        return self._actor_params.loss.copy_(loss).clone()

    def _values(self, output: Array) -> Tensor:
        return torch.from_numpy(output[..., 0] if self._is_plain else output)


def _side_by_side(obs: Tensor, action: Array) -> Array:
    return np.concatenate([obs.numpy().reshape(len(action), -1), action], axis=1, dtype=np.float32)
