"""Keep the newest rows and sample windows of consecutive ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ding_like.data.batch import TransitionBatch
from ding_like.data.schema import Schema
from ding_like.data.sequence_batch import SequenceBatch
from ding_like.errors import ConfigError, SchemaError
from ding_like.types import Array, State
from ding_like.utils.registries import BUFFER_REGISTRY
from ding_like.worker.replay_buffer.naive import NaiveReplayBuffer
from ding_like.worker.replay_buffer.sampler import draw_uniform
from ding_like.worker.replay_buffer.streams import StreamStorage


@BUFFER_REGISTRY.register("sequence")
class SequenceReplayBuffer(NaiveReplayBuffer):
    """Sample windows of a fixed length that never cross an episode's end, whatever the episodes' lengths.

    Rows are kept by lane, and each window of rows that follow each other is as likely as any other. With `padding`
    windows may run over an episode's end: what is beyond is zero and False in the column `mask`.
    """

    config: dict[str, Any] = {
        **NaiveReplayBuffer.config,
        "type": "sequence",
        # Lanes that rows come from, each with an equal part of the buffer; None: as many as were seen.
        "num_streams": None,
        "padding": False,
        # First steps of a window that warm up recurrent state and are not learned from: False in `mask`.
        "burn_in": 0,
        # Columns of which a window keeps its first row only: recurrent state.
        "initial_columns": [],
    }
    config_types = {"num_streams": (int,)}
    samples = "windows"

    def sample(  # type: ignore[override]  # DI-engine's signature has the length of a window in second place
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
        if sequence <= self._burn_in:
            raise SchemaError(f"windows of {sequence} rows are all burn-in ({self._burn_in}); make them longer.")
        with self._lock:
            storage = self._stream_storage()
            if storage is None:
                self._refuse(batch, 0)
                return None
            first = self._draw(storage, batch, sequence, sample_range, replace=replace)
            if first is None:
                return None
            data = self._windows(storage, first, sequence)
        self._train_iter = cur_learner_iter
        self._report(self._meter.add(sampled_out=batch))
        return data

    def _draw(
        self, storage: StreamStorage, batch: int, length: int, sample_range: slice | None, *, replace: bool
    ) -> Array | None:
        """Return the places [B] of the first rows of windows, None if there are too few."""
        if sample_range is None and storage.count >= 8 * batch:
            found = self._draw_by_trial(storage, batch, length, replace=replace)
            if found is not None:
                return found
        places = storage.all_places()
        if sample_range is not None:
            start, stop, step = sample_range.indices(int(storage.counts.max(initial=0)))
            age = storage.ages()
            places = places[(age >= start) & (age < stop) & ((age - start) % step == 0)]
        if not self._padding:
            places = places[storage.begins_window(places, length)]
        if len(places) < (1 if replace else batch):
            self._refuse(batch, len(places))
            return None
        return self._rng.choice(places, batch, replace=replace)

    def _draw_by_trial(self, storage: StreamStorage, batch: int, length: int, *, replace: bool) -> Array | None:
        """Draw rows until enough of them begin a window: even, and needs no list of all windows."""
        rows = range(storage.count)
        found = np.empty(0, np.int64)
        size, left = 2 * batch, len(rows)
        while left > 0:  # beyond it, listing all windows costs less
            places = storage.places_of(draw_uniform(self._rng, rows, size, replace=True))
            if not self._padding:
                places = places[storage.begins_window(places, length)]
            found = np.concatenate([found, places]) if len(found) else places
            if not replace:
                found = _distinct(found)
            if len(found) >= batch:
                return found[:batch]
            size, left = 2 * size, left - size
        return None

    def _windows(self, storage: StreamStorage, first: Array, length: int) -> SequenceBatch:
        places = storage.windows(first, length)
        columns = storage.gather(places)
        initial = {name: columns.pop(name)[:, 0].copy() for name in self._initial_columns}
        mask = np.ones(places.shape, bool)
        if self._padding:
            mask = storage.are_in_run(places)
            for column in columns.values():
                column[~mask] = 0
        mask[:, : self._burn_in] = False
        columns["mask"] = mask
        return SequenceBatch.of_length(length, columns, initial)

    def load_data(self, file_name: str) -> None:
        """Push what `save_data` wrote; what is pushed next follows none of it."""
        super().load_data(file_name)
        storage = self._stream_storage()
        if storage is not None:
            storage.cut()

    def _configure(self, cfg: Any) -> None:
        if self._frame_stack:
            raise ConfigError(
                f"frame_stack is {self._frame_stack}, but a sequence buffer keeps rows as they come. Set it to 0, or "
                "push single frames: a window of them is a stack."
            )
        if cfg["burn_in"] < 0 or (cfg["num_streams"] is not None and cfg["num_streams"] < 1):
            raise ConfigError(
                f"burn_in is {cfg['burn_in']} and num_streams {cfg['num_streams']}, expected numbers from 0 and from 1."
            )
        self._num_streams = cfg["num_streams"]
        self._may_widen = cfg["num_streams"] is None
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
        return StreamStorage(self._replay_buffer_size, Schema.of(columns), num_streams, may_widen=self._may_widen)

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
        return {"serials": storage.dump_serials(), "is_cut": storage.is_cut.copy(), "num_streams": storage.num_streams}

    def _load_own_state(self, state: State) -> None:
        storage = self._stream_storage()
        if storage is not None and "serials" in state:
            storage.load_serials(state["serials"], storage.streams_of(state["data"]))
            storage.is_cut[:] = state["is_cut"]


def _distinct(places: Array) -> Array:
    """Return places [B] in their order, each once."""
    ordered = np.sort(places)
    if not np.count_nonzero(ordered[1:] == ordered[:-1]):
        return places
    _, first = np.unique(places, return_index=True)
    return places[np.sort(first)]
