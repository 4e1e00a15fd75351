"""Columns that travel: schema, batches, rollouts, rows and records."""

from __future__ import annotations

from ding_like.utils.registries import lazy_exports

_BUFFERS = "use NaiveReplayBuffer or AdvancedReplayBuffer of ding_like.worker"
# DI-engine's that are not here -> what to use.
_INSTEAD = {
    "Buffer": _BUFFERS,
    "DequeBuffer": _BUFFERS,
    "create_dataset": "there is no learning from recorded data yet",
}

__getattr__, __dir__ = lazy_exports(__name__, {}, instead=_INSTEAD)
