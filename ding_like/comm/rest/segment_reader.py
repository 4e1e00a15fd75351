"""Read the segments that a learner is told of: fetch the file, parse it, check its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.shared_files import SharedFiles
from ding_like.data.schema import Schema
from ding_like.data.segment_file import SegmentError, read_segment, segment_file
from ding_like.errors import SchemaError
from ding_like.types import Array


def load_segment(path: str, meta: dict[str, Any], decompressor: Any = None) -> dict[str, Array]:
    """Return the columns of a segment file, which must be as `meta` says: its rows, sha256 and nbytes.

    `meta` gets `observed`, what the segment holds beside its rows. Raises SegmentError for any other file.
    """
    file = Path(path)
    columns, read = read_segment(
        file.parent,
        file.name.removesuffix(".safetensors"),
        rows=meta["rows"],
        sha256=meta["sha256"],
        nbytes=meta["nbytes"],
        row_bytes=meta.get("row_bytes"),
        observed_bytes=meta.get("observed_bytes", 0),
    )
    meta["observed"] = read.observed
    return columns


class SegmentReader:
    """Reader of new segments: fetches the file, loads and checks its columns, and deletes this process's own copy."""

    def __init__(
        self,
        files: SharedFiles,
        schema: Schema,
        check: Callable[[Mapping[str, Array]], None],
        *,
        load: Callable[[str, dict[str, Any], Any], dict[str, Array]] = load_segment,
        observed_bytes: int = 0,
        on_observed: Callable[[Mapping[str, Array], int], None] | None = None,
    ) -> None:
        """`schema` is that of rows to learn from; `check` raises SegmentError for rows that are not to be.

        `on_observed` gets what a segment tells beside its rows, `observed_bytes` of it, and the segment's serial; it
        raises SchemaError for what is not to be believed.
        """
        self._files = files
        self._schema = schema
        self._check = check
        self._load = load
        self._observed_bytes = observed_bytes
        self._on_observed = on_observed

    def __call__(self, segment: m.NewSegment) -> dict[str, Array]:
        """Read a segment. Raises SegmentError for one that is not to be learned from."""
        files = self._files
        files.fetch_segment(segment.name, nbytes=segment.nbytes, sha256=segment.sha256)
        try:
            meta: dict[str, Any] = {
                "rows": segment.rows,
                "sha256": segment.sha256,
                "nbytes": segment.nbytes,
                "row_bytes": self._schema.row_bytes,
                "observed_bytes": self._observed_bytes,
            }
            columns = self._load(str(segment_file(files.segments, segment.name)), meta, None)
        finally:
            files.forget_segment(segment.name)
        self._check(columns)
        if self._on_observed is not None:
            try:
                self._on_observed(meta.get("observed", {}), segment.serial)
            except SchemaError as error:
                raise SegmentError("schema", str(error)) from error
        return columns
