"""Extract weights as tensors by name from modules, dicts and TensorDicts, and load them back in place.

Sources and targets are a `torch.nn.Module`, a policy's collect mode or another object with `state_dict` (and, as a
target, `load_state_dict`), dicts of tensors, numpy arrays and numbers, nested ones too, and a TensorDict. The package
`tensordict` is not needed: an object with its documented methods counts as one. A `TensorDictModule` and a
`TensorDictParams` are modules.

Names are those of `flat_state.flatten_state`. A TensorDict's nested keys are joined by ".", as its own `state_dict`
does, so that `TensorDict.from_module(module)` and `module` have the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch

from ding_like.comm.flat_state import FlatState, flatten_state, unflatten_state
from ding_like.comm.weights.encode import check_alike, kinds_of
from ding_like.errors import CommError


def state_of(source: object) -> FlatState:
    """Return all weights of a source by name; tensors are the source's own, not copies, and need no gradient.

    Raises CommError for a source of another kind, or a value in it that cannot be sent.
    """
    if _is_tensordict(source):
        state: Mapping[str, Any] = _leaves(source)
    elif isinstance(source, Mapping):
        state = source
    elif callable(state_dict := getattr(source, "state_dict", None)):
        state = state_dict()
    else:
        raise CommError(
            f"weights cannot be taken from a {type(source).__name__}: give a torch.nn.Module, a state dict, a dict of "
            "tensors or numpy arrays, a TensorDict, or an object with a method state_dict."
        )
    return {name: tensor.detach() for name, tensor in flatten_state(state).items()}


def load_into(target: object, state: Mapping[str, torch.Tensor]) -> None:
    """Put weights into a target, in place: its tensors and arrays keep their memory.

    Names, shapes and dtypes are compared first, so that nothing is changed if any differs: CommError names the first.
    """
    check_alike(kinds_of(state_of(target)), kinds_of(state))
    if _is_tensordict(target):
        _fill(_leaves(target), unflatten_state(state))
    elif isinstance(target, Mapping):
        _fill(target, unflatten_state(state))
    elif callable(load_state_dict := getattr(target, "load_state_dict", None)):
        load_state_dict(unflatten_state(state))
    else:
        raise CommError(
            f"weights cannot be put into a {type(target).__name__}: it has no method load_state_dict. Give a module, a "
            "dict or a TensorDict."
        )


def named_like(names: Collection[str], state: Mapping[str, torch.Tensor]) -> FlatState:
    """Return a state renamed to `names` if its own names differ only by "/" for "."; else unchanged.

    "0/weight" of a nested dict is "0.weight" of a module. Two names that differ only by that are ambiguous: then
    nothing is renamed.
    """
    if state.keys() == set(names):
        return dict(state)
    wanted = {name.replace("/", "."): name for name in names}
    own = {name.replace("/", "."): name for name in state}
    if wanted.keys() != own.keys() or len(wanted) != len(names) or len(own) != len(state):
        return dict(state)
    return {wanted[joined]: state[name] for joined, name in own.items()}


def _is_tensordict(source: object) -> bool:
    """Return whether a source has what the documentation of TensorDictBase promises, which no dict or module has."""
    return all(callable(getattr(source, name, None)) for name in ("flatten_keys", "unflatten_keys", "items"))


def _leaves(source: Any) -> dict[str, torch.Tensor]:  # Any: a TensorDict, of a package that need not be there
    """Return the tensors of a TensorDict by their keys, joined by "."."""
    leaves: dict[str, torch.Tensor] = {}
    for key, value in source.items(include_nested=True, leaves_only=True):
        name = key if isinstance(key, str) else ".".join(key)
        if name in leaves:
            raise CommError(f"the TensorDict has two entries with the name {name!r}, their keys joined by '.'.")
        if not isinstance(value, torch.Tensor):
            raise CommError(f"the TensorDict has a {type(value).__name__} at {name!r}; only tensors are weights.")
        leaves[name] = value
    return leaves


def _fill(target: Any, values: Mapping[str, Any]) -> None:  # Any: a dict, of values of several kinds
    """Copy values into the tensors and arrays of a nested dict; numbers are replaced."""
    for key, value in values.items():
        own = target[key]
        if isinstance(own, Mapping):
            _fill(own, value)
        elif isinstance(own, torch.Tensor):
            with torch.no_grad():
                own.copy_(value)
        elif isinstance(own, np.ndarray):
            np.copyto(own, value)
        else:
            target[key] = value
