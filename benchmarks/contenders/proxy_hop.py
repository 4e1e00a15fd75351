"""What the inference proxy adds to a request and its reply: one client asks one server with and without it, in turn."""

from __future__ import annotations

import argparse
import multiprocessing
import time
from contextlib import ExitStack
from multiprocessing.synchronize import Event

from benchmarks.common import emit, emit_versions  # isort: skip  (pins the threads first)

import numpy as np
from ding_like.pipeline.seed.proxy_process import InferenceProxy

from ding_like.comm.zmq.frames import encode
from ding_like.comm.zmq.proxy import BEAT, BEAT_S, BYE, HELLO
from ding_like.comm.zmq.sockets import EndpointFolder, Poller, Socket, open_socket

_SOON_S = 10.0
_BLOCK = 200  # requests by one way before the other has its turn


def main() -> None:
    """Ask, and print the microseconds of a round trip and of the proxy's part in it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20_000, help="requests by each way")
    parser.add_argument("--nbytes", type=int, default=128, help="of the observations in a request")
    args = parser.parse_args()
    emit_versions("pyzmq", "numpy")
    request = encode({"kind": "infer", "id": 1}, {"obs": np.zeros(args.nbytes, np.uint8)})
    with ExitStack() as stack:
        folder = stack.enter_context(EndpointFolder())
        proxy = stack.enter_context(InferenceProxy(folder.endpoint("clients"), folder.endpoint("servers")))
        proxy.start()
        _start_server(stack, folder.endpoint("direct"), proxy.server_endpoint)
        # The direct way has a router at its end, too: what differs is one process in between.
        ways = [
            stack.enter_context(open_socket("dealer", connect=endpoint, identity="actor1.1"))
            for endpoint in (folder.endpoint("direct"), proxy.client_endpoint)
        ]
        took_s: list[list[float]] = [[], []]
        for _ in range(max(args.steps // _BLOCK, 1)):
            for way, found in zip(ways, took_s, strict=True):
                found += [_ask(way, request) for _ in range(_BLOCK)]
        counts = proxy.counts()
    assert counts is not None
    for name, percentile in (("p50", 50), ("p99", 99)):
        direct, through = (1e6 * np.percentile(each[_BLOCK:] or each, percentile) for each in took_s)
        emit(f"direct_{name}", round(direct, 1), "us")
        emit(f"through_proxy_{name}", round(through, 1), "us")
        emit(f"proxy_hop_{name}", round((through - direct) / 2, 1), "us")  # a request and a reply pass it
    emit("proxy_cpu_mean", round(counts.cpu_us, 1), "us")


def _ask(way: Socket, request: list[bytes | memoryview]) -> float:
    begun_s = time.perf_counter()
    assert way.send(request)
    assert way.raw.poll(1000 * _SOON_S), "no reply"
    way.receive()
    return time.perf_counter() - begun_s


def _start_server(stack: ExitStack, direct: str, servers: str) -> None:
    context = multiprocessing.get_context("spawn")
    ready, stop = context.Event(), context.Event()
    server = context.Process(target=_serve, args=(direct, servers, ready, stop), daemon=True)
    server.start()
    stack.callback(server.join, _SOON_S)
    stack.callback(stop.set)
    assert ready.wait(6 * _SOON_S), "the server has not started"


def _serve(direct: str, servers: str, ready: Event, stop: Event) -> None:
    with (
        open_socket("router", bind=direct) as near,
        open_socket("dealer", connect=servers, identity="server1.1") as far,
    ):
        far.send([b"", HELLO])
        ready.set()
        poller, beaten_s = Poller(near, far), time.monotonic()
        while not stop.is_set():
            for socket in poller.wait(BEAT_S):
                while isinstance(socket, Socket) and (frames := socket.receive()) is not None:
                    if len(frames[0]):
                        socket.send(frames[:2])  # the head is the reply
            if time.monotonic() - beaten_s >= BEAT_S:
                beaten_s = time.monotonic()
                far.send([b"", BEAT])
        far.send([b"", BYE])
        far.raw.poll(1000 * BEAT_S)  # until the next ping: it has been sent by then


if __name__ == "__main__":
    main()
