"""Write and read published weights: `{folder}/{policy_id}/{attempt}-{version}.safetensors`, replaced as a whole.

A file holds the whole state of a policy's collect mode, all that acting and making segments need, flattened by
`flatten_state`. The safetensors library opens it: one tensor, a vector, for each dtype that is sent, and in its
metadata which weights these are and where each tensor stands in the vectors. There is one way to write given weights,
so a reader compares a file's head byte for byte with the one that it would have written itself.

Files are written whole but not durably: a power cut may take the newest with it. That loses nothing: a run goes on from
the learner's own saved points, and its next attempt publishes before it trains.
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
# No more digits than a number of a message may have: other files in the folder are not ours.
_NAME = re.compile(r"(\d{1,15})-(\d{1,15})\.safetensors")
# Names of dtypes in safetensors.
_FORMAT_NAMES = {
    **{"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "bool": "BOOL"},
    **{f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)},
}
_LENGTH = 8  # bytes that say how long the JSON behind them is
_METADATA = "ding_like.weights"


class WeightsGoneError(CommError):
    """Report weights that were deleted because newer ones were published."""


class WrittenWeights(NamedTuple):
    """Hold what is announced of a file: its hash and length."""

    sha256: str
    nbytes: int


def write_weights(folder: str | os.PathLike[str], encoded: Encoded) -> WrittenWeights:
    """Write encoded weights as a file of their own; return its hash and length, to announce."""
    policy_id, version, layout = parse_head(encoded.head)
    path = weights_file(folder, policy_id, *version)
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
    path = weights_file(folder, policy_id, attempt, version)
    try:
        data = read_regular_buffer(path.parent, path.name)
    except FileNotFoundError as error:
        raise WeightsGoneError(f"weights {path.name} of {policy_id} are not there any more.") from error
    except OSError as error:
        raise CommError(f"weights {path.name} of {policy_id} cannot be read: {error.strerror or error}") from error
    if hashlib.sha256(data).hexdigest() != sha256:
        raise CommError(
            f"weights {path.name} of {policy_id} have another hash than was announced: the file was changed or damaged."
        )
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
        raise CommError(f"its head should have {length:,} bytes, and the whole file has {len(data):,}.")
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


def weights_file(folder: str | os.PathLike[str], policy_id: str, attempt: int, version: int) -> Path:
    """Return where weights are. Raises CommError for numbers that name none."""
    name = f"{attempt}-{version}.safetensors"
    if _NAME.fullmatch(name) is None:
        raise CommError(f"attempt {str(attempt)[:40]} and version {str(version)[:40]} name no weights.")
    return Path(folder) / check_id(policy_id, "policy_id") / name
