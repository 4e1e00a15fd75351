"""Start what a run with central inference is made of: the way of rows, the weights, the processes, and its runner."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ding_like.comm.workers.child import ChildProcess
from ding_like.comm.workers.failures import FailureLog
from ding_like.comm.workers.supervision import Member
from ding_like.comm.zmq.keys import SeedKeys, load_seed_keys
from ding_like.comm.zmq.row_server import RowServer
from ding_like.comm.zmq.sockets import EndpointFolder, tcp_endpoint
from ding_like.comm.zmq.weights import Broadcaster
from ding_like.config import FrozenConfig, to_plain
from ding_like.pipeline.build.driver_end import DriverEnd
from ding_like.pipeline.build.envs import EnvSetting
from ding_like.pipeline.build.factories import SchemeFactories
from ding_like.pipeline.build.seed_processes import own_names, seed_processes
from ding_like.pipeline.build.serial import Components
from ding_like.pipeline.roles.segment_check import SegmentCheck
from ding_like.pipeline.runner import Runner
from ding_like.pipeline.seed.proxy_process import InferenceProxy
from ding_like.pipeline.seed.runner import SeedRunner
from ding_like.pipeline.seed.settings import SeedSettings
from ding_like.pipeline.statistics import MergedStatistics

_logger = logging.getLogger(__name__)


_OWN_OF_POLICY = frozenset(("cuda", "learn", "eval", "other"))
_OWN_OF_ENV = frozenset(("collector_env_num", "evaluator_env_num", "n_evaluator_episode", "stop_value", "manager"))


class _Endpoints(NamedTuple):
    """Hold where a run's sockets are bound, and the keys of those who may connect."""

    data: str
    weights: str
    clients: str
    servers: str
    keys: SeedKeys | None


def _warn_of_waits(settings: SeedSettings) -> None:
    """Say that batches never fill where a server has fewer actors than a batch holds: each request waits then."""
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
    run_as: Callable[[ChildProcess], Member] = lambda child: child,
) -> Callable[[Callable[[], bool]], Runner]:
    """Return what makes the runner of a run with these parts (`build_driver`): servers and actors are ready then.

    What they print goes to files in `folder`, by default where this process prints. `run_as` ChildThread runs them in
    threads of this process.
    """
    _warn_of_waits(settings)
    fitted: Any = parts.policy.cfg
    made = SchemeFactories.of(cfg, seed=seed, env_setting=env_setting, dynamic_seed=dynamic_seed, fitted=fitted)

    def make_runner(is_leaving: Callable[[], bool]) -> Runner:
        # Known once the parts stand where the run begins or goes on.
        factories = replace(made, begun_at=parts.collector.envstep)
        with ExitStack() as opened:
            bound = _endpoints(settings, opened)
            proxy = InferenceProxy(bound.clients, bound.servers, keys=bound.keys, log=_file(folder, "proxy"))
            weights = Broadcaster(endpoint=bound.weights, keys=bound.keys)
            opened.callback(weights.close)
            weights.start()

            welcome = partial(_welcome, cfg, proxy, weights)
            rows = RowServer(
                bound.data, keys=bound.keys, credit=settings.credit, welcome=welcome, check=_check(parts),
                own_names=own_names(settings), copies_rows=parts.buffer is None,  # a buffer copies what it stores
            )  # fmt: skip
            opened.callback(rows.close)
            if settings.transport == "tcp":
                _logger.info("actors and servers of other machines join at %s", rows.endpoint)
            processes = seed_processes(
                factories, settings, rows=rows.start(), proxy=proxy, keys=bound.keys, log=log, folder=folder,
                run_as=run_as,
            )  # fmt: skip
            opened.callback(processes.close)
            opened.callback(rows.stop_all)  # first: whoever knows that it is over ends by itself
            runner = SeedRunner(
                DriverEnd(cfg, parts, least_rows=settings.minimum_buffer_size or 0),
                settings,
                rows=rows,
                weights=weights,
                workers=processes,
                is_leaving=is_leaving,
            )
            runner.publish()  # servers answer nobody before they have weights
            processes.start(is_leaving=is_leaving)
            runner.close = opened.pop_all().close
            return runner

    return make_runner


def _check(parts: Components) -> SegmentCheck | None:
    """Return what looks at each segment before it is learned from."""
    env, statistics = parts.evaluator_env, parts.statistics
    if env is None:
        return None
    merged = statistics if isinstance(statistics, MergedStatistics) else None
    return SegmentCheck(env.observation_space, env.action_space, merged)


def _welcome(cfg: FrozenConfig, proxy: InferenceProxy, weights: Broadcaster) -> Mapping[str, Any] | None:
    """Return what those who join are told, None while it is not known: the proxy has no ports before its start."""
    ends = {"clients": proxy.client_endpoint, "servers": proxy.server_endpoint}
    if any(each.endswith(":0") for each in ends.values()):
        return None
    return {**ends, "weights": weights.endpoint, "config": config_mark(cfg)}


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
