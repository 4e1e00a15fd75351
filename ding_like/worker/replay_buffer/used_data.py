"""Delete the files of data that have left a buffer."""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ding_like.errors import SchemaError

_MAX_WAITING = 1024  # files; beyond them the pusher deletes by itself, so that the queue cannot outgrow the disk
_CLOSE_TIMEOUT_S = 60.0


class UsedDataRemover:
    """Follow which files the rows of a buffer stand for, and delete those of rows that are overwritten or cleared.

    Between `start` and `close` a thread deletes, because a network file system may be slow; otherwise the caller does.
    """

    def __init__(self, capacity: int, logger: logging.Logger) -> None:
        self._capacity = capacity
        self._logger = logger
        self._paths: deque[str] = deque()  # of the rows in the buffer, oldest first
        self._waiting: queue.Queue[str | None] = queue.Queue(_MAX_WAITING)
        self._thread: threading.Thread | None = None

    @staticmethod
    def paths_of(data: Sequence[Any]) -> list[str]:
        """Return the file of each datum. Raises SchemaError for one that is not a dict with a 'data_id'."""
        for item in data:
            if not isinstance(item, Mapping) or "data_id" not in item:
                raise SchemaError(
                    f"enable_track_used_data needs dicts with 'data_id' (the path of a file), got {item!r}. "
                    "Push such dicts, or switch the tracking off."
                )
        return [item["data_id"] for item in data]

    def add(self, paths: Iterable[str]) -> None:
        """Take the files of rows that were pushed; those of rows that they overwrote go."""
        self._paths.extend(paths)
        while len(self._paths) > self._capacity:
            self._dismiss(self._paths.popleft())

    def clear(self) -> None:
        """Delete the files of all rows."""
        while self._paths:
            self._dismiss(self._paths.popleft())

    def forget(self) -> None:
        """Follow none of the files any more; they stay."""
        self._paths.clear()

    def start(self) -> None:
        """Start the thread; a second call does nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="used-data-remover", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Wait until all dismissed files are deleted and end the thread; may be called again."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            self._waiting.put(None, timeout=_CLOSE_TIMEOUT_S)
            thread.join(_CLOSE_TIMEOUT_S)
        except queue.Full:
            pass  # the thread is stuck in a deletion: said below
        if thread.is_alive():
            self._logger.warning("used data are still being deleted after %.0f s", _CLOSE_TIMEOUT_S)

    def _dismiss(self, path: str) -> None:
        if self._thread is None:
            self._delete(path)
            return
        try:
            self._waiting.put_nowait(path)
        except queue.Full:
            self._delete(path)

    def _run(self) -> None:
        while (path := self._waiting.get()) is not None:
            self._delete(path)

    def _delete(self, path: str) -> None:
        try:
            os.remove(path)
        except FileNotFoundError:
            pass  # someone else was first: what we want is done
        except OSError as error:
            self._logger.warning("used data %s cannot be deleted: %s", path, error)
