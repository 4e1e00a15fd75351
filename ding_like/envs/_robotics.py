"""Registration of gymnasium-robotics' environments on import, and a fix that lets them run with a newer mujoco.

Raises ImportError where the package is not installed.
"""

from __future__ import annotations

import importlib
import types
from typing import Any

import gymnasium
import numpy as np

from ding_like.envs.gymnasium_env import draw_without_display

_ENUMS = ("mjtEq", "mjtJoint", "mjtObj")


class _WithPlainEnums:
    """The module mujoco, with enums that are plain numbers.

    gymnasium-robotics 1.4.2 looks for entries of a model's arrays (int32) among them. With mujoco 3.17, whose enums
    equal no numpy number, none is found, and an assertion ends the making of every env with a joint.
    """

    def __init__(self, module: Any) -> None:  # Any: a module
        self._module = module
        for name in _ENUMS:
            numbers = {member: int(value) for member, value in getattr(module, name).__members__.items()}
            setattr(self, name, types.SimpleNamespace(**numbers))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _register() -> None:
    draw_without_display()  # where drawing fails, a second try aborts the process
    gymnasium.register_envs(importlib.import_module("gymnasium_robotics"))
    mujoco = importlib.import_module("mujoco")
    hinge = mujoco.mjtJoint.mjJNT_HINGE
    if hinge != np.int32(int(hinge)):
        # The one name under which its functions find mujoco.
        vars(importlib.import_module("gymnasium_robotics.utils.mujoco_utils"))["mujoco"] = _WithPlainEnums(mujoco)


_register()
