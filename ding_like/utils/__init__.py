"""Hold what every part uses: registries, logging, metrics, checkpoints, seeding, atomic files.

Scripts written for DI-engine find what they import from its `ding.utils` here; each name is imported on first use.
"""

from __future__ import annotations

from typing import Any

from ding_like.utils.lazy_exports import lazy_export

_REGISTRIES = "ding_like.utils.registries"
# The table may point upward: nothing is imported before it is asked for.
_HOMES = {
    "BUFFER_REGISTRY": _REGISTRIES,
    "COMMANDER_REGISTRY": _REGISTRIES,
    "COMM_COLLECTOR_REGISTRY": _REGISTRIES,
    "COMM_LEARNER_REGISTRY": _REGISTRIES,
    "ENV_MANAGER_REGISTRY": _REGISTRIES,
    "ENV_REGISTRY": _REGISTRIES,
    "ENV_WRAPPER_REGISTRY": _REGISTRIES,
    "EasyTimer": "ding_like.utils.timing",
    "LEAGUE_REGISTRY": _REGISTRIES,
    "LEARNER_REGISTRY": _REGISTRIES,
    "MODEL_REGISTRY": _REGISTRIES,
    "PARALLEL_COLLECTOR_REGISTRY": _REGISTRIES,
    "PLAYER_REGISTRY": _REGISTRIES,
    "POLICY_REGISTRY": _REGISTRIES,
    "REWARD_MODEL_REGISTRY": _REGISTRIES,
    "SERIAL_COLLECTOR_REGISTRY": _REGISTRIES,
    "SERIAL_EVALUATOR_REGISTRY": _REGISTRIES,
    "build_logger": "ding_like.utils.log",
    "deep_merge_dicts": "ding_like.config.tree:deep_merge",
    "one_time_warning": "ding_like.utils.log",
    "read_file": "ding_like.utils.checkpoint",
    "save_file": "ding_like.utils.checkpoint",
    "set_pkg_seed": "ding_like.utils.seeding",
}
# DI-engine's that are not here -> what to use.
_INSTEAD = {
    "DDPContext": "learners find one another: ding --learners N, or torchrun",
    "DistContext": "learners find one another: ding --learners N, or torchrun",
    "allreduce": "learners average their gradients themselves: ding --learners N, or torchrun",
    "get_rank": "learners find one another: ding --learners N, or torchrun; use torch.distributed.get_rank",
    "get_world_size": "learners find one another: ding --learners N, or torchrun; use torch.distributed.get_world_size",
    "lists_to_dicts": "batches are columns: ding_like.data.batch.TransitionBatch",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    return lazy_export(__name__, _HOMES, name, instead=_INSTEAD)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
