"""The runner of a lost cluster is rescued with whoever answers, and closed without waiting for the others."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ding_like.errors import CommError
from ding_like.pipeline.runner import RunnerLostError
from ding_like.pipeline.watched_runner import WatchedRunner, watched


class Watch:
    lost: str | None = None

    def check(self) -> None:
        if self.lost is not None:
            raise CommError(self.lost)

    def store(self) -> object:
        return "empty"


class Runner:
    """Note what is asked, and wait in `rescue` for workers until they are lost."""

    def __init__(self, *, answers: bool) -> None:
        self.asked: list[str] = []
        self.answers = answers
        self.lost = threading.Event()

    def rescue(self) -> bool:
        self.asked.append("rescue")
        return self.answers or not self.lost.wait(30.0)

    def lose(self, why: str) -> None:
        self.asked.append(why)
        self.lost.set()

    def __getattr__(self, name: str) -> Any:
        return lambda: self.asked.append(name)


def made(*, answers: bool = True, lost: str | None = "head gone") -> tuple[Runner, WatchedRunner]:
    runner, watch = Runner(answers=answers), Watch()
    watch.lost = lost
    found: Any = watched(lambda is_leaving: runner, watch, runner.lose)(lambda: False)
    return runner, found


def test_a_step_of_a_lost_cluster_is_not_begun() -> None:
    runner, found = made()
    with pytest.raises(RunnerLostError, match="head gone"):
        found.step()
    assert runner.asked == []


def test_workers_that_answer_are_asked_though_their_cluster_is_lost() -> None:
    runner, found = made()
    found.flush()
    assert found.rescue() and runner.asked == ["flush", "rescue"]


def test_workers_that_do_not_answer_are_lost_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ding_like.pipeline.watched_runner._RESCUE_S", 0.05)
    runner, found = made(answers=False)
    assert not found.rescue() and runner.asked == ["rescue", "head gone"]


@pytest.mark.parametrize(("lost", "asked"), [("head gone", ["head gone", "close"]), (None, ["close"])])
def test_what_is_lost_is_said_before_the_end(lost: str | None, asked: list[str]) -> None:
    runner, found = made(lost=lost)
    found.close()
    assert runner.asked == asked
