"""Publish weights as files: `{folder}/{policy_id}/{attempt}-{version}.safetensors`, whole or not there.

What is published is all that acting and segmenting need, the state of a policy's collect mode, flattened by
`flatten_state`.

Files are written whole but not durably: a power cut may take the newest with it. That loses nothing that counts. The
learner's own saved points are what a run goes on from, and its next attempt publishes before it trains.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Container, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from ding_like.comm.flat_state import FlatState
from ding_like.comm.rest.wire import check_id
from ding_like.errors import CommError
from ding_like.utils.files import atomic_write
from ding_like.utils.regular_file import read_regular_file

_KEEP = 8  # versions: a collector may be loading one while the next are published
# No more digits than a number of a message may have: what else lies in the folder is not ours.
_NAME = re.compile(r"(\d{1,15})-(\d{1,15})\.safetensors")


class WeightsGoneError(CommError):
    """Say that weights are not kept any more: newer ones have taken their place."""


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
    """Delete all but the newest few versions and those to `keep`, pairs (attempt, version).

    Files with other names are not ours: they are neither counted nor deleted.
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
