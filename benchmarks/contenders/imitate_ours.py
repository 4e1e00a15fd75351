"""Our BC, GAIL, AIRL and SQIL from the shipped configs, on the expert's rows and env steps of both libraries."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import Clock, emit, emit_versions  # isort: skip  (pins the threads first)

import numpy as np

import benchmarks.contenders.dqn_ours  # noqa: F401  (registers the evaluator 'never')
from benchmarks.contenders import imitate_work as work
from ding_like.data.demonstrations import Demonstrations
from ding_like.entry import serial_pipeline, serial_pipeline_bc, serial_pipeline_onpolicy
from ding_like.worker import BaseLearner, LearnerHook, register_learner_hook

CONFIGS = Path(__file__).parents[2] / "dizoo/classic_control/cartpole/config"


class ClockHook(LearnerHook):
    """Hook that starts and stops the clock around the training, before the last evaluation."""

    clock: Clock

    def __call__(self, engine: BaseLearner) -> None:
        if self.position == "before_run":
            self.clock.start()
        else:
            self.clock.stop()


def demonstrations(episodes: list[dict[str, Any]]) -> Demonstrations:
    """Return the expert's episodes as our file has them."""
    lengths = [len(each["action"]) for each in episodes]
    last = np.cumsum(lengths) - 1
    terminated, truncated = np.zeros((2, sum(lengths)), bool)
    terminated[last] = [each["terminated"] for each in episodes]
    truncated[last] = ~terminated[last]
    return Demonstrations(
        {
            "obs": np.concatenate([each["obs"][:-1] for each in episodes]),
            "next_obs": np.concatenate([each["obs"][1:] for each in episodes]),
            "action": np.concatenate([each["action"] for each in episodes]),
            "reward": np.ones(sum(lengths), np.float32),
            "terminated": terminated,
            "truncated": truncated,
            "lane": np.zeros(sum(lengths), np.int64),
            "episode_id": np.repeat(np.arange(len(episodes)), lengths),
            "step": np.concatenate([np.arange(length) for length in lengths]),
        }
    )


def train(method: str, seed: int, data_path: str) -> None:
    """Train one seed by a method's shipped config."""
    hooks = [f"policy.learn.learner.hook.clock_{place}=True" for place in ("before_run", "after_run")]
    common = ["create.evaluator.type=never", "env.stop_value=1e9", *hooks]
    config = CONFIGS / {
        "bc": "cartpole_bc_config.py",
        "gail": "cartpole_gail_ppo_config.py",
        "airl": "cartpole_airl_ppo_config.py",
        "sqil": "cartpole_sqil_config.py",
    }.get(method, "")
    if method == "bc":
        overrides = [f"policy.collect.data_path={data_path}", f"policy.learn.train_epoch={work.EPOCHS}", *common]
        serial_pipeline_bc(str(config), seed=seed, overrides=overrides, exp_name="bench")
        return
    steps = work.STEPS[method]
    where = "policy.collect" if method == "sqil" else "reward_model"
    pipeline = serial_pipeline if method == "sqil" else serial_pipeline_onpolicy
    overrides = [f"{where}.data_path={data_path}", *common]
    if method == "sqil":
        overrides.append("policy.learn.update_per_collect=2")  # one update for each 4 env steps, as the peer's
    pipeline(str(config), seed=seed, max_env_step=steps, overrides=overrides, exp_name="bench")


def main() -> None:
    """Train all seeds and print the mean return and the processor time of the training."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--method", choices=["bc", *work.STEPS], required=True)
    parser.add_argument("--seeds", type=int, default=work.SEEDS)
    args = parser.parse_args()
    register_learner_hook("clock", ClockHook)
    episodes, returns, cpu_s = work.expert_episodes(), [], 0.0
    with tempfile.TemporaryDirectory() as folder:
        data_path = f"{folder}/expert.safetensors"
        demonstrations(episodes).save(data_path)
        for seed in range(args.seeds):
            ClockHook.clock = Clock()
            train(args.method, seed, data_path)
            # A folder of that name from before makes the run take another.
            result = max(Path().glob("bench*/result.json"), key=lambda path: path.stat().st_mtime)
            returns.append(json.loads(result.read_text())["eval_value"])
            cpu_s += ClockHook.clock.cpu_s
    emit("return", round(float(np.mean(returns)), 1), "")
    emit("lowest", round(min(returns), 1), "")
    emit("training", round(args.seeds / cpu_s, 4), "seeds/cpu-s")
    emit("expert_rows", work.fingerprint(episodes), "")
    emit_versions("torch", "numpy", "gymnasium")


if __name__ == "__main__":
    main()
