"""A process that is killed leaves a line on standard error."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from ding_like.utils.last_words import last_words
with last_words("it was killed"):
    if sys.argv[1] == "exit":
        os._exit(1)
    if sys.argv[1] == "raise":
        raise SystemExit("an error of its own")
"""


@pytest.mark.parametrize(
    ("end", "said"), [("exit", "it was killed\n"), ("raise", "an error of its own\n"), ("return", "")]
)
def test_only_a_process_that_ends_without_a_word_leaves_the_line(end: str, said: str) -> None:
    # The line comes after that process has ended: standard error ends when both have.
    run = subprocess.run([sys.executable, "-c", PROGRAM, end], capture_output=True, text=True, timeout=60, check=False)

    assert run.stderr == said
