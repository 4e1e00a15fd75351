"""An env that fails, hangs and says that it was closed, as files in a folder tell it to: any process can write them."""

from __future__ import annotations

import itertools
import os
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from ding_like.envs.wrappers import wrap

_closed = itertools.count()  # envs of this process, whose threads may close theirs at the same time


class ScriptedEnv(gymnasium.Env[np.ndarray, np.int64]):
    """Count steps in its observation; an episode has 5.

    It raises where there is a file "raise", or "raise-make" when it is made, and hangs where there is "hang". It leaves
    "made-PID" behind, and "closed-PID-NUMBER" when it is closed. The seed is in its observation.
    """

    observation_space = gymnasium.spaces.Box(-1e6, 1e6, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, cfg: Any = None, *, folder: str) -> None:
        self._folder = Path(folder)
        self._time = self._seed = 0
        (self._folder / f"made-{os.getpid()}").touch()
        if (self._folder / "raise-make").exists():
            raise RuntimeError("there is no door")

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._time = 0
        self._seed = self._seed if seed is None else seed
        return np.array([0, self._seed], np.float32), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if (self._folder / "raise").exists():
            raise RuntimeError("the door is stuck")
        if (self._folder / "hang").exists():
            (self._folder / "hanging").touch()
            threading.Event().wait(60.0)
        self._time += 1
        return np.array([self._time, self._seed], np.float32), 1.0, self._time == 5, False, {}

    def close(self) -> None:
        (self._folder / f"closed-{os.getpid()}-{next(_closed)}").touch()


def normalised(cfg: Any = None, *, folder: str) -> gymnasium.Env[Any, Any]:
    """Return such an env whose observations are normalised by what all have seen."""
    return wrap(ScriptedEnv(cfg, folder=folder), [dict(type="obs_norm")])
