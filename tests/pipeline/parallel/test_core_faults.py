"""What the core does when workers die, leave, or cannot read what they were told of."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.agent import TaskHandle, TaskLeftError, WorkerAgent
from ding_like.comm.rest.refusal import RefusedError
from ding_like.data.segment_file import set_aside
from ding_like.pipeline.parallel.service import LockedService
from tests.pipeline.parallel.service_parts import PACKAGE, announced, begin, claim, evaluated, join, make_core


def register(core: Any, role: str, number: int, pid: int) -> str:
    return str(core.register(m.Register(role, "host", pid, PACKAGE, f"start{number}")).worker_id)


def send(core: Any, worker: str, task: m.Task, number: int) -> m.SendDataReply:
    info = announced(worker, number)
    reply: m.SendDataReply = core.send_data(worker, task.task_id, m.SendData(task.attempt, (info,)))
    return reply


def sample(core: Any, learner: str, learn: m.Task, **changes: Any) -> m.SampleReply:
    own = dict(batch_size=4, num_batches=4, cur_learner_iter=0, have_segments_up_to=0)
    asked = m.Sample(learn.task_id, learn.attempt, **{**own, **changes})
    reply: m.SampleReply = core.sample(learner, learn.buffer_id, asked)
    return reply


def test_a_dead_process_gives_its_task_back_at_once(tmp_path: Path) -> None:
    core = make_core(tmp_path)
    learner, _, collector, task = begin(core)  # all of pid 1
    other = register(core, "collector", 5, pid=77)

    assert core.lost("host", 77, "killed") is False, "it had done nothing"
    assert other not in core.workers
    send(core, collector, task, 0)
    core.leave(learner, m.Leave("away"))
    assert core.lost("host", 1, "killed") is True
    replacement = join(core, "collector", 9)
    again = claim(core, replacement)
    assert (again.task_id, again.attempt) == (task.task_id, task.attempt + 1)
    with pytest.raises(RefusedError) as caught:
        core.task_info(replacement, task.task_id, m.TaskInfo(task.attempt, {}))
    assert caught.value.code == "stale_attempt"


def test_one_that_left_by_itself_is_remembered_to_have_worked(tmp_path: Path) -> None:
    core = make_core(tmp_path)
    _, _, collector, task = begin(core)
    send(core, collector, task, 0)
    core.leave(collector, m.Leave("it failed"))

    assert core.lost("host", 1, "ended") is True and core.lost("elsewhere", 1, "ended") is False


def test_what_a_dead_learner_had_not_saved_is_granted_again(tmp_path: Path) -> None:
    core = make_core(tmp_path)
    learner, learn, collector, task = begin(core)
    for number in range(4):  # 32 rows: 8 updates after the first 16
        send(core, collector, task, number)
    have = sample(core, learner, learn).new_segments[-1].serial
    while core.waiting_updates:
        sample(core, learner, learn, have_segments_up_to=have)
    assert core.granted_updates == 8
    core.lost("host", 1, "killed")

    second = join(core, "learner", 2)
    again = claim(core, second)
    reply = sample(core, second, again, cur_learner_iter=3, num_batches=256)

    assert again.attempt == learn.attempt + 1
    granted = 0 if reply.batches is None else reply.batches.num_batches
    assert core.granted_updates == 3 + granted and core.granted_updates + core.waiting_updates == 8


def test_a_first_learner_is_granted_nothing_twice(tmp_path: Path) -> None:
    core = make_core(tmp_path)
    learner, learn, collector, task = begin(core)
    for number in range(4):
        send(core, collector, task, number)
    for _ in range(5):
        sample(core, learner, learn)  # it asks as if it knew of no segment

    assert core.granted_updates + core.waiting_updates == 8


def test_segments_that_cannot_be_read_are_told_once_to_set_aside(tmp_path: Path) -> None:
    core = make_core(tmp_path)
    learner, learn, collector, task = begin(core)
    send(core, collector, task, 0)
    name = f"{collector}.00000000"
    for _ in range(2):
        core.update(learner, learn.buffer_id, m.Update(learn.task_id, learn.attempt, 0, {}, bad_segments=(name,)))

    assert core.take_spoiled() == [name] and core.take_spoiled() == []


def test_set_aside_moves_files_and_passes_over_those_that_are_gone(tmp_path: Path) -> None:
    (tmp_path / "w.1.safetensors").write_bytes(b"x")

    set_aside(tmp_path, ["w.1", "w.2"])

    assert [path.name for path in (tmp_path / "bad").iterdir()] == ["w.1.safetensors"]
    assert not (tmp_path / "w.1.safetensors").exists()


def test_a_failure_is_told_without_control_characters(tmp_path: Path) -> None:
    core = make_core(tmp_path, max_failures=1)
    _, _, collector, task = begin(core)

    core.fail_task(collector, task.task_id, m.FailTask(task.attempt, "E", "bad\x1b[31m\nroot: all is well\x00"))

    assert core.failure is not None and core.failure.isprintable() and "root: all is well" in core.failure


def test_few_wait_at_once_and_the_others_are_answered(tmp_path: Path) -> None:
    core = make_core(tmp_path)
    service = LockedService(core, max_waiting=2)
    workers = [join(core, "collector", number) for number in range(6)]
    for worker in workers:
        while (task := core.claim(worker, m.Claim()).task) is not None:  # until nothing is left to claim
            if task.kind == "eval":
                core.finish_task(worker, task.task_id, evaluated(task))
            else:
                break
    idle = [worker for worker in workers if not core.tasks.of_worker(worker)]
    idle += [join(core, "learner", 7)]
    core.claim(idle[-1], m.Claim())
    idle.append(join(core, "learner", 8))
    waited: list[float] = []

    def ask() -> None:
        started = time.monotonic()
        assert service.claim(idle[-1], m.Claim(wait_s=1.5)).task is None
        waited.append(time.monotonic() - started)

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert sorted(took > 1.0 for took in waited) == [False, False, False, True, True]


@pytest.mark.parametrize("wait_s", [-1.0, 61.0])
def test_nobody_waits_for_ever(tmp_path: Path, wait_s: float) -> None:
    core = make_core(tmp_path)
    worker = join(core, "collector")

    with pytest.raises(RefusedError, match="wait_s"):
        LockedService(core).claim(worker, m.Claim(wait_s=wait_s))


def test_a_worker_that_leaves_hands_its_task_back(tmp_path: Path) -> None:
    core = make_core(tmp_path)
    agent = WorkerAgent(LockedService(core), "learner", incarnation="leaver")
    agent.register()

    def do(task: m.Task, handle: TaskHandle) -> dict[str, Any]:
        raise TaskLeftError("asked to leave")

    agent.run(do)
    agent.close()

    learn = claim(core, join(core, "learner", 2))
    assert learn.attempt == 2 and not core.is_over
