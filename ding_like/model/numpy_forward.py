"""Small networks run in numpy, on live views of their torch parameters.

At a batch of 8 rows most of a small network's time in torch is overhead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from ding_like.errors import SchemaError
from ding_like.model.encoder import FlatPart
from ding_like.model.flat_params import parameter_slots
from ding_like.model.head import DiscreteHead
from ding_like.model.numpy_layers import Layer, Linear, Network, UnknownLayerError, can_read, run
from ding_like.model.q_networks import FQF, IQN, CosineEmbedding
from ding_like.model.qac import PDQN
from ding_like.types import Array

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
            self._run = Network(self._module).forward if special is None else special(self._module)
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
        expected: Array = np.matmul(weights[:, None], values)[:, 0]
        return expected


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


_SPECIAL: dict[type[nn.Module], Callable[[Any], Any]] = {
    IQN: _expected_of_iqn,
    FQF: _expected_of_fqf,
    PDQN: _Choices,
}
