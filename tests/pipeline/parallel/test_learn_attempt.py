"""A learner's attempts at its task: each publishes and fetches for itself, and goes on from what was learned before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.comm.flat_state import flatten_state, unflatten_state
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.refusal import RefusedError
from ding_like.comm.weights.files import read_weights
from ding_like.config import compile_config
from ding_like.data.rollout import Rollout
from ding_like.data.segment_file import SegmentError, SegmentMeta, read_segment, write_segment
from ding_like.types import Array
from ding_like.utils.checkpoint import save_state
from ding_like.worker import NaiveCollector
from tests.pipeline.parallel.test_workers import CREATE, MAIN, Run


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path, max_env_step=100_000)
    yield made
    made.core.close()


class ByHand:
    """Drive a learner batch by batch; a collector with made-up rows feeds it."""

    def __init__(self, run: Run, *, is_fed: bool = True) -> None:
        self.run = run
        self.next_batch: Any = None
        self.learner: Any = run.learner()
        self.learner.start()
        self.worker_id = self.learner._link.agent.worker_id
        self.fake = NaiveCollector(run.service, folder=run.system.path_data, rows=16, count=10_000)
        self.fake.register()
        self.thread = threading.Thread(target=self.fake.work, daemon=True)
        self.task = self.claim()
        self.learner.deal_with_learner_start(vars(self.task))
        self.publish()
        if is_fed:
            self.thread.start()

    def claim(self) -> m.Task:
        task = self.run.service.claim(self.worker_id, m.Claim()).task
        assert task is not None and task.kind == "learn"
        return task

    def publish(self) -> None:
        self.learner.send_policy(self.learner.policy_state())
        self.learner._attempt._publisher.flush()

    def train(self, updates: int) -> None:
        self.next_batch = self.next_batch or self.learner.get_data(16)
        for _ in range(updates):
            self.learner._training.learner.train(self.next_batch())

    def take_task_back(self) -> m.Task:
        """Have the lease run out, and the task claimed again."""
        with self.run.service.locked():
            self.run.core.tasks.release(self.run.core.tasks.tasks[self.task.task_id])
        self.task, self.next_batch = self.claim(), None
        return self.task

    def state(self) -> dict[str, Any]:
        training = self.learner._training
        both = {"collect": self.learner.policy_state(), "learn": training.learner.policy.state_dict()}
        return {name: tensor.clone() for name, tensor in _tensors(both).items()}

    def close(self) -> None:
        self.fake.stop()
        if self.thread.is_alive():
            self.thread.join(10)
        self.fake.close()
        self.learner.close()


def _tensors(state: Any, name: str = "") -> dict[str, torch.Tensor]:
    if isinstance(state, torch.Tensor):
        return {name: state}
    items = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, (list, tuple)) else ()
    return {key: tensor for part, value in items for key, tensor in _tensors(value, f"{name}/{part}").items()}


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(value, second[name]) for name, value in first.items())


@pytest.fixture
def by_hand(run: Run) -> Iterator[ByHand]:
    made = ByHand(run)
    yield made
    made.close()


def newest(run: Run) -> tuple[int, int]:
    policy = run.core.policies["policy"]
    return policy.attempt, policy.version


@pytest.mark.timeout(60)
def test_a_learner_whose_task_was_taken_away_publishes_again_and_trains_on(run: Run) -> None:
    """A learner that is paused for longer than its lease finds itself unknown."""
    learner, collector = run.learner(), run.collector()
    learner.start()
    collector.start()
    threads = [threading.Thread(target=each.run, daemon=True) for each in (learner, collector)]
    for thread in threads:
        thread.start()

    def wait_for(attempt: int, version: int) -> None:
        for _ in range(400):
            with run.service.locked():
                if "policy" in run.core.policies and newest(run) >= (attempt, version):
                    return
            run.service.wait(0.05)
        raise AssertionError(f"the newest weights are {newest(run)}")

    wait_for(1, 5)
    training: Any = learner._training
    with run.service.locked():
        before = training.learner.train_iter
        run.core._remove_worker(learner._link.agent.worker_id, "not heard of")
    wait_for(2, before + 5)

    assert learner._training is training, "policy and optimizer stayed in memory"
    hooks = [hook.name for hook in training.learner._hooks["after_iter"] if "send" in hook.name]
    assert hooks == ["send_learn_info_after_iter"]
    for each in (learner, collector):
        each.stop()
    for thread in threads:
        thread.join(20)
    learner.close()
    collector.close()
    assert not any(thread.is_alive() for thread in threads) and run.core.failure is None


def test_another_attempt_begins_with_the_weights_in_memory(by_hand: ByHand) -> None:
    by_hand.train(6)
    before = by_hand.state()

    task = by_hand.take_task_back()
    by_hand.learner.deal_with_learner_start(vars(task))
    by_hand.publish()

    assert same(before, by_hand.state()) and newest(by_hand.run) == (2, 6)
    published = by_hand.run.core.policies["policy"]
    folder = by_hand.run.system.path_policy
    state = unflatten_state(read_weights(folder, "policy", 2, 6, sha256=published.sha256))
    assert same(_tensors(state), _tensors(by_hand.learner.policy_state()))


def test_after_somebody_else_published_it_begins_with_the_newest_saved_point(by_hand: ByHand) -> None:
    learner = by_hand.learner
    by_hand.train(3)
    learner._training.save(print, 3)
    saved = by_hand.state()
    by_hand.train(2)
    first = learner._training
    own = by_hand.take_task_back()
    others = m.PolicyVersion(2, 40, "x", 1)

    learner.deal_with_learner_start(vars(replace(own, attempt=3, policy=others)))

    assert learner._training is not first
    assert learner._training.learner.train_iter == 3 and same(saved, by_hand.state())
    assert learner._training.learned_updates == 3


@pytest.mark.parametrize("code", ["stale_attempt", "finished", "unknown"])
def test_weights_that_are_refused_end_the_attempt_and_not_the_worker(
    run: Run, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner: Any = run.learner()
    learner.start()
    attempts: list[int] = []
    publish = run.service.publish

    def refuse_once(worker_id: str, policy_id: str, message: m.Publish) -> m.Ok:
        attempts.append(message.attempt)
        if len(attempts) == 1:
            with run.service.locked():
                run.core.tasks.release(run.core.tasks.tasks[message.task_id])
            raise RefusedError(code, "it is over")
        learner.stop()
        return publish(worker_id, policy_id, message)

    monkeypatch.setattr(run.service, "publish", refuse_once)
    learner.run()
    learner.close()

    assert attempts == [1, 2] and newest(run) == (2, 0)


def test_a_version_that_was_published_before_is_no_reason_to_end(by_hand: ByHand) -> None:
    by_hand.train(2)
    by_hand.publish()
    attempt = by_hand.learner._attempt

    attempt._role._published = -1  # as if the answer had been lost
    attempt._publisher._last = None
    by_hand.publish()
    by_hand.train(1)
    by_hand.publish()

    assert newest(by_hand.run) == (1, 3)


def test_a_run_that_is_not_confirmed_goes_on_as_if_nothing_had_been(by_hand: ByHand) -> None:
    run, learner = by_hand.run, by_hand.learner
    by_hand.train(2)
    by_hand.publish()
    early = by_hand.state()
    run.commander.final_policy = asdict(run.core.policies["policy"])
    by_hand.train(5)
    before = by_hand.state()

    learner._attempt.take_final_weights()
    judged = by_hand.state()
    iteration = learner._training.learner.train_iter
    run.commander.final_policy = None
    learner.deal_with_learner_start(vars(by_hand.take_task_back()))

    assert iteration == 2
    assert all(torch.equal(judged[name], early[name]) for name in judged if name.startswith("/collect"))
    assert same(before, by_hand.state()) and learner._training.learner.train_iter == 7


@pytest.mark.timeout(60)
def test_a_limit_ends_a_run_with_the_weights_trained_last(tmp_path: Path) -> None:
    run = Run(tmp_path, max_env_step=400)
    run.cfg["publish_interval_s"] = 1000.0
    learner, collector = run.learner(), run.collector()
    learner.start()
    collector.start()
    thread = threading.Thread(target=collector.run, daemon=True)
    thread.start()
    try:
        learner.run()
    finally:
        collector.stop()
        thread.join(20)
        collector.close()
        learner.close()

    result = run.commander.learn_result
    assert result["last_iter"] == result["train_iter"] > 40
    run.core.close()


def test_a_checkpoint_that_the_run_was_begun_with_is_not_loaded_again(tmp_path: Path) -> None:
    run = Run(tmp_path, max_env_step=100_000)
    learner: Any = run.learner()
    learner.start()
    task = run.service.claim(learner._link.agent.worker_id, m.Claim()).task
    assert task is not None
    learner.deal_with_learner_start(vars(task))
    path = tmp_path / "first.pth.tar"
    save_state(path, learner._training.learner.policy.state_dict())
    learner.close()
    policy: Any = {
        **MAIN["policy"],
        "learn": {"batch_size": 16, "learner": {"hook": {"load_ckpt_before_run": str(path)}}},
    }
    main = {**MAIN, "policy": policy, "exp_name": str(tmp_path / "other")}
    run.cfg["main"] = compile_config(main, CREATE, seed=0)
    by_hand = ByHand(run)
    trained = by_hand.learner._training.learner
    trained.call_hook("before_run")
    by_hand.train(4)
    before = by_hand.state()

    by_hand.learner.deal_with_learner_start(vars(by_hand.take_task_back()))
    trained.call_hook("before_run")

    assert same(before, by_hand.state())
    by_hand.close()
    run.core.close()


def test_an_audit_can_read_how_many_batches_came_and_were_learned_from(by_hand: ByHand) -> None:
    by_hand.train(5)
    by_hand.take_task_back()
    by_hand.learner.deal_with_learner_start(vars(by_hand.task))
    by_hand.train(4)
    by_hand.learner._attempt.close(is_done=True)

    stats = by_hand.run.core.workers.get(by_hand.worker_id).stats  # type: ignore[union-attr]
    assert stats["learned_updates"] == 9 and stats["received_updates"] == by_hand.run.core.granted_updates >= 9


# --- what rows must look like


def honest(rows: int = 16) -> dict[str, Any]:
    fake = NaiveCollector.__new__(NaiveCollector)
    fake._rng, fake._rows = np.random.default_rng(0), rows
    return dict(fake._get_timestep())


def without(name: str) -> dict[str, Any]:
    return {key: column for key, column in honest().items() if key != name}


ODD: dict[str, dict[str, Any]] = {
    "renamed": {**without("reward"), "rewards": np.ones(16, np.float32)},
    "obs renamed": {**without("obs"), "observation": honest()["obs"]},
    "extra": {**honest(), "more": np.zeros(16)},
    "extra of nested name": {**honest(), "obs/arm": np.zeros((16, 4), np.float32)},
    "missing": without("terminated"),
    "one only": {"obs": honest()["obs"]},
    "obs of doubles": {**honest(), "obs": honest()["obs"].astype(np.float64)},
    "reward of doubles": {**honest(), "reward": np.ones(16)},
    "reward of halves": {**honest(), "reward": np.ones(16, np.float16)},
    "bool as number": {**honest(), "terminated": np.zeros(16, np.uint8)},
    "action of 32 bits": {**honest(), "action": honest()["action"].astype(np.int32)},
    "reward a column": {**honest(), "reward": np.ones((16, 1), np.float32)},
    "obs flat": {**honest(), "obs": np.zeros(16, np.float32)},
    "wide": {**honest(), "step": np.zeros((16, 500), np.int64)},
}


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return what a learner reads a first segment with."""
    folder = tmp_path_factory.mktemp("rows")
    run = Run(folder)
    learner: Any = run.learner()
    learner.start()
    task = run.service.claim(learner._link.agent.worker_id, m.Claim()).task
    assert task is not None
    learner.deal_with_learner_start(vars(task))
    names = iter(range(1000))

    def read_columns(columns: dict[str, Array]) -> dict[str, Array]:
        written = write_segment(run.system.path_data, f"w.{next(names)}", columns, SegmentMeta("t", 1, "w", 0, 0, 16))
        told = m.NewSegment(1, written.name, written.rows, 0, written.sha256, written.nbytes)
        found: dict[str, Array] = learner._attempt.read(told)
        return found

    yield read_columns
    learner.close()
    run.core.close()


@pytest.mark.parametrize("kind", ODD)
def test_an_odd_first_segment_is_refused_and_honest_ones_are_not(kind: str, read: Any) -> None:
    with pytest.raises(SegmentError) as caught:
        read(ODD[kind])

    assert caught.value.code == "schema"
    assert read(honest()).keys() == honest().keys()


def test_the_envs_that_judge_are_left_as_they_were_for_the_generators(tmp_path: Path) -> None:
    """Making the schema draws from no generator that training uses."""
    weights = []
    for made in (0, 1):
        run = Run(tmp_path / str(made))
        learner: Any = run.learner()
        learner.start()
        task = run.service.claim(learner._link.agent.worker_id, m.Claim()).task
        assert task is not None
        learner.deal_with_learner_start(vars(task))
        weights.append((_tensors(learner.policy_state()), torch.rand(1).item(), np.random.random()))
        learner.close()
        run.core.close()

    assert same(weights[0][0], weights[1][0]) and weights[0][1:] == weights[1][1:]


# --- weights are the collect mode's whole state

PPO = dict(
    exp_name="run",
    env=dict(env_id="CartPole-v1", collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2),
    policy=dict(
        model=dict(encoder_hidden_size_list=[8]),
        learn=dict(batch_size=16, epoch_per_collect=2, value_norm=True),
        collect=dict(n_sample=32),
        eval=dict(evaluator=dict(eval_freq=10_000)),
    ),
)


@pytest.mark.timeout(60)
def test_a_collectors_advantages_are_those_of_the_learner_with_value_norm(tmp_path: Path) -> None:
    run = Run(tmp_path, main=PPO, create={**CREATE, "policy": dict(type="ppo")}, max_env_step=32 * 6)
    learner, collector = run.learner(), run.collector()
    learner.start()
    collector.start()
    thread = threading.Thread(target=collector.run, daemon=True)
    thread.start()
    try:
        learner.run()
        version = run.core.policies["policy"]
        state = unflatten_state(collector._reader.read("policy", version).state)
        collector._collector.policy.collect_mode.load_state_dict(state)  # type: ignore[union-attr]
    finally:
        collector.stop()
        thread.join(20)
    own, theirs = learner._training.policy, collector._collector.policy  # type: ignore[union-attr]

    columns = _some_rows(own)
    first, _ = own.segment(_as_rollout(columns))
    second, _ = theirs.segment(_as_rollout(columns))

    assert own._returns.std != 1.0 and theirs._returns.state_dict() == own._returns.state_dict()
    assert np.array_equal(first["advantage"], second["advantage"])
    assert first["advantage"].any()
    learner.close()
    collector.close()
    run.core.close()


def _some_rows(policy: Any) -> dict[str, Any]:
    rng, size = np.random.default_rng(0), 12
    obs, lanes = rng.standard_normal((size, 4)).astype(np.float32), np.arange(2)
    acted = [
        policy.collect_mode.actor.act(obs[2 * t : 2 * t + 2], lanes=lanes, is_first=np.zeros(2, bool), rng=rng)
        for t in range(size // 2)
    ]
    columns = {name: np.concatenate([each[name] for each in acted]) for name in acted[0]}
    own = {name: np.tile(lanes, size // 2) for name in ("lane", "env_id", "episode_id")}
    own.update(step=np.repeat(np.arange(size // 2), 2), policy_version=np.zeros(size, np.int64))
    flags = {"terminated": np.zeros(size, bool), "truncated": np.zeros(size, bool)}
    return {
        "obs": obs, **columns, **own, "next_obs": rng.standard_normal((size, 4)).astype(np.float32),
        "reward": rng.standard_normal(size).astype(np.float32), **flags,
    }  # fmt: skip


def _as_rollout(columns: dict[str, Any]) -> Rollout:
    rollout = Rollout(2)
    for start in range(0, len(columns["lane"]), 2):
        rollout.append({name: column[start : start + 2] for name, column in columns.items()}, is_full_step=True)
    return rollout


def test_a_segment_says_whose_weights_acted(run: Run) -> None:
    collector: Any = run.collector()
    collector.start()
    sent: list[m.SegmentInfo] = []
    by_hand = ByHand(run, is_fed=False)
    by_hand.learner.deal_with_learner_start(vars(by_hand.take_task_back()))
    by_hand.publish()
    send_data = run.service.send_data

    def send(worker_id: str, task_id: str, message: m.SendData) -> m.SendDataReply:
        if worker_id == collector.collector_uid:
            sent.extend(message.segments)
            collector.stop()
        return send_data(worker_id, task_id, message)

    run.service.send_data = send  # type: ignore[method-assign]
    collector.run()

    assert sent and {(each.policy_attempt, each.policy_version) for each in sent} == {(2, 0)}
    told = sent[0]
    _, meta = read_segment(run.system.path_data, told.name, rows=told.rows, sha256=told.sha256, nbytes=told.nbytes)
    assert (meta.policy_attempt, meta.policy_version) == (2, 0)
    collector.close()
    by_hand.close()


def test_an_on_policy_collector_drops_what_a_task_taken_away_left(tmp_path: Path) -> None:
    run = Run(tmp_path, main=PPO, create={**CREATE, "policy": dict(type="ppo")})
    collector: Any = run.collector()
    collector.start()
    info = m.SegmentInfo("w.1", 1, "x", 1, "s", 0, 1)
    write_segment(run.system.path_data, "w.1", {"a": np.zeros(1)}, SegmentMeta("t", 1, "w", 1, 0, 1))
    collector._sink._waiting.append(info)

    collector._sink.drop_waiting()

    assert collector.deal_with_collector_data() == [] and list(run.system.path_data.glob("*.safetensors")) == []
    collector.close()
    run.core.close()


def test_a_states_numbers_reach_the_collector(tmp_path: Path) -> None:
    state = {"model": {"w": torch.ones(2)}, "returns": {"count": 4, "mean": 0.25, "square_sum": 2.0}}

    assert unflatten_state(flatten_state(state))["returns"] == state["returns"]
