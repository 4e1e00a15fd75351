"""The work that all replay buffers of the `buffer` benchmark do; imports no package of ours but the clock's module."""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from benchmarks.common import emit, emit_versions  # isort: skip  (pins the threads first)

import numpy as np
import torch

from benchmarks.contenders.buffer_data import Columns, atari, cartpole, cut

_DISTINCT_ROWS = 4096  # pushed over and over
_FILL_ROWS = 1024
_WARM_CALLS = 10
_CALLS_A_LOOK = 16  # a look at the clock costs as much as a small push


class Adapter(Protocol):
    """Functions that a contender makes of its buffer; `update` only where there are priorities."""

    def prepare(self, columns: Columns) -> Any:
        """Return rows as this library's collector would hand them over; not timed."""

    def push(self, load: Any) -> None:
        """Store what `prepare` returned."""

    def sample(self, size: int) -> Mapping[str, torch.Tensor]:
        """Return rows, or windows of `SEQUENCE_STEPS` rows, as tensors."""

    def update(self, priority: np.ndarray[Any, Any]) -> None:
        """Set the priorities of the last sample."""


def main(makers: Mapping[str, Callable[[int], Any]], packages: Sequence[str]) -> None:
    """Do one piece of work with one buffer of this library; a maker takes the number of rows and returns an Adapter."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--buffer", required=True, choices=makers)
    parser.add_argument("--work", required=True, choices=("push", "sample", "cycle", "memory"))
    parser.add_argument("--rows", type=int, required=True, help="what the buffer holds")
    parser.add_argument("--size", type=int, required=True, help="rows of a push or a sample")
    parser.add_argument("--seconds", type=float, default=0.5, help="CPU seconds to measure for")
    args = parser.parse_args()
    torch.set_num_threads(1)
    make = makers[args.buffer]
    rng = np.random.default_rng(0)
    make_columns = atari if args.buffer == "atari" else cartpole
    if args.work == "memory":
        size_bytes = _bytes_a_row(make, args.rows, args.size, lambda rows: make_columns(rng, rows))
        emit("bytes_per_transition", round(size_bytes, 1), "bytes")
    else:
        columns = make_columns(rng, min(_DISTINCT_ROWS, args.rows))
        buffer = _filled(make(args.rows), args.rows, columns)
        if args.work == "push":
            emit("us_per_transition", 1e6 * _push_s(buffer, args.size, columns, args.seconds) / args.size, "us")
        elif args.work == "sample":
            _check(buffer.sample(args.size), args.size)
            emit("us_per_sample", 1e6 * _mean_s(lambda: buffer.sample(args.size), args.seconds), "us")
        else:
            emit("us_per_cycle", 1e6 * _cycle_s(buffer, args.size, rng, args.seconds), "us")
    emit_versions(*packages)


def _filled(buffer: Adapter, rows: int, columns: Columns) -> Adapter:
    """Push until the ring has turned over: what a long run measures is a full buffer."""
    loads = [buffer.prepare(part) for part in cut(columns, min(_FILL_ROWS, len(columns["reward"])))]
    for i in range(rows // _FILL_ROWS + 1):
        buffer.push(loads[i % len(loads)])
    return buffer


def _push_s(buffer: Adapter, size: int, columns: Columns, seconds: float) -> float:
    loads = [buffer.prepare(part) for part in cut(columns, size)]
    turn = iter(range(10**12))
    return _mean_s(lambda: buffer.push(loads[next(turn) % len(loads)]), seconds)


def _cycle_s(buffer: Adapter, size: int, rng: np.random.Generator, seconds: float) -> float:
    _check(buffer.sample(size), size)
    priority = (rng.random(size) + 0.1).astype(np.float32)

    def cycle() -> None:
        buffer.sample(size)
        buffer.update(priority)

    return _mean_s(cycle, seconds)


def _mean_s(call: Callable[[], object], seconds: float) -> float:
    """Return the CPU seconds of a call, calling for about `seconds`."""
    for _ in range(_WARM_CALLS):
        call()
    calls, start = 0, time.process_time()
    while True:
        for _ in range(_CALLS_A_LOOK):
            call()
        calls += _CALLS_A_LOOK
        passed_s = time.process_time() - start
        if passed_s > seconds:
            return passed_s / calls


def _bytes_a_row(make: Callable[[int], Adapter], rows: int, size: int, make_columns: Callable[[int], Columns]) -> float:
    """Return by how much the process grows while a buffer fills, per row; what is pushed is made anew each time."""
    warm = make(size)  # what the library keeps once is no row's
    warm.push(warm.prepare(make_columns(size)))
    del warm
    before = _resident_bytes()
    buffer = make(rows)
    for _ in range(rows // size):
        buffer.push(buffer.prepare(make_columns(size)))
    return (_resident_bytes() - before) / rows


def _resident_bytes() -> int:
    # What was freed is not the buffer's.
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _check(sample: Mapping[str, Any], size: int) -> None:
    """Stop where a sample is not what was asked for: its time would mean nothing."""
    odd = {name: type(one) for name, one in sample.items() if not torch.is_tensor(one) or len(one) != size}
    if odd or not sample:
        raise SystemExit(f"expected tensors of {size} rows, got {odd or 'nothing'}")
    if any(not torch.any(sample[name]) for name in ("obs", "next_obs")):
        raise SystemExit("a sample holds nothing but zeros")
