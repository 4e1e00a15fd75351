"""Every wrong input of the table is answered with one message that names fault and fix, and the fix works."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.wrong_inputs.cases import Case
from tests.wrong_inputs.judge import faults_of, train, try_case
from tests.wrong_inputs.open_cases import OPEN
from tests.wrong_inputs.table import CASES


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("run") / "here")


def _marks(case: Case) -> list[pytest.MarkDecorator]:
    marks = [pytest.mark.slow] if case.is_slow else []
    return [*marks, pytest.mark.xfail(strict=False, reason="open")] if case.name in OPEN else marks


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name, marks=_marks(case)) for case in CASES])
def test_a_wrong_input_is_answered_with_fault_and_fix(case: Case, tmp_path: Path, trained: Path) -> None:
    trial = try_case(case, tmp_path / "here", trained)

    assert not faults_of(case, trial), trial.answer.text[-2000:]


def test_the_table_has_what_users_do() -> None:
    names = [case.name for case in CASES]

    assert len(names) == len(set(names)) >= 102
