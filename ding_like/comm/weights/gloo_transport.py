"""Send weights from a trainer to worker ranks by gloo, arranged through a store that all of them reach.

Where the process has a default group with the trainer as rank 0 and the workers as ranks 1..n, it is used. Such a
group cannot take a lost rank back, so a worker outside of it, or one that was restarted, is reached over a group of
two, which is made anew for each process of a worker (its "life").

Nothing is sent to a rank before it asks: gloo gives up a connection on which a send has waited too long, while a wait
for the store may be repeated. For push P, rank r describes itself under `NODE_{r}_ready_{P}`, and finds the description
of the weights, or "given up", under `NODE_{r}_head_{P}`.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from datetime import timedelta
from time import monotonic
from types import NoneType
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, ProcessGroupGloo, Store

from ding_like.comm.channels import Weights
from ding_like.comm.learner_group import use_loopback
from ding_like.comm.weights.encode import Encoded, decode, parse_head
from ding_like.comm.weights.gloo_wire import (
    DefaultGroupWire,
    GlooWire,
    gloo_reason,
    receive_bytes,
    seconds_left,
    send_bytes,
)
from ding_like.comm.weights.node_store import AnyStore, TorchStore, key_of
from ding_like.comm.weights.rank_transport import LostTransferError, Parcel, in_thread
from ding_like.errors import CommError

logger = logging.getLogger(__name__)

TRAINER = 0  # its rank in the default group
_MAX_HEAD = 2**23 - 2**12  # bytes; a TCPStore refuses more than 8 MiB
_LOOPBACK = ("localhost", "127.0.0.1", "::1", "ip6-localhost")
_GIVEN_UP = "given up"


def is_torch_store(store: AnyStore) -> bool:
    """Tell whether a store is one of `torch.distributed`, through which gloo finds its ranks."""
    return isinstance(store.raw if isinstance(store, TorchStore) else store, Store)


def in_default_group(rank: int) -> bool:
    """Tell whether this process is a rank of a default group that sends tensors of the CPU by gloo."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_rank() == rank):
        return False
    return "gloo" in dict(each.split(":") for each in dist.get_backend_config().split(",")).get("cpu", "")


class GlooSender:
    """Send to each rank in a thread and over a connection to the store of its own: the trainer's end."""

    def __init__(self, store: TorchStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._connections: dict[int, _RankConnection] = {}

    def start(self, ranks: Sequence[int], parcel: Parcel, *, timeout_s: float) -> Mapping[int, Future[None]]:
        """Begin to send to each rank; see `RankSender`."""
        head = json.dumps(parcel.encoded.head)
        if len(head) > _MAX_HEAD:
            raise CommError(
                f"the description of the weights has {len(head):,} bytes; a store takes at most {_MAX_HEAD:,}. Shorten "
                "the names of the tensors, or push parts of the model by updaters of their own."
            )
        return {rank: self._connection(rank).start(parcel, timeout_s) for rank in ranks}

    def _connection(self, rank: int) -> _RankConnection:
        with self._lock:
            if rank not in self._connections:
                self._connections[rank] = _RankConnection(self._store.clone(), rank)
            return self._connections[rank]

    def close(self) -> None:
        """Drop all connections; may be called again."""
        with self._lock:
            connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            connection.close()


class _RankConnection:
    """Send to one rank, one push after another."""

    def __init__(self, store: TorchStore, rank: int) -> None:
        self._store = store
        self._rank = rank
        self._busy = threading.Lock()
        self._unread: list[str] = []  # keys of pushes that were given up
        self._is_group_lost = False
        self._life = ""  # random id of the worker process at the other end of the pair
        self._pair_id = ""
        self._pair: GlooWire | None = None

    def start(self, parcel: Parcel, timeout_s: float) -> Future[None]:
        future: Future[None] = Future()
        deadline = monotonic() + timeout_s

        def send() -> None:
            failure = self._try_to_send(parcel, deadline)
            if failure:
                future.set_exception(CommError(failure))
            else:
                future.set_result(None)

        in_thread(send, [future], f"weights to rank {self._rank}")
        return future

    def _try_to_send(self, parcel: Parcel, deadline: float) -> str:
        """Send, and return an error's text or "": an exception would keep the frames of the connection alive."""
        if not self._busy.acquire(timeout=seconds_left(deadline)):
            return "the previous push is still under way: wait for it, or give it a longer timeout_s."
        try:
            self._send(parcel, deadline)
        except Exception as error:  # torch.distributed has no common class; it is the failure of this rank
            logger.debug("weights have not reached rank %d", self._rank, exc_info=True)
            return str(error) or type(error).__name__
        finally:
            self._busy.release()
        return ""

    def _send(self, parcel: Parcel, deadline: float) -> None:
        while self._unread:
            self._store.delete(self._unread.pop())
        ready, head = (key_of(self._rank, f"{what}_{parcel.push_id}") for what in ("ready", "head"))
        asked = self._store.get(ready, timeout_s=seconds_left(deadline))
        if asked is None:
            self._store.set(head, _GIVEN_UP)
            self._unread += [ready, head]
            raise CommError("it has not asked for the weights in time: it has ended, hangs or is busy.")
        try:
            self._send_to(asked, head, parcel.encoded, deadline)
        except RuntimeError as error:  # gloo's
            self._drop_connection()
            self._unread += [ready, head]
            raise CommError(f"it was lost while the weights were sent: {gloo_reason(error)}") from error

    def _send_to(self, asked: str, head: str, encoded: Encoded, deadline: float) -> None:
        """Describe the weights to the rank and send them."""
        about = _parse(asked, life=str, in_group=bool)
        body = torch.from_numpy(encoded.body)
        if about["in_group"] and not self._is_group_lost and in_default_group(TRAINER):
            self._life = ""
            self._store.set(head, json.dumps({"pair": None, "head": encoded.head}))
            send_bytes(DefaultGroupWire(self._rank), body, timeout_s=seconds_left(deadline))
            return
        if self._pair is None or self._life != about["life"]:
            if self._pair is not None:
                self._pair.close()
            self._pair, self._life, self._pair_id = None, about["life"], secrets.token_hex(8)
        self._store.set(head, json.dumps({"pair": self._pair_id, "head": encoded.head}))
        if self._pair is None:
            self._pair = join_pair(self._store, self._pair_id, member=0, timeout_s=seconds_left(deadline))
        send_bytes(self._pair, body, timeout_s=seconds_left(deadline))

    def _drop_connection(self) -> None:
        if self._pair is not None:
            self._pair.close()
        if self._life:
            self._pair, self._life = None, ""
        else:
            self._is_group_lost = True

    def close(self) -> None:
        self._drop_connection()
        self._store.close()


class GlooReceiver:
    """Receive what `GlooSender` sends to one worker rank."""

    def __init__(self, store: TorchStore, rank: int) -> None:
        self._store = store
        self._rank = rank
        self._life = secrets.token_hex(8)
        self._pair_id = ""
        self._pair: GlooWire | None = None

    def receive(self, push_id: str, *, timeout_s: float) -> Weights | None:
        """Return the weights of a push; see `RankReceiver`."""
        deadline = monotonic() + timeout_s
        ready, head = (key_of(self._rank, f"{what}_{push_id}") for what in ("ready", "head"))
        about = {"life": self._life, "in_group": in_default_group(self._rank)}
        self._store.set(ready, json.dumps(about))
        try:
            said = self._store.get(head, timeout_s=timeout_s)
        finally:
            self._store.delete(ready)
            self._store.delete(head)
        if said is None:
            raise LostTransferError(
                f"the trainer has not sent the weights of push {push_id} within {timeout_s:g} s: it has ended or hangs."
            )
        return None if said == _GIVEN_UP else self._receive(_parse(said, pair=(str, NoneType), head=dict), deadline)

    def _receive(self, described: Mapping[str, Any], deadline: float) -> Weights:  # Any: of JSON
        layout = parse_head(described["head"])[2]
        body = torch.empty(layout.nbytes, dtype=torch.uint8)
        try:
            if described["pair"] is None:
                receive_bytes(DefaultGroupWire(TRAINER), body, timeout_s=seconds_left(deadline))
            else:
                if self._pair is None or described["pair"] != self._pair_id:
                    self.close()
                    self._pair_id = described["pair"]
                    self._pair = join_pair(self._store, self._pair_id, member=1, timeout_s=seconds_left(deadline))
                receive_bytes(self._pair, body, timeout_s=seconds_left(deadline))
        except RuntimeError as error:  # gloo's
            # A new id, so that the trainer makes a new connection as well.
            self.close()
            self._life = secrets.token_hex(8)
            raise LostTransferError(f"the trainer was lost while it sent weights: {gloo_reason(error)}") from error
        return decode(Encoded(dict(described["head"]), body.numpy()))

    def close(self) -> None:
        """Drop the connection; may be called again."""
        if self._pair is not None:
            self._pair.close()
        self._pair, self._pair_id = None, ""


def join_pair(store: TorchStore, pair_id: str, *, member: int, timeout_s: float) -> GlooWire:
    """Join trainer (member 0) and worker (1) to a gloo group of two, beside the process's default group."""
    if _is_local(store.raw):
        use_loopback()
    found = PrefixStore(f"weights/{pair_id}", store.raw)
    return GlooWire(ProcessGroupGloo(found, member, 2, timedelta(seconds=timeout_s)), 1 - member)


def _parse(text: str, **fields: type | tuple[type, ...]) -> dict[str, Any]:  # Any: of JSON
    """Return a JSON object from the store that has fields of these types. Raises CommError for anything else."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict) or not all(isinstance(value.get(name), kind) for name, kind in fields.items()):
        raise CommError(f"the store has {text[:80]!r}; expected a JSON object with {', '.join(fields)}.")
    return value


def _is_local(store: AnyStore) -> bool:
    """Tell whether a store is served on this machine."""
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return getattr(store, "host", "localhost") in _LOOPBACK
