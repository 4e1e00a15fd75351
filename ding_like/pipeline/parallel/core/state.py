"""State file of the coordinator, in SQLite: a change is on file before it is answered."""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ding_like.errors import CheckpointError
from ding_like.utils.files import atomic_write


class StartMark:
    """File `{state file}.start.json`: which run was started there last, how many times, and how it ended.

    Its fields are `run_id`, `epoch`, the number of starts, and `is_clean`: the state file was closed in order, and no
    write-ahead log is left.
    """

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
        run_id, epoch, is_clean = mark
        if not self._state_file.exists():
            raise self._lost(f"{self._state_file} is gone, but run {run_id} was started there {_times(epoch)}")
        if not is_clean and not self._log.exists():
            raise self._lost(
                f"{self._log} is gone: run {run_id} did not end in order, and what was saved last was in this file"
            )

    def check_saved(self, run_id: str | None, epoch: int) -> None:
        """Raise CheckpointError if the state file holds another run than was started last, or an older state of it."""
        mark = self._read()
        if mark is None or (run_id == mark[0] and epoch >= mark[1]):
            return
        found = "holds no run" if run_id is None else f"holds run {run_id}, started {epoch} times"
        raise self._lost(f"{self._state_file} {found}, but run {mark[0]} was started there {_times(mark[1])}")

    def write(self, run_id: str, epoch: int, *, is_clean: bool) -> None:
        """Note a start, or the end of one in order."""
        with atomic_write(self.path, durable=self._durable) as file:
            file.write(json.dumps({"run_id": run_id, "epoch": epoch, "is_clean": is_clean}).encode())

    def end_in_order(self) -> None:
        """Note that the state file was closed in order; where that cannot be written, check nothing next time."""
        try:
            if (mark := self._read()) is not None and not mark[2]:
                self.write(*mark[:2], is_clean=True)
        except (OSError, CheckpointError):
            self.forget()  # deleting needs no room

    def forget(self) -> None:
        """Check nothing at the next start."""
        self.path.unlink(missing_ok=True)

    def _read(self) -> tuple[str, int, bool] | None:
        try:
            found: Any = json.loads(self.path.read_bytes())
            return str(found["run_id"]), int(found["epoch"]), bool(found["is_clean"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{self.path} cannot be read ({error}). Delete it to start without it.") from error

    def _lost(self, what: str) -> CheckpointError:
        return CheckpointError(
            f"{what}. Put the files back as they were; or, to go on with what is there and lose the rest, delete "
            f"{self.path} and start again."
        )


def _times(epoch: int) -> str:
    return "once" if epoch == 1 else f"{epoch} times"


logger = logging.getLogger(__name__)

_FORMAT = 1
# One table: a row is (kind, key, JSON). Kinds: run, task, segment, stream, policy, worker, secret, answer.
_SCHEMA = "CREATE TABLE IF NOT EXISTS item (kind TEXT, key TEXT, value TEXT, PRIMARY KEY (kind, key)) WITHOUT ROWID"
_FIRST_WAIT_S, _MAX_WAIT_S = 0.05, 1.0  # between two tries to write
_WORD_S = 60.0  # between two words about it
_BUSY_MS = 500  # that SQLite itself waits for a lock, before this tries again


class StateUnwritableError(CheckpointError):
    """The state file could not be written in time: what is in memory must not be sent to any worker."""


class StateStore:
    """Store of items by kind and key; changes made in one `transaction` are saved together or not at all.

    They are written when the outermost transaction ends. A disk that is full, locked or faulty is tried again for
    `patience_s`; `wait(seconds)` returns True where there is no time left for that. `durable` waits for the disk at
    every transaction, so that it survives a power cut and not only the process's death.

    One thread at a time may use it. Raises CheckpointError for a file that cannot be used, or that is not what was left
    at the end of the last start.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        durable: bool = False,
        patience_s: float = 600.0,
        wait: Callable[[float], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = Path(path)
        self._patience_s = patience_s
        self._wait = wait or threading.Event().wait
        self._clock = clock
        self._depth = 0
        self._pending: dict[tuple[str, str], str | None] = {}  # None: to be deleted
        self._failure: str | None = None  # why nothing is written any more
        self._is_closed = False
        self._mark = StartMark(self._path, durable=durable)
        self._mark.check_files()
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0)
            self._open(durable)
        except sqlite3.Error as error:
            raise CheckpointError(f"{path} cannot be used as the coordinator's state: {error}.") from error

    def _open(self, durable: bool) -> None:
        execute = self._db.execute
        try:
            execute("PRAGMA journal_mode=WAL")
            execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            (found,) = execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise sqlite3.DatabaseError(found)
            execute(_SCHEMA)
            (found,) = execute("PRAGMA user_version").fetchone()
            if found not in (0, _FORMAT):
                raise CheckpointError(f"{self._path} has format {found}, this version reads {_FORMAT}.")
            execute(f"PRAGMA user_version={_FORMAT}")
            execute(f"PRAGMA busy_timeout={_BUSY_MS}")
        except BaseException:
            self._db.close()
            raise

    # --- starts

    def check_start(self, run_id: str | None, epoch: int) -> None:
        """Raise CheckpointError unless this run, started so often, is what was left here; None: no run was found."""
        self._mark.check_saved(run_id, epoch)

    def mark_start(self, run_id: str, epoch: int) -> None:
        """Note a start whose transaction is saved, so that the loss of the file, or of a part, is noticed later."""

        def mark() -> None:
            # What the mark says must be in the file itself, not in the log beside it.
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._mark.write(run_id, epoch, is_clean=False)

        self._try_until_done(mark)

    # --- items

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Save all changes of the block together; an error in it saves none. A block in a block is part of that.

        Raises StateUnwritableError if that cannot be done in time; nothing is saved from then on.
        """
        self._depth += 1
        try:
            yield
        except BaseException:
            if self._depth == 1:
                self._pending.clear()
            raise
        finally:
            self._depth -= 1
        if self._depth == 0 and self._pending:
            self._try_until_done(self._write)
            self._pending.clear()

    def put(self, kind: str, key: str, value: dict[str, Any]) -> None:
        """Save an item, in place of an older one."""
        with self.transaction():
            self._pending[kind, key] = json.dumps(value)

    def delete(self, kind: str, key: str) -> None:
        """Forget an item."""
        with self.transaction():
            self._pending[kind, key] = None

    def items(self, kind: str) -> list[tuple[str, dict[str, Any]]]:
        """Return (key, value) of all saved items of a kind, by key."""
        rows = self._db.execute("SELECT key, value FROM item WHERE kind = ? ORDER BY key", (kind,))
        return [(key, json.loads(value)) for key, value in rows]

    def dump(self) -> dict[str, Any]:
        """Return all items by kind and key."""
        items: dict[str, dict[str, Any]] = {}
        for kind, key, value in self._db.execute("SELECT kind, key, value FROM item ORDER BY kind, key"):
            items.setdefault(kind, {})[key] = json.loads(value)
        return {"format": _FORMAT, "items": items}

    def load(self, state: Mapping[str, Any]) -> None:
        """Hold what `dump` returned, and nothing else. Raises CheckpointError for another format."""
        if state.get("format") != _FORMAT:
            raise CheckpointError(f"the state has format {state.get('format')!r}, this version reads {_FORMAT}.")
        with self.transaction():
            for kind, items in self.dump()["items"].items():
                for key in items:
                    self.delete(kind, key)
            for kind, items in state["items"].items():
                for key, value in items.items():
                    self.put(kind, key, value)
        self._mark.forget()  # it belongs to the run that was here before

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._failure = self._failure or f"{self._path} is closed"
        try:
            busy, *_ = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if not busy:  # the log may go, with this process or without
                self._mark.end_in_order()
        except sqlite3.Error as error:
            logger.warning("%s keeps its log: %s", self._path, error)
        self._db.close()
        if not self._path.with_name(f"{self._path.name}-wal").exists():
            self._mark.end_in_order()

    # --- writing

    def _write(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for (kind, key), value in self._pending.items():
                if value is None:
                    self._db.execute("DELETE FROM item WHERE kind = ? AND key = ?", (kind, key))
                else:
                    self._db.execute("INSERT OR REPLACE INTO item VALUES (?, ?, ?)", (kind, key, value))
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # some faults have rolled back already
                self._db.execute("ROLLBACK")
            raise

    def _try_until_done(self, act: Callable[[], None]) -> None:
        """Do what writes to the disk, again and again while its fault may pass."""
        if self._failure is not None:
            raise StateUnwritableError(self._failure)
        started_s, wait_s, said_s = self._clock(), _FIRST_WAIT_S, None
        while True:
            try:
                act()
            except (sqlite3.Error, OSError) as error:
                now = self._clock()
                may_pass = isinstance(error, (sqlite3.OperationalError, OSError))
                if not may_pass or now - started_s >= self._patience_s or self._wait(wait_s):
                    raise self._give_up(error, now - started_s) from error
                if said_s is None or now - said_s >= _WORD_S:
                    said_s = now
                    logger.warning("%s cannot be written (%s): nothing is answered until it can", self._path, error)
                wait_s = min(2 * wait_s, _MAX_WAIT_S)
            else:
                if said_s is not None:
                    logger.warning("%s is written again, after %.1f s", self._path, self._clock() - started_s)
                return

    def _give_up(self, error: Exception, after_s: float) -> StateUnwritableError:
        self._failure = (
            f"{self._path} could not be written for {after_s:.0f} s: {error}. Make room or fix the disk, then start "
            "the coordinator again in the same folder (policy.learn.resume_training=True): it goes on from what was "
            "written, and workers that still wait go on with it."
        )
        return StateUnwritableError(self._failure)
