"""Processor time and memory of all processes of a command are counted right: loads of known size."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from benchmarks import processes
from benchmarks.processes import ControlGroup, Group, Measured, Tree, make_group

# Busy for so many seconds of its own time.
BUSY = "import time\nwhile time.process_time() < {seconds}: pass\n"
# Starts busy children in ways that are hard to count, and waits for none of them.
STARTS = "import signal, subprocess, sys, time\n{before}busy = {busy!r}\n"
CHILD = "subprocess.Popen([sys.executable, '-c', busy])"


def _control_group() -> Group:
    group = make_group()
    if group.how != "cgroup":
        group.close()
        pytest.skip("no control group (cgroup 2) may be made here")
    return group


@pytest.fixture(params=[_control_group, Tree], ids=["cgroup", "tree"])
def make(request: pytest.FixtureRequest) -> Callable[[], Group]:
    return request.param


@pytest.fixture(autouse=True)
def _no_subreaper_afterwards() -> Iterator[None]:
    yield
    import ctypes

    ctypes.CDLL(None).prctl(processes._PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def run(make: Callable[[], Group], code: str, *, timeout_s: float = 20.0) -> tuple[float, list[str]]:
    measured = Measured([sys.executable, "-S", "-c", code], group=make(), stdout=subprocess.DEVNULL)
    killed = measured.end(timeout_s=timeout_s)
    return measured.cpu_s, killed


def starts(seconds: float, *, before: str = "", then: str) -> str:
    return STARTS.format(before=before, busy=BUSY.format(seconds=seconds)) + then


def test_one_busy_process_counts_for_what_it_used(make: Callable[[], Group]) -> None:
    cpu_s, killed = run(make, BUSY.format(seconds=0.4))

    assert 0.4 <= cpu_s <= 0.55 and killed == []


def test_sleeping_costs_nothing(make: Callable[[], Group]) -> None:
    cpu_s, _ = run(make, "import time; time.sleep(0.4)")

    assert cpu_s < 0.2


@pytest.mark.parametrize(
    ("before", "then"),
    [
        pytest.param("", f"{CHILD}.wait(); {CHILD}.wait()", id="waited for"),
        pytest.param("", f"{CHILD}; {CHILD}", id="left alone, their parent has ended"),
        pytest.param("", f"{CHILD}; {CHILD}; time.sleep(1.5)", id="not waited for by a parent that lives"),
        pytest.param(
            "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n",
            f"{CHILD}; {CHILD}; time.sleep(1.5)",
            id="SIGCHLD ignored",
        ),
        pytest.param(
            "",
            "for _ in range(2): subprocess.Popen([sys.executable, '-c', busy], start_new_session=True)",
            id="a session of their own",
        ),
    ],
)
def test_children_count_however_they_end(make: Callable[[], Group], before: str, then: str) -> None:
    cpu_s, killed = run(make, starts(0.3, before=before, then=then))

    # Two of 0.3 s; the tree may miss what came after the last look at each.
    assert 0.6 - 2 * 0.1 * (make is Tree) <= cpu_s <= 0.9 and killed == []


def test_what_does_not_end_is_killed_and_named_and_counts(make: Callable[[], Group]) -> None:
    lasts = BUSY.format(seconds=0.3) + "print(flush=True)\ntime.sleep(60)"
    code = STARTS.format(before="", busy=lasts) + CHILD
    measured = Measured([sys.executable, "-S", "-c", code], group=make(), stdout=subprocess.PIPE)
    assert measured.process.stdout is not None
    with measured.process.stdout as said:
        said.readline()
        killed = measured.end(timeout_s=0.1)

    assert len(killed) == 1 and killed[0].startswith("python")
    assert 0.3 - 0.1 * (make is Tree) <= measured.cpu_s <= 0.6


def test_time_is_read_while_it_runs(make: Callable[[], Group]) -> None:
    measured = Measured(
        [sys.executable, "-S", "-c", BUSY.format(seconds=0.2) + "print(flush=True); input()"],
        group=make(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert measured.process.stdout is not None and measured.process.stdin is not None
    measured.process.stdout.readline()
    first_s = measured.group.cpu_s()
    measured.process.communicate(b"\n")
    measured.end(timeout_s=5.0)

    # /proc rounds a process's time down to hundredths, in and out of the kernel apart.
    assert 0.2 - 0.02 <= first_s <= 0.35 and first_s <= measured.cpu_s < first_s + 0.15


def test_memory_of_two_processes_that_share_pages_counts_shared_pages_once(make: Callable[[], Group]) -> None:
    # 64 MiB before the fork are both's, 32 MiB after it are the child's alone.
    code = (
        "import os, time\nshared = bytearray(os.urandom(1) * (64 << 20))\n"
        "own = bytearray(b'x' * (32 << 20)) if os.fork() == 0 else None\ntime.sleep(0.8)\n"
    )
    measured = Measured([sys.executable, "-S", "-c", code], group=make())
    measured.end(timeout_s=10.0)

    assert 96 << 20 <= measured.most_memory_bytes <= 170 << 20


def test_two_groups_count_apart() -> None:
    first = Measured([sys.executable, "-S", "-c", BUSY.format(seconds=0.3)], group=_control_group())
    second = Measured([sys.executable, "-S", "-c", "pass"], group=_control_group())
    second.end(timeout_s=10.0)
    first.end(timeout_s=10.0)

    assert second.cpu_s < 0.15 and first.cpu_s >= 0.3


def test_a_group_whose_maker_was_killed_is_removed_by_the_next() -> None:
    first = _control_group()
    assert isinstance(first, ControlGroup)
    left = first.folder.with_name("bench-4194305-left")  # no process has such a number
    left.mkdir()

    _control_group().close()

    assert not left.exists() and first.folder.exists()
    first.close()
