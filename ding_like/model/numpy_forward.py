"""Run small networks in numpy, on live views of their torch parameters.

At a batch of 8 rows most of a small network's time in torch is overhead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from ding_like.errors import SchemaError
from ding_like.model.c51 import C51DQN
from ding_like.model.dqn import DQN
from ding_like.model.encoder import FCEncoder, check_obs_shape
from ding_like.model.fqf import FQF
from ding_like.model.head import DiscreteHead, DistributionHead, DuelingHead
from ding_like.model.iqn import IQN, CosineEmbedding
from ding_like.model.mlp import LinearStack
from ding_like.model.numpy_noisy import HeadForward, head_forward
from ding_like.model.qrdqn import QRDQN
from ding_like.model.rainbow import RainbowDQN
from ding_like.model.vac import LOG_SIGMA_RANGE, GaussianHead, HybridHead
from ding_like.types import Array

ArrayFn: TypeAlias = Callable[[Array], Array]


def numpy_forward(module: nn.Module, *, then: ArrayFn | None = None) -> NumpyForward | None:
    """Return a function from observations [R, O...] to the module's output [R, A], or None if torch is needed.

    Understood are Linear, ReLU, Tanh, Identity, Flatten, Sequential and our encoders, heads and Q networks made of
    them (of DQN, IQN and FQF: what `q` returns; of C51DQN and QRDQN: their `points`, [R, A, N]; of RainbowDQN: its
    `logits`, without distributions its `q`; of VAC: its `towers`), on the CPU in float32 or float64 and without hooks.
    `then` is applied to the output. In-place changes of the parameters show at once, and parameters that were pointed
    elsewhere are noticed at the next call, which raises SchemaError if they have left the CPU. The layers themselves
    must stay the same.
    """
    if not _is_plain(module) or _steps(module) is None:
        return None
    return NumpyForward(module, then)


class NumpyForward:
    """Run a module on numpy views of its parameters; `noise`, of a module that takes noise, is [P] or [R, P]."""

    def __init__(self, module: nn.Module, then: ArrayFn | None) -> None:
        self._module = module
        self._then = then
        # The dicts that hold the parameters, not the parameters: these may be replaced. Looked up at each call, so the
        # private attribute: `layer.weight` goes through nn.Module.__getattr__, which is slow.
        self._slots = [
            (layer._parameters, name)
            for layer in module.modules()
            for name, param in layer._parameters.items()
            if param is not None
        ]
        self._bind()

    def __call__(self, x: Array, noise: Array | None = None) -> Array:
        if self._addresses() != self._bound_addresses:
            self._bind()
        x = np.asarray(x, dtype=self._dtype)
        if noise is None:
            return _run(self._bound_steps, x)
        for step in self._bound_steps:
            x = step(x, noise) if isinstance(step, HeadForward) else step(x)
        return x

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy, deep or in another process, makes its own views.
        return type(self), (self._module, self._then)

    def _addresses(self) -> list[int]:
        return [owner[name].data_ptr() for owner, name in self._slots]  # type: ignore[union-attr]

    def _bind(self) -> None:
        steps = _steps(self._module) if _is_plain(self._module) else None
        if steps is None:
            raise SchemaError(
                "numpy_forward cannot follow its module any longer: parameters left the CPU, changed to a dtype other "
                "than float32 and float64, or got a hook; call numpy_forward(module) again and use torch if it is None"
            )
        self._bound_steps = steps if self._then is None else [*steps, self._then]
        self._bound_addresses = self._addresses()
        self._dtype = next(self._module.parameters()).detach().numpy().dtype


def _is_plain(module: nn.Module) -> bool:
    """Tell whether numpy can see the parameters, all of one dtype, and no hook wants to see the forward pass."""
    kinds = {(param.device.type, param.dtype) for param in module.parameters()}
    is_readable = kinds in ({("cpu", torch.float32)}, {("cpu", torch.float64)})
    return is_readable and not any(layer._forward_hooks or layer._forward_pre_hooks for layer in module.modules())


def _steps(module: nn.Module) -> list[ArrayFn] | None:
    """Return the functions that make up `module`, on views of its parameters as they lie now; None if one is unknown.

    Types are compared exactly: a subclass may have another forward.
    """
    if type(module) in _STATELESS:
        return _STATELESS[type(module)]
    if type(module) is nn.Linear:
        return [_linear(module)]
    if type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1):
        return [_flatten]
    if type(module) in (nn.Sequential, LinearStack):
        return _chain(module.children())
    if type(module) is FCEncoder:
        body = _steps(module.main)
        return None if body is None else [_checked_flatten(module.obs_shape), *body]
    if type(module) is DiscreteHead:
        return _steps(module.main)
    if type(module) is DistributionHead:
        body = _steps(module.main)
        return None if body is None else [*body, _points(module.num_points)]
    if type(module) is DuelingHead:
        value, advantage = _steps(module.value), _steps(module.advantage)
        return None if value is None or advantage is None else [_dueling(value, advantage)]
    if isinstance(module, (DQN, C51DQN, QRDQN)) and type(module) in (DQN, C51DQN, QRDQN):
        return _chain((module.encoder, module.head))
    if type(module) is RainbowDQN:
        encoder, head = _steps(module.encoder), head_forward(module.head, _steps)
        return None if encoder is None or head is None else [*encoder, head]
    if type(module) is GaussianHead:
        return _gaussian(module)
    if type(module) is HybridHead:
        body, parameters = _steps(module.main), _steps(module.parameters_head)
        if body is None or parameters is None:
            return None
        return [*body, _side_by_side(_linear(module.choice), parameters)]
    if type(module) is IQN:
        midpoints = module.midpoints().numpy()
        equal = np.full(midpoints.shape, 1.0 / midpoints.shape[1], midpoints.dtype)
        cosines = _cosines(midpoints, module.embedding)  # here, as they are the same in every call
        return _implicit(module, lambda _features: (cosines, equal))
    if type(module) is FQF:
        return _implicit(module.values, _proposal(module.proposal.linear, module.values.embedding))
    return None


def _chain(modules: Iterable[nn.Module]) -> list[ArrayFn] | None:
    steps: list[ArrayFn] = []
    for module in modules:
        part = _steps(module)
        if part is None:
            return None
        steps += part
    return steps


def _run(steps: list[ArrayFn], x: Array) -> Array:
    for step in steps:
        x = step(x)
    return x


def _linear(layer: nn.Linear) -> ArrayFn:
    views = {name: param.detach().numpy() for name, param in layer.named_parameters()}
    weight = views["weight"].T
    bias = views.get("bias", np.zeros(1, dtype=weight.dtype))

    def apply(x: Array) -> Array:
        y: Array = x.dot(weight)
        y += bias
        return y

    return apply


def _dueling(value: list[ArrayFn], advantage: list[ArrayFn]) -> ArrayFn:
    def apply(x: Array) -> Array:
        adv = _run(advantage, x)
        # np.add.reduce takes a third of the time of adv.mean
        centred: Array = adv - np.add.reduce(adv, axis=1, keepdims=True) / adv.shape[1]
        return _run(value, x) + centred

    return apply


def _points(num_points: int) -> ArrayFn:
    return lambda x: x.reshape(len(x), -1, num_points)


def _gaussian(head: GaussianHead) -> list[ArrayFn] | None:
    body = _steps(head.main)
    if body is None:
        return None
    mean: list[ArrayFn] = [_linear(head.mu)] if head.bound_type is None else [_linear(head.mu), np.tanh]
    if head.sigma_layer is not None:
        layer = _linear(head.sigma_layer)
        return [*body, lambda x: np.concatenate([_run(mean, x), np.clip(layer(x), *LOG_SIGMA_RANGE)], axis=1)]
    log_sigma = head.log_sigma.detach().numpy()

    def apply(x: Array) -> Array:
        y = np.empty((len(x), 2 * len(log_sigma)), log_sigma.dtype)
        y[:, : len(log_sigma)] = _run(mean, x)
        y[:, len(log_sigma) :] = log_sigma
        return y

    return [*body, apply]


def _side_by_side(first: ArrayFn, second: list[ArrayFn]) -> ArrayFn:
    return lambda x: np.concatenate([first(x), _run(second, x)], axis=1)


def _implicit(module: IQN, asked_of: Callable[[Array], tuple[Array, Array]]) -> list[ArrayFn] | None:
    """Return the expected returns of an IQN, of N quantiles that count as much as their weights [R or 1, N].

    `asked_of` gives, for features, the cosines [R or 1, N, C] of the quantiles' fractions, and these weights. A head
    without hidden layers is run once for each row, as the mean may as well be taken before it.
    """
    encoder, head = _steps(module.encoder), _steps(module.head)
    if encoder is None or head is None:
        return None
    layer = _linear(module.embedding.linear)
    is_linear = type(module.head) is DiscreteHead and len(head) == 1

    def apply(x: Array) -> Array:
        features = _run(encoder, x)
        cosines, weights = asked_of(features)
        embedded = _relu(layer(cosines.reshape(-1, cosines.shape[2]))).reshape(*cosines.shape[:2], -1)
        if is_linear:
            return _run(head, features * np.matmul(weights[:, None], embedded)[:, 0])
        mixed = features[:, None] * embedded
        rows, number, width = mixed.shape
        values = _run(head, mixed.reshape(-1, width)).reshape(rows, number, -1)
        expected: Array = np.matmul(weights[:, None], values)[:, 0]
        return expected

    return [apply]


def _cosines(fractions: Array, embedding: CosineEmbedding) -> Array:
    """Return the cosines [R, N, C] by which fractions [R, N] are embedded."""
    cosines: Array = np.cos(fractions[:, :, None] * (np.pi * np.arange(embedding.num_cosines, dtype=fractions.dtype)))
    return cosines


def _proposal(layer: nn.Linear, embedding: CosineEmbedding) -> Callable[[Array], tuple[Array, Array]]:
    """Return what gives the proposed parts of [0, 1]: the cosines [R, N, C] of their middles, their widths [R, N]."""
    logits_of = _linear(layer)

    def apply(features: Array) -> tuple[Array, Array]:
        logits = logits_of(features)
        widths = np.exp(logits - logits.max(axis=1, keepdims=True))
        widths /= widths.sum(axis=1, keepdims=True)
        return _cosines(widths.cumsum(axis=1) - 0.5 * widths, embedding), widths

    return apply


def _checked_flatten(obs_shape: tuple[int, ...]) -> ArrayFn:
    def apply(x: Array) -> Array:
        check_obs_shape(x.shape, obs_shape)
        return _flatten(x)

    return apply


def _flatten(x: Array) -> Array:
    return x.reshape(len(x), -1)


def _relu(x: Array) -> Array:
    y: Array = np.maximum(x, 0.0)
    return y


_STATELESS: dict[type[nn.Module], list[ArrayFn]] = {nn.Identity: [], nn.ReLU: [_relu], nn.Tanh: [np.tanh]}
