"""Metrics of a run: one JSON line and one TensorBoard event per report."""

from __future__ import annotations

import itertools
import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ding_like.errors import CheckpointError, SchemaError
from ding_like.types import MetricsWriter, State
from ding_like.utils.files import is_full
from ding_like.utils.measure import Interval

if TYPE_CHECKING:
    from tensorboardX.event_file_writer import EventsWriter

logger = logging.getLogger(__name__)

# What every line has beside its metrics.
_HEAD = frozenset(("source", "env_step", "train_iter", "time_s"))
# A flush waits for the disk; this is often enough for a viewer.
_FLUSH_EVERY_S = 5.0
_WORD_S = 60.0  # between two warnings of a full disk

_file_numbers = itertools.count()


class EventWriter:
    """Writer of scalars to a TensorBoard event file in `folder`, which appears with the first of them.

    tensorboardX's own SummaryWriter sends every scalar through a process queue to a thread: 2 ms for 40 scalars,
    where one event with all of them, written in place, takes 0.1 ms and leaves no thread.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self._writer: EventsWriter | None = None
        self._flush_due = Interval(_FLUSH_EVERY_S, starts_due=True)
        self._words = Interval(_WORD_S, starts_due=True)

    def add_scalar(self, tag: str, value: float, global_step: int = 0) -> None:
        """Write one scalar, as SummaryWriter does."""
        self.write_scalars({tag: value}, global_step)

    def write_scalars(self, values: Mapping[str, float], global_step: int) -> None:
        """Write several scalars of one step as one event."""
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        scalars = [Summary.Value(tag=tag, simple_value=float(value)) for tag, value in values.items()]
        event = Event(wall_time=time.time(), step=int(global_step), summary=Summary(value=scalars))
        with self._skip_if_full():
            if self._writer is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                # The name holds the time in seconds: a number keeps a second file of one second apart.
                self._writer = EventsWriter(str(self._folder / "events"), f".{os.getpid()}.{next(_file_numbers)}")
            self._writer.write_event(event)
        if self._flush_due.pass_s():
            self.flush()

    def flush(self) -> None:
        """Bring the events to the disk; on a full disk events are left out, with a warning in the log."""
        if self._writer is not None:
            with self._skip_if_full():
                self._writer.flush()

    def close(self) -> None:
        """Close the file; a later write opens a new one."""
        if self._writer is not None:
            with self._skip_if_full():
                self._writer.close()
            self._writer = None

    @contextmanager
    def _skip_if_full(self) -> Iterator[None]:
        """Give up a file that found no room, which may end in half of an event: the next event begins another."""
        try:
            yield
        except OSError as error:
            if not is_full(error):
                raise
            if self._words.pass_s():
                logger.warning("TensorBoard events are left out: the disk is full (%s)", error)
            writer, self._writer = self._writer, None
            if writer is not None:
                with suppress(OSError):  # closing writes once more what found no room
                    writer.close()


class MetricsSink:
    """Metrics of a run in `{exp_dir}/metrics.jsonl` and, for TensorBoard, in `{exp_dir}/log/serial`.

    Parts take it where DI-engine's parts take a SummaryWriter. Files open with the first write and again with a write
    after `close`, so a part that closes the sink it shares harms no other; the owner of the sink closes it last.
    """

    def __init__(self, exp_dir: str | os.PathLike[str], *, tensorboard: bool = True) -> None:
        self.path = Path(exp_dir) / "metrics.jsonl"
        self._file: FileIO | None = None
        self._waiting = bytearray()  # lines, or the end of one, that found no room on the disk yet
        self._words = Interval(_WORD_S, starts_due=True)
        self._events, self._tensorboard = EventWriter(Path(exp_dir) / "log" / "serial"), tensorboard
        self._started_s = time.monotonic()
        # Called with the file and its length to come, before a run that resumes from a saved point cuts it.
        self.before_cut: Callable[[Path, int], None] | None = None

    def write(self, source: str, values: Mapping[str, float], *, env_step: int, train_iter: int) -> None:
        """Write the metrics of `source` at one point of training.

        In the file: one line `{"source", "env_step", "train_iter", "time_s", <name>: value, ...}`, handed to the system
        at once, so that a killed process loses none that returned. JSON knows no nan and inf: they become the strings
        "nan", "inf" and "-inf", which `float` reads. In TensorBoard: `{source}_iter/<name>` at `train_iter` and
        `{source}_step/<name>` at `env_step`; a negative one is unknown, and writes nothing there.
        Values are numbers of Python or numpy, or tensors of one element; SchemaError for anything else.
        """
        if not _HEAD.isdisjoint(values):
            taken = sorted(_HEAD.intersection(values))
            raise SchemaError(f"{source} reports metrics named {taken}, which every line has already; rename them")
        numbers = {name: _to_number(source, name, value) for name, value in values.items()}
        self._write_line(source, numbers, env_step, train_iter)
        if self._tensorboard:
            for step, tagged in _tag(source, numbers, env_step, train_iter):
                self._events.write_scalars(tagged, step)

    def add_scalar(self, tag: str, value: float, global_step: int = 0) -> None:
        """Write one scalar to TensorBoard only, for parts written for a SummaryWriter."""
        if self._tensorboard:
            self._events.add_scalar(tag, value, global_step)

    def flush(self) -> None:
        """Bring the events for TensorBoard to the disk; the lines of the file are there already."""
        self._events.flush()

    def close(self) -> None:
        """Close the files; may be called again."""
        if self._file is not None:
            self._write_waiting()
            self._file.close()
            self._file = None
        self._events.close()

    def state_dict(self) -> State:
        """Return the length of the file and of the run, so that resume can go back to here."""
        self.flush()
        return {"num_bytes": self._num_bytes(), "time_s": self._time_s()}

    def load_state_dict(self, state: State) -> None:
        """Cut the file back to where `state` was taken and start a new TensorBoard file.

        Raises CheckpointError if the file is shorter than it was then.
        """
        self.close()
        expected, seen = int(state["num_bytes"]), self._num_bytes()
        if seen < expected:
            raise CheckpointError(
                f"{self.path} has {seen} bytes, the checkpoint was taken at {expected}: lines are missing. "
                "Put the file back, or start a new run from the model with --load-path"
            )
        if seen > expected:
            if self.before_cut is not None:
                self.before_cut(self.path, expected)
            os.truncate(self.path, expected)
        self._started_s = time.monotonic() - float(state["time_s"])

    def _write_line(self, source: str, numbers: Mapping[str, float], env_step: int, train_iter: int) -> None:
        line: dict[str, float | str] = {"source": source, "env_step": int(env_step), "train_iter": int(train_iter)}
        line["time_s"] = round(self._time_s(), 3)
        for name, number in numbers.items():
            line[name] = number if math.isfinite(number) else str(float(number))
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self.path, "ab", buffering=0)
        self._waiting += json.dumps(line).encode() + b"\n"
        self._write_waiting()

    def _write_waiting(self) -> None:
        """Hand waiting lines to the system; on a full disk they keep waiting, with a warning in the log."""
        try:
            while self._waiting and self._file is not None:
                del self._waiting[: self._file.write(self._waiting)]
        except OSError as error:
            if not is_full(error):
                raise
            if self._words.pass_s():
                logger.warning("%s waits for room on the disk with %d bytes: %s", self.path, len(self._waiting), error)

    def _num_bytes(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def _time_s(self) -> float:
        return time.monotonic() - self._started_s


def as_metrics_writer(tb_logger: Any) -> MetricsWriter:  # Any: MetricsSink, or any kind of SummaryWriter
    """Return a writer for a part's argument `tb_logger`: a MetricsSink, a SummaryWriter or None."""
    if tb_logger is None:
        return _ScalarMetrics(lambda tag, value, step: None)
    if callable(getattr(tb_logger, "add_scalar", None)) and not isinstance(tb_logger, MetricsSink):
        return _ScalarMetrics(tb_logger.add_scalar)
    if callable(getattr(tb_logger, "write", None)):
        writer: MetricsWriter = tb_logger
        return writer
    raise TypeError(f"tb_logger is a {type(tb_logger).__name__}, expected a MetricsSink, a SummaryWriter or None")


def close_writer(tb_logger: object) -> None:
    """Flush and close a part's argument `tb_logger`, if it has such methods; another part may write to it again."""
    for name in ("flush", "close"):
        method = getattr(tb_logger, name, None)
        if callable(method):
            method()


@dataclass
class _ScalarMetrics:
    """Writer of every value to the `add_scalar` of a SummaryWriter, under the tags of MetricsSink."""

    add_scalar: Callable[[str, float, int], object]

    def write(self, source: str, values: Mapping[str, float], *, env_step: int, train_iter: int) -> None:
        for step, tagged in _tag(source, values, env_step, train_iter):
            for tag, value in tagged.items():
                self.add_scalar(tag, value, step)


def _tag(
    source: str, values: Mapping[str, float], env_step: int, train_iter: int
) -> Iterator[tuple[int, dict[str, float]]]:
    for axis, step in (("iter", train_iter), ("step", env_step)):
        if step >= 0:
            yield step, {f"{source}_{axis}/{name}": value for name, value in values.items()}


def _to_number(source: str, name: str, value: Any) -> float:  # Any: it is checked here
    with suppress(RuntimeError, ValueError):  # of an array or tensor of several elements
        number = value.item() if hasattr(value, "item") else value
        if isinstance(number, (int, float)):
            return number
    raise SchemaError(
        f"metric {name!r} of {source} is {value!r} ({type(value).__name__}), expected one number; report its mean"
    )
