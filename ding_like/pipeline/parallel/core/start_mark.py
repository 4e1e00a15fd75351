"""Note each start beside the state file, so that a state file that is gone, or older than it was, is noticed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from ding_like.errors import CheckpointError
from ding_like.utils.files import atomic_write


class _Mark(NamedTuple):
    run_id: str
    epoch: int
    is_clean: bool  # the state file was closed in order: no write-ahead log is left


class StartMark:
    """Hold `{state file}.start.json`: which run was started there last, for how many times, and how it ended."""

    def __init__(self, state_file: Path, *, durable: bool = False) -> None:
        self._state_file = state_file
        self._durable = durable
        self._log = state_file.with_name(f"{state_file.name}-wal")
        self.path = state_file.with_name(f"{state_file.name}.start.json")

    def check_files(self) -> None:
        """Raise CheckpointError if files that must be there after the last start are not."""
        mark = self._read()
        if mark is None:
            return
        if not self._state_file.exists():
            raise self._lost(f"{self._state_file} is gone, but run {mark.run_id} was started there {_times(mark)}")
        if not mark.is_clean and not self._log.exists():
            raise self._lost(
                f"{self._log} is gone: run {mark.run_id} did not end in order, and what was saved last was in this file"
            )

    def check_saved(self, run_id: str | None, epoch: int) -> None:
        """Raise CheckpointError if the state file holds another run than was started last, or an older state of it."""
        mark = self._read()
        if mark is None or (run_id == mark.run_id and epoch >= mark.epoch):
            return
        found = "holds no run" if run_id is None else f"holds run {run_id}, started {epoch} times"
        raise self._lost(f"{self._state_file} {found}, but run {mark.run_id} was started there {_times(mark)}")

    def write(self, run_id: str, epoch: int, *, is_clean: bool) -> None:
        """Note a start, or the end of one in order."""
        with atomic_write(self.path, durable=self._durable) as file:
            file.write(json.dumps(_Mark(run_id, epoch, is_clean)._asdict()).encode())

    def end_in_order(self) -> None:
        """Note that the state file was closed in order; where that cannot be written, check nothing next time."""
        try:
            mark = self._read()
            if mark is not None and not mark.is_clean:
                self.write(mark.run_id, mark.epoch, is_clean=True)
        except (OSError, CheckpointError):
            self.forget()  # deleting needs no room

    def forget(self) -> None:
        """Check nothing at the next start."""
        self.path.unlink(missing_ok=True)

    def _read(self) -> _Mark | None:
        try:
            found: Any = json.loads(self.path.read_bytes())
            return _Mark(str(found["run_id"]), int(found["epoch"]), bool(found["is_clean"]))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{self.path} cannot be read ({error}). Delete it to start without it.") from error

    def _lost(self, what: str) -> CheckpointError:
        return CheckpointError(
            f"{what}. Put the files back as they were; or, to go on with what is there and lose the rest, delete "
            f"{self.path} and start again."
        )


def _times(mark: _Mark) -> str:
    return "once" if mark.epoch == 1 else f"{mark.epoch} times"
