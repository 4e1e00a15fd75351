"""Train in two lines: `run = ding_like.train("dqn", "CartPole-v1", env_step=20_000)`."""

from __future__ import annotations

import difflib
import inspect
import itertools
import logging
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import gymnasium

from ding_like.config import compile_config, deep_merge, read_config, to_plain
from ding_like.config.tree import literal
from ding_like.entry.commands import env_factory
from ding_like.entry.modes import shipped_configs
from ding_like.entry.plan import NO_LIMIT, Plan, RunArguments, checked_limit, make_plan, refuse_in_child
from ding_like.entry.run import Run
from ding_like.entry.serial_entry import SerialMode
from ding_like.envs import EnvFactory
from ding_like.envs.spaces import ActionLayout
from ding_like.errors import ConfigError, DingError, RegistryError
from ding_like.policy import get_policy_cls
from ding_like.types import Config
from ding_like.utils.log import shown_as_by_the_command
from ding_like.utils.registries import ENV_REGISTRY, POLICY_REGISTRY

logger = logging.getLogger(__name__)

# What an env may be given as: a gymnasium id, "module:Class", a class, or a function without arguments.
GivenEnv = str | type | Callable[[], Any]

_NUM_ENVS, _NUM_EPISODES = 8, 10
_RANDOM_ROWS = 1000
_NUMBERS = itertools.count(1)  # of envs that have no import path
_ENV_STEPS = 100_000
# What other libraries and our own pipelines call the limit.
_MEANT = dict.fromkeys(["total_timesteps", "timesteps", "max_env_step", "steps"], "env_step")


class TrainConfig(NamedTuple):
    """Two halves of a config, and where they are from."""

    main: dict[str, Any]
    create: dict[str, Any]
    source: str


@shown_as_by_the_command()
def train(
    policy_name: str | None = None,
    environment: GivenEnv | None = None,
    /,
    *,
    env_step: float | None = None,
    train_iter: float | None = None,
    policy: Config | None = None,
    env: Config | None = None,
    overrides: Config | Sequence[str] = (),
    config: str | Path | None = None,
    seed: int = 0,
    stop_value: float | None = None,
    exp_name: str | None = None,
    import_names: str | Sequence[str] = (),
    **unknown: NoReturn,
) -> Run:
    """Train a policy in an env, as `ding -m serial` or `serial_onpolicy` does of the same config, and return the run.

    `environment` is a gymnasium id, "module:Class", a class, or a function without arguments. Where a config of this
    policy and env comes with the package it is the base, else defaults; `config` is a file in place of both. `policy`
    and `env` are sections of settings, `overrides` a dict by path ({"policy.learn.batch_size": 128}) or texts as on
    the command line. Without a limit a run ends after 100,000 env steps, or when an evaluation reaches `stop_value`.
    `import_names` are modules that register what is your own.

    A run that is interrupted by Ctrl-C saves a point and raises KeyboardInterrupt; `Run(FOLDER).resume()` goes on.
    Raises ConfigError with every fault of the config at once.
    """
    refuse_in_child()
    if unknown:
        _refuse(unknown)
    names = [import_names] if isinstance(import_names, str) else list(import_names)
    built = _config(policy_name, environment, config, names, env)
    built = settings_of(built, policy, env)
    if stop_value is not None:
        built = settings_of(built, None, {"stop_value": stop_value})
    if exp_name is None and config is None:
        assert policy_name is not None and environment is not None, "_config saw to it"
        exp_name = name_of_run(policy_name, environment, seed)
    if env_step is None and train_iter is None:
        env_step = _ENV_STEPS
    asked, limits = overrides_of(overrides), (_limit("train_iter", train_iter), _limit("env_step", env_step))
    given = built.main, built.create
    plan: Plan[None] = make_plan(given, RunArguments("serial", seed, *limits), overrides=asked, exp_name=exp_name)
    if plan.cfg.policy.on_policy:
        plan = replace(plan, arguments=plan.arguments._replace(mode="serial_onpolicy"))
    return Run(SerialMode(plan).train().exp_name)


def _refuse(unknown: Mapping[str, Any]) -> None:
    """Raise ConfigError with every keyword argument that `train` does not take, and the one that may be meant."""
    takes = [name for name, each in inspect.signature(train).parameters.items() if each.kind is each.KEYWORD_ONLY]
    texts = []
    for name in unknown:
        close = [_MEANT[name]] if name in _MEANT else difflib.get_close_matches(name, takes, n=1, cutoff=0.75)
        texts.append(f"train() takes no argument {name!r}{f'; did you mean {close[0]}?' if close else ''}")
    raise ConfigError("\n".join([*texts, f"  It takes a policy and an env without names, then {', '.join(takes)}."]))


def _config(
    policy: str | None,
    env: GivenEnv | None,
    config: str | Path | None,
    import_names: list[str],
    settings: Config | None,
) -> TrainConfig:
    if config is not None:
        if policy is not None or env is not None:
            raise ConfigError("train() was given a config and the names of a policy or env too: give one of the two.")
        return config_of_file(config)
    if policy is None or env is None:
        raise ConfigError(
            "train() needs a policy and an env, such as train('dqn', 'CartPole-v1'), or a file: train(config='FILE')."
        )
    return config_of_names(policy, env, import_names, settings=settings)


def _limit(name: str, value: float | None) -> int:
    return NO_LIMIT if value is None else checked_limit(name, value)


# --- the config


def config_of_file(path: str | Path) -> TrainConfig:
    """Return what a config file says."""
    file = read_config(path)
    return TrainConfig(to_plain(file.main_config), to_plain(file.create_config), str(path))


def config_of_names(
    policy: str, env: GivenEnv, import_names: list[str], *, settings: Config | None = None
) -> TrainConfig:
    """Return the shipped config of a policy and an env, where there is one, else one with defaults that learn.

    `settings` are the caller's of the env: its wrappers may change what actions there are. Raises ConfigError for a
    policy or an env that is not known, and for actions that the policy does not take.
    """
    if isinstance(env, str) and env in POLICY_REGISTRY and env not in ENV_REGISTRY:
        raise ConfigError(f"the env is '{env}', which is a policy: the policy comes first, as in train('{env}', ENV).")
    cls = _policy_class(policy, import_names)
    shipped = _shipped(policy, env) if isinstance(env, str) else None
    if shipped is not None:
        logger.info("config      of the shipped %s (settings of yours go before it)", _from_package(shipped))
        return config_of_file(shipped)._replace(source=f"{policy} on {env}")
    section = _env_section(env, import_names)
    _check_actions(policy, cls, env, {**section, **(settings or {})})
    create: dict[str, Any] = {
        "env": {key: section[key] for key in ("type", "import_names") if key in section},
        "env_manager": {"type": "base"},
        "policy": {"type": policy, "import_names": import_names},
    }
    own = {key: value for key, value in section.items() if key not in ("type", "import_names")}
    numbers = dict(collector_env_num=_NUM_ENVS, evaluator_env_num=_NUM_EPISODES, n_evaluator_episode=_NUM_EPISODES)
    main = {"env": {**own, **numbers}, "policy": _policy_section(cls)}
    return TrainConfig(main, create, f"{policy} on {called(env)}")


def called(env: GivenEnv) -> str:
    """Return what an env is called."""
    return env if isinstance(env, str) else getattr(env, "__name__", type(env).__name__)


def name_of_run(policy: str, env: GivenEnv, seed: int) -> str:
    """Return what the folder of a run is called by default: cartpole_dqn_seed0."""
    words = re.sub(r"-v\d+$", "", called(env)).rpartition("/")[2].rpartition(":")[2]
    return f"{re.sub(r'[^a-z0-9]+', '_', words.lower()).strip('_')}_{policy}_seed{seed}"


def overrides_of(given: Config | Sequence[str]) -> list[str]:
    """Return `path.to.key=value` texts of a dict by path, or of such texts."""
    if isinstance(given, Mapping):
        return [f"{path}={literal(value)}" for path, value in given.items()]
    return list(given)


def _policy_class(name: str, import_names: list[str]) -> Any:
    if not isinstance(name, str):
        raise ConfigError(f"the policy is {name!r}; expected a name such as 'dqn'. `ding -q policy` lists them.")
    try:
        return get_policy_cls({"type": name, "import_names": import_names})
    except RegistryError as error:
        raise ConfigError(str(error)) from error


def _shipped(policy: str, env_id: str) -> Path | None:
    """Return the shipped config of a policy for an env's id, None where there is none."""
    wanted = _letters(re.sub(r"-v\d+$", "", env_id))
    for name, path in shipped_configs().items():
        env_name = name.removesuffix(f"_{policy}")
        if env_name == name or not wanted.startswith(_letters(env_name)):
            continue
        try:
            file = read_config(path)
            cfg = compile_config(
                file.main_config, file.create_config, source=str(path), save=False, renew_dir=False, quiet=True
            )
        except DingError:  # of an env whose package is missing: the env's own error comes soon enough
            continue
        if cfg.env.get("env_id") == env_id and cfg.policy.type == policy:
            return path
    return None


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _from_package(path: Path) -> str:
    parts = path.parts
    return "/".join(parts[len(parts) - 1 - parts[::-1].index("dizoo") :])


def _env_section(env: GivenEnv, import_names: list[str]) -> dict[str, Any]:
    """Return the section of an env; what has no import path is registered under a name of its own."""
    if isinstance(env, str):
        return to_plain(env_factory(env, {}, import_names).cfg)
    if isinstance(env, gymnasium.Env):
        raise ConfigError(
            f"the env is {env!r}, one object; expected what makes one, as several are played at once: an id, a class, "
            "or a function without arguments: lambda: env."
        )
    if not callable(env):
        raise ConfigError(f"the env is {env!r}; expected a gymnasium id, 'module:Class', a class or a function.")
    module, name = getattr(env, "__module__", ""), getattr(env, "__qualname__", "")
    if module and _found(module, name) is env:
        if module == "__main__":
            logger.info("the env is %s of this program alone: `ding -m ... -c` needs it in a module of its own", name)
        return {"type": f"{module}:{name}"}
    return {"type": _registered(env)}


def _found(module: str, name: str) -> Any:
    if not re.fullmatch(r"\w+", name):
        return None  # made inside a function, or a lambda
    return getattr(sys.modules.get(module), name, None)


def _registered(env: Callable[[], Any]) -> str:
    takes = [each for each in inspect.signature(env).parameters.values() if each.default is inspect.Parameter.empty]
    if any(each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in takes):
        raise ConfigError(
            f"the env is {env!r}, which needs arguments; expected a function without: lambda: MyEnv(size=8)."
        )
    name = f"given_env_{next(_NUMBERS)}"
    ENV_REGISTRY.register(name)(_without_config(env))
    logger.info("the env is a function of this program alone: `ding -m ... -c` needs it in a module of its own")
    return name


def _without_config(make: Callable[[], Any]) -> Callable[[Any], Any]:
    return lambda cfg: make()


def _check_actions(policy: str, cls: Any, env: GivenEnv, section: Mapping[str, Any]) -> None:
    """Refuse, before anything is written, actions that the policy does not take, naming those that do."""
    made = EnvFactory(section)()
    try:
        space = getattr(made, "action_space", None)
        if not isinstance(space, gymnasium.Space):
            raise ConfigError(
                f"{called(env)} has the action_space {space!r}, expected a space of gymnasium.spaces, set in its "
                "constructor."
            )
        kind = type(ActionLayout(space).space).__name__
    finally:
        made.close()
    takes = getattr(cls, "action_spaces", None)
    if takes is None or kind in takes:
        return
    fitting = [
        name
        for name in POLICY_REGISTRY.names()
        if kind in (getattr(POLICY_REGISTRY.get(name), "action_spaces", None) or ())
    ]
    advice = f"policies that do: {', '.join(fitting)}" if fitting else "wrap the env so that they are"
    raise ConfigError(f"policy '{policy}' takes actions of {' or '.join(takes)}, {called(env)} has {space}: {advice}.")


def _policy_section(cls: Any) -> dict[str, Any]:
    """Return settings that learn within some tens of thousands of env steps, where a policy's own defaults do not."""
    defaults = cls.default_config()
    section: dict[str, Any] = {"discount_factor": 0.99}
    if defaults.on_policy or defaults.collect.get("n_episode") is not None:
        section["eval"] = {"evaluator": {"eval_freq": 200}}
        return section
    section["eval"] = {"evaluator": {"eval_freq": 1000}}
    section["collect"] = {"n_sample": _NUM_ENVS}
    section["learn"] = {"update_per_collect": _NUM_ENVS}
    if cls.sample_unit == "row" and "random_collect_size" in defaults and not cls.rows_are_sequences:
        section["random_collect_size"] = _RANDOM_ROWS
    return section


def settings_of(config: TrainConfig, policy: Config | None, env: Config | None) -> TrainConfig:
    """Return a config with settings of the caller's in place of its own."""
    given = {name: section for name, section in (("policy", policy), ("env", env)) if section is not None}
    for name, section in given.items():
        if not isinstance(section, Mapping):
            raise ConfigError(f"{name} is {section!r}; expected its settings, such as {name}=dict(...).")
    return config._replace(main=deep_merge(config.main, given))
