"""Save what the coordinator must not forget, in SQLite: a change is on file before it is answered."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ding_like.errors import CheckpointError

_FORMAT = 1
# One table: a row is (kind, key, JSON). Kinds: run, task, segment, policy, worker, evaluation.
_SCHEMA = "CREATE TABLE IF NOT EXISTS item (kind TEXT, key TEXT, value TEXT, PRIMARY KEY (kind, key)) WITHOUT ROWID"


class StateStore:
    """Keep items by kind and key; changes made in one `transaction` are saved together or not at all.

    `durable` waits for the disk at every transaction, so that it survives a power cut and not only the process's death.
    One thread at a time may use it.
    """

    def __init__(self, path: str | Path, *, durable: bool = False) -> None:
        self._path = path
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._db.execute(_SCHEMA)
            self._check_format()
        except sqlite3.Error as error:
            raise CheckpointError(f"{path} cannot be used as the coordinator's state: {error}.") from error

    def _check_format(self) -> None:
        (found,) = self._db.execute("PRAGMA user_version").fetchone()
        if found not in (0, _FORMAT):
            raise CheckpointError(f"{self._path} has format {found}, this version reads {_FORMAT}.")
        self._db.execute(f"PRAGMA user_version={_FORMAT}")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Save all changes of the block together; an error in it saves none."""
        self._db.execute("BEGIN")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def put(self, kind: str, key: str, value: dict[str, Any]) -> None:
        """Save an item, in place of an older one."""
        self._db.execute("INSERT OR REPLACE INTO item VALUES (?, ?, ?)", (kind, key, json.dumps(value)))

    def delete(self, kind: str, key: str) -> None:
        """Forget an item."""
        self._db.execute("DELETE FROM item WHERE kind = ? AND key = ?", (kind, key))

    def items(self, kind: str) -> list[tuple[str, dict[str, Any]]]:
        """Return (key, value) of all items of a kind, by key."""
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
            self._db.execute("DELETE FROM item")
            for kind, items in state["items"].items():
                for key, value in items.items():
                    self.put(kind, key, value)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._db.close()
