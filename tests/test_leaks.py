"""The leak finder sees what it should see, and lets pass what is benign."""

from __future__ import annotations

import multiprocessing
import socket
import subprocess
import sys
import threading
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory

from tests.leaks import describe_leaks, look


def test_running_thread_is_a_leak() -> None:
    before, stop = look(), threading.Event()
    thread = threading.Thread(target=stop.wait, name="collector-7")
    thread.start()

    leaks = describe_leaks(before, grace_s=0)

    stop.set()
    thread.join()
    assert leaks.startswith("threads: <Thread(collector-7")
    assert describe_leaks(before, grace_s=0) == ""


def test_thread_about_to_end_is_waited_for() -> None:
    before, stop = look(), threading.Event()
    threading.Thread(target=stop.wait).start()
    threading.Timer(0.05, stop.set).start()

    assert describe_leaks(before, grace_s=10) == ""


def test_child_process_is_a_leak() -> None:
    before = look()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)

    leaks = describe_leaks(before, grace_s=0)

    child.communicate(b"\n")
    assert leaks == f"child processes: {child.pid}"
    assert describe_leaks(before, grace_s=0) == ""


def test_open_socket_is_a_leak() -> None:
    before = look()

    with socket.socket():
        leaks = describe_leaks(before, grace_s=0)

    assert leaks.startswith("sockets: socket:[")
    assert describe_leaks(before, grace_s=0) == ""


def test_shared_memory_is_a_leak_until_it_is_unlinked() -> None:
    before = look()
    block = SharedMemory(create=True, size=8)
    block.close()

    leaks = describe_leaks(before, grace_s=0)

    block.unlink()
    assert leaks == f"shared memory: {block.name}"
    assert describe_leaks(before, grace_s=0) == ""


def test_shared_memory_of_another_process_is_not_ours() -> None:
    before = look()
    code = (
        "from multiprocessing.shared_memory import SharedMemory\n"
        "block = SharedMemory(create=True, size=8)\n"
        "print(block.name, flush=True)\n"
        "input()\n"
        "block.close()\n"
        "block.unlink()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        name = other.stdout.readline().decode().strip()

        leaks = describe_leaks(before, grace_s=0)

        other.communicate(b"\n")
    assert name and name not in leaks


def test_resource_tracker_is_benign() -> None:
    before = look()

    resource_tracker.ensure_running()
    multiprocessing.get_context("spawn").Lock()

    assert describe_leaks(before, grace_s=0) == ""
