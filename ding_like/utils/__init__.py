"""What every part uses: registries, logging, metrics, checkpoints, seeding, atomic files.

Scripts written for DI-engine find what they import from its `ding.utils` here; each name is imported on first use.
"""

from __future__ import annotations

from ding_like.utils.registries import lazy_exports

_REGISTRIES = (
    "BUFFER COMMANDER COMM_COLLECTOR COMM_LEARNER ENV ENV_MANAGER ENV_WRAPPER LEAGUE LEARNER MODEL PARALLEL_COLLECTOR "
    "PLAYER POLICY REWARD_MODEL SERIAL_COLLECTOR SERIAL_EVALUATOR"
)
# The table may point upward: nothing is imported before it is asked for.
_HOMES = {
    **{f"{name}_REGISTRY": "ding_like.utils.registries" for name in _REGISTRIES.split()},
    "EasyTimer": "ding_like.utils.measure",
    "build_logger": "ding_like.utils.log",
    "deep_merge_dicts": "ding_like.config.tree:deep_merge",
    "one_time_warning": "ding_like.utils.log",
    "read_file": "ding_like.utils.checkpoint",
    "save_file": "ding_like.utils.checkpoint",
    "set_pkg_seed": "ding_like.utils.seeding",
}
_TOGETHER = "learners find one another: ding --learners N, or torchrun"
# DI-engine's that are not here -> what to use.
_INSTEAD = {
    "DDPContext": _TOGETHER,
    "DistContext": _TOGETHER,
    "allreduce": "learners average their gradients themselves: ding --learners N, or torchrun",
    "get_rank": f"{_TOGETHER}; use torch.distributed.get_rank",
    "get_world_size": f"{_TOGETHER}; use torch.distributed.get_world_size",
    "lists_to_dicts": "batches are columns: ding_like.data.batch.TransitionBatch",
}

__all__ = [*_HOMES]

__getattr__, __dir__ = lazy_exports(__name__, _HOMES, instead=_INSTEAD)
