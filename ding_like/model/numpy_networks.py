"""Small networks run in numpy, and differentiated by hand, on live views of their torch parameters and gradients.

Around small networks torch spends more time on bookkeeping than on arithmetic; here a linear layer is a matrix product,
and its backward pass two. Results equal autograd's but for the order of additions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias, TypeGuard, cast

import numpy as np
import torch
from torch import nn

from ding_like.errors import SchemaError
from ding_like.model.by_agent import AgentDQN, AgentVAC, CentralVAC, FirstNumbers, ViewEncoder
from ding_like.model.encoder import FCEncoder, FlatPart, check_obs_shape
from ding_like.model.flat_params import FlatParams, parameter_slots
from ding_like.model.layers import DiscreteHead, DuelingHead, LinearStack, NoisyLinear, ResidualBlock, check_noise
from ding_like.model.q_networks import C51DQN, DQN, FQF, IQN, QRDQN, CosineEmbedding, RainbowDQN
from ding_like.model.qac import NORM_EPS, PDQN, Critic, FirstCritic, ParallelMLP
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
        """Overwrite the gradients of all parameters, given that of the loss by the output; return that by the input.

        Without `grads` there are none to overwrite.
        """
        return run_back(self.layers, grad)

    def write_gradients(self, grad: Array) -> None:
        """Do what `backward` does, without the gradient of the input."""
        first = next((n for n, layer in enumerate(self.layers) if not isinstance(layer, _Reshape)), 0)
        grad = run_back(self.layers[first + 1 :], grad)
        layer = self.layers[first]
        if isinstance(layer, (Linear, _Parallel)):
            layer.write_gradients(grad)
        else:
            layer.backward(grad)


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
        self._has_grads = grads is not None
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
        if self._has_grads:
            self.write_gradients(grad)
        return cast(Array, grad.dot(self._weight))


class _ParallelNorm:
    """Layer normalisation of N networks side by side: y = w n + b as in `_LayerNorm`, of x [N, B, H]."""

    def __init__(self, scale: nn.Parameter, shift: nn.Parameter, grads: Grads | None, num: int | None) -> None:
        self._scale, self._shift = scale.detach()[:num], shift.detach()[:num]
        if grads is not None:
            self._grads = grads[id(scale)], grads[id(shift)]

    def forward(self, x: Array) -> Array:
        self._x = torch.from_numpy(x)
        self._normal, self._mean, self._per_sigma = torch.native_layer_norm(
            self._x, self._x.shape[-1:], None, None, NORM_EPS
        )
        return torch.addcmul(self._shift, self._normal, self._scale).numpy()

    def write_gradients(self, grad: Array) -> None:
        """Write the parameters' gradients, given that of the output."""
        np.add.reduce(grad * self._normal.numpy(), axis=1, keepdims=True, out=self._grads[0])
        np.add.reduce(grad, axis=1, keepdims=True, out=self._grads[1])

    def backward(self, grad: Array, network: int | None = None, rows: Array | None = None) -> Array:
        """Return the gradient of the input, given that of the output: of all [N, B, H], or some rows of a network."""
        scale, kept = self._scale, [self._x, self._mean, self._per_sigma]
        if network is not None:
            scale, kept = scale[network], [each[network][rows] for each in kept]
        x, mean, per_sigma = kept
        found = torch.ops.aten.native_layer_norm_backward(
            torch.from_numpy(grad) * scale, x, x.shape[-1:], mean, per_sigma, None, None, [True, False, False]
        )
        return cast(Array, found[0].numpy())


class _Parallel:
    """`ParallelMLP`: linear layers [N, I, O], two of them with a ReLU between, and a norm behind that where it has one.

    The output is [N, B, O].
    """

    def __init__(self, mlp: ParallelMLP, grads: Grads | None = None, *, num: int | None = None) -> None:
        """Run the first `num` of the networks; None: all of them."""
        if type(mlp.activation) is not nn.ReLU:
            raise UnknownLayerError("parallel networks with another activation than ReLU")
        self._weights = [each.detach().numpy()[:num] for each in mlp.weights]
        self._biases = [each.detach()[:num] for each in mlp.biases]
        self._grads = None
        if grads is not None:
            self._grads = [(grads[id(w)], grads[id(b)]) for w, b in zip(mlp.weights, mlp.biases, strict=True)]
        # By the layer behind them: none before the first.
        pairs = zip(mlp.scales, mlp.shifts, strict=True)
        self._norms = {number: _ParallelNorm(*pair, grads, num) for number, pair in enumerate(pairs, start=1)}

    def forward(self, x: Array) -> Array:
        self._active, self._inputs = [], []  # what activations gave; what layers took, normalised where there is a norm
        for number, (weight, bias) in enumerate(zip(self._weights, self._biases, strict=True)):
            if number > 0:
                torch.from_numpy(x).relu_()  # an eighth of the time of np.maximum
            self._active.append(x)
            if number in self._norms:
                x = self._norms[number].forward(x)
            self._inputs.append(x)
            x = np.matmul(x, weight)
            torch.from_numpy(x).add_(bias)
        return x

    def write_gradients(self, grad: Array) -> None:
        """Do what `backward` does, without the gradient of the input."""
        assert self._grads is not None, "these run without gradients of their parameters"
        for number in reversed(range(len(self._weights))):
            x, weight = self._inputs[number], self._weights[number]
            weight_grad, bias_grad = self._grads[number]
            np.matmul(x.swapaxes(-1, -2), grad, out=weight_grad)
            np.add.reduce(grad, axis=1, keepdims=True, out=bias_grad)
            if number > 0:
                back = weight.swapaxes(1, 2)
                # Of one output the product is an outer one, for which BLAS takes five times as long.
                grad = grad * back if weight.shape[2] == 1 else np.matmul(grad, back)
                if number in self._norms:
                    self._norms[number].write_gradients(grad)
                    grad = self._norms[number].backward(grad)
                _stop_below_0(grad, self._active[number])

    def backward(self, grad: Array) -> Array:
        if self._grads is not None:
            self.write_gradients(grad)
        total = np.zeros((grad.shape[1], self._weights[0].shape[1]), grad.dtype)
        for network, each in enumerate(grad):
            # Of the smaller of two values, each row has a gradient through one network alone.
            rows = np.flatnonzero(each.any(axis=1))
            back = each[rows]
            for number in reversed(range(len(self._weights))):
                weight = self._weights[number][network]
                back = back * weight.T if weight.shape[1] == 1 else back.dot(weight.T)
                if number > 0:
                    if number in self._norms:
                        back = self._norms[number].backward(back, network, rows)
                    _stop_below_0(back, self._active[number][network][rows])
            total[rows] += back
        return total


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
        return cast(Array, grad.dot(self._used))


_LARGE = 16_384  # numbers from which torch's loops save more than its calls cost


def _stop_below_0(grad: Array, y: Array) -> None:
    """Set a gradient to 0 where a ReLU gave 0."""
    behind = torch.from_numpy(grad)
    torch.ops.aten.threshold_backward.grad_input(behind, torch.from_numpy(y), 0, grad_input=behind)


class _Relu:
    def forward(self, x: Array) -> Array:
        is_large = x.size >= _LARGE and x.flags.writeable
        self._y: Array = torch.from_numpy(x).relu().numpy() if is_large else np.maximum(x, 0.0)
        return self._y

    def backward(self, grad: Array) -> Array:
        if grad.size >= _LARGE:
            _stop_below_0(grad, self._y)
        else:
            grad *= self._y > 0
        return grad


class _Tanh:
    def forward(self, x: Array) -> Array:
        self._y: Array = np.tanh(x)
        return self._y

    def backward(self, grad: Array) -> Array:
        grad *= 1.0 - self._y * self._y
        return grad


class _LayerNorm:
    """y = w n + b of n = (x - mean) / sigma of each row, so dn = w g and dx = (dn - mean(dn) - n mean(dn n)) / sigma.

    Source: Ba et al. 2016.
    """

    def __init__(self, layer: nn.LayerNorm, grads: Grads | None = None) -> None:
        self._weight, self._bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
        self._size, self._eps = len(self._weight), layer.eps
        if grads is not None:
            self._weight_grad, self._bias_grad = grads[id(layer.weight)], grads[id(layer.bias)]

    def forward(self, x: Array) -> Array:
        centred = x - self._mean(x)
        self._scale: Array = 1.0 / np.sqrt(self._mean(centred * centred) + np.float32(self._eps))
        self._normal: Array = centred * self._scale
        y: Array = self._normal * self._weight
        y += self._bias
        return y

    def backward(self, grad: Array) -> Array:
        np.add.reduce(grad * self._normal, axis=0, out=self._weight_grad)
        np.add.reduce(grad, axis=0, out=self._bias_grad)
        of_normal = grad * self._weight
        back: Array = of_normal - self._mean(of_normal)
        back -= self._normal * self._mean(of_normal * self._normal)
        back *= self._scale
        return back

    def _mean(self, x: Array) -> Array:
        return cast(Array, np.add.reduce(x, axis=1, keepdims=True) / np.float32(self._size))


class _Residual:
    """y = x + f(x) of several layers f, so dx = g + df(g)."""

    def __init__(self, layers: list[Layer]) -> None:
        self._layers = layers

    def forward(self, x: Array) -> Array:
        y: Array = x + run(self._layers, x)
        return y

    def backward(self, grad: Array) -> Array:
        back: Array = grad + run_back(self._layers, grad.copy())  # a layer may change what it is given
        return back


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
    """Two stacks of layers on one input, their outputs side by side; the second's begin at column `size`."""

    def __init__(self, first: list[Layer], size: int, second: list[Layer]) -> None:
        self._first, self._size, self._second = first, size, second

    def forward(self, x: Array) -> Array:
        return np.concatenate([run(self._first, x), run(self._second, x)], axis=1)

    def backward(self, grad: Array) -> Array:
        back = run_back(self._first, grad[:, : self._size])
        back += run_back(self._second, grad[:, self._size :])
        return back


def _flatten(module: nn.Flatten, network: Network) -> list[Layer]:
    if (module.start_dim, module.end_dim) != (1, -1):
        raise UnknownLayerError("Flatten of other axes than those of a row")
    return [_Reshape(-1)]


def _layer_norm(module: nn.LayerNorm, network: Network) -> list[Layer]:
    if len(module.normalized_shape) != 1 or module.weight is None or module.bias is None:
        raise UnknownLayerError("LayerNorm of several axes, or without weights")
    return [_LayerNorm(module, network.grads)]


def _head(head: DiscreteHead, network: Network) -> list[Layer]:
    points = [] if head.num_points is None else [_Reshape(-1, head.num_points)]
    return [*network.of(head.main), *points]


def _hybrid(head: HybridHead, network: Network) -> list[Layer]:
    both = _SideBySide(network.of(head.choice), head.choice.out_features, network.of(head.parameters_head))
    return [*network.of(head.main), both]


def _actor_critic(model: VAC, network: Network) -> list[Layer]:
    """Return layers that give the actor's output and, in the last column, the value; on one encoder or on two."""
    actor, critic = network.of(model.actor_head), network.of(model.critic_head)
    if model.share_encoder:
        return [*network.of(model.encoder), _SideBySide(actor, -1, critic)]
    encoders = network.of(model.actor_encoder), network.of(model.critic_encoder)
    return [_SideBySide([*encoders[0], *actor], -1, [*encoders[1], *critic])]


def _critics(critic: Critic, network: Network, num: int | None = None) -> list[Layer]:
    """Return what gives values [N, B, 1], or quantiles [N, B, M], of observations and actions [B, O + A]."""
    if type(critic.encoder) is not FlatPart or type(critic.q) is not ParallelMLP:
        raise UnknownLayerError("an observation that is no vector, or residual blocks")
    return [_Parallel(critic.q, network.grads, num=num)]


def _chain(modules: Iterable[nn.Module], network: Network) -> list[Layer]:
    return [layer for module in modules for layer in network.of(module)]


# How a module becomes layers. Any: each function takes modules of its own type.
_MAKERS: dict[type[nn.Module], Callable[[Any, Network], list[Layer]]] = {
    nn.Identity: lambda module, network: [],
    nn.ReLU: lambda module, network: [_Relu()],
    nn.Tanh: lambda module, network: [_Tanh()],
    nn.Flatten: _flatten,
    nn.LayerNorm: _layer_norm,
    ResidualBlock: lambda module, network: [_Residual(network.of(module.main))],
    nn.Linear: lambda module, network: [Linear(module, network.grads)],
    NoisyLinear: lambda module, network: [_Noisy(module, network)],
    FCEncoder: lambda module, network: [_Reshape(-1, obs_shape=module.obs_shape), *network.of(module.main)],
    ViewEncoder: lambda module, network: [FirstNumbers(module.obs_shape[0]), *network.of(module.main)],
    DiscreteHead: _head,
    DuelingHead: lambda module, network: [_Dueling(module, network)],
    GaussianHead: lambda module, network: [*network.of(module.main), _Gaussian(module, network)],
    HybridHead: _hybrid,
    Critic: _critics,
    FirstCritic: lambda module, network: _critics(module.critic, network, num=1),
    **dict.fromkeys((nn.Sequential, LinearStack), lambda module, network: _chain(module.children(), network)),
    **dict.fromkeys((VAC, PPG, AgentVAC, CentralVAC), _actor_critic),
    **dict.fromkeys(
        (DQN, C51DQN, QRDQN, RainbowDQN, AgentDQN),
        lambda module, network: _chain((module.encoder, module.head), network),
    ),
}


ArrayFn: TypeAlias = Callable[[Array], Array]


def numpy_forward(module: nn.Module, *, then: ArrayFn | None = None) -> NumpyForward | None:
    """Return a function from observations [R, O...] to the module's output [R, A], or None if torch is needed.

    Understood are Linear, ReLU, Tanh, Identity, Flatten, Sequential and our encoders, heads and Q networks made of
    them (of DQN, IQN and FQF: what `q` returns; of C51DQN and QRDQN: their `points`, [R, A, N]; of RainbowDQN: its
    `logits`; of PDQN: what `choose` returns; of VAC: actor's output and value side by side, or
    its `towers`), on the CPU in float32 or float64 and without hooks.
    `then` is applied to the output. In-place changes of the parameters show at once, and parameters that were pointed
    elsewhere are noticed at the next call, which raises SchemaError if they have left the CPU. The layers themselves
    must stay the same.
    """
    try:
        return NumpyForward(module, then)
    except SchemaError:
        return None


class NumpyForward:
    """Module run on numpy views of its parameters; `noise`, of a module that takes noise, is [P] or [R, P]."""

    def __init__(self, module: nn.Module, then: ArrayFn | None) -> None:
        self._module = module
        self._then = then
        self._slots = parameter_slots(module)
        self._bind()

    def __call__(self, x: Array, noise: Array | None = None) -> Array:
        if self._addresses() != self._bound_addresses:
            self._bind()
        output = self._run(np.asarray(x, dtype=self._dtype), noise)
        return output if self._then is None else self._then(output)

    def back(self, grad: Array) -> Array:
        """Return the gradient of a loss by what went in last, given that by the output; parameters get none."""
        with np.errstate(all="ignore"):
            return self._network.backward(grad)

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy, deep or in another process, makes its own views.
        return type(self), (self._module, self._then)

    def _addresses(self) -> list[int]:
        return [owner[name].data_ptr() for owner, name in self._slots]  # type: ignore[union-attr]

    def _bind(self) -> None:
        special: Any = _SPECIAL.get(type(self._module))
        try:
            if not can_read(self._module, torch.float32, torch.float64):
                raise UnknownLayerError("parameters elsewhere, or hooks")
            if special is None:
                self._network = Network(self._module)
            self._run = self._network.forward if special is None else special(self._module)
        except UnknownLayerError as error:
            raise SchemaError(
                "numpy_forward cannot follow its module any longer: parameters left the CPU, changed to a dtype other "
                "than float32 and float64, or got a hook; call numpy_forward(module) again and use torch if it is None"
            ) from error
        self._bound_addresses = self._addresses()
        self._dtype = next(self._module.parameters()).detach().numpy().dtype


class _Expected:
    """Expected returns of an IQN: the mean of N quantiles, each as much as its weight [R or 1, N].

    `asked_of` gives, for features, the cosines [R or 1, N, C] of the quantiles' fractions, and these weights. A head
    without hidden layers is run once for each row, as the mean may as well be taken before it.
    """

    def __init__(self, model: IQN, asked_of: Callable[[Array], tuple[Array, Array]]) -> None:
        network = Network(model.encoder)
        self._encoder, self._head = network.layers, network.of(model.head)
        self._embedding = Linear(model.embedding.linear)
        self._asked_of = asked_of
        self._is_linear = type(model.head) is DiscreteHead and len(self._head) == 1

    def __call__(self, x: Array, noise: None = None) -> Array:
        features = run(self._encoder, x)
        cosines, weights = self._asked_of(features)
        embedded = self._embedding.forward(cosines.reshape(-1, cosines.shape[2]))
        embedded = np.maximum(embedded, 0.0).reshape(*cosines.shape[:2], -1)
        if self._is_linear:
            return run(self._head, features * np.matmul(weights[:, None], embedded)[:, 0])
        mixed = features[:, None] * embedded
        rows, number, width = mixed.shape
        values = run(self._head, mixed.reshape(-1, width)).reshape(rows, number, -1)
        return cast(Array, np.matmul(weights[:, None], values)[:, 0])


def _expected_of_iqn(model: IQN) -> _Expected:
    midpoints = model.midpoints().numpy()
    equal = np.full(midpoints.shape, 1.0 / midpoints.shape[1], midpoints.dtype)
    asked = cosines_of(midpoints, model.embedding), equal  # here, as they are the same in every call
    return _Expected(model, lambda features: asked)


def _expected_of_fqf(model: FQF) -> _Expected:
    logits_of = Linear(model.proposal.linear)

    def ask(features: Array) -> tuple[Array, Array]:
        logits = logits_of.forward(features)
        widths = np.exp(logits - logits.max(axis=1, keepdims=True))
        widths /= widths.sum(axis=1, keepdims=True)
        return cosines_of(widths.cumsum(axis=1) - 0.5 * widths, model.values.embedding), widths

    return _Expected(model.values, ask)


def cosines_of(fractions: Array, embedding: CosineEmbedding) -> Array:
    """Return the cosines [R, N, C] by which fractions [R, N] are embedded."""
    cosines: Array = np.cos(fractions[:, :, None] * (np.pi * np.arange(embedding.num_cosines, dtype=fractions.dtype)))
    return cosines


class _Choices:
    """What `PDQN.choose` gives, for vectors [R, O]."""

    def __init__(self, model: PDQN) -> None:
        if type(model.critic.encoder) is not FlatPart:
            raise UnknownLayerError("an observation that is no vector")
        self._actor: list[Layer] = Network(model.actor).layers
        self._q: list[Layer] = Network(model.critic.q).layers
        self._critic = model.critic

    def __call__(self, obs: Array, noise: None = None) -> Array:
        parameters = run(self._actor, obs)
        features = obs.reshape(len(obs), -1)
        if not self._critic.multi_pass:
            values = run(self._q, np.concatenate([features, parameters], axis=1))
            return np.concatenate([values, parameters], axis=1)
        mask = self._critic.mask.numpy().astype(parameters.dtype, copy=False)
        num_choices = len(mask)
        own = (parameters[:, None] * mask).reshape(-1, mask.shape[1])
        every = run(self._q, np.concatenate([features.repeat(num_choices, axis=0), own], axis=1))
        values = every.reshape(-1, num_choices, num_choices).diagonal(axis1=1, axis2=2)
        return np.concatenate([values, parameters], axis=1)


_SPECIAL: dict[type[nn.Module], Callable[[Any], Any]] = {IQN: _expected_of_iqn, FQF: _expected_of_fqf, PDQN: _Choices}


class NumpyGrad:
    """Module run forwards and backwards on live views of its parameters and gradients in `params`.

    Of a VAC, the output is what the actor gives and, in the last column, the value; of a PPG too, whose auxiliary head
    is left out, and its gradient with it. Parameters that were pointed elsewhere are taken back into `params`; a copy,
    deep or in another process, has views of its own. Raises SchemaError for a module that `can_differentiate` refuses,
    from the beginning or later.
    """

    def __init__(self, module: nn.Module, params: FlatParams) -> None:
        self._module = module
        self._params = params
        self._bind()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._module, self._params)

    def _bind(self) -> None:
        self._params.follow()
        self._params.attach_grads()
        if not (can_differentiate(self._module) or is_plain_iqn(self._module)):
            raise SchemaError(
                f"{type(self._module).__name__} is not made of plain layers in float32 on the CPU; use autograd for it "
                "(policy.learn.backend='autograd')"
            )
        self._make_layers({id(p): p.grad.numpy() for p in self._module.parameters() if p.grad is not None})
        self._address = self._params.data_vector.data_ptr()

    def _make_layers(self, grads: dict[int, Array]) -> None:
        self._network = Network(self._module, grads)

    def _follow(self) -> None:
        """Take parameters back that were pointed elsewhere, and make new views where the vectors are new."""
        # What follows keeps the vectors in place; only FlatParams.rebuild makes new ones.
        self._params.follow()
        if self._params.data_vector.data_ptr() != self._address:
            self._bind()

    def forward(self, x: Array, noise: Array | None = None) -> Array:
        """Return the output [B, ...], of a noisy network under one `noise` [P], and keep what `backward` needs."""
        self._follow()
        with np.errstate(all="ignore"):  # values that are not finite are the optimizer's to find
            return self._network.forward(np.asarray(x, np.float32), noise)

    def backward(self, grad: Array) -> None:
        """Overwrite the gradients of all parameters, given that of the loss by the output [B, ...]."""
        with np.errstate(all="ignore"):
            self._network.write_gradients(grad)


def can_differentiate(module: nn.Module) -> bool:
    """Return whether `NumpyGrad` knows every layer of a module, in float32 on the CPU and without hooks."""
    if not can_read(module, torch.float32) or not all(each.requires_grad for each in module.parameters()):
        return False
    try:
        Network(module)
    except UnknownLayerError:
        return False
    return True


class NumpyIQN(NumpyGrad):
    """IQN run forwards and backwards like a `NumpyGrad`; it is one for which `is_plain_iqn` holds.

    B is the batch, N the number of fractions, A that of actions, D the width of the encoder's features. Quantiles are
    [B, N, A] here, as the head's matrix product leaves them.
    """

    def _make_layers(self, grads: dict[int, Array]) -> None:
        model: Any = self._module
        self._encoder, self._head = Network(model.encoder, grads), Network(model.head, grads)
        self._embedding, self._linear = model.embedding, Linear(model.embedding.linear, grads)

    def features(self, obs: Array) -> Array:
        """Return encoded observations [B, D], and keep what `backward` needs."""
        self._follow()
        with np.errstate(all="ignore"):
            return self._encoder.forward(np.asarray(obs, np.float32))

    def quantiles(self, features: Array, fractions: Array) -> Array:
        """Return quantiles [B, N, A] of encoded observations at fractions [B, N], and keep what `backward` needs."""
        rows, number = fractions.shape
        with np.errstate(all="ignore"):
            embedded = self._linear.forward(cosines_of(fractions, self._embedding).reshape(rows * number, -1))
            np.maximum(embedded, 0.0, out=embedded)
            self._features, self._embedded = features[:, None], embedded.reshape(rows, number, -1)
            mixed = self._features * self._embedded
            return self._head.forward(mixed.reshape(rows * number, -1)).reshape(rows, number, -1)

    def backward(self, grad: Array) -> None:
        """Overwrite the gradients of all parameters, given that of the loss by the quantiles [B, N, A] given last."""
        rows, number, actions = grad.shape
        with np.errstate(all="ignore"):
            mixed = self._head.backward(grad.reshape(rows * number, actions)).reshape(rows, number, -1)
            self._encoder.backward(np.add.reduce(mixed * self._embedded, axis=1))
            mixed *= self._features
            mixed *= self._embedded > 0
            self._linear.write_gradients(mixed.reshape(rows * number, -1))


class NumpyProposal(NumpyGrad):
    """Layer that proposes an FQF's fractions, run like a `NumpyGrad`."""

    def widths(self, features: Array) -> Array:
        """Return the widths [B, N] of the parts of [0, 1] that are proposed for encoded observations [B, D]."""
        logits = self.forward(features)
        with np.errstate(all="ignore"):
            logits -= np.maximum.reduce(logits, axis=1, keepdims=True)
            widths: Array = np.exp(logits)
            total = np.add.reduce(widths, axis=1, keepdims=True)
            widths /= total
        # Of what is returned, up to a number for each row; small, and so exact, where widths are nearly equal.
        self.log_widths, self.log_total = logits, np.log(total)
        self._widths = widths
        return widths

    def backward(self, grad: Array) -> None:
        """Overwrite the gradients of all parameters, given that of the loss by the widths [B, N] given last."""
        with np.errstate(all="ignore"):
            weighted = grad * self._widths
            weighted -= self._widths * np.add.reduce(weighted, axis=1, keepdims=True)
        super().backward(weighted)


def is_plain_iqn(module: nn.Module) -> TypeGuard[IQN]:
    """Return whether numpy knows every layer of an IQN, in float32 on the CPU and without hooks."""
    return (
        isinstance(module, IQN)
        and type(module) is IQN
        and can_read(module, torch.float32)
        and all(can_differentiate(part) for part in (module.encoder, module.embedding.linear, module.head))
    )
