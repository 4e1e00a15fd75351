"""Reset and step an env as managers do, and check the form of its answers."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np

from ding_like.envs.checks.report import Report
from ding_like.envs.checks.values import describe
from ding_like.utils.user_code import told

AnyEnv = gymnasium.Env[Any, Any]  # what an env observes and takes differs from env to env

_RESET = "def reset(self, *, seed=None, options=None): super().reset(seed=seed); ...; return obs, {}"
_STEP = "return obs, float(reward), terminated, truncated, {}"


def reset(report: Report, env: AnyEnv, seed: int | None) -> Any:
    """Reset the env and return the observation. Raises UncheckableError if it does not answer with (obs, info)."""
    try:
        answer: Any = env.reset(seed=seed, options=None)
    except Exception as error:  # an env may raise anything; it goes into the report
        is_old = isinstance(error, TypeError) and "unexpected keyword argument" in str(error)
        expected = "that it takes seed and options" if is_old else "an episode that begins"
        fix = _RESET if is_old else "fix reset()"
        raise report.stop("reset", f"it raised {told(error)}", expected, fix) from error
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict):
        return answer[0]
    seen = f"it returned {describe(answer)}"
    raise report.stop("reset", seen, "a tuple (obs, info), info being a dict", _RESET)


def step(report: Report, env: AnyEnv, action: Any) -> tuple[Any, Any, Any, Any]:
    """Step the env with a copy of `action` and return (obs, reward, terminated, truncated).

    Raises UncheckableError if it raises, or does not answer with five values.
    """
    given = copy.deepcopy(action)
    try:
        answer: Any = env.step(given)
    except Exception as error:  # an env may raise anything; it goes into the report
        fix = "fix step(), or declare the actions that it takes: Discrete(n, start=1) counts from 1"
        seen = f"with action {action!r} it raised {told(error)}"
        raise report.stop("step", seen, f"that it takes every action of {env.action_space}", fix) from error
    if not isinstance(answer, tuple) or len(answer) != 5:
        seen = f"it returned {f'{len(answer)} values' if isinstance(answer, tuple) else describe(answer)}"
        raise report.stop("step", seen, "5 values: obs, reward, terminated, truncated, info", _STEP)
    if not isinstance(answer[4], dict):
        report.add("fault", "step", f"info is {describe(answer[4])}", "a dict", _STEP)
    if not np.array_equal(np.asarray(given), np.asarray(action)):
        report.add(
            "warning",
            "step",
            f"it wrote into the action that it was given: {action} became {given}",
            "actions left as they are: a resumed run plays them again",
            "action = np.clip(action, low, high), not out=action",
        )
    return answer[:4]
