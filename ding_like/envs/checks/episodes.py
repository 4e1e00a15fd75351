"""Play random episodes and check every answer."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np

from ding_like.envs.checks import calls
from ding_like.envs.checks.report import Report
from ding_like.envs.checks.values import describe, equal, obs_mismatches

AnyEnv = gymnasium.Env[Any, Any]  # what an env observes and takes differs from env to env

# So many episodes of one length hint at a time limit: random play seldom ends them all alike.
_ALIKE = 3


class Play:
    """Play random episodes; warnings about them come at the end."""

    def __init__(self, report: Report, env: AnyEnv, seed: int) -> None:
        self._report = report
        self._env = env
        self._seed = seed
        self._actions = copy.deepcopy(env.action_space)
        self._actions.seed(seed)
        self._ends: list[tuple[int, bool, bool]] = []  # length, terminated, truncated
        self._kept: tuple[Any, Any] | None = None  # the last observation as the env gave it, and a copy

    def run(self, num_steps: int) -> None:
        """Play `num_steps` steps."""
        self._check_obs(calls.reset(self._report, self._env, self._seed), "reset")
        length = 0
        for _ in range(num_steps):
            obs, reward, terminated, truncated = calls.step(self._report, self._env, self._actions.sample())
            length += 1
            self._check_obs(obs, "step")
            self._check_reward(reward)
            self._check_flag("terminated", terminated)
            self._check_flag("truncated", truncated)
            if terminated or truncated:
                self._ends.append((length, bool(terminated), bool(truncated)))
                length = 0
                self._check_obs(calls.reset(self._report, self._env, None), "reset")
        self._judge(num_steps)

    def _check_obs(self, obs: Any, method: str) -> None:
        for seen, expected, fix in obs_mismatches(self._env.observation_space, obs):
            self._report.add("fault", "observation", f"in {method}, {seen}", expected, fix)
        if self._kept is not None and not equal(*self._kept):
            self._report.add(
                "warning",
                "observation",
                f"{method} wrote over the observation that was returned before",
                "new memory for every observation; managers copy theirs, other code may keep it",
                "return self._obs.copy()",
            )
        self._kept = obs, copy.deepcopy(obs)

    def _check_reward(self, reward: Any) -> None:
        if not isinstance(reward, (int, float, np.integer, np.floating, np.bool_)):
            expected, fix = "one number", "return float(reward)"
        elif not np.isfinite(reward):
            expected, fix = "a finite number: a run drops other episodes", "look for a division by 0 or a log of 0"
        else:
            return
        self._report.add("fault", "reward", f"it is {describe(reward)}", expected, fix)

    def _check_flag(self, name: str, flag: Any) -> None:
        if not isinstance(flag, (bool, np.bool_)):
            fix = f"return bool({name})"
            self._report.add("fault", "episode end", f"{name} is {describe(flag)}", "True or False", fix)

    def _judge(self, num_steps: int) -> None:
        if not self._ends:
            self._judge_endless(num_steps)
            return
        lengths = [length for length, _, _ in self._ends]
        if all(terminated and truncated for _, terminated, truncated in self._ends):
            self._report.add(
                "fault" if len(lengths) > 1 else "warning",
                "episode end",
                f"terminated and truncated were both True at the end of all {len(lengths)} episodes",
                "terminated where the task is over, truncated where only the time is up",
                "terminated = reached or failed; truncated = self._t >= limit",
            )
        elif (
            len(lengths) >= _ALIKE and len(set(lengths)) == 1 < lengths[0] and not any(cut for _, _, cut in self._ends)
        ):
            self._report.add(
                "warning",
                "episode end",
                f"all {len(lengths)} episodes were terminated after {lengths[0]} steps, which looks like a time limit",
                "truncated=True where only the time is up: the last state then keeps its value",
                "return obs, reward, False, self._t >= limit, info",
            )

    def _judge_endless(self, num_steps: int) -> None:
        limit = None if self._env.spec is None else self._env.spec.max_episode_steps
        seen = f"no episode ended in {num_steps} random steps"
        if limit is not None and limit >= num_steps:
            self._report.add("note", "episode end", f"{seen}; the time limit is {limit}", fix=f"--steps {2 * limit}")
            return
        expected = "episodes that end: evaluations play whole ones"
        fix = "env.wrappers=[dict(type='time_limit', max_episode_steps=500)]"
        self._report.add("warning", "episode end", f"{seen}, and no time limit is known", expected, fix)
