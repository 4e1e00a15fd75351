"""A row of `ding -m seed` passes 17 files at most from the env's step to the optimizer's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chains.hands import hands_of, record_hands
from tests.chains.seed_hands import FOLDER, MOMENTS
from tests.chains.test_seed_chain import ding

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")
LOOPS = ["pipeline/training_loop.py:_loop", "comm/zmq/rows.py:_run"]


def test_a_row_passes_17_files_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))

    with record_hands(tmp_path, loops=LOOPS, moments=MOMENTS):
        status = ding(
            "--env-step", "600", "--exp-name", "exp", "system.seed.actor.type=tests.chains.seed_hands:RecordedActor",
            "system.seed.comm=sync",
        )  # fmt: skip

    hands = hands_of(tmp_path)
    assert status == 0 and len(hands) <= 17, "\n".join(hands)
