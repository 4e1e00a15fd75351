"""Logs: one handler for the console, and a logger of its own for each file."""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from ding_like.errors import DingError, escape_controls
from ding_like.utils.files import is_full
from ding_like.utils.measure import Interval
from ding_like.utils.metrics import EventWriter

# Modules log through logging.getLogger(__name__); their records pass here on the way to the console.
PACKAGE_LOGGER = logging.getLogger("ding_like")

# An environment variable: set to anything, no pipeline that a program calls shows its lines.
_QUIET = "DING_LIKE_QUIET"
_MAX_REPEATS = 1000  # warnings that are distinguished; any after them is shown each time
_MAX_SHOWN = 100  # characters of a warning in the summary
_LINE, _TIME = "%(asctime)s %(message)s", "%H:%M:%S"

_console_handler: logging.Handler | None = None
_warned: set[str] = set()
_full_disk_words = Interval(60.0, starts_due=True)


class RepeatFilter(logging.Filter):
    """Filter that shows the first of equal warnings, and counts the others until `take_summary`."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: Counter[tuple[str, str]] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to show a record; the answer is the same for each handler."""
        if record.levelno != logging.WARNING:
            return True
        is_first: bool | None = getattr(record, "is_first", None)
        if is_first is None:
            key = (record.name, record.getMessage())
            if key in self._seen or len(self._seen) < _MAX_REPEATS:
                self._seen[key] += 1
            is_first = record.is_first = self._seen[key] <= 1
        return is_first

    def begin(self) -> None:
        """Begin a run: warnings of the one before may be shown again."""
        self._seen.clear()

    def take_summary(self) -> list[str]:
        """Return a line for each warning that was repeated, and restart the counts."""
        lines = []
        for (_, message), count in self._seen.items():
            if count > 1:
                first = message.partition("\n")[0]
                shown = first if len(first) <= _MAX_SHOWN else f"{first[:_MAX_SHOWN]}..."
                lines.append(f"{count - 1} more time{'s' if count > 2 else ''}: {shown}")
        self._seen = Counter(dict.fromkeys(self._seen, 1))
        return lines


# Of the console, and of the files that replace it.
REPEATS = RepeatFilter()


def show_errors_shortly() -> None:
    """Print an error of ours that ends this process as its message alone; with the argument --debug, all of it."""
    hook = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, DingError) and "--debug" not in sys.argv:
            sys.stderr.write(f"{kind.__name__}: {error}\n")
        else:
            hook(kind, error, trace)

    sys.excepthook = show


def setup_console(level: int | str = logging.INFO) -> None:
    """Show the package's records of `level` and above on standard output; a second call replaces the first.

    A terminal gets colours; a pipe, a file or NO_COLOR gets plain lines. Equal warnings are shown once a run. The
    command line calls this, and `shown_as_by_the_command` for programs that have set up no logging.
    """
    global _console_handler
    close_console()
    _console_handler = _new_console_handler()
    _console_handler.addFilter(REPEATS)
    PACKAGE_LOGGER.addHandler(_console_handler)
    PACKAGE_LOGGER.setLevel(level)


def close_console() -> None:
    """Undo `setup_console`; does nothing before it."""
    global _console_handler
    if _console_handler is not None:
        PACKAGE_LOGGER.removeHandler(_console_handler)
        PACKAGE_LOGGER.setLevel(logging.NOTSET)
        _console_handler = None


@contextmanager
def shown_as_by_the_command() -> Iterator[None]:
    """Show the package's records as the command does, while the block or the decorated function runs.

    It changes nothing for a program that has set up logging, its root or the logger `ding_like`, be it by a
    `logging.NullHandler`, nor where the environment has DING_LIKE_QUIET.
    """
    if PACKAGE_LOGGER.hasHandlers() or os.environ.get(_QUIET):
        yield
        return
    setup_console()
    try:
        yield
    finally:
        close_console()


@contextmanager
def log_to_file(path: str | os.PathLike[str]) -> Iterator[None]:
    """Write the package's records to a file, and none of them to the console, while the block runs."""
    global _console_handler
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    console, _console_handler = _console_handler, None
    handler = _LogFile(path, encoding="utf-8")
    handler.setFormatter(_ConsoleFormatter(_LINE, datefmt=_TIME))
    handler.addFilter(REPEATS)
    level, propagates = PACKAGE_LOGGER.level, PACKAGE_LOGGER.propagate
    PACKAGE_LOGGER.addHandler(handler)
    if console is not None:
        PACKAGE_LOGGER.removeHandler(console)
    PACKAGE_LOGGER.setLevel(logging.INFO)
    PACKAGE_LOGGER.propagate = False
    try:
        yield
    finally:
        PACKAGE_LOGGER.removeHandler(handler)
        handler.close()
        PACKAGE_LOGGER.setLevel(level)
        PACKAGE_LOGGER.propagate = propagates
        if console is not None:
            PACKAGE_LOGGER.addHandler(console)
            _console_handler = console


def build_logger(
    path: str | os.PathLike[str], name: str, *, need_tb: bool = False, to_console: bool = False
) -> tuple[logging.Logger, EventWriter | None]:
    """Return a logger that appends to `{path}/{name}_logger.txt` and, if asked for, a TensorBoard writer beside it.

    Both files appear with their first line. Records reach the console only with `to_console`. The caller closes the
    logger with `close_logger`, and the writer with its `close`.
    """
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    # Not from logging.getLogger, which keeps every logger for ever and would mix equal names of two experiments.
    logger = logging.Logger(name, level=logging.INFO)
    handler = _LogFile(folder / f"{name}_logger.txt", encoding="utf-8", delay=True)
    handler.setFormatter(_Formatter("[%(asctime)s][%(levelname)s] %(message)s"))
    logger.addHandler(handler)
    if to_console:
        logger.parent = PACKAGE_LOGGER
    return logger, EventWriter(folder / f"{name}_tb_logger") if need_tb else None


def close_logger(logger: logging.Logger) -> None:
    """Close the logger's files; a second call does nothing, and so does logging to it from then on."""
    for handler in logger.handlers[:]:
        logger.removeHandler(handler)
        handler.close()
    # Without a handler Python would show the logger's warnings on standard error.
    logger.addHandler(logging.NullHandler())


def one_time_info(message: str) -> None:
    """Log for the console, once per process for one message."""
    one_time_warning(message, level=logging.INFO)


def one_time_warning(message: str, *, level: int = logging.WARNING) -> None:
    """Warn on the console, once per process for one message."""
    if message not in _warned:
        _warned.add(message)
        PACKAGE_LOGGER.log(level, message)


class _LogFile(logging.FileHandler):
    """Log file that leaves lines out on a full disk, with a warning on the console once a minute."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # of the base class
        error = sys.exc_info()[1]
        if error is None or not is_full(error):
            super().handleError(record)
            return
        stream, self.stream = self.stream, None  # the next line opens the file again
        with suppress(OSError):  # closing writes once more what found no room
            if stream is not None:
                stream.close()
        if _full_disk_words.pass_s():
            PACKAGE_LOGGER.warning("lines of log files are left out: the disk is full (%s)", error)

    def close(self) -> None:
        try:
            super().close()
        except OSError as error:
            if not is_full(error):
                raise


class _Formatter(logging.Formatter):
    """Format of log lines, in which control characters are shown escaped."""

    def format(self, record: logging.LogRecord) -> str:
        return escape_controls(super().format(record))


class _ConsoleFormatter(_Formatter):
    """Format of console lines, which name the level unless it is INFO."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return text if record.levelno == logging.INFO else f"{record.levelname}: {text}"


def _new_console_handler() -> logging.Handler:
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        plain = _StdoutHandler()
        plain.setFormatter(_ConsoleFormatter(_LINE, datefmt=_TIME))
        return plain
    from rich.console import Console
    from rich.logging import RichHandler

    # A Console without a file looks up sys.stdout at every line.
    handler = RichHandler(console=Console(), show_level=False, show_path=False, log_time_format=_TIME)
    handler.setFormatter(_ConsoleFormatter("%(message)s"))
    return handler


class _StdoutHandler(logging.Handler):
    """Handler that writes to the present sys.stdout: a program that captures output replaces it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stdout.write(f"{self.format(record)}\n")
            sys.stdout.flush()
        except Exception:  # as handlers of `logging` do: a broken console ends no run
            self.handleError(record)
