"""All parameters of a module in one vector, so that what concerns the whole network is one array operation."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, nn

from ding_like.errors import SchemaError


class FlatParams:
    """One vector of parameters, `data_vector`, and one of gradients, `grad_vector`; a module's are views of them.

    Behind the gradient lies one number more, `loss`: what fills the gradient fills it too, so that a step which must
    not be applied, as its loss is not finite, is known wherever the gradient goes. `grad_and_loss` [P + 1] is both.

    `source` is a module, or (name, parameter) pairs for a choice of its parameters; several modules go in as one
    `nn.ModuleDict`. A shared parameter has one place in the vector, a frozen one has too and its gradient stays 0, and
    buffers stay outside. A parameter belongs to one FlatParams: building a second over it takes it away from the first.

    In-place changes (optimizer steps, `load_state_dict`, `init_orthogonal`) keep the views. `module.to(...)` and
    `load_state_dict(assign=True)` break them; the next `follow`, which `zero_grad` and every optimizer step call,
    restores them. A new dtype or device needs `rebuild`. The layers themselves must stay the same. A deep copy of this
    object, or of what holds it, has vectors of its own; a deep copy of the module alone needs a FlatParams of its own.

    Raises SchemaError if there are no parameters, a name comes twice, or dtypes or devices are mixed.
    """

    def __init__(self, source: nn.Module | Iterable[tuple[str, nn.Parameter]]) -> None:
        self._source = source if isinstance(source, nn.Module) else list(source)
        self._flat = nn.Parameter(torch.empty(0))
        self.rebuild()

    def rebuild(self) -> None:
        """Gather the parameters as they are now, wherever they are, into a new vector; gradients become 0.

        `as_parameter` keeps its identity, so an optimizer goes on with it; after a move to another device the
        optimizer's state has to be moved too.
        """
        self._params = _unique_params(self._source)
        dtype, device = _common_kind(self._params)
        size = sum(param.numel() for param in self._params.values())
        self.data_vector = torch.empty(size, dtype=dtype, device=device)
        self.grad_and_loss = torch.zeros(size + 1, dtype=dtype, device=device)
        self.grad_vector, self.loss = self.grad_and_loss[:size], self.grad_and_loss[size]
        self._views = _split(self.data_vector, self._params)
        for name, param in self._params.items():
            self._views[name].copy_(param.detach())
            param.grad = None  # torch refuses new data of another dtype or device beside an old gradient
            param.data = self._views[name]
        self.attach_grads()
        self._flat.grad = None
        self._flat.data = self.data_vector
        self._flat.grad = self.grad_vector
        self._remember()

    def follow(self) -> bool:
        """Make parameters that were pointed elsewhere views of the vector again, with their new values.

        Returns whether there were any. The vectors stay where they are, and so does the gradient: what holds views of
        them need not know. Raises SchemaError if dtype, device, names or shapes have changed.
        """
        if [owner[name].data_ptr() for owner, name in self._slots] == self._addresses:  # type: ignore[union-attr]
            return False
        params = _unique_params(self._source)
        new, old = _common_kind(params), (self.data_vector.dtype, self.data_vector.device)
        if new != old or {name: param.shape for name, param in params.items()} != self._shapes:
            raise SchemaError(
                f"the parameters are no longer views of their FlatParams, and cannot be taken back: {_said(old)} was "
                f"laid flat, the module has {_said(new)} now, or other layers; undo the cast or move, call rebuild() "
                "after module.to(...), or build the policy again"
            )
        self._params = params
        for name, param in params.items():
            self._views[name].copy_(param.detach())
            param.grad = None
            param.data = self._views[name]
        self.attach_grads()
        self._remember()
        return True

    def _remember(self) -> None:
        """Note where the parameters are, for `follow` to see at little cost whether one has left."""
        # The dicts that hold the parameters, not the parameters: these may be replaced.
        self._slots = parameter_slots(self._source)
        self._addresses = [owner[name].data_ptr() for owner, name in self._slots]  # type: ignore[union-attr]
        self._shapes = {name: param.shape for name, param in self._params.items()}

    def parameters(self) -> list[nn.Parameter]:
        """Return the source's parameters, each once."""
        return list(self._params.values())

    def as_parameter(self) -> nn.Parameter:
        """Return the whole vector as one parameter, whose gradient is `grad_vector`: what an optimizer takes."""
        return self._flat

    def named(self) -> dict[str, Tensor]:
        """Return a live view of every parameter by its dotted name."""
        return dict(self._views)

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

    def copy_from(self, other: FlatParams) -> None:
        """Copy all values of `other`; SchemaError if its layout differs."""
        self._follow_both(other)
        self.data_vector.copy_(other.data_vector)

    def lerp_from(self, other: FlatParams, theta: float) -> None:
        """Move a share `theta` of the way to the values of `other`; SchemaError if its layout differs."""
        self._follow_both(other)
        self.data_vector.lerp_(other.data_vector, theta)

    def is_intact(self) -> bool:
        """Tell whether the source's parameters and gradients, all of them, are still views of the vectors."""
        params = _unique_params(self._source)
        return params.keys() == self._params.keys() and all(
            param.data_ptr() == self._views[name].data_ptr()
            and param.grad is not None
            and param.grad.data_ptr() == self._grads[name].data_ptr()
            for name, param in params.items()
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> FlatParams:
        """Copy the source and the flat parameter through `memo`, so that a model or optimizer copied along fits."""
        twin = object.__new__(type(self))
        memo[id(self)] = twin
        twin._source = copy.deepcopy(self._source, memo)
        twin._flat = copy.deepcopy(self._flat, memo)
        twin.rebuild()
        # The copy may be made between a gradient and its step.
        twin.grad_and_loss.copy_(self.grad_and_loss)
        return twin

    def attach_grads(self) -> None:
        """Make every parameter's gradient a view of the vector again, if something dropped it; values stay."""
        # Afresh: a cast of the module points the tensors that were its gradients elsewhere.
        self._grads = _split(self.grad_vector, self._params)
        for name, param in self._params.items():
            param.grad = self._grads[name]

    def _follow_both(self, other: FlatParams) -> None:
        self.follow()
        other.follow()
        self._check_layout(other)

    def _check_layout(self, other: FlatParams) -> None:
        mine, theirs = _layout(self._views), _layout(other._views)
        if mine != theirs:
            here, there = next(pair for pair in zip_longest(mine, theirs) if pair[0] != pair[1])
            raise SchemaError(
                f"two FlatParams differ in layout: {here} here, {there} there; "
                "only networks built from the same model config can be copied into each other"
            )


def _unique_params(source: nn.Module | list[tuple[str, nn.Parameter]]) -> dict[str, nn.Parameter]:
    """Return each parameter once, under the first of its names."""
    found: dict[str, nn.Parameter] = {}
    seen: set[int] = set()
    for name, param in source.named_parameters() if isinstance(source, nn.Module) else source:
        if id(param) in seen:
            continue
        if name in found:
            raise SchemaError(f"two parameters are called '{name}'; put the modules into one nn.ModuleDict")
        seen.add(id(param))
        found[name] = param
    return found


def parameter_slots(
    source: nn.Module | list[tuple[str, nn.Parameter]],
) -> list[tuple[dict[str, nn.Parameter | None], str]]:
    """Return the dict that holds each parameter, and its key there."""
    if not isinstance(source, nn.Module):
        return [({name: param}, name) for name, param in source]
    return [
        (layer._parameters, name)
        for layer in source.modules()
        for name, param in layer._parameters.items()
        if param is not None
    ]


def _said(kind: tuple[torch.dtype, torch.device]) -> str:
    return f"{kind[0]} on {kind[1]}"


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
        views[name] = _shaped_like(param, vector[offset : offset + param.numel()])
        offset += param.numel()
    return views


def _shaped_like(param: Tensor, chunk: Tensor) -> Tensor:
    if param.dim() == 4 and not param.is_contiguous() and param.is_contiguous(memory_format=torch.channels_last):
        count, channels, height, width = param.shape
        return chunk.view(count, height, width, channels).permute(0, 3, 1, 2)
    return chunk.view(param.shape)


def _layout(views: dict[str, Tensor]) -> list[str]:
    return [f"{name} {tuple(view.shape)} strides {view.stride()}" for name, view in views.items()]
