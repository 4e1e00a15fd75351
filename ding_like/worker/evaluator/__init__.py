"""Evaluators: judge a policy on fresh episodes."""

from ding_like.worker.evaluator.base import ISerialEvaluator, create_serial_evaluator
from ding_like.worker.evaluator.battle import BattleInteractionSerialEvaluator
from ding_like.worker.evaluator.interaction import InteractionSerialEvaluator, play_episodes
from ding_like.worker.evaluator.metric import IMetric, MetricSerialEvaluator
from ding_like.worker.evaluator.monitor import VectorEvalMonitor

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
