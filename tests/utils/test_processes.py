"""A child notices its parent's end, a process ends with its status, folders of dead processes are deleted."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from ding_like.errors import ConfigError
from ding_like.utils import processes
from ding_like.utils.processes import (
    check_known,
    coordinator_url,
    forget_child,
    is_loopback,
    make_own_folder,
    reachable,
    reachable_url,
    start_child,
    start_of,
    sweep,
    watch_parent,
)

CHILD = """
import os, sys, threading
from ding_like.utils.processes import watch_parent
ended = threading.Event()
assert watch_parent(ended.set) and not watch_parent(ended.set)
print(os.getpid(), flush=True)
os.write(1, b"ended" if ended.wait(20) else b"still there")
"""
PARENT = """
import sys
from ding_like.utils.processes import start_child
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


ENDING = """
import atexit, sys
from ding_like.utils.processes import end_process, skip_finalisation
atexit.register(print, "finalised")
{skip}
try:
    print("said", end="")
    {act}
except BaseException as error:
    end_process(error)
    raise
end_process(None)
"""


def end(act: str, skip: str = "skip_finalisation()") -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", ENDING.format(act=act, skip=skip)], capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("act", "status"),
    [("pass", 0), ("sys.exit()", 0), ("sys.exit(143)", 143), ("sys.exit('why')", 1), ("raise OSError('why')", 1)],
)
def test_a_process_without_finalisation_ends_with_the_same_status_and_output(act: str, status: int) -> None:
    ended, said, errors = end(act)

    assert (ended, said) == (status, "said")
    assert ("why" in errors) == ("why" in act)


def test_other_processes_end_as_usual() -> None:
    assert end("sys.exit(3)", skip="") == (3, "saidfinalised\n", "")


MAKE = "import sys; from ding_like.utils.processes import *; print(make_own_folder('ding-t-', where=sys.argv[1]))"


def left_by_another(where: Path) -> Path:
    """Return a folder of a process that has ended without deleting it."""
    made = subprocess.run([sys.executable, "-c", MAKE, str(where)], capture_output=True, text=True, check=True)
    return Path(made.stdout.strip())


def test_what_a_dead_process_left_is_deleted_at_the_next_start(tmp_path: Path) -> None:
    left = left_by_another(tmp_path)
    (left / "data").mkdir()
    (left / "data" / "rows").write_bytes(b"x")

    own = make_own_folder("ding-t-", where=tmp_path)

    assert not left.exists() and list(tmp_path.iterdir()) == [own]
    assert own.stat().st_mode & 0o777 == 0o700


def test_folders_of_the_living_stay(tmp_path: Path) -> None:
    script = f"{MAKE}; sys.stdout.flush(); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = Path(other.stdout.readline().strip())
        own = make_own_folder("ding-t-", where=tmp_path)

        make_own_folder("ding-t-", where=tmp_path)

        assert theirs.is_dir() and own.is_dir()
        other.communicate("")
    assert sweep("ding-t-", tmp_path) == [theirs]


def test_another_process_with_the_same_id_is_another(tmp_path: Path) -> None:
    name = f"ding-t-{processes.machine_mark()}-{os.getpid():x}-{start_of(os.getpid()) - 1:x}-abc"
    (tmp_path / name).mkdir()

    assert [path.name for path in sweep("ding-t-", tmp_path)] == [name]


def test_what_may_be_somebody_elses_stays(tmp_path: Path) -> None:
    mine = processes.machine_mark()
    # Of another machine, without a start, not made by this function, and of another prefix; and a link.
    names = ["01234567-1-5-abc", f"{mine}-1-0-abc", "notes", f"more-{mine}-1-5-abc"]
    for name in names:
        (tmp_path / f"ding-t-{name}").mkdir()
    (tmp_path / f"ding-t-{mine}-1-5-abc").symlink_to(tmp_path)

    assert sweep("ding-t-", tmp_path) == [] and len(list(tmp_path.iterdir())) == 5


class NoWayOut(socket.socket):
    """Socket of a machine without a route to another network."""

    def connect(self, address: Any) -> None:
        raise OSError(101, "Network is unreachable")


def named(*addresses: str) -> Any:
    return lambda name, port, family: [(family, 1, 6, "", (each, 0)) for each in addresses]


def test_an_address_of_its_own_is_what_others_reach() -> None:
    for host in ["127.0.0.1", "10.0.0.5", "learner.example", "fe80::1"]:
        assert reachable(host) == host
    assert reachable("0.0.0.0") != "0.0.0.0" and not is_loopback("10.0.0.1")


def test_every_address_is_named_by_one_that_packets_leave_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", lambda self, address: None)
    monkeypatch.setattr(socket.socket, "getsockname", lambda self: ("10.1.2.3", 5))

    assert reachable("0.0.0.0") == "10.1.2.3"
    assert reachable_url("http://0.0.0.0:7000") == "http://10.1.2.3:7000"


@pytest.mark.parametrize(
    ("known", "found"), [(("127.0.1.1", "10.0.0.5"), "10.0.0.5"), (("127.0.1.1",), "127.0.0.1"), ((), "127.0.0.1")]
)
def test_without_a_way_out_the_machines_name_says_it(monkeypatch, known: tuple[str, ...], found: str) -> None:
    monkeypatch.setattr(socket, "socket", NoWayOut)
    monkeypatch.setattr(socket, "getaddrinfo", named(*known))

    assert reachable("0.0.0.0") == found


def test_a_url_of_version_six_keeps_its_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", NoWayOut)
    monkeypatch.setattr(socket, "getaddrinfo", named("2001:db8::7"))

    assert reachable_url("http://[::]:7000") == "http://[2001:db8::7]:7000"


def test_a_name_that_cannot_be_resolved_is_refused_with_the_option_and_the_fix() -> None:
    for host in ("nosuchhost.invalid", "a..b", "x" * 300):
        with pytest.raises(ConfigError, match=r"--host names the host '.*', which .* cannot resolve; give 1\."):
            check_known(host, "--host", "give 1")
    for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "*", "192.0.2.1"):
        check_known(host, "--host", "give 1")


def test_the_scheme_of_an_address_may_be_left_out_and_what_is_none_is_refused() -> None:
    for text in ("http://localhost:7311", "localhost:7311", "http://localhost:7311/"):
        assert coordinator_url(text) == "http://localhost:7311"
    for text in ("localhost", "ftp://localhost:7311", "http://:7311", "h:port", "h:99999", ""):
        with pytest.raises(ConfigError, match=r"expected http://HOST:PORT"):
            coordinator_url(text)
            pytest.fail(f"{text!r} is taken")


PROGRAM = """
import os, sys
from ding_like.utils.last_words import last_words
with last_words("it was killed"):
    if sys.argv[1] == "exit":
        os._exit(1)
    if sys.argv[1] == "raise":
        raise SystemExit("an error of its own")
"""


@pytest.mark.parametrize(
    ("end", "said"), [("exit", "it was killed\n"), ("raise", "an error of its own\n"), ("return", "")]
)
def test_only_a_process_that_ends_without_a_word_leaves_the_line(end: str, said: str) -> None:
    # The line comes after that process has ended: standard error ends when both have.
    run = subprocess.run([sys.executable, "-c", PROGRAM, end], capture_output=True, text=True, timeout=60, check=False)

    assert run.stderr == said
