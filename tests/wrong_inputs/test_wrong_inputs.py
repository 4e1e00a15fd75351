"""Every wrong input of the table is answered with one message that names fault and fix, and the fix works."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.wrong_inputs.judge import faults_of
from tests.wrong_inputs.page import PAGE, entry, normal
from tests.wrong_inputs.table import CASES, SECTIONS
from tests.wrong_inputs.typist import Typist


@pytest.fixture(scope="module")
def typist(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Typist]:
    made = Typist(tmp_path_factory.mktemp("run"))
    yield made
    made.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("section", SECTIONS)
def test_wrong_inputs_are_answered_with_fault_and_fix(section: str, tmp_path: Path, typist: Typist) -> None:
    faults, page = [], PAGE.read_text(encoding="utf-8")
    for number, case in enumerate(SECTIONS[section]):
        folder = tmp_path / str(number)
        trial = typist.try_case(case, folder, with_fix=False)
        faults += [f"{case.name}: {fault}\n{trial.answer.text[-2000:]}" for fault in faults_of(case, trial)]
        if not case.varies and normal(trial.answer.error or trial.answer.out, folder) not in page:
            faults.append(f"{case.name}: not as on the page; write it again: python -m tests.wrong_inputs")

    assert not faults, "\n".join(faults)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("section", SECTIONS)
def test_the_fixes_that_the_answers_name_work(section: str, tmp_path: Path, typist: Typist) -> None:
    faults = []
    for number, case in enumerate(SECTIONS[section]):
        trial = typist.try_case(case, tmp_path / str(number), with_fix=True)
        faults += [f"{case.name}: {fault}" for fault in faults_of(case, trial)]

    assert not faults, "\n".join(faults)


def test_the_page_shows_the_cases_of_the_table() -> None:
    names, text = [case.name for case in CASES], PAGE.read_text(encoding="utf-8")
    missing = []
    for case in CASES:
        before, after = entry(case, "ANSWER\n").split("ANSWER\n")
        on_page = text.partition(before)[2].partition("\n### ")[0].partition("\n## ")[0]
        if before not in text or after.strip() not in on_page:
            missing.append(case.name)

    assert len(names) == len(set(names)) > 250
    assert re.findall(r"^### (.+)$", text, re.MULTILINE) == names
    assert not missing, "write the page again: python -m tests.wrong_inputs"
