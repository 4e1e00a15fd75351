"""Train with central inference: the classes of the document on the SEED architecture, imported when first used."""

from __future__ import annotations

import importlib
from typing import Any

_HERE = "ding_like.pipeline.seed"
_HOME_OF = {
    "Config": f"{_HERE}.config",
    "Trainer": "ding_like.entry.seed_trainer",
    "Actor": f"{_HERE}.actor",
    "InferenceServer": f"{_HERE}.servers",
    "InferenceProxy": f"{_HERE}.proxy_process",
    "InferenceClient": "ding_like.comm.zmq.inference",
    "Broadcaster": "ding_like.comm.zmq.weights",
}

__all__ = list(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module '{_HERE}' has no attribute '{name}'; it exports {', '.join(__all__)}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)
