"""Flatten a policy's state to tensors by name, which any transport carries, and restore it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ding_like.errors import CommError
from ding_like.types import Config, State

_MAX_DEPTH = 16

# Behind a key, what a value is that is no tensor. Keys themselves have "~0" and "~1" only, for "~" and "/" (RFC 6901).
_LEAF = re.compile(r"((?:[^~]|~[01])*)(~bool|~int|~float|~array|~empty)?")

FlatState = dict[str, torch.Tensor]


def flatten_state(state: Config) -> FlatState:
    """Return nested mappings as one of tensors, keys joined by "/"; numbers and numpy arrays travel as tensors.

    Tensors are those of `state`, not copies. `unflatten_state` returns equal values of the same types. Raises
    CommError, naming the place, for a value of any other type.
    """
    flat: FlatState = {}
    _flatten(state, "", flat, 0)
    return flat


def unflatten_state(flat: Mapping[str, torch.Tensor]) -> State:
    """Return what `flatten_state` was given. Raises CommError for names that it does not make."""
    state: State = {}
    for name, tensor in flat.items():
        *parents, last = name.split("/")
        leaf = _LEAF.fullmatch(last)
        if leaf is None or len(parents) > _MAX_DEPTH:
            raise CommError(f"weights have a value with the name {name[:80]!r}, which no state is saved under.")
        target = state
        for parent in parents:
            target = target.setdefault(_unescape(parent), {})
            if not isinstance(target, dict):
                raise CommError(f"weights have a value {parent[:80]!r} and others below it: {name[:80]!r}.")
        target[_unescape(leaf[1])] = _value(tensor, leaf[2] or "", name)
    return state


def _flatten(value: Any, name: str, flat: FlatState, depth: int) -> None:
    if isinstance(value, torch.Tensor):
        flat[name] = value
    elif isinstance(value, Mapping) and depth <= _MAX_DEPTH:
        if not value and name:
            flat[f"{name}~empty"] = torch.zeros(0)
        for key, inner in value.items():
            if not isinstance(key, str):
                raise CommError(f"the state of a policy has the key {key!r} in {name or 'it'!r}; expected a text.")
            escaped = key.replace("~", "~0").replace("/", "~1")
            _flatten(inner, f"{name}/{escaped}" if depth else escaped, flat, depth + 1)
    elif isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        flat[f"{name}~array"] = torch.from_numpy(np.array(value))
    elif isinstance(value, (bool, np.bool_)):
        flat[f"{name}~bool"] = torch.tensor(bool(value))
    elif isinstance(value, (int, np.integer)) and abs(int(value)) < 2**63:
        flat[f"{name}~int"] = torch.tensor(int(value), dtype=torch.int64)
    elif isinstance(value, (float, np.floating)):
        flat[f"{name}~float"] = torch.tensor(float(value), dtype=torch.float64)
    else:
        raise CommError(
            f"the collect mode's state has a {type(value).__name__} at {name!r}, which cannot be published: give "
            "tensors, numpy arrays of numbers, numbers, or dicts of these."
        )


def _value(tensor: torch.Tensor, kind: str, name: str) -> Any:
    if not kind:
        return tensor
    if kind == "~array":
        return tensor.numpy()
    if kind == "~empty":
        return {}
    if tensor.ndim:
        raise CommError(f"weights have {list(tensor.shape)} values in place of the number {name[:80]!r}.")
    return {"~bool": bool, "~int": int, "~float": float}[kind](tensor.item())


def _unescape(key: str) -> str:
    return key.replace("~1", "/").replace("~0", "~")
