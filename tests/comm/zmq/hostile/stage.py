"""A run in little, over tcp, with one honest actor, reader and client: what a stranger must not disturb."""

from __future__ import annotations

import json
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ding_like.comm.channels import Segment, Version, Weights
from ding_like.comm.keys import SeedKeys
from ding_like.comm.tensors import flatten_state
from ding_like.comm.workers.processes import ChildThread
from ding_like.comm.zmq import inference, load_zmq
from ding_like.comm.zmq.inference import InferenceClient, InferenceProxy
from ding_like.comm.zmq.rows import PROTOCOL, RowServer, ZmqRowSink
from ding_like.comm.zmq.sockets import Socket, decode, encode, open_socket, tcp_endpoint
from ding_like.comm.zmq.weights import Broadcaster, WeightSocket
from ding_like.data.batch import TransitionBatch
from ding_like.pipeline.seed.servers import InferenceServer, ServerSettings
from ding_like.policy import Policy
from ding_like.policy.forward import check_acts_remotely
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


Frames = list[bytes]


@dataclass
class Stranger:
    """Name and numbers of a stranger, by which some of its messages are checked to a later point."""

    name: str
    run_id: int = 1
    number: int = 1


_WORDS = ("hello", "segment", "ask", "stats", "error", "infer", "reply", "welcome", "order", "stop", "weights", "x", "")
_KEYS = (
    "kind", "name", "run_id", "instance", "role", "protocol", "number", "version", "env_steps", "rows", "stats",
    "have", "text", "id", "client", "least", "number", "has", "session", "arrays", "x",
)  # fmt: skip
_DTYPES = "float32 float64 int64 bool uint8 object O V16 U4 datetime64[ns] complex64".split() + [""]
_NUMBERS = (0, 1, -1, 2, 7, 2**31, 2**32, 2**53 - 1, 2**53, 2**63, 2**64, 10**30, -(2**63), 0.5, -0.0, 1e308)


def plain(random: random.Random, depth: int = 2) -> Any:
    """Return some JSON."""
    choices: list[Callable[[], Any]] = [
        lambda: None,
        lambda: random.random() < 0.5,
        lambda: random.choice(_NUMBERS),
        lambda: float(random.choice(("nan", "inf", "-inf"))),
        lambda: random.choice(_WORDS),
        lambda: "".join(chr(random.randrange(1, 0x2FF)) for _ in range(random.randrange(20))),
        lambda: "x" * random.choice((100, 1_025, 70_000)),
    ]
    if depth:
        choices += [
            lambda: [plain(random, depth - 1) for _ in range(random.randrange(4))],
            lambda: {str(plain(random, 0))[:40]: plain(random, depth - 1) for _ in range(random.randrange(4))},
        ]
    return random.choice(choices)()


def good(random: random.Random, own: Stranger) -> Frames:
    """Return a message such as parts of a run send to one of its ends."""
    name = own.name
    sender = {"name": name, "run_id": own.run_id, "instance": "a"}
    rows = random.choice((1, 3))
    noise = np.frombuffer(random.randbytes(4 * 4 * rows), np.float32).reshape(rows, 4)
    head, arrays = random.choice(
        [
            ({"kind": "hello", "role": random.choice(("actor", "server")), "protocol": PROTOCOL, **sender}, {}),
            ({"kind": "ask", "have": 0, **sender}, {}),
            ({"kind": "stats", "stats": {"a": 1.0}, **sender}, {}),
            ({"kind": "error", "text": "it broke", **sender}, {}),
            (
                {
                    "kind": "segment", "number": own.number, "rows": rows,
                    "version": [1, 1], "env_steps": rows, "stats": {}, **sender,
                },
                {"columns/obs": noise, "columns/reward": noise[:, 0], "observed/obs_norm/sum": noise[0]},
            ),
            ({"kind": "ask", "number": random.choice((1, 5)), "has": [0, 1]}, {}),
        ]
    )  # fmt: skip
    memory = random.choice(({}, {"lstm": noise}))
    request = inference.Request(
        name, own.run_id, random.randrange(9), random.choice((None, Version(1, 1), Version(9, 9))),
        inference.inputs_of(noise[:, : random.choice((3, 3, 4))], {}, memory),
    )  # fmt: skip
    frames = random.choice(
        [
            encode(head, arrays),
            encode(head, arrays),
            inference.encode_request(request),
            inference.encode_answer(random.randrange(5), inference.Reply(noise, {}, Version(9, 9))),
        ]
    )
    return [bytes(frame) for frame in frames]


def _noise(random: random.Random, own: Stranger) -> Frames:
    return [random.randbytes(random.choice((0, 1, 7, 40, 1_000))) for _ in range(random.randrange(1, 6))]


def _flipped(random: random.Random, own: Stranger) -> Frames:
    frames = [bytearray(frame) for frame in good(random, own)]
    for _ in range(random.randrange(1, 8)):
        frame = random.choice(frames)
        if frame:
            frame[random.randrange(len(frame))] ^= 1 << random.randrange(8)
    return [bytes(frame) for frame in frames]


def _wrong_fields(random: random.Random, own: Stranger) -> Frames:
    frames = good(random, own)
    head = json.loads(frames[0])
    for _ in range(random.randrange(1, 4)):
        key = random.choice(_KEYS)
        if random.random() < 0.3:
            head.pop(key, None)
        elif key != "name":  # else it may be the name of one who works
            head[key] = plain(random)
    return [json.dumps(head).encode(errors="surrogatepass"), *frames[1:]]


def _wrong_arrays(random: random.Random, own: Stranger) -> Frames:
    """Claim another dtype, shape or name than the bytes have, giant ones too."""
    frames = good(random, own)
    head = json.loads(frames[0])
    described = head["arrays"] or [["columns/obs", "float32", [1, 4]]]
    entry = random.choice(described)
    place = random.randrange(3)
    entry[place] = (
        plain(random) if place == 0
        else random.choice(_DTYPES) if place == 1
        else random.choice(([2**62, 2**62], [2**40], [0, 2**52], [-1], [1.5], [], [1] * 40, plain(random)))
    )  # fmt: skip
    if random.random() < 0.2:
        described.append(list(entry))
        frames.append(frames[-1])
    head["arrays"] = described
    return [json.dumps(head).encode(errors="surrogatepass"), *frames[1:]]


def _wrong_sizes(random: random.Random, own: Stranger) -> Frames:
    frames = good(random, own)
    place = random.randrange(len(frames))
    change = random.choice((lambda each: each[:-1], lambda each: each + b"\0", lambda each: each * 3, lambda each: b""))
    frames[place] = change(frames[place])
    return frames


def _wrong_parts(random: random.Random, own: Stranger) -> Frames:
    """Cut a message short, repeat its frames, or send very many."""
    frames = good(random, own)
    return random.choice(
        [
            frames[: random.randrange(len(frames))] or [b""],
            frames[1:] or [b""],
            frames[::-1],
            frames * 2,
            [b"", *frames],
            [frames[0], *[b"x"] * random.choice((100, 5_000))],
        ]
    )


def _deep(random: random.Random, own: Stranger) -> Frames:
    return [random.choice((b"[" * 200_000, b'{"a":' * 100_000, b"9" * 100_000, b'{"kind": "hello"' + b" " * 10**6))]


def _not_finite(random: random.Random, own: Stranger) -> Frames:
    frames = good(random, own)
    return [frames[0], *[struct.pack("<f", float("nan")) * (len(frame) // 4) for frame in frames[1:]]]


MAKERS: dict[str, Callable[[random.Random, Stranger], Frames]] = {
    "random bytes": _noise,
    "bits flipped": _flipped,
    "wrong fields": _wrong_fields,
    "wrong dtypes, shapes and giant claims": _wrong_arrays,
    "wrong sizes": _wrong_sizes,
    "frames missing, repeated or too many": _wrong_parts,
    "deep or endless heads": _deep,
    "numbers that are not finite": _not_finite,
    "good ones of a stranger": good,
}


def raw_bytes(random: random.Random) -> bytes:
    """Return what speaks ZeroMQ's protocol (ZMTP 3, RFC 23) for a while, or not at all."""
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
    kind = b"\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
    ready = b"\x04" + bytes([len(kind) + 6]) + b"\x05READY" + kind
    giant = b"\x02" + struct.pack(">Q", random.choice((2**33, 2**62, 2**64 - 1)))
    return random.choice(
        [
            random.randbytes(random.choice((1, 10, 64, 500))),
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            greeting[: random.randrange(64)],
            greeting + random.randbytes(40),
            greeting + ready + giant + random.randbytes(100),
            greeting + ready + b"\x03" + giant[1:] + random.randbytes(100),
            greeting + ready + b"\x00\x05hello" + random.randbytes(30),
            greeting.replace(b"NULL", b"CURV") + random.randbytes(200),
        ]
    )
