"""Collectors: one rollout loop, and thin classes that decide when to stop and what to return."""

from ding_like.data.rows import to_tensor_transitions
from ding_like.worker.collector.base import ISerialCollector, create_serial_collector, get_serial_collector_cls
from ding_like.worker.collector.battle import BattleEpisodeSerialCollector, BattleSampleSerialCollector
from ding_like.worker.collector.episode import EpisodeSerialCollector
from ding_like.worker.collector.sample import SampleSerialCollector

__all__ = [
    "BattleEpisodeSerialCollector",
    "BattleSampleSerialCollector",
    "EpisodeSerialCollector",
    "ISerialCollector",
    "SampleSerialCollector",
    "create_serial_collector",
    "get_serial_collector_cls",
    "to_tensor_transitions",
]
