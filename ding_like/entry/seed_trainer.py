"""Train with central inference, by the names of the document on the SEED architecture."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from ding_like.config import deep_merge, read_config, to_plain
from ding_like.config.parts import ENV_TEMPLATE, create_config_of
from ding_like.config.tree import Tree, get_path, set_path
from ding_like.entry.plan import Plan, RunArguments, SystemInput
from ding_like.entry.seed_entry import SeedMode
from ding_like.envs.di_engine_style import as_gymnasium
from ding_like.envs.spaces import AnyEnv
from ding_like.envs.wrappers import wrap
from ding_like.errors import ConfigError
from ding_like.pipeline.seed.settings import Config, SeedSettings
from ding_like.policy import Policy, get_policy_cls
from ding_like.policy.agent import Agent as AgentObject
from ding_like.policy.agent import AgentPolicy
from ding_like.types import Factory, Section

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
        self._made = None if isinstance(environment, str) else _MadeBy(environment, wrappers)
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


class _MadeBy:
    """Env factory around a function that takes no config."""

    def __init__(self, environment: Factory, wrappers: Sequence[Section]) -> None:
        self._environment = environment
        self._wrappers = wrappers

    def __call__(self, cfg: Mapping[str, Any]) -> AnyEnv:
        return wrap(as_gymnasium(self._environment()), self._wrappers)
