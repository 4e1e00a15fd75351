"""Every test leaves its process as it found it, and draws the same examples each time."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

# One thread a process, before torch is imported: two workers of the suite share two cores, and networks are small.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from hypothesis import settings

from tests.leaks import LOOKS, describe_leaks, look, record_shared_memory
from tests.marked import mark
from tests.ray_cluster import ray_cluster

__all__ = ["mark", "ray_cluster"]  # fixtures

# A shell starts background jobs deaf to SIGINT, and the runs that tests interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Equal examples in every run; and a busy machine is no reason to fail.
settings.register_profile("suite", derandomize=True, deadline=None)
settings.load_profile("suite")


@pytest.fixture(autouse=True, scope="session")
def know_own_shared_memory() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        record_shared_memory(monkeypatch)
        yield


@pytest.fixture
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run the test in an empty folder; return the folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the pictures at the end of a run: matplotlib takes longer than a small run."""
    monkeypatch.setattr("ding_like.entry.training.write_pictures", lambda *args, **kwargs: None)
    monkeypatch.setattr("ding_like.entry.training.write_pictures", lambda *args, **kwargs: None)


@pytest.fixture(autouse=True)
def leave_nothing_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves a thread, a child process, a socket or a block of shared memory behind.

    In the process of a session's Ray cluster Ray itself opens and closes sockets to its actors, whenever it likes.
    """
    kinds = [kind for kind in LOOKS if kind != "sockets" or request.node.get_closest_marker("ray") is None]
    before = look(kinds)
    yield
    # A thread or child that was asked to stop may still be ending; on a loaded machine that takes a while.
    leaks = describe_leaks(before, grace_s=30.0)
    if leaks:
        pytest.fail(f"the test left behind {leaks}", pytrace=False)
