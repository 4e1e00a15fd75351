"""The runner of a lost cluster saves with the workers that answer, and closes without waiting for the others."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from ding_like.comm.ray.actors import ClusterLoss
from ding_like.errors import CommError
from ding_like.pipeline.ray import scheme as module
from ding_like.pipeline.ray.scheme import RayRunner
from ding_like.pipeline.training_loop import RunnerLostError


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return an event that is set once no more calls of Ray are made."""
    noted = threading.Event()
    monkeypatch.setattr(ClusterLoss, "note", lambda why: noted.set())
    return noted


def made(settle: Any) -> tuple[list[str], RayRunner]:
    """Return the calls of the workers, and a runner of a cluster whose head is gone."""
    asked: list[str] = []
    worker = SimpleNamespace(settle=lambda: asked.append("settle") or settle(), step=lambda: asked.append("step"))
    scheme: Any = SimpleNamespace(update_worker=worker, is_decentralized=False, stop=lambda: asked.append("stop"))
    watch: Any = SimpleNamespace(lost="head gone", describe_loss=lambda: "the cluster is lost: head gone")
    end: Any = None
    return asked, RayRunner(scheme, end, watch)


def test_a_step_of_a_lost_cluster_is_not_begun() -> None:
    asked, runner = made(lambda: None)
    with pytest.raises(RunnerLostError, match="head gone"):
        runner.step()
    assert asked == []


def test_workers_that_answer_are_asked_though_their_cluster_is_lost(lost: threading.Event) -> None:
    asked, runner = made(lambda: None)
    runner.flush()
    assert runner.rescue() and asked == ["settle", "settle"] and not lost.is_set()


def test_workers_that_do_not_answer_are_lost_in_time(lost: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    def settle() -> None:
        lost.wait(30.0)
        raise CommError("no answer")

    monkeypatch.setattr(module, "_RESCUE_S", 0.05)
    _, runner = made(settle)
    assert not runner.rescue() and lost.is_set()


def test_the_workers_of_a_lost_cluster_are_not_waited_for(lost: threading.Event) -> None:
    asked, runner = made(lambda: None)
    runner.close()
    assert lost.is_set() and asked == ["stop"]
