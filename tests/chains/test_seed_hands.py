"""A row of `ding -m seed` passes 17 files at most from the env's step to the optimizer's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chains.hands import hands_of, record_hands
from tests.chains.seed_hands import FOLDER
from tests.chains.test_seed_chain import ding

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")
LOOPS = ("pipeline/training_loop.py:_loop", "comm/zmq/rows.py:_run")
MOMENTS = ("comm/zmq/sockets.py:receive_from", "comm/zmq/rows.py:take")


def test_a_row_passes_17_files_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))

    with record_hands(tmp_path, loops=LOOPS, moments=MOMENTS):
        status = ding(
            *("--env-step", "600", "--exp-name", "exp", "system.seed.comm=sync"),
            "system.seed.actor.type=tests.chains.seed_hands:RecordedActor",
        )

    hands = hands_of(tmp_path)
    assert status == 0 and {"comm/zmq/rows.py", "pipeline/seed/actor.py", "policy/rows.py"} <= set(hands)
    assert len(hands) <= 17, "\n".join(hands)
