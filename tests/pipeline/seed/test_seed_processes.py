"""The servers and the actors of a run: replaced where they are lost, and gone at its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from ding_like.comm.workers.failures import FailureLog, FailurePolicy
from ding_like.comm.workers.processes import ChildThread, Processes
from ding_like.comm.zmq.inference import InferenceProxy
from ding_like.comm.zmq.rows import RowServer
from ding_like.comm.zmq.sockets import EndpointFolder
from ding_like.comm.zmq.weights import Broadcaster
from ding_like.errors import EnvError
from ding_like.pipeline.scheme_parts import SchemeFactories
from ding_like.pipeline.seed.runner import Workers
from ding_like.pipeline.settings import SeedSettings
from tests.comm.workers.scripted_children import is_running
from tests.pipeline.seed.stage import FIRST, Stage, scripted_factories
from tests.support import wait_until


class Run(Stage):
    """Driver of a run's own processes."""

    def __init__(self, factories: SchemeFactories, opened: ExitStack, *, run_as: Any, **settings: Any) -> None:
        names = opened.enter_context(EndpointFolder())
        weights = opened.enter_context(closing(Broadcaster(endpoint=names.endpoint("weights"))))
        weights.start()
        proxy = opened.enter_context(InferenceProxy(names.endpoint("clients"), names.endpoint("servers")))
        proxy.start()
        ends = {"clients": proxy.client_endpoint, "servers": proxy.server_endpoint, "weights": weights.endpoint}
        rows = opened.enter_context(closing(RowServer(names.endpoint("data"), welcome=ends)))
        super().__init__(factories, rows.start(), weights)
        self.publish(FIRST)
        self.log = FailureLog()
        chosen = SeedSettings(**{"actor_processes": 1, "failure": FailurePolicy(restarts_per_10min=30), **settings})
        workers = Workers(factories, self.agent, chosen, rows.endpoint, run_as=run_as)
        self.processes = Processes(
            workers.slots(),
            policy=chosen.failure,
            log=self.log,
            heard=lambda: {name: each.heard_s for name, each in rows.sources().items()},
            lost=rows.open_rows,
        )
        opened.callback(self.processes.close)

    def await_replacements(self, number: int) -> None:
        def are_there() -> bool:
            self.processes.check()
            return sum(row.replaced_by is not None for row in self.log.rows) >= number

        wait_until(are_there)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Any]:
    """Return what makes a run, by default in threads of this process."""
    with ExitStack() as opened:

        def make(*, run_as: Any = ChildThread, factories: SchemeFactories | None = None, **settings: Any) -> Run:
            return Run(factories or scripted_factories(tmp_path), opened, run_as=run_as, **settings)

        yield make


def test_threads_are_numbered_over_all_processes(run):
    run = run(actor_processes=2, actor_threads=2, inference_servers=2)

    run.processes.start()

    assert sorted(run.rows.sources()) == ["actor1", "actor2", "actor3", "actor4", "server1", "server2"]
    assert len(run.collect("actor4").segment.batch) == 8


@pytest.mark.parametrize(
    "run_as", [ChildThread, pytest.param(lambda child: child, marks=pytest.mark.slow)], ids=["threads", "processes"]
)
def test_an_env_that_cannot_be_made_ends_the_start_and_leaves_nothing(run, tmp_path: Path, run_as):
    run = run(run_as=run_as)
    (tmp_path / "raise-make").touch()

    with pytest.raises(EnvError, match=r"actor_process1: the env cannot be made: RuntimeError: there is no door"):
        run.processes.start()

    assert run.processes.pids == {}


@pytest.mark.slow
def test_servers_and_actors_that_are_killed_or_stopped_are_replaced(run):
    run = run(
        run_as=lambda child: child,
        actor_processes=2,
        inference_servers=2,
        failure=FailurePolicy(restarts_per_10min=30, step_timeout_s=8.0),
    )
    run.processes.start()
    before = [run.collect(name) for name in ("actor1", "actor2")]
    pids = run.processes.pids

    os.kill(pids["server1"], signal.SIGKILL)
    os.kill(pids["actor_process1"], signal.SIGKILL)
    os.kill(pids["actor_process2"], signal.SIGSTOP)
    run.await_replacements(3)

    after = [run.collect(name) for name in ("actor1", "actor2")]
    assert all(new.run_id > old.run_id for new, old in zip(after, before, strict=True))
    assert not any(is_running(pids[name]) for name in ("server1", "actor_process1", "actor_process2"))
    hows = {row.worker: row.how for row in run.log.rows}
    assert hows["actor_process2"] == "actor2 was silent for 8 s"


_DRIVER = """
import sys
from contextlib import ExitStack
from pathlib import Path
from tests.pipeline.seed.stage import scripted_factories
from tests.pipeline.seed.test_seed_processes import Run

if __name__ == "__main__":
    with ExitStack() as opened:
        run = Run(scripted_factories(Path(sys.argv[1]), manager="subprocess"), opened, run_as=lambda child: child)
        run.processes.start()
        run.give("actor1", 10_000_000)
        print(*run.processes.pids.values(), flush=True)
        sys.stdin.read()
"""


@pytest.mark.slow
def test_nothing_runs_on_after_the_driver_is_killed(tmp_path: Path):
    script = tmp_path / "driver.py"
    script.write_text(_DRIVER)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = [sys.executable, str(script), str(tmp_path)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as driver:
        pids = [int(pid) for pid in driver.stdout.readline().split()]

        driver.kill()
        driver.wait()

    envs = [int(path.name.partition("-")[2]) for path in tmp_path.glob("made-*")]
    assert len(pids) == 2
    assert envs
    wait_until(lambda: not any(map(is_running, [*pids, *envs])))
