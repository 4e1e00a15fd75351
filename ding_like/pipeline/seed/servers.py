"""Run an inference server: a policy's network, with the newest weights, for all actors that ask it.

Source: Espeholt et al. 2020, SEED RL, for what runs where.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from typing import TYPE_CHECKING, Any

from ding_like.comm.workers.child import ChildProcess
from ding_like.comm.zmq.data_link import DataLink
from ding_like.comm.zmq.inference_messages import Refusal
from ding_like.comm.zmq.proxy import BEAT_S
from ding_like.comm.zmq.request_socket import RequestSocket
from ding_like.comm.zmq.sockets import Poller
from ding_like.comm.zmq.weights import WeightSocket
from ding_like.errors import CommError, ConfigError
from ding_like.pipeline.build.factories import SchemeFactories
from ding_like.pipeline.build.process import prepare_worker
from ding_like.pipeline.roles.batcher import Batcher, Waiting
from ding_like.pipeline.roles.infer import InferRole
from ding_like.pipeline.roles.inference_stats import InferenceStats

if TYPE_CHECKING:
    from ding_like.comm.zmq.keys import SeedKeys

# Of what a driver's welcome says: where servers ask the proxy for work, and where weights come from.
SERVERS, WEIGHTS = "servers", "weights"


@dataclass(frozen=True)
class ServerSettings:
    """Say what an inference server is: its policy by `factories`, its driver's data `endpoint`, how it makes batches.

    `run_id` grows with every start of what bears `name`. A batch of `batchsize` requests runs when there are as many,
    a smaller one `delay_s` after its first request; with 0 and 0 what is there runs (see `Batcher`). Raises ConfigError
    for numbers that make no sense.
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
    patience_s: float = 60.0  # with a driver that says nothing

    def __post_init__(self) -> None:
        if self.batchsize < 0 or not 0 <= self.delay_s < float("inf"):
            raise ConfigError(
                f"an inference server is to wait for {self.batchsize} requests and {self.delay_s} s; expected 0 or "
                "more of each: 0 and 0 runs what is there."
            )


class InferenceServer(ForkServerProcess, ChildProcess):  # type: ignore[misc]  # both define how to start
    """Process of an inference server; `wait_ready` returns once it answers.

    It is forked from a process that has imported what it needs: its imports take 2 s of a core, several times that on
    a busy machine, and actors wait while a lost server is replaced.
    """

    def __init__(self, settings: ServerSettings, **process: Any) -> None:  # Any: what a ChildProcess takes
        multiprocessing.set_forkserver_preload([__name__])
        super().__init__(**{"name": settings.name, **process})
        self._settings = settings

    def serve(self, stop: threading.Event) -> None:
        """Answer requests until `stop` is set."""
        prepare_worker()
        serve_inference(self._settings, stop, when_ready=self.tell_ready)


def serve_inference(
    settings: ServerSettings, stop: threading.Event, *, when_ready: Callable[[], None] = lambda: None
) -> None:
    """Answer requests in this thread until `stop` is set, or the driver says that nothing is wanted any more.

    The proxy hears of the server once it has the driver's weights: no network answers that nobody has trained. What
    goes wrong is told to the driver, and raised.
    """
    with ExitStack() as opened:
        link = DataLink(
            settings.endpoint,
            name=settings.name,
            run_id=settings.run_id,
            keys=settings.keys,
            patience_s=settings.patience_s,
        )
        opened.callback(link.close)
        try:
            role = InferRole(settings.factories.actor(settings.device), name=_identity(settings))
            _Server(settings, role, link, opened).serve(stop, when_ready)
        except Exception as error:  # a user's model may raise anything; the driver gets it, and it is raised again
            link.send_error(f"{type(error).__name__}: {error}")
            raise


def _identity(settings: ServerSettings) -> str:
    return f"{settings.name}.{settings.run_id}"


class _Server:
    """Join requests, weights and the driver to an `InferRole`."""

    def __init__(self, settings: ServerSettings, role: InferRole, link: DataLink, opened: ExitStack) -> None:
        welcome = link.join()
        keys = settings.keys
        self._settings = settings
        self._role, self._link = role, link
        self._weights = WeightSocket(_endpoint(welcome, WEIGHTS), name=settings.name, keys=keys)
        opened.callback(self._weights.close)
        self._requests = RequestSocket(_endpoint(welcome, SERVERS), name=_identity(settings), keys=keys)
        opened.callback(self._requests.close)
        self._batcher = Batcher(batchsize=settings.batchsize, delay_s=settings.delay_s, hold_s=settings.hold_s)
        self._poller = Poller(self._requests.socket, self._weights.socket)
        self._stats = InferenceStats()

    def serve(self, stop: threading.Event, when_ready: Callable[[], None]) -> None:
        """Answer requests."""
        if not self._has_weights(stop):
            return
        self._requests.hello()
        when_ready()
        while not stop.is_set():
            ready = self._poller.wait(min(self._batcher.wait_s(self._role.version), BEAT_S))
            self._requests.beat()
            if self._weights.socket in ready:
                self._take_weights()
            for request in self._requests.receive():
                self._batcher.add(request)
            while batch := self._batcher.take(self._role.version):
                self._run(batch)
            if self._stats.is_due and not self._keep_house():
                break
        self._requests.bye()

    def _has_weights(self, stop: threading.Event) -> bool:
        """Wait for the first weights; False: the server is stopped. Raises CommError if none come."""
        deadline_s = time.monotonic() + self._settings.start_timeout_s
        while not stop.is_set():
            weights = self._weights.wait(BEAT_S)
            if weights is not None:
                self._role.take(weights)
                return True
            if time.monotonic() >= deadline_s:
                raise CommError(
                    f"{self._settings.name} was sent no weights within {self._settings.start_timeout_s:g} s: the "
                    "learner has to publish some before servers start, or its endpoint cannot be reached from here."
                )
        return False

    def _take_weights(self) -> None:
        weights = self._weights.take()
        if weights is not None:
            self._role.take(weights)

    def _run(self, batch: list[Waiting]) -> None:
        wanted = [each for each in batch if self._requests.is_wanted(each.request)]
        if not wanted:
            return
        begun_s = time.monotonic()
        with self._requests.computing():
            answers = self._role.answer([each.request for each in wanted])
        took_s = time.monotonic() - begun_s
        self._batcher.note_batch(wanted, took_s)
        self._stats.note_batch(wanted, took_s)
        for each, answer in zip(wanted, answers, strict=True):
            self._requests.answer(each.request, answer)
            self._stats.note_answer(each)

    def _keep_house(self) -> bool:
        """Refuse what has waited for too long, forget clients that are gone, report; False: the driver says stop."""
        self._take_weights()  # also where none came: by that a learner that was started again hears of this server
        version = self._role.version
        for request in self._batcher.take_overdue(version):
            text = (
                f"{self._settings.name} has weights {tuple(version)}, and waited {self._settings.hold_s:g} s for "
                f"{tuple(request.least or ())}, which are wanted."
            )
            self._requests.answer(request, Refusal(text, is_final=False))
        for client in self._requests.forget():
            self._role.forget(client)
        here = {"queue": len(self._batcher), "version": list(version), "clients": self._requests.num_clients}
        repeated = {"repeated": self._requests.num_repeated, "garbled": self._requests.num_garbled}
        self._link.send_stats({**self._stats.take(), **here, **repeated})
        return not self._link.stopped


def _endpoint(welcome: Any, name: str) -> str:  # Any: of JSON
    endpoint = welcome.get(name)
    if not isinstance(endpoint, str):
        raise CommError(f"the driver's welcome does not say where '{name}' is: {str(welcome)[:200]}.")
    return endpoint
