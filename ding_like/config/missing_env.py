"""Say what to write where a config names an env without its module, or a module of DI-engine's zoo that is not here."""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ding_like.config.tree import get_path

_CUTOFF = 0.75  # of difflib: how alike a name and an id must be; "frozen_lake" and "FrozenLake-v1" are the same


def suggest_gymnasium(name: Any, modules: Iterable[str], main: Mapping[str, Any]) -> str:
    """Return a line that names env type 'gymnasium', and an id where one is near; empty if no dizoo module is missing.

    `name` is the env type that a config asks for, and `modules` its import_names; an `env.env_id` in `main` is taken
    as it is, if gymnasium knows it.
    """
    missing = [module for module in modules if module.startswith("dizoo.") and not _exists(module)]
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


def suggest_shipped(name: Any, modules: Iterable[str]) -> str:
    """Return how to import the env of dizoo that registers a name, in place of `modules`; empty if there is none."""
    spec = importlib.util.find_spec("dizoo")
    roots = spec.submodule_search_locations if spec else None
    for root in map(Path, roots or ()):
        for file in sorted(root.rglob("*.py")):
            if f'@ENV_REGISTRY.register("{name}")' in file.read_text(encoding="utf-8"):
                module = ".".join(("dizoo", *file.relative_to(root).with_suffix("").parts))
                missing = "".join(f"there is no module {each}; " for each in modules if not _exists(each))
                return f"{missing}env '{name}' is in dizoo and needs import_names=['{module}'] beside the type"
    return ""


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it
        return False


def _nearest(names: Iterable[str]) -> str | None:
    """Return the first name that is an id, else the newest version of one that is like a name, the first ones first."""
    import gymnasium  # only for this error: reading a config needs no env

    known_id = next((name for name in names if name in gymnasium.registry), None)
    if known_id is not None:
        return known_id
    by_stem: dict[str, str] = {}
    for env_id, spec in gymnasium.registry.items():
        stem = _stem(spec.name)
        known = by_stem.get(stem)
        if known is None or _rank(spec) >= _rank(gymnasium.registry[known]):
            by_stem[stem] = env_id
    for name in names:
        for close in difflib.get_close_matches(_stem(name), by_stem, n=1, cutoff=_CUTOFF):
            return by_stem[close]
    return None


def _rank(spec: Any) -> tuple[bool, int]:  # an EnvSpec of gymnasium, which is imported above
    return spec.namespace is None, spec.version or 0


def _stem(name: str) -> str:
    """Return a name without its version, namespace, "_env" and punctuation, in lower case."""
    name = name.rpartition("/")[2].rpartition(":")[2]
    stem, _, version = name.rpartition("-v")
    bare = (stem if version.isdigit() else name).lower().removesuffix("_env")
    return "".join(letter for letter in bare if letter.isalnum())
