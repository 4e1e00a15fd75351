"""Run Python files and find modules that no package holds: config files, and what lies beside them.

A name of `import_names` is a module, a Python file ("/home/me/walk.py") or a folder, which joins the end of `sys.path`.
"""

from __future__ import annotations

import difflib
import importlib
import os
import re
import site
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from ding_like.errors import ConfigError, DingError
from ding_like.utils.ding_imports import ding_imports
from ding_like.utils.user_code import told

# "module:Class", "file.py:Class", "module:EnvId-v0"; no "cuda:0", no URL, no "import:..." of config/objects.py.
_IMPORT_PATH = re.compile(r"(?!import:)((?:[A-Za-z]:[\\/])?[^:]+):(?!\d+$)(\w[\w./-]*)")
# Files that were run here, by their real path.
_modules: dict[Path, ModuleType] = {}


def run_file(file: Path) -> ModuleType:
    """Run a Python file as a module of its own, and let its folder join the end of `sys.path`.

    Raises ConfigError with file and line for what it raises.
    """
    module = ModuleType(f"config_file_{file.stem}")
    module.__file__ = str(file)
    add_folder(file.resolve().parent)
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


def add_folder(folder: str | os.PathLike[str]) -> None:
    """Let modules of a folder be found, after all others."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def split_import_path(text: str) -> tuple[str, str] | None:
    """Return (module, name) of an import path, None for any other text: nothing is imported by such a one."""
    match = _IMPORT_PATH.fullmatch(text)
    return None if match is None else (match[1], match[2])


def import_code(name: str) -> ModuleType | None:
    """Import what a name of `import_names` stands for; None for a folder, whose modules can be imported from now on.

    A file that was run in this process, as a config say, is not run again. Raises ImportError, and ConfigError with
    file and line for what else the code raises.
    """
    path = Path(name)
    if name.endswith(".py"):
        if not path.is_file():
            raise ImportError(f"there is no file {path.absolute()}")
        return _modules.get(path.resolve()) or run_file(path)
    if path.is_absolute():
        if not path.is_dir():
            raise ImportError(f"there is no folder {path}")
        add_folder(path)
        return None
    try:
        with ding_imports(name):
            return importlib.import_module(name)
    except (ImportError, DingError):
        raise
    except SyntaxError as error:
        raise ConfigError(
            f"module '{name}' cannot be imported: {error.filename}, line {error.lineno}: {error.msg}"
        ) from (error)
    except Exception as error:  # a module may raise anything
        raise ConfigError(f"module '{name}' cannot be imported: {told(error)}") from error


def is_imported(name: str) -> bool:
    """Return whether `import_code(name)` would run no code, as it has run in this process already."""
    path = Path(name)
    if name.endswith(".py"):
        return path.resolve() in _modules
    return name in (sys.path if path.is_absolute() else sys.modules)


def searched_folders() -> list[str]:
    """Return the folders that python looks for a user's modules in: those of `sys.path` that hold no installed ones."""
    installed = {*site.getsitepackages(), sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    installed |= {str(Path(folder) / "lib-dynload") for folder in list(installed)}
    folders = [os.path.abspath(folder) for folder in sys.path if not folder.endswith(".zip")]
    return [folder for folder in dict.fromkeys(folders) if folder not in installed and os.path.isdir(folder)]


def close_modules(name: str) -> list[str]:
    """Return modules of the searched folders whose name is like that of a missing one."""
    found = [module for folder in searched_folders() for module in _modules_in(Path(folder))]
    return difflib.get_close_matches(name.partition(".")[0], found, n=3)


def _modules_in(folder: Path) -> Iterator[str]:
    for entry in folder.iterdir():
        if entry.suffix == ".py" and entry.stem.isidentifier():
            yield entry.stem
        elif entry.name.isidentifier() and (entry / "__init__.py").is_file():
            yield entry.name
