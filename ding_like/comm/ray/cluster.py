"""Connect to a Ray cluster: one of this process's own on this machine, or one that runs already, at an address.

Ray never refuses a worker that cannot be placed: it silently waits for a machine that may be added. So what a run asks
for is compared with what there is before any worker is started.

Ray's processes listen on every address of the machine, and a client that may talk to them runs code as this user: the
token keeps strangers out. Source: Ray's documentation, "Token authentication" (RAY_AUTH_MODE, RAY_AUTH_TOKEN_PATH).
"""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch

from ding_like.comm.ray import leftovers
from ding_like.comm.ray.actors import ClusterLoss, load_ray
from ding_like.config.report import Fault
from ding_like.config.system import AMOUNT, Rule, check_section, settings_of
from ding_like.errors import CommError, ConfigError
from ding_like.types import Config
from ding_like.utils.log import one_time_warning
from ding_like.utils.processes import available_bytes, check_known, make_own_folder, num_cores, skip_finalisation, sweep

_SLACK = 1e-6  # amounts are sums of fractions
# Memory of a worker's process that it shares with no other: measured on a collector of CartPole, more with larger envs.
_WORKER_BYTES = 180 * 2**20
_STORE_BYTES = 2 * 2**30  # by default at most; memory is taken up as it is used
_LEAST_STORE_BYTES = 75 * 2**20  # Ray takes no less
_SHARED_MEMORY = Path("/dev/shm")
_FIX = (
    "Lower the number of workers (--workers or system.ray.collect.workers, "
    "system.ray.grad.workers) or their resources (num_cpus may be a fraction), or add machines."
)


_MEMORY = Rule("None for no limit, or 1 or more bytes", lambda it: it >= 1)


@dataclass(frozen=True)
class Resources:
    """Resources of a worker: `num_cpus` and `num_gpus` may be fractions, `memory` is in bytes (None: no limit)."""

    num_cpus: Annotated[float, AMOUNT] = 1.0
    num_gpus: Annotated[float, AMOUNT] = 0.0
    memory: Annotated[int | None, _MEMORY] = None
    custom: Mapping[str, float] = field(default_factory=dict)  # of a cluster's own kinds, by name


def resources_of(options: Config) -> Resources:
    """Return the resources of Ray's options: num_cpus, num_gpus, memory (bytes), resources (a cluster's own kinds).

    `object_store_memory` has no effect, as Ray reserves none for a worker; that is logged once. Raises ConfigError with
    every unknown option, and every value that is no amount.
    """
    given = {"custom" if name == "resources" else name: value for name, value in options.items()}
    if given.pop("object_store_memory", None):
        one_time_warning(
            "object_store_memory of workers has no effect: Ray keeps none back for a worker. Set the size of the "
            "object store where the cluster is started."
        )
    values, faults = check_section(Resources, "", given)
    for kind, amount in values["custom"].items():
        if not isinstance(amount, int | float) or not AMOUNT.holds(amount):
            faults.append(Fault(f"resources.{kind}", f"is {amount!r}; give {AMOUNT.allowed}"))
    return settings_of(Resources, values, faults, source="the resources of workers")


def options_of(resources: Resources) -> Config:
    """Return the options that `resources_of` reads as these resources."""
    options = asdict(resources)
    return {"resources": options.pop("custom"), **options}


@dataclass(frozen=True)
class Need:
    """Number of workers of a kind ("collector", "gradient worker"), and the resources of `each`."""

    kind: str
    number: int
    each: Resources

    @property
    def amounts(self) -> dict[str, float]:
        """Resources of each worker by Ray's names; memory in bytes."""
        each = self.each
        return {"CPU": each.num_cpus, "GPU": each.num_gpus, "memory": float(each.memory or 0), **each.custom}


class Plan:
    """Comparison of needs with nodes: a worker must fit on one node, and all of them beside other programs' workers."""

    def __init__(
        self, needs: Sequence[Need], nodes: Mapping[str, Mapping[str, float]], *,
        free: Mapping[str, float] | None = None, remark: str = "",
    ) -> None:  # fmt: skip
        """Compare `needs` with `nodes` (name -> amounts), of which `free` is left; `remark` ends the table."""
        self.needs = [need for need in needs if need.number > 0]
        self.nodes, self._remark = nodes, remark
        self.free = _total(nodes.values()) if free is None else free
        self.wanted = _total({k: v * need.number for k, v in need.amounts.items()} for need in self.needs)
        self.faults = [*self._find_faults()]

    @property
    def fits(self) -> bool:
        """Whether all workers have room."""
        return not self.faults

    def _find_faults(self) -> Iterator[str]:
        for need in self.needs:
            if not any(_covers(node, need.amounts) for node in self.nodes.values()):
                asked = ", ".join(f"{_text(v, k)} {k}" for k, v in need.amounts.items() if v) or "nothing"
                yield f"{need.number} of {need.number} {need.kind}s ({asked} each): no node has that"
        for name, amount in self.wanted.items():
            if not _covers(self.free, {name: amount}):
                free = _text(self.free.get(name, 0.0), name)
                yield f"{_text(amount, name)} {name} are wanted in all, and {free} are free"

    @property
    def table(self) -> str:
        """Wanted and available resources, for a console."""
        number = sum(need.number for need in self.needs)
        lines: list[tuple[str, str, Mapping[str, float]]] = [
            *((need.kind, str(need.number), need.amounts) for need in self.needs),
            ("wanted in all", str(number), self.wanted),
            *((name, "", amounts) for name, amounts in self.nodes.items()),
            ("free now", "", self.free),
        ]
        names = list(dict.fromkeys(["CPU", "GPU", "memory", *self.wanted, *self.free]))
        rows = [["", "number", *names]]
        for title, count, amounts in lines:
            rows.append([title, count, *(_text(amounts[k], k) if amounts.get(k) else "-" for k in names)])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        text = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]
        verdict = "fits" if self.fits else f"does not fit: {'; '.join(self.faults)}.\n{_FIX}"
        return "\n".join([*text, *filter(None, [self._remark]), verdict])

    def check(self) -> None:
        """Raise ConfigError if the workers do not fit, with what is wanted, what is available and what to lower."""
        if not self.fits:
            raise ConfigError(
                f"the workers do not fit on the Ray cluster, which would wait for room without a word.\n{self.table}"
            )


def plan_here(needs: Sequence[Need]) -> Plan:
    """Return the plan for a cluster of its own on this machine, starting nothing.

    CPUs are a count that Ray keeps, and workers may share this machine's: the plan has as many as are asked for, and
    its table has a remark. GPUs and memory are the machine's; a worker that asks for no memory counts as a small one.
    """
    here, wanted = num_cores(), sum(need.number * need.each.num_cpus for need in needs)
    memory = available_bytes() - object_store_bytes()
    node = {"CPU": float(max(here, wanted)), "GPU": float(torch.cuda.device_count()), "memory": memory}
    needs = [replace(need, each=replace(need.each, memory=need.each.memory or _WORKER_BYTES)) for need in needs]
    remark = f"{wanted:g} CPUs are asked of this machine's {here}: the workers share them" if wanted > here else ""
    return Plan(needs, {"this machine": node}, remark=remark)


def plan_on_cluster(needs: Sequence[Need], *, beside_others: bool = True) -> Plan:
    """Return the plan for the cluster that this process is connected to, beside other programs' workers or alone."""
    ray = load_ray()
    nodes = {str(node["NodeManagerAddress"]): _kinds(node["Resources"]) for node in ray.nodes() if node["Alive"]}
    return Plan(needs, nodes, free=_kinds(ray.available_resources()) if beside_others else None)


def object_store_bytes(asked: int | None = None) -> int:
    """Return the size of an own cluster's object store: `asked`, else what this machine can spare, at most 2 GiB.

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


def _kinds(resources: Mapping[str, float]) -> dict[str, float]:
    # "node:..." names a machine, and "accelerator_type:..." a kind of GPU.
    return {k: float(v) for k, v in resources.items() if ":" not in k and k != "object_store_memory"}


def _covers(amounts: Mapping[str, float], wanted: Mapping[str, float]) -> bool:
    return all(amount <= amounts.get(name, 0.0) + _SLACK for name, amount in wanted.items())


def _total(amounts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for each in amounts:
        for name, amount in each.items():
            total[name] = total.get(name, 0.0) + amount
    return total


def _text(amount: float, name: str) -> str:
    return f"{amount / 2**30:.3g} GiB" if name == "memory" else f"{amount:g}"


logger = logging.getLogger(__name__)

MODE, TOKEN, TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
PROBE_S = 3.0

_PREFIX = "dr-"
# Counts and reports for a dashboard that is not there.
_QUIET = {"RAY_enable_metrics_collection": "0", "RAY_task_events_report_interval_ms": "0", "RAY_enable_timeline": "0"}
_REPORTERS = ("start_monitor", "start_api_server", "start_log_monitor")  # methods of Ray's Node
_NEARLY_FULL = 0.8  # of the object store: beyond it Ray begins to write to disk
_CHANGED = (leftovers.MARK, "PYTHONBREAKPOINT")  # ray.init sets the second


class RayCluster:
    """Connection of this process to a Ray cluster, until `close`.

    Without an address a cluster is started on this machine. It can be used with its token only, in a file that only
    this user can read; its files are in a folder that only this user can enter; it ends with this process, in whatever
    way that ends, and with the thread that opened it. With an address this process attaches to a cluster that has a
    node on this machine, and `close` detaches. Where `ray.init` was called before, that connection is used and stays.
    """

    def __init__(
        self, address: str | None = None, *, num_cpus: float | None = None, object_store_bytes: int | None = None,
        allow_open: bool = False,
    ) -> None:  # fmt: skip
        """Open it. `address` is "host:port" of its head; `allow_open` attaches to a cluster that asks for no token.

        `num_cpus` and `object_store_bytes` are of an own cluster; None: what this machine has. Raises ConfigError for
        what cannot be had, and CommError where a cluster cannot be started or reached.
        """
        if address is not None:
            check_address(address)
        self._before = _variables()
        self._ray = load_ray()
        self.folder: Path | None = None  # with all files of an own cluster
        self._keeper: subprocess.Popen[bytes] | None = None
        self._is_open = False
        if self._ray.is_initialized():
            self.address = str(self._ray.get_runtime_context().gcs_address)
            if address not in (None, self.address):
                raise ConfigError(
                    f"this process is connected to Ray at {self.address} already, not at {address}: call "
                    "ray.shutdown() first, or leave the address out."
                )
            return
        ClusterLoss.why = None
        self._is_open = True
        try:
            if address is None:
                self.address = self._start(num_cpus, object_store_bytes)
            else:
                self.address = self._attach(address, allow_open=allow_open)
        except BaseException:
            self.close()
            raise

    @property
    def is_own(self) -> bool:
        """Whether this process started the cluster, so that `close` ends it."""
        return self.folder is not None

    def close(self, *, timeout_s: float = 10.0) -> None:
        """End an own cluster and leave nothing of it, or detach; within `timeout_s`; may be called again."""
        if not self._is_open:
            return
        self._is_open = False
        is_lost, left = ClusterLoss.why is not None, list[int]()
        if is_lost and self.folder is not None:
            # Without its daemons Ray would wait for answers that do not come.
            leftovers.end_cluster(self.folder, timeout_s=timeout_s / 2)
        has_ended = _shutdown(self._ray, timeout_s=0.5 if is_lost else timeout_s / 2)
        if self.folder is not None:
            left = leftovers.end_cluster(self.folder, timeout_s=timeout_s / 2)
        if self._keeper is not None:
            self._keeper.communicate(timeout=5.0)
        if left or not (has_ended or is_lost):
            logger.warning("Ray did not end in %g s; processes that are left: %s", timeout_s, left or "none")
        self._set({name: self._before.get(name) for name in {*_variables(), *self._before}})

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, num_cpus: float | None, store_bytes: int | None) -> str:
        """Start a cluster on this machine; return the address of its head."""
        store_bytes = object_store_bytes(store_bytes)
        base = _base()
        for left in sweep(_PREFIX, base):  # of a program that was killed together with its keeper
            leftovers.end_cluster(left, timeout_s=5.0)
        folder = self.folder = make_own_folder(_PREFIX, where=base)
        # In a session of its own: Ctrl-C in a terminal reaches all processes of a session.
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", leftovers.__file__, str(folder)], stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        quiet = {name: os.environ.get(name, value) for name, value in _QUIET.items()}
        token = {MODE: "token", TOKEN: None, TOKEN_PATH: str(make_token(folder))}
        self._set({**quiet, **token, "RAY_ADDRESS": None, leftovers.MARK: str(folder)})
        try:
            with _kept_signals(), _without_reporters(self._ray):
                context = self._ray.init(
                    address="local", num_cpus=num_cores() if num_cpus is None else num_cpus,
                    object_store_memory=store_bytes, include_dashboard=False, log_to_driver=False,
                    logging_level=logging.WARNING,
                    _temp_dir=str(folder / "r"),  # Ray opens this one to everyone, and not the one above it
                )  # fmt: skip
        except Exception as error:  # Ray has no common class for a failed start; its text becomes a CommError
            last = (str(error).strip() or repr(error)).splitlines()[-1]
            raise CommError(f"Ray did not start a cluster on this machine: {last}") from error
        finally:
            os.environ.pop(leftovers.MARK, None)  # what this process starts from now on is not the cluster's
        address = str(context.address_info["gcs_address"])
        logger.info("Ray %s runs on this machine, at %s, with its files in %s", self._ray.__version__, address, folder)
        return address

    def _attach(self, address: str, *, allow_open: bool) -> str:
        """Attach to a cluster within seconds; return its address."""
        mode = check_token(address, allow_open=allow_open)
        probe(address)
        # Attempts of a second each, of which Ray makes 20 by default.
        self._set({MODE: mode, "RAY_ADDRESS": None, "RAY_gcs_server_port_wait_time_s": "3"})
        try:
            with _kept_signals():
                self._ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
        except Exception as error:  # Ray has no common class for a refusal; its text becomes a CommError
            raise _refusal(error, address, mode) from error
        logger.info("attached to Ray %s at %s, mode %s", self._ray.__version__, address, mode)
        return address

    def _set(self, variables: Mapping[str, str | None]) -> None:
        """Set variables of the environment, remove those that are None, and have Ray read its mode and token again."""
        for name, value in variables.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        # Ray reads both once, and has them for good: another cluster in the same process has another token.
        self._ray._raylet.Config.initialize("")
        self._ray._raylet.AuthenticationTokenLoader.instance().reset_cache()


def open_cluster(needs: Sequence[Need], address: str | None = None, *, allow_open: bool = False) -> RayCluster | None:
    """Open a cluster with room for workers; None where this process is connected to one and no address is given.

    Raises ConfigError for workers that no node has room for, and as RayCluster does.
    """
    if address is None and load_ray().is_initialized():
        plan_on_cluster(needs, beside_others=False).check()  # others' workers may end
        return None
    if address is None:
        plan = plan_here(needs)
        plan.check()
        logger.info("starting a Ray cluster on this machine, for this run alone")
        return RayCluster(num_cpus=plan.nodes["this machine"]["CPU"])
    with ExitStack() as opened:
        cluster = opened.enter_context(RayCluster(address, allow_open=allow_open))
        plan_on_cluster(needs).check()
        opened.pop_all()
    return cluster


def make_token(folder: Path) -> Path:
    """Write a new token of 256 random bits to a file of `folder` that only this user can read; return its path."""
    path = folder / "token"
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(secrets.token_hex(32))
    return path


def check_token(address: str, *, allow_open: bool) -> str:
    """Return the mode that a cluster is to be attached to with, "token" or "disabled".

    Raises ConfigError if the environment asks for no token, or there is none, unless `allow_open`.
    """
    mode = os.environ.get(MODE, "").lower()
    fault = f"{MODE}=disabled" if mode == "disabled" else _token_fault()
    if fault is None:
        return "token"
    if allow_open and mode in ("", "disabled"):
        return "disabled"
    raise ConfigError(
        f"Ray at {address} is attached to with a token, and {fault}. Copy the cluster's token to a file of mode 0600 "
        f"and name it by {TOKEN_PATH} (with {MODE}=token or unset). Where a cluster has none, anybody who reaches "
        f"{address} runs code as its user: allow that by system_config.ray.allow_open=True."
    )


def describe_token() -> str:
    """Return which token Ray uses, never its value."""
    if os.environ.get(TOKEN):
        return f"the token in {TOKEN}"
    return f"the token file {_token_path()}{f' ({TOKEN_PATH})' if os.environ.get(TOKEN_PATH) else ''}"


def _token_path() -> Path:
    return Path(os.environ.get(TOKEN_PATH) or Path.home() / ".ray" / "auth_token")


def _token_fault() -> str | None:
    """Return what is wrong with the token that Ray would use, None if it can be read."""
    if os.environ.get(TOKEN):
        return None
    path = _token_path()
    try:
        has_token, mode = bool(path.read_bytes().strip()), path.stat().st_mode & 0o777
    except OSError as error:
        return f"{describe_token()} cannot be read ({error.strerror or error})"
    if mode & 0o077:  # Ray makes its own this way
        logger.warning("others can read or change the token file %s (mode %04o); chmod 600 keeps it secret", path, mode)
    return None if has_token else f"{describe_token()} is empty"


def check_address(address: str) -> None:
    """Raise ConfigError for what is not the address of a head, or names a host that cannot be resolved."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16 or "/" in host:
        raise ConfigError(
            f"--address (system.ray.address) is {address!r}; give host:port of the Ray cluster's head, as `ray start "
            "--head` prints it (192.168.1.5:6379), or leave it out to start a cluster on this machine. ray:// (Ray "
            "Client) cannot be used: start this program on a node of the cluster."
        )
    check_known(host.strip("[]"), "--address (system.ray.address)", "give host:port as `ray start --head` prints it")


def knock(address: str, *, timeout_s: float) -> None:
    """Connect to a port and disconnect. Raises OSError if nothing answers."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s).close()


def probe(address: str) -> None:
    """Raise CommError with what to look at if nothing answers at the address of a head."""
    try:
        knock(address, timeout_s=PROBE_S)
    except OSError as error:
        raise CommError(
            f"nothing answers at {address} ({error}). Is Ray's head running there (ray start --head "
            f"--port={address.rpartition(':')[2]}), and is the port open from here? It would be attached to with "
            f"{describe_token()}."
        ) from error


def _refusal(error: Exception, address: str, mode: str) -> CommError:
    """Return in one line why Ray did not let this process in."""
    lines: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        lines.append(f"{type(cause).__name__}: {cause}")
        cause = cause.__cause__ or cause.__context__
    text = "\n".join(lines)
    used = f"{MODE}={mode}" + (f", {describe_token()}" if mode == "token" else "")
    if "InvalidAuthToken" in text or "AuthenticationError" in text:
        return CommError(f"Ray at {address} refuses this token: {used}. Use the token that it was started with.")
    if "Version mismatch" in text:
        return CommError(f"Ray at {address} runs other versions than this process. {' '.join(text.split())}")
    if "node info" in text or "node to connect" in text:
        return CommError(
            f"Ray at {address} has no node on this machine: join it first (ray start --address={address}); {used}."
        )
    return CommError(f"Ray at {address} cannot be attached to ({used}): {text.splitlines()[-1]}")


def _base() -> Path:
    """Return a folder for temporary files in which the path to a socket of Ray's is not too long."""
    # A socket's path may have 107 characters.
    in_base = "/dr-01234567-3fffff-ffffffff-abcdefgh/r/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store"
    base = tempfile.gettempdir()
    return Path(base if len(os.fsencode(base + in_base)) <= 107 else "/tmp")


def _variables() -> dict[str, str]:
    """Return the variables of the environment that Ray reads or sets."""
    return {name: value for name, value in os.environ.items() if name.startswith("RAY_") or name in _CHANGED}


@contextmanager
def _kept_signals() -> Iterator[None]:
    """Put the handler of SIGTERM back at the end: `ray.init` takes it, and a run that is asked to leave saves first.

    Processes that are started meanwhile ignore SIGTERM, as Ray itself sees to with SIGINT: one that is sent to all
    processes of a run would else end the cluster before the run, which still has to end its workers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


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


def _shutdown(ray: Any, *, timeout_s: float) -> bool:  # Any: the module ray
    """Call `ray.shutdown` in a thread, as it does not return where the cluster is lost; return whether it ended."""
    thread = threading.Thread(target=ray.shutdown, name="ray-shutdown", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if thread.is_alive() or ClusterLoss.why is not None:
        # Else the end of the process would wait for it, or crash in threads of Ray's that outlive the interpreter.
        atexit.unregister(ray.shutdown)
        skip_finalisation()
    return not thread.is_alive()


class StoreUse(NamedTuple):
    """Bytes in use of a cluster's object stores; `spilled` is on disk, None where it is not known."""

    used: int
    total: int
    spilled: int | None

    def numbers(self) -> dict[str, float]:
        """Return them by their names in a run's metrics."""
        found = {f"store_{name}_bytes": value for name, value in self._asdict().items()}
        return {name: float(value) for name, value in found.items() if value is not None}

    def __str__(self) -> str:
        on_disk = f", {self.spilled / 2**20:.0f} MiB on disk" if self.spilled else ""
        return f"{self.used / 2**20:.0f} of {self.total / 2**20:.0f} MiB{on_disk}"


class ClusterWatch:
    """Watch of the cluster that this process is connected to, in a thread, until `close`.

    The head is asked for the nodes every `interval_s`. The cluster is lost if there is no answer within `answer_s` or a
    node is gone. Close the watch before the cluster.
    """

    def __init__(self, cluster: RayCluster, *, interval_s: float = 2.0, answer_s: float = 8.0) -> None:
        """Begin to watch."""
        self._cluster, self._interval_s, self._answer_s = cluster, interval_s, answer_s
        self._lost: str | None = None
        self._store = StoreUse(0, 0, None)
        self._asked_s: float | None = None  # while a question is under way
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="ray-watch", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> str | None:
        """Reason for which the cluster is lost, None while it is not."""
        asked_s = self._asked_s
        if self._lost is None and asked_s is not None and time.monotonic() - asked_s > self._answer_s:
            self._lost = f"its head (GCS) has not answered for {self._answer_s:g} s"
        return self._lost

    def describe_loss(self) -> str:
        """Return in words that the cluster is lost, and why."""
        return f"the Ray cluster at {self._cluster.address} is lost: {self.lost}"

    def store(self) -> StoreUse:
        """Return what the object stores held when last asked."""
        return self._store

    def close(self, *, timeout_s: float = 5.0) -> None:
        """Stop watching; may be called again.

        A question that a lost cluster does not answer stays in its thread until Ray gives up, for up to a minute.
        """
        self._is_closed.set()
        if self.lost is None:
            self._thread.join(timeout_s)

    def __enter__(self) -> ClusterWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _watch(self) -> None:
        ray, before, is_warned = load_ray(), dict[str, str](), False
        while not self._is_closed.is_set() and self._lost is None:
            self._asked_s = time.monotonic()
            try:
                knock(self._cluster.address, timeout_s=self._answer_s)  # Ray waits a minute for a head that has ended
                nodes = {node["NodeID"]: str(node["NodeManagerAddress"]) for node in ray.nodes() if node["Alive"]}
                total, free = (
                    int(resources.get("object_store_memory", 0))
                    for resources in (ray.cluster_resources(), ray.available_resources())
                )
            except Exception as error:  # Ray raises several classes where the head does not answer; the run ends
                self._lost = self._lost or f"its head (GCS) does not answer ({type(error).__name__}: {error})"
                return
            self._asked_s = None
            gone = [address for key, address in before.items() if key not in nodes]
            if gone:
                self._lost = f"its node {', '.join(gone)} has ended"
            before = nodes
            self._store = StoreUse(max(total - free, 0), total, _bytes_spilled(self._cluster.folder))
            if not is_warned and (self._store.spilled or self._store.used > _NEARLY_FULL * total):
                is_warned = True
                logger.warning(
                    "Ray's object store is full or nearly so (%s), and what does not fit is written to disk: that is "
                    "slow. Let collectors send less at once (segment_rows), or give the store more memory.",
                    self._store,
                )
            self._is_closed.wait(self._interval_s)


def _bytes_spilled(folder: Path | None) -> int | None:
    """Return the size of the objects on disk of an own cluster, None for another's."""
    if folder is None:
        return None
    sizes = []
    for path in folder.glob("r/session_2*/ray_spilled_objects_*/*"):
        with suppress(OSError):  # deleted meanwhile
            sizes.append(path.stat().st_size)
    return sum(sizes)
