"""Commands run as children: a few at a time, their output in files, and none is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from ding_like.report.experiment import last_lines
from ding_like.study.child_runs import ChildRuns, Ended, command_line
from tests.support import wait_until

ROOT = Path(__file__).parents[2]


# A config file that waits, for a run that does not end by itself.
def all_of(children: ChildRuns) -> dict[str, Ended]:
    found: dict[str, Ended] = {}

    def look() -> bool:
        found.update((each.name, each) for each in children.wait(1.0))
        return children.is_over

    wait_until(look, "the end of the children")
    return found


def begun(log: Path) -> None:
    wait_until(lambda: "begun" in "\n".join(last_lines(log, 100)), f"'begun' in {log}")


ENDLESS = """
import sys, threading
print("begun", flush=True)
threading.Event().wait(60)
"""


@pytest.mark.timeout(120)
def test_commands_run_with_their_output_in_files(tmp_path: Path) -> None:
    with ChildRuns(2) as children:
        children.start("good", lambda: ["--version"], log=tmp_path / "log/good.txt")
        children.start("bad", lambda: ["-q", "polisy"], log=tmp_path / "log/bad.txt")
        ended = all_of(children)

    assert ended["good"].status == 0 and ended["bad"].status == 1
    assert ended["bad"].how == "ended with status 1" and not ended["bad"].was_asked
    assert last_lines(tmp_path / "log/good.txt", 3)[0].startswith("ding-like")
    assert "no registry 'polisy'" in last_lines(tmp_path / "log/bad.txt", 1)[0]


@pytest.mark.timeout(120)
def test_no_more_than_the_limit_run_and_arguments_are_made_when_one_starts(tmp_path: Path) -> None:
    made: list[str] = []

    def arguments(name: str) -> Callable[[], list[str]]:
        def make() -> list[str]:
            made.append(name)
            return ["--version"]

        return make

    with ChildRuns(1) as children:
        for name in ("a", "b"):
            children.start(name, arguments(name), log=tmp_path / name)
        assert made == ["a"]
        all_of(children)

    assert made == ["a", "b"]


@pytest.mark.timeout(120)
def test_one_that_is_stopped_leaves_and_one_that_waits_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS)
    run = partial(list, ["-m", "serial", "-c", str(tmp_path / "endless.py")])
    with ChildRuns(1) as children:
        children.start("first", run, log=tmp_path / "first.txt")
        children.start("second", run, log=tmp_path / "second.txt")
        begun(tmp_path / "first.txt")
        children.stop("second")
        children.stop("first")
        ended = all_of(children)

    assert list(ended) == ["first"] and ended["first"].was_asked
    assert not (tmp_path / "second.txt").exists()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_blocks_end_ends_those_that_are_left(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS)
    with ChildRuns(1, grace_s=20.0) as children:
        children.start("run", lambda: ["-m", "serial", "-c", str(tmp_path / "endless.py")], log=tmp_path / "log.txt")
        begun(tmp_path / "log.txt")
        pid = children.pid("run")

    assert not Path(f"/proc/{pid}").exists() and children.is_over


PARENT = """
import sys
from pathlib import Path
from ding_like.study.child_runs import ChildRuns
with ChildRuns(1) as children:
    children.start("run", lambda: ["-m", "serial", "-c", sys.argv[1]], log=Path(sys.argv[2]))
    print(children.pid("run"), flush=True)
    children.wait(60)
"""


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_children_of_a_killed_parent_leave(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS)
    log = tmp_path / "log.txt"
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "endless.py"), str(log)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        begun(log)
        parent.send_signal(signal.SIGKILL)

    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the end of the child")


def test_last_lines_are_the_last_that_are_not_empty(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a\n\nb  \n   \nc\n\n")

    assert last_lines(tmp_path / "log", 2) == ["b", "c"] and last_lines(tmp_path / "nothing", 2) == []


def test_a_command_line_is_quoted_for_the_shell() -> None:
    assert command_line(["-c", "my config.py"]) == "ding -c 'my config.py'"
