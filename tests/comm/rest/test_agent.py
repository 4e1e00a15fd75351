"""A worker survives replies that are repeated, refused as old or lost, and does not wait for a lost coordinator."""

from __future__ import annotations

from typing import Any

import pytest

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.messages import RefusedError
from ding_like.comm.rest.worker import TaskHandle, TaskLeftError, WorkerAgent
from ding_like.errors import CommError


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


def test_a_result_that_does_not_end_the_run_is_followed_by_another_attempt(fake: FakeCoordinator) -> None:
    work(fake)

    assert fake.asked == ["register", *["claim", "finish_task"] * 3, "leave"]


def test_a_task_that_was_taken_away_is_no_failure(fake: FakeCoordinator) -> None:
    codes = ["stale_attempt", "finished", "unknown", "version_not_newer"]
    fake.is_over_after = 5

    def do(task: m.Task, handle: TaskHandle) -> dict[str, Any]:
        if codes:
            raise RefusedError(codes.pop(), "it is over")
        return {}

    work(fake, do)

    assert "fail_task" not in fake.asked and fake.asked.count("claim") == 5


def test_a_worker_that_was_forgotten_registers_again(fake: FakeCoordinator) -> None:
    fake.refuse["claim"] = ["unknown"]

    work(fake)

    assert fake.asked[:4] == ["register", "claim", "register", "claim"]


def test_a_result_that_comes_too_late_is_no_failure(fake: FakeCoordinator) -> None:
    fake.refuse["finish_task"] = ["stale_attempt", "finished"]

    work(fake)

    assert fake.asked.count("finish_task") == 3 and "fail_task" not in fake.asked


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
