"""Make messages that no part of a run sends: bytes at random, and good ones with something wrong about them."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ding_like.comm.channels import Version
from ding_like.comm.zmq.inference import Reply, Request, encode_answer, encode_request, inputs_of
from ding_like.comm.zmq.rows import PROTOCOL
from ding_like.comm.zmq.sockets import encode

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
    request = Request(
        name, own.run_id, random.randrange(9), random.choice((None, Version(1, 1), Version(9, 9))),
        inputs_of(noise[:, : random.choice((3, 3, 4))], {}, memory),
    )  # fmt: skip
    frames = random.choice(
        [
            encode(head, arrays),
            encode(head, arrays),
            encode_request(request),
            encode_answer(random.randrange(5), Reply(noise, {}, Version(9, 9))),
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
