"""Spread a run over workers, here or on a Ray cluster, by the names of PyTorchRL's schemes."""

from __future__ import annotations

import importlib
from typing import Any

_HERE = "ding_like.pipeline.ray"
_HOME_OF = {
    "CollectorThread": "ding_like.pipeline.roles.collector_thread",
    "Learner": "ding_like.pipeline.scheme_learner",
} | {
    name: f"{_HERE}.{module}"
    for module, names in dict(
        scheme="Scheme", worker="Worker", worker_set="WorkerSet", c_worker="CWorker", c_worker_set="CWorkerSet",
        g_worker="GWorker GWorkerSet", u_worker="UWorker UpdaterThread",
    ).items()
    for name in names.split()
}  # fmt: skip

__all__ = list(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module '{_HERE}' has no attribute '{name}'; it exports {', '.join(__all__)}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)
