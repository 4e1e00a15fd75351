"""Run an environment and report every way in which it breaks the rules, each with its fix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium

from ding_like.envs.checks.episodes import Play
from ding_like.envs.checks.report import Finding, Report, UncheckableError
from ding_like.envs.checks.running import check_rendering, check_speed
from ding_like.envs.checks.seeding import check_seeding, check_twin
from ding_like.envs.checks.spaces import check_spaces
from ding_like.envs.di_engine_style import DiEngineStyleEnv
from ding_like.envs.hybrid import as_lane_env
from ding_like.errors import DingError, EnvError
from ding_like.utils.user_code import told

__all__ = ["Finding", "check_env"]

AnyEnv = gymnasium.Env[Any, Any]  # what an env observes and takes differs from env to env


def check_env(env: Any, *, num_steps: int = 1000, seed: int = 0) -> list[Finding]:
    """Play random episodes and return what was found, faults first; without a fault, one can train in the env.

    `env` is a gymnasium.Env, an env in DI-engine's style, or a function or class that makes one: then a second one is
    compared with the first. Besides `num_steps` steps, some hundreds are played for seeding and speed. Every env is
    closed, also a given one. A DingError of the function itself comes through: an unknown id, a missing package.
    """
    report = Report()
    is_made = hasattr(env, "step") and not isinstance(env, type)
    try:
        first = _adapt(report, env) if is_made else _make(report, env)
        try:
            check_spaces(report, first, seed)
            Play(report, first, seed).run(num_steps)
            if check_seeding(report, first, seed) and not is_made:
                _check_second(report, first, env, seed)
            check_speed(report, first, seed)
            check_rendering(report, first)
            _explain_style(report, first)
        finally:
            _close(report, first)
    except UncheckableError:
        pass  # the report has the reason
    return report.findings()


def _make(report: Report, make: Callable[[], Any]) -> AnyEnv:
    try:
        env = make()
    except DingError:
        raise  # it says what is wrong: an unknown id, a missing package, a wrapper that does not fit
    except Exception as error:  # an env may raise anything; it goes into the report
        fix = "fix the constructor, or give it the arguments that it needs"
        raise report.stop("constructor", f"it raised {told(error)}", "an env", fix) from error
    return _adapt(report, env)


def _adapt(report: Report, env: Any) -> AnyEnv:
    try:
        return as_lane_env(env)
    except EnvError as error:
        fix = "class MyEnv(gymnasium.Env): ..., with observation_space and action_space set in the constructor"
        raise report.stop("environment", str(error), "a gymnasium.Env or a BaseEnv", fix) from error


def _check_second(report: Report, first: AnyEnv, make: Callable[[], Any], seed: int) -> None:
    second = _make(report, make)
    try:
        check_twin(report, first, second, seed)
    finally:
        _close(report, second)


def _explain_style(report: Report, env: AnyEnv) -> None:
    if isinstance(env, DiEngineStyleEnv):
        seen = "this env is in DI-engine's style, and its `done` is read as terminated"
        fix = "where a time limit ends an episode: info['TimeLimit.truncated'] = True"
        report.add("note", "episode end", seen, fix=fix)


def _close(report: Report, env: AnyEnv) -> None:
    for level, expected, fix in (
        ("fault", "that an env can be closed", "fix close()"),
        ("warning", "that close() may be called again", "if self._window is None: return"),
    ):
        try:
            env.close()
        except Exception as error:  # an env may raise anything; it goes into the report
            report.add(level, "close", f"it raised {told(error)}", expected, fix)  # type: ignore[arg-type]
            return
