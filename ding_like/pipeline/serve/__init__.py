"""Serve a run's policy: choose a checkpoint, apply the run's wrappers to observations, reload without a pause.

    blueprint = Blueprint.of("my_exp")
    with ServedPolicy(blueprint, CheckpointChoice.of("my_exp", "newest")) as served:
        response = served.act(request)

`checkpoints` finds the file, `agent` makes a policy of it, `observations` checks requests, `wrappers` applies env
wrappers, `served` reloads. HTTP is in `comm/serve/`, the command in `entry/serve.py`.
"""

from ding_like.agent.checkpoints import CheckpointChoice
from ding_like.pipeline.serve.agent import Agent, Blueprint
from ding_like.pipeline.serve.served import ServedPolicy

__all__ = ["Agent", "Blueprint", "CheckpointChoice", "ServedPolicy"]
