"""Run what was typed in this process, in a folder of its own, and return the answer."""

from __future__ import annotations

import contextlib
import importlib.machinery
import io
import os
import re
import shlex
import shutil
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

from ding_like.entry import training
from ding_like.entry.cli import main
from ding_like.errors import DingError
from ding_like.utils.registries import REGISTRIES
from tests.wrong_inputs.cases import MY_CONFIG, SERIAL, Case

# Of places on sys.path: temporary folders, and what setuptools adds when it is imported.
_OF_TESTS = ("pytest-of-", "setuptools/_vendor")
DEADLINE_S = 60.0  # for one answer: what never ends is a failure and no hang
_BUDGET = ("--env-step", "16")
_TRAINS = ("serial", "serial_onpolicy")


class Answer(NamedTuple):
    """Exit status and output of a command or script."""

    status: int
    out: str
    error: str  # what went to stderr, log lines left out

    @property
    def text(self) -> str:
        """Return all of it."""
        return self.out + self.error


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def prepare(folder: Path, case: Case) -> None:
    """Put the config and the files of the wrong input into a folder."""
    write_files(folder, {"my_config.py": MY_CONFIG + case.config, **case.files})


def mend(folder: Path, case: Case) -> None:
    """Change the files as the fix says."""
    if case.fixed_config is not None:
        write_files(folder, {"my_config.py": MY_CONFIG + case.fixed_config})
    write_files(folder, case.fixed_files)


def answer_of(typed: str, folder: Path, *, missing: Sequence[str] = ()) -> Answer:
    """Return what a command or script answers in a folder, where some packages are not installed."""
    out, err = io.StringIO(), io.StringIO()
    with (
        _in_folder(folder),
        _only_what_is_shipped(),
        _without(missing),
        _deadline(typed),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(training, "write_pictures", lambda *args, **kwargs: None)  # a second each
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = _command(typed) if typed.startswith("ding ") else _script(typed)
    return Answer(status, out.getvalue(), _without_log(err.getvalue()))


def _command(typed: str) -> int:
    words = shlex.split(typed)[1:]
    trains = any(word in _TRAINS for word in words[:2]) and not {"--env-step", "--train-iter"} & set(words)
    try:
        main([*words, *(_BUDGET if trains else ())])
    except SystemExit as stop:
        return int(stop.code or 0)
    except Exception:
        sys.stderr.write(traceback.format_exc())
        return 1
    return 0


def _script(text: str) -> int:
    try:
        exec(compile(text, "my_script.py", "exec"), {"__name__": "__main__"})
    except DingError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    except Exception:
        sys.stderr.write(traceback.format_exc())
        return 1
    return 0


def _without_log(text: str) -> str:
    """Leave out the lines that say how a run goes."""
    found = re.search(r"^(?:Usage: |\w*Error: |Traceback )", text, re.MULTILINE)
    return text if found is None else text[found.start() :]


@contextlib.contextmanager
def _in_folder(folder: Path) -> Iterator[None]:
    """Work in a folder, and forget its modules afterwards: others have modules of the same names."""
    before, path, modules = os.getcwd(), list(sys.path), set(sys.modules)
    os.chdir(folder)
    # Messages list sys.path; the folders that other tests of this process have added are not there for a user.
    sys.path[:] = [str(folder), *(place for place in path if not any(part in place for part in _OF_TESTS))]
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            if _is_below(sys.modules[name], folder):
                del sys.modules[name]


def _is_below(module: Any, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and (not os.path.isabs(file) or Path(file).is_relative_to(folder))


@contextlib.contextmanager
def _only_what_is_shipped() -> Iterator[None]:
    """Hide what other tests, or other wrong inputs, have registered; what is shipped and imported meanwhile stays."""
    before = {registry: dict(registry._classes) for registry in REGISTRIES.values()}
    for registry, classes in before.items():
        for name in [name for name, cls in classes.items() if not _is_shipped(cls)]:
            del registry._classes[name]
    try:
        yield
    finally:
        for registry, classes in before.items():
            now = {name: cls for name, cls in registry._classes.items() if _is_shipped(cls)}
            registry._classes.clear()
            registry._classes.update(now | classes)


def _is_shipped(cls: Any) -> bool:
    return str(cls.__module__).startswith(("ding_like.", "dizoo."))


@contextlib.contextmanager
def _without(packages: Sequence[str]) -> Iterator[None]:
    """Let some packages be not installed."""
    if not packages:
        yield
        return

    def hides(name: str) -> bool:
        return name.partition(".")[0] in packages

    find = importlib.machinery.PathFinder.find_spec
    hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if hides(name)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            importlib.machinery.PathFinder,
            "find_spec",
            classmethod(lambda cls, name, *args, **kwargs: None if hides(name) else find(name, *args, **kwargs)),
        )
        try:
            yield
        finally:
            sys.modules.update(hidden)


@contextlib.contextmanager
def _deadline(typed: str) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"no answer within {DEADLINE_S:g} s: {typed}")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, DEADLINE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


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
