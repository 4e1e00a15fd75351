"""Processes, sockets and runner of a run with central inference."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ding_like.comm.workers.child import ChildProcess
from ding_like.comm.workers.failures import FailureLog
from ding_like.comm.workers.supervision import Member, Post, Processes
from ding_like.comm.zmq.keys import SeedKeys, load_seed_keys
from ding_like.comm.zmq.row_server import RowServer
from ding_like.comm.zmq.sockets import EndpointFolder, tcp_endpoint
from ding_like.comm.zmq.weights import Broadcaster
from ding_like.config import FrozenConfig, to_plain
from ding_like.pipeline.build.driver_end import DriverEnd
from ding_like.pipeline.build.envs import EnvSetting
from ding_like.pipeline.build.factories import SchemeFactories
from ding_like.pipeline.build.parts import check_hands_out_rows
from ding_like.pipeline.build.serial import Components
from ding_like.pipeline.roles.actor_rows import SegmentCheck
from ding_like.pipeline.runner import Runner
from ding_like.pipeline.sample_unit import warmup_steps
from ding_like.pipeline.seed.actor import ActorSettings, AgentConfig, name_of
from ding_like.pipeline.seed.runner import SeedRunner
from ding_like.pipeline.seed.servers import ServerSettings
from ding_like.pipeline.seed.settings import SeedSettings
from ding_like.pipeline.statistics import MergedStatistics
from ding_like.policy import Policy
from ding_like.policy.remote_infer import ActorPart

_ENDLESS_S = float("inf")  # patience with a driver that was stopped: its end ends its children by itself
_logger = logging.getLogger(__name__)


_OWN_OF_POLICY = frozenset(("cuda", "learn", "eval", "other"))
_OWN_OF_ENV = frozenset(("collector_env_num", "evaluator_env_num", "n_evaluator_episode", "stop_value", "manager"))


class _Endpoints(NamedTuple):
    """Where a run's sockets are bound, and the keys of clients that may connect."""

    data: str
    weights: str
    clients: str
    servers: str
    keys: SeedKeys | None


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
    logging_client: Any = None,  # Any: see `ActorSettings`
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
        # Known once the parts stand where the run begins or goes on.
        factories = replace(made, begun_at=parts.collector.envstep)
        with ExitStack() as opened:
            rows, weights, keys = _open_channels(cfg, parts, settings, opened)
            workers = WorkerPosts(
                factories, agent_config(factories, parts.policy), settings, rows.endpoint, keys, folder,
                logging_client, run_as,
            )  # fmt: skip
            processes = Processes(
                [*workers.servers(), *workers.actors()],
                policy=settings.failure,
                log=log,
                heard=lambda: {name: each.heard_s for name, each in rows.sources().items()},
                lost=rows.open_rows,
            )
            opened.callback(processes.close)
            opened.callback(rows.stop_all)  # first: a process that hears it ends by itself
            end = DriverEnd(cfg, parts, least_rows=settings.minimum_buffer_size or 0)
            runner = SeedRunner(end, settings, rows=rows, weights=weights, workers=processes, is_leaving=is_leaving)
            runner.publish()  # servers answer nobody before they have weights
            processes.start(is_leaving=is_leaving)
            runner.close = opened.pop_all().close
            return runner

    return make_runner


def _open_channels(
    cfg: FrozenConfig, parts: Components, settings: SeedSettings, opened: ExitStack
) -> tuple[RowServer, Broadcaster, SeedKeys | None]:
    """Start the proxy, the weights and the way of rows, which `opened` closes; return the last two and the keys."""
    bound = _endpoints(settings, opened)
    proxy = settings.class_of("inference_proxy")(bound.clients, bound.servers, keys=bound.keys)
    opened.callback(proxy.stop)
    proxy.start()
    weights: Broadcaster = settings.class_of("broadcaster")(endpoint=bound.weights, keys=bound.keys)
    opened.callback(weights.close)
    weights.start()
    env, statistics = parts.evaluator_env, parts.statistics
    merged = statistics if isinstance(statistics, MergedStatistics) else None
    check = None if env is None else SegmentCheck(env.observation_space, env.action_space, merged)
    ends = {"clients": proxy.client_endpoint, "servers": proxy.server_endpoint, "weights": weights.endpoint}
    rows = RowServer(
        bound.data, keys=bound.keys, credit=settings.credit, check=check,
        welcome={**ends, "config": config_mark(cfg)}, own_names=own_names(settings),
    )  # fmt: skip
    opened.callback(rows.close)
    if settings.transport == "tcp":
        _logger.info("actors and servers of other machines join at %s", rows.endpoint)
    return rows.start(), weights, bound.keys


@dataclass(frozen=True)
class WorkerPosts:
    """Posts of the inference servers and the actors of a run on this machine, for its supervisor."""

    factories: SchemeFactories
    agent: AgentConfig
    settings: SeedSettings
    endpoint: str
    keys: SeedKeys | None = None
    folder: Path | None = None  # of what processes print
    logging_client: Any = None  # Any: see `ActorSettings`
    run_as: Callable[[ChildProcess], Member] = lambda child: child

    def servers(self) -> list[Post]:
        """Return a post for each inference server."""
        names = [f"server{number}" for number in range(1, self.settings.inference_servers + 1)]
        return [Post(name, partial(self._server, name), (name,)) for name in names]

    def actors(self) -> list[Post]:
        """Return a post for each actor process."""
        posts = []
        for number in range(1, self.settings.actor_processes + 1):
            each = self.settings.actor_threads
            threads = tuple(range((number - 1) * each + 1, number * each + 1))  # numbers in the run, from 1
            name = f"actor_process{number}"
            posts.append(Post(name, partial(self._actor, name, threads), tuple(map(name_of, threads))))
        return posts

    def _server(self, name: str, attempt: int) -> Member:
        settings = self.settings
        made = ServerSettings(
            self.factories, self.endpoint, name=name, run_id=attempt + 1, keys=self.keys,
            batchsize=settings.inference_batchsize, delay_s=settings.inference_delay,
            device=settings.inference_device, start_timeout_s=settings.failure.start_timeout_s, patience_s=_ENDLESS_S,
        )  # fmt: skip
        return self.run_as(settings.class_of("inference_server")(made, output=_file(self.folder, name)))

    def _actor(self, name: str, threads: tuple[int, ...], attempt: int) -> Member:
        settings = self.settings
        made = ActorSettings(
            self.agent, self.endpoint, threads=threads, attempt=attempt + 1, keys=self.keys,
            request_timeout_s=settings.request_timeout_s, patience_s=_ENDLESS_S, failure=settings.failure,
            thread=settings.class_of("actor_thread"), client=settings.class_of("inference_client"),
            logging_client=self.logging_client,
        )  # fmt: skip
        return self.run_as(settings.class_of("actor")(made, name=name, output=_file(self.folder, name)))


def agent_config(factories: SchemeFactories, policy: Policy | None = None) -> AgentConfig:
    """Return what actors are made of; the part of `policy` is sent to them, and made there where it cannot be.

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


def own_names(settings: SeedSettings) -> frozenset[str]:
    """Return the names of all sources that this machine starts."""
    servers = (f"server{number}" for number in range(1, settings.inference_servers + 1))
    return frozenset([*servers, *map(name_of, range(1, settings.num_actors + 1))])


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


def _endpoints(settings: SeedSettings, opened: ExitStack) -> _Endpoints:
    """Return where to bind: files in a private folder, which `opened` deletes, or ports."""
    keys = None if settings.key_file is None else load_seed_keys(settings.key_file)
    if settings.transport == "ipc":
        named = opened.enter_context(EndpointFolder()).endpoint
        return _Endpoints(named("data"), named("weights"), named("clients"), named("servers"), keys)
    any_port = tcp_endpoint(settings.host)
    return _Endpoints(tcp_endpoint(settings.host, settings.port), any_port, any_port, any_port, keys)


def _file(folder: Path | None, name: str) -> Path | None:
    return None if folder is None else folder / f"{name}.txt"
