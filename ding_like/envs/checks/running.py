"""Check what a run does with an env besides playing: draw it, and wait for it."""

from __future__ import annotations

import copy
import time
from typing import Any

import gymnasium
import numpy as np

from ding_like.envs.checks import calls
from ding_like.envs.checks.report import Report
from ding_like.envs.checks.values import describe
from ding_like.utils.user_code import told

AnyEnv = gymnasium.Env[Any, Any]  # what an env observes and takes differs from env to env

_SPEED_STEPS = 2000
_SPEED_S = 0.5
# A process of its own answers after some 40 microseconds; from about twice that, it pays.
_SLOW_STEP_S = 1e-4
_SLOW_RESET_S = 0.01


def check_speed(report: Report, env: AnyEnv, seed: int) -> None:
    """Measure steps and seeded resets, half a second at most, and say which manager fits."""
    actions = copy.deepcopy(env.action_space)
    actions.seed(seed)
    calls.reset(report, env, seed)
    steps_s: list[float] = []
    resets_s: list[float] = []
    while len(steps_s) < _SPEED_STEPS and sum(steps_s) + sum(resets_s) < _SPEED_S:
        action = actions.sample()
        started = time.perf_counter()
        _, _, terminated, truncated, _ = env.step(action)
        steps_s.append(time.perf_counter() - started)
        if terminated or truncated:
            started = time.perf_counter()
            env.reset(seed=seed + len(resets_s))
            resets_s.append(time.perf_counter() - started)
    _report_speed(report, env, (sum(steps_s) + sum(resets_s)) / len(steps_s))
    if resets_s and sum(resets_s) / len(resets_s) > _SLOW_RESET_S:
        seen = f"a seeded reset takes {1e3 * sum(resets_s) / len(resets_s):.0f} ms"
        report.add("note", "speed", seen, fix="env.manager.reseed_after=5000 makes them rarer")


def _report_speed(report: Report, env: AnyEnv, mean_s: float) -> None:
    if mean_s >= _SLOW_STEP_S:
        fix = "env.manager.type='subprocess': several envs step at once, on as many cores"
    elif env.spec is not None and env.spec.vector_entry_point is not None:
        fix = "env.manager.type='base', or 'gym_vector' for its vectorised version (without wrappers)"
    else:
        fix = "env.manager.type='base': a process of its own would answer later than it steps here"
    seen = f"{1 / mean_s:,.0f} steps a second ({1e6 * mean_s:,.0f} microseconds each), resets included"
    report.add("note", "speed", seen, fix=fix)


def check_rendering(report: Report, env: AnyEnv) -> None:
    """Check the picture of an env that was made to draw; of any other, say whether it can."""
    if env.render_mode != "rgb_array":
        modes = list((env.metadata or {}).get("render_modes") or [])
        if "rgb_array" not in modes:
            seen = f"render_modes are {modes}, without 'rgb_array': there will be no video of the agent"
            fix = "metadata = {'render_modes': ['rgb_array'], 'render_fps': 30}; render() -> uint8 [H, W, 3]"
            report.add("note", "rendering", seen, fix=fix)
        return
    expected, fix = "an array uint8 [H, W, 3]", "return np.asarray(picture, np.uint8)"
    try:
        frame: Any = env.render()
    except Exception as error:  # render() may raise anything: errors of pygame, OpenGL or a driver
        report.add("fault", "rendering", f"render() raised {told(error)}", expected, "fix render()")
        return
    if not isinstance(frame, np.ndarray) or frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
        report.add("fault", "rendering", f"render() gave {describe(frame)}", expected, fix)
