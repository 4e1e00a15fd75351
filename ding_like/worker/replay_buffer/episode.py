"""Buffer of the newest whole episodes, which samples whole episodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ding_like.data.batch import EpisodeBatch, SequenceBatch, TransitionBatch
from ding_like.data.rows import as_batch
from ding_like.data.schema import Schema
from ding_like.errors import SchemaError
from ding_like.types import Array, Config, SampleUnit
from ding_like.utils.registries import BUFFER_REGISTRY
from ding_like.worker.replay_buffer.buffer import Parts, Store, refuse_frame_stack
from ding_like.worker.replay_buffer.presets import NaiveReplayBuffer
from ding_like.worker.replay_buffer.sampler import UniformSampler
from ding_like.worker.replay_buffer.storage import Dump, ObjectStorage, Pushed, RingStorage, Rows

_PREFIX, _OFFSETS = "column/", "offsets"  # how a saved buffer names its parts


class EpisodeStorage(RingStorage):
    """Ring of episodes of any length, each in columns of its own."""

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
        """Number of rows of all episodes."""
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

    def _accept(self, data: Rows) -> list[TransitionBatch]:
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


class EpisodeStore(Store[RingStorage]):
    """Store of whole episodes: in columns of their own, or as objects where their rows do not stack."""

    def as_rows(self, data: Pushed, *, as_objects: bool) -> Rows:
        storage, episodes = self.storage, _episodes_of(data)
        stacked = [as_batch(episode) for episode in episodes]
        if as_objects or isinstance(storage, ObjectStorage) or any(episode is None for episode in stacked):
            return self._objects(list(episodes), storage.schema if isinstance(storage, EpisodeStorage) else None)
        return stacked

    def make(self, rows: Rows) -> RingStorage:
        if not isinstance(rows[0], TransitionBatch):
            return ObjectStorage(self.capacity)
        columns = {name: np.asarray(column) for name, column in rows[0].columns.items()}
        return EpisodeStorage(self.capacity, Schema.of(columns))

    def dump(self) -> Dump:
        if not isinstance(self.storage, EpisodeStorage):
            return super().dump()
        episodes = self.storage.dump()
        assert isinstance(episodes, EpisodeBatch), "an episode storage gives episodes"
        columns = {f"{_PREFIX}{name}": column for name, column in episodes.batch.columns.items()}
        return {_OFFSETS: episodes.offsets, **columns}

    def parts_of(self, dump: Dump) -> Iterator[Pushed]:
        if isinstance(dump, dict):
            columns = {name[len(_PREFIX) :]: column for name, column in dump.items() if name != _OFFSETS}
            yield EpisodeBatch(TransitionBatch(columns), dump[_OFFSETS])
            return
        if dump and self.storage is None:
            self.storage = ObjectStorage(self.capacity)  # what was objects stays so, even if it stacks
        yield dump


class EpisodeSampler(UniformSampler):
    """Sampler that draws each episode as likely as any other; `padding` fills them up to rectangles."""

    unit: SampleUnit = "episode"

    def __init__(self, *, padding: bool) -> None:
        self._padding = padding

    def gather(self, storage: RingStorage, places: Array, train_iter: int) -> Rows:
        data = storage.gather(places)
        return _padded(data) if self._padding and isinstance(data, EpisodeBatch) and len(data) else data


@BUFFER_REGISTRY.register("episode")
class EpisodeReplayBuffer(NaiveReplayBuffer):
    """Buffer of the last `replay_buffer_size` episodes, each as likely to be sampled as any other, however long.

    `push` takes an EpisodeBatch, or a list of episodes, each a TransitionBatch or a list of rows; a TransitionBatch or
    a list of rows by itself is one episode. `sample` returns an EpisodeBatch, or a list where rows do not stack.
    In a pipeline (`for_pipeline`) a TransitionBatch has the rows of several whole episodes, by `episode_id`.
    """

    config: dict[str, Any] = {
        **NaiveReplayBuffer.config,
        "type": "episode",
        # Return a SequenceBatch [B, T_max, ...], filled up with zeros and False in the column `mask`.
        "padding": False,
    }
    unit: SampleUnit = "episode"
    _parts_rows = False

    @classmethod
    def for_pipeline(cls, cfg: Config, **kwargs: Any) -> EpisodeReplayBuffer:  # those of the constructor
        """Return a buffer whose `push` parts the rows of a batch into their episodes."""
        buffer = cls(cfg, **kwargs)
        buffer._parts_rows = True
        return buffer

    def push(self, data: Pushed, cur_collector_envstep: int) -> None:
        """Copy episodes in. Raises SchemaError if they do not fit, or if rows to be parted lack `episode_id`."""
        if self._parts_rows and isinstance(data, TransitionBatch) and len(data):
            data = _parted(data)
        super().push(data, cur_collector_envstep)

    @classmethod
    def make_parts(cls, cfg: Config) -> Parts:
        refuse_frame_stack(cfg, what="an episode")
        return Parts(EpisodeStore(int(cfg["replay_buffer_size"])), EpisodeSampler(padding=bool(cfg["padding"])))


def _episodes_of(data: Pushed) -> Rows:
    """Return what was pushed as a sequence of episodes."""
    if isinstance(data, EpisodeBatch):
        return data
    if isinstance(data, TransitionBatch):
        return [data]
    if not isinstance(data, list):
        return [[data]] if isinstance(data, Mapping) else [data]
    return [data] if data and isinstance(data[0], Mapping) else data


def _parted(rows: TransitionBatch) -> EpisodeBatch:
    """Return rows as episodes, which begin in the order of their ids."""
    if "episode_id" not in rows.columns:
        raise SchemaError(
            f"an episode buffer parts rows by 'episode_id', but these have {', '.join(rows.columns)}: let the policy's "
            "segment keep the collector's columns."
        )
    order = np.asarray(rows["episode_id"]).argsort(kind="stable")
    ids = np.asarray(rows["episode_id"])[order]
    ends = np.append(np.flatnonzero(ids[1:] != ids[:-1]) + 1, len(ids))
    return EpisodeBatch(rows.take(order), np.append(0, ends))


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
