"""Description of what a run trains, `agent.json` in its folder: enough to act without the env and its config.

It holds the spaces of the env, the wrappers of `env.wrappers` with what each needs, and the policy's section with the
values that follow from the spaces. Weights, and the statistics of wrappers, are in the checkpoints beside it.
"""

from __future__ import annotations

import json
import logging
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

import ding_like
from ding_like.agent.wrappers import Spec, WrapperLayer, WrapperSplit, describe_wrappers, layers_of
from ding_like.config import ConfigFile, FrozenConfig, compile_config, read_saved_config, to_plain
from ding_like.config.tree import is_object_text
from ding_like.data.spaces import Space, space_from_json, space_to_json
from ding_like.envs import EnvFactory, get_vec_env_setting, make_env
from ding_like.envs.adapters import as_lane_env
from ding_like.envs.factory import env_class
from ding_like.envs.game import SoloEnv
from ding_like.envs.spaces import HybridRows
from ding_like.envs.wrappers import find_wrapper
from ding_like.errors import CheckpointError, ConfigError, DingError, RegistryError, describe_error, raised_at
from ding_like.pipeline.envs import EnvSetting, build_single_env, fit_policy_config
from ding_like.policy import Policy
from ding_like.policy.di_engine_view import RandomActor
from ding_like.report.experiment import refuse_seeds
from ding_like.types import Config, Json
from ding_like.utils.files import when_there_is_room, write_text
from ding_like.utils.registries import (
    ENV_REGISTRY,
    MODEL_REGISTRY,
    POLICY_REGISTRY,
    import_code,
    is_imported,
    own_path,
    split_import_path,
)

logger = logging.getLogger(__name__)

AGENT_FILE = "agent.json"
_FORMAT = 2


@dataclass(frozen=True)
class AgentDescription:
    """Agent of a run but for its weights."""

    env_name: str
    observation_space: Space  # of the env as its users make it, without env.wrappers
    action_space: Space
    render_mode: str | None
    layers: tuple[WrapperLayer, ...]  # env.wrappers, the innermost first
    # Wrappers with a state inside an env of `env_setting`: they are the caller's.
    inner_wrappers: tuple[str, ...]
    parameter_mask: list[list[float]] | None  # of hybrid actions, where the env declares one
    import_names: tuple[str, ...]  # modules that register what env.wrappers name
    policy: Config  # the section as `fit_policy_config` returns it
    has_own_model: bool  # the run was given a model as an object, which no file can hold
    written_by: Mapping[str, str]  # versions

    @property
    def policy_name(self) -> str:
        """Name of the policy."""
        return str(self.policy["type"])

    def split(self, *, remembers: bool, client_wraps: bool) -> WrapperSplit:
        """Split the wrappers between an agent and its client, by whether they can be applied to observations alone.

        An agent that `remembers` earlier steps applies those that need them. Raises ConfigError for a wrapper that it
        cannot apply, unless `client_wraps`: then the client applies that one and those inside it.
        """
        can = ("nothing", "steps") if remembers else ("nothing",)
        unfit = [place for place, layer in enumerate(self.layers) if layer.needs not in can]
        split = self.split_at(unfit[-1] + 1 if unfit else 0)
        if unfit and not client_wraps:
            named = "; ".join(f"{self.layers[place].name} {self.layers[place].why}" for place in unfit)
            raise ConfigError(
                f"env.wrappers of this run cannot all be applied to a single observation: {named}. Start it with "
                f"--client-wraps where clients send what {split.client_wrappers[-1]} observes, as "
                f"{split.observation_space}, and step an env that has those wrappers."
            )
        return split

    def split_at(self, first: int) -> WrapperSplit:
        """Return the split whose client applies the first so many wrappers."""
        client: AgentDescription | WrapperLayer = self.layers[first - 1] if first else self
        return WrapperSplit(
            client.observation_space,
            client.action_space,
            self.render_mode,
            self.parameter_mask,
            agent_layers=self.layers[first:],
            client_layers=self.layers[:first],
        )

    def to_json(self) -> Json:
        """Return the description as a plain dict for JSON."""
        layers = [{**layer._asdict(), **_spaces_to_json(layer)} for layer in self.layers]
        return to_plain({"format": _FORMAT, **vars(self), **_spaces_to_json(self), "layers": layers})

    @classmethod
    def from_json(cls, saved: Json) -> AgentDescription:
        """Return the description that `to_json` wrote. Raises CheckpointError for another format."""
        if saved.get("format") != _FORMAT:
            writer = (saved.get("written_by") or {}).get("ding_like", "unknown")
            raise CheckpointError(
                f"{AGENT_FILE} has format {saved.get('format')!r} (written by ding_like {writer}), this version reads "
                f"{_FORMAT}: load it with that version, or delete it, and total_config.py is read in its place."
            )
        try:
            layers = tuple(WrapperLayer(**{**each, **_spaces_from_json(each)}) for each in saved["layers"])
            given = {each.name: saved[each.name] for each in fields(cls)}
            names = {name: tuple(saved[name]) for name in ("inner_wrappers", "import_names")}
            return cls(**{**given, **names, **_spaces_from_json(saved), "layers": layers})
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{AGENT_FILE} is damaged ({type(error).__name__}: {error}).") from error


_SPACES = ("observation_space", "action_space")


def _spaces_to_json(owner: AgentDescription | WrapperLayer) -> Json:
    return {name: space_to_json(getattr(owner, name)) for name in _SPACES}


def _spaces_from_json(saved: Json) -> dict[str, Space]:
    return {name: space_from_json(saved[name]) for name in _SPACES}


def describe_agent(
    cfg: FrozenConfig, *, env_setting: EnvSetting | None = None, has_own_model: bool = False
) -> AgentDescription:
    """Return the description of a compiled config's agent; an env is made to read its spaces, and closed again."""
    env_fn, _, env_cfgs = env_setting or get_vec_env_setting(cfg.env, collect=False)
    plain = plain_section(env_cfgs[0]) if env_fn is make_env else {}
    specs: Sequence[Spec] = plain.get("wrappers", ())
    section = {**plain, "wrappers": []} if plain else env_cfgs[0]
    bare: Any = EnvFactory(section, env_fn)()  # Any: a game is no gymnasium.Env
    wrapped = bare
    try:
        is_game = hasattr(bare, "num_players")
        own = bare.env if isinstance(bare, HybridRows) else bare
        layers: tuple[WrapperLayer, ...] = ()
        if not is_game:
            wrapped, layers = describe_wrappers(own, specs)
        mask = None if is_game else getattr(own.unwrapped, "parameter_mask", None)
        inner = [] if is_game else [type(layer) for layer in layers_of(own)]
        player: Any = as_lane_env(wrapped)  # a game is no gymnasium.Env
        if is_game:
            player = SoloEnv(player, RandomActor(player.action_space))
        manager = build_single_env(lambda: player)
        return AgentDescription(
            env_name=str(cfg.env.get("env_id") or cfg.env.type),
            observation_space=own.observation_space,
            action_space=own.action_space,
            render_mode=getattr(own, "render_mode", None),
            layers=layers,
            inner_wrappers=tuple(cls.__name__ for cls in inner if callable(getattr(cls, "state_dict", None))),
            parameter_mask=None if mask is None else np.asarray(mask).tolist(),
            import_names=tuple(as_list(cfg.env.get("import_names"))),
            policy=fit_policy_config(cfg.policy, manager),
            has_own_model=has_own_model,
            written_by=_versions(),
        )
    finally:
        wrapped.close()


def write_description(cfg: FrozenConfig, *, env_setting: EnvSetting | None = None, has_own_model: bool = False) -> None:
    """Write `agent.json` into the run's folder. What prevents that costs one line in the log and nothing else."""
    try:
        described = describe_agent(cfg, env_setting=env_setting, has_own_model=has_own_model)
        text = json.dumps(described.to_json(), indent=1)
        when_there_is_room(lambda: write_text(Path(cfg.exp_name) / AGENT_FILE, text), report=logger.warning)
    except DingError as error:
        logger.info("no %s: %s", AGENT_FILE, str(error).partition("\n")[0])
    except Exception as error:  # the env's own code may raise anything; the run can train without the file
        logger.info("no %s: %s", AGENT_FILE, describe_error(error), exc_info=not raised_at(error))


def read_description(folder: str | Path, *, import_names: Sequence[str] = ()) -> AgentDescription:
    """Return the description in a run's folder.

    The folder runs no code: what it names must be of this package, imported by the caller, or in `import_names`, which
    are imported. Raises ConfigError for other names, and for a folder without a run or with several; CheckpointError
    for a file that cannot be read.
    """
    folder = Path(folder)
    path = folder / AGENT_FILE
    if not path.is_file():
        return _described_anew(folder, import_names)
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} cannot be read: {error}. Copy it again; or delete it, and total_config.py is read in its place."
        ) from error
    try:
        description = AgentDescription.from_json(saved)
    except CheckpointError as error:
        raise CheckpointError(f"{folder}: {error}") from error
    specs = [layer.spec for layer in description.layers]
    # What registers the wrappers of the run is needed only where they are not registered yet.
    names = description.import_names if missing_wrappers(specs) else ()
    env = {"wrappers": specs, "import_names": names}
    allow_code(folder, env=env, policy=description.policy, import_names=import_names)
    return description


def _described_anew(folder: Path, import_names: Sequence[str]) -> AgentDescription:
    """Return the description of a run without `agent.json`, made of its config, read as data, and of its env."""
    refuse_seeds(folder)
    config = folder / "total_config.py"
    if not config.is_file():
        raise ConfigError(_no_run(folder))
    logger.info("%s has no %s: its env is made to read the spaces", folder, AGENT_FILE)
    main, create = allow_saved_config(folder, import_names)
    return describe_agent(compile_config(main, create, source=str(config), renew_dir=False, save=False, quiet=True))


def _no_run(folder: Path) -> str:
    if folder.is_file():
        return f"'{folder}' is a file: give the folder of its run (its exp_name), and the file by --checkpoint."
    if not folder.is_dir():
        return f"there is no folder '{folder}': give the folder of a run (its exp_name), or a checkpoint inside one."
    runs = sorted(str(path.parent) for path in folder.glob("*/total_config.py"))
    if runs:
        return f"'{folder}' holds several runs: give one of them, {' or '.join(runs[:5])}."
    return (
        f"'{folder}' is not an experiment folder: it has no {AGENT_FILE} and no total_config.py. Give the exp_name of "
        "a run."
    )


def plain_section(env_cfg: Config) -> dict[str, Any]:
    """Return the section of an env with all wrappers in `wrappers`, also those that other keys ask for."""
    section: dict[str, Any] = to_plain(env_cfg)
    plain_config = getattr(env_class(section), "plain_config", None)
    plain = None if plain_config is None else plain_config(section)
    if plain is None:
        return section
    return {**plain, "type": "gymnasium", "import_names": section.get("import_names", ())}


def as_list(names: str | Sequence[str] | None) -> list[str]:
    """Return `import_names` of a config, which may be one name, as a list."""
    return [names] if isinstance(names, str) else list(names or ())


def _versions() -> dict[str, str]:
    modules = {"ding_like": ding_like, "torch": torch, "numpy": np, "gymnasium": gymnasium}
    return {"python": platform.python_version(), **{name: str(each.__version__) for name, each in modules.items()}}


# Packages whose import runs no code of the folder's author.
_KNOWN = ("ding_like", "dizoo", "gymnasium", "torch", "pettingzoo", "mpe2")


def allow_code(
    folder: str | Path,
    *,
    env: Config,
    policy: Config,
    others: Config | None = None,
    import_names: Sequence[str] = (),
) -> None:
    """Import `import_names`, and raise ConfigError for other code that a run's env, policy or `others` name.

    Code of this package and modules that this process has imported already are allowed, too. A class that is named by
    its import path must be what it is used as: a Policy, a torch.nn.Module, a gymnasium.Wrapper, an env.
    """
    allowed = {own_path(name) for name in import_names}
    for name in allowed:
        try:
            import_code(name)
        except ImportError as error:
            raise ConfigError(
                f"import_names: {name} cannot be imported ({error}); put its folder on PYTHONPATH."
            ) from error
    modules = _modules_of({"env": env, "policy": policy, "others": others})
    allowed.update(import_names)
    foreign = [module for module in dict.fromkeys(modules) if not (module in allowed or _is_known(module))]
    if foreign:
        raise ConfigError(
            f"'{folder}' names code that is not imported here: {', '.join(foreign)}. The folder of a stranger could "
            f"run anything that way. If you trust it, allow it: import_names={foreign!r} from Python, "
            f"{' '.join(f'--import {module}' for module in foreign)} on the command line; or import it first."
        )
    for key, path, what in _misused_classes(env, policy):
        raise ConfigError(f"'{folder}' names {path} as {key}, which is no class of {what}.")


def _is_known(module: str) -> bool:
    """Return whether importing a module runs no code but that of known packages."""
    return (module.partition(".")[0] in _KNOWN and not module.endswith(".py")) or is_imported(module)


def _modules_of(value: Json, key: str = "") -> Iterator[str]:
    """Yield the modules that a config names at any depth, as registries, env ids and models read them."""
    if key == "import_names":
        names = value if isinstance(value, (list, tuple, set, Mapping)) else [value]
        yield from (own_path(str(name)) for name in names if name)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _modules_of(str(name))  # a dict in place of a list is read as its keys
            yield from _modules_of(inner, str(name))
    elif isinstance(value, (list, tuple, set)):
        for inner in value:
            yield from _modules_of(inner, key)
    elif isinstance(value, str):
        if is_object_text(value):
            yield value.partition(":")[2].partition("(")[0].rpartition(".")[0] or value
        elif path := split_import_path(value):
            yield path[0]


def _misused_classes(env: Config, policy: Config) -> Iterator[tuple[str, str, str]]:
    """Yield (key, import path, what it must be) of each class that is named by its import path but is not."""
    model = policy.get("model")
    named: list[tuple[str, Any, Callable[[Any], object], str, type[object] | None]] = [
        ("policy.type", policy.get("type"), POLICY_REGISTRY.get, "Policy", Policy),
        ("env.type", env.get("type"), ENV_REGISTRY.get, "an env", None),
    ]
    if isinstance(model, Mapping):
        named.append(("policy.model.type", model.get("type"), MODEL_REGISTRY.get, "torch.nn.Module", torch.nn.Module))
    for number, spec in enumerate(env.get("wrappers") or ()):
        kind = spec.get("type") if isinstance(spec, Mapping) else spec
        named.append((f"env.wrappers[{number}]", kind, find_wrapper, "gymnasium.Wrapper", gymnasium.Wrapper))
    for key, path, find, what, base in named:
        if isinstance(path, str) and ":" in path:
            found = find(path)
            is_env = base is None and all(callable(getattr(found, name, None)) for name in ("reset", "step"))
            if not (isinstance(found, type) and (is_env or (base is not None and issubclass(found, base)))):
                yield key, path, what


def allow_saved_config(folder: Path, import_names: Sequence[str] = ()) -> ConfigFile:
    """Return the config that a run saved, read as data, without trackers. Raises ConfigError as `allow_code` does."""
    main, create = read_saved_config(folder / "total_config.py")
    env, policy = ({**create.get(part, {}), **main.get(part, {})} for part in ("env", "policy"))
    others = {"create_config": create, "reward_model": main.get("reward_model")}
    allow_code(folder, env=env, policy=policy, others=others, import_names=import_names)
    return ConfigFile({**main, "trackers": {}}, create)


def missing_wrappers(specs: Sequence[Config | str]) -> list[str]:
    """Return the names of wrappers that nothing has registered yet."""
    missing = []
    for spec in specs:
        name = spec.get("type") if isinstance(spec, Mapping) else spec
        try:
            if not (isinstance(name, str) and ":" in name):
                find_wrapper(name)
        except (ConfigError, RegistryError):
            missing.append(str(name))
    return missing
