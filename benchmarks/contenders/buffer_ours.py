"""Our replay buffers, as configs name them."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from benchmarks.contenders import buffer_work  # isort: skip  (pins the threads first)

import numpy as np

from benchmarks.contenders.buffer_data import FRAME_STACK, SEQUENCE_STEPS, Columns, count_episodes
from ding_like.config import deep_merge
from ding_like.data.batch import TransitionBatch
from ding_like.data.segment_file import map_columns, save_columns
from ding_like.errors import RegistryError
from ding_like.pipeline.data_set import DataSet
from ding_like.worker import create_buffer, get_buffer_cls


class Buffer:
    """Push batches as the collector returns them; sample as the learner does, up to tensors."""

    def __init__(self, rows: int, **cfg: Any) -> None:
        try:
            defaults = get_buffer_cls(cfg).default_config()
        except RegistryError as error:
            raise SystemExit(str(error)) from error
        unknown = cfg.keys() - defaults.keys()
        if unknown:
            raise SystemExit(f"buffer '{cfg['type']}' has no setting {', '.join(sorted(unknown))}")
        self._buffer: Any = create_buffer(deep_merge(defaults, {**cfg, "replay_buffer_size": rows}), None)
        self._last: Any = None

    def prepare(self, columns: Columns) -> TransitionBatch:
        rest = {name: column for name, column in columns.items() if name != "done"}
        return TransitionBatch({**rest, "terminated": columns["done"]})

    def push(self, load: TransitionBatch) -> None:
        self._buffer.push(load, 0)

    def sample(self, size: int) -> Mapping[str, Any]:
        return self._tensors(self._buffer.sample(size, 0))

    def update(self, priority: np.ndarray[Any, Any]) -> None:
        which = {name: self._last[name] for name in ("replay_unique_id", "replay_buffer_idx")}
        self._buffer.update({**which, "priority": priority})

    def _tensors(self, batch: Any) -> Mapping[str, Any]:
        self._last = batch
        columns: Mapping[str, Any] = batch.to("cpu").columns
        return columns


class ReplacingBuffer(Buffer):
    """Sampler that may draw a row twice, as those of all peers."""

    def sample(self, size: int) -> Mapping[str, Any]:
        return self._tensors(self._buffer.sample(size, 0, replace=True))


class CollectedBuffer(Buffer):
    """Store all columns that the collector hands over, of which peers have none: whose row this is, and how old."""

    def __init__(self, rows: int, **cfg: Any) -> None:
        super().__init__(rows, **cfg)
        self._next_episode = 0

    def prepare(self, columns: Columns) -> TransitionBatch:
        batch = super().prepare(columns)
        done = columns["done"]
        episode, step = count_episodes(done, self._next_episode)
        self._next_episode = int(episode[-1] + done[-1])
        zeros = np.zeros(len(done), np.int64)
        return batch.with_columns(
            truncated=np.zeros_like(done),
            lane=zeros,
            env_id=zeros,
            episode_id=episode,
            step=step,
            policy_version=zeros,
        )


class SequenceBuffer(CollectedBuffer):
    """Sample windows."""

    def sample(self, size: int) -> Mapping[str, Any]:
        return self._tensors(self._buffer.sample(size, SEQUENCE_STEPS, 0))


class DataSetRows(Buffer):
    """Rows of a data set, drawn in shuffled epochs: from a file in which they stay, or from memory."""

    def __init__(self, rows: int, *, in_file: bool) -> None:
        self._rows, self._in_file, self._parts = rows, in_file, list[TransitionBatch]()
        self._data_set: DataSet | None = None

    def push(self, load: TransitionBatch) -> None:
        self._parts.append(load)

    def sample(self, size: int) -> Mapping[str, Any]:
        if self._data_set is None:
            columns = dict(TransitionBatch.concat(self._parts)[: self._rows].columns)
            if self._in_file:
                with tempfile.TemporaryDirectory() as folder:  # an open file may be deleted
                    save_columns(f"{folder}/rows.safetensors", columns)
                    columns = map_columns(f"{folder}/rows.safetensors")
            rng = np.random.default_rng(0)
            self._data_set = DataSet(TransitionBatch(columns), size, rng, source="rows", max_loaded_bytes=0)
        while True:  # minibatches of an epoch differ by a row
            batch = self._data_set.draw()
            if len(batch) == size:
                return self._tensors(batch)


def _prioritised(rows: int, *, compiled: bool) -> Buffer:
    """Return a prioritised buffer that runs in numpy, or in its compiled part."""
    from ding_like.data import compiled as home

    part = home.compiled_part()
    if compiled and part is None:
        raise SystemExit("the compiled part of the replay buffers was not built: install again with a C compiler")
    for name, module in list(sys.modules.items()):
        if name.startswith("ding_like.") and hasattr(module, "compiled_part"):
            module.compiled_part = lambda: part if compiled else None  # type: ignore[attr-defined]
    return Buffer(rows, type="advanced")


MAKERS = {
    "uniform": lambda rows: Buffer(rows, type="naive"),
    "replacing": lambda rows: ReplacingBuffer(rows, type="naive"),
    "collected": lambda rows: CollectedBuffer(rows, type="naive"),
    "prioritised": lambda rows: _prioritised(rows, compiled=False),
    "prioritised_compiled": lambda rows: _prioritised(rows, compiled=True),
    "atari": lambda rows: CollectedBuffer(rows, type="naive", frame_stack=FRAME_STACK),
    "sequence": lambda rows: SequenceBuffer(rows, type="sequence"),
    "data_set": lambda rows: DataSetRows(rows, in_file=False),
    "data_set_in_file": lambda rows: DataSetRows(rows, in_file=True),
}

if __name__ == "__main__":
    buffer_work.main(MAKERS, ("torch", "numpy"))
