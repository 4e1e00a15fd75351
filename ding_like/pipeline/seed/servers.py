"""Inference servers: a policy's network, with the newest weights, for all actors that ask it.

Source: Espeholt et al. 2020, SEED RL, for what runs where.
"""

from __future__ import annotations

import math
import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from ding_like.comm.channels import Version, Weights
from ding_like.comm.keys import SeedKeys
from ding_like.comm.workers.processes import ChildProcess
from ding_like.comm.zmq.inference import (
    COLUMNS,
    STATE,
    Refusal,
    Reply,
    Request,
    decode_request,
    encode_answer,
    id_of,
    under,
)
from ding_like.comm.zmq.rows import DataLink
from ding_like.comm.zmq.sockets import Poller, Socket, open_socket
from ding_like.comm.zmq.weights import WeightSocket
from ding_like.errors import CommError
from ding_like.pipeline.collect import PolicyWeights
from ding_like.pipeline.process import prepare_worker
from ding_like.pipeline.scheme_parts import SchemeFactories
from ding_like.policy import Policy
from ding_like.policy.forward import check_acts_remotely
from ding_like.types import Array, Json
from ding_like.utils.measure import Interval, LatencyMeter

_LOOK_S = 0.25  # the longest wait for requests, after which `stop` is looked at
_STATS_S = 1.0
_MAX_WAITING = 4_096  # requests, of as many clients
_HWM = 2 * _MAX_WAITING  # messages: each client has one request under way, and may have sent it again
_MAX_ROWS = 1_024  # of a batch: the results of a network for its rows take memory
_MAX_SCHEMAS = 64  # of which memory is kept

# Name, dtype and shape of a row of each input: requests that have the same go through the network together.
Schema: TypeAlias = "tuple[tuple[str, np.dtype, tuple[int, ...]], ...]"


@dataclass(frozen=True)
class ServerSettings:
    """Settings of an inference server: its policy by `factories`, its driver's data `endpoint`, how it makes batches.

    `run_id` grows with every start of a server of this `name`. A batch of `batchsize` requests runs when there are as
    many, a smaller one `delay_s` after its first request; with 0 and 0 what is there runs (see `Batcher`).
    """

    factories: SchemeFactories
    endpoint: str
    name: str = "server1"
    run_id: int = 1
    keys: SeedKeys | None = None
    batchsize: int = 0
    delay_s: float = 0.0
    hold_s: float = 10.0  # that requests wait for weights which are not there yet
    device: str = "cpu"
    start_timeout_s: float = 60.0  # for the first weights
    patience_s: float = 60.0  # with a driver that is silent


class InferenceServer(ForkServerProcess, ChildProcess):  # type: ignore[misc]  # both define how to start
    """Process of an inference server; `wait_ready` returns once it answers. A subclass may override `evaluate`.

    It is forked from a process that has imported what it needs: its imports take 2 s of a core, several times that on
    a busy machine, and actors wait while a lost server is replaced. Source: the SEED trainer's document.
    """

    def __init__(self, settings: ServerSettings, **process: Any) -> None:  # Any: what a ChildProcess takes
        multiprocessing.set_forkserver_preload([__name__])
        super().__init__(**{"name": settings.name, **process})
        self.settings = settings

    def serve(self, stop: threading.Event) -> None:
        """Answer requests until `stop` is set, or the driver needs nothing any more.

        The server takes requests once it has the driver's weights: no untrained network answers. An error is reported
        to the driver, and raised.
        """
        prepare_worker()
        settings = self.settings
        with ExitStack() as opened:
            link = DataLink(
                settings.endpoint, name=settings.name, run_id=settings.run_id, keys=settings.keys,
                patience_s=settings.patience_s,
            )  # fmt: skip
            opened.callback(link.close)
            try:
                self._network = Network(settings.factories.actor(settings.device))
                welcome = link.join()
                weights = WeightSocket(welcome["weights"], keys=settings.keys)
                opened.callback(weights.close)
                if not self._has_weights(weights, stop):
                    return
                requests = open_socket("dealer", connect=welcome["servers"], keys=settings.keys, hwm=_HWM)
                opened.callback(requests.close)
                self._batcher = Batcher(settings.batchsize, settings.delay_s, hold_s=settings.hold_s)
                self._stats = InferenceStats()
                self.report_ready()
                self._answer_requests(requests, weights, link, stop)
            except Exception as error:  # a user's model may raise anything; the driver gets it, and it is raised again
                link.send_error(f"{type(error).__name__}: {error}")
                raise

    def evaluate(self, requests: Sequence[Request]) -> Sequence[Reply | Refusal]:
        """Return the answer to each request of a batch: what the network computes for its observations."""
        return self._network.answer(requests)

    def _has_weights(self, weights: WeightSocket, stop: threading.Event) -> bool:
        """Wait for the first weights; False: the server is stopped. Raises CommError if none come."""
        deadline_s = time.monotonic() + self.settings.start_timeout_s
        while not stop.is_set():
            first = weights.wait(_LOOK_S)
            if first is not None:
                self._network.take(first)
                return True
            if time.monotonic() >= deadline_s:
                raise CommError(
                    f"{self.settings.name} was sent no weights within {self.settings.start_timeout_s:g} s: the "
                    "learner has to publish some before servers start, or its endpoint cannot be reached from here."
                )
        return False

    def _answer_requests(self, requests: Socket, weights: WeightSocket, link: DataLink, stop: threading.Event) -> None:
        """Receive requests, evaluate batches and send answers; load newer weights between two batches."""
        network, batcher, report_due = self._network, self._batcher, Interval(_STATS_S)
        poller = Poller(requests, weights.socket)
        while not stop.is_set():
            ready = poller.wait(min(batcher.wait_s(network.version), _LOOK_S))
            is_due = report_due.pass_s() > 0
            # Also where none came: by that a learner that was started again is asked by this server.
            if (weights.socket in ready or is_due) and (newer := weights.take()) is not None:
                network.take(newer)
            self._receive(requests)
            while batch := batcher.take(network.version):
                begun_s = time.monotonic()
                answers = self.evaluate([each.request for each in batch])
                took_s = time.monotonic() - begun_s
                batcher.note_batch(batch, took_s)
                for each, answer in zip(batch, answers, strict=True):
                    _send(requests, each, answer)
                self._stats.record(batch)
            if is_due:
                self._refuse_overdue(requests)
                stats = {**self._stats.take(), "queue": len(batcher), "version": list(network.version)}
                link.send_stats(stats)
                if link.stopped:
                    return

    def _receive(self, requests: Socket) -> None:
        while (frames := requests.receive()) is not None:
            route = bytes(frames[0])
            try:
                request = decode_request(frames[1:])
                if len(self._batcher) < _MAX_WAITING:  # what comes beyond that is sent again
                    self._batcher.add(request, route)
            except CommError as error:
                self._stats.totals["garbled"] += 1
                requests.send([route, *encode_answer(id_of(frames[1:]), Refusal(str(error), is_final=True))])

    def _refuse_overdue(self, requests: Socket) -> None:
        version, settings = self._network.version, self.settings
        for each in self._batcher.take_overdue(version):
            text = (
                f"{settings.name} has weights {tuple(version)}, and waited {settings.hold_s:g} s for "
                f"{tuple(each.request.least or ())}, which are wanted."
            )
            _send(requests, each, Refusal(text, is_final=False))


def _send(requests: Socket, waiting: Waiting, answer: Reply | Refusal) -> None:
    # A client asks again for an answer that is not taken.
    requests.send([waiting.route, *encode_answer(waiting.request.id, answer)])


class Waiting(NamedTuple):
    """Request, when it came, and where its answer goes."""

    request: Request
    came_s: float
    route: bytes = b""

    def may_be_answered_by(self, version: Version) -> bool:
        """Return whether weights are new enough for it."""
        return self.request.least is None or version >= self.request.least


class Batcher:
    """Queue of requests until their batch is due.

    A batch of `batchsize` requests (0: any number) runs when there are as many, a smaller one `delay_s` after its first
    request came. With 0 and 0 what is there runs, but for a moment in which the clients that were answered last may ask
    again: see `Gather`. A request for weights which are not there yet waits for them, at most for `hold_s`.
    """

    def __init__(
        self,
        batchsize: int = 0,
        delay_s: float = 0.0,
        *,
        hold_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._batchsize = math.inf if batchsize == 0 else batchsize
        self._delay_s, self._hold_s = delay_s, hold_s
        self._gather = None if batchsize or delay_s else Gather()
        self._clock = clock
        self._waiting: dict[str, Waiting] = {}  # by client, the oldest first

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: Request, route: bytes = b"") -> None:
        """Add a request; one that is sent again keeps its place, and a client's newest one counts."""
        before = self._waiting.get(request.client)
        order = (request.run_id, request.id)
        last = (-1, -1) if before is None else (before.request.run_id, before.request.id)
        if order > last:
            self._waiting.pop(request.client, None)
            self._waiting[request.client] = Waiting(request, self._clock(), route)
        elif before is not None and order == last:
            self._waiting[request.client] = before._replace(request=request, route=route)

    def take(self, version: Version) -> list[Waiting]:
        """Return the requests of a batch that weights of `version` may answer now; none where no batch is due."""
        if not self._waiting or self.wait_s(version) > 0:
            return []
        batch: list[Waiting] = []
        rows = 0
        for each in self._waiting.values():
            fits = len(batch) < self._batchsize and (not batch or rows + each.request.rows <= _MAX_ROWS)
            if fits and each.may_be_answered_by(version):
                batch.append(each)
                rows += each.request.rows
        for each in batch:
            del self._waiting[each.request.client]
        return batch

    def note_batch(self, batch: Sequence[Waiting], took_s: float) -> None:
        """Record how long the forward pass of a batch took that is about to be answered."""
        if self._gather is not None:
            self._gather.note({each.request.client for each in batch}, took_s, now_s=self._clock())

    def wait_s(self, version: Version) -> float:
        """Return in how many seconds a batch is due if nothing more comes: 0 now, infinity where there is none."""
        ready = [each for each in self._waiting.values() if each.may_be_answered_by(version)]
        if not ready:
            return math.inf
        if len(ready) >= self._batchsize:
            return 0.0
        now_s = self._clock()
        if self._gather is not None:
            return self._gather.wait_s(ready, now_s=now_s)
        return max(0.0, ready[0].came_s + self._delay_s - now_s)

    def take_overdue(self, version: Version) -> list[Waiting]:
        """Remove and return the requests that have waited for their weights for too long."""
        oldest_s = self._clock() - self._hold_s
        waiting = self._waiting.values()
        overdue = [each for each in waiting if each.came_s < oldest_s and not each.may_be_answered_by(version)]
        for each in overdue:
            del self._waiting[each.request.client]
        return overdue


class Gather:
    """Wait for the clients that were answered last and may be about to ask again.

    Clients that act in step would else fall apart into groups, of which one is computed while another acts, and a
    network takes less time for a row the more there are in a batch. They are waited for while they keep coming, no
    longer after the last of them than a batch takes (at most `LONGEST_S`) and for `MOST` times that in all. Batches of
    less than `LEAST_S` are not waited for; where less than a quarter came, the next `PAUSE` batches run at once.
    """

    LEAST_S = 0.001  # what sockets wait at least
    LONGEST_S = 0.05  # the first batch of a process, or one in which it was stopped, is no measure of the others
    MOST = 3.0
    PAUSE = 16

    def __init__(self) -> None:
        self._expected: set[str] = set()
        self._took_s = 0.0
        self._answered_s = -math.inf
        self._pause = 0

    def wait_s(self, there: Sequence[Waiting], *, now_s: float) -> float:
        """Return how long to wait for others where these requests, the oldest first, are there."""
        if self._pause or self._took_s < self.LEAST_S:
            return 0.0
        clients = {each.request.client for each in there}
        if self._expected <= clients:
            return 0.0
        first_s, last_s = (max(each.came_s, self._answered_s) for each in (there[0], there[-1]))
        left_s = min(last_s + self._took_s, first_s + self.MOST * self._took_s) - now_s
        if left_s <= 0 and 4 * len(self._expected & clients) < len(self._expected):
            self._pause = self.PAUSE
        return max(0.0, left_s)

    def note(self, clients: set[str], took_s: float, *, now_s: float) -> None:
        """Record whose requests a batch was made of, and how long it took."""
        self._expected, self._took_s, self._answered_s = clients, min(took_s, self.LONGEST_S), now_s
        self._pause = max(0, self._pause - 1)


class Network:
    """Forward pass of a policy's network for several clients at once, without state of theirs.

    Inputs of a batch are copied once, one behind another, into memory that is used again for the next batch and that a
    GPU reads from. Raises ConfigError for a policy whose network may not be apart from its actors.
    """

    def __init__(self, policy: Policy) -> None:
        self._forward = check_acts_remotely(policy).forward
        self._state_shapes = {name: np.shape(value) for name, value in self._forward.initial_state.items()}
        self._weights = PolicyWeights(policy)
        self._is_pinned = policy.get_attribute("device").type == "cuda"
        self._memory: dict[Schema, dict[str, Array]] = {}  # [capacity, ...] of each input, by the kind of request

    @property
    def version(self) -> Version:
        """The version of the weights that are loaded."""
        return self._weights.version

    def take(self, weights: Weights) -> None:
        """Load weights that are newer than those that are loaded."""
        if weights.version > self.version:
            self._weights.take(weights)

    def answer(self, requests: Sequence[Request]) -> list[Reply | Refusal]:
        """Return the answer to each request; those of the same kind go through the network in one call.

        Raises what a network raises that has answered requests of the kind before.
        """
        groups: dict[Schema, list[int]] = {}
        for place, request in enumerate(requests):
            schema = tuple((name, array.dtype, array.shape[1:]) for name, array in request.inputs.items())
            groups.setdefault(schema, []).append(place)
        answers: dict[int, Reply | Refusal] = {}
        for schema, places in groups.items():
            answers.update(zip(places, self._run(schema, [requests[place] for place in places]), strict=True))
        return [answers[place] for place in range(len(requests))]

    def _run(self, schema: Schema, requests: Sequence[Request]) -> Sequence[Reply | Refusal]:
        is_known = schema in self._memory
        prefix = f"{STATE}/"
        given = {name.removeprefix(prefix): shape for name, _, shape in schema if name.startswith(prefix)}
        if given != self._state_shapes:
            text = f"a request brings recurrent state of shapes {given}, expected {self._state_shapes}."
            return [Refusal(text, is_final=True)] * len(requests)
        rows = [request.rows for request in requests]
        inputs = self._stack(schema, [request.inputs for request in requests], sum(rows))
        joined = Request("", 0, 0, None, inputs)
        try:
            output, after = self._forward(joined.obs, {**under(COLUMNS, inputs), **under(STATE, inputs)})
        except Exception as error:  # a client's first inputs may make a network raise anything; the client gets it
            if is_known:
                raise
            del self._memory[schema]
            kind = ", ".join(f"'{name[:40]}' {dtype}{list(shape)}" for name, dtype, shape in schema)
            text = f"the network does not take {kind}: {type(error).__name__}: {error}"
            return [Refusal(text, is_final=True)] * len(requests)
        replies, start = [], 0
        for own in rows:
            lanes = slice(start, start + own)
            replies.append(Reply(output[lanes], {name: column[lanes] for name, column in after.items()}, self.version))
            start += own
        return replies

    def _stack(self, schema: Schema, parts: Sequence[Mapping[str, Array]], rows: int) -> dict[str, Array]:
        """Return the inputs of all requests, [B, ...] by name: views, valid until the next call."""
        memory = self._memory.get(schema)
        if memory is None or rows > len(memory[schema[0][0]]):
            if memory is None and len(self._memory) >= _MAX_SCHEMAS:
                self._memory.clear()
            capacity = 1 << (rows - 1).bit_length()
            memory = {name: self._allocate((capacity, *shape), dtype) for name, dtype, shape in schema}
            self._memory[schema] = memory
        views = {name: array[:rows] for name, array in memory.items()}
        for name, view in views.items():
            np.concatenate([part[name] for part in parts], out=view)
        return views

    def _allocate(self, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        empty = np.empty(shape, dtype)
        return torch.from_numpy(empty).pin_memory().numpy() if self._is_pinned else empty


class InferenceStats:
    """Counts of a server's work."""

    def __init__(self) -> None:
        self.totals = Counter(requests=0, observations=0, batches=0, garbled=0)  # garbled requests could not be read
        self._since = self.totals.copy()
        self._latency = LatencyMeter()  # from when a request was received until its answer was sent

    def record(self, batch: Sequence[Waiting]) -> None:
        """Count a batch that was answered just now."""
        rows, now_s = sum(each.request.rows for each in batch), time.monotonic()
        self.totals.update(requests=len(batch), observations=rows, batches=1)
        for each in batch:
            self._latency.record(now_s - each.came_s)

    def take(self) -> dict[str, Json]:
        """Return the totals, and the mean batch and the latencies since the last call."""
        latency, new = self._latency.take().plain(), self.totals - self._since
        self._since = self.totals.copy()
        mean_batch = new["observations"] / new["batches"] if new["batches"] else None
        return {**self.totals, "mean_batch": mean_batch, "p50_ms": latency["p50_ms"], "p99_ms": latency["p99_ms"]}
