"""Faults of a config as one error that names where each is and what to write instead."""

from __future__ import annotations

import ast
import difflib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ding_like.config.tree import get_path, join, leaves, literal
from ding_like.errors import ConfigError, name_some
from ding_like.types import Config
from ding_like.utils.registries import find_spec

# Our paths -> names of the same setting in Stable-Baselines3, RLlib or CleanRL. A message names those of the paths that
# a run's classes have. A path without a section is a model's.
_NAMES: dict[tuple[str, ...], tuple[str, ...]] = {
    ("policy.learn.learning_rate", "policy.learn.learning_rate_actor", "policy.learn.learning_rate_critic"): ("lr",),
    ("policy.discount_factor",): ("gamma",),
    ("policy.other.replay_buffer.replay_buffer_size",): ("buffer_size",),
    ("policy.nstep",): ("n_step",),
    ("policy.nstep", "policy.collect.n_sample"): ("n_steps",),
    ("policy.collect.n_sample",): ("num_steps",),
    ("policy.learn.batch_size",): ("train_batch_size",),
    ("policy.random_collect_size",): ("learning_starts",),
    ("policy.learn.update_per_collect",): ("gradient_steps",),
    ("policy.other.eps",): ("epsilon", "exploration", "exploration_config"),
    ("policy.other.eps.decay",): ("exploration_fraction",),
    ("policy.other.eps.start",): ("exploration_initial_eps",),
    ("policy.other.eps.end",): ("exploration_final_eps",),
    ("policy.learn.target_theta",): ("tau", "polyak"),
    ("policy.learn.target_update_freq",): ("target_update_interval", "target_network_frequency"),
    ("policy.learn.grad_clip_norm",): ("max_grad_norm",),
    ("policy.learn.entropy_weight", "policy.learn.alpha"): ("ent_coef",),
    ("policy.learn.value_weight",): ("vf_coef",),
    ("policy.learn.clip_ratio",): ("clip_range", "clip_coef"),
    ("policy.learn.epoch_per_collect",): ("n_epochs", "update_epochs"),
    ("policy.cuda",): ("device",),
    ("env.collector_env_num",): ("num_envs", "n_envs"),
    ("policy.model.encoder_hidden_size_list", "policy.model"): ("policy_kwargs",),
    ("encoder_hidden_size_list", "policy.model"): ("net_arch", "hidden_sizes", "fcnet_hiddens"),
}
OTHER_NAMES = {name: paths for paths, names in _NAMES.items() for name in names}

_MAX_LISTED = 12  # keys that a message lists before it gives the number of the others
_MISSING = object()


class Fault(NamedTuple):
    """Place in a config and what is wrong there."""

    path: str
    message: str
    # The error names this fault alone, as the others may follow from it.
    is_decisive: bool = False
    # The key changes nothing: a config of DI-engine may carry it, and it is named once.
    is_harmless: bool = False


class NoEffect(NamedTuple):
    """Key that changes nothing, as the `check_config` of a class yields it: a harmless fault."""

    path: str
    message: str


def config_error(faults: Iterable[Fault], source: str, overrides: Mapping[str, str]) -> ConfigError:
    """Return one error with all faults; `overrides` maps a path to the argument that set it.

    Where `source` is a Python file, each fault gets the line of its key.
    """
    faults = list(dict.fromkeys(faults))
    faults = [fault for fault in faults if fault.is_decisive] or faults
    lines = find_lines(source) if os.path.isfile(source) else {}
    width = max(len(fault.path) for fault in faults)
    rows = [f"  {fault.path:<{width}}   {_message(fault, overrides, lines, width)}" for fault in faults]
    count = "1 problem" if len(faults) == 1 else f"{len(faults)} problems"
    return ConfigError(f"{count} in {os.path.basename(source)}\n" + "\n".join(rows))


def suggestion(key: str, known: Config, tree: Config) -> str:
    """Return what may have been meant by an unknown key.

    That is a key with another name in other libraries, a close key of its section, or that key elsewhere in `tree`.
    """
    found = [(path, get_path(tree, path, _MISSING)) for path in OTHER_NAMES.get(key, ())]
    if meant := [_key(path, value) for path, value in found if value is not _MISSING]:
        return f"did you mean {' or '.join(meant)}?"
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.6 if len(key) > 3 else 0.8)
    if close:
        return f"did you mean {_key(close[0], known[close[0]])}?"
    elsewhere = [(path, value) for path, value in leaves(tree) if path.rpartition(".")[2] == key]
    if elsewhere:
        return f"did you mean {_key(*elsewhere[0])}?"
    return f"known here: {name_some(known, _MAX_LISTED)}" if known else "this section takes no keys"


def _key(name: str, default: object) -> str:
    return f"'{name}' (a section)" if isinstance(default, Mapping) else f"'{name}' (default {literal(default)})"


def _message(fault: Fault, overrides: Mapping[str, str], lines: Mapping[str, int], width: int) -> str:
    first, *rest = fault.message.split("\n")
    indented = "".join(f"\n{' ' * (width + 5)}{line}" for line in rest)
    origin = f" (line {lines[fault.path]})" if fault.path in lines else ""
    set_by = [override for path, override in overrides.items() if f"{fault.path}.".startswith(f"{path}.")]
    return f"{first}{f' (override {set_by[0]})' if set_by else origin}{indented}"


# ---- lines of a file

# A config that a file defines -> what the paths of its keys have in front.
_ROOTS = {"main_config": "", "create_config": "create_config", "system_config": "system"}


def find_lines(path: str) -> dict[str, int]:
    """Return {path of a key: line}, as far as the file spells its dicts out; keys of create_config have it in front,
    those of system_config "system".

    Follows names, `dict(...)`, `EasyDict(...)`, `{...}`, `**name`, `a | b` and `main_config.policy.x = ...`. This only
    decorates an error that is already certain, so a file that cannot be read or parsed gives nothing.
    """
    try:
        module = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return {}
    lines: dict[str, int] = {}
    assigned: dict[str, int] = {}  # by `main_config.policy.x = ...` or `main_config["policy"]["x"] = ...`
    values: dict[str, list[ast.expr]] = {}  # of the names at the top of the file

    def visit(node: ast.expr, path: str, seen: frozenset[str]) -> None:
        """Record the lines of all keys of a dict expression at `path`."""
        if isinstance(node, ast.Name) and node.id not in seen:
            # `main_config = EasyDict(main_config)` names itself: its earlier values count as well.
            for value in values.get(node.id, ()):
                visit(value, path, seen | {node.id})
        elif isinstance(node, (ast.Call, ast.Dict)):
            for argument in node.args if isinstance(node, ast.Call) else ():
                visit(argument, path, seen)
            for key, value, line in dict_entries(node):
                if key is not None:
                    lines[join(path, key)] = line
                visit(value, join(path, key or ""), seen)
        elif isinstance(node, ast.BinOp):
            visit(node.left, path, seen)
            visit(node.right, path, seen)

    for node in module.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                root, *keys = _keys(target)
                if not keys:
                    values.setdefault(root, []).append(node.value)
                elif root in _ROOTS:
                    assigned[join(_ROOTS[root], ".".join(keys))] = target.lineno
    for root, prefix in _ROOTS.items():
        visit(ast.Name(root), prefix, frozenset())
    return lines | assigned


def dict_entries(node: ast.expr) -> Iterator[tuple[str | None, ast.expr, int]]:
    """Yield (key, value, line) of `dict(...)` or `{...}`; the key of `**value` is None."""
    if isinstance(node, ast.Call):
        yield from ((keyword.arg, keyword.value, keyword.lineno) for keyword in node.keywords)
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                yield None, value, value.lineno
            elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, value, key.lineno


def _keys(node: ast.expr) -> list[str]:
    """Return the names of `a.b["c"]`, or one empty name for anything else."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        return [*_keys(node.value), node.attr]
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        return [*_keys(node.value), node.slice.value]
    return [""]


# ---- envs that are not here

_CUTOFF = 0.75  # of difflib: how alike a name and an id must be; "mountain_car" and "MountainCar-v0" are the same


def suggest_gymnasium(name: object, modules: Iterable[str], main: Config) -> str:
    """Return a line that names env type 'gymnasium', and an id where one is near; empty if no dizoo module is missing.

    `name` is the env type that a config asks for, and `modules` its import_names; an `env.env_id` in `main` is taken
    as it is, if gymnasium knows it.
    """
    missing = [module for module in modules if module.startswith("dizoo.") and find_spec(module) is None]
    if not missing:
        return ""
    given = get_path(main, "env.env_id")
    names = [given, name, *(module.rpartition(".")[2] for module in missing)]
    env_id = _nearest([each for each in names if isinstance(each, str)])
    if env_id is None:
        return (
            "\n  dizoo has no such env here, and gymnasium has no id like it; an env of another package runs with "
            "create_config.env=dict(type='gymnasium') and env.env_id='its_module:ItsId-v0'"
        )
    return (
        "\n  dizoo has no such env here; one of gymnasium runs with create_config.env=dict(type='gymnasium') and "
        f"env.env_id='{env_id}'"
    )


def suggest_shipped(name: object, modules: Iterable[str]) -> str:
    """Return how to import the env of dizoo that registers a name, in place of `modules`; empty if there is none."""
    for root in shipped_folders():
        for file in sorted(root.rglob("*.py")):
            if f'@ENV_REGISTRY.register("{name}")' in file.read_text(encoding="utf-8"):
                module = ".".join(("dizoo", *file.relative_to(root).with_suffix("").parts))
                missing = "".join(f"there is no module {each}; " for each in modules if find_spec(each) is None)
                return f"{missing}env '{name}' is in dizoo and needs import_names=['{module}'] beside the type"
    return ""


def shipped_folders() -> list[Path]:
    """Return the folders of dizoo, the envs and configs that come with the package."""
    spec = find_spec("dizoo")
    return [] if spec is None else [Path(folder) for folder in spec.submodule_search_locations]


def _nearest(names: Iterable[str]) -> str | None:
    """Return the first name that is an id, else the newest version of one that is like a name, the first ones first."""
    import gymnasium  # only for this error: reading a config needs no env

    known_id = next((name for name in names if name in gymnasium.registry), None)
    if known_id is not None:
        return known_id
    # The newest version comes last, and an id without a namespace after those that have one.
    ranked = sorted(gymnasium.registry.items(), key=lambda item: (item[1].namespace is None, item[1].version or 0))
    by_stem = {_stem(spec.name): env_id for env_id, spec in ranked}
    for name in names:
        for close in difflib.get_close_matches(_stem(name), by_stem, n=1, cutoff=_CUTOFF):
            return by_stem[close]
    return None


def _stem(name: str) -> str:
    """Return a name without its version, namespace, "_env" and punctuation, in lower case."""
    name = name.rpartition("/")[2].rpartition(":")[2]
    stem, _, version = name.rpartition("-v")
    bare = (stem if version.isdigit() else name).lower().removesuffix("_env")
    return "".join(letter for letter in bare if letter.isalnum())
