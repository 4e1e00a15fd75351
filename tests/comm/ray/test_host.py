"""Workers are processes on Ray: what is known of one that dies, and what a cluster cannot give."""

from __future__ import annotations

import importlib
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.comm.ray.cluster import RayCluster
from ding_like.comm.ray.host import RayHost, RayWorker
from ding_like.comm.workers.host import Call, Resources, WorkerLostError
from ding_like.errors import CommError
from ding_like.pipeline.build.process import prepare_worker
from tests.contracts.host_worker import Recorder

pytestmark = pytest.mark.ray
SOON_S = 60.0
FAR_S = 60.0
MOMENT_S = 0.05
SMALL = Resources(num_cpus=0.5)


class Process:
    """Worker that describes its process."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()

    def niceness(self) -> int:
        return os.nice(0)

    def prepared(self) -> tuple[bool, bool, int]:
        """Return whether it was prepared in its own thread, whether denormals are flushed, and torch's threads."""
        flushed = bool((torch.full((), 1e-40) * 1.0) == 0)
        return _prepared == [self.thread] == [threading.get_ident()], flushed, torch.get_num_threads()

    def hold(self) -> None:
        threading.Event().wait(FAR_S)

    def give(self, what: Any) -> Any:
        return what


_prepared: list[int] = []


def prepare() -> None:
    prepare_worker()
    _prepared.append(threading.get_ident())


def outcome(host: RayHost, call: Call) -> Any:
    assert host.wait([call], timeout_s=SOON_S) == [call]
    return call.result()


def start(host: RayHost, make: Any = Process, name: str = "worker", resources: Resources = SMALL) -> RayWorker:
    return host.start(make, name=name, resources=resources)


@pytest.mark.parametrize("is_busy", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_killed_process_is_known_with_what_killed_it(
    ray_cluster: RayCluster, ray_host: RayHost, is_busy: bool
) -> None:
    worker = start(ray_host)
    outcome(ray_host, worker.call("give", 1))
    process = worker.process
    assert process is not None
    call = worker.call("hold") if is_busy else worker.ended
    assert ray_host.wait([call], timeout_s=MOMENT_S) == []
    os.kill(process.pid, signal.SIGKILL)

    assert ray_host.wait([call], timeout_s=FAR_S) == [call]
    for lost in (call, worker.ended, worker.call("give", 1), worker.control("give", 1)):
        with pytest.raises(
            WorkerLostError, match=rf"'worker' \(process {process.pid} at .*\) was lost: .*died"
        ) as told:
            outcome(ray_host, lost)
        assert len(str(told.value)) < 400, "Ray's page of causes is left out"


def test_a_worker_that_cannot_be_placed_now_waits_and_holds_up_nobody(
    ray_cluster: RayCluster, ray_host: RayHost
) -> None:
    much = start(ray_host, name="much", resources=Resources(num_cpus=1000))
    strange = start(ray_host, name="strange", resources=Resources(custom={"no_such_kind": 1.0}))
    calls = [much.call("give", 1), strange.call("give", 1)]

    assert outcome(ray_host, start(ray_host).call("give", 1)) == 1
    assert ray_host.wait(calls, timeout_s=MOMENT_S) == [] and much.process is None
    ray_host.kill(much)
    with pytest.raises(WorkerLostError, match="killed"):
        outcome(ray_host, calls[0])


def test_a_process_is_prepared_before_the_worker_is_made_and_in_its_thread(
    ray_cluster: RayCluster, ray_host: RayHost
) -> None:
    host = RayHost(prepare=prepare)
    try:
        assert outcome(host, start(host).call("prepared")) == (True, True, 1)
    finally:
        host.close()


def test_processes_are_gone_when_the_host_is_closed(ray_cluster: RayCluster, ray_host: RayHost) -> None:
    host = RayHost()
    workers = [start(host, name=f"worker{number}") for number in range(2)]
    for worker in workers:
        outcome(host, worker.call("give", 1))
    pids = [process.pid for worker in workers if (process := worker.process) is not None]
    host.close()

    assert len(pids) == 2
    assert not any(_is_running(pid) for pid in pids)


def _is_running(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.slow
def test_a_worker_whose_object_cannot_be_sent_is_refused(ray_cluster: RayCluster, ray_host: RayHost) -> None:
    lock = threading.Lock()

    with pytest.raises(CommError, match=r"'worker' cannot be started.*lock"):
        start(ray_host, lambda: lock)


def test_code_that_is_not_where_the_worker_runs_is_named(
    ray_cluster: RayCluster, ray_host: RayHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("class Worker:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    worker = start(ray_host, importlib.import_module("only_here").Worker)

    for call in (worker.call("give", 1), worker.control("give", 1)):
        with pytest.raises(CommError, match="cannot read what it is to make.*only_here"):
            outcome(ray_host, call)
    with pytest.raises(WorkerLostError, match="could not be made.*only_here"):
        outcome(ray_host, worker.ended)


@pytest.mark.slow
def test_a_result_that_cannot_be_sent_is_an_error_of_its_call(ray_cluster: RayCluster, ray_host: RayHost) -> None:
    worker = start(ray_host, Recorder)

    with pytest.raises(CommError, match="lock"):
        outcome(ray_host, worker.call("__getattribute__", "_free"))
    assert outcome(ray_host, worker.call("noted")) == []


@pytest.mark.slow
def test_a_result_has_its_bytes_in_the_store_until_it_is_dropped(ray_cluster: RayCluster, ray_host: RayHost) -> None:
    worker = start(ray_host, Recorder)
    # The store of the session has 256 MiB: it would be full after the sixth.
    for _ in range(12):
        found = outcome(ray_host, worker.call("ramp", 5_000_000))
        assert found.shape == (5_000_000,)
        del found


@pytest.mark.slow
def test_shared_values_are_freed_when_nobody_needs_them(ray_cluster: RayCluster, ray_host: RayHost) -> None:
    worker = start(ray_host, Recorder)
    for number in range(12):
        shared = ray_host.share(np.full(5_000_000, float(number)))
        assert outcome(ray_host, worker.call("total", shared)) == (5_000_000.0 * number, False)
        del shared


def test_who_waits_for_workers_of_a_lost_cluster_is_told_so_at_once(ray_host: RayHost) -> None:
    host = RayHost()  # `ray_host` waits in the end until what the worker had is free again
    worker = host.start(Process, name="left", resources=SMALL)
    said: list[Exception] = []

    def wait() -> None:
        try:
            host.wait([worker.ended], timeout_s=600.0)
        except CommError as error:
            said.append(error)

    assert host.wait([worker.call("niceness")], timeout_s=SOON_S)
    waiting = threading.Thread(target=wait)
    waiting.start()
    pid = os.getpid() if worker.process is None else worker.process.pid
    host.lose("its gcs_server has ended")
    waiting.join(FAR_S)

    assert not waiting.is_alive() and "its gcs_server has ended" in str(said)
    with pytest.raises(WorkerLostError, match="gcs_server"):
        worker.call("niceness").result()
    host.close()
    os.kill(pid, signal.SIGKILL)  # this cluster is there, after all
