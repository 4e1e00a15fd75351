"""A cluster of this process's own: no other user can use or read it, and nothing is left of it, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ding_like.comm.ray import cluster
from ding_like.comm.ray.cluster import object_store_bytes
from ding_like.comm.ray.leftovers import find_processes
from ding_like.errors import ConfigError
from tests.support import wait_until

ROOT = Path(__file__).parents[3]


class Child:
    """Conversation with a program of `cluster_child`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def hear(self) -> dict[str, Any]:
        """Return what it says next."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):  # Ray writes there too
                heard: dict[str, Any] = json.loads(line)
                return heard
        raise AssertionError(f"it ended with status {self.process.wait(30)}")

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@contextmanager
def child(*arguments: str, **variables: str) -> Iterator[Child]:
    """Start a scene with these variables, and none of Ray's own; at the end it has ended."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.comm.ray.cluster_child", *arguments],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT), **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Child(process)
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)
        finally:
            process.kill()


def wait_until_gone(folder: str) -> None:
    """Wait until there is neither a process of a cluster nor its folder."""
    wait_until(lambda: not find_processes(folder) and not os.path.exists(folder), f"the end of {folder}")


@pytest.mark.ray
def test_a_cluster_is_this_programs_alone_and_leaves_nothing() -> None:
    with child("life") as program:
        during, after = program.hear(), program.hear()

    assert after["closed"] == [[False, []]] * 2
    assert {during["worker"]["pid"], during["worker"]["child"]} <= set(during["pids"])
    assert not any(os.path.exists(f"/proc/{pid}") for pid in during["pids"])
    assert not during["default"]
    assert during["mode"] == "token" and after["changed"] == [] and after["threads"] == ["MainThread"]
    assert (during["top"], during["token"], during["readable"]) == (0o700, 0o600, []), "no other user can read a file"
    assert during["worker"]["nice"] == os.nice(0)
    assert during["heard"] == 1, "a handler of SIGTERM is kept"


@pytest.mark.ray
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_nothing_is_left_of_a_driver_that_was_killed(number: signal.Signals) -> None:
    with child("hold") as program:
        held = program.hear()
        pids = find_processes(held["folder"])
        program.process.send_signal(number)

        assert held["worker"]["child"] in pids
        wait_until_gone(held["folder"])


@pytest.mark.ray
@pytest.mark.slow
def test_a_sigterm_to_all_processes_of_a_run_ends_the_driver_alone() -> None:
    with child("hold") as program:
        held = program.hear()

        blocked = {
            name: int(Path(f"/proc/{pid}/status").read_text().partition("SigBlk:")[2].split()[0], 16)
            for name, pid in held["processes"].items()
        }
        assert set(blocked) == {"gcs_server", "raylet", "ray::DashboardA", "ray::RuntimeEnv"}
        assert all(mask >> (signal.SIGTERM - 1) & 1 for mask in blocked.values())
        program.process.kill()
        program.process.wait(30)
        wait_until_gone(held["folder"])


@pytest.mark.ray
@pytest.mark.slow
def test_the_next_start_removes_what_a_driver_left_that_was_killed_with_its_keeper() -> None:
    with child("hold") as program:
        held = program.hear()
        os.kill(held["keeper"], signal.SIGKILL)
        program.process.kill()
        program.process.wait(30)
        assert os.path.exists(held["folder"])

        with child("life") as another:
            another.hear()
            assert (find_processes(held["folder"]), os.path.exists(held["folder"])) == ([], False)
            another.hear()


@pytest.mark.ray
@pytest.mark.parametrize(
    "daemon, words",
    [
        ("gcs_server", "its head (GCS) does not answer"),
        pytest.param("raylet", "its node", marks=pytest.mark.slow),
        pytest.param("ray::DashboardA", "its node", marks=pytest.mark.slow),
    ],
)
def test_a_killed_daemon_is_noticed_and_nothing_is_left(daemon: str, words: str) -> None:
    with child("hold") as program:
        held = program.hear()
        program.go_on()
        os.kill(held["processes"][daemon], signal.SIGKILL)
        ended = program.hear()

        assert ended["noticed"] and words in ended["said"]
        assert (find_processes(held["folder"]), os.path.exists(held["folder"])) == ([], False)
        program.process.wait(30)
    assert program.process.returncode == 0


def test_an_object_store_is_refused_that_shared_memory_does_not_hold() -> None:
    with pytest.raises(ConfigError, match=r"/dev/shm has \d+ MiB free"):
        object_store_bytes(2**50)


def test_an_object_store_is_refused_that_is_less_than_ray_takes() -> None:
    with pytest.raises(ConfigError, match="at least 75 MiB"):
        object_store_bytes(2**20)


def test_a_long_temporary_folder_is_left_for_a_shorter_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    long = tmp_path / ("x" * 60)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))

    assert cluster._base() == Path("/tmp")
