"""Subclasses of the classes of mode seed that need torch; see `seed_classes`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ding_like.comm.zmq.weights import Broadcaster
from ding_like.entry.seed_entry import Trainer, TrainingResult
from ding_like.pipeline.seed.servers import InferenceServer
from tests.chains.seed_classes import count


class OwnServer(InferenceServer):
    def evaluate(self, requests: Sequence[Any]) -> Sequence[Any]:
        count("InferenceServer.evaluate")
        return super().evaluate(requests)


class OwnTrainer(Trainer):
    def start(self, duration: float = float("inf")) -> TrainingResult:
        count("Trainer.start")
        return super().start(duration)


class OwnBroadcaster(Broadcaster):
    def publish(self, weights: Any) -> bool:
        count("Broadcaster.publish")
        return super().publish(weights)
