"""Find classes by name, importing the module that registers them when it is first asked for."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar, cast

from ding_like.errors import RegistryError
from ding_like.utils.code_files import close_modules, import_code, searched_folders, split_import_path
from ding_like.utils.user_code import told

T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., Any])

_COMMAND_SUFFIX = "_command"  # DI-engine registers every policy a second time under this suffix


class RegistryRow(NamedTuple):
    """Tell where one name comes from."""

    name: str
    class_name: str
    where: str  # "file:line"


class Registry(Generic[T]):
    """Map names to classes.

    An unknown name is looked for in three places: the modules in `import_names`, the module that `modules` gives for
    it, and the module of that name in the home package (or the home module itself, if home is no package). A name
    "module:Class" is an import path, and its class need not be registered. Modules may be files: `utils/code_files.py`.
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
            self._add(cls.__name__ if name is None else name, cls)
            return cls

        return decorate

    def register_by_import(self, name: str) -> Callable[[C], C]:
        """Return a decorator that registers a class under a name which it has only for those who import its module.

        `get(name, import_names)` finds it where its module is one of `import_names`, and otherwise what else has that
        name: two classes may share one, as DI-engine's and ours do.
        """

        def decorate(cls: C) -> C:
            self._check_name(name)
            self._by_module[cls.__module__, name] = cast("type[T]", cls)
            return cls

        return decorate

    def alias(self, alias: str, name: str) -> None:
        """Let `alias` stand for `name`, which need not be registered yet."""
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
        cls = self._of_import(name, wanted) or self._lookup(name)
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

    def name_of(self, cls: Callable[..., Any]) -> str | None:
        """Return the name that a class is registered under, None if it is not; its module has been imported."""
        return next((name for name, known in self._classes.items() if known is cls), None)

    def build(self, name: str, /, *args: Any, import_names: str | Iterable[str] = (), **kwargs: Any) -> T:
        """Construct the class of `name`; whatever its constructor raises comes through unchanged."""
        return self.get(name, import_names)(*args, **kwargs)

    def registered(self) -> dict[str, type[T]]:
        """Return what is registered so far, by name; nothing is imported."""
        return dict(self._classes)

    def names(self) -> list[str]:
        """Return every registered name, sorted, after importing all of the home package."""
        self.load_home()
        return sorted(self._classes)

    def describe(self) -> list[RegistryRow]:
        """Return a row for every name, sorted, after importing all of the home package."""
        return [
            RegistryRow(name, self._classes[name].__qualname__, _where(self._classes[name])) for name in self.names()
        ]

    def load_home(self) -> dict[str, str]:
        """Import all modules of the home package and return {module: why it could not be imported}."""
        failures: dict[str, str] = {}
        for module in self._home_modules():
            try:
                importlib.import_module(module)
            except Exception as error:  # an optional package may fail in any way; the caller shows why
                failures[module] = _reason(module, error)
        return failures

    def __contains__(self, name: object) -> bool:
        """Tell whether `get(name)` would find a class without `import_names`; no import path is looked up."""
        if not isinstance(name, str) or not name:
            return False
        if self._lookup(name) is None:
            self._import_from_home(name)
        return self._lookup(name) is not None

    def __repr__(self) -> str:
        return f"Registry({self.name!r}, home={self.home!r}, loaded={sorted(self._classes)})"

    def _add(self, name: str, cls: Callable[..., Any]) -> None:
        self._check_name(name)
        if name in self._aliases:
            raise RegistryError(f"{self.name} '{name}' is an alias of '{self._aliases[name]}'; choose another name")
        old = self._classes.get(name)
        if old is not None and (old.__module__, old.__qualname__) != (cls.__module__, cls.__qualname__):
            raise RegistryError(
                f"{self.name} '{name}' is registered twice, by {old.__module__}.{old.__qualname__} ({_where(old)}) "
                f"and {cls.__module__}.{cls.__qualname__} ({_where(cls)}); rename one"
            )
        # A registry may hold functions as well; callers only ever call what they get.
        self._classes[name] = cast("type[T]", cls)

    def _check_name(self, name: object) -> None:
        if not isinstance(name, str) or not name:
            own = f"; {self._how_to_name_own(name.__name__.lower())}" if isinstance(name, type) else ""
            raise RegistryError(f"a {self.name} name must be a non-empty str, got {name!r}{own}")

    def _spellings(self, name: str) -> list[str]:
        """Return the name, then what it may stand for."""
        stem = name.removesuffix(_COMMAND_SUFFIX)
        return list(dict.fromkeys([name, self._aliases.get(name, name), stem, self._aliases.get(stem, stem)]))

    def _lookup(self, name: str) -> type[T] | None:
        return self._classes.get(self.canonical(name))

    def _of_import(self, name: str, modules: Iterable[str]) -> type[T] | None:
        """Return the class that has this name only in one of these modules."""
        return next((self._by_module[key] for module in modules if (key := (module, name)) in self._by_module), None)

    def _import_from_home(self, name: str) -> dict[str, str]:
        """Import the modules of the home where `name` may be registered, and return those that failed, with why."""
        failures: dict[str, str] = {}
        for key in reversed(self._spellings(name)):
            for module in self._candidates(key):
                if reason := _try_import(module):
                    failures[module] = reason
                elif self._lookup(name) is not None:
                    return failures
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
            callables = [key for key, value in vars(module).items() if callable(value)]
            close = difflib.get_close_matches(attribute, callables, n=3)
            hint = f"; did you mean {' or '.join(repr(c) for c in close)}?" if close else ""
            raise RegistryError(f"{self.name} '{name}': module '{module_name}' has no class '{attribute}'{hint}")
        return cast("type[T]", found)

    def _candidates(self, key: str) -> list[str]:
        if key in self._modules:
            return [self._modules[key]]
        if not key.isidentifier():
            return []
        return [f"{self.home}.{key}"] if _is_package(self.home) else [self.home]

    def _home_modules(self) -> list[str]:
        found = list(self._modules.values())
        if _find_spec(self.home) is None:
            return found
        found.insert(0, self.home)
        path = getattr(importlib.import_module(self.home), "__path__", None)
        if path is not None:
            found += [f"{self.home}.{m.name}" for m in pkgutil.iter_modules(path) if not m.name.startswith("_")]
        return list(dict.fromkeys(found))

    def _unknown(self, name: str, failures: Mapping[str, str]) -> str:
        known = self.names()
        aliases = [alias for alias, target in self._aliases.items() if target in self._classes]
        close = difflib.get_close_matches(name, [*known, *aliases], n=3)
        hint = f"; did you mean {' or '.join(repr(c) for c in close)}?" if close else ""
        listing = ", ".join(known) if known else f"none (nothing is registered in {self.home})"
        told = {module: why for module, why in failures.items() if why != f"no module {module}"}
        is_imported = all(module.startswith(f"{self.home}.") for module in told)  # else that is to be mended first
        own = f"\n  {self._how_to_name_own(name)}" if is_imported else ""
        return f"unknown {self.name} '{name}'{hint}\n  known: {listing}{own}{_listed(told)}"

    def _how_to_name_own(self, name: str) -> str:
        """Say how a config names a class of the user's own."""
        return (
            f"one of your own: its import path, module:Class, as the type; or @{self.name.upper()}_REGISTRY.register("
            f"'{name}') above the class, and import_names=['its_module'] beside the type"
        )


def own_path(module: str) -> str:
    """Read DI-engine's module paths as ours."""
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
        return told(error) + ("; gymnasium is its successor: import gymnasium as gym" if is_gym else "")
    if module.startswith(("ding_like.", "dizoo.")):
        return f"no module {error.name}"
    close = " or ".join(repr(each) for each in close_modules(error.name))
    hint = f"; did you mean {close}?" if close else ""
    return f"no module {error.name}{hint} (python looked in {', '.join(searched_folders())})"


def _find_spec(module: str) -> Any:
    """Return the import spec of a module, or None where it or a package above it is missing."""
    try:
        return importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return None


def _is_package(module: str) -> bool:
    spec = _find_spec(module)
    return spec is None or spec.submodule_search_locations is not None


def _listed(failures: Mapping[str, str]) -> str:
    return "".join(f"\n  import {module}: {reason}" for module, reason in failures.items())


def _where(cls: Callable[..., Any]) -> str:
    try:
        return f"{inspect.getsourcefile(cls)}:{inspect.getsourcelines(cls)[1]}"
    except (OSError, TypeError):  # made at run time or typed at a prompt: there is no file to show
        return cls.__module__
