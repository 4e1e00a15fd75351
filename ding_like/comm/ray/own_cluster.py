"""Start a Ray cluster of this process's own on this machine, and leave nothing of it."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ding_like.comm.ray import leftovers
from ding_like.comm.ray.environment import RayEnvironment, end_connection, kept_signals
from ding_like.comm.ray.token import MODE, TOKEN, TOKEN_PATH, make_token
from ding_like.errors import CommError, ConfigError
from ding_like.utils.own_folder import make_own_folder, sweep
from ding_like.utils.parent import start_child
from ding_like.utils.process_end import skip_finalisation
from ding_like.utils.processes import num_cores

logger = logging.getLogger(__name__)

_PREFIX = "dr-"  # short: see _folder
_MAX_SOCKET = 107  # characters of a unix socket's path
_IN_FOLDER = "/r/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store"
_OWN_NAME = "dr-01234567-3fffff-ffffffff-abcdefgh"
_GRACE_S = 4.0  # for Ray to end what it has started, before it is killed
_LOST_S = 0.5  # where there is nothing left to end
_STORE_BYTES = 2 * 2**30  # by default at most; memory is taken up as it is used
_LEAST_STORE_BYTES = 75 * 2**20  # Ray takes no less
_SHARED_MEMORY = Path("/dev/shm")
# Processes that a cluster is lost without, by their /proc/PID/comm: Ray ends the raylet together with its agents.
_DAEMONS = {
    "gcs_server": "gcs_server",
    "raylet": "raylet",
    "ray::DashboardA": "dashboard agent",
    "ray::RuntimeEnv": "runtime environment agent",
}
_REPORTERS = ("start_monitor", "start_api_server", "start_log_monitor")  # methods of Ray's Node

# Counts and reports for a dashboard that is not there.
_QUIET = {"RAY_enable_metrics_collection": "0", "RAY_task_events_report_interval_ms": "0", "RAY_enable_timeline": "0"}


@dataclass(frozen=True)
class Amounts:
    """Say what an own cluster has to give; None: what this machine has. `object_store_bytes` is shared memory."""

    num_cpus: float | None = None
    num_gpus: float | None = None
    resources: Mapping[str, float] = field(default_factory=dict)
    object_store_bytes: int | None = None


class OwnCluster:
    """Hold a cluster that this process started, and end it."""

    def __init__(self, ray: Any, amounts: Amounts, environment: RayEnvironment) -> None:  # Any: the module ray
        """Start it: some seconds. Raises ConfigError for amounts that cannot be had, CommError if it does not start."""
        store_bytes = object_store_bytes(amounts.object_store_bytes)
        self.processes: dict[str, int] = {}  # name of a daemon -> its process id
        self.address = ""
        self._environment = environment
        self._ray = ray
        base = _base()
        # Of a program that was killed together with its keeper.
        for left in sweep(_PREFIX, base):
            leftovers.end_processes(left, timeout_s=5.0)
        self.folder = make_own_folder(_PREFIX, where=base)
        self._keeper: subprocess.Popen[bytes] | None = None
        try:
            self._keeper = _start_keeper(self.folder)
            self._start(amounts, store_bytes)
        except BaseException:
            self.close(timeout_s=10.0)
            raise

    def _start(self, amounts: Amounts, store_bytes: int) -> None:
        token = {MODE: "token", TOKEN: None, TOKEN_PATH: str(make_token(self.folder)), "RAY_ADDRESS": None}
        quiet = {name: os.environ.get(name, value) for name, value in _QUIET.items()}
        self._environment.set(self._ray, {**token, **quiet, leftovers.MARK: str(self.folder)})
        try:
            with kept_signals(), _without_reporters(self._ray):
                context = self._ray.init(
                    address="local",
                    num_cpus=num_cores() if amounts.num_cpus is None else amounts.num_cpus,
                    num_gpus=amounts.num_gpus,
                    resources=dict(amounts.resources) or None,
                    object_store_memory=store_bytes,
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level=logging.WARNING,
                    # Ray opens this folder to everyone: the one above it does not.
                    _temp_dir=str(self.folder / "r"),
                )
        except Exception as error:  # Ray has no common class for a failed start; its text becomes a CommError
            last = (str(error).strip() or repr(error)).splitlines()[-1]
            raise CommError(f"Ray did not start a cluster on this machine: {last}") from error
        finally:
            # What this process starts from now on is not the cluster's.
            os.environ.pop(leftovers.MARK, None)
        self.address = str(context.address_info["gcs_address"])
        self.processes = _daemons(self.folder)
        logger.info("Ray %s runs on this machine, at %s, with its files in %s", self._ray.__version__, self.address,
                    self.folder)  # fmt: skip

    def close(self, *, timeout_s: float) -> None:
        """End all processes of the cluster and delete its folder, also where Ray itself hangs; may be called again."""
        if not self.folder.exists():
            return
        deadline_s = time.monotonic() + timeout_s
        # Without its daemons Ray would wait for answers that do not come.
        is_whole = all(_answers(pid) for pid in self.processes.values())
        if not is_whole:
            leftovers.end_processes(self.folder, timeout_s=timeout_s / 2)
            skip_finalisation()  # questions to the daemons may wait in threads of Ray's
        has_ended = end_connection(self._ray, timeout_s=min(_GRACE_S if is_whole else _LOST_S, timeout_s / 2))
        left = leftovers.end_processes(self.folder, timeout_s=max(deadline_s - time.monotonic(), 1.0))
        if left or (is_whole and not has_ended):
            logger.warning("Ray did not end in %g s: processes %s, its thread %s", timeout_s, left or "none",
                           "has ended" if has_ended else "still waits")  # fmt: skip
        shutil.rmtree(self.folder, ignore_errors=True)
        self._environment.restore()
        if self._keeper is not None and self._keeper.stdin is not None:
            self._keeper.communicate(leftovers.DONE, timeout=5.0)


def object_store_bytes(asked: int | None) -> int:
    """Return the size of an own cluster's object store: what is asked, else what this machine can spare, at most 2 GiB.

    Raises ConfigError if shared memory does not hold it.
    """
    free = shutil.disk_usage(_SHARED_MEMORY).free if _SHARED_MEMORY.is_dir() else _STORE_BYTES
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    size = min(_STORE_BYTES, int(0.3 * memory), int(0.9 * free)) if asked is None else asked
    if size < _LEAST_STORE_BYTES or size > free:
        raise ConfigError(
            f"an object store of {size / 2**20:.0f} MiB cannot be had: Ray takes at least "
            f"{_LEAST_STORE_BYTES / 2**20:.0f} MiB, and {_SHARED_MEMORY} has {free / 2**20:.0f} MiB free. "
            "Ask for another size, or give the container more shared memory (--shm-size)."
        )
    return size


def _base() -> Path:
    """Return a folder for temporary files in which a path to a socket of Ray's is not too long."""
    length = len(_OWN_NAME) + len(_IN_FOLDER) + 1
    for base in (tempfile.gettempdir(), "/tmp"):
        if len(os.fsencode(base)) + length <= _MAX_SOCKET and os.access(base, os.W_OK):
            return Path(base)
    raise ConfigError(
        f"the temporary folder {tempfile.gettempdir()} has too long a name for Ray's sockets "
        f"({_MAX_SOCKET - length} characters at most): set TMPDIR to a shorter one."
    )


def _start_keeper(folder: Path) -> subprocess.Popen[bytes]:
    """Start the program that ends the cluster and deletes its folder once this process has ended, however it did."""
    # In a session of its own: Ctrl-C in a terminal reaches all processes of a session.
    return start_child(
        [sys.executable, "-I", "-S", leftovers.__file__, str(folder)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip


@contextmanager
def _without_reporters(ray: Any) -> Iterator[None]:  # Any: the module ray
    """Have Ray start no processes that only report: to a dashboard, to an autoscaler, to the driver's console.

    Ray has no switch for the first two; they would take a third of the time to start and 130 MiB. Where a version of
    Ray names them otherwise, they are started.
    """
    node = ray._private.node.Node
    before = {name: getattr(node, name) for name in _REPORTERS if hasattr(node, name)}
    for name in before:
        setattr(node, name, lambda *_, **__: None)
    try:
        yield
    finally:
        for name, method in before.items():
            setattr(node, name, method)


def _daemons(folder: Path) -> dict[str, int]:
    names = {pid: Path(f"/proc/{pid}/comm").read_text().strip() for pid in leftovers.find_processes(folder)}
    return {_DAEMONS[name]: pid for pid, name in names.items() if name in _DAEMONS}


def _answers(pid: int) -> bool:
    """Tell whether a process is there and neither ended (Z) nor stopped (T)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZTt"
    except OSError:
        return False
