"""A server that forks children: what each of them is, how its end is known, and who ends with whom."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ding_like.errors import TrainingError
from ding_like.utils import fork_server
from ding_like.utils.fork_server import ForkServer
from ding_like.utils.processes import end_processes
from tests.support import wait_until

pytestmark = pytest.mark.skipif(not fork_server.IS_POSSIBLE, reason="a fork server needs Linux")

MODULE = """
import os, signal, sys, time
from ding_like.utils.processes import watch_parent

def main(arguments):
    print("argument", *arguments, flush=True)
    if arguments[0] == "exit":
        sys.exit(int(arguments[1]))
    if arguments[0] == "random":
        import numpy
        print(numpy.random.random(), flush=True)
    if arguments[0] == "fail":
        raise RuntimeError("told to")
    if arguments[0] == "stay":
        watch_parent(lambda: (print("the parent has ended", flush=True), os._exit(3)))
        time.sleep(60)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "forked_module.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    return "forked_module"


@pytest.fixture
def server(module: str) -> Iterator[ForkServer]:
    ForkServer.begin(f"{module}:main", ["numpy"])
    made = ForkServer.take(f"{module}:main", ["numpy"])
    yield made
    made.close()
    assert not made.is_alive


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_child_gets_its_arguments_and_its_end_is_known(server: ForkServer, tmp_path: Path) -> None:
    children = {
        (*arguments,): server.start("one", arguments, output=tmp_path / f"{arguments[0]}.txt")
        for arguments in (["exit", "7"], ["end"], ["fail"])
    }
    assert {key[0]: child.wait(20.0) for key, child in children.items()} == {"exit": 7, "end": 0, "fail": 1}
    assert (tmp_path / "exit.txt").read_text() == "argument exit 7\n"
    assert "RuntimeError: told to" in (tmp_path / "fail.txt").read_text()
    end_processes([*children.values()], own_s=0.0)


def test_a_child_is_killed_and_terminated_by_signals(server: ForkServer, tmp_path: Path) -> None:
    stays = [server.start(name, ["stay"], output=tmp_path / "stay.txt") for name in ("a", "b")]
    with pytest.raises(subprocess.TimeoutExpired):
        stays[0].wait(0.05)
    assert stays[0].poll() is None
    stays[0].send_signal(signal.SIGKILL)
    assert stays[0].wait(10.0) == -signal.SIGKILL
    stays[0].send_signal(signal.SIGTERM)  # it has ended: nothing happens
    end_processes(stays, own_s=0.0)
    assert stays[1].poll() == -signal.SIGTERM


def test_children_have_files_and_random_numbers_of_their_own(server: ForkServer, tmp_path: Path) -> None:
    for name in "ab":
        child = server.start(name, ["random"], output=tmp_path / f"{name}.txt")
        assert child.wait(20.0) == 0 and child.stdin is not None
        child.stdin.close()
    assert (tmp_path / "a.txt").read_text() != (tmp_path / "b.txt").read_text()


def test_a_child_notices_that_its_owner_lets_go_and_the_server_ends_after_it(
    server: ForkServer, tmp_path: Path
) -> None:
    child = server.start("one", ["stay"], output=tmp_path / "stay.txt")
    wait_until(lambda: (tmp_path / "stay.txt").read_text() != "")
    assert child.stdin is not None
    child.stdin.close()
    server.close()
    assert "the parent has ended" in (tmp_path / "stay.txt").read_text() and child.poll() == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_server_is_for_its_children_alone(server: ForkServer, tmp_path: Path, number: int) -> None:
    child = server.start("one", ["stay"], output=tmp_path / "stay.txt")
    wait_until(lambda: (tmp_path / "stay.txt").read_text() != "")
    server._process.send_signal(number)
    other = server.start("two", ["exit", "7"], output=tmp_path / "exit.txt")
    assert other.wait(10.0) == 7 and server.is_alive and child.poll() is None
    end_processes([child, other], own_s=0.0)
    assert child.poll() == -signal.SIGTERM  # which the child does not ignore


def test_children_of_a_server_that_is_killed_are_killed(server: ForkServer, tmp_path: Path) -> None:
    child = server.start("one", ["stay"], output=tmp_path / "stay.txt")
    server._process.kill()
    assert child.wait(10.0) == -signal.SIGKILL
    wait_until(lambda: not is_running(child.pid))
    with pytest.raises(TrainingError, match="has started none"):
        server.start("two", ["stay"], output=tmp_path / "stay.txt")
    end_processes([child], own_s=0.0)


def test_a_server_whose_imports_fail_says_why(tmp_path: Path, module: str) -> None:
    server = ForkServer.take(f"{module}:nothing")
    with pytest.raises(TrainingError, match="has no attribute 'nothing'"):
        server.start("one", [], output=tmp_path / "one.txt")
    server.close()


def test_a_server_that_was_begun_and_not_taken_is_ended(module: str) -> None:
    ForkServer.begin(f"{module}:main")
    early = ForkServer._early
    ForkServer.end_early()
    assert early is not None and not early.is_alive and ForkServer._early is None
    ForkServer.end_early()
