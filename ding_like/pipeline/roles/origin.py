"""Say where a run comes from: what was typed, on which machine, with which code."""

from __future__ import annotations

import platform
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ding_like.envs.di_engine_style import BaseEnv
from ding_like.envs.factory import env_class
from ding_like.pipeline.versions import versions

_GIT_TIMEOUT_S = 2.0  # a repository that answers later is not asked again: its commit stays unknown


@dataclass(frozen=True)
class Origin:
    """Hold what `result.json` says of how a run came about."""

    seed: int
    env: str
    policy: str
    mode: str
    command: str | None  # None: typed into an interpreter or a notebook
    host: str
    commit: str | None  # of the repository that the config lies in; "-dirty" behind it: with changes
    versions: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


def origin_of(cfg: Any, *, mode: str, source: str | Path = "", env_fn: Callable[..., Any] | None = None) -> Origin:
    """Return where a run of a compiled config comes from.

    `source` is the config's file, if it has one: without it the script that runs is looked at. `env_fn` is that of an
    `env_setting`, where the caller makes the envs.
    """
    given = Path(source) if str(source) and Path(source).is_file() else None
    script = None if _is_ding() else _script()
    file = given or script
    return Origin(
        seed=int(cfg.seed),
        env=env_name(cfg.env) if env_fn is None else function_name(env_fn),
        policy=str(cfg.policy.type),
        mode=mode,
        command=command_line(),
        host=platform.node(),
        commit=None if file is None else commit_of(file),
        versions=versions(),
    )


def env_name(env: Mapping[str, Any]) -> str:
    """Return the name of the env that a config's section trains: its `env_id` where that is what its `type` makes."""
    kind, env_id = str(env.get("type") or "gymnasium"), env.get("env_id")
    if not env_id:
        return kind
    use = _use_of_env_id(env)
    if use is None:
        return f"{kind} (given env_id '{env_id}')"
    return str(env_id) if use else f"{kind} (env_id '{env_id}' is not used)"


def _use_of_env_id(env: Mapping[str, Any]) -> bool | None:
    """Tell whether the `env_id` of a section says what is made; None: its class alone knows."""
    make = env_class(env)
    if "env_id" in getattr(make, "config", ()):
        return True
    takes_section = ":" not in str(env.get("type")) or (isinstance(make, type) and issubclass(make, BaseEnv))
    return None if takes_section else False


def function_name(env_fn: Callable[..., Any]) -> str:
    """Return how a function or a class that makes envs is called where it was written, () behind it."""
    inner = getattr(env_fn, "func", env_fn)  # of a functools.partial
    return f"{getattr(inner, '__qualname__', type(inner).__name__)}()"


def command_line() -> str | None:
    """Return what was typed to start this process, None in an interpreter or a notebook."""
    if _script() is None:
        return None
    return shlex.join([*(["ding"] if _is_ding() else ["python", sys.argv[0]]), *sys.argv[1:]])


def _is_ding() -> bool:
    script = _script()
    return script is not None and (script.name == "ding" or script.parts[-2:] == ("ding_like", "__main__.py"))


def _script() -> Path | None:
    """Return the file that Python was started with, None in an interpreter or a notebook."""
    name = sys.argv[0] if sys.argv else ""
    path = Path(name)
    is_notebook = path.name == "ipykernel_launcher.py"
    return None if name in ("", "-c", "-m") or is_notebook or not path.is_file() else path


def commit_of(file: Path) -> str | None:
    """Return the commit of the git repository that a file belongs to, None if there is none or git does not say.

    A file that the repository ignores, an installed package for instance, does not belong to it.
    """
    folder = file.resolve().parent
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        if commit.returncode or not _git(folder, "check-ignore", "-q", file.name).returncode:
            return None
        is_dirty = bool(_git(folder, "diff", "--quiet", "HEAD").returncode)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return commit.stdout.strip() + ("-dirty" if is_dirty else "")


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=False
    )
