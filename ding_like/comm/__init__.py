"""Carry rows, weights and commands between parts of a run: `channels` defines the calls, the others implement them.

Weight updaters are here by name, imported when first used, so that the package stays light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ding_like.comm.update_worker import WeightUpdateWorker
    from ding_like.comm.weight_updater import DistributedWeightUpdater, PushHandle, WeightUpdateError, WeightUpdaterBase

__all__ = ["DistributedWeightUpdater", "PushHandle", "WeightUpdateError", "WeightUpdateWorker", "WeightUpdaterBase"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ding_like.comm import update_worker, weight_updater

    return getattr(update_worker if name == "WeightUpdateWorker" else weight_updater, name)


def __dir__() -> list[str]:
    return sorted(__all__)
