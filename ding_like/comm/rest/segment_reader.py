"""Read the segments that a learner is told of: fetch the file, parse it, check its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.shared_files import SharedFiles
from ding_like.data.schema import Schema
from ding_like.data.segment_file import SegmentError, read_segment
from ding_like.errors import SchemaError
from ding_like.types import Array


class SegmentReader:
    """Return the columns of a segment, once: this process's own copy is deleted."""

    def __init__(
        self,
        files: SharedFiles,
        schema: Schema,
        check: Callable[[Mapping[str, Array]], None],
        *,
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
        self._observed_bytes = observed_bytes
        self._on_observed = on_observed

    def __call__(self, segment: m.NewSegment) -> dict[str, Array]:
        """Read a segment. Raises SegmentError for one that is not to be learned from."""
        files = self._files
        files.fetch_segment(segment.name, nbytes=segment.nbytes, sha256=segment.sha256)
        try:
            columns, meta = read_segment(
                files.segments,
                segment.name,
                rows=segment.rows,
                sha256=segment.sha256,
                nbytes=segment.nbytes,
                row_bytes=self._schema.row_bytes,
                observed_bytes=self._observed_bytes,
            )
        finally:
            files.forget_segment(segment.name)
        self._check(columns)
        if self._on_observed is not None:
            try:
                self._on_observed(meta.observed, segment.serial)
            except SchemaError as error:
                raise SegmentError("schema", str(error)) from error
        return columns
