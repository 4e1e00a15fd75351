"""Small networks differentiated by hand, in numpy, straight into a flat gradient."""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np
import torch
from torch import nn

from ding_like.errors import SchemaError
from ding_like.model.flat_params import FlatParams
from ding_like.model.numpy_forward import cosines_of
from ding_like.model.numpy_layers import Linear, Network, UnknownLayerError, can_read
from ding_like.model.q_networks import IQN
from ding_like.types import Array


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
        grads = {id(p): p.grad.numpy() for p in self._module.parameters() if p.grad is not None}
        if not self._can_bind():
            raise SchemaError(
                f"{type(self._module).__name__} is not made of plain layers in float32 on the CPU; use autograd for it "
                "(policy.learn.backend='autograd')"
            )
        self._make_layers(grads)
        self._address = self._params.data_vector.data_ptr()

    def _can_bind(self) -> bool:
        return can_differentiate(self._module)

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
            self._network.backward(grad)


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

    def _can_bind(self) -> bool:
        return is_plain_iqn(self._module)

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
