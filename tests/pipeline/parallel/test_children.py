"""Workers that die are started again, unless that helps nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ding_like.errors import TrainingError
from ding_like.pipeline.parallel.coordinator_run import Children
from tests.support import wait_until


class Workshop(Children):
    """Children that are Python one-liners in place of `ding`."""

    def _launch(self, name: str, arguments: object) -> subprocess.Popen[bytes]:
        assert isinstance(arguments, list)
        with open(self._folder / f"{name}.txt", "ab") as output:
            return subprocess.Popen([sys.executable, "-c", *arguments], stdout=output, stderr=subprocess.STDOUT)

    def pid(self, name: str) -> int:
        return self._children[name].process.pid


def workshop(folder: Path, *, has_worked: bool = False, told: list[str] | None = None, **kwargs: int) -> Workshop:
    def lost(pid: int, why: str) -> bool:
        if told is not None:
            told.append(why)
        return has_worked

    return Workshop(folder, lost=lost, grace_s=0.1, **kwargs)


def until(children: Workshop, done: Callable[[list[str]], bool]) -> list[str]:
    said: list[str] = []
    wait_until(lambda: said.extend(children.check()) or done(said), "what the children do")
    return said


def test_a_killed_worker_is_started_again(tmp_path: Path) -> None:
    told: list[str] = []
    with workshop(tmp_path, has_worked=True, told=told) as children:
        children.start("collector0", ["import time; time.sleep(60)"])
        first = children.pid("collector0")
        os.kill(first, signal.SIGKILL)

        said = until(children, bool)

        assert said == [f"{told[0]} and is started again"] and told == ["collector0 was killed by SIGKILL"]
        second = children.pid("collector0")
        assert second != first and Path(f"/proc/{second}").exists()
    assert not Path(f"/proc/{second}").exists(), "none is left behind"


@pytest.mark.parametrize(
    ("code", "restarts", "why"),
    [
        ("import os; os.kill(os.getpid(), 9)", 2, "was killed by SIGKILL: it printed nothing"),
        ("raise SystemExit('there is no such env')", 0, "ended with status 1: there is no such env"),
    ],
)
def test_one_that_dies_with_nothing_done_ends_the_run(tmp_path: Path, code: str, restarts: int, why: str) -> None:
    """At once, if it gave up by itself."""
    told: list[str] = []
    with workshop(tmp_path, told=told, max_restarts=2) as children:
        children.start("collector0", [code])

        with pytest.raises(TrainingError, match=f"collector0 {why}"):
            until(children, lambda said: len(said) > 2)
    assert len(told) == restarts + 1


def test_one_that_does_something_between_is_started_again_and_again(tmp_path: Path) -> None:
    with workshop(tmp_path, has_worked=True, max_restarts=1) as children:
        children.start("learner", ["raise SystemExit('out of memory')"])

        assert len(until(children, lambda said: len(said) >= 4)) >= 4


def test_one_that_leaves_in_peace_is_let_go(tmp_path: Path) -> None:
    with workshop(tmp_path) as children:
        children.start("collector0", ["pass"])
        os.waitid(os.P_PID, children.pid("collector0"), os.WEXITED | os.WNOWAIT)
        assert children.check() == []


def test_those_that_do_not_end_when_asked_are_killed(tmp_path: Path) -> None:
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
    )
    names = ["collector0", "collector1"]
    with pytest.raises(KeyError), workshop(tmp_path) as children:
        for name in names:
            children.start(name, [deaf])
        pids = [children.pid(name) for name in names]
        until(children, lambda said: all("ready" in (tmp_path / f"{name}.txt").read_text() for name in names))
        raise KeyError

    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
