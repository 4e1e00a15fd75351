"""Every wrong input of the table is answered with one message that names fault and fix, and the fix works."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.wrong_inputs.cases import Case
from tests.wrong_inputs.judge import faults_of
from tests.wrong_inputs.open_cases import OPEN
from tests.wrong_inputs.page import PAGE, entry, normal, shown
from tests.wrong_inputs.table import CASES
from tests.wrong_inputs.typist import Typist


@pytest.fixture(scope="module")
def typist(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Typist]:
    made = Typist(tmp_path_factory.mktemp("run"))
    yield made
    made.close()


def _marks(case: Case) -> list[pytest.MarkDecorator]:
    marks = [pytest.mark.slow] if case.is_slow else []
    return [*marks, pytest.mark.xfail(strict=False, reason="open")] if case.name in OPEN else marks


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name, marks=_marks(case)) for case in CASES])
def test_a_wrong_input_is_answered_with_fault_and_fix(case: Case, tmp_path: Path, typist: Typist) -> None:
    trial = typist.try_case(case, tmp_path / "here")

    assert not faults_of(case, trial), trial.answer.text[-2000:]
    if shown(case) and not case.varies:
        answer = normal(trial.answer.error or trial.answer.out, tmp_path / "here")
        assert answer in PAGE.read_text(encoding="utf-8"), "write the page again: python -m tests.wrong_inputs --write"


def test_the_table_has_what_users_do() -> None:
    names = [case.name for case in CASES]

    assert len(names) == len(set(names)) >= 102


@pytest.fixture(scope="module")
def text_of_page() -> str:
    return PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES if shown(case)])
def test_the_page_shows_the_case_as_the_table_has_it(case: Case, text_of_page: str) -> None:
    before, after = entry(case, "ANSWER\n").split("ANSWER\n")
    on_page = text_of_page.partition(before)[2].partition("\n### ")[0].partition("\n## ")[0]

    assert before in text_of_page, "write the page again: python -m tests.wrong_inputs --write"
    assert after.strip() in on_page


def test_the_page_has_no_case_that_the_table_has_not(text_of_page: str) -> None:
    assert re.findall(r"^### (.+)$", text_of_page, re.MULTILINE) == [case.name for case in CASES if shown(case)]
