"""Process groups of torch.distributed: learners that train together, and pairs of processes that exchange bytes."""

from __future__ import annotations

import ctypes
import json
import logging
import math
import os
import re
import socket
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import BroadcastOptions, FileStore, PrefixStore, ProcessGroupGloo, Store, TCPStore

from ding_like.comm.tensors import FlatState, from_bytes, pack, padded, schema_of, to_bytes, unpack
from ding_like.data.batch import TransitionBatch
from ding_like.errors import CommError, ConfigError
from ding_like.types import Array, Json

GLOO, GLOO_AND_NCCL = "gloo", "cpu:gloo,cuda:nccl"
_LOOPBACK = ("lo", "lo0")
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1", "ip6-localhost")
TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
MOST_TIMEOUT_S = 365 * 86400.0
_ENDLESS = timedelta(seconds=MOST_TIMEOUT_S)  # of gloo, where heartbeats decide how long is waited
_SHORTEST_S = 0.001  # of a wait: torch takes 0 for no limit
_LOOK_S = 1.0  # between two looks at whether a rank that is waited for lives
BEAT_S = 1.0
SILENT_S = 5.0  # this long without a beat, a rank is held to be lost where something has failed
_PATIENCE_S = SILENT_S + 2 * _LOOK_S  # with heartbeats that are to tell why something has failed
_END_S = 10.0  # for the heartbeats' thread to end; it may be in a call to the store

logger = logging.getLogger(__name__)


class Place(NamedTuple):
    """Place of a rank: its number on its machine, the number of ranks there, and the GPUs that it sees."""

    local_rank: int
    local_world_size: int
    num_gpus: int


LEFT = "has left the group"  # how a rank ends that has nothing more to do


class StartedRanks(Protocol):
    """Watch over the ranks that this process has started."""

    def tell(self, note: Callable[[int, str], None]) -> None:
        """Have `note` called with the rank and how it ended ("was killed by SIGKILL"), of each that has or will."""

    def pid(self, rank: int) -> int | None:
        """Return the id of a rank's process, None for one that this process has not started."""


def choose_backend(places: Sequence[Place]) -> str:
    """Return torch's name of the backend for ranks: with nccl where each of them can have a GPU of its own."""
    has_own = bool(places) and all(place.num_gpus >= place.local_world_size > 0 for place in places)
    return GLOO_AND_NCCL if has_own else GLOO


def use_loopback() -> None:
    """Have gloo use the loopback interface, if there is one: it would look the host's name up, which may be unknown."""
    names = [name for _, name in socket.if_nameindex() if name in _LOOPBACK]
    if names:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", names[0])


def in_environment() -> bool:
    """Return whether this process was started as one of several ranks, by torchrun for example."""
    return all(os.environ.get(name) for name in TORCHRUN)


class Pair:
    """Gloo connection of two processes that find each other in `store` by `name`; both join at the same time.

    It is apart from a process's default group, and can be made anew for a process that was restarted. Methods raise
    CommError if the other process has ended, is late, or does not join within `timeout_s`; nothing can follow then.
    """

    def __init__(self, store: Store, name: str, *, member: int, timeout_s: float) -> None:
        """Join as `member` 0 or 1."""
        if _is_local(store):
            use_loopback()
        self._other = 1 - member
        found = PrefixStore(f"pair/{name}", store)
        try:
            # Any: torch's annotations of the class lack send and recv.
            self._group: Any = ProcessGroupGloo(found, member, 2, timedelta(seconds=max(timeout_s, _SHORTEST_S)))
        except RuntimeError as error:
            raise CommError(gloo_reason(error)) from error

    def send(self, body: torch.Tensor, *, timeout_s: float) -> None:
        """Send a vector of bytes and wait until the other process has it."""
        # In the middle of a transfer gloo does not report that the other process has ended, and a wait would last until
        # its deadline; a pending receive does report it, within 0.1 s. So one more byte follows, and one comes back.
        end, taken = torch.zeros(1, dtype=torch.uint8), torch.zeros(1, dtype=torch.uint8)
        group, other = self._group, self._other
        self._await(
            lambda: (group.recv([taken], other, 2), group.send([body], other, 0), group.send([end], other, 1)),
            timeout_s,
        )

    def receive(self, body: torch.Tensor, *, timeout_s: float) -> None:
        """Receive a vector of bytes into `body`."""
        end = torch.zeros(1, dtype=torch.uint8)
        group, other = self._group, self._other
        deadline_s = time.monotonic() + timeout_s
        self._await(lambda: (group.recv([body], other, 0), group.recv([end], other, 1))[::-1], timeout_s)
        self._await(lambda: (group.send([end], other, 2),), deadline_s - time.monotonic())

    def close(self) -> None:
        """Release the connection, which closes its sockets; may be called again."""
        self._group = None

    @staticmethod
    def _await(begin: Callable[[], Sequence[Any]], timeout_s: float) -> None:  # Any: torch's Work, of no annotations
        deadline_s = time.monotonic() + timeout_s
        try:
            for work in begin():
                work.wait(timedelta(seconds=max(deadline_s - time.monotonic(), _SHORTEST_S)))
        except RuntimeError as error:
            raise CommError(gloo_reason(error)) from error


class LearnerGroup:
    """Process group of `world_size` learners that find each other by the file `store`, all on one machine.

    `from_environment` joins the ranks that torchrun has started. A process can be in one group at a time. Every
    collective is made by all learners, in the same order. Raises CommError, which names the rank that is lost, if one
    has ended or does not take part within `timeout_s`, and if not all have joined within `join_s`.

    Tensors on the CPU travel by gloo; where every rank of a machine can have a GPU of its own, those on GPUs travel by
    nccl, and torch's current device is set to this rank's: join before the policy is built.
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | tuple[Store, Store],
        *,
        rank: int,
        world_size: int,
        place: Place | None = None,  # None: all ranks are on this machine
        timeout_s: float = 60.0,
        join_s: float = 120.0,
        children: StartedRanks | None = None,
        called: str = "learner rank",
    ) -> None:
        """Join the others. Ranks that end are named at once, with how they ended, if `children` notices it.

        In place of a file `store` may be two connections to the store of all ranks. Messages name a rank as it is
        `called`.
        """
        if not 0 <= rank < world_size:
            raise ConfigError(f"learner rank {rank} of {world_size} learners: ranks are 0 to {world_size - 1}.")
        if not 0.0 < timeout_s <= MOST_TIMEOUT_S:
            raise ConfigError(f"the learners' timeout_s is {timeout_s:g}; give seconds above 0, a year at most.")
        self.rank, self.world_size = rank, world_size
        self._timeout_s, self._called = timeout_s, called
        self._is_open = False
        self.fault = ""  # the rank that was lost: no collective can follow
        self._waits_in_vain = False  # gloo does, for a rank that is silent
        own, beats = store if isinstance(store, tuple) else _file_store(store, world_size)
        self._store: Store | None = own
        self._heartbeats = Heartbeats(beats, rank=rank, world_size=world_size)
        self._children = children
        if children is not None:
            children.tell(self._heartbeats.note_ended)
        place = place or Place(rank, world_size, torch.cuda.device_count())
        try:
            self.backend = choose_backend(self._places(place, join_s))
            if self.backend == GLOO_AND_NCCL:
                torch.cuda.set_device(place.local_rank)
                # Else a collective returns at once, and the process is ended where one fails.
                os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")
            excepthook, timeout = sys.excepthook, timedelta(seconds=timeout_s)
            dist.init_process_group(self.backend, store=own, rank=rank, world_size=world_size, timeout=timeout)
            sys.excepthook = excepthook  # torch's puts "[rank0]: " before each line, once more for each group
        except BaseException as error:
            self.close(str(error))
            if isinstance(error, (RuntimeError, ValueError)):  # ValueError: this process is in a group already
                raise CommError(f"{self._name(rank)} cannot join: {_first_line(error)}") from error
            raise
        self._is_open = True

    @classmethod
    def from_environment(
        cls,
        *,
        timeout_s: float = 60.0,
        join_s: float = 120.0,
        num_gpus: int | None = None,
        called: str = "learner rank",
    ) -> LearnerGroup:
        """Join the ranks that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT describe, as torchrun sets them.

        `num_gpus` replaces the number of GPUs that this process sees. Raises ConfigError where one of these is missing
        or no number.
        """
        missing = [name for name in TORCHRUN if not os.environ.get(name)]
        if missing:
            raise ConfigError(f"{', '.join(missing)} not set; start the learners by torchrun, or give --learners N.")
        rank, world_size, port = (environment_int(name) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
        local = environment_int("LOCAL_RANK", rank), environment_int("LOCAL_WORLD_SIZE", world_size)
        place = Place(*local, torch.cuda.device_count() if num_gpus is None else num_gpus)
        hosts_store = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        store = open_store(
            os.environ["MASTER_ADDR"], port, world_size=world_size, hosts_store=hosts_store, join_s=join_s,
            name=f"{called} {rank} of {world_size}",
        )  # fmt: skip
        return cls(
            store, rank=rank, world_size=world_size, place=place, timeout_s=timeout_s, join_s=join_s, called=called
        )

    def _places(self, own: Place, join_s: float) -> list[Place]:
        """Return where all ranks stand, once they are here."""
        store = self.store
        deadline_s = time.monotonic() + join_s
        store.set(f"place/{self.rank}", json.dumps(own))
        for rank in range(self.world_size):
            while not _wait_for_key(store, f"place/{rank}", _LOOK_S):
                ended = self._heartbeats.seen()[rank].ended if rank != self.rank else None
                if ended is not None:
                    raise CommError(f"before it joined, {self._name(rank)} {ended}.")
                if time.monotonic() > deadline_s:
                    raise CommError(f"{self._name(rank)} has not joined within {join_s:g} s.")
        return [Place(*json.loads(store.get(f"place/{rank}"))) for rank in range(self.world_size)]

    def others(self) -> dict[int, tuple[Seen, int | None]]:
        """Return the last known states of the other ranks, and the ids of those that this process has started."""
        children = self._children
        return {
            rank: (seen, None if children is None else children.pid(rank))
            for rank, seen in self._heartbeats.seen().items()
        }

    # --- collectives

    def average(self, vectors: Iterable[torch.Tensor], *, weight: float) -> None:
        """Put the mean over all learners in the place of each vector; this one counts `weight`, all together 1."""
        for vector in vectors:
            vector.mul_(weight)
            self._call(dist.all_reduce, vector)

    def scatter(self, shares: Sequence[bytes] | None) -> bytes | None:
        """Hand out bytes, one share for each learner; `shares` is the first learner's.

        None from it tells all others that there is nothing more, and they get None. They wait for it as long as its
        heartbeats come: it may evaluate, or wait for rows.
        """
        sizes = torch.full((self.world_size,), -1, dtype=torch.int64)
        if shares is not None:
            sizes = torch.tensor([len(share) for share in shares], dtype=torch.int64)
        self._await_broadcast(sizes, 0)
        lengths = sizes.tolist()
        if max(lengths) < 0:
            return None
        own = torch.empty(max(lengths), dtype=torch.uint8)
        parts = None if shares is None else [padded(share, len(own)) for share in shares]
        self._call(dist.scatter, own, parts, 0)
        return own.numpy()[: lengths[self.rank]].tobytes()

    def gather(self, values: Array) -> Array | None:
        """Return the values [B] of all learners, one after another, to the first; None to the others.

        Each may have another number of values.
        """
        parts = self.all_gather_bytes(np.ascontiguousarray(values, np.float32).tobytes())
        return np.frombuffer(bytearray().join(parts), np.float32) if self.rank == 0 else None

    def all_gather_bytes(self, data: bytes) -> list[bytes]:
        """Return the bytes of all learners, in the order of their ranks; they may differ in length."""
        lengths = self._all_gather_ints([len(data)])[:, 0].tolist()
        own = padded(data, max(lengths))
        parts = [torch.empty_like(own) for _ in lengths]
        self._call(dist.all_gather, parts, own)
        return [part.numpy()[:length].tobytes() for part, length in zip(parts, lengths, strict=True)]

    def all_gather_columns(self, batch: TransitionBatch) -> TransitionBatch:
        """Return the rows of all learners, in the order of their ranks; each may have another number of rows [B].

        Raises CommError where columns, their dtypes or their shapes differ, or hold no numbers.
        """
        parts = [unpack(data)[0] for data in self.all_gather_bytes(pack(batch.columns, {}))]
        wanted = schema_of(parts[0])
        for rank, part in enumerate(parts):
            if schema_of(part) != wanted:
                raise CommError(
                    f"{self._name(rank)} has rows of {schema_of(part)}, the first has {wanted}: they cannot be joined. "
                    "Start all learners with the same config."
                )
        return TransitionBatch({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})

    def broadcast_bytes(self, data: bytes | None, *, source: int = 0) -> bytes:
        """Return the bytes of the learner `source`; the others give None, and wait as long as its heartbeats come."""
        size = torch.tensor([0 if data is None else len(data)], dtype=torch.int64)
        self._await_broadcast(size, source)
        body = np.empty(int(size), np.uint8)
        if data is not None:
            body[:] = np.frombuffer(data, np.uint8)
        if body.size:
            self._call(dist.broadcast, torch.from_numpy(body), source)
        return body.tobytes()

    def broadcast_json(self, value: Json = None, *, source: int = 0) -> Json:
        """Return a JSON-like value of the learner `source`, whatever the others give; they wait as for bytes."""
        own = json.dumps(value).encode() if self.rank == source else None
        return json.loads(self.broadcast_bytes(own, source=source))

    def broadcast_state(self, state: FlatState | None = None, *, source: int = 0) -> FlatState:
        """Return the flat state of the learner `source`, in memory of its own; the others give None, and wait."""
        if self.rank == source and state is None:
            raise CommError(f"{self._name(source)} has no state to give to the others.")
        own = None if state is None or self.rank != source else to_bytes(state).tobytes()
        return from_bytes(np.frombuffer(self.broadcast_bytes(own, source=source), np.uint8))[0]

    def sum_int(self, values: Sequence[int] | Array) -> Array:
        """Return the sums of whole numbers [N] over all learners, int64."""
        return self._reduce_ints(values, dist.ReduceOp.SUM)

    def max_int(self, values: Sequence[int] | Array) -> Array:
        """Return the largest of whole numbers [N] over all learners, int64."""
        return self._reduce_ints(values, dist.ReduceOp.MAX)

    def differing(self, vectors: Iterable[torch.Tensor]) -> list[int]:
        """Return the ranks whose vectors are not bit for bit those of the first learner."""
        flat = (vector.detach().cpu().contiguous().reshape(-1) for vector in vectors)
        sums = [zlib.crc32(vector.view(torch.uint8).numpy().data) for vector in flat]
        found = self._all_gather_ints(sums)
        return [rank for rank, row in enumerate(found) if not np.array_equal(row, found[0])]

    def _reduce_ints(self, values: Sequence[int] | Array, op: Any) -> Array:  # Any: torch types it as an enum's member
        numbers = torch.tensor(np.asarray(values, np.int64))
        self._call(dist.all_reduce, numbers, op)
        return numbers.numpy()

    def _all_gather_ints(self, values: Sequence[int]) -> Array:
        """Return [learners, N]."""
        own = torch.tensor(values, dtype=torch.int64)
        parts = [torch.empty_like(own) for _ in range(self.world_size)]
        self._call(dist.all_gather, parts, own)
        return torch.stack(parts).numpy()

    # --- waiting, and lost ranks

    def announce(self, key: str, value: str = "") -> None:
        """Let the ranks go on that `wait_for` a key; use each key once."""
        self.store.set(f"announced/{key}", value)

    def wait_for(self, key: str, *, of: Sequence[int] = (0,), timeout_s: float = math.inf, delete: bool = False) -> str:
        """Return what one of the ranks `of` announces under a key, however long it takes, `timeout_s` at most.

        Raises CommError once such a rank has ended, or no heartbeat of it has come for the group's `timeout_s`, or
        nothing was announced in time. With `delete` the key may be used again.
        """
        store, deadline_s = self.store, time.monotonic() + timeout_s
        name = f"announced/{key}"
        try:
            while not _wait_for_key(store, name, min(_LOOK_S, max(deadline_s - time.monotonic(), _SHORTEST_S))):
                lost = "; ".join(filter(None, map(self._lost_rank, of)))
                is_late = time.monotonic() >= deadline_s
                if (lost or is_late) and not store.check([name]):
                    names = ", ".join(map(self._name, of))
                    raise CommError(lost or f"{names}: alive, but nothing has come for {timeout_s:g} s")
            value = store.get(name).decode()
            if delete:
                store.delete_key(name)
        except RuntimeError as error:
            raise CommError(f"{self._name(self.rank)} has lost the store of all: {_first_line(error)}") from error
        return value

    def check(self, rank: int) -> None:
        """Raise CommError if a rank has ended, or no heartbeat of it has come for the group's `timeout_s`."""
        if lost := self._lost_rank(rank):
            raise CommError(lost)

    def close(self, reason: str = "") -> None:
        """Leave the group, and report the reason to the others where something has failed; may be called again."""
        self._heartbeats.close(reason)
        if self._is_open:
            self._is_open = False
            if self._waits_in_vain:  # gloo's group would wait on as it is deleted: it stays until the process ends
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(dist.group.WORLD))
            dist.destroy_process_group()
        self._store = None

    def __enter__(self) -> LearnerGroup:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.close("" if kind is None else f"{kind.__name__}: {error}")

    @property
    def store(self) -> Store:
        """Store of all ranks. Raises CommError once this one has left."""
        if self._store is None:
            raise CommError("this learner has left its group.")
        return self._store

    def _call(self, collective: Callable[..., Any], *args: Any) -> None:  # Any: of torch.distributed
        self._begin_call()
        try:
            collective(*args)
        except RuntimeError as error:
            raise CommError(self._lost(error)) from error

    def _await_broadcast(self, tensor: torch.Tensor, source: int) -> None:
        """Take part in a broadcast to which all but the source may come long before it does."""
        if self.rank == source:
            self._call(dist.broadcast, tensor, source)
            return
        self._begin_call()
        options = BroadcastOptions()
        options.rootRank, options.timeout = source, _ENDLESS
        assert dist.group.WORLD is not None, "made when this learner joined"
        self._waits_in_vain = True  # unless it comes to an end
        work = dist.group.WORLD.broadcast([tensor], options)
        while not self._is_done(work):
            if (lost := self._lost_rank(source)) and not work.is_completed():
                self.fault = lost
                raise CommError(lost)
        self._waits_in_vain = False

    def _is_done(self, work: dist.Work) -> bool:
        """Return whether a collective is done, waiting for it for a while. Raises CommError where it has failed."""
        try:
            work.wait(timedelta(seconds=_LOOK_S))
        except RuntimeError:
            if not work.is_completed():
                return False
            try:
                work.wait()  # it may have come to its end just now: only then nothing is raised
            except RuntimeError as error:
                self._waits_in_vain = False
                raise CommError(self._lost(error)) from error
        return True

    def _begin_call(self) -> None:
        assert self.store is not None
        if self.fault:
            raise CommError(self.fault)
        self._heartbeats.num_calls += 1

    def _lost_rank(self, rank: int) -> str:
        """Describe how a rank was lost: it has ended, or is silent for longer than `timeout_s`; "" if it lives."""
        seen = self._heartbeats.seen()[rank]
        is_lost = seen.ended is not None or seen.silent_s > self._timeout_s
        return self._describe({rank: seen}) if is_lost else ""

    def find_lost(self, *, has_waited: bool = False) -> str:
        """Return which ranks have ended or are silent, and how, after a failure; "" if heartbeats tell of none in time.

        One that is silent is waited for: it may have been killed just now. With `has_waited` nothing is waited for.
        """
        deadline_s = time.monotonic() + _PATIENCE_S
        while True:
            seen, left_s = self._heartbeats.seen(), deadline_s - time.monotonic()
            ended = {rank: each for rank, each in seen.items() if each.ended is not None}
            silent = {rank: each for rank, each in seen.items() if each.silent_s > SILENT_S}
            # On a busy machine one may be silent that was killed just now: how it ended comes with the next looks.
            if ended or (silent and (has_waited or left_s < SILENT_S)):
                return self._describe(ended or silent)
            if left_s <= 0 or has_waited:
                return ""
            self._heartbeats.wait_for_look(left_s)

    def _lost(self, error: RuntimeError) -> str:
        """Return, as this group's fault, who did not take part in a collective that failed, once heartbeats tell."""
        is_late = "timed out" in str(error).lower()
        self.fault = self.find_lost(has_waited=is_late and self._timeout_s > _PATIENCE_S)
        if not self.fault:
            seen, own = self._heartbeats.seen(), self._heartbeats.num_calls
            late = [rank for rank, each in seen.items() if each.num_calls < own] or list(seen)
            why = f" ({_first_line(error)})"
            if is_late:
                why = "; where collecting, an update or a saved point takes longer, give a larger learners.timeout_s"
            self.fault = (
                f"{', '.join(map(self._name, late))}: alive, but has not come to collective {own:,} of {self._called} "
                f"{self.rank} within {self._timeout_s:g} s{why}"
            )
        return self.fault

    def _describe(self, lost: dict[int, Seen]) -> str:
        return "; ".join(
            f"{self._name(rank)} "
            + (seen.ended if seen.ended is not None else f"has not answered for {seen.silent_s:.0f} s")
            for rank, seen in lost.items()
        )

    def _name(self, rank: int) -> str:
        return f"{self._called} {rank} of {self.world_size}"


@dataclass
class Seen:
    """Last known state of a rank."""

    beat: bytes = b""
    beaten_s: float = field(default_factory=time.monotonic)
    num_calls: int = 0  # collectives it has begun
    ended: str | None = None  # how: "has left the group", say; None: not as far as is known

    @property
    def silent_s(self) -> float:
        """Seconds since its last beat."""
        return time.monotonic() - self.beaten_s


class Heartbeats:
    """Thread that writes the heartbeats of `rank` and reads those of all others, until `close`.

    `store` is this thread's own connection. A beat holds the number of collectives that the rank has begun, `num_calls`
    here. `wait_for_look` returns after each look.
    """

    def __init__(self, store: Store, *, rank: int, world_size: int, every_s: float = BEAT_S) -> None:
        self._store = PrefixStore("heartbeats", store)
        self._rank = rank
        self._seen = {each: Seen() for each in range(world_size) if each != rank}
        self._every_s = every_s
        self.num_calls = 0
        self._told: dict[int, str] = {}  # how ranks ended that a parent saw end, to be reported
        self._last_word = ""
        self._looked = threading.Condition()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)
        self._thread.start()

    def seen(self) -> dict[int, Seen]:
        """Return the last known states of the other ranks."""
        with self._looked:
            return {rank: replace(each) for rank, each in self._seen.items()}

    def wait_for_look(self, timeout_s: float) -> None:
        """Return after the next look at the others' beats or the next `note_ended`, at the latest in `timeout_s`."""
        with self._looked:
            self._looked.wait(timeout_s)

    def note_ended(self, rank: int, how: str) -> None:
        """Record how a rank has ended ("was killed by SIGKILL"), and report it to the others. From any thread."""
        with self._looked:
            self._seen[rank].ended = self._told[rank] = how
            self._looked.notify_all()

    def close(self, reason: str = "") -> None:
        """Report to the others that this rank leaves, and why; may be called again."""
        if self._closing.is_set():
            return
        self._last_word = f"has ended: {reason}" if reason else LEFT
        self._closing.set()
        self._thread.join(_END_S)
        if self._thread.is_alive():  # the store does not answer
            logger.warning("the store of the learners has not answered for %g s", _END_S)
        else:
            del self._store  # its socket is closed with it

    def _run(self) -> None:
        number = 0
        while True:
            is_last = self._closing.wait(self._every_s if number else 0.0)
            try:
                self._beat(number, is_last=is_last)
            except RuntimeError as error:  # the process that kept the store has ended
                logger.debug("the store of the learners does not answer: %s", error)
            if is_last:
                return
            number += 1

    def _beat(self, number: int, *, is_last: bool) -> None:
        with self._looked:
            told, self._told = self._told, {}
        for rank, how in told.items():
            self._store.set(f"ended/{rank}", how)
        if is_last:
            self._store.set(f"ended/{self._rank}", self._last_word)
            return
        self._store.set(f"beat/{self._rank}", f"{number} {self.num_calls}")
        found = {each: (self._get(f"beat/{each}"), self._get(f"ended/{each}")) for each in self._seen}
        now = time.monotonic()
        with self._looked:
            for rank, (beat, ended) in found.items():
                each = self._seen[rank]
                if beat is not None and beat != each.beat:
                    each.beat, each.beaten_s, each.num_calls = beat, now, int(beat.split()[1])
                if ended is not None and each.ended is None:
                    each.ended = ended.decode(errors="replace")
            self._looked.notify_all()

    def _get(self, key: str) -> bytes | None:
        return self._store.get(key) if self._store.check([key]) else None


def _wait_for_key(store: Any, key: str, timeout_s: float) -> bool:  # Any: torch's stub of `wait` lacks the timeout
    """Return whether a key is set in a store, waiting for it so long; a file store counts whole seconds."""
    try:
        store.wait([key], timedelta(seconds=timeout_s))
    except RuntimeError as error:
        if "time" in str(error).lower():  # "Wait timeout" of a file store, "wait timeout after 1000ms" of others
            return False
        raise
    return True


class GroupReducer:
    """Reducer that averages the gradients of a policy over the learners of a group, between `grad` and `apply`.

    `weight` returns the weight of this learner's gradient: its share of the minibatch.
    """

    def __init__(self, group: LearnerGroup, vectors: Sequence[torch.Tensor], *, weight: Callable[[], float]) -> None:
        self._group, self._vectors, self._weight = group, vectors, weight

    def reduce(self) -> None:
        self._group.average(self._vectors, weight=self._weight())

    def mean(self, values: torch.Tensor) -> torch.Tensor:
        """Return the mean of each value [N] over all learners, each of which counts the same; changes `values`."""
        self._group.average([values], weight=1.0 / self._group.world_size)
        return values


def environment_int(name: str, default: int | None = None) -> int:
    """Return a number that torchrun sets. Raises ConfigError for what is no whole number."""
    value = os.environ.get(name)
    if value is None and default is not None:
        return default
    try:
        return int(value or "")
    except ValueError as error:
        raise ConfigError(f"the environment's {name} is {value!r}; torchrun sets it to a whole number.") from error


def gloo_reason(error: Exception) -> str:
    """Return the reason in an error of gloo, without the place in its source and its advice."""
    said = re.sub(r"^\[\S+\] ", "", _first_line(error) or type(error).__name__)
    return said.partition(". This is")[0].rstrip(".") + "."


def open_store(
    host: str, port: int, *, world_size: int, hosts_store: bool, join_s: float, name: str, listener: int | None = None
) -> tuple[Store, Store]:
    """Return two connections to the store of all ranks at a port, for the group and its heartbeats.

    `hosts_store`: this process keeps it, on the socket `listener`, a file descriptor which the store closes (None: a
    socket at all addresses). Raises CommError, with the rank's `name`, where the store is not reached.
    """
    if host in _LOCAL_HOSTS:
        use_loopback()
    wait = timedelta(seconds=join_s)
    try:
        # A client makes one call at a time: heartbeats need their own.
        own = TCPStore(host, port, world_size, hosts_store, wait, wait_for_workers=False, master_listen_fd=listener)
        return own, TCPStore(host, port, world_size, False, wait, wait_for_workers=False)
    except RuntimeError as error:
        raise CommError(f"{name} cannot reach the store of all at {host}:{port}: {_first_line(error)}") from error


def _file_store(path: str | os.PathLike[str], world_size: int) -> tuple[Store, Store]:
    """Return the store in a file by which ranks of this machine find each other, for the group and its heartbeats."""
    use_loopback()
    try:
        store = FileStore(str(path), world_size)
    except RuntimeError as error:
        raise CommError(f"the learners cannot find each other by the file {path}: {error}") from error
    return store, store


def _is_local(store: Store) -> bool:
    """Return whether a store is served on this machine."""
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return getattr(store, "host", "localhost") in _LOCAL_HOSTS


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
