"""Registries: classes by name. The module that registers a class is imported when the name is first asked for.

Nothing is imported from the packages of the classes before: that is how levels 1 to 5 reach classes above them.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import logging
import os
import pkgutil
import re
import site
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar, cast

from ding_like.errors import ConfigError, DingError, RegistryError, describe_error

_logger = logging.getLogger(__name__)

# As in setup.py. Names have no hyphen and no underscore: an old pip changes those on one side of the comparison only.
DISTRIBUTION = "ding-like"

# Modules that are imported only where they are needed -> the extra that brings each.
EXTRA_OF = {
    "Box2D": "box2d",
    "PIL": "viz",
    "ale_py": "atari",
    "cv2": "atari",
    "dm_control": "dmc",
    "envpool": "envpool",
    "gunicorn": "server",
    "gymnasium_robotics": "robotics",
    "h5py": "offline",
    "lz4": "ray",
    "matplotlib": "viz",
    "minari": "offline",
    "minatar": "minatar",
    "minigrid": "minigrid",
    "mlflow": "mlflow",
    "mpe2": "mpe",
    "mujoco": "mujoco",
    "openskill": "league",
    "optuna": "tune",
    "pettingzoo": "pettingzoo",
    "pygame": "classic",
    "pymunk": "butterfly",
    "ray": "ray",
    "shimmy": "dmc",
    "wandb": "wandb",
    "sklearn": "imageclassification",
    "tensorboard": "tb",
    "trackio": "trackio",
    "zmq": "seed",
}

# "module:Class", "file.py:Class", "module:EnvId-v0"; no "cuda:0", no URL, no "import:..." of config/tree.py.
_IMPORT_PATH = re.compile(r"(?!import:)((?:[A-Za-z]:[\\/])?[^:]+):(?!\d+$)(\w[\w./-]*)")
# Files that were run here, by their real path.
_modules: dict[Path, ModuleType] = {}


def lazy_export(
    package: str, home_of: Mapping[str, str], name: str, *, instead: Mapping[str, str] | None = None
) -> Any:
    """Return what `package` exports as `name`, from its home: a module, or "module:name" if its name there differs.

    `instead` are names of DI-engine that do not exist here, with what to
    use in their place: they raise ImportError, as `from package import name` would hide the text of any other error.
    Raises AttributeError for a name that is in neither.
    """
    if name in home_of:
        module, _, own_name = home_of[name].partition(":")
        return getattr(importlib.import_module(module), own_name or name)
    if instead and name in instead:
        raise ImportError(f"{package} has no {name}: {instead[name]}", name=package)
    exported = f"; it exports {', '.join(home_of)}" if home_of else ""
    raise AttributeError(f"module '{package}' has no attribute '{name}'{exported}")


def lazy_exports(
    package: str, home_of: Mapping[str, str], *, instead: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package that exports by `lazy_export`."""

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home_of})

    return lambda name: lazy_export(package, home_of, name, instead=instead), names


def install_hint(error: BaseException) -> str:
    """Return "; install it with: ..." for the module that an ImportError, or its cause, lacks; else ""."""
    cause: BaseException | None = error
    while cause is not None:
        extra = EXTRA_OF.get((getattr(cause, "name", None) or "").partition(".")[0])
        if extra is not None:
            return f"; install it with: {pip_line(extra)}"
        cause = cause.__cause__ or cause.__context__
    return ""


def pip_line(extra: str, *, options: str = "") -> str:
    """Return the command that installs an extra; `options` are of pip, such as --force-reinstall."""
    return f'pip install {options + " " if options else ""}"{DISTRIBUTION}[{extra}]"'


def run_file(file: Path) -> ModuleType:
    """Run a Python file as a module of its own, and append its folder to `sys.path`.

    Raises ConfigError with file and line for what it raises.
    """
    module = ModuleType(f"config_file_{file.stem}")
    module.__file__ = str(file)
    _add_folder(file.resolve().parent)
    # Classes that a file defines look for their module by name (dataclasses, pickle, inspect).
    sys.modules[module.__name__] = module
    try:
        with ding_imports(file.name):
            exec(compile(file.read_bytes(), str(file), "exec"), module.__dict__)
    except SyntaxError as error:
        raise ConfigError(f"{file}, line {error.lineno}: {error.msg}") from error
    except (Exception, SystemExit) as error:  # a file may raise anything
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
        where = f", line {lines[-1]}" if lines else ""
        raise ConfigError(f"{file}{where}: {type(error).__name__}: {error}") from error
    _modules[file.resolve()] = module
    return module


def _add_folder(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def split_import_path(text: str) -> tuple[str, str] | None:
    """Return (module, name) of an import path, None for any other text."""
    match = _IMPORT_PATH.fullmatch(text)
    return None if match is None else (match[1], match[2])


def import_code(name: str) -> ModuleType | None:
    """Import what a name of `import_names` stands for; None for a folder, whose modules can be imported from now on.

    A file that was run in this process, such as a config, is not run again. Raises ImportError, and ConfigError with
    file and line for other errors of the code.
    """
    path = Path(name)
    if name.endswith(".py"):
        if not path.is_file():
            raise ImportError(f"there is no file {path.absolute()}")
        return _modules.get(path.resolve()) or run_file(path)
    if path.is_absolute():
        if not path.is_dir():
            raise ImportError(f"there is no folder {path}")
        _add_folder(path)
        return None
    try:
        with ding_imports(name):
            return importlib.import_module(name)
    except (ImportError, DingError):
        raise
    except SyntaxError as error:
        at = f"{error.filename}, line {error.lineno}"
        raise ConfigError(f"module '{name}' cannot be imported: {at}: {error.msg}") from error
    except Exception as error:  # a module may raise anything
        raise ConfigError(f"module '{name}' cannot be imported: {describe_error(error)}") from error


def is_imported(name: str) -> bool:
    """Return whether `import_code(name)` would run no code, as it has run in this process already."""
    path = Path(name)
    if name.endswith(".py"):
        return path.resolve() in _modules
    return name in (sys.path if path.is_absolute() else sys.modules)


def hint_of_missing(module: str) -> str:
    """Return modules of a name like that of a missing one, and the folders where Python looked for it.

    Those are the folders of `sys.path` that hold no installed modules.
    """
    installed = {*site.getsitepackages(), sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    installed |= {str(Path(folder) / "lib-dynload") for folder in list(installed)}
    searched = dict.fromkeys(os.path.abspath(folder) for folder in sys.path if not folder.endswith(".zip"))
    folders = [folder for folder in searched if folder not in installed and os.path.isdir(folder)]
    found = [each.name for each in pkgutil.iter_modules(folders)]
    return f"{did_you_mean(module.partition('.')[0], found)} (python looked in {', '.join(folders)})"


def did_you_mean(name: str, known: Sequence[str], *, cutoff: float = 0.6) -> str:
    """Return "; did you mean 'a' or 'b'?" of the known names that are like one; "" if there are none."""
    close = difflib.get_close_matches(name, known, n=3, cutoff=cutoff)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


class _DingImports(MetaPathFinder, Loader):
    """Finder of `ding.x` in `ding_like.x`, with the names that were imported."""

    def __init__(self) -> None:
        self.served: list[str] = []

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec of any module of DI-engine, and of no other."""
        return ModuleSpec(fullname, self, is_package=True) if fullname.split(".")[0] == "ding" else None

    def exec_module(self, module: ModuleType) -> None:
        """Replace the module that is imported by ours. Raises ImportError if we have none of that name."""
        name = module.__name__
        own = "ding_like" + name.removeprefix("ding")
        try:
            sys.modules[name] = importlib.import_module(own)
        except ModuleNotFoundError as error:
            if not f"{own}.".startswith(f"{error.name}."):
                raise
            text = f"DI-engine's {name} would be {own} here, which does not exist"
            raise ModuleNotFoundError(text, name=name) from error
        self.served.append(name)


@contextmanager
def ding_imports(source: str) -> Iterator[None]:
    """Import `ding_like` for `ding` while the block runs, unless DI-engine is installed; log that `source` imports it.

    Config files and env modules written for DI-engine import its names at the top. Afterwards there is no `ding` again.
    """
    if "ding" in sys.modules or importlib.util.find_spec("ding") is not None:
        yield
        return
    finder = _DingImports()
    # Before the others, which would find ding.x in the folder of ding_like and import it a second time.
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in finder.served:
            sys.modules.pop(name, None)
        if finder.served:
            _logger.info("%s imports %s: it gets ding_like's; import that in its place", source, finder.served[-1])


T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., Any])

_COMMAND_SUFFIX = "_command"  # DI-engine registers every policy a second time under this suffix


class Registry(Generic[T]):
    """Classes by name.

    An unknown name is looked for in three places: the modules in `import_names`, the module that `modules` gives for
    it, and the module of that name in the home package (or the home module itself, if home is no package). A name
    "module:Class" is an import path, and its class need not be registered. Modules may be files: `utils/registries.py`.
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
        """Return every registered name, sorted, after importing all of the home package that can be imported."""
        modules = list(self._modules.values())
        if find_spec(self.home) is not None:
            modules.insert(0, self.home)
            path = getattr(importlib.import_module(self.home), "__path__", ())
            modules += [f"{self.home}.{m.name}" for m in pkgutil.iter_modules(path) if not m.name.startswith("_")]
        for module in dict.fromkeys(modules):
            with suppress(Exception):  # an optional package may fail in any way; `get` of a name raises why
                importlib.import_module(module)
        return sorted(self._classes)

    def describe(self) -> list[tuple[str, str, str]]:
        """Return (name, class name, "file:line") of all, sorted, after importing all of the home package."""
        rows = [(name, self._classes[name]) for name in self.names()]
        return [(name, cls.__qualname__, _where(cls)) for name, cls in rows]

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
            spec = find_spec(self.home)
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


def find_spec(module: str) -> Any:
    """Return the import spec of a module, or None if it or a package above it is missing."""
    with suppress(ModuleNotFoundError):
        return importlib.util.find_spec(module)
    return None


def _listed(failures: Mapping[str, str]) -> str:
    return "".join(f"\n  import {module}: {reason}" for module, reason in failures.items())


def _where(cls: Callable[..., Any]) -> str:
    with suppress(OSError, TypeError):  # made at run time or typed at a prompt: there is no file to show
        return f"{inspect.getsourcefile(cls)}:{inspect.getsourcelines(cls)[1]}"
    return cls.__module__


REGISTRIES: dict[str, Registry[Any]] = {}


def _new(name: str, home: str, **modules: str) -> Registry[Any]:
    """Return a new entry of REGISTRIES; it builds what a protocol of types.py describes, not one base class."""
    REGISTRIES[name] = Registry(name, f"ding_like.{home}", modules={k: f"ding_like.{v}" for k, v in modules.items()})
    return REGISTRIES[name]


_PARALLEL = "pipeline.parallel"
_COLLECTORS = f"{_PARALLEL}.comm_collector"

POLICY_REGISTRY = _new(
    "policy", "policy", c51="policy.dqn", qrdqn="policy.dqn", drqn="policy.r2d2", pg="policy.a2c",
    ppo_offpolicy="policy.ppo", td3="policy.ddpg", discrete_sac="policy.sac", fqf="policy.iqn",
    ppg_offpolicy="policy.ppg", sqil_dqn="policy.sqil", sqil_sac="policy.sqil",
    discrete_bcq="policy.bcq", discrete_cql="policy.cql",
)  # fmt: skip
ENV_REGISTRY = _new(
    "env", "envs", gymnasium="envs.gymnasium_env", petting_zoo="envs.game", joint_petting_zoo="envs.team"
)
ENV_WRAPPER_REGISTRY = _new("env_wrapper", "envs.wrappers")
ENV_MANAGER_REGISTRY = _new(
    "env_manager", "envs.manager", envpool="envs.manager.gym_vector", ale_vector="envs.manager.gym_vector"
)
MODEL_REGISTRY = _new(
    "model",
    "model",
    **dict.fromkeys(("vdn", "qmix", "wqmix", "qtran", "coma"), "model.mixing"),
    **dict.fromkeys(("team_qac", "team_discrete_qac"), "model.team"),
)
REWARD_MODEL_REGISTRY = _new("reward_model", "reward_model")
LEARNER_REGISTRY = _new("learner", "worker.learner")
LEARNER_HOOK_REGISTRY = _new("learner_hook", "worker.learner")
SERIAL_COLLECTOR_REGISTRY = _new(
    "serial_collector",
    "worker.collector",
    **dict.fromkeys(("sample", "episode"), "worker.collector.single"),
    **dict.fromkeys(("sample_1v1", "episode_1v1", "battle_sample", "battle_episode"), "worker.collector.battle"),
)
PARALLEL_COLLECTOR_REGISTRY = _new("parallel_collector", _PARALLEL, marine=_COLLECTORS, zergling=_COLLECTORS)
SERIAL_EVALUATOR_REGISTRY = _new(
    *("serial_evaluator", "worker.evaluator"), interaction_1v1="worker.evaluator", battle_interaction="worker.evaluator"
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
LEAGUE_REGISTRY = _new("league", "league")
PLAYER_REGISTRY = _new("player", "league")
TRACKER_REGISTRY = _new("tracker", "utils.trackers")

# Names of DI-engine and of some of its configs.
POLICY_REGISTRY.alias("sac_discrete", "discrete_sac")
POLICY_REGISTRY.alias("continuous_bc", "bc")
POLICY_REGISTRY.alias("cql_discrete", "discrete_cql")
ENV_MANAGER_REGISTRY.alias("async_subprocess", "subprocess")
ENV_MANAGER_REGISTRY.alias("env_pool", "envpool")
BUFFER_REGISTRY.alias("deque", "naive")
COMMANDER_REGISTRY.alias("solo", "naive")
