"""Stand between sources and their driver, and lose, repeat, delay and garble what passes, by a seed."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ding_like.comm.zmq.sockets import Poller, Socket, Wake, open_socket

_TICK_S = 0.02  # a message that is late comes after some others, or after so long
_JOIN_S = 10.0


class FaultyRelay:
    """Relay between the sockets that connect to `endpoint` and the router at `target`, with faults.

    `faults` are chances: `lost`, `repeated`, `late` (others overtake it) of messages in both directions, and `garbled`
    of those to the target. `counts` says how often each came true. `heal` ends the faults.
    """

    def __init__(self, endpoint: str, target: str, *, seed: int = 0, **faults: float) -> None:
        self._target = target
        self._rng = random.Random(seed)
        self._faults: Mapping[str, float] = faults
        self.counts: Counter[str] = Counter()
        self._front = open_socket("router", bind=endpoint)
        self.endpoint = self._front.endpoint
        self._wake = Wake()
        self._backs: dict[bytes, Socket] = {}
        self._late: list[tuple[Socket, list[Any]]] = []
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._thread.start()

    def heal(self) -> None:
        self._faults = {}

    def close(self) -> None:
        self._is_closed = True
        self._wake.wake()
        self._thread.join(_JOIN_S)
        for socket in (self._front, *self._backs.values()):
            socket.close()
        self._wake.close()

    def _run(self) -> None:
        while not self._is_closed:
            ready = Poller(self._front, self._wake, *self._backs.values()).wait(_TICK_S)
            if not ready:
                self._release()
            while (frames := self._front.receive()) is not None:
                self._pass(self._back(bytes(frames[0])), list(frames[1:]), can_garble=True)
            for identity, back in list(self._backs.items()):
                while (frames := back.receive()) is not None:
                    self._pass(self._front, [identity, *frames], can_garble=False)

    def _back(self, identity: bytes) -> Socket:
        if identity not in self._backs:
            self._backs[identity] = open_socket("dealer", connect=self._target)
        return self._backs[identity]

    def _pass(self, receiver: Socket, frames: list[Any], *, can_garble: bool) -> None:
        frames = [bytes(frame) for frame in frames]
        self.counts["passed"] += 1
        if can_garble and self._comes_true("garbled"):
            frames = self._garbled(frames)
        if self._comes_true("late"):
            self._late.append((receiver, frames))
            return
        if not self._comes_true("lost"):
            receiver.send(frames)
        if self._comes_true("repeated"):
            receiver.send(frames)
        if self._late and self._rng.random() < 0.5:
            self._release()

    def _release(self) -> None:
        late, self._late = self._late, []
        self._rng.shuffle(late)
        for receiver, frames in late:
            receiver.send(frames)

    def _comes_true(self, fault: str) -> bool:
        if self._rng.random() >= self._faults.get(fault, 0.0):
            return False
        self.counts[fault] += 1
        return True

    def _garbled(self, frames: Sequence[bytes]) -> list[bytes]:
        """Return a message that no socket of ours sends: cut, with a frame too many or too few, or with a torn head."""
        head, *rest = frames
        return self._rng.choice(
            [
                [head[: len(head) // 2], *rest],
                [head, *rest, b"more"],
                [head, *rest[:-1]] if rest else [b""],
                [head, *[frame[:-1] for frame in rest]] if rest else [b"[]"],
                [bytes(self._rng.randrange(256) for _ in range(64))],
                [head.replace(b'"number"', b'"rebmun"').replace(b'"name"', b'"eman"'), *rest],
            ]
        )
