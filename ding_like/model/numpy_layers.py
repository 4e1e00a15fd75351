"""Layers of small networks in numpy, forwards and backwards, on live views of their torch parameters.

Around small networks torch spends more time on bookkeeping than on arithmetic; here a linear layer is a matrix product,
and its backward pass two. Results equal autograd's but for the order of additions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from ding_like.model.encoder import FCEncoder, check_obs_shape
from ding_like.model.head import DiscreteHead, DuelingHead, NoisyLinear, check_noise
from ding_like.model.mlp import LinearStack
from ding_like.model.q_networks import C51DQN, DQN, QRDQN, RainbowDQN
from ding_like.model.vac import LOG_SIGMA_RANGE, PPG, VAC, GaussianHead, HybridHead
from ding_like.types import Array

Grads = dict[int, Array]  # of parameters, by their id


class UnknownLayerError(Exception):
    """Layer that numpy does not know."""


class Layer(Protocol):
    """One layer, or several in one."""

    def forward(self, x: Array) -> Array:
        """Return the output, and keep what `backward` needs."""

    def backward(self, grad: Array) -> Array:
        """Write the parameters' gradients, given that of the output, which may be changed; return that of the input."""


def can_read(module: nn.Module, *dtypes: torch.dtype) -> bool:
    """Return whether numpy sees the parameters, all of one of these dtypes, and there are no hooks."""
    kinds = {(parameter.device.type, parameter.dtype) for parameter in module.parameters()}
    is_readable = kinds in [{("cpu", dtype)} for dtype in dtypes]
    return is_readable and not any(layer._forward_hooks or layer._forward_pre_hooks for layer in module.modules())


class Network:
    """Layers of a module, with gradients where `grads` has them.

    Raises UnknownLayerError for a module that numpy cannot run. Types are compared exactly: a subclass may have another
    forward.
    """

    def __init__(self, module: nn.Module, grads: Grads | None = None) -> None:
        self.grads = grads
        self.noise: Array | None = None  # what noisy layers run under
        self.noise_size = 0
        self.layers = self.of(module)

    def of(self, module: nn.Module) -> list[Layer]:
        """Return the layers of a part; noisy ones take the next numbers of the noise."""
        make = _MAKERS.get(type(module))
        if make is None:
            raise UnknownLayerError(type(module).__name__)
        return make(module, self)

    def forward(self, x: Array, noise: Array | None = None) -> Array:
        """Return the output [B, ...], of a noisy network under `noise` [P]; without gradients it may be [B, P] too."""
        if noise is not None:
            check_noise(noise, len(x) if self.grads is None else None, self.noise_size)
        self.noise = noise
        return run(self.layers, x)

    def backward(self, grad: Array) -> Array:
        """Overwrite the gradients of all parameters, given that of the loss by the output; return that by the input."""
        return run_back(self.layers, grad)


def run(layers: Iterable[Layer], x: Array) -> Array:
    """Return the output of layers one after the other."""
    for layer in layers:
        x = layer.forward(x)
    return x


def run_back(layers: list[Layer], grad: Array) -> Array:
    """Write the gradients of layers one after the other, given that of the output; return that of the input."""
    for layer in reversed(layers):
        grad = layer.backward(grad)
    return grad


class Linear:
    """y = x W' + b, so dW = g' x, db = sum of g over the batch, dx = g W."""

    def __init__(self, layer: nn.Linear, grads: Grads | None = None) -> None:
        self._weight = layer.weight.detach().numpy()
        self._transposed = self._weight.T
        self._bias = None if layer.bias is None else layer.bias.detach().numpy()
        if grads is not None:
            self._weight_grad = grads[id(layer.weight)]
            self._bias_grad = None if layer.bias is None else grads[id(layer.bias)]

    def forward(self, x: Array) -> Array:
        self._x = x
        y: Array = x.dot(self._transposed)
        if self._bias is not None:
            y += self._bias
        return y

    def write_gradients(self, grad: Array) -> None:
        """Do what `backward` does, without the gradient of the input."""
        np.dot(grad.T, self._x, out=self._weight_grad)
        if self._bias_grad is not None:
            np.add.reduce(grad, axis=0, out=self._bias_grad)

    def backward(self, grad: Array) -> Array:
        self.write_gradients(grad)
        back: Array = grad.dot(self._weight)
        return back


class _Noisy:
    """Noisy layer. With one noise for all rows it is a linear one with weights mu + sigma * eps, and its gradients are

    d mu_w = g' x     d sigma_w = (g' x) * eps_w     d mu_b = sum of g     d sigma_b = (sum of g) * eps_b
    """

    def __init__(self, layer: NoisyLinear, network: Network) -> None:
        parameters = layer.weight_mu, layer.weight_sigma, layer.bias_mu, layer.bias_sigma
        self._weight, self._weight_sigma, self._bias, self._bias_sigma = (each.detach().numpy() for each in parameters)
        if network.grads is not None:
            self._weight_grad, self._weight_sigma_grad, self._bias_grad, self._bias_sigma_grad = (
                network.grads[id(each)] for each in parameters
            )
        start = network.noise_size
        middle, network.noise_size = start + layer.in_features, start + layer.noise_size
        self._in, self._out = slice(start, middle), slice(middle, network.noise_size)
        self._network = network

    def forward(self, x: Array) -> Array:
        noise = self._noise = self._network.noise
        y: Array
        if noise is not None and noise.ndim == 2:
            y = (x * noise[:, self._in]).dot(self._weight_sigma.T)
            y += self._bias_sigma
            y *= noise[:, self._out]
            y += x.dot(self._weight.T)
            y += self._bias
            return y
        self._x, self._used, bias = x, self._weight, self._bias
        if noise is not None:
            self._weight_eps: Array = np.multiply(noise[self._out][:, None], noise[self._in])
            self._used = self._weight_eps * self._weight_sigma
            self._used += self._weight
            bias = bias + self._bias_sigma * noise[self._out]
        y = x.dot(self._used.T)
        y += bias
        return y

    def backward(self, grad: Array) -> Array:
        np.dot(grad.T, self._x, out=self._weight_grad)
        np.add.reduce(grad, axis=0, out=self._bias_grad)
        if self._noise is None:
            self._weight_sigma_grad.fill(0.0)
            self._bias_sigma_grad.fill(0.0)
        else:
            np.multiply(self._weight_grad, self._weight_eps, out=self._weight_sigma_grad)
            np.multiply(self._bias_grad, self._noise[self._out], out=self._bias_sigma_grad)
        back: Array = grad.dot(self._used)
        return back


class _Relu:
    def forward(self, x: Array) -> Array:
        self._y: Array = np.maximum(x, 0.0)
        return self._y

    def backward(self, grad: Array) -> Array:
        grad *= self._y > 0
        return grad


class _Tanh:
    def forward(self, x: Array) -> Array:
        self._y: Array = np.tanh(x)
        return self._y

    def backward(self, grad: Array) -> Array:
        grad *= 1.0 - self._y * self._y
        return grad


class _Reshape:
    """Each row in another shape: a vector, or N numbers for each action [A, N]; `obs_shape` is checked if given."""

    def __init__(self, *shape: int, obs_shape: tuple[int, ...] | None = None) -> None:
        self._shape, self._obs_shape = shape, obs_shape

    def forward(self, x: Array) -> Array:
        if self._obs_shape is not None:
            check_obs_shape(x.shape, self._obs_shape)
        self._before = x.shape
        return x.reshape(len(x), *self._shape)

    def backward(self, grad: Array) -> Array:
        return grad.reshape(self._before)


class _Dueling:
    """q = v + a - mean(a), so dv = sum of g over actions and da = g - mean(g): of one number for each action, or N."""

    def __init__(self, head: DuelingHead, network: Network) -> None:
        self._value, self._advantage = network.of(head.value), network.of(head.advantage)

    def forward(self, x: Array) -> Array:
        advantage = run(self._advantage, x)
        # np.add.reduce takes a third of the time of advantage.mean
        centred: Array = advantage - np.add.reduce(advantage, 1, keepdims=True) / advantage.shape[1]
        return run(self._value, x) + centred

    def backward(self, grad: Array) -> Array:
        total = np.add.reduce(grad, axis=1, keepdims=True)
        back = run_back(self._value, total)
        back += run_back(self._advantage, grad - total / grad.shape[1])
        return back


class _Gaussian:
    """Mean and log sigma side by side; a log sigma that is the same for all rows gets the sum of their gradients."""

    def __init__(self, head: GaussianHead, network: Network) -> None:
        grads = network.grads
        self._mean: list[Layer] = [Linear(head.mu, grads)] + ([] if head.bound_type is None else [_Tanh()])
        self._size = head.mu.out_features
        self._sigma = None if head.sigma_layer is None else Linear(head.sigma_layer, grads)
        if head.sigma_layer is None:
            self._log_sigma = head.log_sigma.detach().numpy()
            self._log_sigma_grad = None if grads is None else grads.get(id(head.log_sigma))  # None: a fixed one

    def forward(self, x: Array) -> Array:
        y = np.empty((len(x), 2 * self._size), x.dtype)
        y[:, : self._size] = run(self._mean, x)
        if self._sigma is None:
            y[:, self._size :] = self._log_sigma
        else:
            free = self._sigma.forward(x)
            y[:, self._size :] = np.clip(free, *LOG_SIGMA_RANGE)
            self._is_free = y[:, self._size :] == free
        return y

    def backward(self, grad: Array) -> Array:
        grad_sigma = grad[:, self._size :]
        back = run_back(self._mean, grad[:, : self._size])
        if self._sigma is not None:
            back += self._sigma.backward(grad_sigma * self._is_free)
        elif self._log_sigma_grad is not None:
            np.add.reduce(grad_sigma, axis=0, out=self._log_sigma_grad)
        return back


class _SideBySide:
    """Two stacks of layers on one input, their outputs side by side; the first has `size` of them."""

    def __init__(self, first: list[Layer], size: int, second: list[Layer]) -> None:
        self._first, self._size, self._second = first, size, second

    def forward(self, x: Array) -> Array:
        return np.concatenate([run(self._first, x), run(self._second, x)], axis=1)

    def backward(self, grad: Array) -> Array:
        back = run_back(self._first, grad[:, : self._size])
        back += run_back(self._second, grad[:, self._size :])
        return back


class _ActorCritic:
    """The actor's output and, in the last column, the value; on one encoder or on two."""

    def __init__(self, model: VAC, network: Network) -> None:
        encoders = [model.encoder] if model.share_encoder else [model.actor_encoder, model.critic_encoder]
        self._encoders = [network.of(encoder) for encoder in encoders]
        self._actor, self._critic = network.of(model.actor_head), network.of(model.critic_head)

    def forward(self, x: Array) -> Array:
        features = [run(encoder, x) for encoder in self._encoders]
        return np.concatenate([run(self._actor, features[0]), run(self._critic, features[-1])], axis=1)

    def backward(self, grad: Array) -> Array:
        actor, critic = run_back(self._actor, grad[:, :-1]), run_back(self._critic, grad[:, -1:])
        if len(self._encoders) == 1:
            return run_back(self._encoders[0], actor + critic)
        return run_back(self._encoders[0], actor) + run_back(self._encoders[1], critic)


def _flatten(module: nn.Flatten, network: Network) -> list[Layer]:
    if (module.start_dim, module.end_dim) != (1, -1):
        raise UnknownLayerError("Flatten of other axes than those of a row")
    return [_Reshape(-1)]


def _head(head: DiscreteHead, network: Network) -> list[Layer]:
    points = [] if head.num_points is None else [_Reshape(-1, head.num_points)]
    return [*network.of(head.main), *points]


def _hybrid(head: HybridHead, network: Network) -> list[Layer]:
    both = _SideBySide(network.of(head.choice), head.choice.out_features, network.of(head.parameters_head))
    return [*network.of(head.main), both]


def _chain(modules: Iterable[nn.Module], network: Network) -> list[Layer]:
    return [layer for module in modules for layer in network.of(module)]


# How a module becomes layers. Any: each function takes modules of its own type.
_MAKERS: dict[type[nn.Module], Callable[[Any, Network], list[Layer]]] = {
    nn.Identity: lambda module, network: [],
    nn.ReLU: lambda module, network: [_Relu()],
    nn.Tanh: lambda module, network: [_Tanh()],
    nn.Flatten: _flatten,
    nn.Linear: lambda module, network: [Linear(module, network.grads)],
    NoisyLinear: lambda module, network: [_Noisy(module, network)],
    FCEncoder: lambda module, network: [_Reshape(-1, obs_shape=module.obs_shape), *network.of(module.main)],
    DiscreteHead: _head,
    DuelingHead: lambda module, network: [_Dueling(module, network)],
    GaussianHead: lambda module, network: [*network.of(module.main), _Gaussian(module, network)],
    HybridHead: _hybrid,
    **dict.fromkeys((nn.Sequential, LinearStack), lambda module, network: _chain(module.children(), network)),
    **dict.fromkeys((VAC, PPG), lambda module, network: [_ActorCritic(module, network)]),
    **dict.fromkeys(
        (DQN, C51DQN, QRDQN, RainbowDQN), lambda module, network: _chain((module.encoder, module.head), network)
    ),
}
