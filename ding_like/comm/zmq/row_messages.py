"""Define what travels between a run's driver and its actors, servers and hosts, as heads and arrays of `frames`.

To the driver: `hello`, `segment`, `ask` (for orders that have not come), `stats`, `error`. From it: `welcome`, `order`,
`ack` (a segment has come), `refused`, `noted` (an error is), `unknown` (say hello first), `here` (a sign of life),
`stop`. A source is a name with a run id, which grows when it is started again; `instance` tells two processes apart
that claim to be the same. What comes is checked before anything is made of it: CommError names what was wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ding_like.comm.channels import Segment
from ding_like.comm.json_fields import Head, count_of, name_of, plain_of, short
from ding_like.comm.json_version import version_of
from ding_like.data.batch import TransitionBatch
from ding_like.data.schema import Schema
from ding_like.errors import CommError, ConfigError
from ding_like.types import Array

PROTOCOL = 2
MAX_NBYTES = 2**30  # of the arrays of a message
MAX_NAME = 100  # characters
ROLES = ("actor", "server", "host")  # a host is a machine that has joined, beside what works there
_COLUMNS, _OBSERVED = "columns", "observed"  # before the names of arrays


class Sender(NamedTuple):
    """The sender of a message."""

    name: str
    run_id: int
    instance: str


def sender_of(head: Head) -> Sender:
    """Return who sent a message."""
    name, instance = (name_of(head, key, most=MAX_NAME) for key in ("name", "instance"))
    return Sender(name, count_of(head, "run_id"), instance)


class Hello(NamedTuple):
    """What a source tells of itself when it joins a run."""

    sender: Sender
    role: str
    protocol: int


def hello_of(head: Head) -> Hello:
    """Return what a `hello` says."""
    role = head.get("role")
    if role not in ROLES:
        raise CommError(f"the role of a source is {short(role)}; expected one of {', '.join(ROLES)}.")
    return Hello(sender_of(head), role, count_of(head, "protocol"))


# --- segments


def segment_message(segment: Segment, *, order: int, seq: int) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return head and arrays of segment number `seq` of a source, which was collected for an order.

    Raises ConfigError for rows that do not stack.
    """
    batch = segment.batch
    if not isinstance(batch, TransitionBatch):
        raise ConfigError("the policy gives rows that do not stack; mode seed needs rows of equal shapes.")
    parts = {_COLUMNS: batch.columns, _OBSERVED: segment.observed}
    arrays = {f"{part}/{name}": each for part, columns in parts.items() for name, each in columns.items()}
    head = {
        "kind": "segment",
        "order": order,
        "seq": seq,
        "version": list(segment.version),
        "env_steps": segment.env_steps,
        "rows": len(batch),
        "stats": dict(segment.stats),
    }
    return head, arrays


def segment_of(head: Head, arrays: Mapping[str, Array], *, copies_rows: bool = True) -> Segment:
    """Return the segment that a message holds, in memory of its own; without `copies_rows` rows are read-only."""
    parts: dict[str, dict[str, Array]] = {_COLUMNS: {}, _OBSERVED: {}}
    for key, array in arrays.items():
        part, _, name = key.partition("/")
        if part not in parts or not name:
            raise CommError(f"a segment has the array {short(key)}; expected it in one of {', '.join(parts)}.")
        # What came cannot be written to, and policies make tensors of it.
        parts[part][name] = array.copy() if copies_rows or part == _OBSERVED else array
    columns, rows = parts[_COLUMNS], count_of(head, "rows")
    if rows < 1 or not columns or any(column.ndim < 1 or len(column) != rows for column in columns.values()):
        shapes = {name: column.shape for name, column in columns.items()}
        raise CommError(f"a segment of {rows:,} rows has columns of shapes {short(shapes)}; expected [B, ...], B >= 1.")
    stats, env_steps = plain_of(head, "stats"), count_of(head, "env_steps")
    return Segment(TransitionBatch(columns), version_of(head, "version"), env_steps, stats, parts[_OBSERVED])


class RowSchema:
    """Check that refuses segments whose columns differ from those of the first."""

    def __init__(self) -> None:
        self._schema: Schema | None = None

    def __call__(self, segment: Segment) -> None:
        """Raise SchemaError that names the columns which are missing, unexpected, or of another shape or dtype."""
        batch = segment.batch
        assert isinstance(batch, TransitionBatch), "segment_of makes no others"
        if self._schema is None:
            self._schema = batch.schema
        self._schema.check(batch.columns, where="the run")
