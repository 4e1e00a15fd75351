"""Define the networks of PDQN and MP-DQN: the parameters of every choice, and what each choice is worth with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, cast

import torch
from torch import Tensor, nn

from ding_like.data.hybrid_space import hybrid_mask, hybrid_sizes
from ding_like.errors import ConfigError
from ding_like.model.encoder import ObsFeatures, ObsShape, build_encoder, check_obs_shape, has_images
from ding_like.model.head import DiscreteHead, DuelingHead
from ding_like.model.mlp import Activation, LinearStack, NormType, as_sizes, build_mlp
from ding_like.utils.registries import MODEL_REGISTRY


class HybridCritic(nn.Module):
    """Estimate the value of each of K choices, given P parameters in [-1, 1].

    A vector and the parameters enter `q` together; images are encoded first. By default one pass gives the values of
    all choices, and so each depends on all parameters. With `multi_pass` there is one pass for each choice, which sees
    its own parameters (`mask` [K, P]) and zeros for the others; its output for that choice is taken (Bester et al.
    2019, section 3).
    """

    mask: Tensor

    def __init__(
        self,
        obs_shape: tuple[int, ...] | Mapping[str, Any],
        mask: Any,
        *,
        multi_pass: bool,
        hidden_size_list: Sequence[int],
        dueling: bool,
        head_hidden_size: int | None,
        head_layer_num: int,
        activation: Activation,
        norm_type: NormType | None,
    ) -> None:
        super().__init__()
        self.obs_shape = obs_shape
        self.multi_pass = multi_pass
        self.register_buffer("mask", torch.as_tensor(mask, dtype=torch.float32), persistent=False)
        num_choices, num_parameters = self.mask.shape
        self.encoder: Any = None  # a module with `output_size`
        if isinstance(obs_shape, Mapping):
            self.encoder = ObsFeatures(obs_shape, activation=activation)
        elif len(obs_shape) == 3:
            self.encoder = build_encoder(obs_shape, activation=activation)
        features = prod(cast("tuple[int, ...]", obs_shape)) if self.encoder is None else self.encoder.output_size
        head = DuelingHead if dueling else DiscreteHead
        width = (features + num_parameters, *hidden_size_list)[-1]
        self.q = nn.Sequential(
            build_mlp(features + num_parameters, hidden_size_list, activation=activation, norm_type=norm_type),
            head(
                width,
                num_choices,
                hidden_size=head_hidden_size,
                layer_num=head_layer_num,
                activation=activation,
                norm_type=norm_type,
            ),
        )

    def forward(self, obs: Any, parameters: Tensor) -> Tensor:
        """Return values [B, K] of observations [B, O...], or a dict of them, and parameters [B, P].

        Raises SchemaError for observations of another shape.
        """
        if self.encoder is None:
            assert isinstance(self.obs_shape, tuple), "a dict has an encoder"
            check_obs_shape(obs.shape, self.obs_shape)
            features = obs.flatten(1).to(parameters.dtype)
        else:
            features = self.encoder(obs)
        if not self.multi_pass:
            values: Tensor = self.q(torch.cat([features, parameters], dim=1))
            return values
        num_choices = len(self.mask)
        own = parameters.unsqueeze(1) * self.mask.to(parameters.dtype)  # [B, K, P]
        seen = torch.cat([features.unsqueeze(1).expand(-1, num_choices, -1), own], dim=2)
        every: Tensor = self.q(seen.flatten(0, 1)).view(-1, num_choices, num_choices)
        return every.diagonal(dim1=1, dim2=2)


@MODEL_REGISTRY.register("pdqn")
class PDQN(nn.Module):
    """Hold an actor, `actor(obs) -> [B, P]`, the parameters of all choices, and a critic, `critic(obs, parameters)`.

    Parameters lie in [-1, 1] by a tanh; the critic gives the values of the choices [B, K]. The two share no weights.
    Both have the hidden layers `encoder_hidden_size_list`, on images behind a convolutional encoder, and a head of
    `head_layer_num` hidden layers; the critic's has two streams with `dueling`. `action_shape` is
    dict(action_type_shape=K, action_args_shape=P), `action_mask` [K, P] says which parameters belong to which choice
    (None: all to all), which `multi_pass` needs. Raises ConfigError for sizes that do not fit.
    """

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: Mapping[str, int],
        *,
        encoder_hidden_size_list: Sequence[int] = (128, 128, 64),
        dueling: bool = True,
        head_hidden_size: int | None = None,
        head_layer_num: int = 1,
        activation: Activation = "relu",
        norm_type: NormType | None = None,
        multi_pass: bool = False,
        action_mask: Sequence[Sequence[int]] | None = None,
    ) -> None:
        super().__init__()
        _, num_parameters = hybrid_sizes(action_shape)
        mask = hybrid_mask(action_shape, action_mask)
        sizes = as_sizes("encoder_hidden_size_list", encoder_hidden_size_list)
        if not sizes:
            raise ConfigError("encoder_hidden_size_list is empty; expected the widths of one hidden layer or more")
        shape = obs_shape if isinstance(obs_shape, Mapping) else as_sizes("obs_shape", obs_shape)
        layers: dict[str, Any] = dict(activation=activation, norm_type=norm_type)  # Any: of each keyword its own
        encoder: Any = build_encoder(shape, None if has_images(shape) else sizes, **layers)
        behind = build_mlp(encoder.output_size, sizes, **layers) if has_images(shape) else LinearStack()
        width = sizes[-1]
        self.actor = LinearStack(
            encoder,
            behind,
            DiscreteHead(width, num_parameters, hidden_size=head_hidden_size, layer_num=head_layer_num, **layers),
            nn.Tanh(),
        )
        self.critic = HybridCritic(
            shape,
            mask,
            multi_pass=multi_pass,
            hidden_size_list=sizes,
            dueling=dueling,
            head_hidden_size=head_hidden_size,
            head_layer_num=head_layer_num,
            **layers,
        )

    def choose(self, obs: Any) -> Tensor:
        """Return the values of all choices and their parameters side by side, [B, K + P]."""
        parameters = self.actor(obs)
        return torch.cat([self.critic(obs, parameters), parameters], dim=1)

    def forward(self, obs: Any) -> Tensor:
        """Return what `choose` does."""
        return self.choose(obs)
