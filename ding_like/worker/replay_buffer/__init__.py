"""Replay buffers, and the stores, samplers and limiters that they are made of."""

from ding_like.worker.replay_buffer.buffer import (
    IBuffer,
    Parts,
    ReplayBuffer,
    check_sample_unit,
    create_buffer,
    create_pipeline_buffer,
    get_buffer_cls,
)
from ding_like.worker.replay_buffer.episode import EpisodeReplayBuffer, EpisodeSampler, EpisodeStore
from ding_like.worker.replay_buffer.flow import RateLimiter
from ding_like.worker.replay_buffer.hindsight import GoalRules, HindsightReplayBuffer, HindsightSampler, HindsightStore
from ding_like.worker.replay_buffer.presets import (
    AdvancedReplayBuffer,
    NaiveReplayBuffer,
    PrioritisedSequenceReplayBuffer,
    SequenceReplayBuffer,
)
from ding_like.worker.replay_buffer.sampler import (
    PrioritisedSampler,
    PrioritisedWindowSampler,
    Sampler,
    UniformSampler,
    WindowSampler,
    WindowShape,
)
from ding_like.worker.replay_buffer.store import RowStore, Store, StreamStore

__all__ = [
    "AdvancedReplayBuffer",
    "EpisodeReplayBuffer",
    "EpisodeSampler",
    "EpisodeStore",
    "GoalRules",
    "HindsightReplayBuffer",
    "HindsightSampler",
    "HindsightStore",
    "IBuffer",
    "NaiveReplayBuffer",
    "Parts",
    "PrioritisedSampler",
    "PrioritisedSequenceReplayBuffer",
    "PrioritisedWindowSampler",
    "RateLimiter",
    "ReplayBuffer",
    "RowStore",
    "Sampler",
    "SequenceReplayBuffer",
    "Store",
    "StreamStore",
    "UniformSampler",
    "WindowSampler",
    "WindowShape",
    "check_sample_unit",
    "create_buffer",
    "create_pipeline_buffer",
    "get_buffer_cls",
]
