"""Train from a config with central inference: actors step envs, inference servers choose, this process learns.

Workers on other machines join such a run by `join_run`.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from ding_like.comm.keys import SeedKeys, load_seed_keys
from ding_like.comm.workers.failures import FAILURES_FILE, FailureLog
from ding_like.comm.workers.processes import ChildProcess, ChildThread
from ding_like.comm.zmq import load_zmq
from ding_like.comm.zmq.rows import DataLink, join_as_host
from ding_like.comm.zmq.sockets import tcp_endpoint
from ding_like.config import FrozenConfig, deep_merge, read_config, to_plain
from ding_like.config.read import Override
from ding_like.config.schema import ENV_TEMPLATE, create_config_of
from ding_like.config.tree import Tree, get_path, set_path
from ding_like.entry.training import NO_LIMIT, Plan, RunArguments, SystemInput, TrainingMode, make_plan, number
from ding_like.envs.adapters import as_gymnasium
from ding_like.envs.spaces import AnyEnv
from ding_like.envs.wrappers import wrap
from ding_like.errors import CommError, ConfigError
from ding_like.pipeline.components import Components
from ding_like.pipeline.process import graceful_shutdown, training_process
from ding_like.pipeline.scheme_parts import SchemeFactories, build_driver
from ding_like.pipeline.seed.runner import Workers, agent_config, config_mark, seed_runner
from ding_like.pipeline.settings import Config, SeedSettings, read_seed
from ding_like.pipeline.training_loop import MakeRunner
from ding_like.policy import Policy, get_policy_cls
from ding_like.policy.agent import Agent as AgentObject
from ding_like.policy.agent import AgentPolicy, LoggingClient
from ding_like.policy.forward import check_acts_remotely
from ding_like.types import Factory, Section
from ding_like.utils.log import shown_as_by_the_command
from ding_like.utils.processes import check_known, reachable, watch_parent

logger = logging.getLogger(__name__)

Module: TypeAlias = Literal["actor", "inference"]
# Makes the worker of (host number, attempt).
Work: TypeAlias = Callable[[int, int], ChildProcess]

FIRST_RETRY_S, RETRY_S = 30.0, 600.0  # to reach the driver for the first time, and again later
_MAX_THREADS = 99  # of a machine: host 7 has threads 701 to 799
_LOOK_S = 5.0
_SETTLE_S = 10.0  # for the driver's word that the run is over, once all work has ended


@shown_as_by_the_command()
def seed_pipeline(
    input_cfg: SystemInput,
    seed: int = 0,
    *,
    max_train_iter: int = NO_LIMIT,
    max_env_step: int = NO_LIMIT,
    dynamic_seed: bool = True,
    overrides: Sequence[str] = (),
    exp_name: str | None = None,
    load_path: str | None = None,
) -> Policy:
    """Train with central inference until a limit or `env.stop_value` is reached, and return the policy.

    A serial config of an off-policy policy (or IMPALA) runs as it is; `system_config['seed']` says how many actors and
    inference servers there are, and what they do (docs/seed.md). `overrides` are `section.key=value` strings, also
    `system.seed.key=value`; `load_path` is a checkpoint to start from. Source: the SEED architecture (Espeholt et al.
    2020). Raises ConfigError with every fault of the config at once, RunnerLostError, with a point saved, where actors
    or servers are lost for good, and what one failed with before it worked.
    """
    arguments = RunArguments("seed", seed, max_train_iter, max_env_step, dynamic_seed)
    policy: Policy = SeedMode.of(
        input_cfg, arguments, overrides=overrides, exp_name=exp_name, load_path=load_path
    ).start()
    return policy


class SeedMode(TrainingMode[SeedSettings]):
    """Run with central inference, by the trainer that its config names."""

    read = staticmethod(read_seed)
    agent: Any = None  # Any: a policy or an agent object of the caller's, trained in place, or a config
    logging_client: Any = None  # Any: an object of the caller's

    def __init__(self, plan: Plan[SeedSettings]) -> None:
        super().__init__(plan)
        load_zmq()  # raises the error that names what to install
        if plan.settings.key_file is not None:
            load_seed_keys(plan.settings.key_file)

    def start(self) -> Policy:
        """Train to the end by the trainer that the config names, and return the policy."""
        trainer: Any = self.plan.settings.class_of("trainer")  # Any: `Trainer`'s module imports this one
        policy: Policy = trainer.of_plan(self.plan).start().policy
        return policy

    def build(self) -> Components:
        """Return the components of the driver."""
        parts = build_driver(self.plan.cfg, **self._own())
        check_acts_remotely(parts.policy)
        if isinstance(parts.policy, AgentPolicy):
            parts.policy.agent = self.agent
        set_client = getattr(self.agent, "set_logging_client", None)
        if set_client is not None and parts.metrics is not None:
            set_client(self.logging_client or LoggingClient(parts.metrics))
        return parts

    def _own(self) -> dict[str, Any]:
        model = getattr(self.agent, "model_instance", None)
        if isinstance(self.agent, Policy):
            model = self.agent.get_attribute("model")
        run = self.plan.arguments
        own = {"seed": run.seed, "dynamic_seed": run.dynamic_seed}
        return {**own, "env_setting": self.plan.env_setting, "model": model}

    def make_runner(self, parts: Components) -> MakeRunner:
        """Return the factory of the runner, which starts servers and actors."""
        plan, folder = self.plan, Path(self.plan.cfg.exp_name)
        log, prints = FailureLog(folder / FAILURES_FILE), folder / "log" / "seed"
        prints.mkdir(parents=True, exist_ok=True)
        return seed_runner(
            plan.cfg, parts, plan.settings, log=log, folder=prints, logging_client=self.logging_client, **self._own()
        )

    def lines(self) -> list[str]:
        """Return the lines about actors, inference servers and the learner."""
        settings, envs = self.plan.settings, self.plan.cfg.env.collector_env_num
        actors = f"{number(settings.actor_processes, 'process', 'es')} of {number(settings.actor_threads, 'thread')}"
        if not settings.actor_processes:
            actors = "none here: they join from other machines"
        elif settings.comm == "sync":
            actors += f" with {envs} envs each; synchronous, with the newest weights"
        else:
            lag = "" if settings.max_policy_lag is None else f", at most {settings.max_policy_lag} updates behind"
            actors += f" with {envs} envs each; asynchronous{lag}"
        servers = f"{number(settings.inference_servers, 'server')} on {settings.inference_device}; {_batches(settings)}"
        if not settings.inference_servers:
            servers = "no server here: they join from other machines"
        weights = "after every turn with updates"
        if settings.comm == "sync":
            weights = "before every round"
        elif settings.broadcast_period:
            weights = f"every {settings.broadcast_period:g} s"
        limit = f", {settings.max_train_frequency:g} times a second at most" if settings.max_train_frequency > 0 else ""
        where = "ipc, in a folder of this user alone"
        if settings.transport == "tcp":
            keys = "without keys" if settings.key_file is None else f"with the keys of {settings.key_file}"
            where = f"tcp at {reachable(settings.host)}:{settings.port or 'any free port'}, {keys}"
        return [
            f"actors      {actors}",
            f"inference   {servers}; weights {weights}",
            f"updates     in this process, which holds the replay buffer{limit}",
            f"joined by   {where}",
        ]


def _batches(settings: SeedSettings) -> str:
    delay = f"{1000 * settings.inference_delay:g} ms after the first"
    if not settings.inference_batchsize:
        return f"a batch is what is there {delay}" if settings.inference_delay else "a batch is what is there"
    text = f"a batch is {number(settings.inference_batchsize, 'request')}"
    return f"{text}, or what is there {delay}" if settings.inference_delay else f"{text} at most"


# --- workers that join from other machines


def join_run(
    config: SystemInput,
    module: Module,
    *,
    address: str,
    key_file: str | Path | None = None,
    seed: int = 0,
    overrides: Sequence[str] = (),
    retry_s: float | None = None,
) -> None:
    """Work for the driver of `ding -m seed` at HOST:PORT until its run is over.

    "actor" steps envs in `system.seed.actor_threads` threads, "inference" is an inference server; `config` is the
    driver's. `key_file` is one of those that `ding keys FILE --curve` wrote. `retry_s` is how long the driver may be
    out of reach: by default 30 s at the start, and ten minutes later. SIGTERM and the end of the process that started
    this one end it. Raises ConfigError for what cannot be, and CommError with the cause if it has to give up.
    """
    if module not in get_args(Module):
        raise ConfigError(f"'{module}' cannot join a run; choose one of {', '.join(get_args(Module))}.")
    endpoint = _endpoint(address)
    keys = None if key_file is None else load_seed_keys(key_file)
    plan = _plan_worker(config, module, seed=seed, given=overrides)
    leave = threading.Event()
    with training_process():
        factories = SchemeFactories.of(plan.cfg, seed=seed)
        link = join_as_host(endpoint, keys=keys, patience_s=FIRST_RETRY_S if retry_s is None else retry_s)
        try:
            with graceful_shutdown(lambda: _leave(leave, link)):
                watch_parent(lambda: os.kill(os.getpid(), signal.SIGTERM))
                link.patience_s = RETRY_S if retry_s is None else retry_s
                _check_alike(plan.cfg, link.welcome)
                _stay(link, leave, _work_of(module, factories, plan.settings, endpoint, keys), module)
        finally:
            link.close()


def _leave(leave: threading.Event, link: DataLink) -> None:
    leave.set()
    link.wake()


def _endpoint(address: str) -> str:
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    host = host.strip("[]")
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise ConfigError(
            f"'{address}' is no address of a driver; expected HOST:PORT, as the driver says at its start."
        )
    check_known(host, "--address", "give HOST:PORT as the driver prints it at its start")
    return tcp_endpoint(host, int(port))


def _plan_worker(config: SystemInput, module: Module, *, seed: int, given: Sequence[str]) -> Plan[SeedSettings]:
    """Return what a worker is made from. Raises ConfigError with every fault of the config."""

    def read(
        system: Mapping[str, Any], cfg: FrozenConfig, *, source: str, overrides: Mapping[str, Override]
    ) -> SeedSettings:
        # The driver may have none of them, all of which join: here there is one.
        section: dict[str, Any] = dict(system.get("seed") or {})
        for name in ("actor_processes", "inference_servers"):
            section[name] = section.get(name) or 1
        section.pop("host", None)  # where the driver listens, by a name that this machine need not know
        for name in ("inference_device", "inference_batchsize", "inference_delay") if module == "actor" else ():
            section.pop(name, None)  # of servers, whose GPU this machine need not have
        settings = read_seed({**system, "seed": section}, cfg, source=source, overrides=overrides)
        if settings.actor_threads > _MAX_THREADS:
            raise ConfigError(
                f"system.seed.actor_threads is {settings.actor_threads}; a machine joins with {_MAX_THREADS} at most: "
                "start another process for the others."
            )
        return settings

    return make_plan(config, RunArguments("seed", seed), read, overrides=given, renew_dir=False)


def _check_alike(cfg: FrozenConfig, welcome: Mapping[str, Any]) -> None:  # Any: of JSON
    """Raise ConfigError where the driver says that it runs another config."""
    own, theirs = config_mark(cfg), welcome.get("config")
    if not isinstance(theirs, Mapping) or dict(theirs) == own:
        return
    if {**theirs, "digest": own["digest"]} == own:
        problem = "with other settings of its policy or its envs than this config"
        fix = ", with the same policy. and env. overrides"
    else:
        problem, fix = f"the config of {own['policy']} on {own['env']}", ""
    raise ConfigError(
        f"the run is of {theirs.get('policy')} on {theirs.get('env')}, {problem}: give -c the driver's config{fix}."
    )


def _work_of(
    module: Module, factories: SchemeFactories, settings: SeedSettings, endpoint: str, keys: SeedKeys | None
) -> Work:
    workers = Workers(factories, agent_config(factories), settings, endpoint, keys)

    def act(number: int, attempt: int) -> ChildProcess:
        threads = [100 * number + thread for thread in range(1, settings.actor_threads + 1)]
        return workers.actor("actor_process1", attempt, threads=threads)

    def infer(number: int, attempt: int) -> ChildProcess:
        return workers.server(f"server{100 * number + 1}", attempt)

    return act if module == "actor" else infer


def _stay(link: DataLink, leave: threading.Event, work: Work, module: Module) -> None:
    """Work until the run is over or this process is to leave; begin anew with a driver that was started again."""
    while not leave.is_set() and not link.is_stopped:
        session = link.num_joined
        logger.info("joined the run as host %d: %s", link.number, module)
        failure = _work_for(link, session, leave, work)
        if leave.is_set() or link.is_stopped or link.num_joined != session:
            continue
        if failure is not None:
            if not link.is_away:
                raise failure
            logger.warning("the driver is out of reach (%s); it is tried for as long as --retry-s says", failure)
            _wait(link, lambda: leave.is_set() or not link.is_away)
        else:  # all is done but for the driver's word
            link.wait_until(lambda: leave.is_set() or link.is_stopped, timeout_s=_SETTLE_S)


def _work_for(link: DataLink, session: int, leave: threading.Event, work: Work) -> BaseException | None:
    """Work for one driver until there is no more to do; return what the work failed with."""
    # Later than all that others have started under this number, and than what was started for a driver before.
    worker = ChildThread(work(link.number, link.run_id + session), on_end=link.wake)
    worker.start()
    try:
        _wait(link, lambda: leave.is_set() or not worker.is_alive() or link.is_stopped or link.num_joined != session)
        if link.is_stopped:  # the worker hears it too, and hands over what it has
            link.wait_until(lambda: leave.is_set() or not worker.is_alive(), timeout_s=_SETTLE_S)
    finally:
        worker.terminate()
        worker.join(_SETTLE_S)
        if worker.is_alive():
            raise CommError(f"what works for the run has not ended within {_SETTLE_S:g} s: an env may hang.")
        worker.release()
    return worker.error()


def _wait(link: DataLink, is_due: Callable[[], bool]) -> None:
    """Wait until it is due. Raises CommError where the driver is lost."""
    while not link.wait_until(is_due, timeout_s=_LOOK_S):
        pass


# A policy, an agent object, a config file, (main_config, create_config), a shipped policy's name, or a compiled policy
# section. Any: of configs.
Agent: TypeAlias = "Policy | AgentObject | str | Path | tuple[Any, Any] | Mapping[str, Any]"
# A gymnasium id, or a function of a module that makes an env.
Environment: TypeAlias = str | Callable[[], Any]  # Any: of gymnasium's or of DI-engine's kind

# Of an agent's config, what stays where another env takes the place of its own.
_KEPT = (*ENV_TEMPLATE, "wrappers")


@dataclass(frozen=True)
class TrainingResult:
    """What came of a training; `seconds` are those from the first iteration to the last."""

    policy: Policy
    exp_name: str  # folder of the run: checkpoints, metrics, result.json
    env_step: int
    updates: int
    seconds: float
    eval_value: float  # mean return of fresh episodes of the last model


class Trainer:
    """Trainer with central inference: actors step envs, inference servers compute actions, this process learns.

    `agent` is a policy or an object with `model_instance` and `train_step` (`policy.agent.Agent`), which is
    trained in place; or a config file, (main_config, create_config), the name of a shipped policy ("rainbow"), whose
    defaults are taken, or the policy section of a compiled config, of which none is changed. `environment` is a
    gymnasium id, or a picklable function (of a module) that makes an env, and stands in place of a config's own.
    `config` has the rest: its `n_step` and `epsilon` stand in place of the agent's. `logging_client`, if given, has
    `log(name, values)`, can be pickled, and is called by actors and agent; without it an agent logs into the run's
    metrics. Source: the SEED trainer's document. Raises ConfigError for what does not go together.
    """

    def __init__(
        self,
        agent: Agent,
        config: Config,
        environment: Environment,
        *,
        seed: int = 0,
        exp_name: str | None = None,
        logging_client: Any = None,  # Any: an object of the user's
    ) -> None:
        config = config.replace()  # checked again: it may have been changed
        main, create = _configs_of(agent)
        name = _name_of(environment)
        self._agent: Any = agent  # Any: a policy, an agent object, or a config
        self._logging_client = logging_client
        wrappers = list(get_path(main, "env.wrappers", ()))
        if config.max_environment_steps > 0:
            wrappers.append({"type": "time_limit", "max_episode_steps": config.max_environment_steps})
        kept = {key: value for key, value in main.get("env", {}).items() if key in _KEPT}
        main["env"] = {**kept, "env_id": name, "wrappers": wrappers}
        create["env"] = {"type": "gymnasium"}
        self._made = None if isinstance(environment, str) else partial(_make_env, environment, wrappers)
        _set_policy(main, create, config)
        short = get_path(create, "policy.type").rpartition(":")[2]
        given, arguments = (main, create, {"seed": config.system()}), RunArguments("seed", seed)
        self._plan: Callable[[], Plan[SeedSettings]] = partial(
            self._plan_anew, given, arguments, exp_name or f"{name}_{short}_seed{seed}"
        )
        self._plan()
        self._has_limits = False

    @classmethod
    def of_plan(cls, plan: Plan[SeedSettings]) -> Trainer:
        """Return the trainer of a run that was planned from a config: what `ding -m seed` starts."""
        found = cls.__new__(cls)
        found._agent = found._logging_client = None
        found._plan, found._has_limits = lambda: plan, True
        return found

    def _plan_anew(self, given: SystemInput, arguments: RunArguments, exp_name: str) -> Plan[SeedSettings]:
        plan, made = SeedMode.of(given, arguments, exp_name=exp_name).plan, self._made
        if made is None:
            return plan
        env = plan.cfg.env
        return replace(plan, env_setting=(made, [{}] * env.collector_env_num, [{}] * env.evaluator_env_num))

    def start(self, duration: float = math.inf) -> TrainingResult:
        """Train for `duration` seconds, which count from when all actors work, and return when training has ended.

        There is one evaluation, after that time. Each call is a run of its own, with a folder of its own. Raises
        ConfigError for a duration that is not above 0, and what `seed_pipeline` raises.
        """
        if not duration > 0 or (duration == math.inf and not self._has_limits):
            raise ConfigError(f"duration is {duration!r}; give seconds above 0.")
        mode = SeedMode(self._plan())
        mode.agent, mode.logging_client = self._agent, self._logging_client
        policy, exp_name, result, seconds = mode.train(max_duration_s=duration)
        assert result is not None, "the driver evaluates"
        return TrainingResult(policy, exp_name, result.env_step, result.train_iter, seconds, result.eval_value)


def _configs_of(agent: Agent) -> tuple[Tree, Tree]:
    """Return fresh (main_config, create_config). Raises RegistryError for a policy that does not exist."""
    if isinstance(agent, Path) or (isinstance(agent, str) and agent.endswith(".py")):
        file = read_config(agent)
        return to_plain(file.main_config), to_plain(file.create_config)
    one_env: Tree = {"collector_env_num": 1}  # in each actor thread, as the document has it
    if isinstance(agent, Policy):
        agent = agent.cfg
    elif isinstance(agent, AgentObject):
        own = {"discount_factor": float(getattr(agent, "discount", 0.99))}
        learn = {"batch_size": int(getattr(agent, "batch_size", 32))}
        kind = AgentPolicy.config["type"]
        return {"env": one_env, "policy": {**own, "learn": learn}}, {"policy": {"type": kind}}
    if isinstance(agent, str):
        get_policy_cls({"type": agent})
        return {"env": one_env, "policy": {}}, {"policy": {"type": agent}}
    if isinstance(agent, Mapping):
        main: Tree = {"env": one_env, "policy": to_plain(agent)}
        if "type" not in main["policy"]:
            raise ConfigError("the agent is a mapping without 'type': give the policy section of a compiled config.")
        return main, create_config_of(main)
    if not isinstance(agent, tuple) or len(agent) != 2:
        raise ConfigError(
            f"the agent is {agent!r:.80}; give a policy, an object with model_instance and train_step(batch), a config "
            "file, (main_config, create_config), or the name of a policy."
        )
    main_config, create_config = agent
    return to_plain(main_config), to_plain(create_config)


def _name_of(environment: Environment) -> str:
    """Return what an env is called. Raises ConfigError for what actor processes cannot be given."""
    if isinstance(environment, str):
        return environment
    if not callable(environment):
        raise ConfigError(f"environment is {environment!r}; give a gymnasium id, or a function that makes an env.")
    if "<" in getattr(environment, "__qualname__", ""):  # "<lambda>" or "<locals>": no other process finds those
        raise ConfigError(
            f"environment {environment!r} cannot be sent to the actors' processes: define it at the top of a module, "
            "not in a function and not as a lambda."
        )
    return str(getattr(environment, "__name__", type(environment).__name__))


def _set_policy(main: Tree, create: Tree, config: Config) -> None:
    """Put what a config says of policies where the policy reads it; a default that a policy has no use for is none."""
    policy, default = get_policy_cls(create["policy"]), Config()
    known = to_plain(policy.default_config())
    faults = dict(policy.check_config(deep_merge(known, {"nstep": config.n_step})))
    if "nstep" not in faults:
        set_path(main, "policy.nstep", config.n_step)
    elif config.n_step != default.n_step:
        raise ConfigError(f"n_step is {config.n_step}, which policy '{create['policy']['type']}' {faults['nstep']}.")
    if get_path(known, "other.eps") is not None:
        eps = {"type": "linear", "start": config.epsilon, "end": config.epsilon, "decay": 1}
        set_path(main, "policy.other.eps", eps)
    elif config.epsilon != default.epsilon:
        raise ConfigError(
            f"epsilon is {config.epsilon}, which policy '{create['policy']['type']}' has no use for: it explores by a "
            "distribution of its own. Leave it out."
        )


def _make_env(environment: Factory, wrappers: Sequence[Section], cfg: Mapping[str, Any]) -> AnyEnv:
    """Make an env by a function that takes no config."""
    return wrap(as_gymnasium(environment()), wrappers)
