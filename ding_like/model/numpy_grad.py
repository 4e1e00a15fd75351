"""Differentiate plain MLPs by hand, in numpy, straight into a flat gradient.

Around small networks autograd spends more time on bookkeeping than on arithmetic; here a linear layer's backward pass
is two matrix products. Results equal autograd's but for the order of additions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
from torch import nn

from ding_like.errors import SchemaError
from ding_like.model.c51 import C51DQN
from ding_like.model.dqn import DQN
from ding_like.model.encoder import FCEncoder, check_obs_shape
from ding_like.model.flat_params import FlatParams
from ding_like.model.head import DiscreteHead, DistributionHead, DuelingHead
from ding_like.model.mlp import LinearStack
from ding_like.model.numpy_noisy import HeadGrad, head_grad
from ding_like.model.ppg import PPG
from ding_like.model.qrdqn import QRDQN
from ding_like.model.rainbow import RainbowDQN
from ding_like.model.vac import LOG_SIGMA_RANGE, VAC, GaussianHead, HybridHead
from ding_like.types import Array


class _Layer(Protocol):
    def forward(self, x: Array) -> Array: ...

    def backward(self, grad: Array) -> Array:
        """Write the parameters' gradients, given that of the output; return that of the input."""


class NumpyGrad:
    """Run a module forwards and backwards on live views of its parameters and gradients in `params`.

    Of a VAC, the output is what the actor gives and, in the last column, the value; of a PPG too, whose auxiliary head
    is left out, and its gradient with it. Parameters that were pointed
    elsewhere are taken back into `params`; a copy, deep or in another process, has views of its own. Raises SchemaError
    for a module that `can_differentiate` refuses, from the beginning or later.
    """

    def __init__(self, module: nn.Module, params: FlatParams) -> None:
        self._module = module
        self._params = params
        self._bind()

    def _bind(self) -> None:
        module, params = self._module, self._params
        params.follow()
        params.attach_grads()
        grads = {id(p): p.grad.numpy() for p in module.parameters() if p.grad is not None}
        layers = _layers(module, grads) if can_differentiate(module) else None
        if layers is None:
            raise SchemaError(
                f"{type(module).__name__} is not a plain MLP in float32 on the CPU; use autograd for it "
                "(policy.learn.backend='autograd')"
            )
        self._layers = layers
        self._address = params.data_vector.data_ptr()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._module, self._params)

    def forward(self, x: Array, noise: Array | None = None) -> Array:
        """Return the output [B, ...], of a noisy network under one `noise` [P], and keep what `backward` needs."""
        # What follows keeps the vectors in place; only FlatParams.rebuild makes new ones.
        self._params.follow()
        if self._params.data_vector.data_ptr() != self._address:
            self._bind()
        if isinstance(self._layers, _Noisy):
            self._layers.head.noise = noise
        with np.errstate(all="ignore"):  # values that are not finite are the optimizer's to find
            return self._layers.forward(x)

    def backward(self, grad: Array) -> Array:
        """Overwrite the gradients of all parameters, given that of the loss by the output [B, ...].

        Returns that by the module's input as its first layer sees it, [B, ...].
        """
        with np.errstate(all="ignore"):
            return self._layers.backward(grad)


def can_differentiate(module: nn.Module) -> bool:
    """Tell whether `NumpyGrad` knows every layer of a module, in float32 on the CPU and without hooks."""
    kinds = {
        (parameter.device.type, str(parameter.dtype), parameter.requires_grad) for parameter in module.parameters()
    }
    hooked = any(layer._forward_hooks or layer._forward_pre_hooks for layer in module.modules())
    return kinds == {("cpu", "torch.float32", True)} and not hooked and _layers(module, None) is not None


def _layers(module: nn.Module, grads: dict[int, Array] | None) -> _Layer | None:
    """Return the layer that stands for a module, None if there is none; without `grads` it cannot go backwards.

    Types are compared exactly: a sub-class may have another forward.
    """
    kind = type(module)
    if isinstance(module, nn.Linear) and kind is nn.Linear:
        return _Linear(module, grads)
    if kind in _STATELESS:
        return _STATELESS[kind]()
    if kind in (nn.Sequential, LinearStack):
        return _chain(module.children(), grads)
    if isinstance(module, FCEncoder) and kind is FCEncoder:
        body = _layers(module.main, grads)
        return None if body is None else _Chain([_Flatten(module.obs_shape), body])
    if isinstance(module, DiscreteHead) and kind is DiscreteHead:
        return _layers(module.main, grads)
    if isinstance(module, DistributionHead) and kind is DistributionHead:
        body = _layers(module.main, grads)
        return None if body is None else _Chain([body, _Points(module.num_points)])
    if isinstance(module, DuelingHead) and kind is DuelingHead:
        value, advantage = _layers(module.value, grads), _layers(module.advantage, grads)
        return None if value is None or advantage is None else _Dueling(value, advantage)
    if isinstance(module, (DQN, C51DQN, QRDQN)) and kind in (DQN, C51DQN, QRDQN):
        return _chain((module.encoder, module.head), grads)
    if isinstance(module, RainbowDQN) and kind is RainbowDQN:
        encoder = _layers(module.encoder, grads)
        noisy = head_grad(module.head, lambda layer: _layers(layer, grads), grads)
        return None if encoder is None or noisy is None else _Noisy(encoder, noisy)
    if isinstance(module, GaussianHead) and kind is GaussianHead:
        body = _layers(module.main, grads)
        return None if body is None else _Gaussian(module, body, grads)
    if isinstance(module, HybridHead) and kind is HybridHead:
        body, parameters = _layers(module.main, grads), _layers(module.parameters_head, grads)
        if body is None or parameters is None:
            return None
        return _Hybrid(body, _Linear(module.choice, grads), parameters, module.choice.out_features)
    if isinstance(module, VAC) and kind in (VAC, PPG):
        return _actor_critic(module, grads)
    return None


def _chain(modules: Iterable[nn.Module], grads: dict[int, Array] | None) -> _Layer | None:
    layers = [_layers(module, grads) for module in modules]
    known = [layer for layer in layers if layer is not None]
    return _Chain(known) if len(known) == len(layers) else None


def _actor_critic(model: VAC, grads: dict[int, Array] | None) -> _Layer | None:
    encoders = [model.encoder] if model.share_encoder else [model.actor_encoder, model.critic_encoder]
    parts = [_layers(part, grads) for part in (*encoders, model.actor_head, model.critic_head)]
    known = [part for part in parts if part is not None]
    return _ActorCritic(known[:-2], *known[-2:]) if len(known) == len(parts) else None


class _Chain:
    def __init__(self, layers: list[_Layer]) -> None:
        self._layers = layers

    def forward(self, x: Array) -> Array:
        for layer in self._layers:
            x = layer.forward(x)
        return x

    def backward(self, grad: Array) -> Array:
        for layer in reversed(self._layers):
            grad = layer.backward(grad)
        return grad


class _Noisy(_Chain):
    """An encoder and a head that takes noise."""

    def __init__(self, encoder: _Layer, head: HeadGrad) -> None:
        super().__init__([encoder, head])
        self.head = head


class _Linear:
    """y = x W' + b, so dW = g' x, db = sum of g over the batch, dx = g W."""

    def __init__(self, layer: nn.Linear, grads: dict[int, Array] | None) -> None:
        self._weight = layer.weight.detach().numpy()
        self._bias = None if layer.bias is None else layer.bias.detach().numpy()
        if grads is not None:
            self._weight_grad = grads[id(layer.weight)]
            self._bias_grad = None if layer.bias is None else grads[id(layer.bias)]

    def forward(self, x: Array) -> Array:
        self._x = x
        y: Array = x.dot(self._weight.T)
        if self._bias is not None:
            y += self._bias
        return y

    def backward(self, grad: Array) -> Array:
        np.dot(grad.T, self._x, out=self._weight_grad)
        if self._bias_grad is not None:
            np.add.reduce(grad, axis=0, out=self._bias_grad)
        back: Array = grad.dot(self._weight)
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


class _Flatten:
    """Flatten the first layer's input; nothing in front of it wants a gradient."""

    def __init__(self, obs_shape: tuple[int, ...]) -> None:
        self._obs_shape = obs_shape

    def forward(self, x: Array) -> Array:
        check_obs_shape(x.shape, self._obs_shape)
        flat = x.reshape(len(x), -1)
        return flat if flat.dtype == np.float32 else flat.astype(np.float32)

    def backward(self, grad: Array) -> Array:
        return grad


class _Identity:
    def forward(self, x: Array) -> Array:
        return x

    def backward(self, grad: Array) -> Array:
        return grad


class _Points:
    """See a row's outputs [A N] as N numbers for each action [A, N]."""

    def __init__(self, num_points: int) -> None:
        self._num_points = num_points

    def forward(self, x: Array) -> Array:
        return x.reshape(len(x), -1, self._num_points)

    def backward(self, grad: Array) -> Array:
        return grad.reshape(len(grad), -1)


class _Dueling:
    """q = v + a - mean(a), so dv = sum of g over actions and da = g - mean(g): of one number for each action, or N."""

    def __init__(self, value: _Layer, advantage: _Layer) -> None:
        self._value = value
        self._advantage = advantage

    def forward(self, x: Array) -> Array:
        advantage = self._advantage.forward(x)
        q: Array = self._value.forward(x) + (
            advantage - np.add.reduce(advantage, 1, keepdims=True) / advantage.shape[1]
        )
        return q

    def backward(self, grad: Array) -> Array:
        total = np.add.reduce(grad, axis=1, keepdims=True)
        back = self._value.backward(total)
        back += self._advantage.backward(grad - total / grad.shape[1])
        return back


class _Gaussian:
    """Mean and log sigma side by side; a log sigma that is the same for all rows gets the sum of their gradients."""

    def __init__(self, head: GaussianHead, body: _Layer, grads: dict[int, Array] | None) -> None:
        self._body = body
        mean: list[_Layer] = [_Linear(head.mu, grads)] + ([] if head.bound_type is None else [_Tanh()])
        self._mean = _Chain(mean)
        self._size = head.mu.out_features
        self._sigma = None if head.sigma_layer is None else _Linear(head.sigma_layer, grads)
        if head.sigma_layer is None:
            self._log_sigma = head.log_sigma.detach().numpy()
            self._log_sigma_grad = None if grads is None else grads.get(id(head.log_sigma))  # None: a fixed one

    def forward(self, x: Array) -> Array:
        features = self._body.forward(x)
        y = np.empty((len(features), 2 * self._size), np.float32)
        y[:, : self._size] = self._mean.forward(features)
        if self._sigma is None:
            y[:, self._size :] = self._log_sigma
        else:
            free = self._sigma.forward(features)
            y[:, self._size :] = np.clip(free, *LOG_SIGMA_RANGE)
            self._is_free = y[:, self._size :] == free
        return y

    def backward(self, grad: Array) -> Array:
        grad_sigma = grad[:, self._size :]
        back = self._mean.backward(grad[:, : self._size])
        if self._sigma is not None:
            back += self._sigma.backward(grad_sigma * self._is_free)
        elif self._log_sigma_grad is not None:
            np.add.reduce(grad_sigma, axis=0, out=self._log_sigma_grad)
        return self._body.backward(back)


class _Hybrid:
    """The logits of choices, and what the parameters' head gives, side by side on the same hidden layers."""

    def __init__(self, body: _Layer, choice: _Layer, parameters: _Layer, num_choices: int) -> None:
        self._body = body
        self._choice = choice
        self._parameters = parameters
        self._num_choices = num_choices

    def forward(self, x: Array) -> Array:
        features = self._body.forward(x)
        return np.concatenate([self._choice.forward(features), self._parameters.forward(features)], axis=1)

    def backward(self, grad: Array) -> Array:
        back = self._choice.backward(grad[:, : self._num_choices])
        back += self._parameters.backward(grad[:, self._num_choices :])
        return self._body.backward(back)


class _ActorCritic:
    """The actor's output and, in the last column, the value; on one encoder or on two."""

    def __init__(self, encoders: list[_Layer], actor: _Layer, critic: _Layer) -> None:
        self._encoders = encoders
        self._actor = actor
        self._critic = critic

    def forward(self, x: Array) -> Array:
        features = [encoder.forward(x) for encoder in self._encoders]
        return np.concatenate([self._actor.forward(features[0]), self._critic.forward(features[-1])], axis=1)

    def backward(self, grad: Array) -> Array:
        actor, critic = self._actor.backward(grad[:, :-1]), self._critic.backward(grad[:, -1:])
        if len(self._encoders) == 1:
            return self._encoders[0].backward(actor + critic)
        return self._encoders[0].backward(actor) + self._encoders[1].backward(critic)


_STATELESS: dict[type[nn.Module], type[_Relu] | type[_Tanh] | type[_Identity]] = {
    nn.ReLU: _Relu,
    nn.Tanh: _Tanh,
    nn.Identity: _Identity,
}
