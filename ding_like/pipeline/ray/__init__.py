"""Spread a run over workers, here or on a Ray cluster, by the names of PyTorchRL's schemes."""

from __future__ import annotations

from ding_like.utils.registries import lazy_exports

_HERE = "ding_like.pipeline.ray"
_HOME_OF = {
    name: f"{_HERE}.{module}"
    for module, names in dict(
        scheme="Learner Scheme UWorker UpdaterThread", worker_set="Worker WorkerSet",
        workers="CWorker CWorkerSet CollectorThread GWorker GWorkerSet",
    ).items()
    for name in names.split()
}  # fmt: skip

__all__ = list(_HOME_OF)

__getattr__, __dir__ = lazy_exports(__name__, _HOME_OF)
