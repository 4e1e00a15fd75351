"""What a user calls: `serial_pipeline()` and its siblings, and the command line."""

from __future__ import annotations

import importlib
from typing import Any

# Imported on first use: `ding --help` must not wait for torch.
_HOMES = {
    "serial_pipeline": "ding_like.entry.serial_entry",
    "serial_pipeline_onpolicy": "ding_like.entry.serial_entry",
    "resume_pipeline": "ding_like.entry.resume",
    "parallel_pipeline": "ding_like.entry.parallel_entry",
    "ray_pipeline": "ding_like.entry.ray_entry",
    "seed_pipeline": "ding_like.entry.seed_entry",
    "launch_coordinator": "ding_like.entry.coordinator_entry",
    "launch_collector": "ding_like.entry.dist_entry",
    "launch_learner": "ding_like.entry.dist_entry",
    "random_collect": "ding_like.pipeline.turns",
    "eval": "ding_like.entry.eval_entry",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"ding_like.entry has no '{name}'; it has {', '.join(_HOMES)}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
