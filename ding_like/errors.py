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

import re
from collections.abc import Iterable

# Of C0, but for tab and newline, and of C1; and halves of characters, which no terminal or file takes.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def escape_controls(text: str) -> str:
    r"""Return a text for a terminal: control characters are shown escaped (`\x1b`), tabs and newlines stay."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def name_some(names: Iterable[object], most: int) -> str:
    """Return at most so many names for a message, and how many more there are: "a, b and 3 more"."""
    texts = [str(name) for name in names]
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more} more" if more > 0 else "")


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
