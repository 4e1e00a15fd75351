"""Policy server: chooses a checkpoint, applies the run's wrappers to observations, reloads without a pause.

    blueprint = Blueprint("my_exp")
    with ServedPolicy(blueprint, CheckpointChoice("my_exp", "newest")) as served:
        response = served.act(request)

`served` makes agents of checkpoints and replaces them, `messages` are the bodies of requests and responses,
`http_server` has the routes and the access control. The command is in `entry/results.py`.
"""

from ding_like.agent.checkpoints import CheckpointChoice
from ding_like.serve.served import Blueprint, ServedAgent, ServedPolicy

__all__ = ["Blueprint", "CheckpointChoice", "ServedAgent", "ServedPolicy"]
