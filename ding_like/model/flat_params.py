"""All parameters of a module in one vector, so that what concerns the whole network is one array operation."""

from __future__ import annotations

import copy
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, nn

from ding_like.errors import SchemaError


class FlatParams:
    """One vector of parameters, `data_vector`, and one of gradients, `grad_vector`; a module's are views of them.

    Behind the gradient lies one number more, `loss`: what fills the gradient fills it too, so that a step which must
    not be applied, as its loss is not finite, is known wherever the gradient goes. `grad_and_loss` [P + 1] is both.

    `source` is a module; several go in as one `nn.ModuleDict`. A shared parameter has one place in the vector, a frozen
    one has too and its gradient stays 0, and buffers stay outside. A parameter belongs to one FlatParams: building a
    second over it takes it away from the first.

    In-place changes (optimizer steps, `load_state_dict`, `init_orthogonal`) keep the views. `module.to(...)` and
    `load_state_dict(assign=True)` break them; the next `follow`, which `zero_grad` and every optimizer step call,
    restores them. A new dtype or device needs `rebuild`. The layers themselves must stay the same. A deep copy of this
    object, or of what holds it, has vectors of its own; a deep copy of the module alone needs a FlatParams of its own.

    Raises SchemaError if there are no parameters, or dtypes or devices are mixed.
    """

    def __init__(self, source: nn.Module) -> None:
        self._source = source
        self.rebuild()

    def rebuild(self) -> None:
        """Gather the parameters as they are now, wherever they are, into a new vector; gradients become 0.

        After a move to another device the optimizer's state has to be moved too.
        """
        params = dict(self._source.named_parameters())  # a shared one under the first of its names
        dtype, device = _common_kind(params)
        size = sum(param.numel() for param in params.values())
        self.data_vector = torch.empty(size, dtype=dtype, device=device)
        self.grad_and_loss = torch.zeros(size + 1, dtype=dtype, device=device)
        self.grad_vector, self.loss = self.grad_and_loss[:size], self.grad_and_loss[size]
        self._views = _split(self.data_vector, params)
        self._take(params)

    def follow(self) -> None:
        """Make parameters that were pointed elsewhere views of the vector again, with their new values.

        The vectors stay where they are, and so does the gradient: what holds views of them need not know. Raises
        SchemaError if dtype, device, names or shapes have changed.
        """
        if [owner[name].data_ptr() for owner, name in self._slots] == self._addresses:  # type: ignore[union-attr]
            return
        params = dict(self._source.named_parameters())
        new, old = _common_kind(params), (self.data_vector.dtype, self.data_vector.device)
        shapes = {name: view.shape for name, view in self._views.items()}
        if new != old or {name: param.shape for name, param in params.items()} != shapes:
            was, now = (f"{dtype} on {device}" for dtype, device in (old, new))
            raise SchemaError(
                f"the parameters are no longer views of their FlatParams, and cannot be taken back: {was} was "
                f"laid flat, the module has {now} now, or other layers; undo the cast or move, call rebuild() "
                "after module.to(...), or build the policy again"
            )
        self._take(params)

    def _take(self, params: dict[str, nn.Parameter]) -> None:
        """Make parameters views, and note where they are, for `follow` to see at little cost whether one has left."""
        self._params = params
        for name, param in params.items():
            self._views[name].copy_(param.detach())
            param.grad = None  # torch refuses new data of another dtype or device beside an old gradient
            param.data = self._views[name]
        self.attach_grads()
        # The dicts that hold the parameters, not the parameters: these may be replaced.
        self._slots = parameter_slots(self._source)
        self._addresses = [owner[name].data_ptr() for owner, name in self._slots]  # type: ignore[union-attr]

    def parameters(self) -> list[nn.Parameter]:
        """Return the source's parameters, each once."""
        return list(self._params.values())

    def zero_grad(self) -> None:
        """Set all gradients to 0 in place, and attach them again if something like `module.zero_grad()` dropped them.

        Parameters that have left the vector come back into it, or SchemaError is raised: see `follow`. Otherwise
        nothing would be trained, silently.
        """
        self.follow()
        # A module drops all gradients together, so a look at the first one, at offset 0, is enough here.
        grad = next(iter(self._params.values())).grad
        if grad is None or grad.data_ptr() != self.grad_vector.data_ptr():
            self.attach_grads()
        self.grad_vector.zero_()

    def backward(self, loss: Tensor) -> Tensor:
        """Fill the gradients of these parameters, of no others that `loss` (0-dim) went through; return it detached."""
        self.zero_grad()
        trained = [each for each in self._params.values() if each.requires_grad]
        loss.backward(inputs=trained)  # type: ignore[no-untyped-call]  # torch gives it no types
        self.loss.copy_(loss.detach())
        return loss.detach()

    def copy_from(self, other: FlatParams) -> None:
        """Copy all values of `other`; SchemaError if its layout differs."""
        self._follow_both(other)
        self.data_vector.copy_(other.data_vector)

    def lerp_from(self, other: FlatParams, theta: float) -> None:
        """Move a share `theta` of the way to the values of `other`; SchemaError if its layout differs."""
        self._follow_both(other)
        self.data_vector.lerp_(other.data_vector, theta)

    def __deepcopy__(self, memo: dict[int, Any]) -> FlatParams:
        """Copy the source through `memo`, so that a model copied along fits."""
        twin = object.__new__(type(self))
        memo[id(self)] = twin
        twin._source = copy.deepcopy(self._source, memo)
        twin.rebuild()
        # The copy may be made between a gradient and its step.
        twin.grad_and_loss.copy_(self.grad_and_loss)
        return twin

    def attach_grads(self) -> None:
        """Make every parameter's gradient a view of the vector again, if something dropped it; values stay."""
        # Afresh: a cast of the module points the tensors that were its gradients elsewhere.
        for param, grad in zip(self._params.values(), _split(self.grad_vector, self._params).values(), strict=True):
            param.grad = grad

    def _follow_both(self, other: FlatParams) -> None:
        self.follow()
        other.follow()
        mine, theirs = _layout(self._views), _layout(other._views)
        if mine != theirs:
            here, there = next(pair for pair in zip_longest(mine, theirs) if pair[0] != pair[1])
            raise SchemaError(
                f"two FlatParams differ in layout: {here} here, {there} there; "
                "only networks built from the same model config can be copied into each other"
            )


def parameter_slots(source: nn.Module) -> list[tuple[dict[str, nn.Parameter | None], str]]:
    """Return the dict that holds each parameter, and its key there."""
    return [
        (layer._parameters, name)
        for layer in source.modules()
        for name, param in layer._parameters.items()
        if param is not None
    ]


def _common_kind(params: dict[str, nn.Parameter]) -> tuple[torch.dtype, torch.device]:
    """Return the dtype and device that all parameters share."""
    examples: dict[tuple[torch.dtype, torch.device], str] = {}
    for name, param in params.items():
        examples.setdefault((param.dtype, param.device), name)
    if not examples:
        raise SchemaError("there are no parameters to lay flat; give a module with at least one layer")
    if len(examples) > 1:
        seen = ", ".join(f"{name} is {dtype} on {device}" for (dtype, device), name in examples.items())
        raise SchemaError(f"parameters of one FlatParams share a dtype and a device, but {seen}; build one for each")
    return next(iter(examples))


def _split(vector: Tensor, params: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    """Return a view of `vector` for each parameter, in its shape and memory order."""
    views = {}
    offset = 0
    for name, param in params.items():
        chunk = vector[offset : offset + param.numel()]
        offset += param.numel()
        if param.dim() == 4 and not param.is_contiguous() and param.is_contiguous(memory_format=torch.channels_last):
            count, channels, height, width = param.shape
            views[name] = chunk.view(count, height, width, channels).permute(0, 3, 1, 2)
        else:
            views[name] = chunk.view(param.shape)
    return views


def _layout(views: dict[str, Tensor]) -> list[str]:
    return [f"{name} {tuple(view.shape)} strides {view.stride()}" for name, view in views.items()]
