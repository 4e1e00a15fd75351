"""Publish weights as files: `{folder}/{policy_id}/{attempt}-{version}.safetensors`, whole or not there.

What is published is all that acting and segmenting need, the state of a policy's collect mode, flattened by
`flatten_state`. A file is one that the safetensors library opens: one tensor, a vector, for each dtype that travels,
and in its metadata which weights these are and where each tensor stands in the vectors. There is one way to write
given weights, so a reader compares a file's head byte for byte with the one that it would have written itself.

Files are written whole but not durably: a power cut may take the newest with it. That loses nothing that counts. The
learner's own saved points are what a run goes on from, and its next attempt publishes before it trains.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Container
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ding_like.comm.channels import Version
from ding_like.comm.flat_state import FlatState
from ding_like.comm.rest.wire import check_id
from ding_like.comm.weights.encode import ALIGNED, DTYPES, Encoded, Layout, head_of, parse_head
from ding_like.errors import CommError
from ding_like.utils.files import atomic_write
from ding_like.utils.regular_file import read_regular_buffer

_KEEP = 8  # versions: a collector may be loading one while the next are published
# No more digits than a number of a message may have: what else lies in the folder is not ours.
_NAME = re.compile(r"(\d{1,15})-(\d{1,15})\.safetensors")
# As safetensors says what a tensor is.
_FORMAT_NAMES = {
    **{"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "bool": "BOOL"},
    **{f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)},
}
_LENGTH = 8  # bytes that say how long the JSON behind them is
_METADATA = "ding_like.weights"


class WeightsGoneError(CommError):
    """Say that weights are not kept any more: newer ones have taken their place."""


class WrittenWeights(NamedTuple):
    sha256: str
    nbytes: int


def write_weights(folder: str | os.PathLike[str], encoded: Encoded) -> WrittenWeights:
    """Write encoded weights as a file of their own; return what is announced of it."""
    policy_id, version, layout = parse_head(encoded.head)
    path = _path(folder, policy_id, *version)
    head, body = _file_head(policy_id, version, layout), encoded.body.data
    with atomic_write(path) as file:
        file.write(head)
        file.write(body)
    digest = hashlib.sha256(head)
    digest.update(body)
    return WrittenWeights(digest.hexdigest(), len(head) + len(body))


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
        data = read_regular_buffer(path.parent, path.name)
    except FileNotFoundError as error:
        raise WeightsGoneError(f"weights {path.name} of {policy_id} are not there any more.") from error
    except OSError as error:
        raise CommError(f"weights {path.name} of {policy_id} cannot be read: {error.strerror or error}") from error
    if hashlib.sha256(data).hexdigest() != sha256:
        raise CommError(f"weights {path.name} of {policy_id} have another hash than was announced.")
    try:
        return _parse(data, policy_id, Version(attempt, version))
    except CommError as error:
        raise CommError(f"weights {path.name} of {policy_id} cannot be parsed: {error}") from error


def _file_head(policy_id: str, version: Version, layout: Layout) -> bytes:
    """Return what a file has before the body: a length, and JSON that ends where a vector may begin.

    The format allows no bytes that belong to no tensor, so a vector includes those up to the next one.
    """
    vectors: dict[str, Any] = {  # Any: of JSON
        "__metadata__": {_METADATA: json.dumps(head_of(policy_id, version, layout), separators=(",", ":"))}
    }
    starts = [start for _, start, _ in layout.vectors]
    for (dtype, start, _), end in zip(layout.vectors, [*starts, layout.nbytes][1:], strict=True):
        numbers = (end - start) // DTYPES[dtype].itemsize
        vectors[dtype] = {"dtype": _FORMAT_NAMES[dtype], "shape": [numbers], "data_offsets": [start, end]}
    text = json.dumps(vectors, separators=(",", ":")).encode()
    text += b" " * (-(_LENGTH + len(text)) % ALIGNED)
    return len(text).to_bytes(_LENGTH, "little") + text


def _parse(data: bytearray, policy_id: str, version: Version) -> FlatState:
    """Return the state in a file's bytes, as views of them. Raises CommError unless it is `version` of `policy_id`."""
    length = int.from_bytes(data[:_LENGTH], "little")
    if len(data) < _LENGTH + length:
        raise CommError(f"its head is to have {length:,} bytes, of {len(data):,} in all.")
    try:
        text = json.loads(data[_LENGTH : _LENGTH + length], parse_constant=_refuse)["__metadata__"][_METADATA]
        head = json.loads(text, parse_constant=_refuse)
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise CommError(f"its head does not describe weights ({type(error).__name__}: {error}).") from error
    found_id, found, layout = parse_head(head)
    if (found_id, found) != (policy_id, version):
        raise CommError(f"they are version {found[0]}-{found[1]} of {found_id[:80]!r}.")
    start = _LENGTH + length
    if data[:start] != _file_head(found_id, found, layout):
        raise CommError("its head is not the one that such weights are written with.")
    return layout.read(np.frombuffer(data, np.uint8)[start:])


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _path(folder: str | os.PathLike[str], policy_id: str, attempt: int, version: int) -> Path:
    name = f"{attempt}-{version}.safetensors"
    if _NAME.fullmatch(name) is None:
        raise CommError(f"attempt {str(attempt)[:40]} and version {str(version)[:40]} name no weights.")
    return Path(folder) / check_id(policy_id, "policy_id") / name
