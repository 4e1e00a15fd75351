"""Processes, sockets and runner of a run with central inference."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gymnasium import Space

from ding_like.comm.channels import Segment
from ding_like.comm.keys import SeedKeys, load_seed_keys
from ding_like.comm.rest.rows import RowCheck
from ding_like.comm.workers.failures import FailureLog
from ding_like.comm.workers.processes import ChildProcess, Member, Processes, Slot
from ding_like.comm.zmq.rows import RowServer
from ding_like.comm.zmq.sockets import EndpointFolder, tcp_endpoint
from ding_like.comm.zmq.weights import Broadcaster
from ding_like.config import FrozenConfig, to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.errors import SchemaError
from ding_like.pipeline.checks import warmup_steps
from ding_like.pipeline.components import Components, check_hands_out_rows
from ding_like.pipeline.envs import EnvSetting
from ding_like.pipeline.factories import LearnerSide, SchemeFactories
from ding_like.pipeline.seed.actor import ActorSettings, AgentConfig, LoggingClient, name_of
from ding_like.pipeline.seed.runner import SeedRunner
from ding_like.pipeline.seed.servers import ServerSettings
from ding_like.pipeline.seed.settings import SeedSettings
from ding_like.pipeline.statistics import MergedStatistics
from ding_like.pipeline.training_loop import Runner
from ding_like.policy import Policy
from ding_like.policy.forward import ActorPart
from ding_like.types import Json

_ENDLESS_S = float("inf")  # patience with a driver that was stopped: its children end with it
_logger = logging.getLogger(__name__)


_MEANS = ("return", "length")  # of recent episodes: numbers, None before the first has ended
_LARGEST = 2.0**53
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
            runner.close = opened.pop_all().close
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
    return AgentConfig(
        cfg,
        part if part is not None and part.is_plain() else partial(actor_part, factories),
        factories.env_setting,
        factories.seed,
        factories.dynamic_seed,
        factories.begun_at,
        warmup_steps(cfg.policy),
    )


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
        if is_number and (not abs(value) < _LARGEST):
            raise SchemaError(f"'{name:.80}' is {value!r:.80}; expected a finite number.")
