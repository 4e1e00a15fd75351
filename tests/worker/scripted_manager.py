"""An env manager whose every transition can be recognised, with lanes that are ready at different times."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from ding_like.types import StepBatch


def code(lane: int, episode: int, step: int) -> list[float]:
    """Return the observation at `step` of an episode: it says where it belongs."""
    return [lane, episode, step]


class ScriptedManager:
    """Lane e's episodes last `lengths[e][k % len]` steps; odd episodes are truncated, even ones terminate.

    With `delay` > 0, a lane that was stepped answers only after a random number of calls, up to `delay`.
    `drop_at` holds (lane, episode, step) of steps at which the lane breaks off; at those in `abnormal_at` it answers as
    usual, with DI-engine's word for a broken step in `info`.
    """

    lane_seeds = True
    num_players = 1
    reward_shaping: Any = None
    game_steps = 0
    lanes_lost: Any = ()
    ended_games: Any = ()

    def __init__(
        self,
        lengths: list[list[int]],
        *,
        delay: int = 0,
        seed: int = 0,
        drop_at: set[Any] = frozenset(),
        abnormal_at: set[Any] = frozenset(),
    ):
        self.num_envs = self.num_lanes = len(lengths)
        self.observation_space = spaces.Box(-1, 1e6, (3,), np.float32)
        self.action_space = spaces.Discrete(4)
        self.closed = False
        self._lengths = lengths
        self._delay = delay
        self._rng = np.random.default_rng(seed)
        self._drop_at = set(drop_at)
        self._abnormal_at = set(abnormal_at)
        self.seeds: list[list[int]] = []
        self.history: list[tuple[int, int, int]] = []
        self._begin()

    def _begin(self) -> None:
        lanes = self.num_lanes
        self.obs = np.array([code(lane, 0, 0) for lane in range(lanes)], np.float32)
        self.ready = np.ones(lanes, bool)
        self._episode = [0] * lanes
        self._step = [0] * lanes
        self._pending: dict[int, tuple[int, int]] = {}

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        self._rng = np.random.default_rng(seed)

    def launch(self) -> None:
        pass

    def reset(self, lanes=None, *, seeds=None) -> None:
        if seeds is not None:
            self.seeds.append(list(seeds))
        if lanes is None:
            self._begin()
        else:
            for lane in lanes:
                self._next_episode(int(lane))

    def _next_episode(self, lane: int) -> None:
        self._episode[lane] += 1
        self._step[lane] = 0
        self.obs[lane] = code(lane, self._episode[lane], 0)
        self.ready[lane] = True

    def step(self, lanes, actions, *, timeout_s=None) -> StepBatch:
        assert self.ready[lanes].all(), "only ready lanes may be stepped"
        for lane, action in zip(lanes.tolist(), actions.tolist(), strict=True):
            self.ready[lane] = False
            self._pending[lane] = (action, int(self._rng.integers(0, self._delay + 1)))
        answered, dropped, next_obs, reward, terminated, truncated, info = [], [], [], [], [], [], {}
        for lane in sorted(self._pending):
            action, wait = self._pending[lane]
            if wait:
                self._pending[lane] = (action, wait - 1)
                continue
            del self._pending[lane]
            episode, step = self._episode[lane], self._step[lane]
            if (lane, episode, step) in self._drop_at:
                dropped.append(lane)
                self._next_episode(lane)
                continue
            self.history.append((lane, episode, step))
            if (lane, episode, step) in self._abnormal_at:
                info[lane] = {"abnormal": True}
            lengths = self._lengths[lane]
            done = step + 1 == lengths[episode % len(lengths)]
            answered.append(lane)
            next_obs.append(code(lane, episode, step + 1))
            reward.append(self.reward_of(lane, episode, step))
            terminated.append(done and episode % 2 == 0)
            truncated.append(done and episode % 2 == 1)
            if done:
                self._next_episode(lane)
            else:
                self._step[lane] += 1
                self.obs[lane] = next_obs[-1]
                self.ready[lane] = True
        return StepBatch(
            lanes=np.array(answered, np.int64),
            next_obs=np.array(next_obs, np.float32).reshape(-1, 3),
            reward=np.array(reward, np.float32),
            terminated=np.array(terminated, bool),
            truncated=np.array(truncated, bool),
            info=info,
            dropped=np.array(dropped, np.int64),
        )

    @staticmethod
    def reward_of(lane: int, episode: int, step: int) -> float:
        return float(lane + 10 * episode + 100 * step)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass

    def close(self) -> None:
        self.closed = True


class CountingActor:
    """Act by a running number, so that every action can be told from every other."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[int], list[bool]]] = []
        self._next = 0

    def act(self, obs, *, lanes, is_first, rng, **setting):
        self.calls.append((lanes.tolist(), is_first.tolist()))
        action = np.arange(self._next, self._next + len(lanes))
        self._next += len(lanes)
        return {"action": action, "seen": obs.copy(), "acted_at": np.full(len(lanes), setting.get("version", 0))}

    def reset(self, lanes=None) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {"next": self._next}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._next = state["next"]
