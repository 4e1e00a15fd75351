"""Rows that are sequences, and envs whose wrappers learn, in processes of their own: `ding -m parallel`, then eval."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ding_like.utils.checkpoint import load_state
from tests.entry.test_parallel import PPO, ding, processes_in


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_with_normalised_observations_can_be_evaluated_from_its_checkpoint(tmp_path: Path) -> None:
    norm = "env.wrappers=[{'type': 'obs_norm'}, {'type': 'reward_norm'}]"

    run = ding(
        tmp_path, "-m", "parallel", "-c", str(PPO), "-s", "1", "--env-step", "1200", "--exp-name", "par", norm,
        "policy.eval.evaluator.eval_freq=40",
    )  # fmt: skip

    assert run.returncode == 0, run.stderr
    result = json.loads((tmp_path / "par/result.json").read_text())
    assert result["env_step"] >= 1200 and processes_in(tmp_path) == []
    counts = []
    for path in [tmp_path / "par/ckpt/ckpt_best.pth.tar", *tmp_path.glob("par/ckpt/iteration_*.pth.tar")]:
        (lane,) = load_state(path)["env_wrappers"]["lanes"]
        assert [each["type"] for each in lane] == ["RewardNorm", "ObsNorm"]
        counts.append(lane[1]["state"]["count"])
    assert max(counts) >= result["env_step"] - 256 and max(counts) < 2 * result["env_step"]
    best = str(tmp_path / "par/ckpt/ckpt_best.pth.tar")
    said = ding(tmp_path, "-m", "eval", "-c", str(PPO), "-s", "1", "--load-path", best, norm)
    assert said.returncode == 0 and re.search(r"mean return [\d.]+", said.stderr + said.stdout), said.stderr


SEQUENCES = """
import tests.pipeline.parallel.sequence_policy
main_config = dict(
    exp_name="par",
    env=dict(env_id="CartPole-v1", collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2, stop_value=500),
    policy=dict(
        random_collect_size=16,
        model=dict(encoder_hidden_size_list=[8]),
        learn=dict(batch_size=16, update_per_collect=2),
        collect=dict(n_sample=8, unroll_len=4),
        eval=dict(evaluator=dict(eval_freq=1000)),
        other=dict(replay_buffer=dict(replay_buffer_size=200)),
    ),
)
create_config = dict(
    env=dict(type="gymnasium"),
    env_manager=dict(type="base"),
    policy=dict(type="sequence_dqn", import_names=["tests.pipeline.parallel.sequence_policy"]),
)
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_rows_that_are_sequences_train_in_processes_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "sequence_config.py").write_text(SEQUENCES)

    run = ding(tmp_path, "-m", "parallel", "-c", "sequence_config.py", "-s", "0", "--env-step", "1500")

    assert run.returncode == 0, run.stderr
    result = json.loads((tmp_path / "par/result.json").read_text())
    # 2 updates for 8 rows of 4 steps, after 16 rows at random.
    assert 0 <= (result["env_step"] - 64) // 16 - result["train_iter"] <= 64
    assert result["env_step"] >= 1500 and processes_in(tmp_path) == []
