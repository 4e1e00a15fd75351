"""Columns that travel: schema, batches, rollouts, rows and records."""

from __future__ import annotations

from typing import Any

from ding_like.utils.imports import lazy_export

_BUFFERS = "use NaiveReplayBuffer or AdvancedReplayBuffer of ding_like.worker"
# DI-engine's that are not here -> what to use.
_INSTEAD = {
    "Buffer": _BUFFERS,
    "DequeBuffer": _BUFFERS,
    "create_dataset": "there is no learning from recorded data yet",
}


def __getattr__(name: str) -> Any:
    return lazy_export(__name__, {}, name, instead=_INSTEAD)
