"""Runs of DI-engine's config files are told as their own files tell them."""

import hashlib
import json
from pathlib import Path

import pytest

from tests.learning.stop_values import Task, read, run

CONFIG = """
main_config = dict(
    exp_name="x",
    env=dict(collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2, stop_value=5),
    policy=dict(model=dict(obs_shape=4, action_shape=2), learn=dict(batch_size=16), collect=dict(n_sample=8)),
)
create_config = dict(
    env=dict(type="cartpole", import_names=["dizoo.classic_control.cartpole.envs.cartpole_env"]),
    env_manager=dict(type="base"),
    policy=dict(type="dqn"),
)
"""


def test_what_a_run_came_to_is_read_from_its_files(tmp_path: Path) -> None:
    lines = [
        {"source": "evaluator", "env_step": 0, "reward_mean": 9.456},
        {"source": "learner", "env_step": 5},
        {"source": "evaluator", "env_step": 8, "reward_mean": 200.0},
        {"source": "evaluator", "env_step": 8, "reward_mean": 250.0},  # the closing one
    ]
    result = {"stop": True, "env_step": 8, "train_iter": 3, "eval_value": 150.123, "eval_value_raw": [100.0, 200.0]}
    (tmp_path / "total_config.py").write_text(CONFIG.replace("stop_value=5", "stop_value=195, env_id='E-v0'"))
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "result.json").write_text(json.dumps(result))

    assert read(tmp_path) == {
        "env_id": "E-v0",
        "stop_value": 195,
        "reached": True,
        "env_step": 8,
        "train_iter": 3,
        "best_evaluation": 200.0,
        "evaluation_episodes": 2,
        "fresh_value": 150.12,
        "fresh_episodes": 2,
        "history": [[0, 9.46], [8, 200.0]],
    }


@pytest.mark.slow
def test_a_file_is_run_by_the_command_line_as_it_is(tmp_path: Path) -> None:
    config = tmp_path / "x_config.py"
    config.write_text(CONFIG)

    row = run(config, Task("x_config.py", "serial", 50), ("--di-engine",), 0)

    assert row["env_id"] == "CartPole-v0" and row["arguments"][-1] == "--di-engine"
    assert row["sha256"] == hashlib.sha256(CONFIG.encode()).hexdigest()
    assert not row["reached"] and 50 <= row["env_step"] < 60 and len(row["history"]) == 1
