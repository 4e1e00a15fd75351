"""Define the actor and the critics of DDPG, TD3 and SAC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from ding_like.errors import ConfigError
from ding_like.model.encoder import ObsFeatures, ObsShape, build_encoder, check_obs_shape, has_images
from ding_like.model.head import DiscreteHead
from ding_like.model.mlp import Activation, LinearStack, as_sizes, build_activation
from ding_like.utils.registries import MODEL_REGISTRY

ActionKind = Literal["regression", "reparameterization"]


class ParallelMLP(nn.Module):
    """Run `num` MLPs of one shape side by side, each layer as one batched product: faster than one after the other.

    `sizes` are input, hidden and output widths. Weights begin as those of nn.Linear do.
    """

    def __init__(self, num: int, sizes: Sequence[int], *, activation: Activation = "relu") -> None:
        super().__init__()
        self.num = num
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for fan_in, fan_out in pairwise(sizes):
            bound = fan_in**-0.5
            self.weights.append(nn.Parameter(torch.empty(num, fan_in, fan_out).uniform_(-bound, bound)))
            self.biases.append(nn.Parameter(torch.empty(num, 1, fan_out).uniform_(-bound, bound)))
        self.activation = build_activation(activation)

    def forward(self, x: Tensor) -> Tensor:
        """Return [N, B, output] of [B, input]."""
        x = x.expand(self.num, *x.shape)
        last = len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, x, weight)
            if layer < last:
                x = self.activation(x)
        return x


class Critic(nn.Module):
    """Estimate the value of an action in a state, `num` times over.

    A vector and the action enter together; an image is encoded first, once for all `num`, also one among other parts.
    """

    def __init__(
        self,
        obs_shape: tuple[int, ...] | Mapping[str, Any],
        action_size: int,
        *,
        num: int,
        hidden_size: int,
        layer_num: int,
        encoder_hidden_size_list: Sequence[int] | None,
        activation: Activation,
    ) -> None:
        super().__init__()
        self.obs_shape = obs_shape
        self.encoder: Any = None  # a module with `output_size`
        if isinstance(obs_shape, Mapping):
            images = {} if encoder_hidden_size_list is None else {"hidden_size_list": encoder_hidden_size_list}
            self.encoder = ObsFeatures(obs_shape, activation=activation, **images)
        elif len(obs_shape) == 3:
            self.encoder = build_encoder(obs_shape, encoder_hidden_size_list, activation=activation)
        features = prod(cast("tuple[int, ...]", obs_shape)) if self.encoder is None else self.encoder.output_size
        hidden = as_sizes("critic_head_hidden_size", hidden_size) * (layer_num + (not has_images(obs_shape)))
        self.q = ParallelMLP(num, [features + action_size, *hidden, 1], activation=activation)

    def forward(self, obs: Any, action: Tensor) -> Tensor:
        """Return values [N, B] of observations [B, O...], or a dict of them, and actions [B, A] in [-1, 1].

        Raises SchemaError for observations of another shape.
        """
        if self.encoder is None:
            assert isinstance(self.obs_shape, tuple), "a dict has an encoder"
            check_obs_shape(obs.shape, self.obs_shape)
            features = obs.flatten(1).to(action.dtype)
        else:
            features = self.encoder(obs)
        value: Tensor = self.q(torch.cat([features, action], dim=1)).squeeze(2)
        return value


@MODEL_REGISTRY.register("continuous_qac")
class ContinuousQAC(nn.Module):
    """Hold an actor, `actor(obs)`, and one critic or two, `critic(obs, action) -> [N, B]`, without shared weights.

    The actor says an action in [-1, 1] by a tanh ('regression', [B, A]), or mean and log standard deviation of a
    Gaussian ('reparameterization', [B, 2 A]). Both have 1 + `..._head_layer_num` hidden layers of
    `..._head_hidden_size`; on images the first of these is a convolutional encoder of `encoder_hidden_size_list`
    (None: the network of Mnih et al. 2015), one for the actor and one for the critics.
    Raises ConfigError for sizes that do not fit.
    """

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int],
        action_space: ActionKind,
        twin_critic: bool = False,
        *,
        actor_head_hidden_size: int = 64,
        actor_head_layer_num: int = 1,
        critic_head_hidden_size: int = 64,
        critic_head_layer_num: int = 1,
        encoder_hidden_size_list: Sequence[int] | None = None,
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        actions = as_sizes("action_shape", action_shape)
        if len(actions) != 1:
            raise ConfigError(f"action_shape is {actions}, but the 'continuous_qac' model needs one length of a vector")
        if action_space not in ("regression", "reparameterization"):
            raise ConfigError(f"action_space is {action_space!r}; expected 'regression' or 'reparameterization'")
        shape = obs_shape if isinstance(obs_shape, Mapping) else as_sizes("obs_shape", obs_shape)
        is_image = has_images(obs_shape)
        if encoder_hidden_size_list is not None and not is_image:
            raise ConfigError(
                f"encoder_hidden_size_list is for images (C, H, W), but obs_shape is {shape}; "
                "set actor_head_hidden_size and critic_head_hidden_size"
            )
        encoder = build_encoder(
            shape, encoder_hidden_size_list if is_image else [actor_head_hidden_size], activation=activation
        )
        head = DiscreteHead(
            encoder.output_size,
            actions[0] if action_space == "regression" else 2 * actions[0],
            hidden_size=actor_head_hidden_size,
            layer_num=actor_head_layer_num,
            activation=activation,
        )
        self.actor = LinearStack(encoder, head, *([nn.Tanh()] if action_space == "regression" else []))
        self.critic = Critic(
            shape,
            actions[0],
            num=2 if twin_critic else 1,
            hidden_size=critic_head_hidden_size,
            layer_num=critic_head_layer_num,
            encoder_hidden_size_list=encoder_hidden_size_list,
            activation=activation,
        )

    def forward(self, obs: Any) -> Tensor:
        """Return what the actor says."""
        output: Tensor = self.actor(obs)
        return output
