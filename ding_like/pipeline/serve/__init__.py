"""Serve a run's policy: which checkpoint, how observations reach it, and newer weights without a pause.

blueprint = Blueprint.of("my_exp")
with ServedPolicy(blueprint, CheckpointChoice.of("my_exp", "newest")) as served:
    answer = served.act(question)
"""

from ding_like.pipeline.serve.agent import Agent, Blueprint
from ding_like.pipeline.serve.checkpoints import CheckpointChoice
from ding_like.pipeline.serve.served import ServedPolicy

__all__ = ["Agent", "Blueprint", "CheckpointChoice", "ServedPolicy"]
