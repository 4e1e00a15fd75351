"""A learner's attempts at its task: each publishes and fetches for itself, and goes on from what was learned before."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.client import read_weights
from ding_like.comm.rest.messages import RefusedError
from ding_like.comm.tensors import unflatten_state
from ding_like.config import compile_config
from ding_like.data.segment_file import SegmentError, SegmentMeta, read_segment, write_segment
from ding_like.errors import CommError
from ding_like.utils.checkpoint import save_state
from ding_like.worker import NaiveCollector
from tests.pipeline.parallel.runs import Run, small_dqn, working
from tests.support import wait_until

MakeRun = Callable[..., Run]


class ByHand:
    """Learner of a run that is driven batch by batch; a collector with made-up rows feeds it."""

    def __init__(self, run: Run, *, is_fed: bool = True) -> None:
        self.run = run
        self.next_batch: Any = None
        self.learner: Any = run.new_learner()
        self.learner.start()
        self.worker_id = next(each for each in run.core.workers if each.startswith("learner"))
        self.fake = NaiveCollector(run.service, folder=run.system.path_data, rows=16, count=10_000)
        self.fake.register()
        self.thread = threading.Thread(target=self.fake.work, daemon=True)
        run.parts.callback(self.close)
        self.begin()
        self.publish()
        if is_fed:
            self.thread.start()

    def claim(self) -> m.Task:
        task = self.run.service.claim(self.worker_id, m.Claim()).task
        assert task is not None and task.kind == "learn"
        return task

    def begin(self, task: m.Task | None = None) -> None:
        self.task, self.next_batch = task or self.claim(), None
        self.learner.deal_with_learner_start(vars(self.task))

    @property
    def train_iter(self) -> int:
        return int(self.learner.learner.train_iter)

    def publish(self) -> None:
        self.learner.send_policy(self.learner.policy_state())
        wait_until(lambda: newest(self.run) == (self.task.attempt, self.train_iter), "the weights")

    def train(self, updates: int) -> None:
        self.next_batch = self.next_batch or self.learner.get_data(16)
        for _ in range(updates):
            self.learner.learner.train(self.next_batch())

    def take_task_back(self) -> m.Task:
        """Have the lease run out, and the task claimed again."""
        with self.run.service.locked():
            self.run.core.tasks.release(self.run.core.tasks[self.task.task_id])
        return self.claim()

    def state(self) -> dict[str, Any]:
        both = {"collect": self.learner.policy_state(), "learn": self.learner.learner.policy.state_dict()}
        return {name: tensor.clone() for name, tensor in _tensors(both).items()}

    def close(self) -> None:
        self.fake.stop()
        if self.thread.is_alive():
            self.thread.join(60)
        self.fake.close()


def _tensors(state: Any, name: str = "") -> dict[str, torch.Tensor]:
    if isinstance(state, torch.Tensor):
        return {name: state}
    items = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, (list, tuple)) else ()
    return {key: tensor for part, value in items for key, tensor in _tensors(value, f"{name}/{part}").items()}


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(value, second[name]) for name, value in first.items())


@pytest.fixture
def by_hand(run: Run) -> ByHand:
    return ByHand(run)


def test_an_iteration_can_be_driven_by_the_callbacks(by_hand: ByHand) -> None:
    demand = by_hand.learner.deal_with_get_data()
    info = by_hand.learner.deal_with_learner_learn(by_hand.learner.get_data(demand["batch_size"])())

    assert demand["batch_size"] == 16 and demand["task_id"] == by_hand.task.task_id
    assert info["learner_step"] == 1


def newest(run: Run) -> tuple[int, int]:
    policy = run.core.policies.get("policy")
    return (0, -1) if policy is None else (policy.attempt, policy.version)


def test_a_learner_whose_task_was_taken_away_publishes_again_and_trains_on(run: Run) -> None:
    """A learner that is paused for longer than its lease finds itself unknown."""
    learner: Any = run.new_learner()
    with working([learner, run.new_collector()]):
        wait_until(lambda: newest(run) >= (1, 5), "weights of the first attempt")
        policy = learner.policy
        with run.service.locked():
            before = newest(run)[1]
            run.core.leave(next(each for each in run.core.workers if each.startswith("learner")), m.Leave("silent"))
        wait_until(lambda: newest(run) >= (2, before + 5), "weights of the second attempt")

        assert learner.policy is policy, "policy and optimizer stayed in memory"
    assert run.core.failure is None


def test_another_attempt_begins_with_the_weights_in_memory(by_hand: ByHand) -> None:
    by_hand.train(6)
    before = by_hand.state()

    by_hand.begin(by_hand.take_task_back())
    by_hand.publish()

    assert same(before, by_hand.state()) and newest(by_hand.run) == (2, 6)
    published = by_hand.run.core.policies["policy"]
    state = unflatten_state(read_weights(by_hand.run.system.path_policy, "policy", 2, 6, sha256=published.sha256))
    assert same(_tensors(state), _tensors(by_hand.learner.policy_state()))


def test_after_somebody_else_published_it_begins_with_the_newest_saved_point(by_hand: ByHand) -> None:
    by_hand.train(3)
    by_hand.learner.save()
    saved = by_hand.state()
    by_hand.train(2)
    others = m.PolicyVersion(2, 40, "x", 1)

    by_hand.begin(replace(by_hand.take_task_back(), attempt=3, policy=others))

    assert by_hand.train_iter == 3 and same(saved, by_hand.state())


def test_a_learner_that_comes_after_one_that_died_goes_on_from_its_last_save(make_run: MakeRun) -> None:
    main, create = small_dqn()
    run = make_run(config=({**main, "resume": {"save_every_s": 0.0}}, create))
    first = ByHand(run)
    first.train(5)
    assert first.next_batch() is not None  # saves what the fifth update made
    saved = first.state()
    run.service.leave(first.worker_id, m.Leave("killed"))

    second = ByHand(run, is_fed=False)

    assert second.task.attempt == 2 and second.train_iter == 5 and same(saved, second.state())


def test_weights_that_are_refused_end_the_attempt_and_not_the_worker(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = run.new_learner()
    learner.start()
    attempts: list[int] = []
    publish = run.service.publish

    def refuse_once(worker_id: str, policy_id: str, message: m.Publish) -> m.Ok:
        attempts.append(message.attempt)
        if len(attempts) == 1:
            with run.service.locked():
                run.core.tasks.release(run.core.tasks[message.task_id])
            raise RefusedError("stale_attempt", "it is over")
        learner.stop()
        return publish(worker_id, policy_id, message)

    monkeypatch.setattr(run.service, "publish", refuse_once)
    learner.run()

    assert attempts == [1, 2] and newest(run) == (2, 0)


def test_a_run_that_is_not_confirmed_goes_on_as_if_nothing_had_been(by_hand: ByHand) -> None:
    run, learner = by_hand.run, by_hand.learner
    by_hand.train(2)
    by_hand.publish()
    early = by_hand.state()
    run.commander.final_policy = asdict(run.core.policies["policy"])
    by_hand.train(5)
    before = by_hand.state()

    learner._take_final_weights()
    judged = by_hand.state()
    assert by_hand.train_iter == 2
    run.commander.final_policy = None
    by_hand.begin(by_hand.take_task_back())

    assert all(torch.equal(judged[name], early[name]) for name in judged if name.startswith("/collect"))
    assert same(before, by_hand.state()) and by_hand.train_iter == 7


def test_a_checkpoint_that_the_run_was_begun_with_is_not_loaded_again(run: Run, tmp_path: Path) -> None:
    first = ByHand(run, is_fed=False)
    path = tmp_path / "first.pth.tar"
    save_state(path, first.learner.learner.policy.state_dict())
    run.service.leave(first.worker_id, m.Leave("over"))
    main, create = small_dqn()
    main["policy"]["learn"]["learner"] = {"hook": {"load_ckpt_before_run": str(path)}}
    run.cfg["main"] = compile_config({**main, "exp_name": str(tmp_path / "other")}, create, seed=0)
    by_hand = ByHand(run)
    by_hand.learner.learner.call_hook("before_run")
    by_hand.train(4)
    before = by_hand.state()

    by_hand.begin(by_hand.take_task_back())
    by_hand.learner.learner.call_hook("before_run")

    assert same(before, by_hand.state())


def test_an_audit_can_read_how_many_batches_came_and_were_learned_from(by_hand: ByHand) -> None:
    by_hand.train(5)
    by_hand.begin(by_hand.take_task_back())
    by_hand.train(4)
    by_hand.learner._end_attempt(is_done=True)

    stats = by_hand.run.core.workers.get(by_hand.worker_id).stats  # type: ignore[union-attr]
    assert stats["learned_updates"] == 9 and stats["received_updates"] == by_hand.run.core.book.granted_updates >= 9


def test_a_learner_gives_up_where_no_collector_sends_data(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("_LOOK_S", 0.01), ("_NO_DATA_S", 0.05)):
        monkeypatch.setattr(f"ding_like.pipeline.parallel.comm_learner.{name}", seconds)
    by_hand = ByHand(run, is_fed=False)

    with pytest.raises(CommError, match="no batch has come"):
        by_hand.train(1)


def honest(rows: int = 16) -> dict[str, Any]:
    return dict(NaiveCollector(None, folder="", rows=rows)._get_timestep())  # type: ignore[arg-type]


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
    **{f"reward of {kind}": {**honest(), "reward": np.ones(16, kind)} for kind in ("float64", "float16")},
    "bool as number": {**honest(), "terminated": np.zeros(16, np.uint8)},
    "action of 32 bits": {**honest(), "action": honest()["action"].astype(np.int32)},
    "reward a column": {**honest(), "reward": np.ones((16, 1), np.float32)},
    "obs flat": {**honest(), "obs": np.zeros(16, np.float32)},
    "wide": {**honest(), "step": np.zeros((16, 500), np.int64)},
}


def test_an_odd_first_segment_is_refused_and_honest_ones_are_not(by_hand: ByHand) -> None:
    run, learner = by_hand.run, by_hand.learner

    def read(name: str, columns: dict[str, Any]) -> dict[str, Any]:
        written = write_segment(run.system.path_data, f"w.{name}", columns, SegmentMeta("t", 1, "w", 0, 0, 16))
        told = m.NewSegment(1, written.name, written.rows, 0, written.sha256, written.nbytes)
        return dict(learner.read_segment(told))

    for number, (kind, columns) in enumerate(ODD.items()):
        with pytest.raises(SegmentError) as caught:
            read(str(number), columns)
            pytest.fail(f"{kind} is taken")
        assert caught.value.code == "schema", kind
    assert read("honest", honest()).keys() == honest().keys()


def test_the_envs_that_judge_are_left_as_they_were_for_the_generators(make_run: MakeRun) -> None:
    """Making the schema draws from no generator that training uses."""
    found = []
    for folder in ("first", "second"):
        by_hand = ByHand(make_run(folder), is_fed=False)
        found.append((_tensors(by_hand.learner.policy_state()), torch.rand(1).item(), np.random.random()))

    assert same(found[0][0], found[1][0]) and found[0][1:] == found[1][1:]


def test_a_segment_says_whose_weights_acted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    by_hand = ByHand(run, is_fed=False)
    by_hand.begin(by_hand.take_task_back())
    by_hand.publish()
    collector = run.new_collector()
    sent: list[m.SegmentInfo] = []
    send_data = run.service.send_data

    def send(worker_id: str, task_id: str, message: m.SendData) -> m.SendDataReply:
        sent.extend(message.segments)
        collector.stop()
        return send_data(worker_id, task_id, message)

    monkeypatch.setattr(run.service, "send_data", send)
    collector.start()
    collector.run()

    assert sent and {(each.policy_attempt, each.policy_version) for each in sent} == {(2, 0)}
    told = sent[0]
    _, meta = read_segment(run.system.path_data, told.name, rows=told.rows, sha256=told.sha256, nbytes=told.nbytes)
    assert (meta.policy_attempt, meta.policy_version) == (2, 0)
