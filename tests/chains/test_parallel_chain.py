"""The documented classes of mode parallel are the ones that run: calls counted in a real run, overrides by config."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.chains.hands import hands_of
from tests.chains.parallel_classes import COLLECTOR, COORDINATOR, LEARNER

pytestmark = pytest.mark.timeout(300)

CLASSES = "tests.chains.parallel_classes"
ENV_STEPS = 1200
CONFIG = """
main_config = dict(
    env=dict(env_id="CartPole-v1", collector_env_num=4, evaluator_env_num=2, n_evaluator_episode=2, stop_value=1e9),
    policy=dict(
        random_collect_size=64,
        model=dict(encoder_hidden_size_list=[8]),
        learn=dict(batch_size=16, update_per_collect=1),
        collect=dict(n_sample=8),
        eval=dict(evaluator=dict(eval_freq=1000)),
        other=dict(replay_buffer=dict(replay_buffer_size=5000)),
    ),
)
create_config = dict(
    env=dict(type="gymnasium"),
    env_manager=dict(type="base"),
    policy=dict(type="dqn"),
    {parts}
)
system_config = dict(num_collectors=1, segment_rows=64)
"""


def run(folder: Path, *, records: bool = False, **classes: str) -> tuple[Counter[str], dict[str, Any]]:
    """Run the command with classes by part; return the calls that these noted, and the run's result.

    With `records` the processes of these classes record the files that a row passes.
    """
    parts = ", ".join(f'{part}=dict(type="{CLASSES}:{name}")' for part, name in classes.items())
    (folder / "config.py").write_text(CONFIG.replace("{parts}", parts))
    calls = folder / "calls"
    calls.touch()
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "CHAIN_CALLS": str(calls)}
    env |= {"CHAIN_HANDS": str(folder)} if records else {}
    command = ["-m", "parallel", "-c", "config.py", "-s", "0", "--env-step", str(ENV_STEPS), "--exp-name", "run"]
    done = subprocess.run(
        [sys.executable, "-m", "ding_like.entry.cli", *command],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return Counter(calls.read_text().split()), json.loads((folder / "run/result.json").read_text())


def test_a_run_goes_through_every_documented_method(tmp_path: Path) -> None:
    calls, result = run(
        tmp_path,
        records=True,
        coordinator="CountedCoordinator",
        comm_learner="CountedLearner",
        comm_collector="CountedCollector",
        commander="CountedCommander",
    )

    expected = [f"Coordinator.{name}" for name in COORDINATOR]
    expected += [f"FlaskFileSystemLearner.{name}" for name in (*LEARNER, "load_data_fn")]
    expected += [f"FlaskFileSystemCollector.{name}" for name in COLLECTOR]
    expected += ["NaiveCommander.new_tasks", "NaiveCommander.finished"]
    assert not [name for name in expected if not calls[name]], calls
    segments = calls["Coordinator.deal_with_collector_send_data"]
    assert segments == calls["FlaskFileSystemCollector.send_stepdata"] >= ENV_STEPS // 64
    assert segments >= calls["FlaskFileSystemLearner.load_data_fn"] >= segments - 4
    assert calls["FlaskFileSystemLearner.deal_with_learner_learn"] == result["train_iter"] > 100
    assert calls["FlaskFileSystemLearner.send_learn_info"] == result["train_iter"]
    assert calls["Coordinator.deal_with_learner_finish_task"] == 1
    hands = hands_of(tmp_path)
    assert {"data/rollout.py", "pipeline/parallel/core/ledger.py", "policy/value_based.py"} <= set(hands)
    assert len(hands) <= 20, hands


def test_a_coordinator_of_ones_own_changes_the_run(tmp_path: Path) -> None:
    calls, _ = run(tmp_path, coordinator="DroppingCoordinator")

    assert calls["dropped"] >= ENV_STEPS // 64 - 1, "half of what was collected does not count"


def test_a_comm_learner_of_ones_own_changes_the_run(tmp_path: Path) -> None:
    calls, result = run(tmp_path, comm_learner="OneUpdateLearner")

    assert abs(calls["skipped"] - result["train_iter"]) <= 1, "half of the batches are not learned from"


def test_a_comm_collector_of_ones_own_changes_the_run(tmp_path: Path) -> None:
    calls, result = run(tmp_path, comm_collector="RewardingCollector")

    assert result["env_step"] == 192 * calls["sent"]


def test_a_commander_of_ones_own_changes_the_run(tmp_path: Path) -> None:
    _, result = run(tmp_path, commander="ShortCommander")

    assert 600 <= result["env_step"] < ENV_STEPS
