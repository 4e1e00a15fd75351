"""The documented classes are those that run in `ding -m seed`, and a subclass that a config names changes the run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ding_like.comm.zmq.weights import Broadcaster
from ding_like.entry import cli
from ding_like.entry.seed_entry import Trainer, TrainingResult
from ding_like.pipeline.seed.runner import SeedRunner
from ding_like.pipeline.seed.servers import InferenceServer
from tests.chains.hands import hands_of, record_hands
from tests.chains.seed_classes import FOLDER, count, counts

CONFIG = Path(__file__).parents[2] / "dizoo/classic_control/cartpole/config/cartpole_dqn_config.py"
QUICK = [
    "env.collector_env_num=2",
    "env.evaluator_env_num=2",
    "env.n_evaluator_episode=2",
    "policy.random_collect_size=20",
    "policy.other.replay_buffer.replay_buffer_size=10000",
]
OWN = {
    "trainer": "tests.chains.test_seed_chain:OwnTrainer",
    "actor": "tests.chains.seed_classes:OwnActor",
    "actor_thread": "tests.chains.seed_classes:OwnThread",
    "inference_client": "tests.chains.seed_classes:OwnClient",
    "inference_proxy": "tests.chains.seed_classes:OwnProxy",
    "inference_server": "tests.chains.test_seed_chain:OwnServer",
    "broadcaster": "tests.chains.test_seed_chain:OwnBroadcaster",
}
LOOPS = ("pipeline/training_loop.py:_loop", "comm/zmq/rows.py:_run")
MOMENTS = ("comm/zmq/sockets.py:receive_from", "comm/zmq/rows.py:take")

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")


class OwnServer(InferenceServer):
    def evaluate(self, requests: Sequence[Any]) -> Sequence[Any]:
        count("InferenceServer.evaluate")
        return super().evaluate(requests)


class OwnTrainer(Trainer):
    def start(self, duration: float = float("inf")) -> TrainingResult:
        count("Trainer.start")
        return super().start(duration)


class OwnBroadcaster(Broadcaster):
    def publish(self, weights: Any) -> bool:
        count("Broadcaster.publish")
        return super().publish(weights)


def ding(*arguments: str) -> int:
    try:
        cli.main(["-m", "seed", "-c", str(CONFIG), *arguments, *QUICK])
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_the_chain_of_the_document_runs_and_each_class_may_be_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    step = SeedRunner.step

    def counted(self: SeedRunner) -> None:
        count("SeedRunner.step")
        step(self)

    monkeypatch.setattr(SeedRunner, "step", counted)

    with record_hands(tmp_path, loops=LOOPS, moments=MOMENTS):
        own = (f"system.seed.{key}.type={name}" for key, name in OWN.items())
        status = ding("--env-step", "600", "--exp-name", "exp", "system.seed.comm=sync", *own)

    found = counts(tmp_path)
    assert status == 0 and found["Trainer.start"] == 1 and found["InferenceProxy.start"] == 1
    assert found["Actor.serve"] == found["ActorThread.run"] == found["no-torch"] == 2, found
    for call in ("SeedRunner.step", "Broadcaster.publish", "InferenceServer.evaluate"):
        assert found[call] > 1, call
    assert found["InferenceClient.evaluate_model"] >= found["InferenceServer.evaluate"]
    hands = hands_of(tmp_path)
    assert {"comm/zmq/rows.py", "pipeline/seed/actor.py", "policy/rows.py"} <= set(hands)
    assert len(hands) <= 17, hands


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("tests.chains.seed_classes:NoActor", "derive it from ding_like.pipeline.seed.actor.Actor"),
        ("tests.chains.seed_classes:Nothing", "system.seed.actor.type"),
    ],
)
def test_a_class_that_is_none_is_one_clear_error(named: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ding(f"system.seed.actor.type={named}") == 1

    assert words in capsys.readouterr().err
