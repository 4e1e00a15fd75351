"""Carry rows, weights and commands between parts of a run: `channels` defines the calls, the others implement them.

Weight updaters are here by name; each is imported when it is first used, so that the package stays light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ding_like.comm.weights.push import PushHandle, WeightUpdateError
    from ding_like.comm.weights.updater import DistributedWeightUpdater, WeightUpdaterBase
    from ding_like.comm.weights.updater_worker import WeightUpdateWorker

__all__ = ["DistributedWeightUpdater", "PushHandle", "WeightUpdateError", "WeightUpdateWorker", "WeightUpdaterBase"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ding_like.comm.weights import push, updater, updater_worker

    for home in (push, updater, updater_worker):
        if getattr(home, name, None) is not None:
            return getattr(home, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
