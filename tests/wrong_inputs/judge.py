"""Try a wrong input and its fix, and say what is not as it should be."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import NamedTuple

from tests.wrong_inputs.cases import MY_CONFIG, SERIAL, Case
from tests.wrong_inputs.run import Answer, answer_of, mend, prepare, write_files

_MESSAGE = re.compile(r"^(?:\w+Error|Error): ", re.MULTILINE)


class Trial(NamedTuple):
    """Answers to a wrong input and to its fix."""

    answer: Answer
    left: list[str]  # files and folders that the wrong input made
    fixed: Answer | None  # None: the fix was not tried


def train(folder: Path) -> Path:
    """Return the folder of a short run, my_exp."""
    folder.mkdir()
    write_files(folder, {"my_config.py": MY_CONFIG})
    answer = answer_of(SERIAL, folder)
    assert answer.status == 0, answer.text
    return folder / "my_exp"


def try_case(case: Case, folder: Path, trained: Path, *, with_fix: bool) -> Trial:
    """Type the wrong input in a new folder, then the fix; `trained` is the folder of a run."""
    folder.mkdir()
    if case.needs_run:
        shutil.copytree(trained, folder / "my_exp")
    prepare(folder, case)
    before = _names(folder)
    answer = answer_of(case.typed, folder, missing=case.missing)
    left = sorted(_names(folder) - before)
    if case.fix_installs or not with_fix:
        return Trial(answer, left, None)
    mend(folder, case)
    return Trial(answer, left, answer_of(case.fix, folder))


def faults_of(case: Case, trial: Trial) -> list[str]:
    """Say what is wrong with an answer: empty if fault and fix are named, and the fix works."""
    answer, fixed = trial.answer, trial.fixed
    is_check = case.typed.startswith("ding check-env")  # which prints findings in place of an error
    faults = [f"exit status {answer.status}, expected {case.status}"] if answer.status != case.status else []
    if "Traceback (most recent call last)" in answer.text:
        faults.append("a bare traceback")
    if (count := len(_MESSAGE.findall(answer.error))) != 1 and not (is_check and not answer.error):
        faults.append(f"{count} messages of an error, expected one")
    faults += [f"not in the answer: {words!r}" for words in case.says if words not in answer.text]
    if trial.left:
        faults.append(f"left behind: {', '.join(trial.left)}")
    if fixed is not None and (fixed.status != 0 or case.shows not in fixed.text):
        faults.append(f"the fix is answered with status {fixed.status}: {fixed.text[-600:]}")
    return faults


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"__pycache__"}
