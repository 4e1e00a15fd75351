"""Evaluators of a policy on fresh episodes."""

from ding_like.worker.evaluator.base import ISerialEvaluator, create_serial_evaluator
from ding_like.worker.evaluator.interaction import (
    BattleInteractionSerialEvaluator,
    InteractionSerialEvaluator,
    VectorEvalMonitor,
    play_episodes,
)
from ding_like.worker.evaluator.metric import IMetric, MetricSerialEvaluator

__all__ = [
    "BattleInteractionSerialEvaluator",
    "IMetric",
    "ISerialEvaluator",
    "InteractionSerialEvaluator",
    "MetricSerialEvaluator",
    "VectorEvalMonitor",
    "create_serial_evaluator",
    "play_episodes",
]
