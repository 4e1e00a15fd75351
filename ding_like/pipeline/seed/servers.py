"""Run an inference server: a policy's network, with the newest weights, for all actors that ask it.

Source: Espeholt et al. 2020, SEED RL, for what runs where.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from typing import TYPE_CHECKING, Any

from ding_like.comm.workers.child import ChildProcess
from ding_like.comm.zmq.inference import Refusal, Reply, Request, decode_request, encode_answer, id_of
from ding_like.comm.zmq.row_link import DataLink
from ding_like.comm.zmq.sockets import Poller, Socket, open_socket
from ding_like.comm.zmq.weights import WeightSocket
from ding_like.errors import CommError, ConfigError
from ding_like.pipeline.build.factories import SchemeFactories
from ding_like.pipeline.build.process import prepare_worker
from ding_like.pipeline.roles.inference import Batcher, InferenceStats, InferRole, Waiting

if TYPE_CHECKING:
    from ding_like.comm.zmq.keys import SeedKeys

# Entries of a driver's welcome: where servers ask the proxy for work, and where weights come from.
SERVERS, WEIGHTS = "servers", "weights"
_LOOK_S = 0.25  # the longest wait for requests, after which `stop` is looked at
_MAX_WAITING = 4_096  # requests, of as many clients
_HWM = 2 * _MAX_WAITING  # messages: each client has one request under way, and may have sent it again


@dataclass(frozen=True)
class ServerSettings:
    """Settings of an inference server: its policy by `factories`, its driver's data `endpoint`, how it makes batches.

    `run_id` grows with every start of a server of this `name`. A batch of `batchsize` requests runs when there are as
    many, a smaller one `delay_s` after its first request; with 0 and 0 what is there runs (see `Batcher`). Raises
    ConfigError for numbers that make no sense.
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

    def __post_init__(self) -> None:
        if self.batchsize < 0 or not 0 <= self.delay_s < float("inf"):
            raise ConfigError(
                f"an inference server is to wait for {self.batchsize} requests and {self.delay_s} s; expected 0 or "
                "more of each: 0 and 0 runs what is there."
            )


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
        """Answer requests until `stop` is set, or the driver wants nothing any more.

        The server takes requests once it has the driver's weights: no untrained network answers. An error is reported
        to the driver, and raised.
        """
        prepare_worker()
        settings = self.settings
        with ExitStack() as opened:
            own = dict(name=settings.name, run_id=settings.run_id, patience_s=settings.patience_s)
            link = DataLink(settings.endpoint, keys=settings.keys, **own)  # type: ignore[arg-type]  # of three types
            opened.callback(link.close)
            try:
                self._role = InferRole(settings.factories.actor(settings.device))
                welcome = link.join()
                weights = WeightSocket(_endpoint(welcome, WEIGHTS), keys=settings.keys)
                opened.callback(weights.close)
                if not self._has_weights(weights, stop):
                    return
                requests = open_socket("dealer", connect=_endpoint(welcome, SERVERS), keys=settings.keys, hwm=_HWM)
                opened.callback(requests.close)
                self.tell_ready()
                _Loop(self, requests, weights, link).run(stop)
            except Exception as error:  # a user's model may raise anything; the driver gets it, and it is raised again
                link.send_error(f"{type(error).__name__}: {error}")
                raise

    def evaluate(self, requests: Sequence[Request]) -> Sequence[Reply | Refusal]:
        """Return the answer to each request of a batch: what the network computes for its observations."""
        return self._role.answer(requests)

    def _has_weights(self, weights: WeightSocket, stop: threading.Event) -> bool:
        """Wait for the first weights; False: the server is stopped. Raises CommError if none come."""
        deadline_s = time.monotonic() + self.settings.start_timeout_s
        while not stop.is_set():
            first = weights.wait(_LOOK_S)
            if first is not None:
                self._role.take(first)
                return True
            if time.monotonic() >= deadline_s:
                raise CommError(
                    f"{self.settings.name} was sent no weights within {self.settings.start_timeout_s:g} s: the "
                    "learner has to publish some before servers start, or its endpoint cannot be reached from here."
                )
        return False


class _Loop:
    """Loop of a server: requests in, batches to `evaluate`, answers out; newer weights between two batches."""

    def __init__(self, server: InferenceServer, requests: Socket, weights: WeightSocket, link: DataLink) -> None:
        settings = server.settings
        self._server, self._role = server, server._role
        self._requests, self._weights, self._link = requests, weights, link
        self._batcher = Batcher(batchsize=settings.batchsize, delay_s=settings.delay_s, hold_s=settings.hold_s)
        self._stats = InferenceStats()

    def run(self, stop: threading.Event) -> None:
        """Answer requests until `stop` is set, or the driver wants nothing any more."""
        poller = Poller(self._requests, self._weights.socket)
        while not stop.is_set():
            ready = poller.wait(min(self._batcher.wait_s(self._role.version), _LOOK_S))
            if self._weights.socket in ready:
                self._take_weights()
            self._receive()
            while batch := self._batcher.take(self._role.version):
                self._run(batch)
            if self._stats.is_due and not self._report():
                return

    def _take_weights(self) -> None:
        weights = self._weights.take()
        if weights is not None:
            self._role.take(weights)

    def _receive(self) -> None:
        while (frames := self._requests.receive()) is not None:
            route = bytes(frames[0])
            try:
                request = decode_request(frames[1:])
                if len(self._batcher) < _MAX_WAITING:  # what comes beyond that is sent again
                    self._batcher.add(request, route)
            except CommError as error:
                self._stats.num_garbled += 1
                refusal = Refusal(str(error), is_final=True)
                self._requests.send([route, *encode_answer(id_of(frames[1:]), refusal)])

    def _run(self, batch: list[Waiting]) -> None:
        begun_s = time.monotonic()
        answers = self._server.evaluate([each.request for each in batch])
        took_s = time.monotonic() - begun_s
        self._batcher.note_batch(batch, took_s)
        for each, answer in zip(batch, answers, strict=True):
            self._answer(each, answer)
        self._stats.note(batch, took_s)

    def _answer(self, waiting: Waiting, answer: Reply | Refusal) -> None:
        # One that is not taken is asked for again.
        self._requests.send([waiting.route, *encode_answer(waiting.request.id, answer)])

    def _report(self) -> bool:
        """Refuse what has waited for too long, and report; False: the driver wants nothing any more."""
        self._take_weights()  # also where none came: by that a learner that was started again hears of this server
        version, settings = self._role.version, self._server.settings
        for each in self._batcher.take_overdue(version):
            text = (
                f"{settings.name} has weights {tuple(version)}, and waited {settings.hold_s:g} s for "
                f"{tuple(each.request.least or ())}, which are wanted."
            )
            self._answer(each, Refusal(text, is_final=False))
        self._link.send_stats({**self._stats.take(), "queue": len(self._batcher), "version": list(version)})
        return not self._link.stopped


def _endpoint(welcome: Any, name: str) -> str:  # Any: of JSON
    endpoint = welcome.get(name)
    if not isinstance(endpoint, str):
        raise CommError(f"the driver's welcome does not say where '{name}' is: {str(welcome)[:200]}.")
    return endpoint
