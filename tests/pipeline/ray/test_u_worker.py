"""Runner of an UpdaterThread: in the caller's thread or ahead of it, held between two, ended by an error."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from ding_like.errors import CommError
from ding_like.pipeline.ray import GWorker, UpdaterThread, UWorker
from ding_like.pipeline.roles.turn_thread import TurnThread
from tests.pipeline.ray.gradient_cases import Run


class Counted:
    """Turn that counts its calls; each may wait until it is let through."""

    def __init__(self, *, waits: bool = False) -> None:
        self.num = 0
        self.waits = waits
        self.begun, self.may_end = threading.Semaphore(0), threading.Semaphore(0)
        self.threads: set[int] = set()

    def __call__(self) -> Mapping[str, Any]:
        self.threads.add(threading.get_ident())
        self.begun.release()
        if self.waits:
            self.may_end.acquire(timeout=60.0)
        self.num += 1
        return {"turn": self.num}


def test_synchronous_turns_are_taken_in_the_caller_s_thread() -> None:
    take = Counted()
    thread = TurnThread(take, is_ahead=False, name="updater")

    assert [thread.step()["turn"] for _ in range(3)] == [1, 2, 3]
    assert take.threads == {threading.get_ident()}
    thread.settle()
    assert thread.stop()


def test_asynchronous_turns_are_taken_ahead_by_two_at_most_and_none_before_the_first_step() -> None:
    take = Counted(waits=True)
    thread = TurnThread(take, is_ahead=True, name="updater")
    try:
        assert not take.begun.acquire(timeout=0.05), "nobody has asked for a turn"
        for _ in range(10):
            take.may_end.release()
        assert thread.step()["turn"] == 1
        assert take.begun.acquire(timeout=60.0)
        assert take.begun.acquire(timeout=60.0)
        thread.settle()
        assert take.num == 2, "one waits in the queue, and there is no room for the next"
        assert thread.step()["turn"] == 2
    finally:
        take.waits = False
        assert thread.stop()


def test_an_error_in_the_thread_reaches_step_and_ends_it() -> None:
    def fail() -> Mapping[str, Any]:
        raise ValueError("a reward of NaN")

    thread = TurnThread(fail, is_ahead=True, name="updater")

    with pytest.raises(ValueError, match="a reward of NaN"):
        thread.step()
    thread.join(60.0)
    assert not thread.is_alive()
    with pytest.raises(CommError, match="has ended"):
        thread.step()
    thread.settle()
    assert thread.stop()


@pytest.mark.parametrize(
    ("execution", "communication"),
    [("Central", "synchronous"), ("Parallel", "synchronous"), ("Parallelised", "asynchronous")],
)
def test_a_step_is_a_turn_and_says_what_came_of_it(execution: str, communication: str, tmp_path: Path) -> None:
    with Run("dqn", tmp_path, execution=execution, communication=communication) as run:
        infos = [run.u_worker.step() for _ in range(3)]
        run.u_worker.settle()

        assert isinstance(run.u_worker, UWorker) and isinstance(run.u_worker.updater, UpdaterThread)
        assert run.u_worker.actor_version == run.learner.train_iter == 2 * run.num_turns
    assert all(info["NumberSamples"] == 4 for info in infos)
    assert infos[-1]["total_loss"] > 0
    assert {"PolicyLag", "GradientAsynchrony", "Updates"} <= infos[-1].keys()
    # Gradients that are under way at a turn's end are applied in a later one.
    under_way = 2 if execution != "Central" and communication == "asynchronous" else 0
    assert 6 - under_way <= infos[-1]["ActorVersion"]["ActorUpdate"] <= 6


def test_policy_lag_is_measured_between_collection_and_gradient(tmp_path: Path) -> None:
    with Run("dqn", tmp_path, execution="Central", num_workers=0) as run:
        infos = [run.u_worker.step() for _ in range(4)]

    # The store says that rows were collected one update before they are drawn; before the first there was none.
    assert infos[-1]["PolicyLag"] == pytest.approx(7 / 8)


def test_an_error_of_a_turn_is_raised_by_the_u_worker(tmp_path: Path) -> None:
    with Run("dqn", tmp_path, execution="Central", num_workers=0, communication="asynchronous") as run:
        run.store.sample = lambda *_: 1 / 0  # type: ignore[method-assign, assignment, return-value]
        with pytest.raises(ZeroDivisionError):
            run.u_worker.step()


def test_parameters_are_set_everywhere_and_acknowledged(tmp_path: Path) -> None:
    class Telling(GWorker):
        def learning_rate(self) -> float:
            return float(self.algo.lr)

    with Run("dqn", tmp_path, worker_class=Telling) as run:
        assert run.u_worker.update_algorithm_parameter("lr", 0.5)
        assert run.u_worker.local_worker.algo.lr == 0.5
        for call in [worker.call("learning_rate") for worker in run.u_worker.remote_workers]:
            run.u_worker.grad_workers.host.wait([call], timeout_s=60.0)
            assert call.result() == 0.5
        assert not run.u_worker.update_algorithm_parameter("momentum_of_nothing", 1.0)


def test_a_model_is_saved_by_the_rules_of_checkpoints(tmp_path: Path) -> None:
    with Run("dqn", tmp_path, decentralized=True) as run:
        run.u_worker.step()
        run.u_worker.save_model("model.pth.tar")

        saved = torch.load(tmp_path / "ckpt" / "model.pth.tar", weights_only=True)
        run.u_worker.settle()
        wanted = run.policy.learn_mode.state_dict()["model"]
    assert saved["last_iter"] == 2
    assert all(torch.equal(saved["model"][name], value) for name, value in wanted.items())


def test_stop_ends_threads_and_workers_and_may_be_called_again(tmp_path: Path) -> None:
    with Run("dqn", tmp_path, communication="asynchronous") as run:
        run.u_worker.step()
        workers = run.u_worker.remote_workers
        run.u_worker.stop()
        run.u_worker.stop()

        assert not run.u_worker.updater.is_alive()
        assert not run.u_worker.grad_workers.remote_workers()
        assert len(workers) == 2
        assert run.u_worker.local_worker.c_workers.is_stopped
