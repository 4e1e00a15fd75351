from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ding_like.worker.replay_buffer import used_data
from ding_like.worker.replay_buffer.used_data import UsedDataRemover

logger = logging.getLogger(__name__)


def write(folder: Path, num: int) -> list[str]:
    paths = [folder / str(i) for i in range(num)]
    for path in paths:
        path.write_text("data")
    return [str(path) for path in paths]


def test_close_waits_for_every_deletion(tmp_path: Path) -> None:
    remover = UsedDataRemover(10, logger)
    remover.start()
    remover.add(write(tmp_path, 200))

    remover.close()

    assert len(list(tmp_path.iterdir())) == 10


def test_a_full_queue_makes_the_pusher_delete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(used_data, "_MAX_WAITING", 2)
    remover = UsedDataRemover(1, logger)
    remover.start()

    remover.add(write(tmp_path, 100))
    remover.close()

    assert len(list(tmp_path.iterdir())) == 1


def test_a_file_that_is_gone_already_is_no_fault(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    remover = UsedDataRemover(10, logger)
    remover.add([str(tmp_path / "gone")])

    remover.clear()

    assert not caplog.records


def test_a_file_that_cannot_be_deleted_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    remover = UsedDataRemover(10, logger)
    remover.add([str(tmp_path)])

    remover.clear()

    assert str(tmp_path) in caplog.text


def test_start_and_close_may_be_called_twice(tmp_path: Path) -> None:
    remover = UsedDataRemover(1, logger)

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        remover.start()
        remover.start()
        remover.add(write(tmp_path / name, 3))
        remover.close()
        remover.close()

    assert [path.name for path in tmp_path.glob("*/*")] == ["2"]
