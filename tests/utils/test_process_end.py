"""A process in which libraries would crash at its end leaves that out, and ends with the status it would have."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import atexit, sys
from ding_like.utils.process_end import end_process, skip_finalisation
atexit.register(print, "finalised")
{skip}
try:
    print("said", end="")
    {act}
except BaseException as error:
    end_process(error)
    raise
end_process(None)
"""


def run(act: str, skip: str = "skip_finalisation()") -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(act=act, skip=skip)], capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("act", "status"),
    [("pass", 0), ("sys.exit()", 0), ("sys.exit(143)", 143), ("sys.exit('why')", 1), ("raise OSError('why')", 1)],
)
def test_it_ends_with_the_same_status_and_the_same_words(act: str, status: int) -> None:
    ended, said, errors = run(act)

    assert (ended, said) == (status, "said")
    assert ("why" in errors) == ("why" in act)


def test_other_processes_end_as_ever() -> None:
    assert run("sys.exit(3)", skip="") == (3, "saidfinalised\n", "")
