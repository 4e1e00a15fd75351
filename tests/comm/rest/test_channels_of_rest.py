"""What the channels over HTTP and files promise beyond the contract: nothing is lost where answers or files are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.comm.channels import Segment, Version, Weights
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.client import WeightsGoneError
from ding_like.comm.rest.messages import RefusedError
from ding_like.comm.rest.rows import RestRowSink
from ding_like.comm.rest.worker import (
    RestWeightPublisher,
    RestWeightReader,
    TaskHandle,
    TaskLeftError,
    WorkerAgent,
    WorkerLink,
)
from ding_like.data.batch import TransitionBatch
from ding_like.errors import CommError, ConfigError
from tests.contracts.rest_transport import Net


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Net]:
    with ExitStack() as stack:
        yield Net(stack, tmp_path, "replay", over_http=False)


@pytest.fixture
def sink(net: Net) -> RestRowSink:
    return RestRowSink(net.collector)


@pytest.fixture
def publisher(net: Net) -> Iterator[RestWeightPublisher]:
    made = RestWeightPublisher(net.learner, net.learn)
    yield made
    made.abandon(timeout_s=60.0)


@pytest.fixture
def reader(net: Net) -> RestWeightReader:
    return RestWeightReader(net.collector)


def segment() -> Segment:
    return Segment(TransitionBatch({"row": np.arange(8)}), Version(1, 0), 8)


def weights(update: int) -> Weights:
    return Weights("policy", Version(1, update), {"w": torch.full((2,), float(update))})


def refuse(*arguments: object) -> Any:
    raise RefusedError("stale_attempt", "another has the task")


def files_of(net: Net) -> list[str]:
    return sorted(path.name.removesuffix(".safetensors") for path in net.collector.files.segments.glob("*.safetensors"))


def test_a_segment_that_could_not_be_announced_goes_out_with_the_next(
    net: Net, sink: RestRowSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[list[str]] = []
    send = net.service.send_data

    def fail_once(worker_id: str, task_id: str, message: m.SendData) -> m.SendDataReply:
        sent.append([each.name for each in message.segments])
        if len(sent) == 1:
            raise RefusedError("stale_attempt", "another has the task")
        return send(worker_id, task_id, message)

    monkeypatch.setattr(net.service, "send_data", fail_once)
    with pytest.raises(RefusedError):
        sink.put(segment())
    sink.put(segment())

    assert sent == [[files_of(net)[0]], files_of(net)] and sink.waiting == []


def test_what_is_dropped_leaves_no_file(net: Net, sink: RestRowSink, monkeypatch: pytest.MonkeyPatch) -> None:
    reply = m.SendDataReply((), (), (m.Rejected("w.1", "schema"),), 0, 0, None, False)
    monkeypatch.setattr(net.service, "send_data", lambda *arguments: reply)
    with pytest.raises(ConfigError, match="do not stack"):
        sink.put(Segment([{"obs": 1}], Version(1, 0), 1))
    assert files_of(net) == []
    with pytest.raises(CommError, match=r"refuses segment w\.1: schema"):
        sink.put(segment())
    monkeypatch.setattr(net.service, "send_data", refuse)
    with pytest.raises(RefusedError):
        sink.put(segment())
    assert len(sink.waiting) == 1

    sink.drop_waiting()

    assert sink.waiting == [] and len(files_of(net)) == 1


def test_a_wish_in_a_heartbeat_ends_the_next_order(net: Net, sink: RestRowSink, publisher: RestWeightPublisher) -> None:
    publisher.publish(weights(0), wait_s=60.0)
    assert sink.order(timeout_s=0.0).rows == 8

    net.handle.ask_to_finish()

    order = sink.order(timeout_s=0.0)
    assert order.finish and order.rows == 0


def test_a_sink_without_a_task_is_an_error(net: Net) -> None:
    link = WorkerLink("collector", {}, net.service, resources={})
    with closing(link), pytest.raises(CommError, match="has no task"):
        RestRowSink(link).order(timeout_s=0.0)


def test_weights_that_are_gone_are_asked_for_again(
    net: Net, publisher: RestWeightPublisher, reader: RestWeightReader
) -> None:
    publisher.publish(weights(1), wait_s=60.0)
    net.handle.in_answers = net.core.policies["policy"]
    publisher.publish(weights(2), wait_s=60.0)
    (net.collector.files.weights / "policy" / "1-1.safetensors").unlink()

    found = reader.newest("policy")

    assert found is not None and found.version == (1, 2)


def test_an_evaluation_is_of_the_weights_that_it_was_asked_for(net: Net, publisher: RestWeightPublisher) -> None:
    publisher.publish(weights(1), wait_s=60.0)
    task = m.Task("eval-1", 1, "eval", "buffer", "policy", {}, net.core.policies["policy"])
    publisher.publish(weights(2), wait_s=60.0)
    net.handle.in_answers = net.core.policies["policy"]
    net.collector.begin(task)
    reader = RestWeightReader(net.collector)

    found = reader.newest("policy")

    assert found is not None and found.version == (1, 1)
    (net.collector.files.weights / "policy" / "1-1.safetensors").unlink()
    with pytest.raises(WeightsGoneError):
        reader.newest("policy")


def test_an_older_heartbeat_does_not_take_weights_back(net: Net) -> None:
    first, second = (m.PolicyVersion(1, version, "x", 1) for version in (1, 2))
    net.handle.in_answers = second

    net.handle.take(m.HeartbeatReply((), {"policy": first}))

    assert net.handle.newest_policy == second


def test_a_refusal_of_weights_is_raised_by_the_next_call(
    net: Net, publisher: RestWeightPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CommError, match="tells all readers"):
        publisher.publish(weights(1), to=["collector-1"])
    monkeypatch.setattr(net.service, "publish", refuse)
    publisher.publish(weights(1))

    with pytest.raises(RefusedError, match="another has the task"):
        publisher.flush(timeout_s=60.0)


def test_a_worker_that_sees_the_folders_says_that_delta_has_no_effect(
    net: Net, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cfg = {"path_data": str(tmp_path), "path_policy": str(tmp_path), "weights": {"delta": True}}
    link = WorkerLink("collector", cfg, net.service, resources={})
    with closing(link), caplog.at_level("INFO"):
        link.start()

    assert "system.weights.delta has no effect" in caplog.text


class FakeCoordinator:
    """Coordinator that records what is asked and gives one learn task after another, of growing attempts."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.registered: list[m.Register] = []
        self.refuse: dict[str, list[str]] = {}  # by method: codes to refuse the next calls with
        self.attempt = 0
        self.is_over_after = 3

    def _ask(self, name: str) -> None:
        self.asked.append(name)
        if self.refuse.get(name):
            code = self.refuse[name].pop(0)
            raise RefusedError(code, f"refused: {code}") if code else CommError("it does not answer")

    def hello(self) -> m.Hello:
        return m.Hello((1,), 1, 0.0, "x", "run")

    def register(self, message: m.Register) -> m.Registered:
        self.registered.append(message)
        self._ask("register")
        return m.Registered(f"learner-{message.incarnation}", 60.0)

    def claim(self, worker_id: str, message: m.Claim) -> m.ClaimReply:
        self._ask("claim")
        self.attempt += 1
        return m.ClaimReply(m.Task("t", self.attempt, "learn", "b", "p", {}))

    def finish_task(self, worker_id: str, task_id: str, message: m.FinishTask) -> m.EndReply:
        self._ask("finish_task")
        return m.EndReply(self.attempt >= self.is_over_after)

    def fail_task(self, worker_id: str, task_id: str, message: m.FailTask) -> m.EndReply:
        self._ask("fail_task")
        return m.EndReply(False)

    def leave(self, worker_id: str, message: m.Leave) -> m.Ok:
        self._ask("leave")
        return m.Ok()


@pytest.fixture
def fake() -> FakeCoordinator:
    return FakeCoordinator()


def work(fake: Any, do: Any = None) -> WorkerAgent:
    agent = WorkerAgent(fake, "learner")
    agent.register()
    try:
        agent.run(do or (lambda task, handle: {}))
    finally:
        agent.close()
    return agent


ROUND = ["claim", "finish_task"]


@pytest.mark.parametrize(
    ("refused", "asked"),
    [
        pytest.param({}, [*ROUND * 3, "leave"], id="a result that does not end the run is followed by an attempt"),
        pytest.param({"claim": ["unknown"]}, ["claim", "register", *ROUND * 3, "leave"], id="it was forgotten"),
        pytest.param({"finish_task": ["stale_attempt", "finished"]}, [*ROUND * 3, "leave"], id="results too late"),
    ],
)
def test_an_agent_goes_on_until_the_run_is_over(fake: FakeCoordinator, refused: Any, asked: list[str]) -> None:
    fake.refuse = refused

    work(fake)

    assert fake.asked == ["register", *asked]


def test_a_task_that_was_taken_away_is_no_failure(fake: FakeCoordinator) -> None:
    codes = ["stale_attempt", "finished", "unknown", "version_not_newer"]
    fake.is_over_after = 5

    def do(task: m.Task, handle: TaskHandle) -> dict[str, Any]:
        if codes:
            raise RefusedError(codes.pop(), "it is over")
        return {}

    work(fake, do)

    assert "fail_task" not in fake.asked and fake.asked.count("claim") == 5


def test_a_result_that_is_refused_for_what_it_says_is_a_failure(fake: FakeCoordinator) -> None:
    fake.refuse["finish_task"] = ["schema"]

    with pytest.raises(RefusedError, match="refused: schema"):
        work(fake)

    assert fake.asked == ["register", "claim", "finish_task", "fail_task", "leave"]


def test_leaving_is_not_told_to_a_coordinator_that_does_not_answer(fake: FakeCoordinator) -> None:
    """Each of these words would wait for it again."""
    agent = WorkerAgent(fake, "learner")  # type: ignore[arg-type]
    agent.register()

    def do(task: m.Task, handle: TaskHandle) -> dict[str, Any]:
        agent.stop()
        raise CommError("the coordinator has not answered for 5 s")

    agent.run(do)
    agent.close()

    assert fake.asked == ["register", "claim"]


def test_leaving_in_the_middle_is_told(fake: FakeCoordinator) -> None:
    def do(task: m.Task, handle: TaskHandle) -> dict[str, Any]:
        raise TaskLeftError("asked to leave")

    work(fake, do)

    assert fake.asked == ["register", "claim", "leave"]
