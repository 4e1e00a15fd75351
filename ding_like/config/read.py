"""Run a config file, return its configs, and register its classes in every process of the run.

A worker, an env's process and a resumed run read the compiled config and not the user's file. So the file's path, or
its folder, joins the `import_names` of those parts that need it.
"""

from __future__ import annotations

import ast
import difflib
import functools
import importlib.metadata
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import ding_like
from ding_like.config.report import Fault, shipped_folders
from ding_like.config.schema import OTHER_SECTIONS, PARTS, create_config_of
from ding_like.config.tree import Tree, block, deep_merge, get_path, leaves, literal, set_path, to_plain
from ding_like.errors import ConfigError
from ding_like.types import Config
from ding_like.utils.files import write_text
from ding_like.utils.registries import REGISTRIES, run_file

_logger = logging.getLogger(__name__)

_JSON_WORDS = {"true": "True", "false": "False", "null": "None"}
_NAMES = ("main_config", "create_config", "system_config")


class ConfigFile(NamedTuple("ConfigFile", [("main_config", Config), ("create_config", Config)])):
    """Configs that a file defines, unchanged; it unpacks into `main_config, create_config`.

    `system_config` is None where there is none: only parallel pipelines have one.
    """

    system_config: Config | None

    def __new__(cls, main: Config, create: Config, system: Config | None = None) -> ConfigFile:
        """Return the configs of one file."""
        file = super().__new__(cls, main, create)
        file.system_config = system
        return file


def read_config(path: str | os.PathLike[str]) -> ConfigFile:
    """Return `main_config`, `create_config` and, where there is one, `system_config` of a Python file.

    The file runs as a module of its own, and its folder joins the end of `sys.path`, so that it and its `import_names`
    may name modules beside it. Where it registers envs, policies or other parts, it joins the `import_names` of those:
    every process of the run, and a resumed one, then knows them. Raises ConfigError if the file is missing, fails or
    lacks a config.
    """
    file = _existing(Path(path))
    try:
        module, sections = run_config(file)
    except ConfigError as error:
        if fix := _fix(error.__cause__):
            raise ConfigError(f"{error}; {fix}") from error.__cause__
        raise
    found: Tree = {name: getattr(module, name, None) for name in _NAMES}
    if found["main_config"] is None or found["create_config"] is None:
        found |= _named_otherwise(module, found)
    for name, value in found.items():
        if value is None and name != "system_config":
            raise ConfigError(f"{file} defines no {name}; {_hint(module, name)}")
        if value is not None and not isinstance(value, dict):
            is_comma = isinstance(value, tuple) and len(value) == 1  # name = dict(...),
            fix = "; remove the comma behind it" if is_comma else ""
            raise ConfigError(
                f"{file}: {name} must be a dict or an EasyDict, got {type(value).__name__} {value!r}{fix}"
            )
    create = with_own_code(found["main_config"], found["create_config"], file, sections)
    return ConfigFile(found["main_config"], create, found["system_config"])


def _fix(cause: BaseException | None) -> str:
    """Return the fix of a common error of config files, "" for any other error."""
    if isinstance(cause, NameError) and cause.name in _JSON_WORDS:
        return f"a config is Python, not JSON: write {_JSON_WORDS[cause.name]}"
    if isinstance(cause, ModuleNotFoundError) and cause.name == "gym":
        return "gymnasium is its successor: import gymnasium as gym"
    if isinstance(cause, SystemExit):
        return "a config is data, which `ding` reads: take argparse and exit() out, and give values as KEY=VALUE"
    return ""


def given_configs(configs: object, *, has_system: bool = False) -> tuple[Config, ...]:
    """Return configs that are given in place of a file: (main_config, create_config), or those and a system_config.

    Raises ConfigError for anything else.
    """
    numbers = (2, 3) if has_system else (2,)
    if isinstance(configs, (tuple, list)) and len(configs) in numbers:
        return tuple(configs)
    wanted = "(main_config, create_config)" + (", or those and a system_config" if has_system else "")
    if isinstance(configs, Mapping):
        got = f"one dict with the keys {', '.join(map(str, configs))}"
    elif isinstance(configs, (tuple, list)):
        got = f"{len(configs)} of them"
    else:
        got = f"{type(configs).__name__} {configs!r}"
    raise ConfigError(f"a config is a .py file or {wanted}; got {got}.")


def _named_otherwise(module: ModuleType, found: Config) -> dict[str, Any]:
    """Return the configs of a file of DI-engine that have other names there, if there is one candidate for each.

    Its files call them `<x>_config` and `<x>_create_config`, and give them the names that are looked for below.
    """
    own = {key: value for key, value in vars(module).items() if isinstance(value, Mapping) and key.endswith("_config")}
    creates = {key: value for key, value in own.items() if key.endswith("create_config")}
    mains = {key: value for key, value in own.items() if key not in creates and {"env", "policy"} <= set(value)}
    chosen = {}
    for name, candidates in (("main_config", mains), ("create_config", creates)):
        if found[name] is None and len({id(value) for value in candidates.values()}) == 1:
            key, chosen[name] = next(iter(candidates.items()))
            _logger.info("%s defines no %s; %s is taken", Path(str(module.__file__)).name, name, key)
    return chosen


def _existing(file: Path) -> Path:
    if file.is_dir():
        inside = [entry.name for entry in sorted(file.glob("*config*.py"))]
        raise ConfigError(f"{file} is a folder; give a config file" + (f", such as {inside[0]}" if inside else ""))
    if file.suffix != ".py":
        raise ConfigError(f"a config is a Python file with the ending .py, got '{file}'")
    if not file.exists():
        shipped = (entry for folder in shipped_folders() for entry in folder.rglob("*_config.py"))
        known = {entry.name: os.path.relpath(entry) for entry in shipped}
        known |= {entry.name: str(entry) for entry in file.parent.glob("*.py")}
        close = [known[name] for name in difflib.get_close_matches(file.name, known, n=2)]
        fix = f"did you mean {' or '.join(close)}?" if close else "a shipped one: -e cartpole -p dqn"
        raise ConfigError(f"there is no config file '{file}'; {fix}")
    return file


def _hint(module: ModuleType, name: str) -> str:
    if name == "create_config":
        main = getattr(module, "main_config", None)
        has_id = isinstance(main, Mapping) and isinstance(main.get("env"), Mapping) and "env_id" in main["env"]
        return f"add `{name} = dict(env=dict(type={'gymnasium' if has_id else '...'!r}), policy=dict(type='dqn'))`"
    dicts = [key for key, value in vars(module).items() if isinstance(value, Mapping) and not key.startswith("_")]
    close = difflib.get_close_matches(name, dicts, n=1, cutoff=0.4)
    return f"is it '{close[0]}'? Add `{name} = {close[0]}`" if close else f"add `{name} = dict(...)`"


# ---- code of the user

# Registry -> section of create_config that imports its classes, where it is not the part of the same registry.
_SECTIONS = {"env_wrapper": "env", "model": "policy", "learner_hook": "learner", "player": "league"}
_SECTIONS |= {part.registry.name: part.name for part in PARTS}
_SECTIONS |= {"parallel_collector": "collector"} | {name: name for name in OTHER_SECTIONS}
_OWN = ("ding_like", "gymnasium")  # packages that every process imports by itself

# File -> sections for which it registers something: what it imports registers at its first run only.
_sections_of: dict[Path, set[str]] = {}
_ids_of: dict[Path, set[str]] = {}


def run_config(file: Path) -> tuple[ModuleType, set[str]]:
    """Run a config file; return its module and the sections of create_config for which it registers something."""
    path = file.resolve()
    envs = _gymnasium_envs()
    for env_id in _ids_of.get(path, ()):  # gymnasium warns of an id that is registered again
        envs.pop(env_id, None)
    before = _registered()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Overriding environment")
        module = run_file(file)
    new = {key for key, found in _registered().items() if before.get(key) is not found and not _is_known(found)}
    _ids_of.setdefault(path, set()).update(name for registry, name in new if registry == "gymnasium")
    sections = _sections_of.setdefault(path, set())
    sections.update("env" if registry == "gymnasium" else _SECTIONS[registry] for registry, _ in new)
    return module, sections


def with_own_code(main: Config, create: Config, file: Path, sections: Iterable[str]) -> Config:
    """Return create_config with the file among the `import_names` of `sections`.

    The file's folder joins those of parts that name a module in it. The inputs are not changed.
    """
    path = file.resolve()
    added: Tree = {}
    for name in dict.fromkeys([*(part.name for part in PARTS), *sections]):
        section = create.get(name, {})
        if not isinstance(section, Mapping):
            continue
        in_main = get_path(main, next((part.path for part in PARTS if part.name == name), name), {})
        in_main = in_main if isinstance(in_main, Mapping) else {}
        given = section.get("import_names", in_main.get("import_names", []))
        given = [given] if isinstance(given, str) else given
        if not isinstance(given, (list, tuple)):
            continue
        own = [_absolute(each, path.parent) for each in given]
        if any(_lies_in(module, path.parent) for module in _named_modules(name, section, in_main, own)):
            own.insert(0, str(path.parent))
        if name in sections and str(path) not in own:
            own.insert(0, str(path))
        if own != list(given):
            added[name] = {**section, "import_names": list(dict.fromkeys(own))}
    return {**to_plain(create), **to_plain(added)} if added else create


def _named_modules(part: str, section: Config, in_main: Config, own: list[Any]) -> Iterator[str]:
    """Yield the modules that a part names: its import_names, and before the colon of "module:Class" and "module:Id"."""
    named = [section.get("type"), in_main.get("type")]
    if part == "env":
        wrappers = in_main.get("wrappers")
        named += [section.get("env_id"), in_main.get("env_id")]
        if isinstance(wrappers, (list, tuple)):
            named += [each.get("type") if isinstance(each, Mapping) else each for each in wrappers]
    if part == "policy" and isinstance(model := in_main.get("model"), Mapping):
        names = model.get("import_names", [])
        yield from (each for each in ([names] if isinstance(names, str) else names) if isinstance(each, str))
        named.append(model.get("type"))
    yield from (each for each in own if isinstance(each, str))
    yield from (each.partition(":")[0] for each in named if isinstance(each, str) and ":" in each)


def _absolute(name: Any, folder: Path) -> Any:
    """Return the path of a Python file beside the config; any other name as it is."""
    is_beside = isinstance(name, str) and name.endswith(".py") and (folder / name).is_file()
    return str(folder / name) if is_beside else name


def _lies_in(module: str, folder: Path) -> bool:
    top = module.partition(".")[0]
    return top.isidentifier() and ((folder / f"{top}.py").is_file() or (folder / top / "__init__.py").is_file())


def _gymnasium_envs() -> dict[str, Any]:
    """Return gymnasium's registry, empty until gymnasium is imported: reading a config needs no env."""
    gymnasium = sys.modules.get("gymnasium")
    return {} if gymnasium is None else gymnasium.registry


def _registered() -> dict[tuple[str, str], Any]:
    own = {(name, key): cls for name, each in REGISTRIES.items() for key, cls in each.registered().items()}
    return {**own, **{("gymnasium", env_id): spec for env_id, spec in _gymnasium_envs().items()}}


def _is_known(found: Any) -> bool:
    """Return whether all processes have a class or gymnasium spec without the file: ours, gymnasium's, a plug-in's."""
    entry = getattr(found, "entry_point", found)
    module = entry if isinstance(entry, str) else getattr(entry, "__module__", "")
    return module.partition(":")[0].partition(".")[0] in {*_OWN, *_plugins()}


@functools.cache
def _plugins() -> set[str]:
    """Return the packages that gymnasium imports by itself."""
    return {point.module.partition(".")[0] for point in importlib.metadata.entry_points(group="gymnasium.envs")}


# Where main_config shows a class: where create_config names it.
NAMED_IN_CREATE = {f"{part.path}.type": f"{part.name}.type" for part in PARTS}

CREATE = "create"  # `create.policy.type=dqn` addresses create_config, anything else main_config

_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}
# A text in quotes, which is kept, or a word without.
_BARE_WORD = re.compile(r"'[^']*'|\"[^\"]*\"|(?<![\w.])[A-Za-z_][\w./-]*")
_FLOAT_WORD = re.compile(r"[+-]?(inf|nan)", re.IGNORECASE)


class Override(NamedTuple):
    """One `path.to.key=value` argument."""

    text: str  # as it was typed
    path: str  # as faults name it: "policy.learn.batch_size", "create_config.policy.type"
    raw: str  # the text right of "="
    value: Any
    replaced: str = ""  # the text of an earlier argument that gives the same key another value


def parse_value(raw: str) -> Any:
    """Return a Python literal, true/false/null, inf/nan, or else the text itself.

    In a list or dict quotes may be left out around words: a shell takes them away. [{type: obs_norm}]
    """
    text = raw.strip()
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _FLOAT_WORD.fullmatch(text):
        return float(text)
    quoted = [_BARE_WORD.sub(_quoted_word, text)] if text[:1] in ("[", "{", "(") else []
    for written in (text, *quoted):
        with suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):  # all that literal_eval raises
            return ast.literal_eval(written)
    return raw


def _quoted_word(match: re.Match[str]) -> str:
    word = match[0]
    if word[0] in "'\"" or word in ("True", "False", "None"):
        return word
    return str(_WORDS[word.lower()]) if word.lower() in _WORDS else repr(word)


def check_overrides(texts: object) -> None:
    """Raise ConfigError for a text in place of a list of texts."""
    if isinstance(texts, str):
        raise ConfigError(f"overrides is the text {texts!r}; give a list of texts: overrides=[{texts!r}].")


def apply_overrides(texts: Iterable[str], main: Tree, create: Tree, faults: list[Fault]) -> dict[str, Override]:
    """Put every override into `main` or `create`, and return them by path; what cannot be read goes to `faults`."""
    check_overrides(texts)
    applied: dict[str, Override] = {}
    for text in texts:
        override = _parse(text, faults)
        if override is None:
            continue
        earlier = applied.get(override.path)
        if earlier is not None:
            is_same = earlier.value == override.value
            override = override._replace(replaced=earlier.replaced if is_same else earlier.text)
        applied[override.path] = override
        prefix = f"{CREATE}_config."
        if override.path.startswith(prefix):
            _change(create, override.path.removeprefix(prefix), override.value)
            continue
        _change(main, override.path, override.value)
        if override.path in NAMED_IN_CREATE:  # wherever a class is named, the override wins
            _change(create, NAMED_IN_CREATE[override.path], override.value)
    return applied


def take_overrides(
    texts: Iterable[str], tree: Tree, faults: list[Fault], *, section: str
) -> tuple[list[str], dict[str, Override]]:
    """Put the overrides of one section into `tree`, which holds it; return (the others' texts, those by path)."""
    others: list[str] = []
    applied: dict[str, Override] = {}
    for text in texts:
        if text.partition("=")[0].partition(".")[0].strip() != section:
            others.append(text)
        elif (override := _parse(text, faults)) is not None:
            applied[override.path] = override
            _change(tree, override.path, override.value)
    return others, applied


def _change(tree: Tree, path: str, value: Any) -> None:
    old = get_path(tree, path)
    both = isinstance(old, dict) and isinstance(value, dict)
    set_path(tree, path, deep_merge(old, value) if both else value)


def _parse(text: str, faults: list[Fault]) -> Override | None:
    path, equals, raw = text.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys):
        reason = "is not an override; write path.to.key=value, for example policy.learn.batch_size=128"
    elif "/" in keys[0]:
        reason = f"has slashes; a key is written with dots: {path.strip('/ ').replace('/', '.')}={raw}"
    elif keys[0] == "main_config" and len(keys) > 1:
        reason = f"names main_config, which every key is of; write {'.'.join(keys[1:])}={raw}"
    else:
        first = f"{CREATE}_config" if keys[0] == CREATE else keys[0]
        return Override(text, ".".join([first, *keys[1:]]), raw, parse_value(raw))
    faults.append(Fault(text, reason))
    return None


def save_config(
    cfg: Config, exp_dir: str | os.PathLike[str], *, defaults: Config, overrides: Mapping[str, str] | None = None
) -> None:
    """Write `total_config.py`, `formatted_total_config.py` and `config_diff.txt`.

    Both Python files run again and compile to an equal config. `overrides` maps paths to the command line arguments
    that set them; the formatted file names each beside its key. Raises ConfigError if the folder cannot be written.
    """
    create = create_config_of(cfg)
    total = f"exp_config = {block(cfg)}\nmain_config = exp_config\ncreate_config = {block(create)}\n"
    _write(Path(exp_dir) / "total_config.py", _header("total_config.py") + total)
    _write(Path(exp_dir) / "formatted_total_config.py", _formatted(cfg, create, overrides or {}))
    _write(Path(exp_dir) / "config_diff.txt", _diff(cfg, defaults))


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
            value = _Floats().visit(node.value)
            found[name.id] = found[value.id] if isinstance(value, ast.Name) else ast.literal_eval(value)
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


def _formatted(cfg: Config, create: Tree, overrides: Mapping[str, str]) -> str:
    prefix = "create_config."
    notes = {path: f"override: {literal(text)}" for path, text in overrides.items()}
    create_notes = {path.removeprefix(prefix): note for path, note in notes.items() if path.startswith(prefix)}
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
