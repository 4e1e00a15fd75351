"""Train an agent by the names of the document on the SEED architecture: an agent, a `Config` and an environment."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from ding_like.config import deep_merge, read_config, to_plain
from ding_like.config.parts import ENV_TEMPLATE, create_config_of
from ding_like.config.tree import Tree, get_path, set_path
from ding_like.entry.learners import RunArguments
from ding_like.entry.seed_entry import run_plan
from ding_like.entry.seed_plan import plan_run
from ding_like.entry.serial_entry import NO_LIMIT
from ding_like.envs.di_engine_style import as_gymnasium
from ding_like.envs.factory import AnyEnv
from ding_like.envs.wrappers import wrap
from ding_like.errors import ConfigError
from ding_like.pipeline.build import EnvSetting
from ding_like.pipeline.seed.config import Config
from ding_like.policy import Policy, get_policy_cls

# A config file, (main_config, create_config), a shipped policy's name, or a compiled policy section. Any: of configs.
Agent: TypeAlias = "str | Path | tuple[Any, Any] | Mapping[str, Any]"
# A gymnasium id, or a function of a module that makes an env.
Environment: TypeAlias = str | Callable[[], Any]  # Any: of gymnasium's or of DI-engine's kind

# Of an agent's config, what stays where another env takes the place of its own.
_KEPT = (*ENV_TEMPLATE, "wrappers")


@dataclass(frozen=True)
class TrainingResult:
    """Hold what came of a training; `seconds` are those from the first turn to the last."""

    policy: Policy
    exp_name: str  # folder of the run: checkpoints, metrics, result.json
    env_step: int
    updates: int
    seconds: float
    eval_value: float  # mean return of fresh episodes of the last model


class Trainer:
    """Train with central inference for a given time.

    `agent` is a config file, (main_config, create_config), the name of a shipped policy ("rainbow"), whose defaults are
    taken, or the policy section of a compiled config; none is changed. `environment` is a gymnasium id, or a picklable
    function (of a module) that makes an env, and stands in place of a config's own. `config` says the rest: its
    `n_step` and `epsilon` stand in place of the agent's. Source: the SEED trainer's document. Raises ConfigError for
    what does not go together.
    """

    def __init__(
        self, agent: Agent, config: Config, environment: Environment, *, seed: int = 0, exp_name: str | None = None
    ) -> None:
        main, create = _configs_of(agent)
        name = _name_of(environment)
        self._config, self._seed = config, seed
        self._exp_name = exp_name or f"{name}_{get_path(create, 'policy.type')}_seed{seed}"
        wrappers = list(get_path(main, "env.wrappers", ()))
        if config.max_environment_steps > 0:
            wrappers.append({"type": "time_limit", "max_episode_steps": config.max_environment_steps})
        kept = {key: value for key, value in main.get("env", {}).items() if key in _KEPT}
        main["env"] = {**kept, "env_id": name, "wrappers": wrappers}
        create["env"] = {"type": "gymnasium"}
        self._made = None if isinstance(environment, str) else _MadeBy(environment, wrappers)
        _set_policy(main, create, config)
        self._given = main, create, {"seed": config.system()}
        self._plan()

    def _plan(self) -> Any:  # Any: a SeedPlan
        arguments = RunArguments("seed", self._seed, NO_LIMIT, NO_LIMIT, dynamic_seed=True)
        return plan_run(self._given, arguments, exp_name=self._exp_name)

    def start(self, duration: float) -> TrainingResult:
        """Train for `duration` seconds, which count from when all actors work, and return when training has ended.

        There is one evaluation, after that time. Each call is a run of its own, with a folder of its own. Raises
        ConfigError for a duration that is not above 0, and what `seed_pipeline` raises.
        """
        if not 0 < duration < math.inf:
            raise ConfigError(f"duration is {duration!r}; give seconds above 0.")
        plan = self._plan()
        envs: EnvSetting | None = None
        if self._made is not None:
            own = plan.cfg.env
            envs = self._made, [{}] * own.collector_env_num, [{}] * own.evaluator_env_num
        found = run_plan(plan, env_setting=envs, max_duration_s=duration)
        run = found.run
        return TrainingResult(
            found.policy, found.exp_name, run.env_step, run.train_iter, found.training_s, run.eval_value
        )


def _configs_of(agent: Agent) -> tuple[Tree, Tree]:
    """Return fresh (main_config, create_config). Raises RegistryError for a policy that does not exist."""
    if isinstance(agent, Path) or (isinstance(agent, str) and agent.endswith(".py")):
        file = read_config(agent)
        return to_plain(file.main_config), to_plain(file.create_config)
    one_env: Tree = {"collector_env_num": 1}  # in each actor thread, as the document has it
    if isinstance(agent, str):
        get_policy_cls({"type": agent})
        return {"env": one_env, "policy": {}}, {"policy": {"type": agent}}
    if isinstance(agent, Mapping):
        main: Tree = {"env": one_env, "policy": to_plain(agent)}
        if "type" not in main["policy"]:
            raise ConfigError("the agent is a mapping without 'type': give the policy section of a compiled config.")
        return main, create_config_of(main)
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
    """Make envs by a function that takes no config."""

    def __init__(self, environment: Callable[[], Any], wrappers: Sequence[Mapping[str, Any]]) -> None:
        self._environment = environment
        self._wrappers = wrappers

    def __call__(self, cfg: Mapping[str, Any]) -> AnyEnv:
        return wrap(as_gymnasium(self._environment()), self._wrappers)
