"""Have trackers follow a run: one process for each, which the run neither waits for nor depends on."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ding_like.errors import ConfigError
from ding_like.utils.extras import pip_line
from ding_like.utils.metrics import MetricsSink
from ding_like.utils.parent import start_child
from ding_like.utils.registries import TRACKER_REGISTRY
from ding_like.utils.trackers.follower import ends_behind
from ding_like.utils.trackers.tracker import Status

logger = logging.getLogger(__name__)

_QUIET_S = 3.0  # of waiting at the end before it is said
_LEAVE_S = 20.0  # at most, where the run was interrupted or has failed
_KILL_S = 5.0
_MOST_ENDS = 1000  # lines that a message names: it fits into a pipe


class Trackers:
    """Hold the trackers of a run; `follow` starts them, `close` lets them send the last and sees that they are gone.

    Raises ConfigError at once where the package of one is missing.
    """

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        self._cfg = cfg
        self._wanted = {
            name: settings for name, settings in (cfg.get("trackers") or {}).items() if settings is not None
        }
        self._processes: list[_Process] = []
        for name, settings in self._wanted.items():
            found = TRACKER_REGISTRY.get(settings.get("type", name))
            package = getattr(found, "package", None)
            if package is not None and importlib.util.find_spec(package) is None:
                raise ConfigError(f"trackers.{name} needs {package}; install it with: {pip_line(found.extra)}")

    def follow(self, metrics: MetricsSink | None = None) -> None:
        """Start the trackers; of a run that may go back to a saved point `metrics` is where it says so."""
        if not self._wanted:
            return
        # Without where other trackers send it, which may hold a password.
        config = {key: value for key, value in _plain(self._cfg).items() if key != "trackers"}
        for name, settings in self._wanted.items():
            self._processes.append(_Process(name, _plain(settings), config))
        if metrics is not None:
            metrics.before_cut = self._cut

    def _cut(self, path: Path, num_bytes: int) -> None:
        message = {"cut": num_bytes, "ends": ends_behind(path, num_bytes)[-_MOST_ENDS:]}
        for process in self._processes:
            process.tell(message)

    def close(self, status: Status) -> None:
        """Tell the trackers how the run ended, wait for them in bounds, and end what is left; may be called again."""
        processes, self._processes = self._processes, []
        for process in processes:
            process.tell({"end": status})
        began_s = time.monotonic()
        for process in processes:
            process.wait(began_s, status)


class _Process:
    """Hold the process of one tracker, and a thread that logs what it says."""

    def __init__(self, name: str, settings: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        self._name = name
        self._finish_s = float(settings.get("finish_s", 60.0))
        folder = Path(str(config["exp_name"]))
        log = folder / "log" / "trackers" / f"{name}.txt"
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "ab") as output:
            self._process = start_child(
                [sys.executable, "-m", "ding_like.utils.trackers.process"],
                stdout=subprocess.PIPE,
                stderr=output,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
                start_new_session=True,  # Ctrl-C is for the run; and what it starts itself can be ended with it
            )
        assert self._process.stdin is not None and self._process.stdout is not None, "pipes were asked for"
        os.set_blocking(self._process.stdin.fileno(), False)
        self._reader = threading.Thread(target=self._log, name=f"tracker {name}", daemon=True)
        self._reader.start()
        said = {"tracker": name, "settings": settings, "name": folder.name, "folder": str(folder.resolve())}
        self.tell({**said, "config": config, "path": sys.path})

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send a message; a process that does not listen any more is left alone."""
        stdin = self._process.stdin
        data = json.dumps(message, default=str).encode() + b"\n"
        with suppress(OSError, ValueError):
            assert stdin is not None, "a pipe was asked for"
            sent = os.write(stdin.fileno(), data)
            if sent < len(data):  # half of a message would be misread
                logger.warning("%s does not listen, or its config is too large for it: it is ended", self._name)
                self._end_now()

    def _log(self) -> None:
        """Log what the process says, until it ends."""
        assert self._process.stdout is not None, "a pipe was asked for"
        for line in self._process.stdout:
            with suppress(ValueError, KeyError):
                said = json.loads(line)
                logger.log(logging.WARNING if said["level"] == "warning" else logging.INFO, "%s", said["text"])

    def wait(self, began_s: float, status: Status) -> None:
        """Wait until the process has ended, at most `finish_s` after `began_s`; then end it and what it has started."""
        longest_s = self._finish_s if status == "finished" else min(self._finish_s, _LEAVE_S)
        try:
            if not self._has_ended(_QUIET_S) and longest_s > _QUIET_S:
                logger.info("%s sends the last of this run", self._name)
                self._has_ended(max(longest_s - (time.monotonic() - began_s), 0.0))
        finally:
            if self._process.poll() is None:
                logger.warning(
                    "%s has not finished within %.0f s and is ended; set trackers.%s.finish_s to wait longer",
                    self._name, longest_s, self._name,
                )  # fmt: skip
            self._end_now()

    def _has_ended(self, timeout_s: float) -> bool:
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _end_now(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)  # its session: wandb's service, too
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILL_S)
        self._reader.join(_KILL_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


def _plain(value: Any) -> Any:  # Any: a section of a config, or a value of one
    """Return sections as dicts, and what JSON does not know as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


@contextmanager
def tracked(cfg: Mapping[str, Any], *, is_first: bool = True) -> Iterator[Trackers]:
    """Give the trackers of a run, which `Trackers.follow` starts; at the block's end they are told how it ended.

    Of several learners `is_first` alone has some.
    """
    trackers = Trackers(cfg if is_first else {})
    try:
        yield trackers
    except BaseException as error:
        trackers.close("interrupted" if isinstance(error, (KeyboardInterrupt, SystemExit)) else "failed")
        raise
    trackers.close("finished")
