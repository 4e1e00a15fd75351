"""Keep rows, count them, save them: what all replay buffers have in common; how they sample is their own."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ding_like.config.tree import deep_merge
from ding_like.data.batch import TransitionBatch
from ding_like.data.column_file import is_column_file, load_columns, save_columns
from ding_like.data.rows import as_batch
from ding_like.data.schema import Schema
from ding_like.errors import CheckpointError, ConfigError, SchemaError
from ding_like.types import State
from ding_like.utils.checkpoint import load_state, save_state
from ding_like.utils.interval import Interval
from ding_like.utils.log import build_logger, close_logger
from ding_like.utils.seeding import make_rng, rng_state, set_rng_state
from ding_like.worker.replay_buffer.frames import FrameStorage, rows_of_dump
from ding_like.worker.replay_buffer.interface import IBuffer
from ding_like.worker.replay_buffer.storage import ColumnStorage, ObjectStorage, RingStorage
from ding_like.worker.replay_buffer.throughput import ThroughputMeter
from ding_like.worker.replay_buffer.used_data import UsedDataRemover


class ReplayBuffer(IBuffer):
    """Keep the last `replay_buffer_size` rows; several threads may use one buffer.

    The first push decides how: rows that stack become columns, anything else stays objects. Pushed data is copied and
    samples are memory of their own, so nobody sees what another writes. A sub-class says how it samples. What it keeps
    beside the rows it writes in `_store`, forgets in `_forget`, and saves in `_own_state` and `_load_own_state`.
    """

    config: dict[str, Any] = {
        "replay_buffer_size": 10000,
        # A key of DI-engine's configs: see `without_effect`.
        "deepcopy": False,
        # Rows are dicts whose 'data_id' names a file; the files of rows that leave the buffer are deleted.
        "enable_track_used_data": False,
        # Length k of stacked frames: columns obs and next_obs [k, ...] are kept with each frame once; 0: as they come.
        "frame_stack": 0,
        # Seconds between two log lines about what went in and out.
        "periodic_thruput_seconds": 60,
    }
    without_effect: ClassVar[Mapping[str, str]] = {"deepcopy": "a buffer copies on push and on sample in any case"}

    def __init__(
        self,
        cfg: Mapping[str, Any],
        tb_logger: Any = None,  # a MetricsSink, a SummaryWriter or None
        exp_name: str = "default_experiment",
        instance_name: str = "buffer",
        *,
        rng: np.random.Generator | None = None,
    ) -> None:
        cfg = deep_merge(self.config, cfg)
        self._replay_buffer_size = int(cfg["replay_buffer_size"])
        if self._replay_buffer_size < 1:
            raise ConfigError(f"replay_buffer_size is {self._replay_buffer_size}, expected a number of rows from 1.")
        self._frame_stack = int(cfg["frame_stack"])
        self._instance_name = instance_name
        self._add_scalar = getattr(tb_logger, "add_scalar", None)
        self._logger, _ = build_logger(Path(exp_name, "log", instance_name), instance_name)
        self._rng = make_rng(0, instance_name) if rng is None else rng
        self._storage: Any = None  # of the kind that the first push asks for; None before it
        self._push_count = 0
        self._lock = threading.Lock()
        self._remover = None
        if cfg["enable_track_used_data"]:
            self._remover = UsedDataRemover(self._replay_buffer_size, self._logger)
        self._meter = ThroughputMeter(cfg["periodic_thruput_seconds"])
        self._refusals = Interval(cfg["periodic_thruput_seconds"], starts_due=True)
        self._env_step = 0
        self._train_iter = 0
        self._configure(cfg)
        self._has_warned_of_update = False

    def start(self) -> None:
        """Let a thread delete the files of used data, if they are tracked."""
        if self._remover is not None:
            self._remover.start()

    def close(self) -> None:
        """Clear the buffer, end its thread and close its log; may be called again."""
        self.clear()
        if self._remover is not None:
            self._remover.close()
        close_logger(self._logger)

    def __del__(self) -> None:
        # Without its last attribute the constructor failed before there was anything to close.
        if hasattr(self, "_has_warned_of_update"):
            self.close()

    def push(self, data: Any, cur_collector_envstep: int) -> None:
        """Copy data in: a TransitionBatch, a list (each item is a row), one mapping, or one object of any kind.

        Raises SchemaError, and changes nothing, if it does not fit what is stored.
        """
        with self._lock:
            before = self._push_count
            removed = self._append(data)
            num_rows = self._push_count - before
        self._env_step = cur_collector_envstep
        self._report(self._meter.add(pushed_in=num_rows, removed=removed))

    def update(self, info: Mapping[str, Any]) -> None:
        """Warn once: this buffer has no priorities to update."""
        if not self._has_warned_of_update:
            self._has_warned_of_update = True
            self._logger.warning("this buffer samples evenly: priorities are ignored; type='advanced' uses them")

    def clear(self) -> None:
        """Forget all rows, their schema and `push_count`."""
        with self._lock:
            self._storage = None
            self._push_count = 0
            self._forget()
            if self._remover is not None:
                self._remover.clear()

    def count(self) -> int:
        """Return how many rows there are."""
        storage = self._storage
        return 0 if storage is None else storage.count

    @property
    def num_bytes(self) -> int:
        """Return about how much memory the rows take."""
        storage = self._storage
        return 0 if storage is None else storage.num_bytes

    def save_data(self, file_name: str) -> None:
        """Write the rows to a file, whole or not at all: columns as safetensors, objects as a zip of plain data.

        Raises CheckpointError for objects that are no plain data.
        """
        with self._lock:
            data = self._dump()
        if isinstance(data, dict) and data:
            save_columns(file_name, data)
        else:
            save_state(file_name, {"data": data})

    def load_data(self, file_name: str) -> None:
        """Push what `save_data` wrote, oldest row first."""
        if is_column_file(file_name):
            data: Any = load_columns(file_name)
        else:
            state = load_state(file_name, what="buffer data")
            if "data" not in state:
                raise CheckpointError(f"{file_name} holds {', '.join(state)} and no 'data'; give a file of save_data.")
            data = state["data"]
        with self._lock:
            self._append_dump(data)

    def state_dict(self) -> State:
        """Return rows (oldest first), counts and generator, in memory of its own."""
        with self._lock:
            own = self._own_state()
            return {"data": self._dump(), "push_count": self._push_count, "rng": rng_state(self._rng), **own}

    def load_state_dict(self, _state_dict: State) -> None:
        """Take over what `state_dict` returned, so that equal calls give equal samples; only {'data'} is pushed."""
        with self._lock:
            if _state_dict.keys() == {"data"}:
                self._append_dump(_state_dict["data"])
                return
            set_rng_state(self._rng, _state_dict["rng"])
            self._storage = None
            self._forget()
            if self._remover is not None:
                self._remover.forget()
            self._append_dump(_state_dict["data"])
            self._push_count = _state_dict["push_count"]
            self._load_own_state(_state_dict)

    @property
    def replay_buffer_size(self) -> int:
        """Return how many rows there is room for."""
        return self._replay_buffer_size

    @property
    def push_count(self) -> int:
        """Return how many rows were pushed since the start or the last `clear`."""
        return self._push_count

    def _append(self, data: Any) -> int:
        """Copy data in and return how many rows it overwrote; the caller holds the lock."""
        rows = self._as_rows(data)
        num_rows = len(rows)
        if num_rows == 0:
            return 0
        paths = [] if self._remover is None else self._remover.paths_of(rows)
        storage = self._new_storage(rows) if self._storage is None else self._storage
        count_before = storage.count
        self._store(storage, rows)
        self._storage = storage
        self._push_count += num_rows
        if self._remover is not None:
            self._remover.add(paths)
        return int(count_before + num_rows - storage.count)

    def _configure(self, cfg: Mapping[str, Any]) -> None:
        """Read the settings of a sub-class."""

    def _store(self, storage: RingStorage, rows: Sequence[Any]) -> None:
        """Copy rows in. Raises SchemaError, and changes nothing, if they do not fit."""
        storage.append(rows)

    def _forget(self) -> None:
        """Forget what is kept beside the rows."""

    def _own_state(self) -> State:
        """Return what is kept beside the rows, oldest first."""
        return {}

    def _load_own_state(self, state: State) -> None:
        """Take over what `_own_state` returned; the rows are back by then."""

    def _append_dump(self, dump: dict[str, Any] | list[Any]) -> None:
        """Copy in what `_dump` returned; the caller holds the lock."""
        if isinstance(dump, dict):
            for rows in rows_of_dump(dump) or [TransitionBatch(dump)]:
                self._append(rows)
            return
        if dump and self._storage is None:
            self._storage = ObjectStorage(self._replay_buffer_size)  # what was objects stays so, even if it stacks
        self._append(dump)

    def _as_rows(self, data: Any) -> Sequence[Any]:
        if self._remover is None and not isinstance(self._storage, ObjectStorage):
            batch = as_batch(data)
            if batch is not None:
                return batch
        rows: list[Any] = data if isinstance(data, list) else [data]
        if rows and self._storage is not None and not isinstance(self._storage, ObjectStorage):
            raise SchemaError(
                f"the buffer holds columns ({', '.join(self._storage.schema)}) and was pushed {type(rows[0]).__name__} "
                "data that does not stack to such. Give all rows equal keys and shapes, or clear the buffer first."
            )
        return data.to_list() if isinstance(data, TransitionBatch) else rows

    def _new_storage(self, rows: Sequence[Any]) -> ColumnStorage | ObjectStorage:
        if not isinstance(rows, TransitionBatch):
            return ObjectStorage(self._replay_buffer_size)
        columns = {name: np.asarray(column) for name, column in rows.columns.items()}  # they may be tensors
        if self._frame_stack > 0:
            return FrameStorage(self._replay_buffer_size, Schema.of(columns), self._frame_stack)
        return ColumnStorage(self._replay_buffer_size, Schema.of(columns))

    def _dump(self) -> dict[str, Any] | list[Any]:
        """Return columns, or a list of objects; oldest first."""
        if isinstance(self._storage, FrameStorage):
            return dict(self._storage.dump_frames())
        data = [] if self._storage is None else self._storage.dump()
        return dict(data.columns) if isinstance(data, TransitionBatch) else list(data)

    def _refuse(self, size: int, available: int) -> None:
        if self._refusals.pass_s():
            self._logger.info("no sample of %d rows: there are %d to draw from", size, available)

    def _report(self, sums: dict[str, float] | None) -> None:
        """Write a window's sums to the log and to TensorBoard."""
        if sums is None:
            return
        # Not to metrics.jsonl: a resumed run must repeat that line by line, and these depend on the clock.
        values = {**sums, "current_have": self.count()}
        self._logger.info(", ".join(f"{name} {value:g}" for name, value in values.items()))
        if self._add_scalar is not None:
            for name, value in values.items():
                self._add_scalar(f"{self._instance_name}_iter/{name}", value, self._train_iter)
                self._add_scalar(f"{self._instance_name}_step/{name}", value, self._env_step)
