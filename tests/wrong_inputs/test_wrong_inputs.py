"""Every wrong input of the table is answered with one message that names fault and fix, and the fix works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.wrong_inputs.run import faults_of
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
    faults = []
    for number, case in enumerate(SECTIONS[section]):
        trial = typist.try_case(case, tmp_path / str(number), with_fix=False)
        faults += [f"{case.name}: {fault}\n{trial.answer.text[-2000:]}" for fault in faults_of(case, trial)]

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


def test_every_case_has_a_name_of_its_own() -> None:
    assert len({case.name for case in CASES}) == len(CASES) > 250
