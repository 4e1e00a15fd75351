"""Where a run comes from: what result.json says of its command, its code and its env."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from ding_like.config.tree import Tree
from ding_like.pipeline.record import command_line, commit_of, origin_of
from ding_like.report.summary import env_name, function_name


class Corridor(gymnasium.Env[Any, Any]):
    """Env that an import path names."""


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    done = subprocess.run(["git", *who, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "config.py").write_text("main_config = {}\n")
    (tmp_path / ".gitignore").write_text("ignored.py\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "one")
    return tmp_path


def test_the_commit_is_that_of_the_configs_repository(repository: Path) -> None:
    head = git(repository, "rev-parse", "HEAD")

    assert commit_of(repository / "config.py") == head
    (repository / "config.py").write_text("main_config = {'seed': 1}\n")
    assert commit_of(repository / "config.py") == f"{head}-dirty"


def test_a_file_that_the_repository_ignores_has_no_commit(repository: Path) -> None:
    (repository / "ignored.py").write_text("")

    assert commit_of(repository / "ignored.py") is None


def test_without_a_repository_or_git_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit_of(tmp_path / "config.py") is None
    monkeypatch.setenv("PATH", "")
    assert commit_of(Path(__file__)) is None


def test_the_command_is_what_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ding", "train.py"):
        (tmp_path / name).write_text("")

    monkeypatch.setattr(sys, "argv", [str(tmp_path / "ding"), "-m", "serial", "-c", "my config.py"])
    assert command_line() == "ding -m serial -c 'my config.py'"
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "train.py"), "3"])
    assert command_line() == f"python {tmp_path}/train.py 3"
    for interpreter in ([""], ["-c"], ["/usr/lib/ipykernel_launcher.py", "-f", "kernel.json"]):
        monkeypatch.setattr(sys, "argv", interpreter)
        assert command_line() is None


def test_the_env_that_trains_is_named() -> None:
    own = f"{__name__}:Corridor"
    sections: list[tuple[Tree, str]] = [
        ({"type": "gymnasium", "env_id": "CartPole-v1"}, "CartPole-v1"),
        ({"type": "petting_zoo", "env_id": "classic/tictactoe-v3"}, "classic/tictactoe-v3"),
        ({"type": own}, own),
        ({"type": own, "env_id": "X-v0"}, f"{own} (env_id 'X-v0' is not used)"),
    ]
    for section, name in sections:
        assert env_name(section) == name


def test_a_function_that_makes_envs_is_called_by_its_name() -> None:
    def make_my_env(cfg: Any) -> None: ...

    assert function_name(make_my_env).endswith("make_my_env()")
    assert function_name(functools.partial(Corridor)) == "Corridor()"


def test_the_envs_of_the_caller_stand_in_place_of_the_configs() -> None:
    from ding_like.config import compile_config

    main = {"env": {"env_id": "CartPole-v1"}, "policy": {}}
    create = {"env": {"type": "gymnasium"}, "policy": {"type": "dqn"}}
    cfg = compile_config(main, create, seed=3, save=False)

    origin = origin_of(cfg, mode="serial", env_fn=Corridor)

    assert (origin.env, origin.seed, origin.policy, origin.mode) == ("Corridor()", 3, "dqn", "serial")
    assert set(origin.versions) >= {"ding_like", "torch", "numpy", "gymnasium", "python"} and origin.host
