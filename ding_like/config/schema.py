"""Schema of one config: the defaults of the classes that its create_config names."""

from __future__ import annotations

import difflib
import inspect
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from easydict import EasyDict

from ding_like.config import di_engine
from ding_like.config.di_engine import ELSEWHERE, LEGACY_KEYS, NOT_HERE, RENAMED_KEYS, reason_of
from ding_like.config.report import Fault, NoEffect, suggest_gymnasium, suggest_shipped, suggestion
from ding_like.config.tree import (
    Tree,
    deep_merge,
    get_path,
    is_object,
    is_object_text,
    items,
    join,
    literal,
    object_text,
    set_path,
    to_plain,
    with_objects,
)
from ding_like.errors import ConfigError, RegistryError
from ding_like.types import Config
from ding_like.utils import registries
from ding_like.utils.bounds import ABOVE_0, ANY_NUMBER, FROM_0, FROM_1, Bounds, declared
from ding_like.utils.registries import Registry


class Part(NamedTuple):
    """One section of create_config."""

    name: str  # its key in create_config
    path: str  # where its settings lie in main_config
    registry: Registry[Any]
    default_type: str | None = None  # None: create_config must name one, unless the part is optional
    is_optional: bool = False
    is_open: bool = False  # a class that declares nothing may read anything
    template: Config = {}  # what the section has, whatever the class
    bounds: Mapping[str, Bounds] = {}  # of the numbers among that
    # main_config and the defaults so far -> the type, where neither create_config nor those defaults name one.
    choose_default: Callable[[Config, Tree], str] | None = None


_BUFFER = "policy.other.replay_buffer"
# Keys that DI-engine's configs give to its default buffer, whose class they leave out.
_OF_ADVANCED = ("max_use", "max_staleness", "alpha", "beta", "anneal_step", "thruput_controller", "monitor")


def _buffer_type(main: Config, defaults: Tree) -> str:
    """Return "advanced", DI-engine's default, where its priorities or a key of its own are asked for, else "naive"."""
    priority = get_path(main, "policy.priority", get_path(defaults, "policy.priority"))
    own = get_path(main, _BUFFER, {})
    needs = priority is True or (isinstance(own, Mapping) and any(key in own for key in _OF_ADVANCED))
    return "advanced" if needs else "naive"


# What a config has beside the sections of its classes.
TOP_TEMPLATE: Config = {
    # Folder of the run.
    "exp_name": "default_experiment",
    # Seed of all random numbers of the run; `-s` replaces it.
    "seed": 0,
    # Points from which `ding --resume` continues; one more is saved when the run ends or is interrupted.
    "resume": {
        # Seconds between two saved points.
        "save_every_s": 60.0,
        # Env steps between two saved points; 0: by time only.
        "save_every_env_steps": 0,
        # Number of saved points that are kept.
        "keep": 2,
        # Gigabytes; a larger replay buffer is saved only when the run ends or is interrupted.
        "max_buffer_gb": 1.0,
    },
    # Where metrics go beside the run's folder, with their settings: {"wandb": {"project": "mine"}}.
    "trackers": {},
    # Of a run with several learners (--learners).
    "learners": {
        # Seconds without an answer after which a learner counts as lost, and the run ends.
        "timeout_s": 60.0
    },
    # How the demonstrations are made that reward_model.data_path or policy.collect.data_path names, where they are
    # missing: modes serial_gail, serial_sqil, serial_dqfd and so on train an expert, which plays them.
    "expert": {
        # Config of the expert: a file, the name of a shipped one such as "cartpole_dqn", or (main_config,
        # create_config). Empty: there is no expert.
        "config": "",
        # Checkpoint of the expert's run that plays: "best", "last", or a file; with a file none is trained.
        "checkpoint": "best",
        # Mean return of an evaluation that ends the expert's training; None: that of its config.
        "stop_value": None,
        # Env steps after which the expert's training ends; None: no limit.
        "env_step": None,
        # Number of episodes that the expert plays.
        "num_episodes": 10,
        # Seed of the expert's training and episodes: runs with several seeds learn from one expert.
        "seed": 0,
    },
}

TOP_BOUNDS: Mapping[str, Bounds] = {
    **dict.fromkeys(("seed", "resume.save_every_s", "resume.save_every_env_steps", "resume.max_buffer_gb"), FROM_0),
    **dict.fromkeys(("resume.keep", "expert.env_step", "expert.num_episodes"), FROM_1),
    "expert.seed": FROM_0,
    "expert.stop_value": ANY_NUMBER,
    "learners.timeout_s": ABOVE_0,
}

TOP_TYPES: Mapping[str, tuple[type, ...]] = {
    "expert.config": (str, tuple, list),
    "expert.stop_value": (float,),
    "expert.env_step": (int,),
}

DATA_FILE = "expert_data.safetensors"  # its name where a config gives none, in the run's folder

ENV_TEMPLATE: Config = {
    "manager": {},
    "import_names": [],
    # Mean return of an evaluation that ends the run.
    "stop_value": 1e10,
    # Episodes of an evaluation.
    "n_evaluator_episode": 4,
    # Number of envs that collect side by side.
    "collector_env_num": 8,
    # Number of envs that evaluate side by side.
    "evaluator_env_num": 4,
    # Names of numbers in `info` at an episode's end, which are reported beside the return; "is_success" always is.
    "metrics": [],
}

# Each env takes memory, and each episode is played to its end before training continues: more is a mistake.
_UP_TO_A_MILLION = Bounds(1, 1_000_000)

ENV_BOUNDS: Mapping[str, Bounds] = {
    "stop_value": ANY_NUMBER,
    **dict.fromkeys(("n_evaluator_episode", "collector_env_num", "evaluator_env_num"), _UP_TO_A_MILLION),
}

# Parents before children: a policy's defaults may hold settings of its learner, collector, evaluator and buffer.
PARTS = (
    Part("env", "env", registries.ENV_REGISTRY, is_open=True, template=ENV_TEMPLATE, bounds=ENV_BOUNDS),
    Part("env_manager", "env.manager", registries.ENV_MANAGER_REGISTRY, "base"),
    Part("policy", "policy", registries.POLICY_REGISTRY),
    Part("learner", "policy.learn.learner", registries.LEARNER_REGISTRY, "base"),
    Part("collector", "policy.collect.collector", registries.SERIAL_COLLECTOR_REGISTRY, "sample"),
    Part("evaluator", "policy.eval.evaluator", registries.SERIAL_EVALUATOR_REGISTRY, "interaction"),
    Part("replay_buffer", _BUFFER, registries.BUFFER_REGISTRY, "naive", choose_default=_buffer_type),
    Part("league", "policy.other.league", registries.LEAGUE_REGISTRY, is_optional=True),
    Part("reward_model", "reward_model", registries.REWARD_MODEL_REGISTRY, is_optional=True),
)

# Sections of create_config that only other pipelines read.
OTHER_SECTIONS = ("commander", "comm_learner", "comm_collector")


def create_config_of(cfg: Config) -> Tree:
    """Return the create_config that names the classes of a compiled config."""
    create: Tree = {}
    for part in PARTS:
        section = get_path(cfg, part.path)
        if isinstance(section, Mapping) and "type" in section:
            create[part.name] = {key: to_plain(section[key]) for key in ("type", "import_names") if section.get(key)}
    return create


def class_defaults(cls: type[object]) -> Tree:
    """Return the defaults of a class: its `default_config()`, else its `config`, else nothing."""
    make = getattr(cls, "default_config", None)
    found = make() if callable(make) else getattr(cls, "config", None)
    if not isinstance(found, Mapping):
        return {}
    # cfg_type names the class, and a compiled config does that with `type`.
    return {key: to_plain(value) for key, value in items(found) if key != "cfg_type"}


# Keys of DI-engine's layout that every policy and evaluator may be given, also those that have no default for them.
_DI_ENGINE_KEYS: dict[str, tuple[type, ...]] = {
    "policy.unroll_len": (int,),
    "policy.learn.resume_training": (bool,),
    "policy.eval.evaluator.stop_value": (float,),
    "policy.eval.evaluator.n_episode": (int,),
}

_IS_PARALLEL = (
    "'{}' is a collector of a process of its own, and this a config of mode parallel: `ding -m parallel -c FILE` runs "
    "it; without create_config.collector it runs in mode serial too"
)

_MISSING = object()

CheckConfig = Callable[[EasyDict], Iterable[tuple[str, str]]]


@dataclass
class Schema:
    """Keys that a config may have; every path is a full one."""

    defaults: Tree = field(default_factory=dict)
    types: dict[str, tuple[type, ...]] = field(default_factory=dict)  # also of known keys that have no default
    free: set[str] = field(default_factory=set)  # sections that take any key
    opaque: set[str] = field(default_factory=set)  # sections whose class was not found, which are not checked
    bounds: dict[str, Bounds] = field(default_factory=dict)  # path of a number -> what it may be
    alternatives: list[tuple[str, ...]] = field(default_factory=list)  # a config gives at most one of each tuple
    checks: list[tuple[str, CheckConfig]] = field(default_factory=list)
    check_model: CheckConfig | None = None  # of the policy: what of its section the model does not take
    # Type of a collector -> what the policy, which is mounted before, changes of its defaults.
    collector_config: Mapping[str, Config] = field(default_factory=dict)
    settings: Tree = field(default_factory=dict)  # of create_config beside class names; main_config wins
    origins: dict[str, str] = field(default_factory=dict)  # path of a setting -> its path in create_config
    without_effect: dict[str, str] = field(default_factory=dict)  # path of a key that changes nothing -> what does
    splits_rows: bool = False  # whether mini-batches are of parts of rows, of which there are more than rows
    dropped: dict[str, str] = field(default_factory=dict)  # path of a section that the config asked to leave out -> why
    classes: dict[str, Any] = field(default_factory=dict)  # path of every part's type and import_names -> value
    is_di_engine: bool = False  # whether the config is one of DI-engine's

    def is_opaque(self, path: str) -> bool:
        """Return whether a path is in a section that is not checked."""
        return _is_below(path, self.opaque)

    def knows(self, path: str) -> bool:
        """Return whether a key has a default or at least a type."""
        return path in self.types or get_path(self.defaults, path, _MISSING) is not _MISSING

    def mount(self, part: Part, cls: type[object]) -> None:
        """Add the defaults of a class, under those that its parent has for it, and its types, bounds and checks."""
        self.types[f"{part.path}.type"] = (str,)
        self.types[f"{part.path}.import_names"] = (list, str)
        own = class_defaults(cls)
        inherited = get_path(self.defaults, part.path, {})
        set_path(self.defaults, part.path, deep_merge(deep_merge(part.template, own), inherited))
        if part.is_open and not own:
            self.free.add(part.path)
        self.free.update(join(part.path, path) for path in getattr(cls, "config_free", ()))
        for path, types in declared(cls, "config_types").items():
            self.types[join(part.path, path)] = tuple(types)
        for path, bounds in {**part.bounds, **declared(cls, "config_bounds")}.items():
            self.bounds[here := join(part.path, path)] = bounds
            if get_path(self.defaults, here, _MISSING) is None:
                self.types.setdefault(here, bounds.types)
        for paths in getattr(cls, "config_alternatives", ()):
            self.alternatives.append(tuple(join(part.path, path) for path in paths))
        self.splits_rows |= bool(getattr(cls, "splits_rows", False))
        for path, reason in declared(cls, "without_effect").items():
            self.without_effect[join(part.path, path)] = reason
        if part.name == "policy":
            self.check_model = getattr(cls, "check_model", None)
        # The second is what a part asks of the policy section as a whole.
        for name, section in (("check_config", part.path), ("check_policy", "policy")):
            if callable(check := getattr(cls, name, None)):
                self.checks.append((section, check))


def build_schema(main: Config, create: Config, faults: list[Fault]) -> Schema:
    """Return the schema of the classes that `create` names, or `main` where it has a `type`; faults go to `faults`."""
    schema = Schema(defaults=to_plain(TOP_TEMPLATE), types={**_DI_ENGINE_KEYS, **TOP_TYPES}, bounds=dict(TOP_BOUNDS))
    schema.is_di_engine = di_engine.is_di_engine(create)
    sections = _sections(create, schema, faults)
    takes_di_engine = di_engine.is_switched(create)
    for part in PARTS:
        if not schema.is_opaque(part.path):
            _add_part(part, sections.get(part.name, {}), main, schema, faults)
            if takes_di_engine:
                _add_di_engine(part, main, schema)
    _add_trackers(main, schema, faults)
    if not schema.is_opaque("policy"):
        # Commanders of the other pipelines read settings here that the serial one does not have.
        schema.free.add("policy.other.commander")
        set_path(schema.defaults, "policy.other.commander", get_path(schema.defaults, "policy.other.commander", {}))
    return schema


def _add_trackers(main: Config, schema: Schema, faults: list[Fault]) -> None:
    """Mount the trackers that a config names: their settings lie beside each other."""
    given = main.get("trackers")
    for name, settings in items(given) if isinstance(given, dict) else ():
        path = f"trackers.{name}"
        schema.types[path] = (dict,)
        try:
            kind = settings.get("type", name) if isinstance(settings, dict) else name
            cls = registries.TRACKER_REGISTRY.get(kind)
        except RegistryError as error:
            faults.append(Fault(path, str(error)))
            schema.opaque.add(path)
            continue
        set_path(schema.defaults, path, None if settings is None else {})  # None: not this time
        if settings is not None:
            schema.mount(Part("tracker", path, registries.TRACKER_REGISTRY), cls)


def _sections(create: Config, schema: Schema, faults: list[Fault]) -> dict[str, Tree]:
    """Return the sections of create_config that are in order."""
    known: Tree = {part.name: {} for part in PARTS} | {name: {} for name in OTHER_SECTIONS}
    sections: dict[str, Tree] = {}
    for name, section in items(create):
        path = f"create_config.{name}"
        if name == di_engine.SWITCH:
            if fault := di_engine.switch_fault(section):
                faults.append(Fault(path, fault))
        elif name not in known:
            faults.append(Fault(path, f"unknown section; {suggestion(name, known, {})}"))
        elif not isinstance(section, dict):
            faults.append(Fault(path, f"expected dict(type=...), got {type(section).__name__} {section!r}"))
            schema.opaque.update(part.path for part in PARTS if part.name == name)
        else:
            sections[name] = section
    return sections


def _add_di_engine(part: Part, main: Config, schema: Schema) -> None:
    """Put DI-engine's defaults for a part that has just been mounted over ours; its children are mounted on them."""
    name: Any = schema.classes.get(f"{part.path}.type")
    if part.name == "policy":
        for path, default in di_engine.POLICY_DEFAULTS.get(name, {}).items():
            if all(get_path(main, place, _MISSING) is _MISSING for place in default.unless):
                set_path(schema.defaults, path, default.value)
    elif part.name == "env" and name is not None:
        for key, value in items(getattr(part.registry.get(name), "di_engine_defaults", {})):
            set_path(schema.defaults, join(part.path, key), value)


def _add_part(part: Part, section: Tree, main: Config, schema: Schema, faults: list[Fault]) -> None:
    """Find the class of a part and mount it; a class that is not found makes its section opaque."""
    for key, value in items(section):
        if key not in ("type", "import_names"):
            set_path(schema.settings, join(part.path, key), to_plain(value))
            schema.origins[join(part.path, key)] = f"create_config.{part.name}.{key}"
    default = get_path(schema.defaults, f"{part.path}.type")
    if default is None:
        default = part.default_type if part.choose_default is None else part.choose_default(main, schema.defaults)
    in_main = get_path(main, part.path)
    in_main = in_main if isinstance(in_main, dict) else {}
    modules = _joined(section.get("import_names", []), in_main.get("import_names", []))
    is_in_main = "type" in in_main and "type" not in section
    kind = in_main["type"] if is_in_main else section.get("type", default)
    if kind is None and part.is_optional:
        if in_main:  # settings of no class
            text = f"is missing; name one that `ding -q {part.name}` lists"
            faults.append(Fault(f"{part.path}.type", text, is_decisive=True))
            schema.opaque.add(part.path)
        return
    found = _find_class(part, kind, modules, main, part.path if is_in_main else f"create_config.{part.name}")
    if isinstance(found, Fault):
        faults.append(found)
        schema.opaque.add(part.path)
        return
    name = part.registry.canonical(kind)
    other = in_main.get("type", name)
    if isinstance(other, str) and part.registry.canonical(other) != name:
        text = f"is {other!r} here and {kind!r} in create_config.{part.name}; give one"
        faults.append(Fault(f"{part.path}.type", text))
    schema.mount(part, found)
    if part.name == "policy":
        schema.collector_config = getattr(found, "collector_config", {})
    elif part.name == "collector":
        for key, value in schema.collector_config.get(name, {}).items():
            set_path(schema.defaults, join(part.path, key), value)
    if default is not None:
        set_path(schema.defaults, f"{part.path}.type", default)
    schema.classes[f"{part.path}.type"] = name
    if modules:
        schema.classes[f"{part.path}.import_names"] = to_plain(modules)


def _joined(first: Any, second: Any) -> Any:
    """Return the import_names of both configs; what is no list of names, to be refused, as it is."""
    lists = [[names] if isinstance(names, str) else names for names in (first, second)]
    wrong = [names for names in lists if not _are_names(names)]
    return wrong[0] if wrong else list(dict.fromkeys(itertools.chain(*lists)))


def _are_names(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value)


def _find_class(part: Part, kind: Any, modules: Any, main: Config, place: str) -> type[Any] | Fault:
    """Return the class that a config names at `place`, or what is wrong with its name or its import_names."""
    path = f"{place}.type"
    if kind is None:
        text = f"is missing; name a class of the {part.registry.name} registry, as in {part.name}=dict(type='...')"
        return Fault(path, text)
    if not _are_names(modules):
        return Fault(f"{place}.import_names", f"expected a list of module names, got {modules!r}")
    try:
        cls: type[Any] = part.registry.get(kind, modules)
    except RegistryError as error:
        if part.name == "collector" and kind in registries.PARALLEL_COLLECTOR_REGISTRY:
            return Fault(path, _IS_PARALLEL.format(kind), is_decisive=True)
        if reason := di_engine.missing(part.name, kind):
            return Fault(path, reason, is_decisive=True)
        text = str(error)
        if part.name == "env":
            text = suggest_shipped(kind, modules) or text + suggest_gymnasium(kind, modules, main)
        return Fault(path, text)
    if part.name == "policy" and not hasattr(cls, "default_config"):
        text = f"{cls.__name__} is no policy: derive it from ding_like.policy.Policy; docs/own_algorithm.md shows one"
        return Fault(path, text, is_decisive=True)
    return cls


def _is_below(path: str, sections: set[str]) -> bool:
    return any(f"{path}.".startswith(f"{section}.") for section in sections)


# An EasyDict shows its keys as attributes: these would hide its methods (a key `get` breaks copy.deepcopy).
_RESERVED = frozenset(dir(EasyDict))
_LEAVES = (bool, int, float, complex, str, bytes, type(None))


class _MisfitError(Exception):
    """Value that its key does not take; the message gives the reason."""


class Checker:
    """Comparison of a config with a schema; `faults` and `ignored` are what it found."""

    def __init__(self, schema: Schema, raw: Mapping[str, str], *, reserved: Collection[str] = _RESERVED) -> None:
        """Take the schema and, by path, the text of the values that came from the command line.

        Keys that are `reserved` are refused in every section.
        """
        self.faults: list[Fault] = []
        self.ignored = dict(schema.dropped)  # path of a key that has no use here -> why
        self._schema = schema
        self._raw = raw
        self._reserved = reserved
        self._renamed: Tree = {}  # path of a key that has another name here -> its value

    def check(self, user: Config) -> Tree:
        """Return the values that are in order, as plain Python and of the types that the defaults have."""
        clean = self._section(user, self._schema.defaults, "")
        for path, value in self._renamed.items():
            try:
                self._move(path, value, clean)
            except _MisfitError as misfit:
                self.faults.append(Fault(path, str(misfit)))
        return clean

    def _move(self, path: str, value: Any, clean: Tree) -> None:
        """Put the value of a key that has another name here where it belongs."""
        target = RENAMED_KEYS[path]
        fitted = self._known(value, get_path(self._schema.defaults, target), target)
        given = get_path(clean, target, fitted)
        if given != fitted:
            if not self._schema.is_di_engine or path in self._raw or target in self._raw:
                raise _MisfitError(f"is DI-engine's name of {target}, which is set to {literal(given)}; give one")
            policy = self._schema.classes.get("policy.type")
            if path == "policy.learn.discount_factor" and policy in di_engine.GAMMA_IN_LEARN:
                self.ignored[target] = f"DI-engine reads {path}, which is {literal(fitted)}"
            else:
                self.ignored[path] = f"DI-engine reads {target}, which is {literal(given)}"
                fitted = given
        set_path(clean, target, fitted)

    def _section(self, user: Config, defaults: Tree, path: str) -> Tree:
        clean: Tree = {}
        for key, value in items(user):
            here = join(path, str(key))
            if self._schema.is_opaque(here):
                continue
            try:
                _check_key(key, self._reserved)
                if key in defaults or here in self._schema.types:
                    clean[key] = self._known(value, defaults.get(key), here)
                elif here in self._schema.without_effect:
                    self.ignored[here] = self._schema.without_effect[here]
                elif _is_below(path, self._schema.free) and not _is_slip(path, key):
                    clean[key] = self._section(value, {}, here) if isinstance(value, Mapping) else _plain(value, here)
                elif here in RENAMED_KEYS and self._schema.knows(RENAMED_KEYS[here]):
                    self._renamed[here] = value
                else:
                    self._unknown(key, defaults, path)
            except _MisfitError as misfit:
                self.faults.append(Fault(here, str(misfit)))
        return clean

    def _known(self, value: Any, default: Any, path: str) -> Any:
        types = self._schema.types.get(path, ())
        if isinstance(default, dict) and (isinstance(value, Mapping) or not types):
            if not isinstance(value, Mapping):
                meant = self._meant(value, default, path)
                raise _MisfitError(f"expected a section, dict(...), got {_described(value)}{meant}")
            return self._section(value, default, path)
        if default is not None and not types:
            types = (type(default),)
        if value is None and (default is None or any(path in paths for paths in self._schema.alternatives)):
            return None
        if types == (str,) and path in self._raw and not isinstance(value, str):
            return self._raw[path]
        if isinstance(value, float) and types == (int,) and not value.is_integer() and path.startswith("policy."):
            raise _MisfitError(f"expected int, got float {value!r}: `ding explain {path}` says what it counts")
        return _fitted(_plain(value, path), types)

    def _meant(self, value: Any, default: Tree, path: str) -> str:
        """Return the key of a section that a text in its place may be meant for: the class or env that it names."""
        named = "env_id" if "env_id" in default else "type"
        is_known = named in default or f"{path}.type" in self._schema.classes
        if not isinstance(value, str) or not is_known:
            return ""
        return f"; did you mean {path}.{named}={value}{f' (or -p {value})' if path == 'policy' else ''}?"

    def _unknown(self, key: str, defaults: Tree, path: str) -> None:
        here = join(path, key)
        reason = reason_of(LEGACY_KEYS, here)
        if reason is not None:
            self.ignored[here] = reason
            return
        if missing := reason_of(NOT_HERE, here):
            self.faults.append(Fault(here, missing, is_decisive=True))
            return
        if elsewhere := reason_of(ELSEWHERE, here):
            raise _MisfitError(elsewhere)
        typed = {name.rpartition(".")[2]: None for name in self._schema.types if name.rpartition(".")[0] == path}
        raise _MisfitError(f"unknown key; {suggestion(key, {**typed, **defaults}, self._schema.defaults)}")


def contradictions(schema: Schema, user: Tree, merged: Tree, *, builds_model: bool = False) -> Iterator[Fault]:
    """Yield what cannot go together; alternatives to what `user` chose become None in `merged`.

    With `builds_model` the policy builds its own model, which must take the settings of `policy.model`.
    """
    for paths in schema.alternatives:
        chosen = [path for path in paths if get_path(user, path) is not None]
        if len(chosen) > 1:
            section = chosen[0].rpartition(".")[0]
            names = " and ".join(path.removeprefix(f"{section}.") for path in chosen)
            yield Fault(section, f"{names} are both set; give one")
        for path in paths if chosen else ():
            if path not in chosen:
                set_path(merged, path, None)
    out_of_bounds = {fault.path: fault for fault in _out_of_bounds(schema, merged)}
    yield from out_of_bounds.values()
    of_model = [("policy", schema.check_model)] if builds_model and schema.check_model is not None else []
    for path, check in [*schema.checks, *of_model]:
        for found in check(EasyDict(deepcopy(get_path(merged, path)))):
            if (key := join(path, found[0])) not in out_of_bounds:  # which has a fault already
                yield Fault(key, found[1], is_harmless=isinstance(found, NoEffect))
    if not schema.is_opaque("env"):
        episodes, envs = merged["env"]["n_evaluator_episode"], merged["env"]["evaluator_env_num"]
        if episodes < envs:
            text = f"{episodes} episodes for evaluator_env_num={envs} envs; give at least one episode an env"
            yield Fault("env.n_evaluator_episode", text)
    yield from _small_buffer(merged)


def _out_of_bounds(schema: Schema, merged: Tree) -> Iterator[Fault]:
    """Yield the numbers that their classes do not take."""
    for path, bounds in schema.bounds.items():
        value = get_path(merged, path)
        if not bounds.hold(value):
            default = get_path(schema.defaults, path)
            usual = "" if default is None or default == value else f" (default {literal(default)})"
            yield Fault(path, f"is {literal(value)}; give {bounds}{usual}")


def _small_buffer(merged: Tree) -> Iterator[Fault]:
    """Yield the fault of a replay buffer that never holds a batch."""
    size, batch_size = get_path(merged, f"{_BUFFER}.replay_buffer_size"), get_path(merged, "policy.learn.batch_size")
    counts_rows = get_path(merged, f"{_BUFFER}.size_unit", "rows") == "rows"
    is_used = counts_rows and get_path(merged, "policy.on_policy") is False
    if is_used and isinstance(size, int) and isinstance(batch_size, int) and 1 <= size < batch_size:
        text = f"is {size}, fewer than the {batch_size} of policy.learn.batch_size: no batch could ever be sampled"
        yield Fault(f"{_BUFFER}.replay_buffer_size", f"{text}; give {batch_size} or more")


def _check_key(key: object, reserved: Collection[str] = _RESERVED) -> None:
    if not isinstance(key, str) or not key:
        raise _MisfitError(f"a key must be a non-empty str, got {_described(key)}")
    if key in reserved:
        raise _MisfitError("this key would hide the dict method of that name; rename it")


def _is_slip(path: str, key: str) -> bool:
    """Return whether a key of an env that takes any key is a misspelt one of those that every env has."""
    return path == "env" and bool(difflib.get_close_matches(key, ENV_TEMPLATE, n=1, cutoff=0.85))


def _fitted(value: Any, types: tuple[type, ...]) -> Any:
    """Return the value as one of the types; no types mean that anything goes."""
    kind = type(value)
    if not types or kind in types:
        return value
    if kind is float and int in types and value.is_integer():  # 1e5 is how people write 100000
        return int(value)
    if kind is int and float in types:
        return float(value)
    if kind in (list, tuple) and (list in types or tuple in types):
        return value
    hint = f"; a list is written [{value!r}]" if list in types and kind in (str, int, float) else ""
    raise _MisfitError(f"expected {' or '.join(type_.__name__ for type_ in types)}, got {_described(value)}{hint}")


def _plain(value: Any, path: str = "") -> Any:
    """Return a value as plain Python, which can be saved and read back; below `policy.model` classes and layers too."""
    if isinstance(value, Mapping):
        for key in value:
            _check_key(key)
        return {key: _plain(item, path) for key, item in items(value)}
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()  # a numpy scalar
    if isinstance(value, (list, tuple)):
        plain = [_plain(item, path) for item in value]
        return plain if isinstance(value, list) else tuple(plain)
    is_of_model = path.startswith("policy.model.")
    if is_of_model and (is_object(value) or is_object_text(value)):
        try:
            text = value if isinstance(value, str) else object_text(value)
            with_objects({"value": text})  # raises here, not when the model is built
            return text
        except ConfigError as error:
            raise _MisfitError(str(error).removesuffix(".")) from error
    if type(value) in _LEAVES:
        return value
    hint = "; only policy.model takes classes and layers" if is_object(value) else ""
    if inspect.isroutine(value) and path.rpartition(".")[2].startswith("learning_rate"):
        hint = "; a rate that falls is a number here, with policy.learn.schedule: see docs/learning_rate.md"
    raise _MisfitError(f"expected numbers, text, lists and dicts, which can be saved; got {_described(value)}{hint}")


def _described(value: object) -> str:
    text = " ".join(repr(value).split())
    return "None" if value is None else f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
