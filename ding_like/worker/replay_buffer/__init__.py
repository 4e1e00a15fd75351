"""Replay buffers, and the stores, samplers and limiters that they are made of."""

from ding_like.worker.replay_buffer.buffer import Parts, RateLimiter, ReplayBuffer, RowStore, StreamStore
from ding_like.worker.replay_buffer.presets import EpisodeSampler, EpisodeStore
from ding_like.worker.replay_buffer.sampler import (
    PrioritisedSampler,
    PrioritisedWindowSampler,
    UniformSampler,
    WindowSampler,
)

__all__ = [
    "EpisodeSampler",
    "EpisodeStore",
    "Parts",
    "PrioritisedSampler",
    "PrioritisedWindowSampler",
    "RateLimiter",
    "ReplayBuffer",
    "RowStore",
    "StreamStore",
    "UniformSampler",
    "WindowSampler",
]
