"""The work of the offline benchmarks: the data set, updates and evaluations that both libraries are given.

Data sets are files of `ding collect --levels` in $BENCH_OFFLINE/ENV/LEVEL.safetensors.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from safetensors import safe_open

from benchmarks.common import emit

FOLDER = Path(os.environ.get("BENCH_OFFLINE", Path.home() / ".cache/ding_bench/data"))
BATCH_SIZE, EPISODES = 256, 10
METHODS = ("bc", "td3_bc", "iql", "rebrac", "cql", "bcq", "dt", "discrete_cql", "discrete_bcq")
# Of the decision transformer: contexts of a batch, width, learning rate, updates over which it grows, norm of the
# gradient, and what returns to go are divided by.
DT_BATCH_SIZE, DT_WIDTH, DT_RATE, DT_WARMUP, DT_CLIP, DT_RTG_SCALE = 64, 128, 1e-3, 500, 0.25, 1000.0

# Gives the action of an observation [1, O] and the reward of the action before, None as an episode begins.
Act = Callable[[Any, float | None], Any]


def arguments() -> argparse.Namespace:
    """Return the policy, the data set, the number of updates and the seed, by the command line and the round."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--method", choices=METHODS, required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--updates", type=int, required=True)
    parser.add_argument("--first-seed", type=int, default=0, help="seed of the first round")
    args = parser.parse_args()
    args.seed = args.first_seed + int(os.environ.get("BENCH_ROUND", "0"))
    return args


class Data:
    """Steps [N] of a data set, with the reference scores of its env."""

    def __init__(self, name: str) -> None:
        self.path = FOLDER / f"{name}.safetensors"
        with safe_open(self.path, framework="numpy") as file:
            columns = ("obs", "action", "reward", "terminated", "truncated")
            self.columns = {column: file.get_tensor(column) for column in columns}
            info = json.loads(file.metadata()["info"])
        self.env_id: str = info["env_id"]
        self.is_discrete = self.columns["action"].dtype.kind == "i"
        self._random, self._expert = (float(info["reference"][level]) for level in ("random", "expert"))

    @property
    def best_return(self) -> float:
        """Highest return of a whole episode."""
        ends = np.flatnonzero(self.columns["terminated"] | self.columns["truncated"])
        sums = np.cumsum(self.columns["reward"], dtype=np.float64)[ends]
        return float(np.diff(sums, prepend=0.0).max())

    def report(self, act: Act, args: argparse.Namespace, *, cpu_s: float) -> None:
        """Evaluate actions in fresh episodes; print scores and speed."""
        env, returns = gymnasium.make(self.env_id), []
        for episode in range(EPISODES):
            obs, _ = env.reset(seed=10_000 + 100 * args.seed + episode)
            total, ends, reward = 0.0, False, None
            while not ends:
                action = act(np.asarray(obs, np.float32)[None], reward)
                obs, reward, terminated, truncated, _ = env.step(action)
                total, ends = total + float(reward), terminated or truncated
            returns.append(total)
        mean = float(np.mean(returns))
        emit("score", round(100.0 * (mean - self._random) / (self._expert - self._random), 2), "")
        emit("return", round(mean, 1), "")
        emit("updates", round(args.updates / cpu_s, 2), "updates/cpu-s")
        digest = hashlib.sha256(b"".join(np.ascontiguousarray(each).tobytes() for each in self.columns.values()))
        emit("data", int.from_bytes(digest.digest()[:4], "big"), "")
