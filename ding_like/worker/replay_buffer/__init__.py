"""Keep data for training: storage, sampler and counters, and the buffers put together from them."""

from ding_like.worker.replay_buffer.advanced import AdvancedReplayBuffer
from ding_like.worker.replay_buffer.episode import EpisodeReplayBuffer
from ding_like.worker.replay_buffer.interface import IBuffer, create_buffer, get_buffer_cls
from ding_like.worker.replay_buffer.naive import NaiveReplayBuffer
from ding_like.worker.replay_buffer.sequence import SequenceReplayBuffer

__all__ = [
    "AdvancedReplayBuffer",
    "EpisodeReplayBuffer",
    "IBuffer",
    "NaiveReplayBuffer",
    "SequenceReplayBuffer",
    "create_buffer",
    "get_buffer_cls",
]
