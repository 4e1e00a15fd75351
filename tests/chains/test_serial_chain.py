"""TrainingLoop -> SerialRunner.step -> collector.collect -> buffer.push -> BaseLearner.train -> evaluator.eval."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ding_like.entry.cli import main
from ding_like.pipeline.training_loop import SerialRunner
from ding_like.worker import BaseLearner, InteractionSerialEvaluator, NaiveReplayBuffer, SampleSerialCollector
from tests.chains.hands import hands_of, record_hands

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")

CONFIG = Path(__file__).parents[2] / "dizoo/classic_control/cartpole/config/cartpole_dqn_config.py"
COMMAND = ["-m", "serial", "-c", str(CONFIG), "--env-step", "640", "--exp-name", "exp", "policy.random_collect_size=0"]
COMMAND += ["policy.nstep=1", "policy.collect.n_sample=64"]
ITERATIONS = 10
HERE = "tests.chains.test_serial_chain"

calls: Counter[str] = Counter()


class Collector(SampleSerialCollector):
    def collect(self, *args: Any, **kwargs: Any) -> Any:
        calls["collect"] += 1
        return super().collect(*args, **kwargs)


class Buffer(NaiveReplayBuffer):
    def push(self, *args: Any, **kwargs: Any) -> None:
        calls["push"] += 1
        super().push(*args, **kwargs)


class Learner(BaseLearner):
    def train(self, *args: Any, **kwargs: Any) -> Any:
        calls["train"] += 1
        return super().train(*args, **kwargs)


class Evaluator(InteractionSerialEvaluator):
    def eval(self, *args: Any, **kwargs: Any) -> Any:
        calls["eval"] += 1
        return super().eval(*args, **kwargs)


PLACES = {
    Collector: "policy.collect.collector.type",
    Buffer: "policy.other.replay_buffer.type",
    Learner: "policy.learn.learner.type",
    Evaluator: "policy.eval.evaluator.type",
}


def test_the_command_runs_the_documented_classes_once_an_iteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = SerialRunner.step
    monkeypatch.setattr(SerialRunner, "step", lambda self: (calls.update(step=1), step(self))[1])
    calls.clear()

    with record_hands(tmp_path, loops=["pipeline/training_loop.py:_loop"]):
        main([*COMMAND, *(f"{place}={HERE}:{cls.__name__}" for cls, place in PLACES.items())])

    assert calls["step"] == calls["collect"] == calls["push"] == ITERATIONS
    assert calls["train"] == json.loads(Path("exp/result.json").read_text())["train_iter"] > ITERATIONS
    assert calls["eval"] >= 1
    hands = hands_of(tmp_path)
    assert {"envs/manager/base.py", "data/rollout.py", "policy/value_based.py"} <= {*hands}
    assert len(hands) <= 10, hands


class LazyLearner(BaseLearner):
    def train(self, data: Any, envstep: int = -1, policy_kwargs: Any = None) -> list[dict[str, Any]]:
        return []


def test_an_override_by_the_config_changes_the_run() -> None:
    main([*COMMAND, f"policy.learn.learner.type={HERE}:LazyLearner"])

    assert json.loads(Path("exp/result.json").read_text())["train_iter"] == 0
