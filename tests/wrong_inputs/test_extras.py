"""In an environment that has the wheel alone, every line that a message tells to type brings what was missing."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from ding_like.utils.registries import pip_line
from tests.wrong_inputs.cases import MY_CONFIG, Case
from tests.wrong_inputs.run import prepare
from tests.wrong_inputs.table import CASES

pytestmark = pytest.mark.slow
INSTALLS = [case for case in CASES if case.fix_installs]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("build"))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Bare:
    return Bare(tmp_path_factory.mktemp("environment") / "bare", wheel)


@pytest.fixture
def bare(environment: Bare) -> Iterator[Bare]:
    """Give the environment, and take away again what a test has linked in."""
    with environment.as_it_is():
        yield environment


def test_the_wheel_trains_without_any_extra(bare: Bare, tmp_path: Path) -> None:
    (tmp_path / "my_config.py").write_text(MY_CONFIG)

    answer = bare.answer("ding -m serial -c my_config.py --env-step 16", tmp_path)

    assert answer.returncode == 0, answer.stderr
    assert (tmp_path / "my_exp/result.json").is_file()


@pytest.mark.parametrize("case", INSTALLS, ids=[case.name for case in INSTALLS])
def test_the_line_that_a_message_names_brings_what_was_missing(case: Case, bare: Bare, tmp_path: Path) -> None:
    prepare(tmp_path, case)
    command = f"{case.typed} --env-step 16" if case.typed.startswith("ding -m serial") else case.typed
    before = bare.answer(command, tmp_path)

    extra = extra_named(before.stdout + before.stderr)
    assert before.returncode != 0
    assert extra in bare.extras
    names = list(bare.required(extra))
    if not all(map(bare.link, names)):
        pytest.skip(f"{names} are not all installed here")
    after = bare.answer(command, tmp_path)

    assert pip_line(extra) not in after.stderr, after.stderr
    assert "Traceback" not in after.stderr, after.stderr


ROOT = Path(__file__).parents[2]
_SOURCES = ("ding_like", "dizoo", "setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in")


def build_wheel(folder: Path) -> Path:
    """Return the wheel of this package, built in a copy of its sources."""
    source, target = folder / "source", folder / "dist"
    source.mkdir()
    for name in _SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        else:
            shutil.copy(ROOT / name, source / name)
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", str(target), str(source))
    return next(target.glob("*.whl"))


class Bare:
    """Virtual environment without optional packages; those that are linked in are taken from this one."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        run(sys.executable, "-m", "venv", "--without-pip", str(folder))
        self.bin = folder / "bin"
        self._links = folder / "links"
        self._links.mkdir()
        site = next((folder / "lib").glob("python*/site-packages"))
        (site / "links.pth").write_text(f"{self._links}\n")
        pip = [sys.executable, "-m", "pip", "--python", str(self.bin / "python")]
        run(*pip, "install", "--no-deps", "--quiet", str(wheel))
        self._distribution = importlib.metadata.PathDistribution(next(site.glob("ding_like-*.dist-info")))
        for name in self.required():
            self.link(name)

    @property
    def extras(self) -> list[str]:
        """Return the names of the extras in the wheel's metadata."""
        return self._distribution.metadata.get_all("Provides-Extra") or []

    def required(self, extra: str = "") -> Iterator[str]:
        """Yield what the package requires, or what an extra adds."""
        for text in self._distribution.requires or ():
            requirement = Requirement(text)
            marker = requirement.marker
            if extra and marker is not None and marker.evaluate({"extra": extra}):
                yield requirement.name
            elif not extra and (marker is None or marker.evaluate({"extra": ""})):
                yield requirement.name

    def link(self, name: str) -> bool:
        """Put a distribution of this environment, and what it requires, into the bare one; tell whether it is here."""
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            return False
        tops = {Path(str(file)).parts[0] for file in found.files or () if not str(file).startswith("..")}
        new = [top for top in tops if not (self._links / top).exists() and top != "__pycache__"]
        for top in new:
            os.symlink(Path(str(found.locate_file(top))), self._links / top)
        for text in found.requires or () if new else ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                self.link(requirement.name)
        return True

    @contextmanager
    def as_it_is(self) -> Iterator[None]:
        """Take away, when the block ends, what was linked in it."""
        before = set(self._links.iterdir())
        try:
            yield
        finally:
            for link in set(self._links.iterdir()) - before:
                link.unlink()

    def answer(self, command: str, folder: Path) -> subprocess.CompletedProcess[str]:
        """Return what a `ding ...` command answers in a folder."""
        words = [str(self.bin / "python"), "-m", "ding_like.entry.cli", *command.split()[1:]]
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=110)


def extra_named(text: str) -> str:
    """Return the extra of the pip line in a message."""
    found = re.search(r'pip install "ding-like\[(\w+)\]"', text)
    assert found is not None, text
    return found[1]


def run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=110)
