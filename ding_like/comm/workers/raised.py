"""Say where a worker raised an error: in which worker, and at which line of the user's own code."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from pathlib import Path

import ding_like

_OURS = str(Path(ding_like.__file__).parent)
_FRAME = re.compile(r'File "(.+?)", line (\d+), in (\S+)')


class WorkerTracebackError(Exception):
    """Carry, as the cause of an error of a worker, where in the worker's process it was raised.

    Its text is `in worker 'NAME':`, and the traceback from the next line on.
    """


def place_raised(error: BaseException) -> str:
    """Return the line that raised an error, as "FILE, line N, in FUNCTION": the last one of the user's own code.

    If none of it was involved, the last line of all; "" for an error without a traceback. The errors that caused it
    are looked at too, and what a worker in another process has sent.
    """
    frames = list(_frames(error))
    own = [frame for frame in frames if not frame[0].startswith(_OURS) and "site-packages" not in frame[0]]
    for file, line, function in reversed(own or frames):
        return f"{file}, line {line}, in {function}"
    return ""


def worker_of(error: BaseException) -> str | None:
    """Return "in worker 'NAME'" of an error that a worker in another process raised, None of any other."""
    found = _sent(error)
    return None if found is None else str(found).partition(":\n")[0]


def _frames(error: BaseException) -> Iterator[tuple[str, str, str]]:
    sent = _sent(error)
    if sent is not None:
        yield from _FRAME.findall(str(sent))
        return
    if error.__cause__ is not None:
        yield from _frames(error.__cause__)
    for frame in traceback.extract_tb(error.__traceback__):
        yield frame.filename, str(frame.lineno), frame.name


def _sent(error: BaseException | None) -> WorkerTracebackError | None:
    while error is not None and not isinstance(error, WorkerTracebackError):
        error = error.__cause__
    return error
