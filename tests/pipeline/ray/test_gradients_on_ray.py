"""Gradient workers that are processes of their own, on a Ray cluster."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from ding_like.comm.ray.host import RayHost
from ding_like.errors import TrainingError
from ding_like.pipeline.roles.gradient_rounds import GradientSettings
from tests.pipeline.ray.gradient_cases import Run, assert_close

pytestmark = [pytest.mark.ray, pytest.mark.timeout(120)]


def central(name: str, folder: Path, turns: int) -> Run:
    with Run(name, folder / "central", execution="Central", num_workers=0) as run:
        return run.learn(turns)


def slow(*names: str) -> list[Any]:
    """Return cases that the short suite leaves out."""
    return [pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", ["dqn prioritised", *slow("ppo", "sac")])
def test_processes_that_share_minibatches_teach_what_one_does(name: str, tmp_path: Path, ray_host: RayHost) -> None:
    wanted = central(name, tmp_path, 4)
    with Run(name, tmp_path / "ray", host=ray_host, compress=name == "ppo") as run:
        run.learn(4)

    assert_close(run.state, wanted.state)


@pytest.mark.slow
def test_a_killed_process_loses_no_part_of_a_minibatch(tmp_path: Path, ray_host: RayHost) -> None:
    wanted = central("dqn prioritised", tmp_path, 150)
    with Run("dqn prioritised", tmp_path / "ray", host=ray_host, standby=1) as run:
        pids = [run.u_worker.grad_workers.pool.info(worker)["pid"] for worker in run.u_worker.remote_workers]
        run.learn(20)
        killer = threading.Timer(0.1, os.kill, (pids[0], signal.SIGKILL))
        killer.start()
        run.learn(130)
        killer.join()
        run.u_worker.grad_workers.pool.check()

    assert [row.worker for row in run.log.rows] == ["gradient1"]
    assert run.learner.train_iter == wanted.learner.train_iter
    assert_close(run.state, wanted.state, atol=1e-4)  # 300 updates: rounding adds up


@pytest.mark.slow
def test_every_minibatch_is_learned_from_once_by_processes_at_their_own_pace(tmp_path: Path, ray_host: RayHost) -> None:
    with Run("dqn prioritised", tmp_path, communication="asynchronous", host=ray_host) as run:
        run.learn(10)

        assert run.learner.train_iter == len(run.store.drawn) == len(run.store.updates)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dqn prioritised", "ppo"])
def test_processes_of_a_group_learn_what_one_does(name: str, tmp_path: Path, ray_host: RayHost) -> None:
    wanted = central(name, tmp_path, 4)
    settings = GradientSettings(compare_every=2, step_timeout_s=40.0)
    with Run(name, tmp_path / "ray", decentralized=True, host=ray_host, settings=settings) as run:
        run.learn(4)

    assert_close(run.state, wanted.state)


@pytest.mark.slow
def test_a_killed_rank_ends_the_run_with_what_the_other_has_learned(tmp_path: Path, ray_host: RayHost) -> None:
    settings = GradientSettings(step_timeout_s=40.0)
    with Run("dqn", tmp_path / "ray", decentralized=True, host=ray_host, settings=settings) as run:
        run.learn(3)
        pid = run.u_worker.grad_workers.pool.info(run.u_worker.remote_workers[1])["pid"]
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(TrainingError, match=r"gradient2.*is kept.*ding --resume"):
            run.learn(100)
        run.u_worker.settle()

    number = run.learner.train_iter
    assert number >= 6
    with Run("dqn", tmp_path / "same", execution="Central", num_workers=0, batches_a_turn=1) as wanted:
        wanted.learn(number)
    assert_close(run.state, wanted.state)
