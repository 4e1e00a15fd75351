"""The sdist and the wheel: what is inside, and that the wheel trains in an empty environment."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from email.parser import Parser
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
COMPILED = ("ding_like.data._buffer_rows", "ding_like.data._sum_tree")
NEEDED = ("setup.py", "pyproject.toml", "LICENSE", "README.md", "constraints.txt", "ding_like/data/_sum_tree.c")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


class Built(NamedTuple):
    """The two files that `python -m build` makes."""

    sdist: Path
    wheel: Path


def call(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run a command and return its output; an error shows the end of it."""
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build an sdist of the tracked files, and the wheel of that sdist."""
    folder = tmp_path_factory.mktemp("build")
    for name in call("git", "ls-files", cwd=ROOT).splitlines():
        if (ROOT / name).is_file():  # one that is deleted is tracked until the commit
            (folder / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "tree" / name).write_bytes((ROOT / name).read_bytes())
    call(sys.executable, "-m", "build", "--outdir", folder / "dist", folder / "tree", cwd=folder)
    (sdist,), (wheel,) = (list((folder / "dist").glob(f"*.{ending}")) for ending in ("tar.gz", "whl"))
    return Built(sdist, wheel)


def closure(requirements: Sequence[str]) -> set[str]:
    """Return the names of the distributions that these requirements install, of those that are here."""
    found, waiting = set[str](), [Requirement(text) for text in requirements]
    while waiting:
        each = waiting.pop()
        if each.name in found or (each.marker is not None and not each.marker.evaluate({"extra": ""})):
            continue
        found.add(each.name)
        waiting += [Requirement(text) for text in importlib.metadata.requires(each.name) or ()]
    return found


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into an empty environment and return its `bin`.

    torch and the others are large: what this environment has of them is linked into a folder that the new one reads,
    and nothing else of this environment is. pip checks their versions as if it had installed them.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder / "venv")
    wheel = importlib.metadata.PathDistribution(zipfile.Path(built.wheel, metadata_folder(built.wheel) + "/"))
    (folder / "packages").mkdir()
    for name in closure(wheel.requires or ()):
        distribution = importlib.metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}:
            link = folder / "packages" / top
            if not link.is_symlink():
                link.symlink_to(Path(str(distribution.locate_file(top))))
    (site,) = (folder / "venv/lib").glob("python3*/site-packages")
    (site / "packages.pth").write_text(str(folder / "packages"))
    python = folder / "venv/bin/python"
    constraints = ROOT / "constraints.txt"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-index", "-c", constraints)
    call(*pip, built.wheel, cwd=folder)
    return python.parent


def metadata_folder(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        return next(name.partition("/")[0] for name in archive.namelist() if ".dist-info/" in name)


def clean(folder: Path) -> dict[str, str]:
    """Return an environment in which nothing but `folder` names Python packages."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "PATH": f"{folder}:/usr/bin:/bin", "VIRTUAL_ENV": str(folder.parent)}


def test_the_wheel_has_all_files_of_the_packages_and_no_others(built: Built) -> None:
    tracked = call("git", "ls-files", "ding_like", "dizoo", cwd=ROOT).splitlines()
    expected = {name for name in tracked if not name.endswith(".c") and (ROOT / name).is_file()}
    with zipfile.ZipFile(built.wheel) as archive:
        names = set(archive.namelist())

    info = metadata_folder(built.wheel)
    rest = {name for name in names - expected if not name.startswith(info)}
    assert not expected - names
    assert sorted(name.partition(".")[0] for name in rest) == [name.replace(".", "/") for name in COMPILED]
    assert {"ding_like/py.typed", f"{info}/licenses/LICENSE", f"{info}/entry_points.txt"} <= names


def test_the_wheel_is_of_this_python_and_names_its_licence(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        about = Parser().parsestr(archive.read(f"{metadata_folder(built.wheel)}/METADATA").decode())

    assert f"cp3{sys.version_info[1]}-cp3{sys.version_info[1]}" in built.wheel.name
    assert about["License"] == "Apache-2.0" and "## " in about.get_payload()


def test_the_sdist_has_what_a_build_needs_and_no_tests(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    assert set(NEEDED) <= names
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "docs", "entry", "notebooks"))]


def test_the_installed_wheel_reports_its_version_and_trains_a_shipped_config(installed: Path, tmp_path: Path) -> None:
    env = clean(installed)
    short = ("--env-step", "300", "--exp-name", "run", "policy.random_collect_size=100")

    version = call("ding", "--version", cwd=tmp_path, env=env)
    call("ding", "-m", "serial", "-e", "cartpole", "-p", "dqn", "-s", "0", *short, cwd=tmp_path, env=env)

    assert importlib.metadata.version("ding-like") in version
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["env_step"] >= 300 and result["train_iter"] > 0


def test_the_installed_wheel_has_its_compiled_parts_and_is_not_this_tree(installed: Path, tmp_path: Path) -> None:
    code = f"import importlib; print(*(importlib.import_module(name).__file__ for name in {COMPILED!r}), sep='\\n')"

    files = call(installed / "python", "-c", code, cwd=tmp_path, env=clean(installed)).splitlines()

    assert len(files) == len(COMPILED)
    assert all(Path(file).is_relative_to(installed.parent) and file.endswith((".so", ".pyd")) for file in files)


def test_the_context_of_the_image_builds_the_same_wheel(built: Built, tmp_path: Path) -> None:
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for name in call("git", "ls-files", "--", *kept, cwd=ROOT).splitlines():
        if (ROOT / name).is_file():
            (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "src" / name).write_bytes((ROOT / name).read_bytes())

    (line,) = re.findall(r"^RUN (pip wheel .*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    command = line.replace("/wheels", str(tmp_path / "wheels")).split()
    call(sys.executable, "-m", *command, cwd=tmp_path / "src")

    (made,) = (tmp_path / "wheels").glob("*.whl")
    with zipfile.ZipFile(made) as archive, zipfile.ZipFile(built.wheel) as other:
        assert sorted(archive.namelist()) == sorted(other.namelist())


def test_wheels_are_built_for_each_python_that_the_package_takes() -> None:
    (asked,) = re.findall(r'python_requires="(.*?)"', (ROOT / "setup.py").read_text())
    (built,) = re.findall(r'\[tool\.cibuildwheel\]\n#.*\nbuild = "(.*?)"', (ROOT / "pyproject.toml").read_text())

    versions = [minor for minor in range(30) if SpecifierSet(asked).contains(f"3.{minor}")]
    assert built.split() == [f"cp3{minor}-*" for minor in versions]
