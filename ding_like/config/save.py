"""Write a compiled config so that it can be read, compared and run again; read it as data, without running it."""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ding_like
from ding_like.config.parts import create_config_of
from ding_like.config.read import ConfigFile
from ding_like.config.tree import Tree, block, leaves, literal
from ding_like.errors import ConfigError
from ding_like.types import Config
from ding_like.utils.files import write_text


def save_config(
    cfg: Config,
    exp_dir: str | os.PathLike[str],
    *,
    defaults: Config,
    overrides: Mapping[str, str] | None = None,
) -> None:
    """Write `total_config.py`, `formatted_total_config.py` and `config_diff.txt`.

    Both Python files run again and compile to an equal config. `overrides` maps paths to the command line arguments
    that set them; the formatted file names each beside its key. Raises ConfigError if the folder cannot be written.
    """
    create = create_config_of(cfg)
    texts = {
        "total_config.py": _total(cfg, create),
        "formatted_total_config.py": _formatted(cfg, create, overrides or {}),
        "config_diff.txt": _diff(cfg, defaults),
    }
    for name, text in texts.items():
        _write(Path(exp_dir) / name, text)


def save_system(exp_dir: str | os.PathLike[str], system: Config, *, mode: str) -> None:
    """Add a `system_config` to the files of `save_config`, which then run again in that mode.

    Raises ConfigError if they cannot be written.
    """
    for name in ("total_config.py", "formatted_total_config.py"):
        path = Path(exp_dir) / name
        text = path.read_text(encoding="utf-8").replace(_header(name), _header(name, mode), 1)
        _write(path, f"{text}system_config = {block(system)}\n")


def _write(path: Path, text: str) -> None:
    try:
        write_text(path, text)
    except OSError as error:
        raise ConfigError(
            f"cannot write {path.name} in '{path.parent}': {error.strerror}; choose another exp_name"
        ) from error


def read_saved_config(path: str | os.PathLike[str]) -> ConfigFile:
    """Return the configs in a `total_config.py`, read as data: nothing of the file runs.

    Raises ConfigError for a file that holds anything but the literals that `save_config` writes.
    """
    found: dict[str, Any] = {}
    try:
        for node in ast.parse(Path(path).read_text(encoding="utf-8")).body:
            if not (isinstance(node, ast.Assign) and isinstance(name := node.targets[0], ast.Name)):
                raise ValueError(f"line {node.lineno} is code")
            value = node.value
            found[name.id] = (
                found[value.id] if isinstance(value, ast.Name) else ast.literal_eval(_Floats().visit(value))
            )
        main, create = found["main_config"], found["create_config"]
        if not (isinstance(main, dict) and isinstance(create, dict)):
            raise TypeError("main_config and create_config are dicts")
        return ConfigFile(main, create, found.get("system_config"))
    except (OSError, SyntaxError, ValueError, TypeError, KeyError, RecursionError, MemoryError) as error:
        raise ConfigError(
            f"{path} is not as a run saves it ({type(error).__name__}: {error}), and is not run for this: it may hold "
            "anything. To train from it: ding -m serial -c FILE."
        ) from error


class _Floats(ast.NodeTransformer):
    """Reader of `float("inf")`, the one call in a saved config."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if ast.unparse(node) not in ("float('inf')", "float('-inf')", "float('nan')"):
            raise ValueError(f"line {node.lineno} is code")
        return ast.copy_location(ast.Constant(float(ast.literal_eval(node.args[0]))), node)


def _header(name: str, mode: str = "serial") -> str:
    return f"# Written by ding_like {ding_like.__version__}; to run it again: ding -m {mode} -c {name}\n"


def _total(cfg: Config, create: Tree) -> str:
    return (
        f"{_header('total_config.py')}exp_config = {block(cfg)}\n"
        f"main_config = exp_config\ncreate_config = {block(create)}\n"
    )


def _formatted(cfg: Config, create: Tree, overrides: Mapping[str, str]) -> str:
    prefix = "create_config."
    all_notes = {path: f"override: {literal(text)}" for path, text in overrides.items()}
    notes = {path: note for path, note in all_notes.items() if not path.startswith(prefix)}
    create_notes = {path.removeprefix(prefix): note for path, note in all_notes.items() if path.startswith(prefix)}
    return (
        f"{_header('formatted_total_config.py')}from easydict import EasyDict\n\n"
        f"main_config = EasyDict(\n    {block(cfg, notes, depth=1)}\n)\n"
        f"create_config = EasyDict(\n    {block(create, create_notes, depth=1)}\n)\n"
    )


def _diff(cfg: Config, defaults: Config) -> str:
    """Return a table of the keys whose value is not the default; "-" stands for a key without one."""
    default_texts = {path: literal(value) for path, value in leaves(defaults)}
    rows = [("key", "default", "value")]
    for path, value in leaves(cfg):
        text, default = literal(value), default_texts.get(path, "-")
        if text != default:
            rows.append((path, default, text))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "".join(f"{path:<{widths[0]}}  {default:<{widths[1]}}  {value}\n" for path, default, value in rows)
