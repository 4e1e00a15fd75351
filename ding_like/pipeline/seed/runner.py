"""Runner, processes and sockets of a run with central inference: actors bring the rows, this process learns."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gymnasium import Space

from ding_like.comm.channels import Segment, Version
from ding_like.comm.keys import SeedKeys, load_seed_keys
from ding_like.comm.rest.rows import RowCheck
from ding_like.comm.workers.failures import FailureLog
from ding_like.comm.workers.processes import ChildProcess, Member, Processes, Slot
from ding_like.comm.zmq.rows import Arrived, RowServer, Source
from ding_like.comm.zmq.sockets import EndpointFolder, tcp_endpoint
from ding_like.comm.zmq.weights import Broadcaster
from ding_like.config import FrozenConfig, to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.errors import DingError, SchemaError
from ding_like.pipeline.checks import warmup_steps
from ding_like.pipeline.components import Components, check_hands_out_rows
from ding_like.pipeline.envs import EnvSetting
from ding_like.pipeline.rows import Collected, RemoteCollectors, shares
from ding_like.pipeline.scheme_parts import LearnerSide, SchemeFactories
from ding_like.pipeline.seed.actor import ActorSettings, AgentConfig, LoggingClient, name_of
from ding_like.pipeline.seed.servers import ServerSettings
from ding_like.pipeline.settings import SeedSettings
from ding_like.pipeline.statistics import MergedStatistics, flat_names
from ding_like.pipeline.training_loop import RemoteRunner, Runner, RunnerLostError
from ding_like.policy import Policy
from ding_like.policy.forward import ActorPart
from ding_like.report.details import Details, ProcessReport, ProcessState
from ding_like.types import Json
from ding_like.utils.measure import RateLimiter

_LOOK_S = 0.2  # between two checks of the workers, and of whether the run is to end
_LEAVE_S = 0.5  # that a round may still take then
_MOST = 2.0**53  # numbers beyond it, which a source sends, are no measures
_NO_ORDER = (-1, -1)
_OF_SERVERS = {"mean_batch", "p50_ms", "p99_ms", "queue"}

# Of a slot, as a state of its process.
_STATES: dict[str, ProcessState] = {
    "empty": "starting", "starting": "starting", "waiting": "lost", "done": "ended", "closed": "ended"
}  # fmt: skip

_logger = logging.getLogger(__name__)


class SeedRunner(RemoteRunner):
    """Runner that stores the rows that actors bring, learns from them, and sends the weights to the servers.

    `rows` takes rows in, `weights` sends weights out, `workers` are the processes of this machine.
    An actor has orders for up to `credit` segments, and none while updates are behind. With `comm` "sync" each turn is
    a round of rows that all actors share, computed with the newest weights.
    """

    def __init__(
        self,
        side: LearnerSide,
        settings: SeedSettings,
        *,
        rows: RowServer,
        weights: Broadcaster,
        workers: Processes,
        is_leaving: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(side, is_leaving)
        self._settings, self._clock = settings, clock
        self._rows, self._weights, self._workers = rows, weights, workers
        self.opened = ExitStack()  # what `close` closes
        self._segment_rows = side.segment_rows(settings.segment_rows, max(settings.num_actors, 1))
        self._beat = RateLimiter(settings.max_train_frequency, clock)
        self._first: Version | None = None  # that was published in this stretch of the run
        self._published: Version | None = None
        self._waited_s = 0.0  # for rows that were asked for, since some came
        self._report: RemoteCollectors = self._receiver.report
        self._report.beside = self._numbers

    def close(self) -> None:
        """Close all that was opened for the run; may be called again."""
        self.opened.close()

    # --- iterations

    def start(self) -> None:
        """Send the first weights, and collect the rows of random actions."""
        with self._or_lost():
            self.publish()
            self._use_statistics()  # those of a saved point: actors have none of their own
            while self.random_rows > 0 and not self._is_leaving():
                # Actors act at random at a run's first env steps.
                came = self._round(self.random_rows, env_step=0, most=self._side.random_share)
                self.random_rows -= self._receiver.put_random([_collected(each) for each in came])
                self._acknowledge(came)
            if self._settings.comm == "async":
                self._give()

    def step(self) -> None:
        """Put the rows that came, or a whole round of them, and learn from what there is."""
        with self._or_lost():
            if self._settings.comm == "sync":
                self._take_round()
            else:
                self._take_arrived()

    def _take_round(self) -> None:
        order = self._side.rows.order()
        if order.rows:
            self.publish()
            began_s = self._clock()
            came = self._round(order.rows, env_step=order.env_step)
            self._report.note_round(self._clock() - began_s)
            self._receiver.put([_collected(each) for each in came], order)
            self._acknowledge(came)
        else:
            self._arrived(min(_LOOK_S, self._beat.wait_s))  # no rows were ordered: updates are behind
        self._learn()

    def _take_arrived(self) -> None:
        order = self._side.rows.order()
        for arrived in self._arrived(min(_LOOK_S, self._beat.wait_s or _LOOK_S)):
            self._receiver.put([_collected(arrived)], order)
            self._acknowledge([arrived])
        self._learn()
        if self._weights.is_due:
            self.publish()
        self._give()

    def _learn(self) -> None:
        """Take the updates that are allowed by now."""
        while self._beat.is_due and not self._is_leaving() and self._side.rows.train_next(self._side.parts.learner):
            self._beat.record()

    def publish(self) -> None:
        """Send the learner's weights to the servers, unless they were sent."""
        newest = self._receiver.newest()
        if newest != self._published:
            self._weights.publish(self._side.acting(statistics={}))
            self._published, self._first = newest, self._first or newest

    # --- rows

    def _arrived(self, timeout_s: float, awaited: Sequence[str] | None = None) -> Sequence[Arrived]:
        """Return what came in time. Raises RunnerLostError where workers are lost, or nothing came for too long."""
        self._check()
        began_s = self._clock()
        came = self._rows.take(timeout_s)
        for source, text in self._rows.errors():  # the supervisor of this machine decides on its own
            _logger.warning("%s: %s", source, text.partition("\n")[0])
            _logger.debug("%s: %s", source, text)
        # Only what is waited here counts: an evaluation between two looks holds up the driver, and no actor.
        self._waited_s += self._clock() - began_s
        failure = self._settings.failure
        if awaited is None:
            actors = self._actors().items()
            awaited = [name for name, each in actors if each.orders and not self._has_left(name, each)]
        if came or not awaited:
            self._waited_s = 0.0
        elif self._waited_s > failure.step_timeout_s + failure.start_timeout_s:  # replaced ones came to nothing
            raise RunnerLostError(
                f"{', '.join(awaited)} were asked for rows, and none have come for {self._waited_s:.0f} s: see "
                "what holds them up (an env that hangs, a server that is too slow), or raise "
                "system.seed.failure.step_timeout_s."
            )
        return came

    def _check(self) -> None:
        try:
            self._workers.check()
        except DingError as error:  # of whatever kind an actor has failed with
            raise RunnerLostError(str(error)) from error

    def _acknowledge(self, came: Sequence[Arrived]) -> None:
        """Acknowledge rows that are in the buffer, and send new statistics for the envs' wrappers."""
        for arrived in came:
            self._rows.acknowledge(arrived)
        if any(arrived.segment.observed for arrived in came):
            self._use_statistics()

    def _use_statistics(self) -> None:
        """Have the envs of all actors normalised by what is known by now, if anything is."""
        known = self._side.statistics()
        if known:
            self._rows.use_statistics(flat_names(known))

    def _actors(self) -> dict[str, Source]:
        """Return the actors that are there, in the order of their numbers."""
        found = [(name, each) for name, each in self._rows.sources().items() if each.role == "actor" and each.connected]
        return dict(sorted(found, key=lambda item: (len(item[0]), item[0])))

    def _give(self) -> None:
        """Give the actors as many orders as they may have, unless updates are behind."""
        order = self._side.rows.order()
        if order.rows and not self._is_leaving():
            for name in self._actors():
                while self._order(name, self._segment_rows, env_step=order.env_step) is not None:
                    pass  # until it has all its credit

    def _order(self, name: str, rows: int, *, env_step: int) -> tuple[int, int] | None:
        """Give an actor an order, and return its run id and the order's number; None: it takes none."""
        # A server keeps a request until it has weights as new as these: untrained ones never act.
        least = self._published if self._settings.comm == "sync" else self._first
        assert least is not None, "weights are published before the first order"
        setting = self._side.parts.policy.command_mode.get_setting_collect({"envstep": env_step})
        newest, extra = self._published, {"least": list(least), "setting": dict(setting)}
        return self._rows.give(name, rows, env_step=env_step, newest=newest, extra=extra)

    def _round(self, rows: int, *, env_step: int, most: float = math.inf) -> list[Arrived]:
        """Return what the actors that are there bring, by place: each its share, and the least that it can collect.

        The share of a lost actor is collected by the one that takes its place; where none will, it is left out. Rows of
        an earlier round, which come late, are used too. A run that is to end waits for half a second more.
        """
        present = self._present()
        asked = {
            name: max(int(min(share, most)), self._side.least_share)
            for name, share in zip(present, shares(rows, len(present)), strict=True)
            if share
        }
        given: dict[str, tuple[int, int]] = {}  # run id of the actor that has the order, and the order's number
        came: dict[str, Arrived] = {}
        late: list[Arrived] = []
        end_s = math.inf
        while self._clock() < end_s:
            sources = self._rows.sources()
            for name in [name for name in asked if name not in came]:
                if self._has_left(name, sources[name]):
                    del asked[name]
                elif sources[name].connected and given.get(name, _NO_ORDER)[0] != sources[name].run_id:
                    given[name] = self._order(name, asked[name], env_step=env_step) or _NO_ORDER
            missing = [name for name in asked if name not in came]
            if not missing:
                break
            for each in self._arrived(_LOOK_S, missing):
                if each.source in asked and given.get(each.source) == (each.run_id, each.number):
                    came[each.source] = each
                else:
                    late.append(each)
            if self._is_leaving():
                end_s = min(end_s, self._clock() + _LEAVE_S)
        return [*(came[name] for name in asked if name in came), *late]

    def _has_left(self, name: str, source: Source) -> bool:
        """Return whether an actor is gone in whose place no other one is started."""
        is_silent = self._clock() - source.heard_s > self._settings.failure.step_timeout_s
        return (is_silent or not source.connected) and not self._workers.is_expected(name)

    def _present(self) -> list[str]:
        """Return the actors that a round is shared among; wait for one where there is none."""
        while not self._is_leaving():
            if actors := [name for name, source in self._actors().items() if not self._has_left(name, source)]:
                return actors
            self._arrived(_LOOK_S)
        return []

    # --- reports

    def workers(self) -> Mapping[str, str]:
        """Return the status of inference and of the actors: rows of the run's panel."""
        self._report.keep(self._actors())
        numbers = self._inference()
        rows = {}
        if numbers:
            rows["batch"] = f"{numbers['mean_batch']:.3g} observations"
            rows["latency"] = f"{numbers['inference_p50_ms']:.3g} ms p50, {numbers['inference_p99_ms']:.3g} ms p99"
            rows["queue"] = f"{numbers['inference_queue']:.0f} requests, {self._rows.queue_depth} segments"
        return {**rows, **self._side.describe(), **self._workers.describe()}

    def details(self) -> Details:
        """Return the processes of this machine by their slots, and of others by their heartbeats."""
        sources, now_s = self._rows.sources(), self._clock()
        found, here = list[ProcessReport](), set[str]()
        for slot, pid in self._workers.members():
            here.update(slot.sources)
            more = self._report_of([sources[name] for name in slot.sources if name in sources], now_s)
            found.append(ProcessReport(slot.name, pid, state=_STATES.get(slot.state, "running"), **more))
        for name, each in sources.items():
            if name not in here and each.role != "host":
                state: ProcessState = "running" if each.connected else "lost"
                more = self._report_of([each], now_s)
                found.append(ProcessReport(name, None, "not known", state, note=each.cut_off, **more))
        refused = {f"refused from {name}": each.refused for name, each in sources.items() if each.refused}
        details = self._report.details().beside(self._workers.log, found)
        return replace(details, lost_rows={**details.lost_rows, **refused})

    def _report_of(self, sources: Sequence[Source], now_s: float) -> dict[str, Any]:  # Any: of several fields
        """Return the heartbeat, the rates and the lag of the sources of one process, by fields of a ProcessReport."""
        heard_s = max((each.heard_s for each in sources), default=0.0)
        known = [self._report.report_of(each.name, self._receiver.newest().update) for each in sources]
        known = [each for each in known if each]
        sums = {name: sum(each[name] for each in known) for name in ("env_steps_per_s", "rows_per_s") if known}
        lag = {"policy_lag": max(each["policy_lag"] for each in known)} if known else {}
        return {"heartbeat_s": max(now_s - heard_s, 0.0) if heard_s else None, **sums, **lag}

    def _inference(self) -> dict[str, float]:
        """Return what servers and actors measured in their last second; empty before they have.

        A batch is so many observations. The latency is that of the slowest: from an actor's request to the answer, or
        where no actor has sent any, from a server's receipt on.
        """
        # A source may send anything as its numbers, and of some there are none at times.
        numbers = [
            (each.role, {key: float(value) for key, value in each.stats.items() if _is_number(value)})
            for each in self._rows.sources().values()
            if each.connected
        ]
        servers = [each for role, each in numbers if role == "server" and each.keys() >= _OF_SERVERS]
        if not servers:
            return {}
        waits = [each for role, each in numbers if role == "actor" and each.keys() >= {"p50_ms", "p99_ms"}] or servers
        return {
            "mean_batch": sum(each["mean_batch"] for each in servers) / len(servers),
            "inference_p50_ms": max(each["p50_ms"] for each in waits),
            "inference_p99_ms": max(each["p99_ms"] for each in waits),
            "inference_queue": sum(each["queue"] for each in servers),
        }

    def _numbers(self) -> Mapping[str, float]:
        """Return what goes into the metrics with the rates of all actors: each one's, and how inference fares."""
        rates = {f"envstep_per_sec/{name}": steps for name, (steps, _) in self._report.rates().items()}
        refused = {f"refused_segments/{name}": each.refused for name, each in self._rows.sources().items()}
        refused = {key: number for key, number in refused.items() if number}
        return {**self._inference(), "queue_depth": float(self._rows.queue_depth), **rates, **refused}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) < _MOST


def _collected(arrived: Arrived) -> Collected:
    return Collected(arrived.source, arrived.segment, arrived.came_s, arrived.asked)


_ENDLESS_S = float("inf")  # patience with a driver that was stopped: its children end with it
_logger = logging.getLogger(__name__)


_MEANS = ("return", "length")  # of recent episodes: numbers, None before the first has ended
# Env steps that a step in a row may have taken: those of episodes that were dropped count too.
_STEPS_FOR_ONE, _STEPS_BESIDE = 1_000, 100_000

_OWN_OF_POLICY = frozenset(("cuda", "learn", "eval", "other"))
_OWN_OF_ENV = frozenset(("collector_env_num", "evaluator_env_num", "n_evaluator_episode", "stop_value", "manager"))


def _warn_of_waits(settings: SeedSettings) -> None:
    """Warn that batches never fill where a server has fewer actors than a batch holds: each request waits then."""
    each = settings.num_actors / max(settings.inference_servers, 1)
    if settings.inference_delay > 0 and 0 < each < settings.inference_batchsize:
        _logger.warning(
            "inference_batchsize is %d, and a server has %g actor threads here: batches do not fill, and every request "
            "waits inference_delay=%g s, so that an actor takes at most %g steps a second. Set inference_batchsize to "
            "%d, or both to 0 for what is there.",
            settings.inference_batchsize, each, settings.inference_delay, 1 / settings.inference_delay,
            max(int(each), 1),
        )  # fmt: skip


def seed_runner(
    cfg: FrozenConfig,
    parts: Components,
    settings: SeedSettings,
    *,
    seed: int,
    log: FailureLog | None = None,
    folder: Path | None = None,
    env_setting: EnvSetting | None = None,
    dynamic_seed: bool = True,
    model: torch.nn.Module | None = None,
    logging_client: LoggingClient | None = None,
    run_as: Callable[[ChildProcess], Member] = lambda child: child,
) -> Callable[[Callable[[], bool]], Runner]:
    """Return what makes the runner of a run with these parts (`build_driver`): servers and actors are ready then.

    What they print goes to files in `folder`, by default where this process prints. `model` stands in place of the
    policy's default model at the servers. `run_as` ChildThread runs them in threads of this process.
    """
    _warn_of_waits(settings)
    fitted: Any = parts.policy.cfg
    made = SchemeFactories.of(
        cfg, seed=seed, env_setting=env_setting, model=model, dynamic_seed=dynamic_seed, fitted=fitted
    )

    def make_runner(is_leaving: Callable[[], bool]) -> Runner:
        # Known once the parts have been loaded from the saved point, if there is one.
        factories = replace(made, begun_at=parts.collector.envstep)
        with ExitStack() as opened:
            keys = None if settings.key_file is None else load_seed_keys(settings.key_file)
            rows, weights = _open_channels(cfg, parts, settings, keys, opened)
            workers = Workers(
                factories, agent_config(factories, parts.policy), settings, rows.endpoint, keys, folder,
                logging_client, run_as, _ENDLESS_S,
            )  # fmt: skip
            processes = Processes(
                workers.slots(),
                policy=settings.failure,
                log=log,
                heard=lambda: {name: each.heard_s for name, each in rows.sources().items()},
                lost=rows.open_rows,
            )
            opened.callback(processes.close)
            opened.callback(rows.stop_all)  # first: a process that receives it ends by itself
            end = LearnerSide(
                cfg, parts, max_policy_lag=settings.max_policy_lag, least_rows=settings.minimum_buffer_size or 0
            )
            runner = SeedRunner(end, settings, rows=rows, weights=weights, workers=processes, is_leaving=is_leaving)
            runner.publish()  # servers answer no request before they have weights
            processes.start(is_leaving=is_leaving)
            runner.opened = opened.pop_all()
            return runner

    return make_runner


def _open_channels(
    cfg: FrozenConfig, parts: Components, settings: SeedSettings, keys: SeedKeys | None, opened: ExitStack
) -> tuple[RowServer, Broadcaster]:
    """Start the proxy, the broadcaster and the row server, which `opened` closes; return the last two."""
    names = ("data", "weights", "clients", "servers")
    if settings.transport == "ipc":
        folder = opened.enter_context(EndpointFolder())
        data, weights_at, clients, servers = map(folder.endpoint, names)
    else:
        data = tcp_endpoint(settings.host, settings.port)
        weights_at = clients = servers = tcp_endpoint(settings.host)
    proxy = opened.enter_context(settings.class_of("inference_proxy")(clients, servers, keys=keys))
    proxy.start()
    broadcaster = settings.class_of("broadcaster")
    weights: Broadcaster = opened.enter_context(
        broadcaster(period=settings.broadcast_period, endpoint=weights_at, keys=keys)
    )
    weights.start()
    env, statistics = parts.evaluator_env, parts.statistics
    merged = statistics if isinstance(statistics, MergedStatistics) else None
    check = None if env is None else SegmentCheck(env.observation_space, env.action_space, merged)
    ends = {"clients": proxy.client_endpoint, "servers": proxy.server_endpoint, "weights": weights.endpoint}
    welcome = {**ends, "config": config_mark(cfg)}
    own_names = [f"server{number}" for number in range(1, settings.inference_servers + 1)]
    own_names += map(name_of, range(1, settings.num_actors + 1))
    rows = RowServer(data, keys=keys, credit=settings.credit, check=check, welcome=welcome, own_names=own_names)
    opened.callback(rows.close)
    if settings.transport == "tcp":
        _logger.info("actors and servers of other machines join at %s", rows.endpoint)
    return rows.start(), weights


@dataclass(frozen=True)
class Workers:
    """Makers of the inference servers and the actors of a run, on this machine or on one that joins."""

    factories: SchemeFactories
    agent: AgentConfig
    settings: SeedSettings
    endpoint: str
    keys: SeedKeys | None = None
    folder: Path | None = None  # of what processes print
    logging_client: LoggingClient | None = None
    run_as: Callable[[ChildProcess], Member] = lambda child: child
    patience_s: float = 60.0  # with a driver that is silent

    def slots(self) -> list[Slot]:
        """Return a slot for each inference server and each actor process of the driver's machine."""
        slots = []
        for number in range(1, self.settings.inference_servers + 1):
            name = f"server{number}"
            slots.append(Slot(name, partial(self._make, self.server, name), (name,)))
        each = self.settings.actor_threads
        for number in range(1, self.settings.actor_processes + 1):
            threads = range((number - 1) * each + 1, number * each + 1)  # numbers in the run, from 1
            make = partial(self._make, self.actor, f"actor_process{number}", threads=threads)
            slots.append(Slot(f"actor_process{number}", make, tuple(map(name_of, threads))))
        return slots

    def _make(self, make: Callable[..., ChildProcess], name: str, attempt: int, **given: Any) -> Member:
        return self.run_as(make(name, attempt + 1, **given))

    def server(self, name: str, attempt: int) -> ChildProcess:
        """Return an inference server, to be started; `attempt` counts those of this name from 1."""
        settings = self.settings
        made = ServerSettings(
            self.factories, self.endpoint, name=name, run_id=attempt, keys=self.keys,
            batchsize=settings.inference_batchsize, delay_s=settings.inference_delay,
            device=settings.inference_device, start_timeout_s=settings.failure.start_timeout_s,
            patience_s=self.patience_s,
        )  # fmt: skip
        server: ChildProcess = settings.class_of("inference_server")(made, output=self._output(name))
        return server

    def actor(self, name: str, attempt: int, *, threads: Sequence[int]) -> ChildProcess:
        """Return an actor process, to be started; `attempt` counts those of this name from 1."""
        settings = self.settings
        made = ActorSettings(
            self.agent, self.endpoint, threads=tuple(threads), attempt=attempt, keys=self.keys,
            request_timeout_s=settings.request_timeout_s, patience_s=self.patience_s, failure=settings.failure,
            thread=settings.class_of("actor_thread"), client=settings.class_of("inference_client"),
            logging_client=self.logging_client,
        )  # fmt: skip
        actor: ChildProcess = settings.class_of("actor")(made, name=name, output=self._output(name))
        return actor

    def _output(self, name: str) -> Path | None:
        return None if self.folder is None else self.folder / f"{name}.txt"


def agent_config(factories: SchemeFactories, policy: Policy | None = None) -> AgentConfig:
    """Return the parts that actors are made from; a part of `policy` that cannot be sent is made there.

    Raises ConfigError for a policy whose network cannot be elsewhere, and for a collector of whole episodes.
    """
    cfg = factories.cfg
    check_hands_out_rows(cfg.policy.collect.collector)
    part = None if policy is None else ActorPart.of(policy)
    sent = part if part is not None and part.is_plain() else partial(actor_part, factories)
    made, random_steps = factories, warmup_steps(cfg.policy)
    return AgentConfig(cfg, sent, made.env_setting, made.seed, made.dynamic_seed, made.begun_at, random_steps)


def actor_part(factories: SchemeFactories) -> ActorPart:
    """Return the part of a policy that an actor has, of a policy which is built for that; its network is released."""
    policy = factories.actor("cpu")
    part = ActorPart.of(policy)
    policy._model = None
    return part


def config_mark(cfg: FrozenConfig) -> dict[str, str]:
    """Return what the configs of a run's machines have in common: policy, env, and a digest of what rows depend on.

    How many envs there are, how they are run, how the policy learns and how it is evaluated is each machine's own.
    """
    plain = to_plain(cfg)
    policy = {name: each for name, each in plain["policy"].items() if name not in _OWN_OF_POLICY}
    env = {name: each for name, each in plain["env"].items() if name not in _OWN_OF_ENV}
    # Classes and functions by their names: where they are in memory differs.
    text = json.dumps([policy, env], sort_keys=True, default=lambda it: getattr(it, "__qualname__", type(it).__name__))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {"policy": plain["policy"]["type"], "env": cfg.env.get("env_id") or cfg.env.type, "digest": digest}


class SegmentCheck:
    """Check that refuses segments which no actor of this run sends.

    Their rows are as the envs' spaces say (`RowCheck`), and have the columns of the first segment that passes; what the
    envs' wrappers observed is of `statistics`' wrappers; the numbers beside them are finite.
    """

    def __init__(
        self,
        observation_space: Space[Any],  # Any, twice: a space is generic in what it samples
        action_space: Space[Any],
        statistics: MergedStatistics | None = None,
    ) -> None:
        self._spaces = observation_space, action_space
        self._statistics = statistics
        self._rows: RowCheck | None = None

    def __call__(self, segment: Segment) -> None:
        """Raise SchemaError or SegmentError with what is wrong with a segment."""
        batch = segment.batch
        assert isinstance(batch, TransitionBatch), "rows that do not stack are not sent"
        rows = self._rows or RowCheck(*self._spaces, batch.schema)
        rows(batch.columns)
        _check_stats(segment.stats)
        steps = max(math.prod(column.shape[:2]) for column in batch.columns.values())
        if segment.env_steps > _STEPS_FOR_ONE * steps + _STEPS_BESIDE:
            raise SchemaError(f"{segment.env_steps:,} env steps for {len(batch):,} rows cannot be.")
        if self._statistics is not None:
            if segment.observed:
                self._statistics.check(segment.observed)
        elif segment.observed:
            raise SchemaError(f"the run has no env.wrappers that observe, and got {sorted(segment.observed)[:5]}.")
        self._rows = rows


def _check_stats(stats: Mapping[str, Json]) -> None:
    for name, value in stats.items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if name in _MEANS and value is not None and not is_number:
            raise SchemaError(f"the mean {name} of episodes is {value!r:.80}; expected a number.")
        # An int may be too large to become a float.
        if is_number and (not abs(value) < _MOST):
            raise SchemaError(f"'{name:.80}' is {value!r:.80}; expected a finite number.")
