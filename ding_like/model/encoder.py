"""Turn observations into feature vectors [B, output_size]."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor, nn

from ding_like.errors import ConfigError, SchemaError
from ding_like.model.mlp import Activation, NormType, as_sizes, build_activation, build_mlp

VECTOR_SIZES = (128, 128, 64)
# Mnih et al. 2015: channels of three convolutions, then the width of the dense layer.
NATURE_SIZES = (32, 64, 64, 512)
NATURE_KERNELS = (8, 4, 3)
NATURE_STRIDES = (4, 2, 1)


class FCEncoder(nn.Module):
    """Encode vectors (or anything, flattened) by linear layers; numbers of any dtype are cast, not scaled."""

    def __init__(
        self,
        obs_shape: int | Sequence[int],
        hidden_size_list: Sequence[int] = VECTOR_SIZES,
        *,
        activation: Activation = "relu",
        norm_type: NormType | None = None,
    ) -> None:
        super().__init__()
        self.obs_shape = as_sizes("obs_shape", obs_shape)
        if not self.obs_shape:
            raise ConfigError(
                "obs_shape is (), a single number; one-hot encode it in an env wrapper, or reshape it to [1]"
            )
        if not hidden_size_list:
            raise ConfigError("hidden_size_list of FCEncoder is empty; give at least one layer width, such as [64]")
        self.main = build_mlp(prod(self.obs_shape), hidden_size_list, activation=activation, norm_type=norm_type)
        self.output_size = int(hidden_size_list[-1])

    def forward(self, x: Tensor) -> Tensor:
        """Encode [B, *obs_shape]; SchemaError for another shape."""
        check_obs_shape(x.shape, self.obs_shape)
        first = self.main[0]
        assert isinstance(first, nn.Linear), "build_mlp begins with a linear layer"
        features: Tensor = self.main(x.flatten(1).to(first.weight.dtype))
        return features


class ConvEncoder(nn.Module):
    """Encode images [C, H, W] by convolutions and one dense layer; uint8 pixels are scaled to [0, 1].

    `hidden_size_list` holds the channels of the convolutions and, last, the width of the dense layer, so one entry more
    than `kernel_size` has; of a list as long as `kernel_size` the last entry is both. `norm_type` acts on the dense
    layer. `channels_last` keeps weights and activations in the memory order that convolutions are fastest in; results
    and checkpoints are the same. The defaults are the network of Mnih et al. 2015.
    """

    def __init__(
        self,
        obs_shape: Sequence[int],
        hidden_size_list: Sequence[int] = NATURE_SIZES,
        *,
        kernel_size: Sequence[int] = NATURE_KERNELS,
        stride: Sequence[int] = NATURE_STRIDES,
        activation: Activation = "relu",
        norm_type: NormType | None = None,
        channels_last: bool = True,
    ) -> None:
        super().__init__()
        self.obs_shape = as_sizes("obs_shape", obs_shape)
        kernels, strides = as_sizes("kernel_size", kernel_size), as_sizes("stride", stride)
        sizes = as_sizes("hidden_size_list", hidden_size_list)
        _check_conv(self.obs_shape, sizes, kernels, strides)
        self._memory_format = torch.channels_last if channels_last else torch.contiguous_format

        layers: list[nn.Module] = []
        channels, height, width = self.obs_shape
        for num_filters, kernel, step in zip(sizes, kernels, strides, strict=False):
            layers += [nn.Conv2d(channels, num_filters, kernel, step), build_activation(activation)]
            channels, height, width = num_filters, (height - kernel) // step + 1, (width - kernel) // step + 1
        # torch's own stubs lack this overload
        self.conv = nn.Sequential(*layers).to(memory_format=self._memory_format)  # type: ignore[call-overload]
        self.dense = build_mlp(channels * height * width, sizes[-1:], activation=activation, norm_type=norm_type)
        self.output_size = sizes[-1]

    def forward(self, x: Tensor) -> Tensor:
        """Encode [B, C, H, W]; SchemaError for another shape."""
        check_obs_shape(x.shape, self.obs_shape)
        first = self.conv[0]
        assert isinstance(first, nn.Conv2d), "the stack begins with a convolution"
        pixels = x.to(dtype=first.weight.dtype, memory_format=self._memory_format)
        if x.dtype == torch.uint8:
            pixels.mul_(1 / 255)
        features: Tensor = self.dense(self.conv(pixels).flatten(1))
        return features


def build_encoder(
    obs_shape: int | Sequence[int],
    hidden_size_list: Sequence[int] | None = None,
    *,
    kernel_size: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
    activation: Activation = "relu",
    norm_type: NormType | None = None,
) -> FCEncoder | ConvEncoder:
    """Return a ConvEncoder for a shape of three axes, an FCEncoder for any other; None takes the encoder's own default.

    Raises ConfigError if `kernel_size` or `stride` is given for anything but images.
    """
    shape = as_sizes("obs_shape", obs_shape)
    if len(shape) == 3:
        return ConvEncoder(
            shape,
            NATURE_SIZES if hidden_size_list is None else hidden_size_list,
            kernel_size=NATURE_KERNELS if kernel_size is None else kernel_size,
            stride=NATURE_STRIDES if stride is None else stride,
            activation=activation,
            norm_type=norm_type,
        )
    if kernel_size is not None or stride is not None:
        raise ConfigError(f"kernel_size and stride are for images (C, H, W), but obs_shape is {shape}; leave them out")
    sizes = VECTOR_SIZES if hidden_size_list is None else hidden_size_list
    return FCEncoder(shape, sizes, activation=activation, norm_type=norm_type)


def check_obs_shape(batch_shape: Sequence[int], obs_shape: tuple[int, ...]) -> None:
    """Raise SchemaError unless `batch_shape` is one batch axis and then `obs_shape`."""
    if batch_shape[1:] != obs_shape:
        raise SchemaError(
            f"the network was built for observations [B, {', '.join(map(str, obs_shape))}], got {list(batch_shape)}; "
            "set policy.model.obs_shape to the env's, and give a batch, not one observation"
        )


def _check_conv(
    obs_shape: tuple[int, ...], sizes: tuple[int, ...], kernels: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    """Refuse lists of lengths that do not fit, and a kernel larger than what is left of the image."""
    if len(obs_shape) != 3:
        raise ConfigError(f"ConvEncoder needs obs_shape (C, H, W), got {obs_shape}; use FCEncoder for vectors")
    if len(strides) != len(kernels) or len(sizes) not in (len(kernels), len(kernels) + 1):
        raise ConfigError(
            f"ConvEncoder: {len(kernels)} kernel sizes {kernels} need as many strides, got {strides}, and one hidden "
            f"size more (the dense layer), got {sizes}"
        )
    height, width = obs_shape[1:]
    for index, (kernel, step) in enumerate(zip(kernels, strides, strict=True)):
        if kernel > min(height, width):
            hint = "give smaller entries in kernel_size"
            if obs_shape[2] < obs_shape[0]:
                hint = f"it looks like (H, W, C), but (C, H, W) is expected: move the channels first, or {hint}"
            raise ConfigError(
                f"obs_shape {obs_shape}: a kernel of {kernel} does not fit into the {height} x {width} image that "
                f"convolution {index} gets; {hint}"
            )
        height, width = (height - kernel) // step + 1, (width - kernel) // step + 1
