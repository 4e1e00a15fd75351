"""Show expected errors of a script as the `ding` command does: one message, and no traceback."""

from __future__ import annotations

import sys
from types import TracebackType

from ding_like.errors import DingError


def show_errors_shortly() -> None:
    """Let an error of ours that ends this process be its message alone; with --debug among its arguments, all of it."""
    hook = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, DingError) and "--debug" not in sys.argv:
            sys.stderr.write(f"{kind.__name__}: {error}\n")
        else:
            hook(kind, error, trace)

    sys.excepthook = show
