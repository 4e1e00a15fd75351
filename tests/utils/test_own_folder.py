"""Folders of processes that were killed are swept; those of any other process stay."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ding_like.utils import own_folder
from ding_like.utils.own_folder import make_own_folder, start_of, sweep

MAKE = "import sys; from ding_like.utils.own_folder import *; print(make_own_folder('ding-t-', where=sys.argv[1]))"


def left_by_another(where: Path) -> Path:
    """Return a folder of a process that has ended without deleting it."""
    made = subprocess.run([sys.executable, "-c", MAKE, str(where)], capture_output=True, text=True, check=True)
    return Path(made.stdout.strip())


def test_what_a_dead_process_left_is_deleted_at_the_next_start(tmp_path: Path) -> None:
    left = left_by_another(tmp_path)
    (left / "data").mkdir()
    (left / "data" / "rows").write_bytes(b"x")

    own = make_own_folder("ding-t-", where=tmp_path)

    assert not left.exists() and list(tmp_path.iterdir()) == [own]
    assert own.stat().st_mode & 0o777 == 0o700


def test_folders_of_the_living_stay(tmp_path: Path) -> None:
    script = f"{MAKE}; sys.stdout.flush(); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = Path(other.stdout.readline().strip())
        own = make_own_folder("ding-t-", where=tmp_path)

        make_own_folder("ding-t-", where=tmp_path)

        assert theirs.is_dir() and own.is_dir()
        other.communicate("")
    assert sweep("ding-t-", tmp_path) == [theirs]


def test_another_process_with_the_same_id_is_another(tmp_path: Path) -> None:
    name = f"ding-t-{own_folder.machine_mark()}-{os.getpid():x}-{start_of(os.getpid()) - 1:x}-abc"
    (tmp_path / name).mkdir()

    assert [path.name for path in sweep("ding-t-", tmp_path)] == [name]


def test_what_may_be_somebody_elses_stays(tmp_path: Path) -> None:
    mine = own_folder.machine_mark()
    # Of another machine, without a start, not made by this function, and of another prefix; and a link.
    names = ["01234567-1-5-abc", f"{mine}-1-0-abc", "notes", f"more-{mine}-1-5-abc"]
    for name in names:
        (tmp_path / f"ding-t-{name}").mkdir()
    (tmp_path / f"ding-t-{mine}-1-5-abc").symlink_to(tmp_path)

    assert sweep("ding-t-", tmp_path) == [] and len(list(tmp_path.iterdir())) == 5
