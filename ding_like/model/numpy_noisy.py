"""Run Rainbow's head in numpy, and differentiate it by hand: `numpy_forward` and `numpy_grad` do what is around it.

With one noise for all rows a noisy layer is a linear one with weights mu + sigma * eps, and its gradients are

    d mu_w = g' x     d sigma_w = (g' x) * eps_w     d mu_b = sum of g     d sigma_b = (sum of g) * eps_b
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeAlias

import numpy as np
from torch import nn

from ding_like.model.head import DiscreteHead
from ding_like.model.noisy import NoisyHead, NoisyLinear
from ding_like.model.rainbow import RainbowHead, check_noise
from ding_like.types import Array

ArrayFn: TypeAlias = Callable[[Array], Array]


class Layer(Protocol):
    """Be a layer without noise, as `numpy_grad` makes them."""

    def forward(self, x: Array) -> Array: ...

    def backward(self, grad: Array) -> Array: ...


class _NoisyLinear:
    """Live views of a noisy layer's parameters and, if it is to go backwards, of their gradients."""

    def __init__(self, layer: NoisyLinear, place: slice, grads: dict[int, Array] | None = None) -> None:
        self._weight, self._weight_sigma, self._bias, self._bias_sigma = (
            getattr(layer, name).detach().numpy() for name in ("weight_mu", "weight_sigma", "bias_mu", "bias_sigma")
        )
        if grads is not None:
            self._weight_grad, self._weight_sigma_grad = grads[id(layer.weight_mu)], grads[id(layer.weight_sigma)]
            self._bias_grad, self._bias_sigma_grad = grads[id(layer.bias_mu)], grads[id(layer.bias_sigma)]
        self._in = slice(place.start, place.start + layer.in_features)
        self._out = slice(place.start + layer.in_features, place.stop)

    def run(self, x: Array, noise: Array | None) -> Array:
        """Return y [B, q], under one noise for all rows [P] or one for each [B, P]; None: of the means."""
        y: Array
        if noise is not None and noise.ndim == 2:
            y = (x * noise[:, self._in]).dot(self._weight_sigma.T)
            y += self._bias_sigma
            y *= noise[:, self._out]
            y += x.dot(self._weight.T)
            y += self._bias
            return y
        weight, bias = (self._weight, self._bias) if noise is None else self._under(noise, self._eps(noise))
        y = x.dot(weight.T)
        y += bias
        return y

    def _eps(self, noise: Array) -> Array:
        """Return the noise of the weights [q, p] under one noise [P]."""
        eps: Array = np.multiply(noise[self._out][:, None], noise[self._in])
        return eps

    def _under(self, noise: Array, eps: Array) -> tuple[Array, Array]:
        """Return the weights and biases under one noise [P], whose weights' noise is `eps`."""
        weight = eps * self._weight_sigma
        weight += self._weight
        return weight, self._bias + self._bias_sigma * noise[self._out]

    def forward(self, x: Array, noise: Array | None) -> Array:
        """Do what `run` does under one noise [P], and keep what `backward` needs."""
        self._x, self._noise = x, noise
        used, bias = self._weight, self._bias
        if noise is not None:
            self._weight_eps = self._eps(noise)
            used, bias = self._under(noise, self._weight_eps)
        self._used = used
        y: Array = x.dot(used.T)
        y += bias
        return y

    def backward(self, grad: Array) -> Array:
        """Write the parameters' gradients, given that of the output; return that of the input."""
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


class HeadForward:
    """Be the function of a head from features [B, F], and noise, to [B, A, N]; of one point to [B, A]."""

    def __init__(self, head: RainbowHead, streams: list[list[_NoisyLinear | ArrayFn]]) -> None:
        self._streams = streams
        self._noise_size, self._shape = head.noise_size, _output_shape(head)

    def __call__(self, x: Array, noise: Array | None = None) -> Array:
        check_noise(noise, len(x), self._noise_size)
        outputs = []
        for stream in self._streams:
            y = x
            for layer in stream:
                y = layer.run(y, noise) if isinstance(layer, _NoisyLinear) else layer(y)
            outputs.append(y)
        return _joined(outputs, self._shape)


class HeadGrad:
    """Run a head forwards under `noise`, one for all rows [P] or None, and backwards."""

    def __init__(self, head: RainbowHead, streams: list[list[_NoisyLinear | Layer]]) -> None:
        self.noise: Array | None = None
        self._streams = streams
        self._noise_size, self._shape = head.noise_size, _output_shape(head)

    def forward(self, x: Array) -> Array:
        """Return [B, A, N], or [B, A] of one point, and keep what `backward` needs."""
        check_noise(self.noise, None, self._noise_size)
        outputs = []
        for stream in self._streams:
            y = x
            for layer in stream:
                y = layer.forward(y, self.noise) if isinstance(layer, _NoisyLinear) else layer.forward(y)
            outputs.append(y)
        return _joined(outputs, self._shape)

    def backward(self, grad: Array) -> Array:
        """Write the parameters' gradients, given that of the output; return that of the features."""
        by_stream = [grad]
        if len(self._streams) == 2:  # y = v + a - mean(a): dv = sum of g over actions, da = g - mean(g)
            total = np.add.reduce(grad, axis=1, keepdims=True)
            by_stream = [total, grad - total / grad.shape[1]]
        backs = []
        for stream, part in zip(self._streams, by_stream, strict=True):
            back = part.reshape(len(grad), -1)
            for layer in reversed(stream):
                back = layer.backward(back)
            backs.append(back)
        return backs[0] if len(backs) == 1 else backs[0] + backs[1]


def head_forward(head: RainbowHead, plain: Callable[[nn.Module], list[ArrayFn] | None]) -> HeadForward | None:
    """Return the function of a head, None if it has layers that are neither noisy nor known to `plain`."""
    streams: list[list[_NoisyLinear | ArrayFn]] = []
    for layers in _placed(head):
        stream: list[_NoisyLinear | ArrayFn] = []
        for layer, place in layers:
            if place is not None:
                stream.append(_NoisyLinear(layer, place))
                continue
            steps = plain(layer)
            if steps is None:
                return None
            stream += steps
        streams.append(stream)
    return HeadForward(head, streams)


def head_grad(
    head: RainbowHead, plain: Callable[[nn.Module], Layer | None], grads: dict[int, Array] | None
) -> HeadGrad | None:
    """Return what differentiates a head, None if it has layers that are neither noisy nor known to `plain`."""
    streams: list[list[_NoisyLinear | Layer]] = []
    for layers in _placed(head):
        stream = [plain(layer) if place is None else _NoisyLinear(layer, place, grads) for layer, place in layers]
        known = [layer for layer in stream if layer is not None]
        if len(known) < len(stream):
            return None
        streams.append(known)
    return HeadGrad(head, streams)


# Any: a module, which has a place in the noise if it is a NoisyLinear.
def _placed(head: RainbowHead) -> Iterator[list[tuple[Any, slice | None]]]:
    """Yield the layers of each stream, with where their numbers stand in the noise of the head."""
    start = 0
    for stream in head.streams:
        if isinstance(stream, DiscreteHead):
            yield [(layer, None) for layer in stream.main.children()]
            continue
        assert isinstance(stream, NoisyHead), "a head's streams are of one of these two"
        yield [
            (layer, None if place is None else slice(start + place.start, start + place.stop))
            for layer, place in zip(stream.main, stream.places, strict=True)
        ]
        start += stream.noise_size


def _output_shape(head: RainbowHead) -> tuple[int, ...]:
    return (head.num_actions, head.num_points) if head.num_points > 1 else (head.num_actions,)


def _joined(outputs: list[Array], shape: tuple[int, ...]) -> Array:
    """Return value + advantage - mean over actions of advantage, [B, A, N] or [B, A]; of one stream its output."""
    advantage = outputs[-1].reshape(len(outputs[-1]), *shape)
    if len(outputs) == 1:
        return advantage
    # np.add.reduce takes a third of the time of advantage.mean
    advantage -= np.add.reduce(advantage, axis=1, keepdims=True) / advantage.shape[1]
    advantage += outputs[0][:, None] if advantage.ndim == 3 else outputs[0]
    return advantage
