"""Serial runs with box actions."""

import json

import numpy as np
import pytest

from ding_like.entry import eval as evaluate
from ding_like.entry import serial_pipeline

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")


def make_configs(policy_type: str, **changes):
    main = dict(
        exp_name="exp",
        env=dict(env_id="Pendulum-v1", collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2, stop_value=0),
        policy=dict(
            random_collect_size=32,
            model=dict(actor_head_hidden_size=8, critic_head_hidden_size=8),
            learn=dict(update_per_collect=2, batch_size=16),
            collect=dict(n_sample=4),
            eval=dict(evaluator=dict(eval_freq=1000)),
            **changes,
        ),
    )
    return main, dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type=policy_type))


@pytest.mark.parametrize("name", ["sac", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ddpg", "td3"))])
def test_pendulum_runs_and_its_checkpoint_plays(name, tmp_path):
    serial_pipeline(make_configs(name, nstep=3), seed=0, max_env_step=120)

    result = json.loads((tmp_path / "exp/result.json").read_text())
    value = evaluate(make_configs(name), seed=1, load_path=str(tmp_path / "exp/ckpt/ckpt_best.pth.tar"))
    assert result["train_iter"] >= 40 and np.isfinite(result["eval_value"]) and -2000 < value < 0
