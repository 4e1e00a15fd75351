"""What a worker did last can be read while it lives and after it was killed."""

from __future__ import annotations

import re
import stat
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

from ding_like.comm.workers.last_action import LastAction, last_action
from tests.fresh_process import start_fresh


def test_the_newest_note_is_read(tmp_path: Path) -> None:
    notes = LastAction(tmp_path, "collector3")
    assert last_action(tmp_path, "collector3") == ""

    notes.note(np.arange(2), np.array([1, 0]))
    first = last_action(tmp_path, "collector3")
    notes.note(np.array([1]), np.array([[0.5, -1.5]], np.float32))
    second = last_action(tmp_path, "collector3")

    assert first == "step 1, actions {env 0: 1, env 1: 0}"
    assert second == "step 2, actions {env 1: [0.5, -1.5]}"
    notes.close()
    notes.note(np.arange(2), np.array([1, 0]))
    notes.close()
    assert last_action(tmp_path, "collector3") == "" and list(tmp_path.iterdir()) == []


def test_a_file_of_notes_is_this_users_alone(tmp_path: Path) -> None:
    notes = LastAction(tmp_path, "collector1")

    assert stat.S_IMODE((tmp_path / "collector1").stat().st_mode) == 0o600
    notes.close()


def test_a_file_of_something_else_says_nothing_or_little(tmp_path: Path) -> None:
    for content in (b"", b"x" * 100, bytes(69664), b"\xff" * 69664):
        (tmp_path / "a").write_bytes(content)
        assert last_action(tmp_path, "a") in ("", "step -1")
    assert last_action(tmp_path / "gone", "a") == ""


def note_for_ever(pipe: Connection, folder: str) -> None:
    notes = LastAction(folder, "collector7")
    step = 0
    while True:
        step += 1
        notes.note(np.arange(3), np.array([step, step, step]))
        if step == 1000:
            pipe.send("under way")


@pytest.mark.slow
def test_a_note_outlives_a_kill(tmp_path: Path) -> None:
    with ExitStack() as stack:
        worker = start_fresh(stack, note_for_ever, str(tmp_path))
        assert worker.hear() == "under way"
        worker.kill()

        said = last_action(tmp_path, "collector7")

    noted = re.fullmatch(r"step ([\d,]+), actions {env 0: (\d+), env 1: (\d+), env 2: (\d+)}", said)
    assert noted is not None
    step, *actions = (int(each.replace(",", "")) for each in noted.groups())
    assert step >= 1000 and all(0 <= action - step <= 1 for action in actions)
