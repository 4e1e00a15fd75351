"""Run implicit quantile networks in numpy, forwards and backwards, straight into a flat gradient.

As in `numpy_grad.py`: around small networks autograd spends more time on bookkeeping than on arithmetic. B is the
batch, N the number of fractions, A that of actions, D the width of the encoder's features. Quantiles are [B, N, A]
here, as the head's matrix product leaves them.
"""

from __future__ import annotations

from math import pi
from typing import Any, TypeGuard

import numpy as np
from torch import nn

from ding_like.errors import SchemaError
from ding_like.model.flat_params import FlatParams
from ding_like.model.iqn import IQN
from ding_like.model.numpy_grad import NumpyGrad, can_differentiate
from ding_like.types import Array


class NumpyIQN:
    """Run an IQN on live views of its parameters and gradients in `params`.

    Parameters that were pointed elsewhere are taken back into `params`; a copy, deep or in another process, has views
    of its own. Raises SchemaError for a module that `is_plain_iqn` refuses, from the beginning or later.
    """

    def __init__(self, module: IQN, params: FlatParams) -> None:
        self._module = module
        self._params = params
        self._bind()

    def _bind(self) -> None:
        module, params = self._module, self._params
        if not is_plain_iqn(module):
            raise SchemaError(
                f"{type(module).__name__} is not made of plain layers in float32 on the CPU; use autograd for it "
                "(policy.learn.backend='autograd')"
            )
        params.follow()
        params.attach_grads()
        self._encoder, self._head = NumpyGrad(module.encoder, params), NumpyGrad(module.head, params)
        linear = module.embedding.linear
        assert linear.weight.grad is not None and linear.bias.grad is not None, "gradients are attached"
        self._weight, self._bias = linear.weight.detach().numpy(), linear.bias.detach().numpy()
        self._weight_grad, self._bias_grad = linear.weight.grad.numpy(), linear.bias.grad.numpy()
        self._frequencies = pi * np.arange(module.embedding.num_cosines, dtype=np.float32)
        self._address = params.data_vector.data_ptr()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._module, self._params)

    def features(self, obs: Array) -> Array:
        """Return encoded observations [B, D], and keep what `backward` needs."""
        self._params.follow()
        if self._params.data_vector.data_ptr() != self._address:
            self._bind()
        return self._encoder.forward(obs)

    def quantiles(self, features: Array, fractions: Array) -> Array:
        """Return quantiles [B, N, A] of encoded observations at fractions [B, N], and keep what `backward` needs."""
        rows, number = fractions.shape
        with np.errstate(all="ignore"):  # values that are not finite are the optimizer's to find
            self._cosines = np.cos(fractions.reshape(-1, 1) * self._frequencies)
            embedded = self._cosines.dot(self._weight.T)
            embedded += self._bias
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
            embedded = mixed.reshape(rows * number, -1)
            np.dot(embedded.T, self._cosines, out=self._weight_grad)
            np.add.reduce(embedded, axis=0, out=self._bias_grad)


class NumpyProposal:
    """Run the layer that proposes an FQF's fractions, its gradients in `params`; else like NumpyIQN."""

    def __init__(self, module: nn.Module, params: FlatParams) -> None:
        self._layer = NumpyGrad(module, params)

    def widths(self, features: Array) -> Array:
        """Return the widths [B, N] of the parts of [0, 1] that are proposed for encoded observations [B, D]."""
        logits = self._layer.forward(features)
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
        self._layer.backward(weighted)


def is_plain_iqn(module: nn.Module) -> TypeGuard[IQN]:
    """Tell whether numpy knows every layer of an IQN, in float32 on the CPU and without hooks."""
    if type(module) is not IQN:
        return False
    hooked = any(part._forward_hooks or part._forward_pre_hooks for part in (module, module.embedding))
    return not hooked and all(
        can_differentiate(part) for part in (module.encoder, module.embedding.linear, module.head)
    )
