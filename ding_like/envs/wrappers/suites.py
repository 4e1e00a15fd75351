"""Prepare rewards, actions and observations as the env suites of DI-engine do."""

from __future__ import annotations

import string
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TransformAction, TransformObservation

from ding_like.errors import ConfigError
from ding_like.types import Array
from ding_like.utils.registries import ENV_WRAPPER_REGISTRY

AnyEnv = gymnasium.Env[Any, Any]  # what an env observes and takes differs from env to env


@ENV_WRAPPER_REGISTRY.register("delay_reward")
class DelayReward(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Give the sum of the last `steps` rewards at every `steps`-th step and at an episode's end, and 0 between.

    Source: Zheng et al. 2018, delayed MuJoCo tasks. Raises ConfigError for less than one step.
    """

    def __init__(self, env: AnyEnv, steps: int) -> None:
        if steps < 1:
            raise ConfigError(f"delay_reward: steps is {steps}, expected 1 or more.")
        super().__init__(env)
        self._steps = steps

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in which nothing is owed yet."""
        self._time, self._owed = 0, 0.0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the env and pay what is due."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._time += 1
        self._owed += float(reward)
        if self._time % self._steps and not (terminated or truncated):
            return obs, 0.0, terminated, truncated, info
        paid, self._owed = self._owed, 0.0
        return obs, paid, terminated, truncated, info


@ENV_WRAPPER_REGISTRY.register("action_repeat")
class ActionRepeat(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Take each action `action_repeat` times, or until the episode ends, and give the sum of the rewards.

    Raises ConfigError for less than once.
    """

    def __init__(self, env: AnyEnv, action_repeat: int = 1) -> None:
        if action_repeat < 1:
            raise ConfigError(f"action_repeat is {action_repeat}, expected 1 or more.")
        super().__init__(env)
        self._times = action_repeat

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the env as often; observation, end and info are those of the last time."""
        total = 0.0
        for _ in range(self._times):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, info


@ENV_WRAPPER_REGISTRY.register("clip_action")
def clip_action(env: AnyEnv) -> AnyEnv:
    """Clip actions to the env's Box; the action space stays as it is. Raises ConfigError for another space."""
    space = env.action_space
    if not isinstance(space, spaces.Box):
        raise ConfigError(f"clip_action takes Box actions, the env has {space}.")
    low, high = space.low, space.high
    return TransformAction(env, lambda action: np.clip(action, low, high), space)


@ENV_WRAPPER_REGISTRY.register("stack_channels")
def stack_channels(env: AnyEnv) -> AnyEnv:
    """Show stacked images [K, C, H, W] as one image of K * C channels. Raises ConfigError for other observations."""
    space = env.observation_space
    if not isinstance(space, spaces.Box) or len(space.shape) != 4:
        raise ConfigError(f"stack_channels takes stacks of images [K, C, H, W], the env has {space}.")
    shape = (space.shape[0] * space.shape[1], *space.shape[2:])
    flat = spaces.Box(space.low.reshape(shape), space.high.reshape(shape), dtype=space.dtype.type)
    return TransformObservation(env, lambda images: np.reshape(images, shape), flat)


_LETTERS = {letter: place for place, letter in enumerate(string.ascii_lowercase + " ")}
_MISSION_LENGTH = 96


@ENV_WRAPPER_REGISTRY.register("flat_mission")
class FlatMission(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Show a MiniGrid observation as one vector, uint8: the view, then the mission's letters one-hot.

    96 letters of 27 kinds follow the view of 7 x 7 x 3: [2739], as DI-engine's configs have it. Other signs, commas for
    instance, are left out. Raises ConfigError for an env without an image and a mission.
    """

    def __init__(self, env: AnyEnv) -> None:
        space = env.observation_space
        if not isinstance(space, spaces.Dict) or not {"image", "mission"} <= set(space.spaces):
            raise ConfigError(f"flat_mission is for MiniGrid's observations of 'image' and 'mission', got {space}.")
        super().__init__(env)
        size = int(np.prod(space["image"].shape or ())) + _MISSION_LENGTH * len(_LETTERS)
        self.observation_space = spaces.Box(0, 255, (size,), np.uint8)
        self._mission, self._letters = "", _one_hot_letters("")

    def observation(self, observation: Any) -> Array:
        """Return the view and the mission as one vector."""
        if observation["mission"] != self._mission:
            self._mission = observation["mission"]
            self._letters = _one_hot_letters(self._mission)
        return np.concatenate([np.asarray(observation["image"], np.uint8).reshape(-1), self._letters])


@ENV_WRAPPER_REGISTRY.register("grid_view")
def grid_view(env: AnyEnv) -> AnyEnv:
    """Show of a MiniGrid observation the view alone, [3, 7, 7] uint8. Raises ConfigError for an env without one."""
    space = env.observation_space
    if not isinstance(space, spaces.Dict) or not isinstance(space.spaces.get("image"), spaces.Box):
        raise ConfigError(f"grid_view is for MiniGrid's observations with an 'image', got {space}.")
    low, high = (np.transpose(getattr(space["image"], side), (2, 0, 1)) for side in ("low", "high"))
    view = spaces.Box(low, high, dtype=np.uint8)
    return TransformObservation(env, lambda obs: np.transpose(obs["image"], (2, 0, 1)), view)


def _one_hot_letters(text: str) -> Array:
    """Return uint8 [96 * 27]: a place of each letter's own 27 is 1; none where the text has ended."""
    letters = np.zeros((_MISSION_LENGTH, len(_LETTERS)), np.uint8)
    for row, letter in enumerate(text.lower()[:_MISSION_LENGTH]):
        if letter in _LETTERS:
            letters[row, _LETTERS[letter]] = 1
    return letters.reshape(-1)
