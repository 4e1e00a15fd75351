"""Policy server: chooses a checkpoint, applies the run's wrappers to observations, reloads without a pause.

    blueprint = Blueprint.of("my_exp")
    with ServedPolicy(blueprint, CheckpointChoice.of("my_exp", "newest")) as served:
        response = served.act(request)

`agent` makes a policy of a run, `served` reloads it, `messages` are the bodies of requests and responses, `http_server`
has the routes and the access control. The command is in `entry/serve.py`.
"""

from ding_like.agent.checkpoints import CheckpointChoice
from ding_like.serve.agent import Agent, Blueprint
from ding_like.serve.served import ServedPolicy

__all__ = ["Agent", "Blueprint", "CheckpointChoice", "ServedPolicy"]
