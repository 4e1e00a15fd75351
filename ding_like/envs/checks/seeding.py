"""Check that episodes depend on seeds and actions alone."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from ding_like.envs.checks import calls
from ding_like.envs.checks.report import Report
from ding_like.envs.checks.values import equal
from ding_like.envs.wrappers import load_wrapper_states, wrapper_states
from ding_like.types import State

AnyEnv = gymnasium.Env[Any, Any]  # what an env observes and takes differs from env to env

_STEPS = 100  # of two plays that are compared
_OWN_NUMBERS = "super().reset(seed=seed) first, then draw from self.np_random"

# What an env said, with the place where it said it.
_Trace = list[tuple[str, Any]]


def check_seeding(report: Report, env: AnyEnv, seed: int) -> bool:
    """Play from the same seed twice, and once from another in between; tell whether the env repeats itself."""
    known = wrapper_states(env)
    first, other, again = (_trace(report, env, each, known) for each in (seed, seed + 1, seed))
    at = _first_difference(first, again)
    if at is not None:
        is_global = _repeats_with_global_seed(report, env, seed)
        report.add(
            "fault",
            "seeding",
            f"the same seed and actions give another episode, first {at}",
            "that an episode depends on its seed and actions alone",
            f"it draws from the global random numbers: {_OWN_NUMBERS}"
            if is_global
            else f"{_OWN_NUMBERS}; let reset() set all state again, or give what is to last state_dict() and "
            "load_state_dict(state)",
        )
    elif _first_difference(first, other) is None:
        seen = f"seeds {seed} and {seed + 1} give the same {_STEPS} steps"
        expected = "other episodes from other seeds, unless the env is meant to know no chance"
        report.add("warning", "seeding", seen, expected, _OWN_NUMBERS)
    return at is None


def check_twin(report: Report, env: AnyEnv, twin: AnyEnv, seed: int) -> None:
    """Play the same with a second env of the same kind."""
    known = wrapper_states(twin)
    at = _first_difference(_trace(report, env, seed, known), _trace(report, twin, seed, known))
    if at is not None:
        report.add(
            "fault",
            "seeding",
            f"a second env gives another episode from the same seed and actions, first {at}",
            "equal envs: a resumed run and one that was recreated after a crash rely on it",
            "keep state in self, not in the class or the module; let reset() set all of it again",
        )


def _trace(report: Report, env: AnyEnv, seed: int, known: Sequence[State]) -> _Trace:
    """Play from a seed, and from what the wrappers knew: statistics of observations, say, go on from play to play."""
    load_wrapper_states(env, known)
    actions = copy.deepcopy(env.action_space)
    actions.seed(0)
    trace: _Trace = [("at the first observation", copy.deepcopy(calls.reset(report, env, seed)))]
    for count in range(1, _STEPS + 1):
        answer = calls.step(report, env, actions.sample())
        trace.append((f"at step {count}", copy.deepcopy(answer)))
        if answer[2] or answer[3]:
            trace.append((f"at the reset after step {count}", copy.deepcopy(calls.reset(report, env, None))))
    return trace


def _first_difference(first: _Trace, second: _Trace) -> str | None:
    for (at, mine), (same, theirs) in zip(first, second, strict=False):
        if at != same or not equal(mine, theirs):
            return at
    return None


def _repeats_with_global_seed(report: Report, env: AnyEnv, seed: int) -> bool:
    """Tell whether the env repeats itself once Python's and numpy's global generators are seeded too."""
    states = random.getstate(), np.random.get_state()
    known = wrapper_states(env)
    traces = []
    try:
        for _ in range(2):
            random.seed(seed)
            np.random.seed(seed)
            traces.append(_trace(report, env, seed, known))
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
    return _first_difference(*traces) is None
