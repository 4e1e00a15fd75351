"""The exceptions of ding_like, each also the builtin that a caller would expect.

DingError
|-- ConfigError      (ValueError)    a config file, an override or a merged config is wrong
|-- RegistryError    (KeyError)      a name is not registered, or is registered twice
|-- SchemaError      (ValueError)    columns, shapes or dtypes do not fit
|-- EnvError         (RuntimeError)  an environment broke, hung or breaks the rules
|-- TrainingError    (ArithmeticError) a loss, gradient, observation or reward is not finite
|-- CommError        (ConnectionError) another process cannot be reached or answers nonsense
`-- CheckpointError  (RuntimeError)  a checkpoint is missing, torn, foreign or of another shape

A message says what was wrong, the value seen, what was expected, and the next thing to try.
Control characters in it, of a folder's name for instance, are shown as `\\x1b`.
"""

import os
import re
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path

# Of C0, but for tab and newline, and of C1; and halves of characters, which no terminal or file takes.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
# Parts of the names of files that are not a user's own.
_NOT_OWN = ("site-packages", "dist-packages", "<frozen", "<string>", str(Path(__file__).parent) + os.sep)


def escape_controls(text: str) -> str:
    r"""Return a text for a terminal: control characters are shown escaped (`\x1b`), tabs and newlines stay."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def name_some(names: Iterable[object], most: int) -> str:
    """Return at most so many names for a message, and how many more there are: "a, b and 3 more"."""
    texts = [str(name) for name in names]
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more} more" if more > 0 else "")


def raised_at(error: BaseException) -> str:
    """Return "file:line" of the innermost line of code that is neither ours nor installed; "" if there is none.

    For an exception without such a line it is that of its cause, and for one that another process described, the line
    there: its attribute `raised_at`.
    """
    described: str | None = getattr(error, "raised_at", None)
    if described is not None:
        return described
    lines = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:  # of which the traceback has no frame
        lines.append((error.filename, error.lineno))
    stdlib = sysconfig.get_path("stdlib") + os.sep
    own = [at for at in lines if not at[0].startswith(stdlib) and not any(part in at[0] for part in _NOT_OWN)]
    if not own and error.__cause__ is not None:
        return raised_at(error.__cause__)
    return f"{own[-1][0]}:{own[-1][1] or 0}" if own else ""


def describe_error(error: BaseException) -> str:
    """Return an exception's class, its text and the user's line that raised it."""
    at = raised_at(error)
    return f"{type(error).__name__}: {error}{at and f' ({at})'}"


class DingError(Exception):
    """Root of everything that ding_like raises on purpose."""

    def __str__(self) -> str:
        return escape_controls(super().__str__())


class ConfigError(DingError, ValueError):
    """Faults of a config, all at once."""


class RegistryError(DingError, KeyError):
    """Name that is unknown or registered twice."""

    def __str__(self) -> str:
        # KeyError shows repr(message), which turns newlines into "\n".
        return escape_controls(str(self.args[0])) if self.args else ""


class SchemaError(DingError, ValueError):
    """Columns, shapes or dtypes that do not fit."""


class EnvError(DingError, RuntimeError):
    """Environment that broke, hung or breaks the rules."""


class TrainingError(DingError, ArithmeticError):
    """Value that is not finite where training needs one."""


class CommError(DingError, ConnectionError):
    """Process that cannot be reached or answers nonsense."""


class CheckpointError(DingError, RuntimeError):
    """Checkpoint that is missing, torn, foreign or of another shape."""
