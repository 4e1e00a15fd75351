"""In an environment that has the wheel alone, every line that a message tells to type brings what was missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ding_like.utils.registries import pip_line
from tests.wrong_inputs.bare import Bare, build_wheel, extra_named
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
