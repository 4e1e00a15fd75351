"""Files of columns, as safetensors, so that nothing in a file is executed: data of buffers, and segments of collectors.

A segment has the rows of one collector, checked before they are used. A reader makes the path from the segment's name,
never from anything a client sent; it takes regular files of the declared size only, hashes the bytes, bounds the
header, and parses those very bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from ding_like.data.mapped import OpenFile
from ding_like.errors import CheckpointError, CommError
from ding_like.types import Array, Json
from ding_like.utils.files import WrongSizeError, atomic_write, is_full, read_regular_file

_COLUMNS_FORMAT = "ding_like columns 1"
_FORMAT = "ding_like segment 1"
_SUFFIX = ".safetensors"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MAX_HEADER = 1 << 18  # bytes; a column takes about a hundred
_MAX_COLUMNS = 512
# Opening brackets of a header: three a column, twice for the lists and texts of the metadata, and its own few. This
# bounds columns and depth before anything is parsed.
_MAX_BRACKETS = 3 * _MAX_COLUMNS + 16
_TOLD = "~observed/"  # before the names of tensors that are no columns
MAX_BYTES = 64 << 20
# Of safetensors, by its names; little-endian in every file.
_DTYPES = {"BOOL": np.dtype(bool)} | {
    f"{name}{8 * size}": np.dtype(f"<{kind}{size}")
    for name, kind, sizes in (("F", "f", (2, 4, 8)), ("I", "i", (1, 2, 4, 8)), ("U", "u", (1, 2, 4, 8)))
    for size in sizes
}


def save_columns(
    path: str | os.PathLike[str], columns: Mapping[str, Array], info: Mapping[str, Json] | None = None
) -> None:
    """Write columns to a file, whole or not at all, with what `columns_info` returns of them.

    Raises CheckpointError for a dtype that has no place in one.
    """
    arrays = {name: np.ascontiguousarray(column) for name, column in columns.items()}
    # safetensors sorts by dtype; rows come back with their columns in this order.
    meta = {"format": _COLUMNS_FORMAT, "columns": json.dumps(list(arrays)), "info": json.dumps(dict(info or {}))}
    try:
        data = save_tensors(arrays, metadata=meta)
    except (SafetensorError, KeyError, TypeError) as error:
        kinds = ", ".join(f"{name} {array.dtype}" for name, array in arrays.items())
        raise CheckpointError(f"{path} cannot hold columns of these dtypes: {kinds} ({error}).") from error
    with atomic_write(path) as file:
        file.write(data)


def load_columns(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Return the columns that `save_columns` wrote. Raises CheckpointError for a damaged or foreign file."""
    with _opened(path) as (file, meta):
        return {name: file.get_tensor(name) for name in json.loads(meta["columns"])}


def map_columns(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Return the columns that `save_columns` wrote, as arrays that stay in the file; raises as `load_columns`."""
    with _opened(path) as (_, meta):  # the sizes of all columns are checked there
        file = OpenFile(path)
        (length,) = struct.unpack("<Q", os.pread(file.descriptor, 8, 0))
        header = json.loads(os.pread(file.descriptor, length, 8))
        try:
            return {
                name: file.column(
                    8 + length + header[name]["data_offsets"][0],
                    _DTYPES[header[name]["dtype"]],
                    tuple(header[name]["shape"]),
                )
                for name in json.loads(meta["columns"])
            }
        except (KeyError, TypeError) as error:
            raise CheckpointError(f"{path} has no column {error}, or of a type that arrays do not have.") from error


def columns_info(path: str | os.PathLike[str]) -> dict[str, Json]:
    """Return the `info` that `save_columns` wrote beside columns. Raises CheckpointError as `load_columns` does."""
    with _opened(path) as (_, meta):
        info: dict[str, Json] = json.loads(meta.get("info", "{}"))
        return info


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[tuple[Any, dict[str, str]]]:  # Any: safetensors types nothing
    try:
        with safe_open(path, framework="numpy") as file:
            meta = file.metadata() or {}
            if meta.get("format") != _COLUMNS_FORMAT:
                raise CheckpointError(f"{path} has the format {meta.get('format')!r}, expected {_COLUMNS_FORMAT!r}.")
            yield file, meta
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read as columns: {error}. It is damaged, or another file.") from error


def is_column_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a file begins as safetensors do: the length of a JSON header, then the header."""
    try:
        with open(path, "rb") as file:
            return file.read(9)[8:] == b"{"
    except OSError:
        return False


class SegmentError(CommError):
    """Segment that cannot be used; `code` is missing, truncated, corrupt, foreign, schema or full."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class SegmentMeta:
    """Origin of a segment; it is in the file, so that a segment describes itself."""

    task_id: str
    attempt: int
    worker_id: str
    number: int
    policy_version: int
    env_steps: int
    policy_attempt: int = 0  # (policy_attempt, policy_version) are the weights that acted
    # Arrays by name beside the rows: statistics of the envs' wrappers. They are tensors of the file.
    observed: Mapping[str, Array] = field(default_factory=dict)


class WrittenSegment(NamedTuple):
    """Announcement of a segment."""

    name: str
    rows: int
    sha256: str
    nbytes: int


def write_segment(
    folder: str | os.PathLike[str],
    name: str,
    columns: Mapping[str, Array],
    meta: SegmentMeta,
    *,
    durable: bool = False,
) -> WrittenSegment:
    """Write columns [B, ...] as `{folder}/{name}.safetensors`; the rename of the finished file is the commit.

    Raises SegmentError where the disk is full, or for more bytes than are read, and leaves nothing behind.
    """
    arrays = {column: np.ascontiguousarray(values) for column, values in columns.items()}
    rows = len(next(iter(arrays.values())))
    header = {
        "format": _FORMAT,
        "columns": json.dumps(list(arrays)),
        "rows": str(rows),
        "meta": json.dumps({name: getattr(meta, name) for name in _META_TYPES}),
        "observed": json.dumps(list(meta.observed)),
    }
    told = {f"{_TOLD}{each}": np.array(values, order="C") for each, values in meta.observed.items()}
    data = save_tensors({**arrays, **told}, metadata=header)
    if len(data) > MAX_BYTES:
        raise SegmentError(
            "schema",
            f"a segment of {rows:,} rows takes {len(data):,} bytes; up to {MAX_BYTES:,} are read. Lower "
            "system.segment_rows, or policy.collect.n_episode where whole episodes are collected.",
        )
    try:
        with atomic_write(segment_file(folder, name), durable=durable) as file:
            file.write(data)
    except OSError as error:
        if not is_full(error):
            raise
        raise SegmentError("full", f"there is no room for {len(data)} bytes in {folder}: {error.strerror}") from error
    return WrittenSegment(name, rows, hashlib.sha256(data).hexdigest(), len(data))


def read_segment(
    folder: str | os.PathLike[str],
    name: str,
    *,
    rows: int,
    sha256: str,
    nbytes: int,
    row_bytes: int | None = None,
    observed_bytes: int = 0,
) -> tuple[dict[str, Array], SegmentMeta]:
    """Return the columns of a segment and where it comes from. Raises SegmentError for one that is not as announced.

    With `row_bytes`, the size of a row's columns, and `observed_bytes`, that of `meta.observed`, a file of another size
    than so many rows can have is not even read.
    """
    _check_size(name, nbytes, None if row_bytes is None else rows * row_bytes + observed_bytes)
    data = _read_bytes(segment_file(folder, name), nbytes)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise SegmentError("corrupt", f"segment {name} has another hash than was announced")
    try:
        header = _header(data, name)
        arrays = load_tensors(data)
        columns = {column: arrays.pop(column) for column in json.loads(header["columns"])}
        observed = {told: arrays.pop(f"{_TOLD}{told}") for told in json.loads(header.get("observed", "[]"))}
        meta = dataclasses.replace(_meta(json.loads(header["meta"])), observed=observed)
    # Nested or huge structures that Python cannot parse are faults of the file.
    except (SafetensorError, KeyError, TypeError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        raise SegmentError("foreign", f"segment {name} cannot be parsed: {str(error)[:200]!r}") from error
    if arrays or not columns or any(column.ndim < 1 or len(column) != rows for column in columns.values()):
        raise SegmentError("schema", f"segment {name} has other columns or rows than were announced")
    return columns, meta


def remove_segments(folder: str | os.PathLike[str], names: Iterable[str]) -> None:
    """Delete segments; those that are gone already are no fault."""
    for name in names:
        segment_file(folder, name).unlink(missing_ok=True)


def set_aside(folder: str | os.PathLike[str], names: Iterable[str]) -> None:
    """Move segments that could not be read into the folder `bad`, where they can be looked into."""
    for name in names:
        path = segment_file(folder, name)
        target = path.parent / "bad" / path.name
        target.parent.mkdir(exist_ok=True)
        if target.parent.is_symlink():
            raise SegmentError("foreign", f"{target.parent} is a link: bad segments are moved into a folder only")
        try:
            os.replace(path, target)
        except FileNotFoundError:
            continue  # that was what was wrong with it


def segment_file(folder: str | os.PathLike[str], name: str) -> Path:
    """Return where a segment is. Raises SegmentError for what is no segment's name."""
    if not _NAME.fullmatch(name):
        raise SegmentError("foreign", f"{name[:80]!r} is not the name of a segment")
    return Path(folder) / f"{name}{_SUFFIX}"


def _check_size(name: str, nbytes: int, content: int | None) -> None:
    if not 0 < nbytes <= MAX_BYTES:
        raise SegmentError("schema", f"segment {name} is announced with {nbytes} bytes; up to {MAX_BYTES} are read")
    if content is not None and not content < nbytes <= content + 8 + _MAX_HEADER:
        raise SegmentError(
            "schema", f"segment {name} is announced with {nbytes} bytes, but its rows take {content} and a header"
        )


def _read_bytes(path: Path, nbytes: int) -> bytes:
    """Return the bytes of a regular file of exactly this size, opened without following a link."""
    try:
        return bytes(read_regular_file(path.parent, path.name, nbytes=nbytes))
    except FileNotFoundError as error:
        raise SegmentError("missing", f"there is no segment {path.name}") from error
    except WrongSizeError as error:
        raise SegmentError("truncated", str(error)) from error
    except OSError as error:
        raise SegmentError("foreign", f"{path.name} cannot be read: {error.strerror or error}") from error


def _header(data: bytes, name: str) -> dict[str, Json]:
    try:
        (length,) = struct.unpack("<Q", data[:8])
        if length > min(_MAX_HEADER, len(data) - 8):
            raise SegmentError("foreign", f"segment {name} has a header of {length} bytes")
        text = data[8 : 8 + length]
        if text.count(b"[") + text.count(b"{") > _MAX_BRACKETS:
            raise SegmentError(
                "foreign", f"segment {name} has a header of more than {_MAX_COLUMNS} columns, or one that is nested"
            )
        meta: dict[str, Json] = json.loads(text)["__metadata__"]
        if meta["format"] != _FORMAT:
            found = str(meta["format"])[:80]
            raise SegmentError("foreign", f"segment {name} is of format {found!r}, expected {_FORMAT!r}")
    except (struct.error, ValueError, KeyError, TypeError) as error:
        raise SegmentError("foreign", f"segment {name} has no header of a segment: {str(error)[:200]!r}") from error
    return meta


def _meta(given: Mapping[str, Json]) -> SegmentMeta:
    """Return where a segment comes from. Raises TypeError for other fields or types than SegmentMeta has."""
    if not set(given) <= set(_META_TYPES):
        raise TypeError(f"there are no fields {sorted(set(given) - set(_META_TYPES))}")
    meta = SegmentMeta(**given)
    for name, kind in _META_TYPES.items():
        if type(getattr(meta, name)) is not kind:
            raise TypeError(f"{name} is no {kind.__name__}")
    return meta


_META_TYPES = {
    each.name: str if each.name in ("task_id", "worker_id") else int
    for each in dataclasses.fields(SegmentMeta)
    if each.name != "observed"
}
