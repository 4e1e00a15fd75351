"""Train reinforcement-learning agents from a config file, in one process or many.

    agent = ding_like.load("my_exp")                                       # what a run trained, without its env
    run = ding_like.train("dqn", "CartPole-v1", env_step=20_000)           # the same as a config file says

Importing this package loads neither torch nor any part; take the rest from its sub-packages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ding_like.agent.loaded import Agent, load
    from ding_like.entry.train import Run, train

__version__ = "0.1.0"

# Imported on first use.
_HOMES = {
    "Agent": "ding_like.agent.loaded",
    "Run": "ding_like.entry.train",
    "load": "ding_like.agent.loaded",
    "train": "ding_like.entry.train",
}

__all__ = ["Agent", "Run", "__version__", "load", "train"]


def __getattr__(name: str) -> Any:  # Any: of what the home exports
    from ding_like.utils.registries import lazy_export

    return lazy_export(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
