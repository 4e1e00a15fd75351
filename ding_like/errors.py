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
"""


class DingError(Exception):
    """Stand at the root: everything that ding_like raises on purpose."""


class ConfigError(DingError, ValueError):
    """Report every fault of a config at once."""


class RegistryError(DingError, KeyError):
    """Report an unknown or doubly registered name."""

    def __str__(self) -> str:
        # KeyError shows repr(message), which turns newlines into "\n".
        return str(self.args[0]) if self.args else ""


class SchemaError(DingError, ValueError):
    """Report columns, shapes or dtypes that do not fit."""


class EnvError(DingError, RuntimeError):
    """Report an environment that broke, hung or breaks the rules."""


class TrainingError(DingError, ArithmeticError):
    """Report a value that is not finite where training needs one."""


class CommError(DingError, ConnectionError):
    """Report a process that cannot be reached or answers nonsense."""


class CheckpointError(DingError, RuntimeError):
    """Report a checkpoint that is missing, torn, foreign or of another shape."""
