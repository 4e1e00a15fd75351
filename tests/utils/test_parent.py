"""A child hears of its parent's end, however that came."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ding_like.utils.parent import forget_child, start_child, watch_parent

CHILD = """
import os, sys, threading
from ding_like.utils.parent import watch_parent
ended = threading.Event()
assert watch_parent(ended.set) and not watch_parent(ended.set)
print(os.getpid(), flush=True)
os.write(1, b"ended" if ended.wait(20) else b"still there")
"""
PARENT = """
import sys
from ding_like.utils.parent import start_child
child = start_child([sys.executable, "-c", sys.argv[1]])
child.wait()
"""


@pytest.mark.timeout(60)
def test_a_child_ends_when_its_parent_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        os.kill(parent.pid, signal.SIGKILL)

        assert parent.stdout.read() == b"ended"
    assert child != parent.pid


@pytest.mark.timeout(60)
def test_a_child_goes_on_while_its_parent_lives_and_is_let_go_by_it(tmp_path: Path) -> None:
    process = start_child([sys.executable, "-c", CHILD], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline()
    assert process.poll() is None

    forget_child(process)
    forget_child(process)

    assert process.stdout.read() == b"ended" and process.wait(20) == 0
    process.stdout.close()


def test_one_that_was_started_otherwise_watches_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DING_PARENT_HOLDS_STDIN", raising=False)
    before = threading.active_count()

    assert not watch_parent(lambda: None) and threading.active_count() == before
