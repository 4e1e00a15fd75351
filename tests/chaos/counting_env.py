"""An env whose every observation says who made it, so that loss, doubling, tearing and mixing can be counted."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from ding_like.types import Array

# An observation is (uid, uid, episode, step, checksum), each a number of 24 bits times 2^-24: exact in float32.
_BITS = 24
_SCALE = float(2**_BITS)
WIDTH = 20_000  # numbers of an observation of WideEnv
_PRIMES = np.array([73856093, 19349663, 83492791, 15485863], np.uint64)


def checksum(numbers: Array) -> Array:
    """Return the checksums [B] of numbers [B, 4]."""
    mixed = numbers.astype(np.uint64) * _PRIMES
    mixed ^= mixed >> np.uint64(13)
    return np.asarray((np.bitwise_xor.reduce(mixed, -1) ^ (mixed.sum(-1) >> np.uint64(7))) % np.uint64(2**_BITS))


class CountingEnv(gymnasium.Env[Any, Any]):
    """Count episodes and steps; every instance has a number of its own. A step takes `step_s`."""

    def __init__(self, step_s: float = 0.0, longest: int = 60) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (5,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._step_s = step_s
        self._longest = longest
        self._uid = (secrets.randbelow(2**_BITS), secrets.randbelow(2**_BITS))
        self._episode = self._step = self._length = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._episode += 1
        self._step = 0
        self._length = int(self.np_random.integers(5, self._longest))
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        time.sleep(self._step_s)
        self._step += 1
        return self._obs(), float(action), self._step == self._length, False, {}

    def _obs(self) -> Any:
        numbers = np.array([[*self._uid, self._episode, self._step]], np.uint64)
        return np.append(numbers[0], checksum(numbers)).astype(np.float32) / np.float32(_SCALE)


class WideEnv(CountingEnv):
    """Count as CountingEnv does, in observations of 80 kB."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.observation_space = spaces.Box(0.0, 1.0, (WIDTH,), np.float32)

    def _obs(self) -> Any:
        obs = np.zeros(WIDTH, np.float32)
        obs[:5] = super()._obs()
        return obs


class Found(NamedTuple):
    """Keys of transitions, and the number of torn ones."""

    keys: Array  # [B], void: who made each
    torn: int  # rows whose numbers do not belong together


def recognise(columns: Mapping[str, Any]) -> Found:
    """Read transitions with columns obs and next_obs [B, 5] and action, reward [B]."""
    obs, next_obs = numbers_of(columns["obs"]), numbers_of(columns["next_obs"])
    is_whole = (checksum(obs[:, :4]) == obs[:, 4]) & (checksum(next_obs[:, :4]) == next_obs[:, 4])
    is_whole &= (obs[:, :3] == next_obs[:, :3]).all(1) & (obs[:, 3] + 1 == next_obs[:, 3])
    is_whole &= np.asarray(columns["action"], np.float32) == np.asarray(columns["reward"], np.float32)
    keys = np.ascontiguousarray(obs[:, :4]).view(np.dtype((np.void, obs[:, :4].itemsize * 4))).reshape(-1)
    return Found(keys, int((~is_whole).sum()))


def num_doubled(keys: Array) -> int:
    """Return how many of the keys [B] come again."""
    return len(keys) - len(np.unique(keys))


def pack_keys(columns: Mapping[str, Any]) -> str:
    """Return who made the transitions of column obs [B, 5], as text; `unpack_keys` gives the keys [B]."""
    return base64.b64encode(numbers_of(columns["obs"])[:, :4].astype(np.uint32).tobytes()).decode()


def unpack_keys(text: str) -> Array:
    """Return the keys [B], of 16 bytes each, that `pack_keys` wrote."""
    return np.frombuffer(base64.b64decode(text), np.dtype((np.void, 16)))


def numbers_of(obs: Any) -> Array:
    """Return the numbers [B, 5] of observations: uid, uid, episode, step, checksum."""
    return np.asarray(np.round(np.asarray(obs, np.float64) * _SCALE)).astype(np.uint64)
