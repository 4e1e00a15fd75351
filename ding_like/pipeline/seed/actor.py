"""Step envs in the threads of a process, whose actions inference servers choose; rows go to the run's driver."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ding_like.comm.channels import Order
from ding_like.comm.workers.child import ChildProcess, describe_error
from ding_like.comm.workers.failures import FailurePolicy
from ding_like.comm.zmq.inference import InferenceClient
from ding_like.comm.zmq.row_sink import ZmqRowSink
from ding_like.errors import ConfigError
from ding_like.pipeline.build.factories import SchemeFactories
from ding_like.pipeline.build.process import prepare_worker
from ding_like.pipeline.build.remote_collect import RemoteOrders, collect_end_from_afar
from ding_like.pipeline.roles.thread_crew import ThreadCrew

if TYPE_CHECKING:
    from ding_like.comm.zmq.keys import SeedKeys
    from ding_like.pipeline.seed.config import Config

_RUN_IDS = 1_000_000  # of an actor thread in one process; those in the process after are later
_WAIT_S = 0.5  # for an order, before it is asked whether the thread is to end
_BACKOFF_S, _MAX_BACKOFF_S = 0.1, 2.0  # before a thread that failed starts anew, doubled with each time in a row
_JOIN_S = 10.0  # for threads to close their envs
_MAX_FRUITLESS = 3  # failures in a row, with no rows between, after which a thread would fail again

_logger = logging.getLogger(__name__)
_building = threading.Lock()  # policies and envs draw from the global generators of the process


@dataclass(frozen=True)
class ActorSettings:
    """Say what the threads of an actor process are made of, and where the run is; it is pickled to start one.

    `threads` are their numbers in the run, from 1: they say which seeds each has. `attempt` counts the processes that
    had them. `endpoint` is the driver's, for rows; it says where the inference servers are, unless `clients` does.
    """

    factories: SchemeFactories
    endpoint: str
    threads: Sequence[int] = (1,)
    attempt: int = 1
    clients: str | None = None
    keys: SeedKeys | None = None
    request_timeout_s: float = 2.0
    patience_s: float = 60.0  # with a driver that says nothing
    failure: FailurePolicy = field(default_factory=FailurePolicy)

    @property
    def first_run_id(self) -> int:
        """Return the run id of the first start of each thread."""
        return self.attempt * _RUN_IDS

    def factories_of(self, run_id: int) -> SchemeFactories:
        """Return the factories for a start of a thread: each one but the very first draws numbers of its own."""
        return replace(self.factories, begun_at=self.factories.begun_at + run_id - _RUN_IDS)


class Actor(ChildProcess):
    """Run actor threads in a process of their own, and start those anew that fail; see `ActorThread`.

    If all have failed for good, the process says why and exits with status 1. SIGTERM ends it, and so does the end of
    its parent, with its envs closed. Source: the SEED trainer's document.
    """

    def __init__(
        self,
        agent_config: SchemeFactories | ActorSettings,
        config: Config | None = None,
        environment: Callable[..., Any] | None = None,  # Any: an env of any kind
        data_port: int | str = 0,
        router_port: int | str | None = None,
        logging_client: None = None,
        daemon: bool = True,
        *,
        name: str = "actor_process1",
        **settings: Any,  # of ChildProcess
    ) -> None:
        """Make the process, to be started.

        `agent_config` makes the policy and the envs; `environment(cfg)`, if given, makes each env in their place. Ports
        are those of this machine, of the driver's rows and of the inference proxy's clients; endpoints may stand in
        their place. Or `agent_config` are ActorSettings, which say all. Raises ConfigError for a logging client: what
        is to be logged goes to the driver.
        """
        if logging_client is not None:
            raise ConfigError("actors log by their driver, where their rows and failures go: set logging_client=None.")
        super().__init__(name=name, daemon=daemon, **settings)
        if isinstance(agent_config, SchemeFactories):
            factories = agent_config
            if environment is not None:
                factories = replace(factories, env_setting=(environment, *factories.env_setting[1:]))
            threads = range(1, 1 + (1 if config is None else config.actor_threads))
            clients = None if router_port is None else _endpoint(router_port)
            agent_config = ActorSettings(factories, _endpoint(data_port), tuple(threads), clients=clients)
        self.settings = agent_config

    def serve(self, stop: threading.Event) -> None:
        """Run the threads until they are done, have failed for good, or `stop` is set; see `run_threads`."""
        prepare_worker()
        run_threads(self.settings, stop, self.tell)


def name_of(number: int) -> str:
    """Return the name of an actor thread in the run."""
    return f"actor{number}"


def _endpoint(port: int | str) -> str:
    return port if isinstance(port, str) else f"tcp://127.0.0.1:{port}"


def run_threads(
    settings: ActorSettings, stop: threading.Event, tell: Callable[..., None] = lambda *_, **__: None
) -> None:
    """Run actor threads until they are done or `stop` is set; they set it themselves when none is left.

    Raises what one failed with if it has failed for good before all were ready, or all have.
    """
    names, restarts = [name_of(number) for number in settings.threads], settings.failure.restarts_per_10min
    crew = ThreadCrew(names, restarts_per_10min=restarts, stop=stop, tell=tell)
    threads = [ActorThread(settings, number, crew) for number in settings.threads]
    for thread in threads:
        thread.start()
    while not stop.wait(60.0):
        pass
    for thread in threads:
        thread.cancel()
    deadline_s = time.monotonic() + _JOIN_S
    for thread in threads:
        thread.join(max(deadline_s - time.monotonic(), 0.0))
        if thread.is_alive():
            _logger.warning("%s has not ended %g s after it was asked to: its env may hang", thread.name, _JOIN_S)
    crew.end()


class ActorThread(threading.Thread):
    """Collect the rows that the driver orders, in envs of its own, by actions that are chosen from afar.

    Its network runs on inference servers; exploration, the envs and their episodes are here, as a serial run's
    collector has them. What fails is told to the driver, and the thread starts anew under the next run id: with new
    envs, whose seeds nobody had before. It has failed for good when that is not allowed any more, or is of no use.
    """

    def __init__(self, settings: ActorSettings, number: int, crew: ThreadCrew) -> None:
        super().__init__(name=name_of(number), daemon=True)
        self.number = number
        self._settings, self._crew = settings, crew
        self._run_id = settings.first_run_id
        self._fruitless = 0  # failures since rows were put
        self._lock = threading.Lock()
        self._client: InferenceClient | None = None

    def cancel(self) -> None:
        """Have a request for actions that is under way fail, now that the thread is to end."""
        with self._lock:
            if self._client is not None:
                self._client.stop()

    def run(self) -> None:
        """Collect until the driver wants no more, starting anew where need be."""
        while True:
            failure = self._attempt()
            if failure is None or not self._may_start_anew(failure):
                break
            if self._crew.stop.wait(min(_BACKOFF_S * 2 ** (self._fruitless - 1), _MAX_BACKOFF_S)):
                failure = None
                break
            self._run_id += 1
        self._crew.note_end(self.name, failure)

    def _may_start_anew(self, failure: BaseException) -> bool:
        """Tell the parent of a failure, and whether it is for good: it would happen again, or did too often."""
        self._fruitless += 1
        if not self._crew.is_ready:  # the process fails, and tells
            return False
        told = {"worker": self.name, **describe_error(failure)}
        self._crew.tell("lost", **told)
        may = self._fruitless < _MAX_FRUITLESS and self._crew.may_restart()
        if not may:
            self._crew.tell("gone", **told)
        return may

    def _attempt(self) -> BaseException | None:
        """Collect until there is nothing more to do; return what went wrong, having told the driver."""
        settings, failure = self._settings, None
        try:
            with ExitStack() as opened:
                sink = ZmqRowSink(
                    settings.endpoint, name=self.name, run_id=self._run_id, keys=settings.keys,
                    patience_s=settings.patience_s,
                )  # fmt: skip
                opened.callback(sink.close)
                try:
                    self._collect(sink, opened)
                except BaseException as error:  # also SystemExit of an env; it is sent to the driver, and returned
                    failure = error
                    if not self._crew.stop.is_set():
                        _logger.warning("%s failed:", self.name, exc_info=error)
                        sink.send_error("{type}: {text}\n{trace}".format(**describe_error(error)))
        except BaseException as error:  # of close() of an env, which may raise anything
            failure = failure or error
        return None if self._crew.stop.is_set() else failure

    def _collect(self, sink: ZmqRowSink, opened: ExitStack) -> None:
        settings = self._settings
        with _building:
            end = collect_end_from_afar(settings.factories_of(self._run_id), self.number, opened)
        welcome = sink.join()
        # Servers that are being started again are waited for.
        patience_s = max(30.0, settings.failure.start_timeout_s, 3 * settings.request_timeout_s)
        client = InferenceClient(
            settings.clients or str(welcome["clients"]), name=self.name, run_id=self._run_id, keys=settings.keys,
            request_timeout_s=settings.request_timeout_s, patience_s=patience_s,
        )  # fmt: skip
        opened.callback(client.close)
        self._hold(client)
        opened.callback(self._hold, None)
        role = RemoteOrders(sink, client, end).role
        self._crew.note_ready(self.name)

        def collect(order: Order) -> Order:
            following = end.collect(order)
            self._fruitless = 0
            return following

        role.run(collect=collect, is_done=self._crew.stop.is_set, wait_s=_WAIT_S)

    def _hold(self, client: InferenceClient | None) -> None:
        with self._lock:
            self._client = client
            if client is not None and self._crew.stop.is_set():
                client.stop()
