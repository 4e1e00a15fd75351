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
import torch

from ding_like.config import deep_merge
from ding_like.entry import resume_pipeline, serial_pipeline, serial_pipeline_onpolicy
from tests.contracts.policy_cases import assert_equal_states
from tests.policy.hybrid import register_aim

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "dizoo/gym_hybrid/config"
PIPELINES = {"pdqn": serial_pipeline, "ppo": serial_pipeline_onpolicy}


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


@pytest.mark.parametrize(
    ("policy", "changes"),
    [("pdqn", {}), ("pdqn", dict(model=dict(multi_pass=True), nstep=3, priority=True)), ("ppo", {})],
    ids=["pdqn", "mpdqn", "ppo"],
)
def test_a_run_in_two_parts_equals_one_in_one(policy: str, changes: dict[str, Any]) -> None:
    whole = PIPELINES[policy](configs(policy, **changes), seed=3, max_env_step=400, exp_name="whole")
    PIPELINES[policy](configs(policy, **changes), seed=3, max_env_step=230, exp_name="parts")

    resumed = resume_pipeline("parts", max_env_step=400)

    assert_equal_states(whole.learn_mode.state_dict(), resumed.learn_mode.state_dict())
    texts = [Path(name, "metrics.jsonl").read_text() for name in ("whole", "parts")]
    evaluations = [[json.loads(line) for line in text.splitlines()] for text in texts]
    found = [[row["reward_mean"] for row in rows if row["source"] == "evaluator"] for rows in evaluations]
    assert found[0] == found[1] and found[0]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("policy", ["mpdqn", pytest.param("hppo", marks=pytest.mark.slow)])
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


@pytest.mark.timeout(60)
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


def test_hybrid_ppo_computes_gradients_by_hand_as_autograd_does() -> None:
    policies = [
        serial_pipeline_onpolicy(
            configs("ppo", learn=dict(batch_size=16, backend=backend, entropy_weight=0.01)),
            seed=3,
            max_env_step=128,
            exp_name=backend,
        )
        for backend in ("auto", "autograd")
    ]

    states = [policy.learn_mode.state_dict()["model"] for policy in policies]
    assert policies[0]._by_hand is not None and policies[1]._by_hand is None  # type: ignore[attr-defined]
    for name, tensor in states[0].items():
        torch.testing.assert_close(tensor, states[1][name], rtol=1e-3, atol=1e-4)
