"""Schema of one config: the defaults of the classes that its create_config names."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from easydict import EasyDict

from ding_like.config import di_engine
from ding_like.config.parts import OTHER_SECTIONS, PARTS, TOP_BOUNDS, TOP_TEMPLATE, Part, class_defaults
from ding_like.config.report import Fault, suggest_gymnasium, suggest_shipped, suggestion
from ding_like.config.tree import Tree, deep_merge, get_path, items, join, set_path, to_plain
from ding_like.errors import RegistryError
from ding_like.types import Config
from ding_like.utils import registries
from ding_like.utils.bounds import Bounds, declared

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
    dropped: dict[str, str] = field(default_factory=dict)  # path of a section that the config asked to leave out -> why
    classes: dict[str, Any] = field(default_factory=dict)  # path of every part's type and import_names -> value
    is_di_engine: bool = False  # whether the config is one of DI-engine's

    def is_opaque(self, path: str) -> bool:
        """Return whether a path is in a section that is not checked."""
        return _is_below(path, self.opaque)

    def is_free(self, path: str) -> bool:
        """Return whether the section at a path takes any key."""
        return _is_below(path, self.free)

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
        self.bounds.update(
            (join(part.path, path), bounds)
            for path, bounds in (*part.bounds.items(), *declared(cls, "config_bounds").items())
        )
        for path, bounds in declared(cls, "config_bounds").items():
            if get_path(self.defaults, join(part.path, path), _MISSING) is None:
                self.types.setdefault(join(part.path, path), bounds.types)
        for paths in getattr(cls, "config_alternatives", ()):
            self.alternatives.append(tuple(join(part.path, path) for path in paths))
        for path, reason in getattr(cls, "without_effect", {}).items():
            self.without_effect[join(part.path, path)] = reason
        check = getattr(cls, "check_config", None)
        if callable(check):
            self.checks.append((part.path, check))
        if part.name == "policy" and (check_model := getattr(cls, "check_model", None)) is not None:
            self.check_model = check_model
        check_policy = getattr(cls, "check_policy", None)
        if callable(check_policy):
            self.checks.append(("policy", check_policy))  # what a part asks of the policy section as a whole


def build_schema(main: Config, create: Config, faults: list[Fault]) -> Schema:
    """Return the schema of the classes that `create` names, or `main` where it has a `type`; faults go to `faults`."""
    schema = Schema(defaults=to_plain(TOP_TEMPLATE), types=dict(_DI_ENGINE_KEYS), bounds=dict(TOP_BOUNDS))
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
    if fault := di_engine.switch_fault(create):
        faults.append(Fault(f"create_config.{di_engine.SWITCH}", fault))
    for name, section in items(create):
        path = f"create_config.{name}"
        if name == di_engine.SWITCH:
            continue
        if name not in known:
            faults.append(Fault(path, f"unknown section; {suggestion(name, known, {})}"))
        elif not isinstance(section, dict):
            faults.append(Fault(path, f"expected dict(type=...), got {type(section).__name__} {section!r}"))
            schema.opaque.update(part.path for part in PARTS if part.name == name)
        else:
            sections[name] = section
    return sections


def _add_di_engine(part: Part, main: Config, schema: Schema) -> None:
    """Put DI-engine's defaults for a part that has just been mounted over ours; its children are mounted on them."""
    name = schema.classes.get(f"{part.path}.type")
    if part.name == "policy" and name is not None:
        di_engine.set_defaults(schema.defaults, di_engine.POLICY_DEFAULTS.get(name, {}), main)
    elif part.name == "env" and name is not None:
        own = getattr(part.registry.get(name), "di_engine_defaults", {})
        for key, value in items(own):
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
    for names in lists:
        if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
            return names
    return list(dict.fromkeys(itertools.chain(*lists)))


def _find_class(part: Part, kind: Any, modules: Any, main: Config, place: str) -> type[Any] | Fault:
    """Return the class that a config names at `place`, or what is wrong with its name or its import_names."""
    path = f"{place}.type"
    if kind is None:
        text = f"is missing; name a class of the {part.registry.name} registry, as in {part.name}=dict(type='...')"
        return Fault(path, text)
    if not isinstance(modules, (list, tuple)) or not all(isinstance(module, str) for module in modules):
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
    return any(path == section or path.startswith(f"{section}.") for section in sections)
