"""Keep the newest rows and sample windows of consecutive ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ding_like.data.batch import TransitionBatch
from ding_like.data.schema import Schema
from ding_like.data.sequence_batch import SequenceBatch
from ding_like.errors import SchemaError
from ding_like.types import Array, State
from ding_like.utils.registries import BUFFER_REGISTRY
from ding_like.worker.replay_buffer.naive import NaiveReplayBuffer
from ding_like.worker.replay_buffer.streams import StreamStorage

# Draws that may fail, one after another, before all windows are listed.
_MAX_DRAWS = 8


@BUFFER_REGISTRY.register("sequence")
class SequenceReplayBuffer(NaiveReplayBuffer):
    """Sample windows of a fixed length that never cross an episode's end, whatever the episodes' lengths.

    Rows are kept by lane, and each window of rows that follow each other is as likely as any other. With `padding`
    windows may run over an episode's end: what is beyond is zero and False in the column `mask`.
    """

    config: dict[str, Any] = {
        **NaiveReplayBuffer.config,
        "type": "sequence",
        # Lanes that rows come from; None: as many as the first push has.
        "num_streams": None,
        "padding": False,
        # First steps of a window that warm up recurrent state and are not learned from: False in `mask`.
        "burn_in": 0,
        # Columns of which a window keeps its first row only: recurrent state.
        "initial_columns": [],
    }
    config_types = {"num_streams": (int,)}

    def sample(  # type: ignore[override]  # the seed's signature has the length of a window in second place
        self,
        batch: int,
        sequence: int,
        cur_learner_iter: int,
        sample_range: slice | None = None,
        replace: bool = False,
    ) -> SequenceBatch | None:
        """Return `batch` windows of `sequence` rows, drawn evenly; without `replace`, none twice.

        `sample_range` restricts where windows begin, by age: slice(-100, None) are the hundred newest rows of each
        stream. Returns None, and says why in the log, if there are too few windows.
        """
        if batch < 1 or sequence < 1:
            raise SchemaError(f"{batch} windows of {sequence} rows were asked for; give numbers from 1.")
        with self._lock:
            storage = self._stream_storage()
            drawn = None if storage is None else self._draw(storage, batch, sequence, sample_range, replace=replace)
            if storage is None or drawn is None:
                self._refuse(batch, 0 if storage is None else storage.count)
                return None
            data = self._windows(storage, *drawn, sequence)
        self._train_iter = cur_learner_iter
        self._report(self._meter.add(sampled_out=batch))
        return data

    def _draw(
        self, storage: StreamStorage, batch: int, length: int, sample_range: slice | None, *, replace: bool
    ) -> tuple[Array, Array] | None:
        """Return (stream, age) [B] of the first rows of windows, None if there are too few."""
        if sample_range is None and storage.count >= 8 * batch:
            found = self._draw_by_trial(storage, batch, length, replace=replace)
            if found is not None:
                return found
        stream, age = storage.place_of(np.arange(storage.count))
        if sample_range is not None:
            start, stop, step = sample_range.indices(int(storage.counts.max(initial=0)))
            inside = (age >= start) & (age < stop) & ((age - start) % step == 0)
            stream, age = stream[inside], age[inside]
        if not self._padding:
            begins = storage.begins_window(stream, age, length)
            stream, age = stream[begins], age[begins]
        if len(stream) < (1 if replace else batch):
            return None
        chosen = self._rng.choice(len(stream), batch, replace=replace)
        return stream[chosen], age[chosen]

    def _draw_by_trial(
        self, storage: StreamStorage, batch: int, length: int, *, replace: bool
    ) -> tuple[Array, Array] | None:
        """Draw rows until enough of them begin a window: even, and needs no list of all windows."""
        found = np.empty(0, np.int64)
        for _ in range(_MAX_DRAWS):
            index = self._rng.integers(storage.count, size=2 * batch)
            if not self._padding:
                index = index[storage.begins_window(*storage.place_of(index), length)]
            found = np.concatenate([found, index])
            if not replace:
                _, first = np.unique(found, return_index=True)
                found = found[np.sort(first)]
            if len(found) >= batch:
                return storage.place_of(found[:batch])
        return None

    def _windows(self, storage: StreamStorage, stream: Array, age: Array, length: int) -> SequenceBatch:
        places = storage.windows(stream, age, length)
        columns = storage.gather(places)
        initial = {name: columns.pop(name)[:, 0] for name in self._initial_columns}
        mask = np.ones(places.shape, bool)
        if self._padding:
            mask = storage.are_in_run(places, stream, age)
            for column in columns.values():
                column[~mask] = 0
        mask[:, : self._burn_in] = False
        return SequenceBatch({**columns, "mask": mask}, initial)

    def load_data(self, file_name: str) -> None:
        """Push what `save_data` wrote; what is pushed next follows none of it."""
        super().load_data(file_name)
        storage = self._stream_storage()
        if storage is not None:
            storage.cut()

    def _configure(self, cfg: Any) -> None:
        self._num_streams = cfg["num_streams"]
        self._padding = bool(cfg["padding"])
        self._burn_in = int(cfg["burn_in"])
        self._initial_columns = list(cfg["initial_columns"])

    def _new_storage(self, rows: Sequence[Any]) -> Any:
        if not isinstance(rows, TransitionBatch):
            raise SchemaError(
                "a sequence buffer keeps rows that stack to columns; give all rows equal keys and shapes, or use "
                "type='episode' for ragged data."
            )
        columns = {name: np.asarray(column) for name, column in rows.columns.items()}
        missing = [name for name in self._initial_columns if name not in columns]
        if missing:
            raise SchemaError(f"initial_columns {', '.join(missing)} are not among the rows' {', '.join(columns)}.")
        num_streams = self._num_streams or int(StreamStorage.streams_of(columns).max()) + 1
        return StreamStorage(self._replay_buffer_size, Schema.of(columns), num_streams)

    def _stream_storage(self) -> StreamStorage | None:
        storage: Any = self._storage
        return storage if storage is not None and storage.count else None

    def load_state_dict(self, _state_dict: State) -> None:
        """Take over what `state_dict` returned, so that equal calls give equal samples; only {'data'} is pushed."""
        self._num_streams = _state_dict.get("num_streams", self._num_streams)
        super().load_state_dict(_state_dict)

    def _own_state(self) -> State:
        storage = self._stream_storage()
        if storage is None:
            return {}
        return {"runs": storage.dump_runs(), "is_cut": storage.is_cut.copy(), "num_streams": storage.num_streams}

    def _load_own_state(self, state: State) -> None:
        storage = self._stream_storage()
        if storage is not None and "runs" in state:
            storage.load_runs(state["runs"])
            storage.is_cut[:] = state["is_cut"]
