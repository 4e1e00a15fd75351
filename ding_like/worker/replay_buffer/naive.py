"""Keep the newest rows and sample them evenly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ding_like.utils.registries import BUFFER_REGISTRY
from ding_like.worker.replay_buffer.buffer import Parts, PresetBuffer
from ding_like.worker.replay_buffer.sampler import UniformSampler
from ding_like.worker.replay_buffer.store import RowStore


@BUFFER_REGISTRY.register("naive")
class NaiveReplayBuffer(PresetBuffer):
    """Keep the last `replay_buffer_size` rows, each as likely to be sampled as any other."""

    config: dict[str, Any] = {"type": "naive", **PresetBuffer.config}

    @classmethod
    def make_parts(cls, cfg: Mapping[str, Any]) -> Parts:
        store = RowStore(int(cfg["replay_buffer_size"]), frame_stack=int(cfg["frame_stack"]))
        return Parts(store, UniformSampler())
