"""Train with central inference: the classes of the document on the SEED architecture, imported when first used."""

from __future__ import annotations

from ding_like.utils.registries import lazy_exports

_HERE = "ding_like.pipeline.seed"
_HOME_OF = {
    "Config": "ding_like.pipeline.settings",
    "Trainer": "ding_like.entry.seed_entry",
    "Actor": f"{_HERE}.actor",
    "ActorThread": f"{_HERE}.actor",
    "AgentConfig": f"{_HERE}.actor",
    "InferenceServer": f"{_HERE}.servers",
    "InferenceProxy": "ding_like.comm.zmq.inference",
    "InferenceClient": "ding_like.comm.zmq.inference",
    "Broadcaster": "ding_like.comm.zmq.weights",
}

__all__ = list(_HOME_OF)

__getattr__, __dir__ = lazy_exports(__name__, _HOME_OF)
