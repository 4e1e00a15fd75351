"""The pages on code of one's own: their files are written to an empty folder, and their commands are run there."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ding_like.policy import get_policy_cls
from ding_like.utils.registries import POLICY_REGISTRY

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("own_env.md", "own_model.md", "own_algorithm.md")


def files_of(page: str) -> dict[str, str]:
    """Return {file name: text} of the Python blocks of a page, each of which begins with its file's name."""
    blocks = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    return dict(blocks)


def commands_of(page: str) -> list[list[str]]:
    fenced = re.findall(r"```\n(ding .*?)```", (DOCS / page).read_text(), re.DOTALL)
    return [shlex.split(line)[1:] for block in fenced for line in block.splitlines()]


def ding(*arguments: str, folder: Path, status: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ding_like.entry.cli", *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(DOCS.parent), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin", "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def shortened(arguments: list[str], env_step: int) -> list[str]:
    """Return a command whose run is shorter."""
    return [
        str(env_step) if before == "--env-step" else word
        for before, word in zip(["", *arguments], arguments, strict=False)
    ]


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    for name, text in files_of(request.param).items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("folder", ["own_env.md"], indirect=True)
def test_the_env_of_the_page_has_no_fault_and_is_trained_in(folder: Path) -> None:
    *checks, train = commands_of("own_env.md")

    for check in checks:
        assert "no fault, no warning" in ding(*check, "--steps", "300", folder=folder)
    ding(*shortened(train, 1500), folder=folder)

    result = json.loads((folder / "thermostat/result.json").read_text())
    assert result["env_step"] >= 1500 or result["stop"]
    assert (folder / "thermostat/agent.gif").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["own_env.md"], indirect=True)
def test_the_env_of_the_page_is_learned_as_the_page_runs_it(folder: Path) -> None:
    ding(*commands_of("own_env.md")[-1], folder=folder)

    assert json.loads((folder / "thermostat/result.json").read_text())["eval_value"] > 60


@pytest.mark.parametrize("folder", ["own_model.md"], indirect=True)
def test_the_model_of_the_page_is_trained(folder: Path) -> None:
    [train] = commands_of("own_model.md")

    ding(*shortened(train, 800), folder=folder)

    assert json.loads((folder / "wide/result.json").read_text())["train_iter"] > 0


@pytest.mark.parametrize("folder", ["own_algorithm.md"], indirect=True)
def test_the_algorithms_of_the_page_are_trained_and_resumed(folder: Path) -> None:
    train, resume, other = commands_of("own_algorithm.md")

    ding(*shortened(train, 800), folder=folder)
    ding(*resume, "--env-step", "1200", folder=folder)
    ding(*shortened(other, 800), folder=folder)

    steps = [json.loads((folder / name / "result.json").read_text())["env_step"] for name in ("mellow", "slow_q")]
    assert steps[0] >= 1200 and steps[1] >= 800


def test_the_table_of_the_models_page_is_what_policies_declare() -> None:
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (`.*`) \|$", (DOCS / "own_model.md").read_text(), re.MULTILINE)
    said = {name: methods for names, methods in rows for name in re.findall(r"\w+", names)}
    declared = {}
    for name in POLICY_REGISTRY.names():
        methods = getattr(get_policy_cls(dict(type=name)), "model_methods", ())
        if methods and get_policy_cls(dict(type=name)).__module__.startswith("ding_like."):
            declared[name] = ", ".join(f"`{method}`" for method in methods)

    assert said == declared
