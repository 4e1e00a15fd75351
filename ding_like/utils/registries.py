"""Registries: classes by name. The module that registers a class is imported when the name is first asked for.

Nothing is imported from the packages of the classes before: that is how levels 1 to 5 reach classes above them.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar, cast

from ding_like.errors import RegistryError
from ding_like.utils.imports import describe_error, did_you_mean, hint_of_missing, import_code, split_import_path

T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., Any])

_COMMAND_SUFFIX = "_command"  # DI-engine registers every policy a second time under this suffix


class RegistryRow(NamedTuple):
    """Name of a class and the place of its code."""

    name: str
    class_name: str
    where: str  # "file:line"


class Registry(Generic[T]):
    """Classes by name.

    An unknown name is looked for in three places: the modules in `import_names`, the module that `modules` gives for
    it, and the module of that name in the home package (or the home module itself, if home is no package). A name
    "module:Class" is an import path, and its class need not be registered. Modules may be files: `utils/imports.py`.
    """

    def __init__(self, name: str, home: str, *, modules: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.home = home
        self._modules = dict(modules or {})
        self._classes: dict[str, type[T]] = {}
        self._by_module: dict[tuple[str, str], type[T]] = {}
        self._aliases: dict[str, str] = {}

    def register(self, name: str | None = None) -> Callable[[C], C]:
        """Return a decorator that registers a class under `name`, or under its own name.

        Raises RegistryError if another class has that name. Registering the same class again, or the new version of a
        class whose module was reloaded, is fine.
        """

        def decorate(cls: C) -> C:
            key = cls.__name__ if name is None else name
            self._check_name(key)
            if key in self._aliases:
                raise RegistryError(f"{self.name} '{key}' is an alias of '{self._aliases[key]}'; choose another name")
            old = self._classes.get(key)
            if old is not None and (old.__module__, old.__qualname__) != (cls.__module__, cls.__qualname__):
                raise RegistryError(
                    f"{self.name} '{key}' is registered twice, by {old.__module__}.{old.__qualname__} ({_where(old)}) "
                    f"and {cls.__module__}.{cls.__qualname__} ({_where(cls)}); rename one"
                )
            # A registry may hold functions as well; callers only ever call what they get.
            self._classes[key] = cast("type[T]", cls)
            return cls

        return decorate

    def register_by_import(self, name: str) -> Callable[[C], C]:
        """Return a decorator that registers a class under a name that it has only if its module is imported by name.

        `get(name, import_names)` finds it if its module is one of `import_names`, and otherwise the other class of that
        name: two classes may share one, as DI-engine's and ours do.
        """

        def decorate(cls: C) -> C:
            self._check_name(name)
            self._by_module[cls.__module__, name] = cast("type[T]", cls)
            return cls

        return decorate

    def alias(self, alias: str, name: str) -> None:
        """Make `alias` another spelling of `name`, which need not be registered yet."""
        if alias in self._classes or self._aliases.get(alias, name) != name:
            raise RegistryError(f"{self.name} '{alias}' is taken; choose another alias for '{name}'")
        self._aliases[alias] = name

    def get(self, name: str, import_names: str | Iterable[str] = ()) -> type[T]:
        """Return the class of `name`, importing where it may be registered.

        `import_names` are imported first, and those that begin with `ding.` are read as `ding_like.`. Raises
        RegistryError if the name stays unknown or a module of `import_names` cannot be imported; of the `ding.` ones
        that are missing here, only if the name stays unknown.
        """
        self._check_name(name)
        wanted = [import_names] if isinstance(import_names, str) else list(import_names)
        failures = {module: reason for module in wanted if (reason := _try_import(own_path(module)))}
        own_failures = {module: reason for module, reason in failures.items() if not module.startswith("ding.")}
        if ":" in name:
            return self._import_path(name)
        of_import = (self._by_module[module, name] for module in wanted if (module, name) in self._by_module)
        cls = next(of_import, None) or self._lookup(name)
        if cls is None:
            failures.update(self._import_from_home(name))
            cls = self._lookup(name)
        if cls is None:
            raise RegistryError(self._unknown(name, failures))
        if own_failures:
            raise RegistryError(f"import_names of {self.name} '{name}' cannot be imported{_listed(own_failures)}")
        return cls

    def canonical(self, name: str) -> str:
        """Return the registered name that `name` stands for, or `name` itself while there is none."""
        return next((key for key in self._spellings(name) if key in self._classes), name)

    def name_of(self, cls: object) -> str | None:
        """Return the name that a class is registered under, None if it is not; its module has been imported."""
        return next((name for name, known in self._classes.items() if known is cls), None)

    def build(self, name: str, /, *args: object, import_names: str | Iterable[str] = (), **kwargs: object) -> T:
        """Construct the class of `name`; exceptions of its constructor come through unchanged."""
        return self.get(name, import_names)(*args, **kwargs)

    def registered(self) -> dict[str, type[T]]:
        """Return the classes that are registered so far, by name; nothing is imported."""
        return dict(self._classes)

    def names(self) -> list[str]:
        """Return every registered name, sorted, after importing all of the home package."""
        self.load_home()
        return sorted(self._classes)

    def describe(self) -> list[RegistryRow]:
        """Return a row for every name, sorted, after importing all of the home package."""
        rows = [(name, self._classes[name]) for name in self.names()]
        return [RegistryRow(name, cls.__qualname__, _where(cls)) for name, cls in rows]

    def load_home(self) -> dict[str, str]:
        """Import all modules of the home package and return {module: why it could not be imported}."""
        modules = list(self._modules.values())
        if _find_spec(self.home) is not None:
            modules.insert(0, self.home)
            path = getattr(importlib.import_module(self.home), "__path__", ())
            modules += [f"{self.home}.{m.name}" for m in pkgutil.iter_modules(path) if not m.name.startswith("_")]
        failures: dict[str, str] = {}
        for module in dict.fromkeys(modules):
            try:
                importlib.import_module(module)
            except Exception as error:  # an optional package may fail in any way; the caller shows why
                failures[module] = _reason(module, error)
        return failures

    def __contains__(self, name: object) -> bool:
        """Return whether `get(name)` would find a class without `import_names`; no import path is looked up."""
        if not isinstance(name, str) or not name:
            return False
        if self._lookup(name) is None:
            self._import_from_home(name)
        return self._lookup(name) is not None

    def __repr__(self) -> str:
        return f"Registry({self.name!r}, home={self.home!r}, loaded={sorted(self._classes)})"

    def _check_name(self, name: object) -> None:
        if not isinstance(name, str) or not name:
            own = f"; {self._how_to_name_own(name.__name__.lower())}" if isinstance(name, type) else ""
            raise RegistryError(f"a {self.name} name must be a non-empty str, got {name!r}{own}")

    def _spellings(self, name: str) -> list[str]:
        """Return the name, then the names that it may stand for."""
        stem = name.removesuffix(_COMMAND_SUFFIX)
        return list(dict.fromkeys([name, self._aliases.get(name, name), stem, self._aliases.get(stem, stem)]))

    def _lookup(self, name: str) -> type[T] | None:
        return self._classes.get(self.canonical(name))

    def _import_from_home(self, name: str) -> dict[str, str]:
        """Import the modules of the home where `name` may be registered, and return those that failed, with why."""
        failures: dict[str, str] = {}
        for key in reversed(self._spellings(name)):
            if key not in self._modules and not key.isidentifier():
                continue
            spec = _find_spec(self.home)
            is_package = spec is None or spec.submodule_search_locations is not None
            module = self._modules.get(key) or (f"{self.home}.{key}" if is_package else self.home)
            if reason := _try_import(module):
                failures[module] = reason
            elif self._lookup(name) is not None:
                break
        return failures

    def _import_path(self, name: str) -> type[T]:
        path = split_import_path(name)
        if path is None:
            raise RegistryError(f"{self.name} '{name}' is no import path; expected 'module:Class'")
        module_name, attribute = path
        try:
            module = import_code(module_name)
        except ImportError as error:
            reason = _reason(module_name, error)
            fix = "; expected 'module:Class' of a module that python finds" if reason.startswith("no module") else ""
            raise RegistryError(f"{self.name} '{name}' cannot be imported: {reason}{fix}") from error
        found = getattr(module, attribute, None)
        if not callable(found):
            hint = did_you_mean(attribute, [key for key, value in vars(module).items() if callable(value)])
            raise RegistryError(f"{self.name} '{name}': module '{module_name}' has no class '{attribute}'{hint}")
        return cast("type[T]", found)

    def _unknown(self, name: str, failures: Mapping[str, str]) -> str:
        known = self.names()
        hint = did_you_mean(name, [*known, *(key for key, target in self._aliases.items() if target in self._classes)])
        listing = ", ".join(known) if known else f"none (nothing is registered in {self.home})"
        shown = {module: why for module, why in failures.items() if why != f"no module {module}"}
        is_imported = all(module.startswith(f"{self.home}.") for module in shown)  # else that is to be mended first
        own = f"\n  {self._how_to_name_own(name)}" if is_imported else ""
        return f"unknown {self.name} '{name}'{hint}\n  known: {listing}{own}{_listed(shown)}"

    def _how_to_name_own(self, name: str) -> str:
        """Return how a config names a class of the user's own."""
        return (
            f"one of your own: its import path, module:Class, as the type; or @{self.name.upper()}_REGISTRY.register("
            f"'{name}') above the class, and import_names=['its_module'] beside the type"
        )


def own_path(module: str) -> str:
    """Return our module path for one of DI-engine's."""
    return "ding_like." + module.removeprefix("ding.") if module.startswith("ding.") else module


def _try_import(module: str) -> str | None:
    """Import a module; return why it is not importable, or None. Errors of its code other than imports come through."""
    try:
        import_code(module)
    except ImportError as error:
        return _reason(module, error)
    return None


def _reason(module: str, error: Exception) -> str:
    if not (isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}.")):
        is_gym = isinstance(error, ModuleNotFoundError) and error.name == "gym"
        return describe_error(error) + ("; gymnasium is its successor: import gymnasium as gym" if is_gym else "")
    is_ours = module.startswith(("ding_like.", "dizoo."))
    return f"no module {error.name}{'' if is_ours else hint_of_missing(error.name)}"


def _find_spec(module: str) -> Any:
    """Return the import spec of a module, or None if it or a package above it is missing."""
    try:
        return importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return None


def _listed(failures: Mapping[str, str]) -> str:
    return "".join(f"\n  import {module}: {reason}" for module, reason in failures.items())


def _where(cls: Callable[..., Any]) -> str:
    try:
        return f"{inspect.getsourcefile(cls)}:{inspect.getsourcelines(cls)[1]}"
    except (OSError, TypeError):  # made at run time or typed at a prompt: there is no file to show
        return cls.__module__


REGISTRIES: dict[str, Registry[Any]] = {}


def _new(name: str, home: str, **modules: str) -> Registry[Any]:
    """Return a new entry of REGISTRIES; it builds what a protocol of types.py describes, not one base class."""
    REGISTRIES[name] = Registry(name, f"ding_like.{home}", modules={k: f"ding_like.{v}" for k, v in modules.items()})
    return REGISTRIES[name]


_BATTLE = "worker.collector.battle"
_EVALUATE_BATTLE = "worker.evaluator"
_PARALLEL = "pipeline.parallel"
_COLLECTORS = f"{_PARALLEL}.comm_collector"

POLICY_REGISTRY = _new(
    "policy", "policy", c51="policy.dqn", qrdqn="policy.dqn", drqn="policy.r2d2", pg="policy.a2c",
    ppo_offpolicy="policy.ppo", td3="policy.ddpg", discrete_sac="policy.sac", fqf="policy.iqn",
)  # fmt: skip
ENV_REGISTRY = _new(
    "env", "envs", gymnasium="envs.gymnasium_env", petting_zoo="envs.game", joint_petting_zoo="envs.game"
)
ENV_WRAPPER_REGISTRY = _new("env_wrapper", "envs.wrappers")
ENV_MANAGER_REGISTRY = _new(
    "env_manager", "envs.manager", envpool="envs.manager.gym_vector", ale_vector="envs.manager.gym_vector"
)
MODEL_REGISTRY = _new("model", "model")
REWARD_MODEL_REGISTRY = _new("reward_model", "reward_model")
LEARNER_REGISTRY = _new("learner", "worker.learner")
LEARNER_HOOK_REGISTRY = _new("learner_hook", "worker.learner")
SERIAL_COLLECTOR_REGISTRY = _new(
    "serial_collector",
    "worker.collector",
    sample="worker.collector.single",
    episode="worker.collector.single",
    sample_1v1=_BATTLE,
    episode_1v1=_BATTLE,
    battle_sample=_BATTLE,
    battle_episode=_BATTLE,
)
PARALLEL_COLLECTOR_REGISTRY = _new("parallel_collector", _PARALLEL, marine=_COLLECTORS, zergling=_COLLECTORS)
SERIAL_EVALUATOR_REGISTRY = _new(
    "serial_evaluator", "worker.evaluator", interaction_1v1=_EVALUATE_BATTLE, battle_interaction=_EVALUATE_BATTLE
)
BUFFER_REGISTRY = _new(
    "buffer",
    "worker.replay_buffer",
    **dict.fromkeys(("naive", "advanced", "sequence", "prioritised_sequence"), "worker.replay_buffer.presets"),
    her="worker.replay_buffer.hindsight",
)
COMMANDER_REGISTRY = _new("commander", "worker.commander")
COMM_LEARNER_REGISTRY = _new("comm_learner", _PARALLEL, flask_fs=f"{_PARALLEL}.comm_learner")
COMM_COLLECTOR_REGISTRY = _new("comm_collector", _PARALLEL, flask_fs=_COLLECTORS)
WEIGHT_UPDATER_REGISTRY = _new("weight_updater", "comm.weight_updater")
RANK_COLLECTOR_REGISTRY = _new("rank_collector", "pipeline.ranks", rank="pipeline.ranks")
COORDINATOR_REGISTRY = _new("coordinator", _PARALLEL, flask_fs=f"{_PARALLEL}.coordinator")
LEAGUE_REGISTRY = _new("league", "league.league")
PLAYER_REGISTRY = _new("player", "league.player")
TRACKER_REGISTRY = _new("tracker", "utils.trackers")

# Names of DI-engine and of some of its configs.
POLICY_REGISTRY.alias("sac_discrete", "discrete_sac")
ENV_MANAGER_REGISTRY.alias("async_subprocess", "subprocess")
ENV_MANAGER_REGISTRY.alias("env_pool", "envpool")
BUFFER_REGISTRY.alias("deque", "naive")
COMMANDER_REGISTRY.alias("solo", "naive")
