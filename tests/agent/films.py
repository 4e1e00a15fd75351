"""Envs and actors for films."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from ding_like.data.rows import EvalMode


class Lamp(gymnasium.Env):
    """Lamp that glows brighter from 20 to 220 in `length` steps, with a reward of 1 each."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None, length: int = 5, shape: tuple[int, ...] = (40, 80, 3)) -> None:
        self.render_mode = render_mode
        self.length = length
        self.shape = shape
        self.is_closed = False
        self.actions: list[int] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return self.observation_space.sample() * 0, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        self.actions.append(int(action))
        return np.zeros(2, np.float32), 1.0, self.time >= self.length, False, {}

    def render(self) -> Any:
        if self.render_mode != "rgb_array":
            return None
        return np.full(self.shape, 20 + 200 * self.time // self.length, np.uint8)

    def close(self) -> None:
        self.is_closed = True


class NoisyLamp(Lamp):
    """Env that shows noise that no compression can make small."""

    def render(self) -> Any:
        return np.random.default_rng(self.time).integers(0, 256, (90, 120, 3), dtype=np.uint8)


class BrokenLamp(Lamp):
    """Env that fails to draw."""

    def render(self) -> Any:
        raise RuntimeError("no OpenGL here")


class DarkLamp(Lamp):
    """Env without a render mode."""

    def __init__(self) -> None:
        super().__init__()


class ConstantActor:
    """Actor that always takes one action."""

    def __init__(self, action: int = 1) -> None:
        self.action = action

    def act(self, obs: Any, *, lanes: Any, is_first: Any, rng: Any, **setting: Any) -> dict[str, Any]:
        return {"action": np.full(len(lanes), self.action)}

    def reset(self, lanes: Any = None) -> None:
        """Forget nothing."""


class Weights:
    """Policy whose weights are one number, the action it takes."""

    def __init__(self, action: int) -> None:
        self.actor = ConstantActor(action)

    @property
    def eval_mode(self) -> EvalMode:
        return eval_mode(self.actor)


def eval_mode(actor: ConstantActor) -> EvalMode:
    def load(state: dict[str, Any]) -> None:
        actor.action = state["action"]

    return EvalMode(None, None, None, None, lambda: {"action": actor.action}, load, actor)
