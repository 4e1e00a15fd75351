"""Let MuJoCo draw on machines without a display."""

from __future__ import annotations

import ctypes.util
import os
import sys


def draw_without_display() -> None:
    """Set MUJOCO_GL=egl where there is no display but EGL, unless it is set: MuJoCo would look for a window.

    dm_control reads it when it is imported, gymnasium when it first draws; processes started later inherit it.
    """
    has_display = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    if sys.platform != "linux" or has_display or "MUJOCO_GL" in os.environ:
        return
    if ctypes.util.find_library("EGL") is not None:
        os.environ["MUJOCO_GL"] = "egl"
