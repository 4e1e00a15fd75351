"""Publish weights as files: `{folder}/{policy_id}/{attempt}-{version}.safetensors`, whole or not there.

What is published is all that acting and segmenting need, the state of a policy's collect mode: `flatten_state` makes
one level of tensors of it, which a file holds, and `unflatten_state` brings it back.

Files are written whole but not durably: a power cut may take the newest with it. That loses nothing that counts. The
learner's own saved points are what a run goes on from, and its next attempt publishes before it trains.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from ding_like.comm.rest.wire import check_id
from ding_like.errors import CommError
from ding_like.utils.files import atomic_write
from ding_like.utils.regular_file import read_regular_file

_KEEP = 8  # versions: a collector may be loading one while the next are published
# No more digits than a number of a message may have: what else lies in the folder is not ours.
_NAME = re.compile(r"(\d{1,15})-(\d{1,15})\.safetensors")
_MAX_DEPTH = 16

_MAX_DEPTH = 16

# Behind a key, what a value is that is no tensor. Keys themselves have "~0" and "~1" only, for "~" and "/" (RFC 6901).
_LEAF = re.compile(r"((?:[^~]|~[01])*)(~bool|~int|~float|~array|~empty)?")

FlatState = dict[str, torch.Tensor]


class WeightsGoneError(CommError):
    """Say that weights are not kept any more: newer ones have taken their place."""


class WrittenWeights(NamedTuple):
    sha256: str
    nbytes: int


def flatten_state(state: Mapping[str, Any]) -> FlatState:
    """Return nested mappings as one of tensors, keys joined by "/"; numbers and numpy arrays travel as tensors.

    Tensors are those of `state`, not copies. `unflatten_state` returns equal values of the same types. Raises
    CommError, naming the place, for a value of any other type.
    """
    flat: FlatState = {}
    _flatten(state, "", flat, 0)
    return flat


def unflatten_state(flat: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Return what `flatten_state` was given. Raises CommError for names that it does not make."""
    state: dict[str, Any] = {}
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


def write_weights(
    folder: str | os.PathLike[str], policy_id: str, attempt: int, version: int, state: Mapping[str, torch.Tensor]
) -> WrittenWeights:
    """Write a flat state as a version of its own."""
    path = _path(folder, policy_id, attempt, version)
    # Parameters that share one vector are no file's business: each tensor is saved by itself.
    data = save({name: tensor.detach().cpu().clone().contiguous() for name, tensor in state.items()})
    with atomic_write(path) as file:
        file.write(data)
    return WrittenWeights(hashlib.sha256(data).hexdigest(), len(data))


def prune_weights(folder: str | os.PathLike[str], policy_id: str, keep: Container[tuple[int, int]]) -> None:
    """Delete all but the newest few versions and those to `keep`, pairs (attempt, version).

    Files with other names are somebody else's: they are neither counted nor deleted.
    """
    found = []
    for path in Path(folder, check_id(policy_id, "policy_id")).glob("*.safetensors"):
        name = _NAME.fullmatch(path.name)
        if name is not None:
            found.append(((int(name[1]), int(name[2])), path))
    for order, old in sorted(found)[:-_KEEP]:
        if order not in keep:
            old.unlink(missing_ok=True)


def read_weights(
    folder: str | os.PathLike[str], policy_id: str, attempt: int, version: int, *, sha256: str
) -> FlatState:
    """Return the flat state that was published.

    Raises WeightsGoneError for a file that is missing, CommError for one that is not as announced.
    """
    path = _path(folder, policy_id, attempt, version)
    try:
        data = read_regular_file(path.parent, path.name)
    except FileNotFoundError as error:
        raise WeightsGoneError(f"weights {path.name} of {policy_id} are not there any more.") from error
    except OSError as error:
        raise CommError(f"weights {path.name} of {policy_id} cannot be read: {error.strerror or error}") from error
    if hashlib.sha256(data).hexdigest() != sha256:
        raise CommError(f"weights {path.name} of {policy_id} have another hash than was announced.")
    try:
        return load(data)
    except SafetensorError as error:
        raise CommError(f"weights {path.name} of {policy_id} cannot be parsed: {error}.") from error


def _path(folder: str | os.PathLike[str], policy_id: str, attempt: int, version: int) -> Path:
    name = f"{attempt}-{version}.safetensors"
    if _NAME.fullmatch(name) is None:
        raise CommError(f"attempt {str(attempt)[:40]} and version {str(version)[:40]} name no weights.")
    return Path(folder) / check_id(policy_id, "policy_id") / name
