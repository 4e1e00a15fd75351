"""Say which transports there are: a new one is a file with its `Transport`, and one row in TRANSPORTS."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from ding_like.comm.channels import BatchSource, RowSink, WeightPublisher, WeightReader
from ding_like.comm.tensors import WireDtype

BATCH = 4  # rows of a batch that is drawn from a store
SEGMENT = 8  # rows of a segment; BATCH updates of one row each are never asked for: a segment allows two updates

# How rows become batches: drawn from a store, drawn by priority, or each segment once and whole.
Kind = Literal["replay", "priority", "once"]


class WeightEnds(NamedTuple):
    publisher: WeightPublisher
    reader: WeightReader
    dtype: WireDtype = "exact"  # how numbers travel: what arrives is rounded so


class RowEnds(NamedTuple):
    sink: RowSink
    source: BatchSource
    finish: Callable[[], None]  # let the run end


@dataclass(frozen=True)
class Transport:
    """Functions that make connected ends of what a transport carries, None for what it does not; the stack closes them.

    Rows are int64 `row` and float32 `obs` [3] and `reward`. A segment of SEGMENT rows allows two updates with batches
    of BATCH rows, or one with itself.
    """

    weights: Callable[[ExitStack, Path], WeightEnds] | None = None
    rows: Callable[[ExitStack, Path, Kind], RowEnds] | None = None
    kinds: tuple[Kind, ...] = ("replay", "priority", "once")  # of `rows`
    priorities_at_once: bool = True  # False: reported later than batches that were asked for ahead
    needs_ray: bool = False
    is_slow: bool = False  # it starts a process for each test


def transports() -> dict[str, Transport]:
    """Return the transports by name."""
    from tests.contracts import (
        pipe_transport,
        rest_transport,
        zmq_transport,
    )

    return {
        "pipe": pipe_transport.TRANSPORT,
        "rest": rest_transport.TRANSPORT,
        "rest over http": rest_transport.OVER_HTTP,
        "zmq": zmq_transport.TRANSPORT,
        # Encodings of the weights, by those that have one.
        "rest, bfloat16": rest_transport.weights_only(dtype="bfloat16"),
        "rest over http, bfloat16": rest_transport.weights_only(dtype="bfloat16", over_http=True),
        "rest over http, delta": rest_transport.weights_only(over_http=True, by_delta=True),
        "rest over http, bfloat16 delta": rest_transport.weights_only(dtype="bfloat16", over_http=True, by_delta=True),
    }
