"""Processes of threads that step envs; inference servers compute the actions, rows go to the run's driver.

An actor holds envs, exploration and n-step rows: no network. Nothing here imports torch.
"""

from __future__ import annotations

import logging
import math
import multiprocessing
import random
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ding_like.comm.channels import CollectRequest, Segment, Version
from ding_like.comm.keys import SeedKeys
from ding_like.comm.workers.failures import FailurePolicy, RestartBudget
from ding_like.comm.workers.processes import ChildProcess, describe_error
from ding_like.comm.zmq.inference import InferenceClient
from ding_like.comm.zmq.rows import ZmqRowSink
from ding_like.config import FrozenConfig
from ding_like.data.records import as_stats, metric_names
from ding_like.data.rows import CollectMode
from ding_like.envs import EnvFactory, create_env_manager
from ding_like.pipeline.statistics import CollectorStatistics
from ding_like.policy.di_engine_view import random_collect_mode
from ding_like.policy.forward import ActorPart
from ding_like.types import Config as Section
from ding_like.types import EnvManager, Factory, Json, Setting
from ding_like.utils.measure import Interval
from ding_like.utils.seeding import MAX_SEED, make_rng, set_pkg_seed
from ding_like.worker import SampleSerialCollector, create_serial_collector

if TYPE_CHECKING:
    from ding_like.pipeline.settings import Config

_RUN_IDS = 1_000_000  # of an actor thread in one process; those in the process after are later
_WAIT_S = 0.5  # for an order, before `stop` is looked at
_END_S = 60.0  # of one wait for the end of an actor
_BACKOFF_S, _MAX_BACKOFF_S = 0.1, 2.0  # before a thread that failed starts again, doubled with each time in a row
_JOIN_S = 10.0  # for threads to close their envs
_MAX_FRUITLESS = 3  # failures in a row, with no rows between, after which a thread would fail again
_STATS_S = 1.0

_logger = logging.getLogger(__name__)
_building = threading.Lock()  # envs draw from the global generators of the process


class LoggingClient(Protocol):
    """Client of the user's that receives numbers of each actor thread once a second; it can be pickled."""

    def log(self, name: str, values: Mapping[str, Json], /) -> object: ...


@dataclass(frozen=True)
class AgentConfig:
    """Parts that actors are made from: a compiled config, envs, and the part of the policy that is not its network.

    Thread 1 of a run has the seeds and the generators of a serial run's collector. `begun_at` are the env steps at
    which the run is resumed: it draws other numbers than a new run. For the first `random_steps` env steps
    actions are random. `part` may be a function that makes it in the actor's process.
    """

    cfg: FrozenConfig
    part: ActorPart | Callable[[], ActorPart]
    env_setting: tuple[Factory, Sequence[Section], Sequence[Section]]  # see `EnvSetting`
    seed: int
    dynamic_seed: bool = True
    begun_at: int = 0
    random_steps: int = 0

    @property
    def resumed(self) -> tuple[str, ...]:
        """The further names of the generators of a resumed run."""
        return ("resumed", str(self.begun_at)) if self.begun_at else ()

    def lane_seed(self, number: int) -> int:
        """Return the seed of the first lane of a thread; lane i has i more."""
        first, num_lanes = self.seed, len(self.env_setting[1])
        if self.begun_at and self.dynamic_seed:
            first = int(make_rng(self.seed, "lanes", *self.resumed).integers(MAX_SEED))
        return (first + (number - 1) * num_lanes) % (MAX_SEED + 1 - num_lanes)

    def envs(self, number: int) -> EnvManager:
        """Return the envs of a thread, seeded and not launched."""
        env_fn, env_cfgs, _ = self.env_setting
        envs = create_env_manager(self.cfg.env.manager, [EnvFactory(each, env_fn) for each in env_cfgs])
        envs.metrics = metric_names(self.cfg.env.get("metrics") or ())
        envs.seed(self.lane_seed(number), dynamic_seed=self.dynamic_seed)
        return envs

    def collector(self, number: int, envs: EnvManager, mode: CollectMode, *, folder: str) -> SampleSerialCollector:
        """Return the collector of a thread, which logs into a folder."""
        place = () if number == 1 else ("0", str(number))
        collector: SampleSerialCollector = create_serial_collector(
            self.cfg.policy.collect.collector,
            env=envs,
            policy=mode,
            rng=make_rng(self.seed, "collector", *place, *self.resumed),
            tb_logger=None,
            exp_name=folder,
            instance_name=f"collector{number}",
        )
        return collector


@dataclass(frozen=True)
class ActorSettings:
    """Settings of an actor process: what its threads are made of, and where the run is. It is pickled to start one.

    `threads` are their numbers in the run, from 1: they determine the seeds. `attempt` counts the processes that had
    them. `endpoint` is the driver's, for rows; its welcome names the proxy, unless `clients` does. `thread` and
    `client` are the classes that run.
    """

    agent: AgentConfig
    endpoint: str
    threads: Sequence[int] = (1,)
    attempt: int = 1
    clients: str | None = None
    keys: SeedKeys | None = None
    request_timeout_s: float = 2.0
    patience_s: float = 60.0  # with a driver that is silent
    failure: FailurePolicy = field(default_factory=FailurePolicy)
    thread: type[ActorThread] | None = None
    client: type[InferenceClient] = InferenceClient
    logging_client: LoggingClient | None = None

    @property
    def first_run_id(self) -> int:
        """The run id of the first start of each thread."""
        return self.attempt * _RUN_IDS

    def agent_of(self, run_id: int) -> AgentConfig:
        """Return the parts for a start of a thread: each one but the very first draws numbers of its own."""
        return replace(self.agent, begun_at=self.agent.begun_at + run_id - _RUN_IDS)


class Actor(ChildProcess):
    """Process of actor threads (see `ActorThread`), which starts those again that fail.

    If all have failed for good, the process reports why and exits with status 1. SIGTERM ends it, and so does the end
    of its parent, with its envs closed. Source: the SEED trainer's document.
    """

    def __init__(
        self,
        agent_config: AgentConfig | ActorSettings,
        config: Config | None = None,
        environment: Factory | None = None,
        data_port: int | str = 0,
        router_port: int | str | None = None,
        logging_client: LoggingClient | None = None,
        daemon: bool = True,
        *,
        name: str = "actor_process1",
        **settings: Any,  # of ChildProcess
    ) -> None:
        """Make the process, to be started.

        `environment(cfg)`, if given, makes each env in place of the agent's. Ports are those of this machine, of the
        driver's rows and of the inference proxy's clients; endpoints may stand in their place. Or `agent_config` are
        ActorSettings, which have all of this.
        """
        super().__init__(name=name, daemon=daemon, **settings)
        if isinstance(agent_config, AgentConfig):
            agent = agent_config
            if environment is not None:
                agent = replace(agent, env_setting=(environment, *agent.env_setting[1:]))
            threads = range(1, 1 + (1 if config is None else config.actor_threads))
            clients = None if router_port is None else _endpoint(router_port)
            data = _endpoint(data_port)
            agent_config = ActorSettings(agent, data, tuple(threads), clients=clients, logging_client=logging_client)
        self.settings = agent_config

    def serve(self, stop: threading.Event) -> None:
        """Run the threads until they are done or `stop` is set; it is set by the last one that ends.

        Raises what one failed with if it has failed for good before all were ready, or all have.
        """
        settings = self.settings
        self.stop, self._lock = stop, threading.Lock()  # the lock guards the next four
        self._budget = RestartBudget(settings.failure.restarts_per_10min)
        self._not_ready = {name_of(number) for number in settings.threads}
        self._working = set(self._not_ready)
        self._failures: dict[str, BaseException] = {}  # for good, by thread
        threads = [(settings.thread or ActorThread)(self, number) for number in settings.threads]
        for thread in threads:
            thread.start()
        while not stop.wait(_END_S):
            pass
        for thread in threads:
            thread.cancel()
        deadline_s = time.monotonic() + _JOIN_S
        for thread in threads:
            thread.join(max(deadline_s - time.monotonic(), 0.0))
            if thread.is_alive():
                _logger.warning("%s has not ended %g s after it was asked to: its env may hang", thread.name, _JOIN_S)
        with self._lock:
            if self._failures and (self._not_ready or self._working == self._failures.keys()):
                raise next(iter(self._failures.values()))
            is_done = not self._working
        if is_done:
            self.report("done")

    # --- called by the threads

    def note_ready(self, name: str) -> None:
        """Record that a thread can work; report when all can, and when this one can again."""
        with self._lock:
            is_last = self._not_ready == {name}
            self._not_ready.discard(name)
        self.report("back", worker=name)
        if is_last:
            self.report_ready()

    def may_restart(self, name: str, failure: BaseException, *, is_fruitless: bool) -> bool:
        """Report a failure of a thread, and return whether it may start again."""
        with self._lock:
            if self._not_ready:  # the process fails, and reports
                return False
            reported = {"worker": name, **describe_error(failure)}
            self.report("lost", **reported)
            may = not is_fruitless and self._budget.spend()
        if not may:
            self.report("gone", **reported)
        return may

    def note_end(self, name: str, failure: BaseException | None) -> None:
        """Record that a thread is done, or has failed for good; `stop` is set if none has work left."""
        with self._lock:
            if failure is not None:
                self._failures[name] = failure
            elif not self.stop.is_set():
                self._working.discard(name)
            if (failure is not None and self._not_ready) or self._working == self._failures.keys():
                self.stop.set()


def name_of(number: int) -> str:
    """Return the name of an actor thread in the run."""
    return f"actor{number}"


def _endpoint(port: int | str) -> str:
    return port if isinstance(port, str) else f"tcp://127.0.0.1:{port}"


class ActorThread(threading.Thread):
    """Thread that collects the rows which the driver orders: envs, exploration, n-step rows, and an inference client.

    A failure is reported to the driver, and the thread starts again under the next run id: with new envs, and seeds of
    their own. It has failed for good when that is not allowed any more, or is of no use.
    """

    def __init__(self, actor: Actor, number: int) -> None:
        super().__init__(name=name_of(number), daemon=True)
        self.number = number
        self.settings = actor.settings
        self._actor = actor
        self._run_id = actor.settings.first_run_id
        self._num_fruitless = 0  # failures since rows were sent
        self._client: InferenceClient | None = None

    def cancel(self) -> None:
        """Have a request for actions that is under way fail, now that the thread is to end."""
        client = self._client
        if client is not None:
            client.stop()

    def run(self) -> None:
        """Collect until the driver needs no more, starting again after a failure."""
        actor = self._actor
        while (failure := self._attempt()) is not None:
            self._num_fruitless += 1
            if not actor.may_restart(self.name, failure, is_fruitless=self._num_fruitless >= _MAX_FRUITLESS):
                break
            if actor.stop.wait(min(_BACKOFF_S * 2 ** (self._num_fruitless - 1), _MAX_BACKOFF_S)):
                failure = None
                break
            self._run_id += 1
        actor.note_end(self.name, failure)

    def _attempt(self) -> BaseException | None:
        """Collect until there is nothing more to do; return what went wrong, having reported it to the driver."""
        settings, stop = self.settings, self._actor.stop
        own: dict[str, Any] = dict(name=self.name, run_id=self._run_id, keys=settings.keys)
        failure: BaseException | None = None
        try:
            with ExitStack() as opened:
                sink = ZmqRowSink(settings.endpoint, patience_s=settings.patience_s, **own)
                opened.callback(sink.close)
                try:
                    with _building:
                        collection = _Collection(settings.agent_of(self._run_id), self.number, sink, opened)
                    clients = settings.clients or str(sink.join()["clients"])
                    # Servers that are being started again are waited for.
                    patience_s = max(30.0, settings.failure.start_timeout_s, 3 * settings.request_timeout_s)
                    self._client = settings.client(
                        clients, request_timeout_s=settings.request_timeout_s, patience_s=patience_s, **own
                    )
                    opened.callback(self._client.close)
                    if stop.is_set():
                        self._client.stop()
                    collection.connect(self._client, settings.logging_client)
                    self._actor.note_ready(self.name)
                    self._collect(collection, sink, stop)
                except BaseException as error:  # also SystemExit of an env; it is sent to the driver, and returned
                    failure = error
                    if not stop.is_set():
                        _logger.warning("%s failed:", self.name, exc_info=error)
                        sink.send_error("{type}: {text}\n{trace}".format(**describe_error(error)))
        except BaseException as error:  # of close() of an env, which may raise anything
            failure = failure or error
        return None if stop.is_set() else failure

    def _collect(self, collection: _Collection, sink: ZmqRowSink, stop: threading.Event) -> None:
        order = sink.order(timeout_s=_WAIT_S)
        while not order.finish and not stop.is_set():
            if order.rows > 0:
                order = sink.put(collection.collect(order))
                collection.report_latency()
                self._num_fruitless = 0
            else:
                order = sink.order(timeout_s=_WAIT_S)


class _Collection:
    """Envs and collector of a start of an actor thread."""

    def __init__(self, agent: AgentConfig, number: int, sink: ZmqRowSink, opened: ExitStack) -> None:
        if multiprocessing.parent_process() is not None:  # envs of each thread draw other numbers
            seed = agent.lane_seed(number)
            if "torch" in sys.modules:  # an env has loaded it
                set_pkg_seed(seed)
            else:
                random.seed(seed)
                np.random.seed(seed)
        self._agent, self._number, self._sink = agent, number, sink
        self._part = agent.part if isinstance(agent.part, ActorPart) else agent.part()
        self._envs = agent.envs(number)
        opened.callback(self._envs.close)
        self._statistics = CollectorStatistics(self._envs)
        self._opened = opened
        self._stats_due = Interval(_STATS_S)
        self._acts_at_random = False

    def connect(self, client: InferenceClient, logging_client: LoggingClient | None) -> None:
        """Make the collector, which acts by a client's network; its envs are launched."""
        agent, folder = self._agent, self._agent.cfg.exp_name
        if not Path(folder).is_dir():  # on another machine the run has no folder
            folder = self._opened.enter_context(TemporaryDirectory(prefix="ding-like-"))
        self._client, self._logging_client = client, logging_client
        self._mode = self._part.connect(client)
        self._collector = agent.collector(self._number, self._envs, self._mode, folder=folder)
        self._opened.callback(self._collector.close)

    def collect(self, order: CollectRequest) -> Segment:
        """Collect as many rows as are ordered (of whole episodes: episodes, one in each lane at least)."""
        extra, collector = self._sink.extra, self._collector
        least = extra.get("least")
        if least is not None:
            self._client.least = Version(*least)
        flat = self._sink.take_statistics()
        if flat is not None:
            self._statistics.use_flat(flat)
        self._act_at_random(order.env_step < self._agent.random_steps)
        if collector.unit == "episodes":
            self._mode.set_attribute("n_episode", max(order.rows, self._envs.num_lanes))
        version = order.newest or Version(0, 0)
        setting = dict(extra.get("setting") or {})
        first_step = collector.envstep
        batch = collector.collect_rows(order.rows, train_iter=version.update, policy_kwargs=setting)
        env_steps = collector.envstep - first_step
        # The oldest version that answered; random actions ask for none.
        version = self._client.take_version() or version
        return Segment(batch, version, env_steps, self._stats(setting), self._statistics.take())

    def report_latency(self) -> None:
        """Report once a second how long requests take."""
        if self._stats_due.pass_s():
            numbers = self._client.take_latency().plain()
            self._sink.send_stats(numbers)
            if self._logging_client is not None:
                self._logging_client.log(name_of(self._number), {**numbers, **self._stats({})})

    def _stats(self, setting: Setting) -> dict[str, Json]:
        collector = self._collector
        means = {"return": collector.mean_return, "length": collector.mean_length}
        finite = {name: None if math.isnan(mean) else mean for name, mean in means.items()}
        return {**finite, **as_stats(collector.mean_metrics), **setting}

    def _act_at_random(self, at_random: bool) -> None:
        if at_random != self._acts_at_random:
            mode = random_collect_mode(self._mode, self._envs.action_space) if at_random else self._mode
            self._collector.reset_policy(mode)
            self._acts_at_random = at_random
