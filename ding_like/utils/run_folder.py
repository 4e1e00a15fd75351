"""Make the folder of a run, hold it while the run lasts, and take it away again if the run never began."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from types import TracebackType

from ding_like.errors import ConfigError
from ding_like.utils.folder_lock import LOCK_FILE, FolderLock

# What a start writes before its first turn, beside the logs of its own process.
_OF_A_START = {
    LOCK_FILE,
    "total_config.py",
    "formatted_total_config.py",
    "config_diff.txt",
    "parallel_config.py",
    "run_arguments.json",
    "agent.json",
    "keys.json",
}
_STATE = "coordinator.sqlite"  # and what stands beside it
_NAMED_LOGS = ("learners", "ray", "seed")  # to which messages point
_TRACEBACK = b"Traceback (most recent call last)"


class RunFolder:
    """Hold the folder of one run for this process while the block lasts.

    If the block ends by an error before `keep` was called, a folder that `claim` has made is deleted again, unless
    there is more in it than a start writes. Without a claim nothing is held. `check` is given the name of a claimed
    folder before anything is written there, and raises if it cannot be the run's.
    """

    def __init__(self, check: Callable[[str], None] | None = None) -> None:
        self._check = check
        self._lock: FolderLock | None = None
        self._made: list[Path] = []  # by this start, the innermost first

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._take_away()
        self.close()

    @property
    def lock(self) -> FolderLock:
        """Return the lock of the folder that is held."""
        assert self._lock is not None, "a folder is claimed or held first"
        return self._lock

    def hold(self, name: str | os.PathLike[str]) -> None:
        """Hold a folder that is there. Raises ConfigError while another process does."""
        self.close()
        self._lock = FolderLock(name)

    def claim(self, name: str, *, is_fresh: bool) -> str:
        """Hold the folder `name`, made where it is missing, and return its name.

        One that is to be `fresh` gets another name, with the date, if it is there already: two runs that start together
        never get the same. Raises ConfigError if it cannot be made, or is held by another process.
        """
        if not is_fresh:
            self._note_missing(name)
            make_folder(name, exist_ok=True)
            self.hold(name)
            if self._check is not None:
                self._check(name)
            return name
        for folder in fresh_names(name):
            self._note_missing(folder)
            if make_folder(folder):
                self.hold(folder)
                return folder
        raise AssertionError("there is always another name")

    def keep(self) -> None:
        """Leave the folder where it is, also if the run fails: it has begun."""
        self._made = []

    def close(self) -> None:
        """Let the folder go; a second call does nothing."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()

    def _note_missing(self, name: str) -> None:
        path = Path(name)
        self._made = [each for each in (path, *path.parents) if not each.exists()]

    def _take_away(self) -> None:
        """Delete what this start has made, while it is held: nobody else has begun in it."""
        if self._lock is None or not self._made or not _is_of_a_start(self._made[0]):
            return
        shutil.rmtree(self._made[0], ignore_errors=True)
        for parent in self._made[1:]:
            try:
                parent.rmdir()
            except OSError:  # another run has a folder there
                break


def _is_of_a_start(folder: Path) -> bool:
    """Tell whether a folder holds nothing but what a start writes, and no logs to look into."""
    for path in folder.rglob("*"):
        inner = path.relative_to(folder)
        if path.is_dir() or not path.lstat().st_size:
            continue
        if inner.parts[0] == "log" and inner.parts[1] not in _NAMED_LOGS and _TRACEBACK not in path.read_bytes():
            continue
        if not (inner.name in _OF_A_START or inner.name.startswith(_STATE)):
            return False
    return True


def fresh_names(name: str) -> Iterator[str]:
    """Yield `name`, then names that tell the run from others of the same name: with the date, and numbered."""
    dated = f"{name}_{datetime.now():%y%m%d_%H%M%S}"
    return itertools.chain([name, dated], (f"{dated}_{count}" for count in itertools.count(1)))


def make_folder(folder: str, *, exist_ok: bool = False) -> bool:
    """Make a folder and return whether it was new. Raises ConfigError if it cannot be made."""
    try:
        os.makedirs(folder, exist_ok=exist_ok)
    except OSError as error:
        if isinstance(error, FileExistsError) and not exist_ok:
            return False
        raise ConfigError(
            f"cannot make the experiment folder '{folder}': {error.strerror}; give a folder where you may write, with "
            "--exp-name"
        ) from error
    return True
