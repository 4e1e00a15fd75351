"""Find the line of a user's own code that an exception came from."""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_NOT_OWN = ("site-packages", "dist-packages", "<frozen", "<string>", _PACKAGE)


def raised_at(error: BaseException) -> str:
    """Return "file:line" of the innermost line of code that is neither ours nor installed; "" where there is none.

    Where an exception has no such line, it is that of its cause. Of one that another process described, it is the line
    there: its attribute `raised_at`.
    """
    described: str | None = getattr(error, "raised_at", None)
    if described is not None:
        return described
    own = [at for at in _lines(error) if _is_own(at[0])]
    if not own and error.__cause__ is not None:
        return raised_at(error.__cause__)
    return f"{own[-1][0]}:{own[-1][1]}" if own else ""


def told(error: BaseException) -> str:
    """Return an exception's class, its text and the user's line that it came from."""
    at = raised_at(error)
    return f"{type(error).__name__}: {error}{at and f' ({at})'}"


def _lines(error: BaseException) -> Iterator[tuple[str, int]]:
    for frame in traceback.extract_tb(error.__traceback__):
        yield frame.filename, frame.lineno or 0
    if isinstance(error, SyntaxError) and error.filename:  # which no frame of its file tells of
        yield error.filename, error.lineno or 0


def _is_own(filename: str) -> bool:
    in_stdlib = filename.startswith(sysconfig.get_path("stdlib") + os.sep)
    return not in_stdlib and not any(part in filename for part in _NOT_OWN)
