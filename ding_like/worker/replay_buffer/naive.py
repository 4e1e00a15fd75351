"""Keep the newest rows and sample them evenly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ding_like.errors import SchemaError
from ding_like.utils.registries import BUFFER_REGISTRY
from ding_like.worker.replay_buffer.base import ReplayBuffer
from ding_like.worker.replay_buffer.sampler import draw_uniform


@BUFFER_REGISTRY.register("naive")
class NaiveReplayBuffer(ReplayBuffer):
    """Keep the last `replay_buffer_size` rows, each as likely to be sampled as any other."""

    config: dict[str, Any] = {"type": "naive", **ReplayBuffer.config}

    def sample(
        self, size: int, cur_learner_iter: int, sample_range: slice | None = None, replace: bool = False
    ) -> Sequence[Any] | None:
        """Return `size` rows, drawn evenly: a TransitionBatch, or a list of objects.

        `sample_range` restricts the draw by age: slice(-10, None) are the ten newest. Without `replace` no row comes
        twice. Returns None, and says why in the log, if there are too few rows.
        """
        if size < 0:
            raise SchemaError(f"a sample of {size} rows was asked for; give a number from 0.")
        with self._lock:
            storage = self._storage
            if size == 0:
                return [] if storage is None else storage.gather(np.arange(0))
            ages = range(0 if storage is None else storage.count)
            if sample_range is not None:
                ages = ages[sample_range]
            if storage is None or not ages or (size > len(ages) and not replace):
                self._refuse(size, len(ages))
                return None
            data = storage.gather(storage.rows(draw_uniform(self._rng, ages, size, replace=replace)))
        self._train_iter = cur_learner_iter
        self._report(self._meter.add(sampled_out=size))
        return data
