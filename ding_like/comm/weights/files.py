"""Write and read published weights: `{folder}/{policy_id}/{attempt}-{version}.safetensors`, replaced as a whole.

A file holds the whole state of a policy's collect mode, all that acting and making segments need, flattened by
`flatten_state` and encoded by `encode.py`. The safetensors library opens it.

Files are written whole but not durably: a power cut may take the newest with it. That loses nothing: a run resumes from
the learner's own saved points, and its next attempt publishes before it trains.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Container
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ding_like.comm.channels import Version
from ding_like.comm.flat_state import FlatState
from ding_like.comm.rest.wire import check_id
from ding_like.comm.weights.encode import Encoded, decode, name_of
from ding_like.errors import CommError
from ding_like.utils.files import atomic_write, read_regular_file

_KEEP = 8  # versions: a collector may be loading one while the next are published
# No more digits than a number of a message may have: other files in the folder are not ours.
_NAME = re.compile(r"(\d{1,15})-(\d{1,15})\.safetensors")


class WeightsGoneError(CommError):
    """Weights that were deleted because newer ones were published."""


class WrittenWeights(NamedTuple):
    """Hash and length of a file, as they are announced."""

    sha256: str
    nbytes: int


def write_weights(folder: str | os.PathLike[str], encoded: Encoded) -> WrittenWeights:
    """Write encoded weights as a file of their own; return its hash and length, to announce."""
    policy_id, version = name_of(encoded)
    with atomic_write(weights_file(folder, policy_id, *version)) as file:
        file.write(encoded.data)
    return WrittenWeights(hashlib.sha256(encoded.data).hexdigest(), encoded.size)


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
    path = weights_file(folder, policy_id, attempt, version)
    called = f"weights {path.name} of {policy_id}"
    try:
        data = read_regular_file(path.parent, path.name)
    except FileNotFoundError as error:
        raise WeightsGoneError(f"{called} are not there any more.") from error
    except OSError as error:
        raise CommError(f"{called} cannot be read: {error.strerror or error}") from error
    if hashlib.sha256(data).hexdigest() != sha256:
        raise CommError(f"{called} have another hash than was announced: the file was changed or damaged.")
    try:
        weights = decode(np.frombuffer(data, np.uint8))
    except CommError as error:
        raise CommError(f"{called} cannot be parsed: {error}") from error
    if weights[:2] != (policy_id, Version(attempt, version)):
        raise CommError(f"{called} cannot be parsed: they are {weights.policy_id[:80]!r}, version {weights.version}.")
    return dict(weights.state)


def weights_file(folder: str | os.PathLike[str], policy_id: str, attempt: int, version: int) -> Path:
    """Return where weights are. Raises CommError for numbers that name none."""
    name = f"{attempt}-{version}.safetensors"
    if _NAME.fullmatch(name) is None:
        raise CommError(f"attempt {str(attempt)[:40]} and version {str(version)[:40]} name no weights.")
    return Path(folder) / check_id(policy_id, "policy_id") / name
