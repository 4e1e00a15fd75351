"""Remember what each caller sent last, so that no request is taken twice; no caller's requests push out another's."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import TypeVar

from ding_like.comm.rest.refusal import RefusedError
from ding_like.comm.rest.service import Stamp

K = TypeVar("K")
V = TypeVar("V")

# Of each role. A caller beyond these is forgotten; what it then sends again is still answered once by its number.
_MAX_CALLERS = 4096
_MAX_CHANNELS = 64  # of one worker: its threads
_MAX_NONCES = 64  # of one channel's last number: so often was it sent again


class _Channel:
    __slots__ = ("nonces", "number")

    def __init__(self) -> None:
        self.number = 0
        self.nonces: deque[str] = deque(maxlen=_MAX_NONCES)


class TurnMemory:
    """Refuse a request that was sent before. Threads may share one.

    A channel of a worker has one message on its way at a time and its numbers grow, so the last number says which
    messages are old, and nothing else is kept of them: how many requests there are in all does not matter.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channels: dict[str, OrderedDict[str, OrderedDict[str, _Channel]]] = {}  # role -> worker -> channel
        self._loose: dict[str, OrderedDict[str, deque[str]]] = {}  # role -> client -> last nonces

    def take(self, role: str, worker: str, stamp: Stamp, nonce: str) -> None:
        """Take a worker's message; its number may come again, with another nonce. Raises RefusedError for a replay."""
        with self._lock:
            workers = self._channels.setdefault(role, OrderedDict())
            channels = _touch(workers, worker, _MAX_CALLERS, OrderedDict)
            channel = _touch(channels, stamp.channel, _MAX_CHANNELS, _Channel)
            if stamp.number < channel.number:
                raise RefusedError("old_message", f"message {stamp.number} of {stamp.channel} has been overtaken")
            if stamp.number > channel.number:
                channel.number = stamp.number
                channel.nonces.clear()
            _note(channel.nonces, nonce)

    def take_loose(self, role: str, client: str, nonce: str) -> None:
        """Take a request of a client that is not a worker yet; such requests may come twice without harm."""
        with self._lock:
            clients = self._loose.setdefault(role, OrderedDict())
            _note(_touch(clients, client, _MAX_CALLERS, lambda: deque(maxlen=_MAX_NONCES)), nonce)

    def sizes(self) -> Mapping[str, int]:
        """Return how many callers are remembered, by role."""
        with self._lock:
            roles = {*self._channels, *self._loose}
            return {role: len(self._channels.get(role, ())) + len(self._loose.get(role, ())) for role in roles}


def _note(nonces: deque[str], nonce: str) -> None:
    if nonce in nonces:
        raise RefusedError("bad_key", "the request was sent before")
    nonces.append(nonce)


def _touch(table: OrderedDict[K, V], name: K, limit: int, make: Callable[[], V]) -> V:
    """Return the entry of a name, new if there is none; the one that was not asked for longest goes."""
    entry = table.get(name)
    if entry is None:
        entry = table[name] = make()
        if len(table) > limit:
            table.popitem(last=False)
    else:
        table.move_to_end(name)
    return entry
