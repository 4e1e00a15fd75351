"""Turn what a user wrote, a create_config or classes as in scripts for DI-engine, into the one config of a run."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from easydict import EasyDict

from ding_like.config import di_engine
from ding_like.config.di_engine import COMMANDER, DATA_PATHS, NAIVE_BUFFER, listed, log_without_effect
from ding_like.config.di_engine_teams import read_multi_agent
from ding_like.config.read import NAMED_IN_CREATE, Override, apply_overrides, save_config
from ding_like.config.report import Fault, config_error
from ding_like.config.schema import DATA_FILE, PARTS, Checker, Schema, build_schema, contradictions
from ding_like.config.tree import FrozenConfig, Tree, deep_merge, get_path, literal, set_path, to_plain
from ding_like.errors import ConfigError
from ding_like.types import Config
from ding_like.utils.bounds import FROM_0
from ding_like.utils.files import RunFolder, fresh_names, make_folder, when_there_is_room

_logger = logging.getLogger(__name__)

# The env of a script that makes its envs itself: its section takes any key.
SCRIPT_ENV = "ding_like.envs.di_engine:script_env"
# Where DI-engine's layout has one setting twice: (where users set it, where a part reads it).
_COPIES = (
    ("env.stop_value", "policy.eval.evaluator.stop_value"),
    ("env.n_evaluator_episode", "policy.eval.evaluator.n_episode"),
    ("policy.unroll_len", "policy.collect.unroll_len"),
)
_GIVEN = object()
_NO_CREATE_CONFIG = (
    "create_config has the keys of a main_config ({}), but is to say which classes there are, as in\n"
    "  create_config = dict(env=dict(type='gymnasium'), policy=dict(type='dqn'))\n"
    "Where both are given from Python, main_config comes first."
)


def compile_config(
    cfg: Config,
    env_manager: type[Any] | Config | None = None,
    policy: type[Any] | None = None,
    learner: type[Any] | None = None,
    collector: type[Any] | None = None,
    evaluator: type[Any] | None = None,
    buffer: type[Any] | None = None,
    env: type[Any] | None = None,
    reward_model: type[Any] | None = None,
    world_model: type[Any] | None = None,
    seed: int | None = None,
    auto: bool = False,  # unused, of DI-engine's signature: the other arguments show which form is meant
    create_cfg: Config | None = None,
    save_cfg: bool = True,
    save_path: str = "total_config.py",
    renew_dir: bool = True,
    *,
    save: bool | None = None,
    **settings: Any,  # those of `_compiled`
) -> FrozenConfig:
    """Return the config of a run: the defaults of classes, then the user's.

    `compile_config(main_config, create_config)` is ours, and returns a frozen config. `seed` and `exp_name` win over
    those of `main_config`; `overrides` are `path.to.key=value` arguments, those that begin with `create.` for
    `create_config`; `source` is the file that errors name. If the experiment folder exists, `renew_dir` gives the name
    a date, unless `policy.learn.resume_training` is set. `save` makes the folder and writes the config there; a
    `folder` holds it from then on, for this process alone. `quiet` logs no warnings. With `builds_model` the policy
    builds its own model, which must take `policy.model`. The inputs are not changed.

    The other two forms are DI-engine's: `create_cfg=create_config, auto=True`, and classes instead
    (`compile_config(cfg, BaseEnvManager, DQNPolicy, BaseLearner, ...)`; one that is None is the usual one). They return
    a mutable EasyDict. A class that is not registered is registered under its own name. Where neither `env` nor the
    config names an env, the script makes its envs itself, and the keys of the env section are its own.

    Raises ConfigError with all unknown keys, wrong types and contradictions at once, and where nothing names a policy.
    """
    settings |= {"seed": seed, "renew_dir": renew_dir, "save": save_cfg if save is None else save}
    if isinstance(env_manager, Mapping):
        return _compiled(cfg, env_manager, **settings)
    if world_model is not None:
        raise ConfigError("there are no world models here; leave world_model out.")
    if save_path != "total_config.py":
        raise ConfigError(f"save_path is {save_path!r}, but a config is saved as total_config.py; leave it out.")
    classes = dict(
        env=env, env_manager=env_manager, policy=policy, learner=learner, collector=collector, evaluator=evaluator,
        replay_buffer=buffer, reward_model=reward_model,
    )  # fmt: skip
    named = {name: _section_of(name, cls) for name, cls in classes.items() if cls is not None}
    create = deep_merge(create_cfg or {}, named)
    if "policy" not in create and "type" not in (get_path(cfg, "policy") or {}):
        how = "with auto=True give create_cfg=create_config" if create_cfg is None else "create_cfg names none"
        raise ConfigError(f"compile_config needs a policy: pass its class, or {how}.")
    if "env" not in create and "type" not in (get_path(cfg, "env") or {}):
        create["env"] = {"type": SCRIPT_ENV}
    return EasyDict(to_plain(_compiled(cfg, create, **settings)))  # type: ignore[no-any-return]


def _section_of(name: str, cls: Any) -> Tree:
    """Return the section of create_config that names a class."""
    if not isinstance(cls, type):
        raise ConfigError(f"compile_config takes a class for {name}, got {type(cls).__name__} {cls!r}")
    registry = next(part.registry for part in PARTS if part.name == name)
    kind = getattr(cls, "manager_type", None) if name == "env_manager" else registry.name_of(cls)
    if kind is None:
        registry.register()(cls)
        kind = cls.__name__
    if cls.__module__ in ("__main__", "__mp_main__") or cls.__module__.startswith("ding_like."):
        return {"type": kind}
    return {"type": kind, "import_names": [cls.__module__]}


def _compiled(
    main_config: Config,
    create_config: Config,
    *,
    seed: int | None,
    renew_dir: bool,
    save: bool,
    overrides: Iterable[str] = (),
    source: str = "the config",
    exp_name: str | None = None,
    quiet: bool = False,
    folder: RunFolder | None = None,
    builds_model: bool = False,
) -> FrozenConfig:
    main, create = _inputs(main_config, create_config, seed)
    faults: list[Fault] = []
    applied = apply_overrides(overrides, main, create, faults)
    if seed is not None and "seed" in applied and applied["seed"].value != seed:
        text = f"would have no effect, as the run's seed is given as {seed}; set it there: -s, seed="
        faults.append(Fault("seed", text))
    faults += di_engine.read_her(main, create, quiet=quiet)
    di_engine.read_ngu(main, create, quiet=quiet)
    read_multi_agent(main, create, quiet=quiet)
    schema = _schema_of(main, create, faults, source)
    checker = Checker(schema, {path: override.raw for path, override in applied.items()})
    di_engine.translate(main, schema.defaults, schema.knows)
    user = checker.check(deep_merge(schema.settings, main))
    cfg = deep_merge(schema.defaults, user)
    for path, value in schema.classes.items():
        set_path(cfg, path, value)
    _play_in_every_env(cfg, user)
    faults += checker.faults
    if not schema.opaque:
        faults += _check_copies(cfg, user, applied, checker.ignored)
        _copy_settings(cfg)
    name = cfg["exp_name"] if exp_name is None else exp_name
    _name_demonstrations(cfg, str(name))
    faults += contradictions(schema, user, cfg, builds_model=builds_model)
    if schema.is_di_engine:
        faults = _tolerated(faults, applied, checker.ignored, cfg=cfg, defaults=schema.defaults)
    faults += _name_faults(name, "exp_name" if exp_name is None else "--exp-name")
    texts = {path: override.text for path, override in applied.items()}
    if faults:
        raise config_error((_at_origin(fault, schema, applied) for fault in faults), source, texts)
    if schema.is_di_engine and "policy.cuda" not in applied:
        _fall_back_to_cpu(cfg, source, quiet=quiet)
    if not quiet:
        _log_without_use(checker.ignored, cfg, user, schema, source)
        _warn_of_values(cfg, applied, splits_rows=schema.splits_rows)
    cfg["seed"] = cfg["seed"] if seed is None else seed
    is_fresh = renew_dir and not get_path(cfg, "policy.learn.resume_training")
    cfg["exp_name"] = _claim_folder(name, is_fresh=is_fresh, make=save, folder=folder)
    frozen = FrozenConfig(cfg)
    if save:
        _copy_settings(schema.defaults)
        write = partial(save_config, frozen, frozen.exp_name, defaults=schema.defaults, overrides=texts)
        when_there_is_room(write, report=_logger.warning)
    return frozen


def _schema_of(main: Tree, create: Tree, faults: list[Fault], source: str) -> Schema:
    """Return the schema of a config; what is of a method that is not here is taken out if `create` asks for that.

    Raises ConfigError for such a method if it does not, as the policy alone would be trained.
    """
    ignores_missing = create.pop(di_engine.IGNORE_MISSING, False)
    if not isinstance(ignores_missing, bool):
        text = f"is {ignores_missing!r}, expected True or False"
        faults.append(Fault(f"create_config.{di_engine.IGNORE_MISSING}", text))
    dropped = di_engine.drop_missing(main, create) if ignores_missing else {}
    schema = build_schema(main, create, faults)
    schema.dropped.update(dropped)
    policy = schema.classes.get("policy.type")
    method = None if ignores_missing or policy is None else di_engine.missing_method(main, create, source, schema.knows)
    if method is not None:
        raise ConfigError(
            f"{os.path.basename(source)} is a config of DI-engine for {method}. That method is not here. To train "
            f"plain '{policy}' by the rewards of the env, give --ignore-missing (in Python: "
            "create_config.ignore_missing=True)."
        )
    return schema


def _inputs(main_config: Config, create_config: Config, seed: Any) -> tuple[Tree, Tree]:
    """Return both configs as plain dicts. Raises ConfigError for what is none, and for what is no seed."""
    for name, config in (("main_config", main_config), ("create_config", create_config)):
        if not isinstance(config, Mapping):
            raise ConfigError(f"{name} must be a dict or an EasyDict, got {type(config).__name__} {config!r}")
    main, create = to_plain(main_config), to_plain(create_config)
    if create_config is main_config or "exp_name" in create:
        raise ConfigError(_NO_CREATE_CONFIG.format(", ".join(create)))
    is_whole = hasattr(seed, "__index__") and not isinstance(seed, bool)
    if seed is not None and not (is_whole and FROM_0.hold(int(seed))):
        raise ConfigError(f"seed is {seed!r}; give a whole number, {FROM_0}.")
    return main, create


def _log_without_use(ignored: Mapping[str, str], cfg: Tree, user: Tree, schema: Schema, source: str) -> None:
    """Name the keys that are read and change nothing."""
    if ignored:
        _logger.warning("%s", listed(ignored, f"{os.path.basename(source)}: these keys of DI-engine are ignored"))
    of_buffer = NAIVE_BUFFER if get_path(cfg, "policy.other.replay_buffer.type") == "naive" else {}
    reasons = {**COMMANDER, **schema.without_effect, **of_buffer}
    log_without_effect(user, schema.defaults, reasons, source=source)


def _warn_of_values(cfg: Tree, applied: Mapping[str, Override], *, splits_rows: bool) -> None:
    """Warn of values that are valid, but have another effect than the user may expect."""
    for override in applied.values():
        if override.replaced:
            _logger.warning("%s replaces %s: the last one holds", override.text, override.replaced)
    batch_size, n_sample = get_path(cfg, "policy.learn.batch_size"), get_path(cfg, "policy.collect.n_sample")
    envs = get_path(cfg, "env.collector_env_num")
    is_known = not splits_rows and all(isinstance(it, int) for it in (batch_size, n_sample, envs))
    if not (get_path(cfg, "policy.on_policy") and is_known):
        return
    rows = math.ceil(n_sample / envs) * envs  # every env takes the same number of steps
    if rows < batch_size:
        _logger.warning(
            "policy.learn.batch_size is %s, but a mini-batch holds at most the %s rows that are collected for it "
            "(policy.collect.n_sample=%s): give policy.learn.batch_size=%s or less, or "
            "policy.collect.n_sample=%s or more",
            batch_size, rows, n_sample, rows, batch_size,
        )  # fmt: skip


def _copy_settings(cfg: Tree) -> None:
    for source, copy in _COPIES:
        value = get_path(cfg, source)
        if value is not None:
            set_path(cfg, copy, value)


def _name_faults(name: object, path: str) -> Iterator[Fault]:
    """Yield what is wrong with the name of the run's folder."""
    if not str(name).strip():
        yield Fault(path, "is empty; give the name of the run's folder")
    elif os.path.isfile(str(name)):
        yield Fault(path, f"'{name}' is a file here, and is to name the run's folder: give another name")


def _name_demonstrations(cfg: Tree, exp_name: str) -> None:
    """Name the file of demonstrations that an expert will play, where the config names none."""
    expert = cfg["expert"]
    if expert["config"] or expert["checkpoint"] not in ("best", "last"):
        for path in DATA_PATHS:
            if get_path(cfg, path, _GIVEN) in ("", None):
                set_path(cfg, path, os.path.join(exp_name, DATA_FILE))


def _play_in_every_env(cfg: Tree, user: Tree) -> None:
    """Raise the default number of evaluation episodes to one for each env."""
    envs = get_path(cfg, "env.evaluator_env_num")
    if isinstance(envs, int) and get_path(user, "env.n_evaluator_episode") is None:
        cfg["env"]["n_evaluator_episode"] = max(envs, cfg["env"]["n_evaluator_episode"])


def _collect_in_fewer_envs(cfg: Tree, ignored: dict[str, str]) -> None:
    """Use no more envs than episodes are collected at a time, as each env plays one at least."""
    envs, episodes = get_path(cfg, "env.collector_env_num"), get_path(cfg, "policy.collect.n_episode")
    if isinstance(envs, int) and isinstance(episodes, int) and 1 <= episodes < envs:
        cfg["env"]["collector_env_num"] = episodes
        ignored["env.collector_env_num"] = f"{episodes} envs are used: policy.collect.n_episode asks for no more"


def _tolerated(
    faults: Iterable[Fault], applied: Mapping[str, Override], ignored: dict[str, str], *, cfg: Tree, defaults: Tree
) -> list[Fault]:
    """Return the faults that a config of DI-engine may not have either, and mend it elsewhere.

    Keys that change nothing get their default and go to `ignored`; those of overrides stay faults.
    """
    _collect_in_fewer_envs(cfg, ignored)
    kept = []
    for fault in faults:
        if fault.is_harmless and fault.path not in applied:
            ignored[fault.path] = fault.message
            set_path(cfg, fault.path, get_path(defaults, fault.path))
        else:
            kept.append(fault)
    return kept


def _fall_back_to_cpu(cfg: Tree, source: str, *, quiet: bool) -> None:
    """Compute on the CPU where a config of DI-engine, most of which have `cuda=True`, finds no GPU."""
    if not get_path(cfg, "policy.cuda"):
        return
    from torch import cuda  # only here: reading a config needs no torch

    if cuda.is_available():
        return
    if not quiet:
        text = "%s: policy.cuda is %s, but torch sees no GPU: this run computes on the CPU, as policy.cuda=False says"
        _logger.warning(text, os.path.basename(source), cfg["policy"]["cuda"])
    cfg["policy"]["cuda"] = False


def _check_copies(cfg: Tree, user: Tree, applied: Mapping[str, Override], ignored: dict[str, str]) -> Iterator[Fault]:
    """Yield the copies that an override sets apart; those that a file sets apart go to `ignored`."""
    for source, copy in _COPIES:
        value, given = get_path(cfg, source), get_path(user, copy)
        if value is None or given is None or given == value:
            continue
        if copy in applied:
            yield Fault(copy, f"is a copy of {source}; set that instead")
        elif source not in applied:  # a saved config has both, and an override of one means both
            ignored[copy] = f"it is a copy of {source}, which is {literal(value)}"


def _at_origin(fault: Fault, schema: Schema, applied: Mapping[str, Override]) -> Fault:
    """Return a fault with its place in create_config, or with the override that set it there, if it is from there."""
    for path, named in NAMED_IN_CREATE.items():
        if path in applied and fault.path == f"create_config.{named}" and fault.path not in applied:
            return fault._replace(path=path)
    for path, origin in schema.origins.items():
        if fault.path == path or fault.path.startswith(f"{path}."):
            return fault._replace(path=origin + fault.path.removeprefix(path))
    return fault


def _claim_folder(name: str, *, is_fresh: bool, make: bool, folder: RunFolder | None) -> str:
    """Return the name of the experiment folder, which is made, and held where there is a `folder` to hold it."""
    if folder is not None and make:
        return folder.claim(name, is_fresh=is_fresh)
    if not is_fresh:
        if make:
            make_folder(name, exist_ok=True)
        return name
    return next(each for each in fresh_names(name) if (make_folder(each) if make else not os.path.lexists(each)))
