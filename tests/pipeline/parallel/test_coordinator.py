"""DI-engine's coordinator: callbacks do what messages do, its state moves, and nothing of it stays behind."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import ding_like
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.client import HttpCoordinator
from ding_like.comm.rest.messages import RefusedError
from ding_like.comm.rest.worker import host_name
from ding_like.config import compile_config
from ding_like.data.segment_file import remove_segments
from ding_like.errors import CommError, ConfigError, TrainingError
from ding_like.pipeline.parallel.coordinator_run import CoordinatorRun
from ding_like.report.details import BufferUse, ProcessReport
from ding_like.report.run_console import Limits, RunConsole
from ding_like.worker import Coordinator
from tests.pipeline.parallel.runs import configs
from tests.pipeline.parallel.service_parts import begin as begin_run
from tests.pipeline.parallel.service_parts import join, segment
from tests.support import wait_until

MakeCoordinator = Callable[..., Coordinator]


def config(folder: Path, *, coordinator: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    main, create = configs(
        "dqn",
        env=dict(stop_value=5.0),
        random_collect_size=8,
        priority=True,
        learn=dict(batch_size=4, update_per_collect=4),
        collect=dict(n_sample=8),
        eval=dict(evaluator=dict(eval_freq=10)),
        other=dict(replay_buffer=dict(replay_buffer_size=100)),
    )
    create["replay_buffer"] = dict(type="advanced")
    main = compile_config({**main, "exp_name": str(folder / "run")}, create, seed=0, renew_dir=False)
    paths = {"path_data": str(folder / "data"), "path_policy": str(folder / "policy")}
    system = {**paths, "segment_rows": 8, "num_collectors": 1, "coordinator": coordinator or {}}
    return {"main": main, "system": system, "seed": 0, **more}


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeCoordinator]:
    """Give what makes a coordinator; `settings` are of its section. All are closed."""
    made: list[Coordinator] = []

    def make_one(folder: Path = tmp_path, *, key_file: Path | None = None, **settings: Any) -> Coordinator:
        made.append(Coordinator(config(folder, coordinator=settings, key_file=key_file)))
        return made[-1]

    yield make_one
    for each in made:
        each.close()


@pytest.fixture
def coordinator(make: MakeCoordinator) -> Coordinator:
    return make()


def begin(coordinator: Coordinator, folder: Path, segments: int = 3) -> tuple[m.Task, m.Task]:
    """Return (learn task, collect task) of a run with some segments."""
    _, learn, collector, collect = begin_run(coordinator.service)
    for number in range(segments):
        send(coordinator, folder, collect, number, by=collector)
    return learn, collect


def send(
    coordinator: Coordinator, folder: Path, task: m.Task, number: int, *, by: str = "collector-start0", **ids: str
) -> None:
    """Have a segment taken in by the callback; `ids` stand in place of those of the task and its buffer."""
    info = asdict(segment(folder / "data", by, number))
    told = {"task_id": task.task_id, "buffer_id": "buffer", "data_id": info.pop("name"), **ids}
    coordinator.deal_with_collector_send_data(**told, data=info)


DONE = {"eval_value": 1.0, "eval_value_raw": [1.0], "train_iter": 3, "judge_s": 0.0, "train_s": 0.0}


def test_callbacks_carry_a_run_from_data_to_its_end(coordinator: Coordinator, tmp_path: Path) -> None:
    learn, _ = begin(coordinator, tmp_path)

    batch = coordinator.deal_with_learner_get_data(learn.task_id, "buffer", 4, 0)
    assert batch is not None and len(batch.places) == 4
    priorities = {"places": batch.places, "unique_ids": batch.unique_ids, "priorities": np.full(4, 9.0, np.float32)}
    info = {"learner_step": 3, "total_loss": 0.5, "priority_info": priorities}
    coordinator.deal_with_learner_send_info(learn.task_id, "buffer", info)
    assert coordinator.core.learn_iter == 3 and not coordinator.system_shutdown_flag

    assert coordinator.deal_with_learner_finish_task(learn.task_id, DONE)
    assert coordinator.system_shutdown_flag


def test_unknown_tasks_and_buffers_are_refused(coordinator: Coordinator, tmp_path: Path) -> None:
    learn, collect = begin(coordinator, tmp_path, segments=1)

    for ids in ({"task_id": "nothing-1"}, {"buffer_id": "elsewhere"}):
        with pytest.raises(RefusedError, match="there is no task"):
            send(coordinator, tmp_path, collect, 1, **ids)
        asked = {"task_id": learn.task_id, "buffer_id": "buffer", **ids}
        with pytest.raises(RefusedError, match="there is no task"):
            coordinator.deal_with_learner_get_data(**asked, batch_size=4, cur_learner_iter=0)
    assert coordinator.core.env_step == 8


def test_collectors_that_come_get_tasks_and_those_that_leave_take_them_along(coordinator: Coordinator) -> None:
    workers = [join(coordinator.service, "collector", number) for number in range(3)]
    assert coordinator.core.num_open("collect") == 3

    for worker in workers[:2]:
        coordinator.service.leave(worker, m.Leave("enough"))

    assert coordinator.core.num_open("collect") == 1


def test_a_state_goes_on_in_another_folder(coordinator: Coordinator, make: MakeCoordinator, tmp_path: Path) -> None:
    begin(coordinator, tmp_path)
    other = make(tmp_path / "other")

    other.load_state_dict(coordinator.state_dict())

    before, after = coordinator.core.status(), other.core.status()
    assert after.pop("epoch") == before.pop("epoch") + 1
    assert after.pop("workers").keys() == before.pop("workers").keys()
    assert after == before and after["env_step"] == 24 and after["buffers"] == {"buffer": {"rows": 24}}
    other.start()
    with pytest.raises(CommError, match="started"):
        other.load_state_dict(coordinator.state_dict())


def test_it_goes_on_where_it_was_killed(make: MakeCoordinator, tmp_path: Path) -> None:
    first = make()
    begin(first, tmp_path)
    status = first.core.status()
    first.core._store.close()  # and nothing else of it was closed in order
    first._lock.close()  # which the system does when a process has ended

    again = make().core.status()

    assert (again["env_step"], again["tasks"], again["buffers"]) == (24, status["tasks"], status["buffers"])


def test_a_second_one_in_the_same_folder_is_refused_until_the_first_has_ended(
    make: MakeCoordinator, tmp_path: Path
) -> None:
    first = make()
    begin(first, tmp_path)
    status = first.core.status()
    with pytest.raises(ConfigError, match="run/ is in use by a run of this very process"):
        make()
    assert first.core.status() == status
    first.close()

    make()


def test_closing_leaves_neither_thread_nor_port_nor_files_of_a_run_that_is_over(
    make: MakeCoordinator, tmp_path: Path
) -> None:
    before = set(threading.enumerate())
    coordinator = make(key_file=tmp_path / "keys.json")
    coordinator.start()
    learn, _ = begin(coordinator, tmp_path)
    port = int(coordinator.url.rpartition(":")[2])
    coordinator.deal_with_learner_finish_task(learn.task_id, DONE)

    coordinator.close()
    coordinator.close()

    assert set(threading.enumerate()) <= before
    assert list((tmp_path / "data").iterdir()) == []
    socket.create_server(("127.0.0.1", port)).close()
    assert (tmp_path / "keys.json").stat().st_mode & 0o777 == 0o600


def test_a_port_in_use_and_others_without_keys_are_refused(make: MakeCoordinator, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(CommError, match="Address already in use.*--port"):
            make(port=taken.getsockname()[1]).start()
    with pytest.raises(ConfigError, match="keys"):
        make(tmp_path / "other", host="0.0.0.0").start()


# --- faults of the disk, and who looks on


def broken_disk(coordinator: Coordinator) -> None:
    """Let no page of the state file be written."""
    coordinator._store._db.execute("PRAGMA query_only=1")


@pytest.mark.parametrize("durable", [False, True])
def test_durable_reaches_the_state_file(make: MakeCoordinator, durable: bool) -> None:
    assert make(durable=durable)._store._db.execute("PRAGMA synchronous").fetchone() == (1 + durable,)


def test_a_state_file_that_cannot_be_written_ends_the_process_and_not_the_run(
    make: MakeCoordinator, tmp_path: Path
) -> None:
    coordinator = make(state_timeout_s=0.1)
    coordinator.start()
    _, collect = begin(coordinator, tmp_path)
    broken_disk(coordinator)

    with pytest.raises(RefusedError) as refused:
        send(coordinator, tmp_path, collect, 9)

    assert refused.value.code == "storage_full"
    with pytest.raises(RefusedError, match="about to end"):
        coordinator.service.heartbeat("collector-start0", m.Heartbeat("collect"))
    console: Any = Mock(is_due=False)
    with pytest.raises(TrainingError, match="Make room or fix the disk"):
        CoordinatorRun(coordinator._main, coordinator).watch(console, check=lambda: None)
    assert not coordinator.is_done and coordinator.wait_for_workers(5.0) == []
    coordinator.close()
    assert len(list((tmp_path / "data").glob("*.safetensors"))) == 4, "nothing is deleted"
    again = make()
    assert again.core.env_step == 24 and not again.system_shutdown_flag


def test_the_details_of_a_run_have_its_workers_and_how_others_were_lost(make: MakeCoordinator, tmp_path: Path) -> None:
    coordinator = make()
    coordinator.start()
    begin(coordinator, tmp_path)  # 3 segments of 8 rows
    other = join(coordinator.core, "collector", 1)
    mine, pid = coordinator.core.workers["collector-start0"], 4242
    mine.host, mine.pid = host_name(), pid
    coordinator.core.workers[other].host, coordinator.core.workers[other].pid = host_name(), 4243
    coordinator.lost_worker(4243, "collector1 was killed by SIGKILL")
    console: Any = RunConsole("run", Limits(), is_shown=False)
    children: Any = Mock(processes=lambda: [ProcessReport("collector0", pid), ProcessReport("collector1", 4244)])
    coordinator.core.fail("the test ends it")
    with pytest.raises(TrainingError, match="the test ends it"):
        CoordinatorRun(coordinator._main, coordinator).watch(console, check=lambda: None, children=children)

    details = console.details()

    found = {each.name: each for each in details.processes}
    assert {"collector0", "collector1", "learner-start0"} <= set(found)
    assert (found["collector0"].rows, found["collector0"].env_steps, found["collector0"].host) == (24, 24, host_name())
    assert 0.0 <= (found["collector0"].heartbeat_s or 0.0) < 10.0 and found["collector1"].rows is None
    assert [(each.worker, each.cause) for each in details.failures] == [(other, "collector1 was killed by SIGKILL")]
    assert details.buffer == BufferUse(24, 100) and details.lost_rows == {}
    assert console.is_ending


def test_a_start_where_the_disk_takes_nothing_says_so(tmp_path: Path) -> None:
    cfg = config(tmp_path)
    (tmp_path / "run").rename(tmp_path / "moved")
    (tmp_path / "run").write_bytes(b"in the way")

    with pytest.raises(ConfigError, match=r"cannot make the experiment folder '.*run': File exists"):
        Coordinator(cfg)


def test_workers_without_the_key_are_refused(make: MakeCoordinator, tmp_path: Path) -> None:
    coordinator = make(key_file=tmp_path / "keys.json")
    coordinator.start()
    stranger = HttpCoordinator(coordinator.url, role="collector", key=b"x" * 32, retry_s=0.2)

    with pytest.raises(RefusedError, match="signature|key"):
        stranger.register(m.Register("collector", "host", 1, ding_like.__version__, "s"))
    assert coordinator.core.workers == {}
    stranger.close()


def test_who_is_interrupted_while_the_disk_fails_ends_at_once(coordinator: Coordinator, tmp_path: Path) -> None:
    coordinator.start()
    begin(coordinator, tmp_path)
    broken_disk(coordinator)
    refused: list[str] = []

    def leave() -> None:
        try:
            coordinator.service.leave("collector-start0", m.Leave("enough"))
        except RefusedError as error:
            refused.append(error.code)

    thread = threading.Thread(target=leave)
    thread.start()
    wait_until(lambda: coordinator._store._depth or coordinator._store._pending, "the lock")

    coordinator.close()

    thread.join(60)  # the disk would be waited for ten minutes
    assert refused == ["storage_full"]


def test_a_process_that_dies_while_the_disk_fails_is_remembered(
    coordinator: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(coordinator, tmp_path)
    monkeypatch.setattr("ding_like.pipeline.parallel.coordinator.host_name", lambda: "host")

    def busy(*_: Any) -> bool:
        raise RefusedError("not_ready", "busy")

    with monkeypatch.context() as patch:
        patch.setattr(coordinator.core, "lost", busy)
        assert coordinator.lost_worker(1, "killed"), "no fault of its own"
    coordinator.start()

    wait_until(lambda: "learner-start0" not in coordinator.core.workers, "the loss")


def test_files_that_cannot_be_deleted_are_tried_again_and_end_nothing(
    coordinator: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator.core.book.removable += ["w.1", "w.2"]
    (tmp_path / "data").mkdir(exist_ok=True)
    for name in ("w.1", "w.2"):
        (tmp_path / "data" / f"{name}.safetensors").write_bytes(b"x")
    failed: list[list[str]] = []

    def refuse_once(folder: Any, names: list[str]) -> None:
        if names == ["w.1"] and not failed:
            failed.append([path.name for path in (tmp_path / "data").iterdir()])
            raise OSError(5, "Input/output error")
        remove_segments(folder, names)

    monkeypatch.setattr("ding_like.pipeline.parallel.coordinator.remove_segments", refuse_once)
    coordinator.start()

    wait_until(lambda: not list((tmp_path / "data").glob("w.*")), "the files to go")
    assert failed and coordinator.core.halted is None


def test_a_fault_of_the_coordinators_own_thread_ends_the_process_and_not_the_run(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator.core, "tick", lambda: {}["no such key"])
    coordinator.start()
    wait_until(lambda: coordinator.core.halted, "the fault")

    assert "KeyError" in str(coordinator.core.halted)
    assert not coordinator.is_done and not coordinator.core.is_over


def test_a_view_of_the_run_is_consistent_while_workers_come_and_go(coordinator: Coordinator) -> None:
    stop, looks, failures = threading.Event(), [0], []

    def look() -> None:
        try:
            while not stop.is_set():
                coordinator.service.status()
                coordinator.wait_for_workers(0.0)
                looks[0] += 1
        except Exception as error:  # the test says which
            failures.append(error)

    watcher = threading.Thread(target=look)
    watcher.start()
    for number in range(60):
        worker = join(coordinator.service, "collector", number)
        if number > 20:
            coordinator.service.leave(worker, m.Leave("enough"))
    wait_until(lambda: looks[0] or failures, "a look")
    stop.set()
    watcher.join(60)

    assert not failures
