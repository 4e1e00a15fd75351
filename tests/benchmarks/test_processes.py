"""Processor time of all processes of a command is counted right: loads of known size."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from benchmarks.processes import Group, Measured, Tree, make_group

pytestmark = pytest.mark.slow
BUSY = "import time\nwhile time.process_time() < {seconds}: pass\n"
CHILDREN = f"import signal, subprocess, sys, time\nbusy = {BUSY.format(seconds=0.3)!r}\n"
CHILD = "subprocess.Popen([sys.executable, '-c', busy])"
PR_SET_CHILD_SUBREAPER = 36


def _control_group() -> Group:
    group = make_group()
    if group.how != "cgroup":
        group.close()
        pytest.skip("no control group (cgroup 2) may be made here")
    return group


@pytest.fixture(params=[_control_group, Tree], ids=["cgroup", "tree"])
def make(request: pytest.FixtureRequest) -> Iterator[Callable[[], Group]]:
    yield request.param
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def run(make: Callable[[], Group], code: str) -> tuple[float, list[str]]:
    measured = Measured([sys.executable, "-S", "-c", code], group=make(), stdout=subprocess.DEVNULL)
    killed = measured.end(timeout_s=60.0)
    return measured.cpu_s, killed


@pytest.mark.parametrize(
    ("code", "least", "most"),
    [
        pytest.param(BUSY.format(seconds=0.4), 0.4, 0.55, id="one"),
        pytest.param("import time; time.sleep(0.4)", 0.0, 0.2, id="none"),
        # The tree may miss what came after the last look at each.
        pytest.param(f"{CHILDREN}{CHILD}.wait(); {CHILD}.wait()", 0.4, 0.9, id="children waited for"),
        pytest.param(f"{CHILDREN}{CHILD}; {CHILD}", 0.4, 0.9, id="children left alone"),
    ],
)
def test_processes_count_for_what_they_used(make: Callable[[], Group], code: str, least: float, most: float) -> None:
    cpu_s, killed = run(make, code)

    assert least <= cpu_s <= most and killed == []


def test_shared_pages_count_once(make: Callable[[], Group]) -> None:
    # 64 MiB before the fork belong to both, 32 MiB after it to the child alone.
    code = (
        "import os, time\nshared = bytearray(os.urandom(1) * (64 << 20))\n"
        "own = bytearray(b'x' * (32 << 20)) if os.fork() == 0 else None\ntime.sleep(0.8)\n"
    )
    measured = Measured([sys.executable, "-S", "-c", code], group=make())
    measured.end(timeout_s=60.0)

    assert 96 << 20 <= measured.most_memory_bytes <= 170 << 20
