"""End this process without the interpreter's finalisation, where a library has threads that would crash in it."""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback
from contextlib import suppress

_is_skipped = threading.Event()


def skip_finalisation() -> None:
    """Have `end_process` end this process at once: a library has threads that do not end and that it cannot wait for.

    A program of one's own that goes on is not ended; it may call `end_process` when it is done.
    """
    _is_skipped.set()


def end_process(error: BaseException | None) -> None:
    """Return, unless `skip_finalisation` was called: end with the status that the interpreter would end with.

    `error` is what ends the program, None for nothing. What was written is flushed; `atexit` is not called.
    """
    if not _is_skipped.is_set():
        return
    status = _status(error)
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, by whoever reads it or here, or there is none
            stream.flush()
    os._exit(status)


def _status(error: BaseException | None) -> int:
    """Return the status that an error ends the interpreter with, having written what it would write."""
    if error is None:
        return 0
    if not isinstance(error, SystemExit):
        traceback.print_exception(error)
        return 1
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    sys.stderr.write(f"{error.code}\n")
    return 1
