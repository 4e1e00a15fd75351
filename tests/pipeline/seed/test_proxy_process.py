"""The proxy's process tells its ports, can be killed and started again, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing import connection
from pathlib import Path

import pytest
from ding_like.pipeline.seed.proxy_process import InferenceProxy

from ding_like.comm.zmq.keys import load_seed_keys, make_seed_keys
from ding_like.comm.zmq.proxy import BEAT
from ding_like.errors import CommError
from ding_like.utils.processes import wait_for_end
from tests.comm.zmq.proxy_ends import SOON_S, End
from tests.pipeline.seed.stage import is_running
from tests.support import wait_until

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def proxy() -> Iterator[InferenceProxy]:
    """Give a proxy whose servers need not beat."""
    with InferenceProxy(silent_s=1000.0) as proxy:
        yield proxy


def ask(client: End, server: End, request: bytes) -> None:
    """Send a request, and the reply to it."""
    client.send(request)
    assert server.receive() == [b"actor1.1", request]
    server.send(b"actor1.1", b"reply to " + request)
    assert client.receive() == [b"reply to " + request]


def test_a_killed_proxy_is_seen_and_another_serves_the_same_ports(proxy: InferenceProxy) -> None:
    router_port, dealer_port = ports = proxy.start()
    assert proxy.client_endpoint == f"tcp://127.0.0.1:{router_port}"
    assert proxy.server_endpoint == f"tcp://127.0.0.1:{dealer_port}"
    assert not connection.wait([proxy.sentinel], 0.05), "it is quiet while the proxy lives"
    with End(proxy.client_endpoint, b"actor1.1") as client, End(proxy.server_endpoint, b"server1.1") as server:
        server.hello()
        ask(client, server, b"1")
        proxy.kill()
        assert connection.wait([proxy.sentinel], SOON_S)
        assert not proxy.is_alive() and proxy.exitcode == -signal.SIGKILL
        assert proxy.how_it_ended() == "was killed by SIGKILL"

        assert proxy.start() == ports
        server.send(b"", BEAT)
        ask(client, server, b"2")


def test_counts_are_those_of_the_process(proxy: InferenceProxy) -> None:
    assert proxy.counts() is None
    proxy.start()
    with End(proxy.client_endpoint, b"actor1.1") as client, End(proxy.server_endpoint, b"server1.1") as server:
        server.hello()
        for _ in range(3):
            ask(client, server, b"request")

        # A reply is there before it is counted.
        wait_until(lambda: proxy.counts().replies == 3)  # type: ignore[union-attr]
        counts = proxy.counts()

    assert counts is not None
    assert (counts.clients, counts.servers, counts.requests, counts.replies) == (1, 1, 3, 3)
    assert counts.cpu_us > 0
    proxy.kill()
    assert proxy.counts() is None


def test_stop_ends_the_process_with_status_0_and_may_be_called_again(proxy: InferenceProxy) -> None:
    proxy.start()
    with pytest.raises(CommError, match="running"):
        proxy.start()
    pid = proxy.pid
    assert pid is not None
    proxy.stop()
    proxy.stop()

    assert proxy.exitcode == 0
    assert not Path(f"/proc/{pid}").exists()


def test_a_process_that_cannot_start_says_why(proxy: InferenceProxy) -> None:
    proxy.start()
    with InferenceProxy(proxy.client_endpoint) as second, pytest.raises(CommError, match=r"in use.*"):
        second.start()
    with InferenceProxy(nonsense=1.0) as other, pytest.raises(CommError, match="ended with status 1"):
        other.start()


def test_warnings_go_to_the_log(tmp_path: Path) -> None:
    with InferenceProxy(silent_s=0.2, log=tmp_path / "proxy.txt") as proxy:
        proxy.start()
        with End(proxy.server_endpoint, b"server1.1") as server:
            server.hello()
            wait_until(lambda: proxy.counts().lost)  # type: ignore[union-attr]

    assert "b'server1.1' has said nothing for 0.2 s" in (tmp_path / "proxy.txt").read_text()


def test_the_process_has_the_keys_that_it_was_given(tmp_path: Path) -> None:
    driver_file, worker_file = make_seed_keys(tmp_path / "keys.json", ["worker"])
    worker = load_seed_keys(worker_file)
    with InferenceProxy(keys=load_seed_keys(driver_file), silent_s=1000.0) as proxy:
        proxy.start()
        with (
            End(proxy.client_endpoint, b"stranger.1") as stranger,
            End(proxy.client_endpoint, b"actor1.1", keys=worker) as client,
            End(proxy.server_endpoint, b"server1.1", keys=worker) as server,
        ):
            stranger.send(b"request")
            server.hello()
            ask(client, server, b"request")
            counts = proxy.counts()

    assert counts is not None and counts.clients == 1


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the end of another's child is seen by Linux only")
@pytest.mark.slow
@pytest.mark.parametrize("forks", [False, True], ids=["alone", "a fork of the parent lives on"])
def test_the_process_ends_with_its_parent(forks: bool) -> None:
    program = """
import os, sys, time
from ding_like.pipeline.seed.proxy_process import InferenceProxy
proxy = InferenceProxy()
proxy.start()
child = os.fork() if {forks} else 0
if {forks} and not child:
    os.close(1)
    time.sleep(60)  # holds the parent's end of every pipe
    os._exit(0)
print(proxy.pid, child, flush=True)
os.kill(os.getpid(), 9)
"""
    parent = subprocess.run(
        [sys.executable, "-c", program.format(forks=forks)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, stdout=subprocess.PIPE, timeout=60, check=False,
    )  # fmt: skip
    pid, child = map(int, parent.stdout.split())
    try:
        wait_for_end(pid, timeout_s=SOON_S)
        assert not is_running(pid)
    finally:
        if child:
            os.kill(child, signal.SIGKILL)
