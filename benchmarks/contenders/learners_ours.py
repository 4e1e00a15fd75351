"""One learner, or several processes that learn as one (`ding -m serial --learners N`), of the same config.

The clock of the first learner runs from its first update to its last; evaluations stand before and behind.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from benchmarks.common import emit, emit_versions  # isort: skip  (pins the threads first)

from ding_like.config import read_config
from ding_like.entry import serial_pipeline, serial_pipeline_onpolicy
from ding_like.worker import BaseLearner

CONFIGS = Path(__file__).parents[2] / "dizoo/classic_control"
# Networks so large that learning takes most of the time.
WIDE = [512, 512]


class Clock:
    """Note when the first and the last `train` of this process ended, and how many updates the first made."""

    def __init__(self) -> None:
        self.first_s = self.last_s = 0.0
        self.first_updates = 0

    def attach(self) -> None:
        """Have every learner of this process noted."""
        train = BaseLearner.train

        def timed(learner: BaseLearner, *args: Any, **kwargs: Any) -> Any:
            infos = train(learner, *args, **kwargs)
            self.last_s = time.perf_counter()
            if not self.first_s:
                self.first_s, self.first_updates = self.last_s, len(infos)
            return infos

        BaseLearner.train = timed  # type: ignore[method-assign]  # the others' processes train as they always do


def ppo() -> tuple[Any, Any, Any]:
    """Return (pipeline, main_config, create_config): CartPole PPO with wider networks and larger batches."""
    file = read_config(CONFIGS / "cartpole/config/cartpole_ppo_config.py")
    main: Any = file.main_config
    main.policy.model.encoder_hidden_size_list = WIDE
    main.policy.learn.batch_size = 256
    main.policy.collect.n_sample = 1024
    return serial_pipeline_onpolicy, main, file.create_config


def ppo_small() -> tuple[Any, Any, Any]:
    """Return the shipped CartPole PPO, whose minibatches of 64 rows take less than a millisecond."""
    file = read_config(CONFIGS / "cartpole/config/cartpole_ppo_config.py")
    return serial_pipeline_onpolicy, file.main_config, file.create_config


def sac() -> tuple[Any, Any, Any]:
    """Return the shipped Pendulum SAC with wider networks and batches."""
    file = read_config(CONFIGS / "pendulum/config/pendulum_sac_config.py")
    main: Any = file.main_config
    main.policy.model = dict(actor_head_hidden_size=WIDE[0], critic_head_hidden_size=WIDE[0])
    main.policy.learn.batch_size = 512
    return serial_pipeline, main, file.create_config


ALGORITHMS = {"ppo": ppo, "ppo_small": ppo_small, "sac": sac}


def main() -> None:
    """Train once and print the rates."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--algorithm", choices=ALGORITHMS, required=True)
    parser.add_argument("--learners", type=int, required=True)
    parser.add_argument("--steps", type=int, default=4096)
    args = parser.parse_args()
    pipeline, main_config, create_config = ALGORITHMS[args.algorithm]()
    main_config.exp_name = "bench"
    main_config.env.update(stop_value=float("inf"))
    main_config.policy.eval = dict(evaluator=dict(eval_freq=10**9))
    clock = Clock()
    clock.attach()
    pipeline((main_config, create_config), seed=0, max_env_step=args.steps, learners=args.learners)
    result: dict[str, Any] = json.loads(Path("bench/result.json").read_text())
    train_s = clock.last_s - clock.first_s
    before = int(main_config.policy.get("random_collect_size", 0)) + int(main_config.policy.collect.n_sample)
    emit("updates_wall", round((result["train_iter"] - clock.first_updates) / train_s, 1), "updates/s")
    emit("env_steps_wall", round((result["env_step"] - before) / train_s, 1), "steps/s")
    emit("updates", result["train_iter"], "")
    emit_versions("torch", "numpy", "gymnasium")


if __name__ == "__main__":
    main()
