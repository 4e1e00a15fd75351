"""Encoders: observations become feature vectors [B, output_size]."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor, nn

from ding_like.data.team import AGENTS, OUTCOMES
from ding_like.errors import ConfigError, SchemaError
from ding_like.model.layers import Activation, Block, NormType, as_sizes, build_activation, build_mlp
from ding_like.utils.log import one_time_info

VECTOR_SIZES = (128, 128, 64)
# Mnih et al. 2015: channels of three convolutions, then the width of the dense layer.
NATURE_SIZES = (32, 64, 64, 512)
NATURE_KERNELS = (8, 4, 3)
NATURE_STRIDES = (4, 2, 1)
# Kernels and strides of three convolutions, by the shortest side that they fit: those of Mnih et al. first.
_FITTING = (
    (36, NATURE_KERNELS, NATURE_STRIDES),
    (15, (3, 3, 3), (2, 2, 1)),
    (4, (2, 2, 2), (1, 1, 1)),
    (1, (1, 1, 1), (1, 1, 1)),
)

# The length of a vector, the shape of an array, {"one_hot": [n, m]} for whole numbers below n and m, or a dict of these
# by key. Any: what a config may hold.
ObsShape: TypeAlias = "int | Sequence[int] | Mapping[str, Any]"
ONE_HOT = "one_hot"


class FCEncoder(nn.Module):
    """Linear layers over vectors (or anything, flattened); numbers of any dtype are cast, not scaled."""

    def __init__(
        self,
        obs_shape: int | Sequence[int],
        hidden_size_list: Sequence[int] = VECTOR_SIZES,
        *,
        activation: Activation = "relu",
        norm_type: NormType | None = None,
        block: Block | None = None,
    ) -> None:
        super().__init__()
        self.obs_shape = as_sizes("obs_shape", obs_shape)
        if not self.obs_shape:
            raise ConfigError(
                "obs_shape is (), a single number; one-hot encode it in an env wrapper, or reshape it to [1]"
            )
        if not hidden_size_list:
            raise ConfigError("hidden_size_list of FCEncoder is empty; give at least one layer width, such as [64]")
        layers: dict[str, Any] = dict(activation=activation, norm_type=norm_type, block=block)  # Any: of each its own
        self.main = build_mlp(prod(self.obs_shape), hidden_size_list, **layers)
        self.output_size = int(hidden_size_list[-1])

    def forward(self, x: Tensor) -> Tensor:
        """Encode [B, *obs_shape]; SchemaError for another shape."""
        check_obs_shape(x.shape, self.obs_shape)
        first = self.main[0]
        assert isinstance(first, nn.Linear), "build_mlp begins with a linear layer"
        return cast(Tensor, self.main(x.flatten(1).to(first.weight.dtype)))


class ConvEncoder(nn.Module):
    """Convolutions and one dense layer over images [C, H, W]; uint8 pixels are scaled to [0, 1].

    Images whose last axis is the shortest are [H, W, C]. `hidden_size_list` holds the channels of the convolutions and,
    last, the width of the dense layer, so one entry more than `kernel_size` has; of a list as long as `kernel_size` the
    last entry is both. `norm_type` acts on the dense layer. `channels_last` keeps weights and activations in the memory
    order that convolutions are fastest in; results and checkpoints are the same. The defaults are the network of Mnih
    et al. 2015; images smaller than 36 x 36 get smaller kernels and strides if neither is given.
    """

    def __init__(
        self,
        obs_shape: Sequence[int],
        hidden_size_list: Sequence[int] = NATURE_SIZES,
        *,
        kernel_size: Sequence[int] | None = None,
        stride: Sequence[int] | None = None,
        activation: Activation = "relu",
        norm_type: NormType | None = None,
        channels_last: bool = True,
    ) -> None:
        super().__init__()
        self.obs_shape = as_sizes("obs_shape", obs_shape)
        if len(self.obs_shape) != 3:
            raise ConfigError(f"ConvEncoder needs obs_shape (C, H, W), got {self.obs_shape}; use FCEncoder for vectors")
        self._is_hwc = self.obs_shape[2] < min(self.obs_shape[:2])
        image = (self.obs_shape[2], *self.obs_shape[:2]) if self._is_hwc else self.obs_shape
        if kernel_size is None and stride is None:
            kernel_size, stride = _fitting(image)
            if kernel_size is not NATURE_KERNELS or self._is_hwc:
                order = "(H, W, C)" if self._is_hwc else "(C, H, W)"
                one_time_info(
                    f"encoder     images {order} = {self.obs_shape}: convolutions with kernel_size {list(kernel_size)} "
                    f"and stride {list(stride)}"
                )
        kernels = as_sizes("kernel_size", NATURE_KERNELS if kernel_size is None else kernel_size)
        strides = as_sizes("stride", NATURE_STRIDES if stride is None else stride)
        sizes = as_sizes("hidden_size_list", hidden_size_list)
        _check_conv(image, sizes, kernels, strides)
        self._memory_format = torch.channels_last if channels_last else torch.contiguous_format

        layers: list[nn.Module] = []
        channels, height, width = image
        for num_filters, kernel, step in zip(sizes, kernels, strides, strict=False):
            layers += [nn.Conv2d(channels, num_filters, kernel, step), build_activation(activation)]
            channels, height, width = num_filters, (height - kernel) // step + 1, (width - kernel) // step + 1
        # torch's own stubs lack this overload
        self.conv = nn.Sequential(*layers).to(memory_format=self._memory_format)  # type: ignore[call-overload]
        self.dense = build_mlp(channels * height * width, sizes[-1:], activation=activation, norm_type=norm_type)
        self.output_size = sizes[-1]

    def forward(self, x: Tensor) -> Tensor:
        """Encode [B, *obs_shape]; SchemaError for another shape."""
        check_obs_shape(x.shape, self.obs_shape)
        if self._is_hwc:
            x = x.permute(0, 3, 1, 2)
        first = self.conv[0]
        assert isinstance(first, nn.Conv2d), "the stack begins with a convolution"
        # Bytes are moved into the memory order before they become floats, of which there would be four times as many.
        pixels = x.to(memory_format=self._memory_format).to(first.weight.dtype, memory_format=self._memory_format)
        if x.dtype == torch.uint8:
            pixels.mul_(1 / 255)
        return cast(Tensor, self.dense(self.conv(pixels).flatten(1)))


class FlatPart(nn.Module):
    """Arrays of one shape laid out as vectors of floats; numbers are cast, not scaled."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.obs_shape = shape
        self.output_size = prod(shape)

    def forward(self, x: Tensor) -> Tensor:
        check_obs_shape(x.shape, self.obs_shape)
        return x.reshape(x.shape[0], -1).to(torch.get_default_dtype())


class OneHotPart(nn.Module):
    """Whole numbers laid out as one-hot vectors side by side: of `sizes` [n, m], a pair (i, j) becomes [n + m] floats.

    The numbers are [B, 2], or [B] where there is only one size. One outside of its range is all zeros.
    """

    position: Tensor  # [F], every place's number within its own vector
    owner: Tensor  # [F], which number each place belongs to

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.sizes = sizes
        self.output_size = sum(sizes)
        counts = torch.tensor(sizes)
        self.register_buffer("owner", torch.arange(len(sizes)).repeat_interleave(counts), persistent=False)
        self.register_buffer("position", torch.cat([torch.arange(size) for size in sizes]), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x.unsqueeze(1) if x.dim() == 1 else x
        check_obs_shape(x.shape, (len(self.sizes),))
        return (x[:, self.owner] == self.position).to(torch.get_default_dtype())


class ObsFeatures(nn.Module):
    """Observation of several parts laid out as one vector [B, F], in the order of the shape's keys.

    Numbers stay as they are, whole numbers that `obs_shape` marks become one-hot, images go through a ConvEncoder
    each. `images` are the ConvEncoder's arguments. Of a team's observation the outcomes are left out: they say what
    happened, not what is seen.
    """

    def __init__(self, obs_shape: Mapping[str, Any], **images: Any) -> None:
        super().__init__()
        self.is_dict = not is_one_hot(obs_shape)
        shapes = dict(obs_shape) if self.is_dict else {"": obs_shape}
        if AGENTS in shapes:
            shapes = {key: shape for key, shape in shapes.items() if key not in OUTCOMES}
        if not shapes:
            raise ConfigError("obs_shape is an empty dict; give the shape of at least one part")
        self.keys = list(shapes)
        # A list and not a ModuleDict, which refuses keys with a dot in them.
        self.parts = nn.ModuleList(_part(key, shape, images) for key, shape in shapes.items())
        self.output_size = sum(part.output_size for part in self.parts)  # type: ignore[misc]

    def forward(self, x: Tensor | Mapping[str, Tensor]) -> Tensor:
        """Return [B, F] of a dict of tensors [B, ...], or of one tensor of whole numbers; SchemaError for others."""
        return torch.cat([part(value) for part, value in zip(self.parts, self._values(x), strict=True)], dim=1)

    def _values(self, x: Tensor | Mapping[str, Tensor]) -> Iterator[Tensor]:
        if isinstance(x, Tensor) == self.is_dict or (self.is_dict and not set(self.keys) <= set(x)):
            got = "one tensor" if isinstance(x, Tensor) else f"a dict with {sorted(x)}"
            wanted = f"a dict with {sorted(self.keys)}" if self.is_dict else "one tensor"
            raise SchemaError(
                f"the network was built for {wanted} as observation, got {got}; set policy.model.obs_shape to the env's"
            )
        return iter((x,)) if isinstance(x, Tensor) else (x[key] for key in self.keys)


class MixedEncoder(nn.Module):
    """Encoder of a dict of observations, or of whole numbers that stand for categories.

    `ObsFeatures` lays them out as one vector. Linear layers of `hidden_size_list` follow where there are no images;
    with images that list is the ConvEncoders', and numbers stand beside the images' features as they are.
    """

    def __init__(
        self,
        obs_shape: Mapping[str, Any],
        hidden_size_list: Sequence[int] | None = None,
        *,
        activation: Activation = "relu",
        norm_type: NormType | None = None,
        **convolutions: Any,
    ) -> None:
        super().__init__()
        if hidden_size_list is not None:
            convolutions["hidden_size_list"] = hidden_size_list
        self.features = ObsFeatures(obs_shape, activation=activation, norm_type=norm_type, **convolutions)
        self.main: nn.Module = nn.Identity()
        self.output_size = self.features.output_size
        if not has_images(obs_shape):
            sizes = VECTOR_SIZES if hidden_size_list is None else hidden_size_list
            self.main = build_mlp(self.output_size, sizes, activation=activation, norm_type=norm_type)
            self.output_size = int(tuple(sizes)[-1])

    def forward(self, x: Tensor | Mapping[str, Tensor]) -> Tensor:
        """Encode {key: [B, ...]}, or [B, K] whole numbers; SchemaError for other keys or shapes."""
        return cast(Tensor, self.main(self.features(x)))


Encoder: TypeAlias = FCEncoder | ConvEncoder | MixedEncoder


def is_one_hot(obs_shape: ObsShape) -> bool:
    """Tell whether a shape says `{"one_hot": [n, m]}`: categories, and not a dict of observations."""
    return isinstance(obs_shape, Mapping) and set(obs_shape) == {ONE_HOT}


def has_images(obs_shape: ObsShape) -> bool:
    """Tell whether an observation is an image, three axes, or has one among its parts."""
    if isinstance(obs_shape, Mapping):
        return not is_one_hot(obs_shape) and any(has_images(shape) for shape in obs_shape.values())
    return len(as_sizes("obs_shape", obs_shape)) == 3


def lay_out(
    obs_shape: ObsShape, image_sizes: Sequence[int] | None = None, *, activation: Activation
) -> ObsFeatures | ConvEncoder | FlatPart:
    """Return what lays an observation out as one vector: numbers as they are, images through a ConvEncoder each.

    `image_sizes` is the ConvEncoder's hidden_size_list; None: its own default.
    """
    images: dict[str, Any] = {} if image_sizes is None else {"hidden_size_list": image_sizes}
    if isinstance(obs_shape, Mapping):
        return ObsFeatures(obs_shape, activation=activation, **images)
    return cast("ConvEncoder | FlatPart", _part("", obs_shape, dict(images, activation=activation)))


def _part(key: str, shape: ObsShape, images: Mapping[str, Any]) -> nn.Module:
    """Return the module that lays one part of an observation out as [B, F]."""
    name = f"obs_shape['{key}']" if key else "obs_shape"
    if is_one_hot(shape):
        assert isinstance(shape, Mapping)
        return OneHotPart(as_sizes(f"{name}.{ONE_HOT}", shape[ONE_HOT]))
    sizes = as_sizes(name, shape)
    return ConvEncoder(sizes, **images) if len(sizes) == 3 else FlatPart(sizes)


def build_encoder(
    obs_shape: ObsShape,
    hidden_size_list: Sequence[int] | None = None,
    *,
    kernel_size: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
    activation: Activation = "relu",
    norm_type: NormType | None = None,
    block: Block | None = None,
) -> Encoder:
    """Return a ConvEncoder for three axes, a MixedEncoder for a dict or categories, an FCEncoder for anything else.

    None takes the encoder's own default. Raises ConfigError if `kernel_size` or `stride` is given without images, or a
    `block` for anything but arrays of one or two axes.
    """
    if not (kernel_size is None and stride is None) and not has_images(obs_shape):
        raise ConfigError(
            f"kernel_size and stride are for images (C, H, W), but obs_shape is {obs_shape}; leave them out"
        )
    given = {"hidden_size_list": hidden_size_list, "kernel_size": kernel_size, "stride": stride}
    settings: dict[str, Any] = {name: value for name, value in given.items() if value is not None}  # of each its own
    settings.update(activation=activation, norm_type=norm_type)
    if block is not None and (isinstance(obs_shape, Mapping) or has_images(obs_shape)):
        raise ConfigError(f"block '{block}' is for vectors, but obs_shape is {obs_shape}; leave it out")
    if isinstance(obs_shape, Mapping):
        return MixedEncoder(obs_shape, **settings)
    shape = as_sizes("obs_shape", obs_shape)
    return ConvEncoder(shape, **settings) if len(shape) == 3 else FCEncoder(shape, block=block, **settings)


def check_obs_shape(batch_shape: Sequence[int], obs_shape: tuple[int, ...]) -> None:
    """Raise SchemaError unless `batch_shape` is one batch axis and then `obs_shape`."""
    if batch_shape[1:] != obs_shape:
        raise SchemaError(
            f"the network was built for observations [B, {', '.join(map(str, obs_shape))}], got {list(batch_shape)}; "
            "set policy.model.obs_shape to the env's, and give a batch, not one observation"
        )


def _fitting(image: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return kernels and strides of three convolutions that fit an image (C, H, W)."""
    return next((kernels, strides) for side, kernels, strides in _FITTING if min(image[1:]) >= side)


def _check_conv(
    image: tuple[int, ...], sizes: tuple[int, ...], kernels: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    """Refuse lists of lengths that do not fit, and a kernel larger than what is left of the image (C, H, W)."""
    if len(strides) != len(kernels) or len(sizes) not in (len(kernels), len(kernels) + 1):
        raise ConfigError(
            f"ConvEncoder: {len(kernels)} kernel sizes {kernels} need as many strides, got {strides}, and one hidden "
            f"size more (the dense layer), got {sizes}"
        )
    height, width = image[1:]
    for index, (kernel, step) in enumerate(zip(kernels, strides, strict=True)):
        if kernel > min(height, width):
            fits = [([*sizes] + [1] * len(kernels))[: len(kernels)] for sizes in _fitting(image)]
            raise ConfigError(
                f"kernel_size {list(kernels)} with stride {list(strides)} is too large for images of {image[1]} x "
                f"{image[2]}: a kernel of {kernel} does not fit into the {height} x {width} image that convolution "
                f"{index} gets. These fit: kernel_size={fits[0]}, stride={fits[1]}; or leave both out "
                "(policy.model.encoder_kernel_size, policy.model.encoder_stride)"
            )
        height, width = (height - kernel) // step + 1, (width - kernel) // step + 1
