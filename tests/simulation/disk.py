"""Stand between the package and its disks: full or locked for a while, and a process may die at any write."""

from __future__ import annotations

import builtins
import errno
import os
import sqlite3
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

from tests.simulation.scheduler import KilledError, Process, World

_LOCK_WAIT_S = 5.0  # that SQLite waits for another process's lock


class Disks:
    """Faults of the disks, and of the coordinator at its next commit."""

    def __init__(self, world: World, count: Callable[[str], None]) -> None:
        self.world = world
        self.count = count
        self.state_fault: str | None = None  # of the coordinator's state: 'full' or 'locked'
        self.state_folder: str | None = None  # what lies below is on the disk of the coordinator's state
        self.is_full = False  # where segments and weights lie
        self.kill_at_commit: str | None = None  # 'before' or 'after'
        self.on_killed: Callable[[Process], None] = lambda process: None
        self.on_commit: Callable[[], None] = lambda: None
        self.on_rollback: Callable[[], None] = lambda: None
        self.rng = Random(f"{world.seed}/disks")
        # The last connection that is closed takes the write-ahead log with it, which a process that is killed leaves.
        self.keepers: list[sqlite3.Connection] = []

    # --- files

    def open(self, path: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        """Be `open`; a full disk takes nothing, or half of it."""
        world = self.world
        world.check_alive()
        if not set(mode) & set("wx"):  # what is appended to is there already
            return builtins.open(path, mode, *args, **kwargs)
        self.count("file_write")
        world.sleep(self.rng.uniform(0.0001, 0.002))
        is_state = self.state_folder is not None and os.fspath(path).startswith(self.state_folder)
        if not (self.state_fault == "full" if is_state else self.is_full):
            return builtins.open(path, mode, *args, **kwargs)
        self.count("write_refused")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    # --- SQLite

    def sqlite3(self) -> SimpleNamespace:
        """Return what stands for the module sqlite3."""
        names = [name for name in dir(sqlite3) if not name.startswith("_")]
        return SimpleNamespace(**{**{name: getattr(sqlite3, name) for name in names}, "connect": self.connect})

    def connect(self, path: Any, **kwargs: Any) -> Connection:
        self.world.check_alive()
        self._maybe_fail("connect")
        assert self.world.current is not None
        return Connection(self, path, sqlite3.connect(path, **kwargs), self.world.current.process)

    def close(self) -> None:
        """Close what was kept open."""
        while self.keepers:
            self.keepers.pop().close()

    def _maybe_fail(self, statement: str) -> None:
        if self.state_fault is None:
            return
        fault, self_world = self.state_fault, self.world
        if fault == "locked":
            until_s = self_world.now_s + _LOCK_WAIT_S
            while self.state_fault == "locked" and self_world.now_s < until_s:
                self_world.sleep(min(0.1, until_s - self_world.now_s))
            if self.state_fault != "locked":
                return
        self.count("state_write_refused")
        self.world.note(f"disk: {statement} fails, {fault}")
        text = "database is locked" if fault == "locked" else "database or disk is full"
        raise sqlite3.OperationalError(text)


class Connection:
    """SQLite connection whose writes may fail, and at whose commits the process may die."""

    def __init__(self, disks: Disks, path: Any, real: sqlite3.Connection, process: Process) -> None:
        self._disks = disks
        self._path = path
        self._real = real
        self._process = process
        process.kept.append(self)

    def execute(self, statement: str, *args: Any) -> Any:
        self._check()
        verb = statement.split(None, 1)[0].upper()
        if verb in ("INSERT", "REPLACE", "DELETE", "UPDATE", "CREATE", "COMMIT"):
            self._fail_maybe(verb)
        if verb == "COMMIT":
            return self._commit()
        return self._real.execute(statement, *args)

    def executemany(self, statement: str, *args: Any) -> Any:
        self._check()
        self._fail_maybe(statement.split(None, 1)[0].upper())
        return self._real.executemany(statement, *args)

    def _commit(self) -> Any:
        if self._disks.kill_at_commit == "before":
            self._die()
        done = self._real.execute("COMMIT")
        self._disks.close()
        self._disks.on_commit()
        if self._disks.kill_at_commit == "after":
            self._die()
        return done

    def _die(self) -> None:
        self._disks.kill_at_commit = None
        self._process.is_alive = False
        self._disks.on_killed(self._process)
        raise KilledError

    def _fail_maybe(self, verb: str) -> None:
        try:
            self._disks._maybe_fail(verb)
        except sqlite3.OperationalError:
            # SQLite itself rolls a transaction back at some faults, a full disk among them.
            if self._real.in_transaction and self._disks.rng.random() < 0.5:
                self._real.execute("ROLLBACK")
            raise

    def _check(self) -> None:
        if not self._process.is_alive:
            raise KilledError

    @property
    def in_transaction(self) -> bool:
        return self._real.in_transaction

    def close(self) -> None:
        self._check()
        self._real.close()

    def drop(self) -> None:
        """Do what the system does for a process that has died."""
        keeper = sqlite3.connect(self._path)
        keeper.execute("SELECT count(*) FROM sqlite_master").fetchone()
        self._disks.keepers.append(keeper)
        self._real.close()
        self._disks.on_rollback()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)
