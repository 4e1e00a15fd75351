"""Define the network of Rainbow (Hessel et al. 2018): a dueling, distributional head of noisy layers on an encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ding_like.errors import SchemaError
from ding_like.model.dqn import one_action
from ding_like.model.encoder import ObsShape, build_encoder
from ding_like.model.head import DiscreteHead
from ding_like.model.mlp import Activation, NormType
from ding_like.model.noisy import NoisyHead
from ding_like.utils.registries import MODEL_REGISTRY


class RainbowHead(nn.Module):
    """Turn features [B, F] into N numbers for each action [B, A, N], of two streams if `dueling`.

    `value + advantage - mean over actions of advantage`, for each of the N (Wang et al. 2016, eq. 9; Hessel et al.
    2018, "the integrated agent"). Every layer is noisy if `noise`.
    """

    def __init__(
        self,
        input_size: int,
        num_actions: int,
        num_points: int,
        *,
        dueling: bool = True,
        noise: bool = True,
        hidden_size: int | None = None,
        layer_num: int = 1,
        activation: Activation = "relu",
        norm_type: NormType | None = None,
    ) -> None:
        super().__init__()
        self.num_actions, self.num_points = num_actions, num_points
        sizes = ([num_points] if dueling else []) + [num_actions * num_points]
        stream = NoisyHead if noise else DiscreteHead
        # The value's stream, if there is one, then the advantages'.
        self.streams = nn.ModuleList(
            stream(
                input_size,
                size,
                hidden_size=hidden_size,
                layer_num=layer_num,
                activation=activation,
                norm_type=norm_type,
            )
            for size in sizes
        )
        self.noise_size = sum(stream.noise_size for stream in self.streams if isinstance(stream, NoisyHead))

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        """Return [B, A, N] under one noise [P] for all rows, or one for each [B, P]; None: of the means."""
        outputs, start = [], 0
        for stream in self.streams:
            if noise is None or not isinstance(stream, NoisyHead):
                outputs.append(stream(x))
                continue
            outputs.append(stream(x, noise[..., start : start + stream.noise_size]))
            start += stream.noise_size
        advantage: Tensor = outputs[-1].view(x.shape[0], self.num_actions, self.num_points)
        if len(outputs) == 1:
            return advantage
        value: Tensor = outputs[0].unsqueeze(1)
        return value + (advantage - advantage.mean(dim=1, keepdim=True))


@dataclass(frozen=True)
class UnderNoise:
    """Be a network with its noise: what takes observations alone can run it."""

    model: RainbowDQN
    noise: Tensor | None

    # Any: observations as the model takes them.
    def q(self, x: Any) -> Tensor:
        return self.model.q(x, self.noise)

    def logits(self, x: Any) -> Tensor:
        return self.model.logits(x, self.noise)


@MODEL_REGISTRY.register("rainbowdqn")
class RainbowDQN(nn.Module):
    """Estimate every action's distribution of returns: an encoder chosen by the observation's shape, and a head.

    `encoder_hidden_size_list` is the encoder's (None: 128-128-64 for vectors, the network of Mnih et al. 2015 for
    images). Each stream of the head has `head_layer_num` hidden layers of `head_hidden_size` (None: as wide as the
    encoder's output). There are `n_atom` possible returns from `v_min` to `v_max`. `dueling`, `noise` (in the head's
    layers) and `distributional` (False: expected returns alone) can each be switched off. Raises ConfigError for sizes
    that do not fit.
    """

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int],
        encoder_hidden_size_list: Sequence[int] | None = None,
        *,
        dueling: bool = True,
        distributional: bool = True,
        noise: bool = True,
        v_min: float = -10.0,
        v_max: float = 10.0,
        n_atom: int = 51,
        head_hidden_size: int | None = None,
        head_layer_num: int = 1,
        activation: Activation = "relu",
        norm_type: NormType | None = None,
        encoder_kernel_size: Sequence[int] | None = None,
        encoder_stride: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.distributional = distributional
        self.v_min, self.v_max, self.n_atom = float(v_min), float(v_max), n_atom
        self.encoder = build_encoder(
            obs_shape,
            encoder_hidden_size_list,
            kernel_size=encoder_kernel_size,
            stride=encoder_stride,
            activation=activation,
            norm_type=norm_type,
        )
        self.head = RainbowHead(
            self.encoder.output_size,
            one_action(action_shape, model="rainbowdqn"),
            n_atom if distributional else 1,
            dueling=dueling,
            noise=noise,
            hidden_size=head_hidden_size,
            layer_num=head_layer_num,
            activation=activation,
            norm_type=norm_type,
        )
        self.noise_size = self.head.noise_size
        if distributional:
            self.register_buffer("support", torch.linspace(self.v_min, self.v_max, n_atom), persistent=False)

    support: Tensor

    # Any: observations, a tensor or a dict of them.
    def under(self, noise: Tensor | None) -> UnderNoise:
        """Return this network with its noise, one for all rows [P] or one for each [B, P]; None: its means."""
        return UnderNoise(self, noise)

    def logits(self, x: Any, noise: Tensor | None = None) -> Tensor:
        """Return the logits [B, A, N] of the returns of observations [B, O...], a tensor or a dict of them.

        Raises SchemaError for noise of another size than `noise_size`.
        """
        features = self.encoder(x)
        check_noise(noise, features.shape[0], self.noise_size)
        output: Tensor = self.head(features, noise)
        return output

    def q(self, x: Any, noise: Tensor | None = None) -> Tensor:
        """Return the action values [B, A] of observations [B, O...], a tensor or a dict of them."""
        output = self.logits(x, noise)
        if not self.distributional:
            return output.squeeze(2)
        return output.softmax(dim=2) @ self.support

    def forward(self, x: Any) -> dict[str, Tensor]:
        """Return {'logit': action values [B, A]} without noise."""
        return {"logit": self.q(x)}


# Any: an array or a tensor.
def check_noise(noise: Any, rows: int | None, size: int) -> None:
    """Raise SchemaError for noise that is neither [P] nor, where there may be one for each row, [B, P]."""
    if noise is not None and noise.shape != (size,) and (rows is None or noise.shape != (rows, size)):
        raise SchemaError(
            f"the noise has shape {tuple(noise.shape)}, but the network takes {(size,)} for all rows"
            + ("" if rows is None else f", or {(rows, size)} for each")
            + ": draw `noise_size` numbers"
        )
