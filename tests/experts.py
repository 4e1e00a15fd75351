"""Demonstrations for tests, by controllers that are written by hand; `demonstrate` records any."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from ding_like.data.demonstrations import Demonstrations


def balance(obs: Any) -> int:
    """Return CartPole's action by the angle, its speed, and a little of the cart's: episodes return 500."""
    return int(obs[2] + 0.5 * obs[3] + 0.05 * obs[0] + 0.1 * obs[1] > 0)


def swing_up(obs: Any) -> np.ndarray:
    """Return Pendulum's action by the energy that the top has more, near it by the angle and its speed."""
    cos, sin, speed = (float(each) for each in obs)
    angle = np.arctan2(sin, cos)
    lacks = 15.0 * (1.0 - cos) - 0.5 * speed**2
    is_near = cos > 0.9 and abs(lacks) < 3.0
    torque = -(15.0 * angle + 3.0 * speed) if is_near else np.sign(speed or 1.0) * np.clip(lacks, -2.0, 2.0)
    return np.float32([np.clip(torque, -2.0, 2.0)])


def demonstrate(
    act: Callable[[Any], Any], env_id: str, *, episodes: int, first_seed: int = 0, max_steps: int = 10**9
) -> Demonstrations:
    """Return whole episodes, or the first `max_steps` steps of each, whose starts are seeded from `first_seed`."""
    env, rows = gymnasium.make(env_id), []
    for episode in range(episodes):
        obs, ended, step = env.reset(seed=first_seed + episode)[0], False, 0
        while not ended:
            action = act(obs)
            after, reward, terminated, truncated, _ = env.step(action)
            truncated = truncated or step == max_steps - 1
            ended = terminated or truncated
            rows.append((obs, action, np.float32(reward), after, terminated, truncated, 0, episode, step))
            obs, step = after, step + 1
    env.close()
    names = ("obs", "action", "reward", "next_obs", "terminated", "truncated", "lane", "episode_id", "step")
    columns = {name: np.asarray(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)}
    return Demonstrations(columns, {"env_id": env_id})


def cartpole(path: str | Path, *, episodes: int = 10, first_seed: int = 0) -> Path:
    """Write episodes of CartPole that return 500; return the file."""
    demonstrate(balance, "CartPole-v1", episodes=episodes, first_seed=first_seed).save(path)
    return Path(path)


def pendulum(path: str | Path, *, episodes: int = 10, first_seed: int = 0) -> Path:
    """Write episodes of Pendulum, swung up and then held; return the file."""
    demonstrate(swing_up, "Pendulum-v1", episodes=episodes, first_seed=first_seed).save(path)
    return Path(path)


@cache
def written(name: str) -> Path:
    """Return the file that a shipped config names as its `data_path`, written once for this process."""
    write = pendulum if name.startswith("pendulum") else cartpole
    return write(Path(tempfile.mkdtemp(prefix="ding-experts-"), name))


def overrides_for(main_config: Any) -> list[str]:  # Any: a config
    """Return what puts such a file in the place of a config's `data_path`, nothing for one that has none."""
    name = main_config["policy"].get("collect", {}).get("data_path")
    return [f"policy.collect.data_path={written(name)}"] if name else []
