"""Runs of policies of choices with parameters: resumed exactly, in parallel, and beside the optimum of a toy env."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.config import deep_merge
from ding_like.entry import serial_pipeline_onpolicy
from tests.policy.hybrid import register_aim

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "dizoo/gym_hybrid/config"


def configs(policy: str, **changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a small config on Moving-v0, with short episodes."""
    small: dict[str, Any] = dict(
        model=dict(encoder_hidden_size_list=[16, 16]),
        learn=dict(batch_size=16),
        collect=dict(n_sample=64),
        eval=dict(evaluator=dict(eval_freq=100)),
    )
    if policy == "pdqn":
        small |= dict(random_collect_size=100)
    main = dict(
        exp_name="exp",
        env=dict(collector_env_num=2, evaluator_env_num=1, n_evaluator_episode=2, stop_value=10.0, kwargs={}),
        policy=deep_merge(small, changes),
    )
    main["env"]["kwargs"] = dict(max_step=20)
    create = dict(
        env=dict(type="gym_hybrid", import_names=["dizoo.gym_hybrid.envs.gym_hybrid_env"]),
        env_manager=dict(type="base"),
        policy=dict(type=policy),
    )
    return main, create


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("policy", ["mpdqn", "hppo"])
def test_shipped_configs_train_in_parallel(policy: str, tmp_path: Path) -> None:
    overrides = ["policy.learn.batch_size=32", "policy.collect.n_sample=160", "env.evaluator_env_num=2"]
    overrides += ["env.n_evaluator_episode=2"] + (["policy.random_collect_size=200"] if policy == "mpdqn" else [])
    config = str(CONFIGS / f"gym_hybrid_{policy}_config.py")
    run = subprocess.run(
        [
            *(sys.executable, "-m", "ding_like", "-m", "parallel", "-c", config),
            *("-s", "0", "--env-step", "700", "--exp-name", "par", *overrides),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert run.returncode == 0, run.stderr
    result = json.loads((tmp_path / "par/result.json").read_text())
    assert result["env_step"] >= 700 and result["train_iter"] > 0


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("bound", ["clip", "tanh"])
def test_ppo_solves_the_toy_env_near_its_optimum(bound: str) -> None:
    main = dict(
        exp_name="aim",
        env=dict(collector_env_num=16, evaluator_env_num=16, n_evaluator_episode=400, stop_value=2.0),
        policy=dict(
            action_bound=bound,
            model=dict(encoder_hidden_size_list=[32], initial_sigma=0.5),
            learn=dict(batch_size=128, learning_rate=3e-3, epoch_per_collect=8),
            collect=dict(n_sample=512),
            eval=dict(evaluator=dict(eval_freq=10_000)),
        ),
    )
    create = dict(env=dict(type=register_aim()), env_manager=dict(type="base"), policy=dict(type="ppo"))

    serial_pipeline_onpolicy((main, create), seed=0, max_env_step=16_000)

    # The optimum is 1; the best that does not look at the observation is 0.42.
    assert np.mean(json.loads(Path("aim/result.json").read_text())["eval_value_raw"]) > 0.93
