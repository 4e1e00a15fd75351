"""A run in little, over tcp, with one honest actor, reader and client: what a stranger must not disturb."""

from __future__ import annotations

import random
import socket
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ding_like.comm.channels import Segment, Version, Weights
from ding_like.comm.keys import SeedKeys
from ding_like.comm.tensors import flatten_state
from ding_like.comm.workers.processes import ChildThread
from ding_like.comm.zmq import load_zmq
from ding_like.comm.zmq.inference import InferenceClient, InferenceProxy
from ding_like.comm.zmq.rows import RowServer, ZmqRowSink
from ding_like.comm.zmq.sockets import Socket, decode, open_socket, tcp_endpoint
from ding_like.comm.zmq.weights import Broadcaster, WeightSocket
from ding_like.data.batch import TransitionBatch
from ding_like.pipeline.seed.servers import InferenceServer, ServerSettings
from ding_like.policy import Policy
from ding_like.policy.forward import check_acts_remotely
from tests.comm.zmq.hostile.messages import MAKERS, Stranger, raw_bytes
from tests.contracts.policy_cases import ACTING, OBS, make

PATIENCE_S = 60.0
HONEST = "actor1"
_COLUMNS = {"obs": ("<f4", (4,)), "reward": ("<f4", ())}


def memory_mib() -> float:
    """Return the memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20


class Factories:
    """Stand-in for SchemeFactories, which makes a policy that acts."""

    def actor(self, device: str) -> Policy:
        return make(ACTING["drqn"], seed=1)


class Stage:
    """Bound sockets of a run; `check` asserts that the honest peers are served as if they were alone."""

    def __init__(self, keys: SeedKeys | None = None) -> None:
        here = tcp_endpoint("127.0.0.1")
        self.weights = Broadcaster(endpoint=here, keys=keys)
        self.weights.start()
        self.proxy = InferenceProxy(here, here, keys=keys)
        self.proxy.start()
        welcome = {"servers": self.proxy.server_endpoint, "weights": self.weights.endpoint}
        self.rows = RowServer(here, keys=keys, credit=2, welcome=welcome).start()
        self._policy = Factories().actor("cpu")
        self._forward = check_acts_remotely(self._policy).forward
        self._state = {name: np.stack([value] * 2) for name, value in self._forward.initial_state.items()}
        self.turns = 0
        self._publish()
        settings = ServerSettings(Factories(), self.rows.endpoint, keys=keys)  # type: ignore[arg-type]  # stands for them
        self.server = ChildThread(InferenceServer(settings))
        self.server.start()
        self.endpoints = {
            "data": self.rows.endpoint,
            "weights": self.weights.endpoint,
            "clients": self.proxy.client_endpoint,
        }
        if keys is not None:  # else a stranger there is a server like any other
            self.endpoints["servers"] = self.proxy.server_endpoint
        self.sink = ZmqRowSink(self.rows.endpoint, name=HONEST, run_id=1, keys=keys, patience_s=PATIENCE_S)
        self.sink.join()
        self.reader = WeightSocket(self.weights.endpoint, keys=keys)
        client: dict[str, Any] = dict(name=HONEST, run_id=1, keys=keys, patience_s=PATIENCE_S)
        self.client = InferenceClient(self.proxy.client_endpoint, **client, request_timeout_s=1.0)
        self.others = Counter[str]()  # rows by source of those that are not honest
        self.check()

    def _publish(self) -> Version:
        version = Version(1, self.turns)
        self.weights.publish(Weights("policy", version, flatten_state(self._policy.collect_mode.state_dict())))
        return version

    def check(self) -> None:
        """Have the honest ones take a turn: rows arrive once and unchanged, weights and answers are the right ones."""
        self.turns += 1
        self._check_rows()
        version = self._publish()
        newest = self.reader.wait(PATIENCE_S)
        while newest is not None and newest.version < version:
            newest = self.reader.wait(PATIENCE_S)
        assert newest is not None and newest.version == version
        own = flatten_state(self._policy.collect_mode.state_dict())
        assert newest.state.keys() == own.keys() and all(torch.equal(each, own[n]) for n, each in newest.state.items())
        self._check_inference(version)
        assert self.server.is_alive(), self.server.error()

    def _check_inference(self, version: Version) -> None:
        """Go on with an episode of two lanes, with the newest weights."""
        self.client.least = version
        obs = np.full((2, OBS), self.turns % 7, np.float32)
        reply = self.client.evaluate_model(obs, state=self._state)
        output, after = self._forward(obs, self._state)
        assert reply.version == version
        np.testing.assert_allclose(reply.output, output, rtol=1e-5, atol=1e-6)
        for name, column in after.items():
            np.testing.assert_allclose(reply.state[name], column, rtol=1e-5, atol=1e-6)
        self._state = {name: column.copy() for name, column in reply.state.items()}

    def _check_rows(self) -> None:
        # A stranger who has joined gets orders as everybody does: then what he sends is looked at to the end.
        for name in self.rows.sources():
            self.rows.give(name, 3, env_step=self.turns, newest=Version(1, 1))
        order = self.sink.order(timeout_s=PATIENCE_S)
        assert (order.rows, order.env_step) == (3, self.turns)
        batch = TransitionBatch(
            {"obs": np.full((3, 4), self.turns, np.float32), "reward": np.arange(3, dtype=np.float32)}
        )
        self.sink.put(Segment(batch, Version(1, 1), 3))
        deadline_s, came = time.monotonic() + PATIENCE_S, 0
        while not came:
            assert time.monotonic() < deadline_s
            for arrived in self.rows.take(0.5):
                columns = arrived.segment.batch.columns  # type: ignore[union-attr]  # rows that stack
                assert {name: (each.dtype.str, each.shape[1:]) for name, each in columns.items()} == _COLUMNS
                if arrived.source == HONEST:
                    came += 1
                    assert np.array_equal(columns["obs"], batch.columns["obs"])
                else:
                    self.others[arrived.source] += len(arrived.segment.batch)
                self.rows.acknowledge(arrived)
        assert came == 1

    def close(self) -> None:
        for part in (self.sink, self.client, self.reader):
            part.close()
        self.server.terminate()
        self.server.join(60.0)
        self.server.release()
        self.proxy.stop()
        self.weights.close()
        self.rows.close()


class Strangers:
    """Send what is malformed to every bound socket; `counts` says how much of each kind."""

    def __init__(
        self, endpoints: Mapping[str, str], *, seed: int, keys: SeedKeys | None = None, wait_s: float = 1.0
    ) -> None:
        self._endpoints = endpoints
        self._keys = keys
        self._wait_s = wait_s  # for room in a queue: a peer that is kept out has none at last
        self._random = random.Random(seed)
        self._sockets: dict[str, Socket] = {}
        self._last: dict[str, list[bytes]] = {}
        self._known = [Stranger(f"fuzz{number}") for number in range(5)]
        self.counts: Counter[str] = Counter()
        self.num_by_target: Counter[str] = Counter()

    def send(self, number: int) -> None:
        """Send so many messages, a few of which are no messages of ZeroMQ at all."""
        for _ in range(number):
            target = self._random.choice(sorted(self._endpoints))
            self.num_by_target[target] += 1
            if self._random.random() < 0.02:
                self._send_raw(self._endpoints[target])
            else:
                self._send_message(target)

    def _send_message(self, target: str) -> None:
        random = self._random
        # The driver hears mostly of one, whose orders and answers are then those of what is sent next.
        own = self._known[0] if target == "data" and random.random() < 0.8 else random.choice(self._known)
        if target not in self._sockets or random.random() < 0.01:
            self._connect(target)
        self._hear(target)
        kind = random.choice(sorted(MAKERS))
        if random.random() < 0.1 and target in self._last:
            kind, frames = "replays", self._last[target]
        else:
            frames = MAKERS[kind](random, own)
        if target == "servers":
            frames = random.choice([frames, [b"fuzz.1", *frames], [b"", *frames]])
        self._last[target] = frames
        self.counts[kind] += 1
        if self._sockets[target].raw.poll(1000 * self._wait_s, load_zmq().POLLOUT):
            self._sockets[target].send(frames)

    def _hear(self, target: str) -> None:
        """Take note of orders, and of what came, by which later messages are believed for longer."""
        while (frames := self._sockets[target].receive()) is not None:
            if target != "data":
                continue
            head = decode(frames, max_nbytes=10**6).head
            own = self._known[0]
            if head["kind"] in ("ack", "refused") and "number" in head:
                own.number = head["number"] + 1

    def _connect(self, target: str) -> None:
        if target in self._sockets:
            self._sockets[target].close()
        name = self._random.choice((None, "fuzz.1", self._random.randbytes(9).replace(b"\0", b"x")))
        self._sockets[target] = open_socket(
            "dealer", connect=self._endpoints[target], identity=name, hwm=100, keys=self._keys
        )

    def _send_raw(self, endpoint: str) -> None:
        self.counts["no ZeroMQ"] += 1
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        with socket.create_connection((host, int(port)), timeout=5.0) as connection:
            try:
                connection.sendall(raw_bytes(self._random))
            except OSError:  # it was cut off before it had said all
                self.counts["no ZeroMQ, cut off"] += 1

    def close(self) -> None:
        for each in self._sockets.values():
            each.close()
