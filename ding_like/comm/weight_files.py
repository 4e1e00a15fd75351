"""Publish weights as files: `{folder}/{policy_id}/{attempt}-{version}.safetensors`, whole or not there."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Container, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from ding_like.comm.wire import check_id
from ding_like.errors import CommError
from ding_like.utils.files import atomic_write

_KEEP = 8  # versions: a collector may be loading one while the next are published


class WrittenWeights(NamedTuple):
    sha256: str
    nbytes: int


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
    """Delete all but the newest few versions and those to `keep`, pairs (attempt, version)."""
    found = sorted(Path(folder, check_id(policy_id, "policy_id")).glob("*.safetensors"), key=_order)
    for old in found[:-_KEEP]:
        if _order(old) not in keep:
            old.unlink(missing_ok=True)


def read_weights(
    folder: str | os.PathLike[str], policy_id: str, attempt: int, version: int, *, sha256: str
) -> dict[str, torch.Tensor]:
    """Return the state that was published. Raises CommError for a file that is missing or not as announced."""
    path = _path(folder, policy_id, attempt, version)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CommError(f"weights {path.name} of {policy_id} cannot be read: {error.strerror}") from error
    if hashlib.sha256(data).hexdigest() != sha256:
        raise CommError(f"weights {path.name} of {policy_id} have another hash than was announced.")
    try:
        return load(data)
    except SafetensorError as error:
        raise CommError(f"weights {path.name} of {policy_id} cannot be parsed: {error}.") from error


def _path(folder: str | os.PathLike[str], policy_id: str, attempt: int, version: int) -> Path:
    return Path(folder) / check_id(policy_id, "policy_id") / f"{attempt}-{version}.safetensors"


def _order(path: Path) -> tuple[int, int]:
    attempt, _, version = path.stem.partition("-")
    return (int(attempt), int(version))
