"""Parallel env of two agents, one of which leaves early; everything about a step follows from its time."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

LEAVES_AFTER, STEPS, CHOICES = 5, 12, 3
STAYER_PAID, LEAVER_PAID = 1.0, 10.0
RETURNS = {"stayer": STEPS * STAYER_PAID, "leaver": LEAVES_AFTER * LEAVER_PAID}


def legal(time: int) -> np.ndarray:
    """Return int8[3]: which choices a time allows."""
    mask = np.ones(CHOICES, np.int8)
    mask[time % CHOICES] = 0
    return mask


class Leaving(ParallelEnv[str, Any, Any]):
    """One agent stays for 12 steps, the other leaves after 5: `leaves` "terminated" or "truncated".

    `ends` says the same of the one that stays. Masks are in the observation, in `info`, or nowhere: `mask`. An illegal
    action, and one of an agent that is not there, breaks the env.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "leaving", "render_modes": ["rgb_array"]}
    possible_agents: ClassVar[list[str]] = ["stayer", "leaver"]  # type: ignore[misc]

    def __init__(
        self, *, leaves: str = "terminated", ends: str = "truncated", mask: str = "obs", continuous: bool = False,
        render_mode: str | None = None,
    ) -> None:  # fmt: skip
        self._leaves, self._ends, self._mask, self._continuous = leaves, ends, mask, continuous
        self.render_mode = render_mode

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        own = spaces.Box(0, 99, (2,), np.float32)
        masks = spaces.Box(0, 1, (CHOICES,), np.int8)
        return spaces.Dict({"observation": own, "action_mask": masks}) if self._mask == "obs" else own

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(-1.0, 1.0, (2,), np.float32) if self._continuous else spaces.Discrete(CHOICES)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.agents, self._time = list(self.possible_agents), 0
        return self._observe(self.agents), self._infos(self.agents)

    def step(self, actions: dict[str, Any]) -> tuple[Any, Any, Any, Any, Any]:
        acting = list(self.agents)
        assert sorted(actions) == sorted(acting), f"actions of {sorted(actions)}, but {acting} are there"
        for agent, action in actions.items():
            assert self._continuous or not self._mask or legal(self._time)[action], f"{agent} may not do {action}"
        self._time += 1
        over = {agent: self._time == (STEPS if agent == "stayer" else LEAVES_AFTER) for agent in acting}
        kind = {"stayer": self._ends, "leaver": self._leaves}
        self.agents = [agent for agent in acting if not over[agent]]
        return (
            self._observe(acting),
            {agent: STAYER_PAID if agent == "stayer" else LEAVER_PAID for agent in acting},
            {agent: over[agent] and kind[agent] == "terminated" for agent in acting},
            {agent: over[agent] and kind[agent] == "truncated" for agent in acting},
            self._infos(acting),
        )

    def state(self) -> np.ndarray:
        return np.array([self._time], np.float32)

    state_space = spaces.Box(0, 99, (1,), np.float32)

    def render(self) -> np.ndarray:
        """Return a field as wide as the time."""
        frame = np.zeros((64, 96, 3), np.uint8)
        frame[:, : 8 * self._time] = 200
        return frame

    def close(self) -> None: ...

    def _observe(self, agents: list[str]) -> dict[str, Any]:
        seen = {agent: np.array([self._time, agent == "leaver"], np.float32) for agent in agents}
        if self._mask != "obs":
            return seen
        return {agent: {"observation": own, "action_mask": legal(self._time)} for agent, own in seen.items()}

    def _infos(self, agents: list[str]) -> dict[str, Any]:
        return {agent: {"action_mask": legal(self._time)} if self._mask == "info" else {} for agent in agents}


def expected(time: int, *, leaves: str, ends: str) -> dict[str, Any]:
    """Return what a team of it observes at a time since the reset, at an episode's end too."""
    over, gone = time == STEPS, time >= LEAVES_AFTER
    ended = [over and ends == "terminated", gone and leaves == "terminated"]
    paid = [STAYER_PAID if time else 0.0, LEAVER_PAID if 0 < time <= LEAVES_AFTER else 0.0]
    return {
        "state": [float(time)],
        "alive": [int(not (over and ends == "terminated")), int(not gone)],
        "ended": [int(each) for each in ended],
        "rewards": paid,
        "agents": [[float(time), 0.0], [float(min(time, LEAVES_AFTER)), 1.0]],
    }


def faults(batch: Any, *, leaves: str, ends: str) -> list[str]:
    """Return which columns of rows of this env are not as they must be (rows of one step each)."""
    found = []
    times = np.rint(batch["obs/state"][:, 0]).astype(int)
    for row, time in enumerate(times.tolist()):
        for prefix, at in (("obs", time), ("next_obs", time + 1)):
            for name, value in expected(at, leaves=leaves, ends=ends).items():
                if f"{prefix}/{name}" in batch.columns and batch[f"{prefix}/{name}"][row].tolist() != value:
                    found.append(f"{prefix}/{name} at {at} is {batch[f'{prefix}/{name}'][row].tolist()}, not {value}")
        over = time + 1 == STEPS
        own: dict[str, Any] = {
            "reward": STAYER_PAID + (LEAVER_PAID if time < LEAVES_AFTER else 0.0),
            "terminated": over and ends == "terminated",
            "truncated": over and ends == "truncated",
        }
        found += [
            f"{name} at {time} is {batch[name][row]}, not {value}"
            for name, value in own.items()
            if name in batch.columns and batch[name][row] != value
        ]
    return found
