"""Keep the newest whole episodes and sample whole episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ding_like.data.batch import EpisodeBatch, TransitionBatch
from ding_like.data.rows import as_batch
from ding_like.data.schema import Schema
from ding_like.data.sequence_batch import SequenceBatch
from ding_like.errors import ConfigError
from ding_like.types import Array
from ding_like.utils.registries import BUFFER_REGISTRY
from ding_like.worker.replay_buffer.naive import NaiveReplayBuffer
from ding_like.worker.replay_buffer.storage import ObjectStorage, RingStorage

_PREFIX, _OFFSETS = "column/", "offsets"  # how a saved buffer names its parts


class EpisodeStorage(RingStorage):
    """Keep episodes of any length, each in columns of its own."""

    def __init__(self, capacity: int, schema: Schema) -> None:
        super().__init__(capacity)
        self.schema = schema
        self._episodes: list[TransitionBatch | None] = [None] * capacity
        self._num_rows = 0

    @property
    def num_bytes(self) -> int:
        return self._num_rows * self.schema.row_bytes

    @property
    def num_rows(self) -> int:
        """Return how many rows the episodes have together."""
        return self._num_rows

    def gather(self, rows: Array) -> EpisodeBatch:
        """Return episodes end to end, in fresh memory."""
        chosen = [self._episode(row) for row in rows.tolist()]
        offsets = np.append(0, np.cumsum([len(episode) for episode in chosen])).astype(np.int64)
        columns = {
            name: np.concatenate([episode[name] for episode in chosen]) if chosen else empty
            for name, empty in self.schema.allocate(0).items()
        }
        return EpisodeBatch(TransitionBatch(columns), offsets)

    def _episode(self, row: int) -> TransitionBatch:
        episode = self._episodes[row]
        assert episode is not None, "only places of stored episodes are asked for"
        return episode

    def _accept(self, data: Sequence[Any]) -> list[TransitionBatch]:
        accepted = []
        for episode in data:
            columns = {name: np.array(column) for name, column in episode.columns.items()}  # copies
            self.schema.check(columns, where="the buffer")
            accepted.append(TransitionBatch(columns))
        return accepted

    def _write(self, source: list[TransitionBatch], places: slice, part: slice | None) -> None:
        new = source if part is None else source[part]
        old = self._episodes[places]
        self._num_rows += sum(map(len, new)) - sum(len(episode) for episode in old if episode is not None)
        self._episodes[places] = new


@BUFFER_REGISTRY.register("episode")
class EpisodeReplayBuffer(NaiveReplayBuffer):
    """Keep the last `replay_buffer_size` episodes, each as likely to be sampled as any other, however long it is.

    `push` takes an EpisodeBatch, or a list of episodes, each a TransitionBatch or a list of rows; a TransitionBatch or
    a list of rows by itself is one episode. `sample` returns an EpisodeBatch, or a list where rows do not stack.
    """

    config: dict[str, Any] = {
        **NaiveReplayBuffer.config,
        "type": "episode",
        # Return a SequenceBatch [B, T_max, ...], filled up with zeros and False in the column `mask`.
        "padding": False,
    }
    samples = "episodes"

    def sample(
        self, size: int, cur_learner_iter: int, sample_range: slice | None = None, replace: bool = False
    ) -> Any:  # EpisodeBatch, SequenceBatch or list, by what is stored
        """Return `size` episodes, drawn evenly; as in the naive buffer otherwise."""
        data = super().sample(size, cur_learner_iter, sample_range=sample_range, replace=replace)
        return _padded(data) if self._padding and isinstance(data, EpisodeBatch) and len(data) else data

    def _configure(self, cfg: Mapping[str, Any]) -> None:
        if self._frame_stack:
            raise ConfigError(
                f"frame_stack is {self._frame_stack}, but an episode buffer keeps rows as they come. Set it to 0."
            )
        self._padding = bool(cfg["padding"])

    def _as_rows(self, data: Any) -> Sequence[Any]:
        episodes = _episodes_of(data)
        stacked = [as_batch(episode) for episode in episodes]
        if self._remover is not None or isinstance(self._storage, ObjectStorage) or any(e is None for e in stacked):
            return super()._as_rows(list(episodes))
        return stacked

    def _new_storage(self, rows: Sequence[Any]) -> Any:
        if not isinstance(rows[0], TransitionBatch):
            return ObjectStorage(self._replay_buffer_size)
        columns = {name: np.asarray(column) for name, column in rows[0].columns.items()}
        return EpisodeStorage(self._replay_buffer_size, Schema.of(columns))

    def _dump(self) -> dict[str, Any] | list[Any]:
        if not isinstance(self._storage, EpisodeStorage):
            return super()._dump()
        episodes = self._storage.dump()
        assert isinstance(episodes, EpisodeBatch), "an episode storage gives episodes"
        columns = {f"{_PREFIX}{name}": column for name, column in episodes.batch.columns.items()}
        return {_OFFSETS: episodes.offsets, **columns}

    def _append_dump(self, dump: dict[str, Any] | list[Any]) -> None:
        if not isinstance(dump, dict):
            super()._append_dump(dump)
            return
        columns = {name[len(_PREFIX) :]: column for name, column in dump.items() if name != _OFFSETS}
        self._append(EpisodeBatch(TransitionBatch(columns), dump[_OFFSETS]))


def _episodes_of(data: Any) -> Sequence[Any]:
    """Return what was pushed as a sequence of episodes."""
    if isinstance(data, EpisodeBatch):
        return data
    if isinstance(data, TransitionBatch):
        return [data]
    if not isinstance(data, list):
        return [[data]] if isinstance(data, Mapping) else [data]
    return [data] if data and isinstance(data[0], Mapping) else data


def _padded(episodes: EpisodeBatch) -> SequenceBatch:
    """Return episodes [N, T_max, ...], filled up with zeros."""
    lengths = np.diff(episodes.offsets)
    steps = np.arange(int(lengths.max()))
    mask = steps < lengths[:, None]
    columns = {}
    for name, column in episodes.batch.columns.items():
        padded = np.zeros((*mask.shape, *column.shape[1:]), column.dtype)
        padded[mask] = column
        columns[name] = padded
    return SequenceBatch({**columns, "mask": mask})
