"""Experts and their demonstrations: `python -m tests.learning.experts cartpole|pendulum FILE [--episodes 10]`.

CartPole's is a controller written by hand, which balances the pole for all 500 steps; Pendulum's is what SAC learns with
the shipped config.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import ding_like
from ding_like.data.demonstrations import Demonstrations
from ding_like.entry import serial_pipeline

SAC = Path(__file__).parents[2] / "dizoo/classic_control/pendulum/config/pendulum_sac_config.py"
COLUMNS = ("obs", "action", "reward", "next_obs", "terminated", "truncated", "lane", "episode_id", "step")


def balance(obs: np.ndarray) -> int:
    """Return CartPole's action by the angle, its speed, and a little of the cart's."""
    return int(obs[2] + 0.5 * obs[3] + 0.05 * obs[0] + 0.1 * obs[1] > 0)


def demonstrate(
    act: Callable[[Any], Any], env_id: str, *, episodes: int, first_seed: int = 0, max_steps: int = 10**9
) -> Demonstrations:
    """Return whole episodes, or the first `max_steps` steps of each, whose starts are seeded from `first_seed`."""
    env = gymnasium.make(env_id)
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for episode in range(episodes):
        obs, ended, step = env.reset(seed=first_seed + episode)[0], False, 0
        while not ended:
            action = act(obs)
            after, reward, terminated, truncated, _ = env.step(action)
            truncated = truncated or step == max_steps - 1
            ended = terminated or truncated
            values = (obs, action, np.float32(reward), after, terminated, truncated, 0, episode, step)
            for name, value in zip(COLUMNS, values, strict=True):
                columns[name].append(value)
            obs, step = after, step + 1
    return Demonstrations({name: np.asarray(column) for name, column in columns.items()}, {"env_id": env_id})


def cartpole(episodes: int = 10, *, first_seed: int = 0, max_steps: int = 10**9) -> Demonstrations:
    """Return episodes of the controller written by hand."""
    return demonstrate(balance, "CartPole-v1", episodes=episodes, first_seed=first_seed, max_steps=max_steps)


def pendulum(episodes: int = 10, *, env_step: int = 10_000, first_seed: int = 0) -> Demonstrations:
    """Return episodes of what SAC has learned in `env_step` env steps."""
    with tempfile.TemporaryDirectory() as folder:
        run = f"{folder}/expert"
        serial_pipeline(str(SAC), seed=0, exp_name=run, max_env_step=env_step, overrides=["env.stop_value=0"])
        agent = ding_like.load(run)
        return demonstrate(agent.act, "Pendulum-v1", episodes=episodes, first_seed=first_seed)


EXPERTS: dict[str, Callable[..., Demonstrations]] = {"cartpole": cartpole, "pendulum": pendulum}


def main() -> None:
    """Parse the command line and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("expert", choices=list(EXPERTS))
    parser.add_argument("file", type=Path)
    parser.add_argument("--episodes", type=int, default=10)
    args = parser.parse_args()
    found = EXPERTS[args.expert](args.episodes)
    found.save(args.file)
    sys.stdout.write(f"{args.file}: {found.num_episodes} episodes, mean return {found.returns.mean():.1f}\n")


if __name__ == "__main__":
    main()
