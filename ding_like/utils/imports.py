"""Imports: on first use, of optional packages, of a user's files and modules, and of `ding` as `ding_like`.

A name of `import_names` is a module, a Python file ("/home/me/walk.py") or a folder, which joins the end of `sys.path`.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import logging
import os
import re
import site
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from ding_like.errors import ConfigError, DingError

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
    "lz4": "ray",
    "matplotlib": "viz",
    "minigrid": "minigrid",
    "mlflow": "mlflow",
    "mpe2": "mpe",
    "mujoco": "mujoco",
    "openskill": "league",
    "optuna": "tune",
    "pettingzoo": "pettingzoo",
    "pygame": "classic",
    "ray": "ray",
    "shimmy": "dmc",
    "wandb": "wandb",
    "sklearn": "imageclassification",
    "zmq": "seed",
}

# "module:Class", "file.py:Class", "module:EnvId-v0"; no "cuda:0", no URL, no "import:..." of config/objects.py.
_IMPORT_PATH = re.compile(r"(?!import:)((?:[A-Za-z]:[\\/])?[^:]+):(?!\d+$)(\w[\w./-]*)")
# Files that were run here, by their real path.
_modules: dict[Path, ModuleType] = {}
# Parts of the names of files that are not a user's own.
_NOT_OWN = ("site-packages", "dist-packages", "<frozen", "<string>", str(Path(__file__).parents[1]) + os.sep)


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
    found = [each for folder in folders for each in _modules_in(Path(folder))]
    return f"{did_you_mean(module.partition('.')[0], found)} (python looked in {', '.join(folders)})"


def _modules_in(folder: Path) -> Iterator[str]:
    for entry in folder.iterdir():
        if entry.suffix == ".py" and entry.stem.isidentifier():
            yield entry.stem
        elif entry.name.isidentifier() and (entry / "__init__.py").is_file():
            yield entry.name


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Return "; did you mean 'a' or 'b'?" of the known names that are like one; "" if there are none."""
    close = difflib.get_close_matches(name, known, n=3)
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

    def create_module(self, spec: ModuleSpec) -> None:
        """Let the import system make a module, which `exec_module` replaces by ours."""

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


def raised_at(error: BaseException) -> str:
    """Return "file:line" of the innermost line of code that is neither ours nor installed; "" if there is none.

    For an exception without such a line it is that of its cause, and for one that another process described, the line
    there: its attribute `raised_at`.
    """
    described: str | None = getattr(error, "raised_at", None)
    if described is not None:
        return described
    lines = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:  # of which the traceback has no frame
        lines.append((error.filename, error.lineno))
    stdlib = sysconfig.get_path("stdlib") + os.sep
    own = [at for at in lines if not at[0].startswith(stdlib) and not any(part in at[0] for part in _NOT_OWN)]
    if not own and error.__cause__ is not None:
        return raised_at(error.__cause__)
    return f"{own[-1][0]}:{own[-1][1] or 0}" if own else ""


def describe_error(error: BaseException) -> str:
    """Return an exception's class, its text and the user's line that raised it."""
    at = raised_at(error)
    return f"{type(error).__name__}: {error}{at and f' ({at})'}"
