"""What a user calls: `serial_pipeline()` and its siblings, and the command line."""

from __future__ import annotations

from typing import Any

from ding_like.utils.lazy_exports import lazy_export

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
    return lazy_export(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
