"""Demonstrations for tests, by controllers that are written by hand."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from ding_like.data.demonstrations import Demonstrations

COLUMNS = ("obs", "action", "reward", "next_obs", "terminated", "truncated", "lane", "episode_id", "step")


def cartpole(path: str | Path, *, episodes: int = 10, seed: int = 0) -> Path:
    """Write episodes of CartPole that return 500; return the file."""

    def act(obs: np.ndarray) -> int:
        return int(obs @ np.array([0.05, 0.1, 1.0, 0.5]) > 0)

    return _save(path, _play("CartPole-v1", act, episodes, seed), "CartPole-v1")


def pendulum(path: str | Path, *, episodes: int = 10, seed: int = 0) -> Path:
    """Write episodes of Pendulum, swung up by its energy and then held; return the file."""

    def act(obs: np.ndarray) -> np.ndarray:
        cos, sin, speed = (float(each) for each in obs)
        angle = np.arctan2(sin, cos)
        lacks = 15.0 * (1.0 - cos) - 0.5 * speed**2  # energy that the top has more
        is_near = cos > 0.9 and abs(lacks) < 3.0
        torque = -(15.0 * angle + 3.0 * speed) if is_near else np.sign(speed or 1.0) * np.clip(lacks, -2.0, 2.0)
        return np.float32([np.clip(torque, -2.0, 2.0)])

    return _save(path, _play("Pendulum-v1", act, episodes, seed), "Pendulum-v1")


def _play(env_id: str, act: Callable[[np.ndarray], Any], episodes: int, seed: int) -> dict[str, np.ndarray]:
    env, rows = gymnasium.make(env_id), []
    for episode in range(episodes):
        obs, _ = env.reset(seed=1000 * seed + episode)
        step, is_over = 0, False
        while not is_over:
            action = act(obs)
            next_obs, reward, terminated, truncated, _ = env.step(action)
            rows.append((obs, action, np.float32(reward), next_obs, terminated, truncated, 0, episode, step))
            obs, step, is_over = next_obs, step + 1, terminated or truncated
    env.close()
    return {name: np.asarray(values) for name, values in zip(COLUMNS, zip(*rows, strict=True), strict=True)}


def _save(path: str | Path, columns: dict[str, np.ndarray], env_id: str) -> Path:
    Demonstrations(columns, {"env_id": env_id}).save(path)
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
