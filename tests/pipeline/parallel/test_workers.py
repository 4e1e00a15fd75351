"""DI-engine's worker classes, with a coordinator in this process: rows, weights and reports reach the other side."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.comm.channels import Version, Weights
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.agent import TaskHandle
from ding_like.comm.weights.encode import encode
from ding_like.comm.weights.files import write_weights
from ding_like.config import compile_config
from ding_like.data.segment_file import SegmentError
from ding_like.errors import CommError, ConfigError, RegistryError
from ding_like.pipeline.parallel.core.state import StateStore
from ding_like.pipeline.parallel.make_core import make_core
from ding_like.pipeline.parallel.service import LockedService
from ding_like.pipeline.parallel.settings import read_system
from ding_like.worker import (
    BaseLearner,
    FlaskFileSystemCollector,
    FlaskFileSystemLearner,
    NaiveCollector,
    create_comm_collector,
    create_comm_learner,
    create_parallel_commander,
)

MAIN = dict(
    exp_name="run",
    env=dict(env_id="CartPole-v1", collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2),
    policy=dict(
        random_collect_size=32,
        model=dict(encoder_hidden_size_list=[8]),
        learn=dict(batch_size=16, update_per_collect=1),
        collect=dict(n_sample=8),
        eval=dict(evaluator=dict(eval_freq=10_000)),
        other=dict(replay_buffer=dict(replay_buffer_size=200)),
    ),
)
CREATE = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="dqn"))


class Run:
    """Hold a coordinator's service and the config that its workers are made from."""

    def __init__(self, folder: Path, *, main: Any = MAIN, create: Any = CREATE, max_env_step: float = 400) -> None:
        folder.mkdir(exist_ok=True)
        main = compile_config({**main, "exp_name": str(folder / "run")}, create, seed=0)
        paths = {"path_data": str(folder / "data"), "path_policy": str(folder / "policy")}
        self.system = read_system({**paths, "segment_rows": 16}, main)
        store = StateStore(folder / "state.sqlite")
        self.core, self.commander = make_core(main, self.system, store=store, seed=0, max_env_step=max_env_step)
        self.service = LockedService(self.core)
        self.cfg = {"main": main, "seed": 0, "num_batches": 4, "publish_interval_s": 0.0, **paths}

    def collector(self) -> FlaskFileSystemCollector:
        return FlaskFileSystemCollector(self.cfg, coordinator=self.service)

    def learner(self) -> FlaskFileSystemLearner:
        return FlaskFileSystemLearner(self.cfg, coordinator=self.service)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path)
    yield made
    made.core.close()


@pytest.mark.timeout(60)
def test_a_collector_and_a_learner_train_until_the_limit(run: Run) -> None:
    collector, learner = run.collector(), run.learner()
    collector.start()
    learner.start()
    thread = threading.Thread(target=collector.run, daemon=True)
    thread.start()
    try:
        learner.run()
    finally:
        collector.stop()
        thread.join(20)
        collector.close()
        learner.close()

    assert not thread.is_alive() and run.core.failure is None
    assert 400 <= run.core.env_step < 400 + 2 * 16
    result = run.commander.learn_result
    assert result["train_iter"] == (run.core.env_step - 32) // 8, "one update for 8 env steps, after 32 at random"
    assert len(result["eval_value_raw"]) == 20
    assert run.core.workers == {}, "both have left"


def given_task(run: Run, collector: FlaskFileSystemCollector, kind: str, policy: m.PolicyVersion | None) -> TaskHandle:
    """Let a collector believe that it has a task; return what a heartbeat writes."""
    task = m.Task("t", 1, kind, "buffer", "policy", {}, 10.0, policy)
    handle = TaskHandle(task)
    collector._begin(task, handle)
    return handle


def publish(run: Run, version: int) -> m.PolicyVersion:
    written = write_weights(
        run.system.path_policy, encode(Weights("policy", Version(1, version), {"w": torch.full((2,), float(version))}))
    )
    return m.PolicyVersion(1, version, written.sha256, written.nbytes)


def test_a_collector_loads_the_newest_weights_it_has_heard_of(run: Run) -> None:
    collector = run.collector()
    collector.start()
    first, second, third = (publish(run, version) for version in (1, 2, 3))
    handle = given_task(run, collector, "collect", first)

    def update() -> Any:
        return collector.get_policy_update_info("policy")

    assert update().version == (1, 1)
    assert update() is None, "it has these"
    handle.note(third)  # as the answer to its data does
    handle.take(m.HeartbeatReply((), {"policy": second}, 0, 10.0))  # an older heartbeat
    newest = update()
    assert newest.version == (1, 3) and newest.state["w"].tolist() == [3.0, 3.0]
    collector.close()


def test_an_evaluation_is_of_the_weights_that_it_was_asked_for(run: Run) -> None:
    collector = run.collector()
    collector.start()
    first, second = publish(run, 1), publish(run, 2)
    handle = given_task(run, collector, "eval", first)
    handle.take(m.HeartbeatReply((), {"policy": second}, 0, 10.0))

    assert collector.get_policy_update_info("policy").version == (1, 1)
    collector.close()


def test_an_iteration_can_be_driven_by_hand(run: Run) -> None:
    """As DI-engine's coordinator does: demand, data, learn, info."""
    learner = run.learner()
    learner.start()
    task = run.service.claim(learner._link.agent.worker_id, m.Claim()).task
    assert task is not None
    learner.deal_with_learner_start(vars(task))
    learner.send_policy(learner.policy_state())
    learner._attempt._publisher.flush()
    fake = NaiveCollector(run.service, folder=run.system.path_data, rows=16, count=4)
    fake.register()
    thread = threading.Thread(target=fake.work, daemon=True)
    thread.start()

    demand = learner.deal_with_get_data()
    reply = run.service.sample(learner._link.agent.worker_id, "buffer", m.Sample(**demand, wait_s=5.0))
    while reply.batches is None:
        learner.deal_with_learner_learn(reply)
        demand = learner.deal_with_get_data()
        reply = run.service.sample(learner._link.agent.worker_id, "buffer", m.Sample(**demand, wait_s=5.0))
    info = learner.deal_with_learner_learn(reply)

    assert demand["batch_size"] == 16 and demand["task_id"] == task.task_id
    assert info["learner_step"] == 1
    fake.stop()
    thread.join(10)
    fake.close()
    learner.close()


def test_a_learner_without_a_task_says_so(run: Run) -> None:
    learner = run.learner()

    with pytest.raises(CommError, match="has no task"):
        learner.get_data(8)
    learner.close()
    learner.close()


def test_hooks_publish_and_report(run: Run) -> None:
    learner = run.learner()

    hooks = {(hook.name, hook.position) for hook in learner.hooks4call}

    assert ("send_policy_before_run", "before_run") in hooks and ("send_learn_info_after_iter", "after_iter") in hooks
    learner.close()


def test_load_data_fn_refuses_a_file_that_is_not_as_announced(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("ding_like.data.segment_file._READ_TIMEOUT_S", 0.01)
    (tmp_path / "a.safetensors").write_bytes(b"nonsense")

    with pytest.raises(SegmentError):
        FlaskFileSystemLearner.load_data_fn(
            str(tmp_path / "a.safetensors"), {"rows": 1, "sha256": "0" * 64, "nbytes": 8}, None
        )


def test_comm_parts_are_built_by_name(run: Run) -> None:
    cfg = {**run.cfg, "coordinator": "http://127.0.0.1:9", "key_file": None}

    collector, learner = create_comm_collector({**cfg, "type": "flask_fs"}), create_comm_learner(cfg)

    assert isinstance(collector, FlaskFileSystemCollector) and isinstance(learner, FlaskFileSystemLearner)
    assert collector.deal_with_resource()["cpu"] >= 1
    for create in (create_comm_collector, create_comm_learner, create_parallel_commander):
        with pytest.raises(RegistryError, match="carrier_pigeon"):
            create({**cfg, "type": "carrier_pigeon"})
    collector.close()
    learner.close()


def test_a_commander_is_built_from_its_config_alone() -> None:
    commander = create_parallel_commander({"type": "solo", "stop_value": 1.0})

    assert not commander.finished("eval", {"returns": [2.0], "version": 3})
    assert commander.stop


def test_a_learner_trains_on_what_get_data_returns_until_none(tmp_path: Path, run: Run) -> None:
    from tests.worker.learner.counting_policy import CountingPolicy

    policy = CountingPolicy()
    learner = BaseLearner({}, policy.learn_mode, exp_name=str(tmp_path))
    with pytest.raises(ConfigError, match="get_data"):
        learner.setup_dataloader()
    sizes: list[int] = []
    batches: list[Any] = [{"x": np.zeros(4, np.float32)} for _ in range(3)]

    def get_data(batch_size: int) -> Any:
        sizes.append(batch_size)
        return lambda: batches.pop() if batches else None

    learner.get_data = get_data
    learner.start()

    assert learner.learn_info["learner_done"] and not batches and sizes == [4]
    learner.close()


@pytest.mark.timeout(60)
def test_a_learner_that_comes_after_one_that_died_goes_on_from_its_last_save(run: Run) -> None:
    main = compile_config(
        {**MAIN, "exp_name": run.cfg["main"].exp_name, "resume": {"save_every_s": 0.0}},
        CREATE,
        renew_dir=False,
        seed=0,
    )
    run.cfg["main"] = main
    first = run.learner()
    first.start()
    fake = NaiveCollector(run.service, folder=run.system.path_data, rows=16, count=100)
    fake.register()
    thread = threading.Thread(target=fake.work, daemon=True)
    thread.start()
    task = run.service.claim(first._link.agent.worker_id, m.Claim()).task
    assert task is not None
    first.deal_with_learner_start(vars(task))
    first.send_policy(first.policy_state())
    batches = first.get_data(16)
    for _ in range(5):
        batch = batches()
        assert batch is not None
        first._training.learner.train(batch)
    assert batches() is not None  # saves what the fifth update made
    saved = {name: value.clone() for name, value in first.policy_state()["model"].items()}
    first._attempt._publisher.flush()
    run.service.leave(first._link.agent.worker_id, m.Leave("killed"))

    second = run.learner()
    second.start()
    again = run.service.claim(second._link.agent.worker_id, m.Claim()).task
    assert again is not None and again.attempt == 2
    second.deal_with_learner_start(vars(again))

    assert second._training.learner.train_iter == 5
    assert all((value == saved[name]).all() for name, value in second.policy_state()["model"].items())
    second.send_policy(second.policy_state())
    second._attempt._publisher.flush()
    assert run.core.policies["policy"].attempt == 2
    fake.stop()
    thread.join(10)
    fake.close()
    second.close()
    first.close()
