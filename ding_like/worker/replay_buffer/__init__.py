"""Keep data for training: a store, a sampler and a limiter, and the buffers put together from them."""

from ding_like.worker.replay_buffer.advanced import AdvancedReplayBuffer
from ding_like.worker.replay_buffer.buffer import ReplayBuffer
from ding_like.worker.replay_buffer.episode import EpisodeReplayBuffer
from ding_like.worker.replay_buffer.interface import (
    IBuffer,
    check_sample_unit,
    create_buffer,
    create_pipeline_buffer,
    get_buffer_cls,
)
from ding_like.worker.replay_buffer.naive import NaiveReplayBuffer
from ding_like.worker.replay_buffer.sequence import PrioritisedSequenceReplayBuffer, SequenceReplayBuffer

__all__ = [
    "AdvancedReplayBuffer",
    "EpisodeReplayBuffer",
    "IBuffer",
    "NaiveReplayBuffer",
    "PrioritisedSequenceReplayBuffer",
    "ReplayBuffer",
    "SequenceReplayBuffer",
    "check_sample_unit",
    "create_buffer",
    "create_pipeline_buffer",
    "get_buffer_cls",
]
