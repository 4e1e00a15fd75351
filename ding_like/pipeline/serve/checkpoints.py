"""Say which checkpoint of a run is to be served now: its best, its newest, or one file."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ding_like.errors import CheckpointError, ConfigError
from ding_like.pipeline.roles.record import BEST_CHECKPOINT
from ding_like.utils.checkpoint import load_state

_ITERATION = re.compile(r"iteration_(\d{1,15})\.pth\.tar")
_UNREADABLE = 10**15  # more than any name says


class Mark(NamedTuple):
    """Tell a file from what stood under its name before; files are replaced, not written over."""

    inode: int
    mtime_ns: int
    nbytes: int

    @classmethod
    def of(cls, path: Path) -> Mark | None:
        """Return that of a file, None where there is none."""
        try:
            found = path.stat()
        except OSError:
            return None
        return cls(found.st_ino, found.st_mtime_ns, found.st_size)


class Candidate(NamedTuple):
    """Hold a file that is to be served; it is another one once its mark has changed."""

    path: Path
    mark: Mark


class CheckpointChoice(ABC):
    """Look for checkpoints of a run."""

    @classmethod
    def of(cls, exp_name: str | Path, which: str) -> CheckpointChoice:
        """Return the choice of 'best', 'newest' or a file's path, in an experiment's folder.

        Raises CheckpointError where there is none yet.
        """
        folder = Path(exp_name)
        if which == "newest":
            newest: CheckpointChoice = Newest(folder / "ckpt")
            if next(newest.better(None), None) is None:
                raise CheckpointError(f"there is no checkpoint in '{folder / 'ckpt'}': this run has saved none yet.")
            return newest
        path = folder / BEST_CHECKPOINT if which == "best" else Path(which)
        if path.is_file():
            return OneFile(path)
        if which == "best":
            raise CheckpointError(
                f"there is no {path}: this run has not been evaluated yet. --checkpoint newest takes what there is."
            )
        raise CheckpointError(f"there is no checkpoint '{which}'; --checkpoint takes best, newest or a file's path.")

    @abstractmethod
    def better(self, served: tuple[Candidate, int | None] | None) -> Iterator[Candidate]:
        """Yield what is to be served in place of (a candidate, its updates), the best first; None: of nothing."""

    @abstractmethod
    def why_gone(self) -> str | None:
        """Say that what is served is not there any more, None if it is."""


class OneFile(CheckpointChoice):
    """Serve what stands under one name, whatever is put there."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def better(self, served: tuple[Candidate, int | None] | None) -> Iterator[Candidate]:
        mark = Mark.of(self._path)
        if mark is not None and (served is None or served[0].mark != mark):
            yield Candidate(self._path, mark)

    def why_gone(self) -> str | None:
        return None if self._path.is_file() else f"{self._path} is not there any more"


class Newest(CheckpointChoice):
    """Serve the checkpoint that has had most updates, and never one that has had fewer than the last."""

    def __init__(self, folder: Path) -> None:
        if not folder.parent.is_dir():
            raise ConfigError(f"there is no folder '{folder.parent}'.")
        self._folder = folder
        self._updates: dict[Path, tuple[Mark, int | None]] = {}  # of files whose name does not say

    def better(self, served: tuple[Candidate, int | None] | None) -> Iterator[Candidate]:
        last = -1 if served is None or served[1] is None else served[1]
        found = []
        for path in self._folder.glob("*.pth.tar"):
            mark = Mark.of(path)
            if mark is None or (served is not None and served[0] == Candidate(path, mark)):
                continue
            updates = self._updates_of(path, mark)
            if updates is None:
                continue
            is_again = served is not None and updates == last and served[0].path == path
            if updates > last or is_again:
                found.append((updates, mark.mtime_ns, Candidate(path, mark)))
        for _, _, candidate in sorted(found, reverse=True):
            yield candidate

    def _updates_of(self, path: Path, mark: Mark) -> int | None:
        """Return how many updates a file has had, None for one that does not say.

        One that cannot be read comes before all others, so that its fault is told.
        """
        named = _ITERATION.fullmatch(path.name)
        if named is not None:
            return int(named[1])
        known = self._updates.get(path)
        if known is None or known[0] != mark:
            try:
                said = load_state(path).get("last_iter")
                known = mark, None if said is None else int(said)
            except CheckpointError:
                known = mark, _UNREADABLE
            self._updates[path] = known
        return known[1]

    def why_gone(self) -> str | None:
        return None if self._folder.is_dir() else f"{self._folder} is not there any more"
