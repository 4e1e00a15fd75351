"""Choose the checkpoint of a run to act by: its best, its newest, or one file."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ding_like.errors import CheckpointError, ConfigError
from ding_like.pipeline.record import BEST_CHECKPOINT
from ding_like.utils.checkpoint import load_state

_ITERATION = re.compile(r"iteration_(\d{1,15})\.pth\.tar")
_UNREADABLE = 10**15  # more updates than any file name can give


class FileStamp(NamedTuple):
    """Identify the content of a file: it changes when the file is replaced."""

    inode: int
    mtime_ns: int
    nbytes: int

    @classmethod
    def of(cls, path: Path) -> FileStamp | None:
        """Return the stamp of a file, None if it is missing."""
        try:
            found = path.stat()
        except OSError:
            return None
        return cls(found.st_ino, found.st_mtime_ns, found.st_size)


class Candidate(NamedTuple):
    """Hold a file that may be served; with another stamp it is another candidate."""

    path: Path
    stamp: FileStamp


def last_checkpoint(folder: Path) -> Path:
    """Return the checkpoint of a run's folder with the most updates. Raises CheckpointError if there is none."""
    newest = next(Newest(folder / "ckpt").better(None), None)
    if newest is None:
        raise CheckpointError(f"there is no checkpoint in '{folder / 'ckpt'}': this run has saved none yet.")
    return newest.path


def no_best(folder: Path, newest: str) -> str:
    """Return why a run's folder has no best checkpoint; `newest` is the argument that takes the newest."""
    if not any((folder / "ckpt").glob("*.pth.tar")) and (folder / "result.json").is_file():
        return f"there is no checkpoint in '{folder / 'ckpt'}': its files were moved or deleted; put one back."
    return f"there is no {folder / BEST_CHECKPOINT}: this run has not been evaluated yet. {newest} takes what there is."


class CheckpointChoice(ABC):
    """Find the checkpoints of a run that should replace the one served."""

    @classmethod
    def of(cls, exp_name: str | Path, which: str) -> CheckpointChoice:
        """Return the choice of 'best', 'newest' or a file's path, in an experiment's folder.

        Raises CheckpointError if the run has saved none yet.
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
            raise CheckpointError(no_best(folder, "--checkpoint newest"))
        raise CheckpointError(f"there is no checkpoint '{which}'; --checkpoint takes best, newest or a file's path.")

    @abstractmethod
    def better(self, served: tuple[Candidate, int | None] | None) -> Iterator[Candidate]:
        """Yield the candidates that should replace the one served, the best first.

        `served` is that candidate with the number of its updates; None at the start.
        """

    @abstractmethod
    def why_gone(self) -> str | None:
        """Return a message if the file or folder served was deleted, None if it exists."""


class OneFile(CheckpointChoice):
    """Serve one file, and what replaces it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def better(self, served: tuple[Candidate, int | None] | None) -> Iterator[Candidate]:
        stamp = FileStamp.of(self._path)
        if stamp is not None and (served is None or served[0].stamp != stamp):
            yield Candidate(self._path, stamp)

    def why_gone(self) -> str | None:
        return None if self._path.is_file() else f"{self._path} was deleted"


class Newest(CheckpointChoice):
    """Serve the checkpoint with the most updates, and never one with fewer than the last."""

    def __init__(self, folder: Path) -> None:
        if not folder.parent.is_dir():
            raise ConfigError(f"there is no folder '{folder.parent}': give the exp_name of a run.")
        self._folder = folder
        self._updates: dict[Path, tuple[FileStamp, int | None]] = {}  # of files whose names do not contain it

    def better(self, served: tuple[Candidate, int | None] | None) -> Iterator[Candidate]:
        last = -1 if served is None or served[1] is None else served[1]
        found = []
        for path in self._folder.glob("*.pth.tar"):
            stamp = FileStamp.of(path)
            if stamp is None or (served is not None and served[0] == Candidate(path, stamp)):
                continue
            updates = self._updates_of(path, stamp)
            if updates is None:
                continue
            is_again = served is not None and updates == last and served[0].path == path
            if updates > last or is_again:
                found.append((updates, stamp.mtime_ns, Candidate(path, stamp)))
        for _, _, candidate in sorted(found, reverse=True):
            yield candidate

    def _updates_of(self, path: Path, stamp: FileStamp) -> int | None:
        """Return the number of updates of a checkpoint, None if it does not record one.

        An unreadable file counts as the newest, so that its fault is reported.
        """
        named = _ITERATION.fullmatch(path.name)
        if named is not None:
            return int(named[1])
        known = self._updates.get(path)
        if known is None or known[0] != stamp:
            try:
                said = load_state(path).get("last_iter")
                known = stamp, None if said is None else int(said)
            except CheckpointError:
                known = stamp, _UNREADABLE
            self._updates[path] = known
        return known[1]

    def why_gone(self) -> str | None:
        return None if self._folder.is_dir() else f"{self._folder} was deleted"
