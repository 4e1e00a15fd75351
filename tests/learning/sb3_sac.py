"""Record Stable-Baselines3's SAC as `tests.learning.record` records ours; run by the peers' Python.

python -m tests.learning.sb3_sac HalfCheetah-v5 --first-seed 0 --env-step 100000 --out PART.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.common import Clock  # isort: skip  (first: it pins the threads)

import gymnasium as gym
import stable_baselines3
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

FREQ, EPISODES = 5000, 8


class Evaluate(BaseCallback):
    """Mean return of some episodes in an env of its own, every `FREQ` steps."""

    def __init__(self, env_id: str, seed: int) -> None:
        super().__init__()
        self.env = Monitor(gym.make(env_id))
        self.env.reset(seed=1000 + seed)
        self.history: list[list[float]] = []

    def _on_step(self) -> bool:
        if self.num_timesteps % FREQ == 0:
            mean, _ = evaluate_policy(self.model, self.env, EPISODES)
            self.history.append([self.num_timesteps, round(float(mean), 2)])
        return True


def train(env_id: str, seed: int, env_step: int, episodes: int) -> dict[str, Any]:
    """Return the row of a seed."""
    evaluate = Evaluate(env_id, seed)
    model = SAC("MlpPolicy", gym.make(env_id), learning_starts=10_000, seed=seed, device="cpu")
    clock = Clock()
    clock.start()
    model.learn(env_step, callback=evaluate)
    clock.stop()
    fresh = Monitor(gym.make(env_id))
    fresh.reset(seed=10_000 + seed)
    value, _ = evaluate_policy(model, fresh, episodes)
    row = dict(seed=seed, eval_value=round(float(value), 2), env_step=model.num_timesteps, train_iter=model._n_updates)
    return {**row, "wall_s": round(clock.wall_s, 2), "cpu_s": round(clock.cpu_s, 2), "history": evaluate.history}


def main() -> None:
    """Train one seed and write its part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("env_id")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--env-step", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    row = train(args.env_id, args.first_seed, args.env_step, args.episodes)
    row["version"] = f"stable-baselines3 {stable_baselines3.__version__}"
    head = dict(config=args.env_id, mode="sb3", overrides=[], episodes=args.episodes, limit_env_step=args.env_step)
    args.out.write_text(json.dumps(dict(**head, commit=None, runs=[row])))


if __name__ == "__main__":
    main()
