"""The folder of a run is made and held; a start that failed leaves none."""

from __future__ import annotations

from pathlib import Path

import pytest

from ding_like.errors import ConfigError
from ding_like.utils.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("in_tmp")


def fail(name: str, *files: str, fresh: bool = True, keep: bool = False, content: str = "x") -> None:
    """Claim a folder, write files into it, and fail."""
    with pytest.raises(ZeroDivisionError), RunFolder() as folder:
        made = Path(folder.claim(name, is_fresh=fresh))
        for file in files:
            (made / file).parent.mkdir(parents=True, exist_ok=True)
            (made / file).write_text(content)
        if keep:
            folder.keep()
        raise ZeroDivisionError


def test_a_failed_start_leaves_no_folder():
    fail("a/b/run", "total_config.py", "log/collector/collector_logger.txt", "coordinator.sqlite-wal", "agent.json")

    assert not Path("a").exists()


def test_folders_of_others_stay():
    Path("a").mkdir()
    fail("a/b/run", "total_config.py")

    assert Path("a").is_dir() and not Path("a/b").exists()


@pytest.mark.parametrize("file", ["ckpt/ckpt_best.pth.tar", "notes.txt", "metrics.jsonl", "log/learners/rank1.txt"])
def test_a_folder_with_more_in_it_stays(file):
    fail("run", "total_config.py", file)

    assert Path("run", file).is_file()


def test_a_folder_with_a_workers_traceback_stays():
    fail("run", "log/workers/collector0.txt", content="Traceback (most recent call last):\n  ...")

    assert Path("run/log/workers/collector0.txt").is_file()


def test_a_run_that_has_begun_keeps_its_folder():
    fail("run", "total_config.py", keep=True)

    assert Path("run/total_config.py").is_file()


def test_a_folder_that_was_there_stays():
    Path("run").mkdir()
    fail("run", "total_config.py", fresh=False)

    assert Path("run/total_config.py").is_file()


def test_a_claimed_folder_is_held_until_the_end():
    with RunFolder() as folder:
        folder.claim("run", is_fresh=True)
        with pytest.raises(ConfigError, match="is in use"), RunFolder() as second:
            second.hold("run")
        with RunFolder() as third:
            assert third.claim("run", is_fresh=True) != "run"

    with RunFolder() as after:
        after.hold("run")


def test_a_check_is_asked_before_anything_is_written():
    def refuse(name: str) -> None:
        assert list(Path(name).iterdir()) == [Path(name, ".lock")]
        raise ConfigError("it is another's")

    with pytest.raises(ConfigError, match="another's"), RunFolder(check=refuse) as folder:
        folder.claim("run", is_fresh=False)

    assert not Path("run").exists()
