"""Record what random actions return in a config's env, as `tests.learning.record` records a policy: a task's scale.

python -m tests.learning.random_policy CONFIG --first-seed 0 --episodes 100 --out PART.json
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from easydict import EasyDict

import ding_like
from benchmarks.common import Clock
from benchmarks.provenance import provenance
from ding_like.config import read_config
from ding_like.data.batch import map_obs
from ding_like.envs.factory import make_env
from ding_like.policy.di_engine_view import RandomActor
from tests.learning.record import as_text


def play(config: Path, seed: int, episodes: int) -> dict[str, Any]:
    """Return the row of a seed: the mean return of so many episodes."""
    found = read_config(config)
    env = make_env(EasyDict({**found.main_config["env"], **found.create_config["env"]}))
    actor, rng = RandomActor(env.action_space), np.random.default_rng(seed)
    lanes, is_first = np.zeros(1, int), np.ones(1)
    clock, total, steps = Clock(), 0.0, 0
    clock.start()
    for episode in range(episodes):
        (obs, _), ended = env.reset(seed=10_000 * (seed + 1) + episode), False
        while not ended:
            rows = map_obs(lambda part: np.asarray(part)[None], obs)
            action = actor.act(rows, lanes=lanes, is_first=is_first, rng=rng)["action"][0]
            obs, reward, terminated, truncated, _ = env.step(action)
            total, steps, ended = total + float(reward), steps + 1, terminated or truncated
    clock.stop()
    env.close()
    row = dict(seed=seed, eval_value=round(total / episodes, 2), env_step=steps, train_iter=0)
    return {**row, "wall_s": round(clock.wall_s, 2), "cpu_s": round(clock.cpu_s, 2), "history": []}


def main() -> None:
    """Play one seed and write its part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--env-step", type=int, help="unused: the budget of what is beside it")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    code = provenance().to_plain()
    row = {**play(args.config, args.first_seed, args.episodes), "version": ding_like.__version__}
    head = dict(config=args.config.name, mode="random", overrides=[], episodes=args.episodes)
    args.out.write_text(as_text(dict(**head, limit_env_step=args.env_step, **code, runs=[row])))


if __name__ == "__main__":
    main()
