"""Envs that follow a script, so that every transition can be recognised, and faults come when they are ordered."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

# (steps, how the episode ends), repeated for ever.
SCRIPT = ((3, "terminated"), (1, "truncated"), (5, "terminated"), (2, "truncated"))


class ScriptedEnv(gymnasium.Env[Any, Any]):
    """Observe [env id, episode, step, checksum]; the checksum tells the actions of the episode.

    `faults` maps (episode, step) to "raise", "nan_obs" or "inf_reward"; step 0 is the reset, where "raise" and
    "nan_obs" work. With `fault_dir`, a fault strikes once, also if the env is made anew; without, every time.
    """

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(
        self,
        env_id: int = 0,
        *,
        script: tuple[tuple[int, str], ...] = SCRIPT,
        faults: dict[tuple[int, int], str] | None = None,
        fault_dir: str | None = None,
        as_dict: bool = False,
    ) -> None:
        self.env_id = env_id
        self.script = script
        self.faults = faults or {}
        self.fault_dir = fault_dir
        self.as_dict = as_dict
        box = spaces.Box(-np.inf, np.inf, (4,), np.float64)
        self.observation_space = spaces.Dict({"arm": spaces.Dict({"code": box})}) if as_dict else box
        self.action_space = spaces.Discrete(3)
        self.episode = -1
        self.is_closed = False
        self.resets: list[int | None] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.resets.append(seed)
        self.episode += 1
        self.t = 0
        self.action_sum = 0
        fault = self._fault()
        if fault == "raise":
            raise ValueError("scripted crash in reset")
        return self._obs(fault), {"reset_no": self.episode}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), f"{action!r} is no action"
        self.t += 1
        self.action_sum += int(action)
        fault = self._fault()
        if fault == "raise":
            raise ValueError("scripted crash in step")
        length, how = self.script[self.episode % len(self.script)]
        is_over = self.t >= length
        reward = float("inf") if fault == "inf_reward" else self.episode * 10.0 + self.t
        info = {"at": self.t} if is_over else {}
        return self._obs(fault), reward, is_over and how == "terminated", is_over and how == "truncated", info

    def _fault(self) -> str | None:
        fault = self.faults.get((self.episode, self.t))
        if fault is None or self.fault_dir is None:
            return fault
        mark = Path(self.fault_dir) / f"{self.env_id}_{self.episode}_{self.t}"
        if mark.exists():
            return None
        mark.touch()
        return fault

    def _obs(self, fault: str | None) -> Any:
        checksum = (7 * self.env_id + 31 * self.episode + 101 * self.t + 3 * self.action_sum) % 997
        code = np.array([self.env_id, self.episode, self.t, np.nan if fault == "nan_obs" else checksum])
        return {"arm": {"code": code}} if self.as_dict else code

    def close(self) -> None:
        self.is_closed = True


class Transition(NamedTuple):
    """Transition in plain numbers, so that lists of them compare."""

    obs: tuple[float, ...]
    action: int
    reward: float
    next_obs: tuple[float, ...]
    terminated: bool
    truncated: bool

    @property
    def episode(self) -> int:
        return int(self.obs[1])

    @property
    def step(self) -> int:
        return int(self.obs[2])


def action_of(lane: int, count: int) -> int:
    """Return the action of a lane's transition number `count`."""
    return (lane + count) % 3


def expected_transitions(env: ScriptedEnv, num: int) -> list[Transition]:
    """Step one env by hand and return its first `num` transitions."""
    found: list[Transition] = []
    obs, _ = env.reset()
    for count in range(num):
        action = action_of(env.env_id, count)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        found.append(Transition(tuple(obs), action, reward, tuple(next_obs), terminated, truncated))
        obs = env.reset()[0] if terminated or truncated else next_obs
    return found


class Recorder:
    """Drive a manager as a collector does and keep each lane's transitions."""

    def __init__(self, manager: Any) -> None:
        self.manager = manager
        self.transitions: list[list[Transition]] = [[] for _ in range(manager.num_lanes)]
        self.dropped: list[int] = []
        self.infos: list[dict[int, Any]] = []
        self.counts = [0] * manager.num_lanes
        self.opened: dict[int, tuple[Any, int]] = {}  # lane -> (obs, action) of a step without an answer yet

    def step(self, wanted: set[int] | None = None) -> Any:
        """Step all lanes that are ready and wanted."""
        lanes = np.array([i for i in np.flatnonzero(self.manager.ready) if wanted is None or i in wanted], np.int64)
        obs = np.array(self.manager.obs)[lanes]
        actions = np.array([action_of(i, self.counts[i]) for i in lanes], np.int64)
        batch = self.manager.step(lanes, actions)
        self.opened.update({int(lane): (obs[row], int(actions[row])) for row, lane in enumerate(lanes)})
        for row, lane in enumerate(batch.lanes.tolist()):
            before, action = self.opened.pop(lane)
            self.counts[lane] += 1
            self.transitions[lane].append(
                Transition(
                    tuple(before.tolist()),
                    action,
                    float(batch.reward[row]),
                    tuple(batch.next_obs[row].tolist()),
                    bool(batch.terminated[row]),
                    bool(batch.truncated[row]),
                )
            )
        self.dropped += batch.dropped.tolist()
        self.infos.append(dict(batch.info))
        return batch


class RecordingEnv(gymnasium.Env[Any, Any]):
    """Remember the actions that came."""

    def __init__(self, action_space: spaces.Space[Any], mask: Any = None) -> None:
        self.action_space = action_space
        self.observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
        if mask is not None:
            self.parameter_mask = mask

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.taken: list[Any] = []
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self.taken.append(action)
        return self._obs(), 1.0, bool(self.np_random.random() < 0.1), False, {}

    def _obs(self) -> Any:
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)


class EchoEnv(gymnasium.Env[Any, Any]):
    """Observe the last action."""

    def __init__(self, action_space: Any) -> None:
        self.action_space = action_space
        self.observation_space = spaces.Box(-np.inf, np.inf, (int(np.prod(action_space.shape or ())),), np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return np.zeros(self.observation_space.shape), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), f"{action!r} is no action"
        return np.reshape(action, self.observation_space.shape), 0.0, False, False, {}


class Told(gymnasium.Env[Any, Any]):
    """Env whose observations and rewards are a list's numbers, by turns; an episode has `length` steps."""

    def __init__(self, rewards: list[float], *, length: int = 3, shape: tuple[int, ...] = (2,)) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, shape, np.float32)
        self.action_space = spaces.Discrete(2)
        self._rewards, self._length, self._count = rewards, length, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._t = 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        reward = self._rewards[self._count % len(self._rewards)]
        self._count += 1
        self._t += 1
        return self._obs(), reward, self._t >= self._length, False, {}

    def _obs(self) -> Any:
        return np.full(self.observation_space.shape, self._count, np.float32)
