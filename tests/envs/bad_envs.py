"""One env that keeps the rules, and for every rule one that breaks it."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class GoodEnv(gymnasium.Env[Any, Any]):
    """Walk on a line at random: over at its ends, cut after 50 steps."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space: Any = spaces.Box(-10.0, 10.0, (3,), np.float32)
    action_space: Any = spaces.Discrete(2)

    def __init__(self, limit: int = 50, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self._limit = limit

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._x = float(self.np_random.uniform(-1, 1))
        self._t = 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self._x += (1.0 if action else -1.0) + float(self.np_random.normal(0, 0.1))
        self._t += 1
        return self._answer(self._obs(), 1.0, abs(self._x) > 6, self._t >= self._limit, {})

    def _answer(self, obs: Any, reward: float, terminated: bool, truncated: bool, info: dict[str, Any]) -> Any:
        return obs, reward, terminated, truncated, info

    def _obs(self) -> Any:
        return np.array([self._x, self._t / 50, 0], np.float32)

    def render(self) -> Any:
        return np.full((20, 30, 3), min(5 * self._t, 255), np.uint8)


class NoSpace(GoodEnv):
    action_space = None


class ShapeOfTwo(GoodEnv):
    def _obs(self) -> Any:
        return super()._obs()[:2]


class Float64(GoodEnv):
    def _obs(self) -> Any:
        return super()._obs().astype(np.float64)


class ListObs(GoodEnv):
    def _obs(self) -> Any:
        return super()._obs().tolist()


class OutOfRange(GoodEnv):
    def _obs(self) -> Any:
        return super()._obs() + np.array([0, 0, 12], np.float32) * (self._t > 3)


class NanObs(GoodEnv):
    def _obs(self) -> Any:
        return np.array([self._x, np.nan if self._t == 4 else 0, 0], np.float32)


class DictWithoutKey(GoodEnv):
    observation_space = spaces.Dict({"arm": GoodEnv.observation_space, "leg": GoodEnv.observation_space})

    def _obs(self) -> Any:
        return {"arm": super()._obs(), "lag": super()._obs()}


class DiscreteObs(GoodEnv):
    observation_space = spaces.Discrete(3)

    def _obs(self) -> Any:
        return int(self._t)


class TupleSpace(GoodEnv):
    observation_space = spaces.Tuple([GoodEnv.observation_space])

    def _obs(self) -> Any:
        return (super()._obs(),)


class ChannelsLast(GoodEnv):
    observation_space = spaces.Box(0, 255, (8, 8, 3), np.uint8)

    def _obs(self) -> Any:
        return np.full((8, 8, 3), min(int(100 + 10 * self._x), 255), np.uint8)


class FlatBox(GoodEnv):
    observation_space = spaces.Box(
        np.array([-10, -10, 0], np.float32), np.array([10, 10, 0], np.float32), dtype=np.float32
    )


class ActionsFromOne(GoodEnv):
    """Declare actions 0 and 1, and take 1 and 2."""

    def step(self, action: Any) -> Any:
        if action not in (1, 2):
            raise ValueError(f"no such action: {action}")
        return super().step(action - 1)


class StartsAtOne(ActionsFromOne):
    """Declare what it takes."""

    action_space = spaces.Discrete(2, start=1)


class Steered(GoodEnv):
    """Valid env with actions of a Box."""

    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def step(self, action: Any) -> Any:
        return super().step(action[0] > 0)


class BreaksAtTheBound(Steered):
    def step(self, action: Any) -> Any:
        if abs(action[0]) >= 1:
            raise ValueError("too far")
        return super().step(action)


class Unbounded(Steered):
    action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)


class Doubled(Steered):
    action_space = spaces.Box(-2.0, 2.0, (1,), np.float32)


class WritesIntoAction(Steered):
    def step(self, action: Any) -> Any:
        np.clip(action, -0.5, 0.5, out=action)
        return super().step(action)


class ResetKnowsNoSeed(GoodEnv):
    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


class ResetReturnsObs(GoodEnv):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0]


class BreaksInReset(GoodEnv):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        raise ValueError("no road")


class FourValues(GoodEnv):
    def _answer(self, obs: Any, reward: Any, terminated: bool, truncated: bool, info: Any) -> Any:
        return obs, reward, terminated or truncated, info


class InfoIsNone(GoodEnv):
    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], None


class NumbersAsFlags(GoodEnv):
    def _answer(self, obs: Any, reward: Any, terminated: bool, truncated: bool, info: Any) -> Any:
        return obs, reward, int(terminated), truncated, info


class BothFlags(GoodEnv):
    def _answer(self, obs: Any, reward: Any, terminated: bool, truncated: bool, info: Any) -> Any:
        return obs, reward, terminated or truncated, terminated or truncated, info


class TimeIsTermination(GoodEnv):
    def _answer(self, obs: Any, reward: Any, terminated: bool, truncated: bool, info: Any) -> Any:
        return np.clip(obs, -10, 10), reward, self._t >= 20, False, info


class ArrayReward(GoodEnv):
    def _answer(self, obs: Any, reward: Any, terminated: bool, truncated: bool, info: Any) -> Any:
        return obs, np.ones(1), terminated, truncated, info


class NanReward(GoodEnv):
    def _answer(self, obs: Any, reward: Any, terminated: bool, truncated: bool, info: Any) -> Any:
        return obs, float("nan") if self._t == 3 else reward, terminated, truncated, info


class Endless(GoodEnv):
    def _answer(self, obs: Any, reward: Any, terminated: bool, truncated: bool, info: Any) -> Any:
        return np.clip(obs, -10, 10), reward, False, False, info


class GlobalNumbers(GoodEnv):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._x = float(np.random.uniform(-1, 1))
        return self._obs(), {}


class Unseeded(GoodEnv):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=None)


class Deterministic(GoodEnv):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=5)


class SharedState(GoodEnv):
    """Remember in the class how many there are."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        self._number = type(self).made
        type(self).made += 1

    def _obs(self) -> Any:
        return super()._obs() + np.array([0, 0, self._number % 7], np.float32)


class ReusedMemory(GoodEnv):
    def __init__(self) -> None:
        super().__init__()
        self._memory = np.zeros(3, np.float32)

    def _obs(self) -> Any:
        self._memory[:] = super()._obs()
        return self._memory


class BreaksInClose(GoodEnv):
    def close(self) -> None:
        raise OSError("no window")


class ClosesOnce(GoodEnv):
    _is_closed = False

    def close(self) -> None:
        if self._is_closed:
            raise OSError("no window")
        self._is_closed = True


class CannotRender(GoodEnv):
    metadata: dict[str, Any] = {"render_modes": ["human"]}


class RendersFloats(GoodEnv):
    def render(self) -> Any:
        return super().render() / 255


class OneNumber(GoodEnv):
    """Valid env with an observation without an axis."""

    observation_space = spaces.Box(-10.0, 10.0, (), np.float32)

    def _obs(self) -> Any:
        return super()._obs()[0]


class BreaksWhenMade(GoodEnv):
    def __init__(self) -> None:
        raise ValueError("no map")


class NoEnv:
    """Lack nearly everything."""

    def step(self, action: Any) -> Any:
        return None


class NumberOfActions(GoodEnv):
    action_space = 2


class BreaksInStep(GoodEnv):
    def step(self, action: Any) -> Any:
        raise ValueError("no way")


class LongStep(GoodEnv):
    def step(self, action: Any) -> Any:
        return np.zeros(4, np.float32), *super().step(action)[1:]


class Halves(GoodEnv):
    observation_space = spaces.Box(0, 255, (3,), np.uint8)

    def _obs(self) -> Any:
        return np.full(3, 0.5)


class Mission(GoodEnv):
    """Observe a text, beside a vector."""

    def __init__(self, kind: str = "text") -> None:
        super().__init__()
        text = spaces.Text(max_length=6, charset="gored ")
        inner = {"text": text, "graph": spaces.Sequence(spaces.Discrete(3)), "pair": spaces.Tuple([spaces.Discrete(2)])}
        self._kind = kind
        self.observation_space = spaces.Dict({"seen": spaces.Box(-9, 9, (1,), np.float32), "mission": inner[kind]})
        if kind == "alone":
            self.observation_space = text

    def _obs(self) -> Any:
        mission = {"text": "go red", "graph": (1, 2), "pair": (1,)}[self._kind]
        return {"seen": np.array([self._x], np.float32), "mission": mission}
