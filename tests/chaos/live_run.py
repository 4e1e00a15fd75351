"""Start a run whose workers keep ledgers, have things happen to its processes, and see that it goes on and ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import requests

from ding_like.comm.keys import make_keys
from ding_like.comm.rest import messages as m
from tests.chaos.child import CLOCK
from tests.chaos.ledger import END, FOLDER
from tests.entry.test_namespaces import HOSTS, Net

ROOT = Path(__file__).parents[2]
DQN = Path(__file__).with_name("chaos_config.py")
PPO = Path(__file__).with_name("chaos_ppo_config.py")
LEASE_S, HEARTBEAT_S = 3.0, 1.0
_LOOK_S = 0.05
_START_S = 120.0
_END_S = 90.0


class Tail:
    """Read the lines that processes have added to their ledgers; know who did a piece of work when, last."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self._worked: dict[int, float] = {}  # pid -> the machine's monotonic time

    def last_work(self) -> dict[int, float]:
        """Return, by process, when it was last acknowledged a segment or given a batch."""
        for path in self._folder.glob("*.jsonl"):
            with open(path, "rb") as file:
                file.seek(self._read.get(path, 0))
                new = file.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            for line in map(json.loads, whole.splitlines()):
                if line["kind"] in ("ack", "batch"):
                    self._worked[line["pid"]] = line["at"]
        return self._worked


class LiveRun:
    """Processes of one run: `ding -m dist` with coordinator, learner and collectors, or `ding -m parallel`.

    Use it with `with`. Those of mode parallel are 'launcher', which is the coordinator, and its children. `place` is
    where the coordinator has its folder; `system` goes into `system_config`; `overrides` are the coordinator's. On a
    `net` each process of mode dist is on a host of its own.
    """

    def __init__(
        self,
        folder: Path,
        config: Path,
        *,
        mode: str = "dist",
        collectors: int = 2,
        place: Path | None = None,
        system: Mapping[str, Any] | None = None,
        overrides: Sequence[str] = (),
        net: Net | None = None,
    ) -> None:
        self.folder, self.mode = folder, mode
        self._overrides = overrides
        self.net = net
        self.place = place or folder / "coordinator"
        self.ledger = folder / "ledger"
        self._collectors = [f"collector{number}" for number in range(collectors)]
        for path in (self.ledger, self.place, folder / "clocks"):
            path.mkdir(parents=True, exist_ok=True)
        self.config = _write_config(folder, config, collectors, system or {})
        make_keys(folder / "keys.json")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._host = "127.0.0.1" if net is None else HOSTS["coordinator"]
        self.url = f"http://{self._host}:{self.port}"  # for workers; a proxy's takes its place
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._tail = Tail(self.ledger)
        self._seen: set[int] = set()  # pids

    # --- life

    def __enter__(self) -> LiveRun:
        return self

    def __exit__(self, *_: object) -> None:
        """End what is left, paused processes included."""
        for number in (signal.SIGCONT, signal.SIGTERM, signal.SIGKILL):
            self.pids()
            for pid in self._seen:
                if str(self.folder).encode() in _environment(pid):  # it is there, and no other has its number
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)
            if number is signal.SIGTERM:
                self._wait_for_all(20.0)
        self._wait_for_all(20.0)

    def start(self) -> None:
        """Start all."""
        if self.mode == "parallel":
            self._launch("launcher", ["-m", "parallel", "-c", str(self.config), "--exp-name", "run"], self.place)
        else:
            self.start_coordinator()
            self.start_workers()

    def wait_for_start(self) -> float:
        """Wait for each worker to do a piece of work; return how many seconds that took."""
        return self.wait_for_work(since=time.monotonic(), timeout_s=_START_S)

    def start_coordinator(self) -> bool:
        """Start the coordinator, again in the folder that is there; return whether it answers."""
        again = ["policy.learn.resume_training=True"] if (self.place / "run/coordinator.sqlite").exists() else []
        words = ["-m", "dist", "-M", "coordinator", "-c", str(self.config), "--exp-name", "run"]
        words += ["--host", self._host, "--port", str(self.port), "--key-file", str(self.folder / "keys.json")]
        self._launch("coordinator", [*words, *self._overrides, *again], self.place)
        if self.net is not None:
            return True  # this process is not on its net: work done shows that it answers
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline and self.is_alive("coordinator"):
            with suppress(requests.RequestException):
                requests.get(
                    f"http://127.0.0.1:{self.port}/v1/hello", headers={"X-DL-Protocol": str(m.PROTOCOL)}, timeout=1.0
                )
                return True
            time.sleep(_LOOK_S)
        return False

    def start_workers(self) -> None:
        for name in ("learner", *self._collectors):
            self.start_worker(name)

    def start_worker(self, name: str) -> None:
        """Start a worker, again in its folder, so that a learner goes on from what it saved."""
        words = ["-m", "dist", "-M", name.rstrip("0123456789"), "-c", str(self.config)]
        words += ["--coordinator", self.url, "--key-file", str(self.folder / "keys.json")]
        (self.folder / name).mkdir(exist_ok=True)
        self._launch(name, words, self.folder / name)

    def _launch(self, name: str, words: list[str], cwd: Path) -> None:
        with open(self.folder / f"{name}.txt", "ab") as output:
            self.processes[name] = subprocess.Popen(
                [*self._entered(name), sys.executable, "-m", "tests.chaos.child", *words],
                cwd=cwd,
                env={
                    **os.environ,
                    FOLDER: str(self.ledger),
                    END: str(self.folder / "end"),
                    CLOCK: str(self.folder / "clocks" / name),
                    "PYTHONPATH": str(ROOT),
                    "OMP_NUM_THREADS": "1",
                    "OPENBLAS_NUM_THREADS": "1",
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def _entered(self, name: str) -> list[str]:
        """Return the command that enters the host of a process, nothing without a net."""
        return [] if self.net is None else ["ip", "netns", "exec", self.net.name(host_of(name))]

    # --- processes

    @property
    def coordinator(self) -> str:
        """Return the name of the process that is the coordinator."""
        return "launcher" if self.mode == "parallel" else "coordinator"

    def pids(self) -> dict[str, int]:
        """Return the processes that are there, by name."""
        found = {name: each.pid for name, each in self.processes.items() if each.poll() is None}
        if "launcher" in found:
            for role in ("learner", "collector"):
                names = ("learner",) if role == "learner" else self._collectors
                found.update(zip(names, workers_of(found["launcher"], role), strict=False))  # one may be between lives
        self._seen.update(found.values())
        return found

    def is_alive(self, name: str) -> bool:
        return name in self.pids()

    def gone(self) -> list[str]:
        """Return those that have ended, with what they said last."""
        wanted = ("learner", *self._collectors, self.coordinator)
        there = self.pids()
        return [f"{name}: {self.last_words(name)[-1][:300]}" for name in wanted if name not in there]

    def last_words(self, name: str) -> list[str]:
        """Return the lines that a process has said, or that it said nothing."""
        path = self.folder / f"{name}.txt"
        if self.mode == "parallel" and name != "launcher":
            path = self.place / "run/log/workers" / f"{name}.txt"
        lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
        return lines or ["it said nothing"]

    # --- what is done to it

    def send(self, name: str, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, KeyError):
            os.kill(self.pids()[name], number)

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Kill a process of mode dist and wait for its end."""
        self.processes[name].send_signal(number)
        self.processes[name].wait(60)

    def set_clock(self, name: str, offset_s: float) -> None:
        """Move a process's wall clock to `offset_s` from the true one."""
        path = self.folder / "clocks" / name
        path.with_suffix(".new").write_text(str(offset_s))
        path.with_suffix(".new").replace(path)

    def wait_for_work(self, *, since: float, timeout_s: float) -> float:
        """Wait for each worker to do a piece of work after a moment of the monotonic clock.

        Return after how many seconds the last did; infinity if one did not in time, or has gone.
        """
        deadline = time.monotonic() + timeout_s
        number = 1 + len(self._collectors)
        first: dict[int, float] = {}  # pid -> first work after the moment
        while time.monotonic() < deadline:
            pids = self.pids()
            first = {pid: at for pid, at in self._tail.last_work().items() if at > since} | first
            times = [first[pid] for name, pid in pids.items() if name != self.coordinator and pid in first]
            if len(times) == number:
                return max(times) - since
            if self.mode == "dist" and len(pids) < number + 1:
                return float("inf")
            time.sleep(_LOOK_S)
        return float("inf")

    def end(self) -> bool:
        """Let the run come to its end, and return whether all processes ended well and it has a result."""
        (self.folder / "end").touch()
        self._wait_for_all(_END_S)
        is_well = all(each.poll() == 0 for each in self.processes.values())
        return is_well and (self.place / "run/result.json").is_file()

    def _wait_for_all(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        for process in self.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(deadline - time.monotonic(), 0.0))


def host_of(name: str) -> str:
    """Return the host of a process on a net."""
    return {"collector0": "one", "collector1": "two"}.get(name, name)


def workers_of(launcher: int, role: str) -> list[int]:
    """Return the processes that a launcher has started for a role."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue  # it has ended in this moment
        if parent == launcher and role.encode() in words:
            found.append(int(entry.name))
    return sorted(found)


def _environment(pid: int) -> bytes:
    """Return the environment that a process was started with; nothing for one that has ended."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _write_config(folder: Path, config: Path, collectors: int, system: Mapping[str, Any]) -> Path:
    """Write a config with short leases, shared folders, and a commander that ends the run once END's file exists."""
    given = {
        "num_collectors": collectors,
        "path_data": str(folder / "data"),
        "path_policy": str(folder / "policy"),
        "coordinator": {"lease_ttl_s": LEASE_S, "heartbeat_s": HEARTBEAT_S},
        **system,
    }
    commander = {"type": "ending", "import_names": ["tests.chaos.ledger"]}
    path = folder / "my_config.py"
    path.write_text(
        f"{config.read_text()}\n"
        f"system_config.update({given!r})\n"
        f"main_config['policy'].setdefault('other', {{}})['commander'] = {commander!r}\n"
    )
    return path
