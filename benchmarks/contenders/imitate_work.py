"""The work of the imitation benchmarks: the expert's rows, env steps and seeds that both libraries are given."""

from __future__ import annotations

import hashlib
from typing import Any

import gymnasium
import numpy as np

ENV, EXPERT_EPISODES, SEEDS, EPISODES, NUM_ENVS = "CartPole-v1", 10, 5, 20, 8
# Env steps of the methods that play; passes over the expert's rows of the one that does not.
STEPS = {"gail": 50_000, "airl": 50_000, "sqil": 20_000}
EPOCHS = 10


def expert_episodes() -> list[dict[str, Any]]:
    """Return episodes of a linear controller that holds the pole up for 500 steps: obs [T + 1, 4], action [T]."""
    env = gymnasium.make(ENV)
    episodes = []
    for seed in range(EXPERT_EPISODES):
        obs, _ = env.reset(seed=seed)
        observations, actions, ends = [obs], [], False
        while not ends:
            action = int(obs[2] + 0.5 * obs[3] + 0.05 * obs[0] + 0.1 * obs[1] > 0)
            obs, _, terminated, truncated, _ = env.step(action)
            observations.append(obs)
            actions.append(action)
            ends = terminated or truncated
        episodes.append({"obs": np.stack(observations), "action": np.array(actions), "terminated": terminated})
    return episodes


def fingerprint(episodes: list[dict[str, Any]]) -> int:
    """Return a number that two libraries share where their expert's rows are equal."""
    digest = hashlib.sha256(b"".join(each["obs"].tobytes() + each["action"].tobytes() for each in episodes))
    return int.from_bytes(digest.digest()[:4], "big")
