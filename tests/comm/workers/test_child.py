from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ding_like.comm.workers.processes import ChildProcess, ChildThread
from ding_like.errors import CommError, EnvError
from tests.comm.workers.scripted_children import Scripted, is_running
from tests.support import wait_until

_START_S = 60.0  # a busy machine starts interpreters slowly


@pytest.fixture
def started():
    children: list[ChildProcess] = []

    def start(script: str, **settings) -> Scripted:
        child = Scripted(script, **settings)
        children.append(child)
        child.start()
        return child

    yield start
    for child in children:
        child.end(timeout_s=0.2)


def test_a_child_reports_ready_to_its_parent(started):
    child = started("wait")

    info = child.wait_ready(timeout_s=_START_S)

    assert info == {"pid": child.pid}


def test_sigterm_ends_a_child_cleanly(started, tmp_path: Path):
    child = started("write_then_wait", folder=tmp_path)
    child.wait_ready(timeout_s=_START_S)

    child.terminate()
    child.join(_START_S)

    assert child.exitcode == 0
    assert (tmp_path / "ended-child").exists()


def test_a_child_that_does_not_listen_ends_itself_after_its_grace(started):
    child = started("ignore", grace_s=0.2)
    child.wait_ready(timeout_s=_START_S)

    child.terminate()
    child.join(_START_S)

    assert child.exitcode == 1


def test_what_a_child_raises_is_known_with_its_place(started):
    child = started("refuse")

    with pytest.raises(EnvError, match="child: the env has no doors") as raised:
        child.wait_ready(timeout_s=_START_S)

    assert "in _refuse" in str(raised.value.__cause__)
    assert child.exitcode == 1


def test_a_child_that_is_not_ready_in_time_is_an_error(started):
    child = started("never_ready")

    with pytest.raises(CommError, match=r"child was not ready within 0\.1 s"):
        child.wait_ready(timeout_s=0.1)


def test_a_crash_is_described_by_its_signal_and_the_last_line_of_output(started, tmp_path: Path):
    child = started("crash", output=tmp_path / "child.txt")
    child.wait_ready(timeout_s=_START_S)

    child.join(_START_S)

    assert child.how_it_ended().startswith("was killed by SIGSEGV (")
    assert "Segmentation fault" in (tmp_path / "child.txt").read_text()
    assert (tmp_path / "child.txt").stat().st_mode & 0o777 == 0o600


def test_a_kill_takes_along_what_the_child_has_started(started):
    child = started("have_child")
    grandchild = child.wait_ready(timeout_s=_START_S)["child"]

    child.kill()

    wait_until(lambda: not is_running(grandchild))


_PARENT = """
import os, sys
from tests.comm.workers.scripted_children import Scripted

if __name__ == "__main__":
    child = Scripted("wait")
    child.start()
    print(child.wait_ready(timeout_s=30.0)["pid"], flush=True)
    if sys.argv[1] == "inherited":  # another process holds the parent's end of the pipe
        if os.fork() == 0:
            os.close(1)
            os.read(0, 1)
            os._exit(0)
    os.read(0, 1)
"""


@pytest.mark.parametrize("pipe", ["own", "inherited"])
def test_a_child_ends_with_a_parent_that_is_killed(tmp_path: Path, pipe: str):
    if pipe == "inherited" and sys.platform != "linux":
        pytest.skip("only Linux tells of a parent's end")
    script = tmp_path / "parent.py"
    script.write_text(_PARENT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = [sys.executable, str(script), pipe]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as parent:
        pid = int(parent.stdout.readline())

        parent.kill()
        parent.wait()

        wait_until(lambda: not is_running(pid))


def test_a_thread_can_do_the_work_of_a_child():
    thread = ChildThread(Scripted("wait"))
    thread.start()

    thread.terminate()
    wait_until(lambda: not thread.is_alive())

    assert [message["kind"] for message in thread.take_messages()] == ["ready"]
    assert thread.exitcode == 0
    thread.release()


def test_what_a_thread_raises_is_known():
    thread = ChildThread(Scripted("refuse"))
    thread.start()
    os.read(thread.sentinel, 1)

    thread.take_messages()

    assert isinstance(thread.error(), EnvError)
    assert thread.how_it_ended() == "ended with status 1"
    thread.release()
