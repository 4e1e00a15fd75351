"""Load a coordinator with fake collectors and a learner that samples; print requests a second, latencies, losses.

    python -m benchmarks.coordinator                         # 200 under waitress, 1,000 under gunicorn, a minute each
    python -m benchmarks.coordinator --case waitress:50 --seconds 20
    python -m benchmarks.coordinator --case gunicorn:1000 --minutes 10    # is anybody refused, ever?

Each collector announces 16 segments every 2 s (fewer in a longer run, so that the buffer holds all) and sends a
heartbeat every 3 s, over one connection, signed. The coordinator is the product's own process with its state file on;
the load comes from one process on the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import ding_like
from benchmarks.provenance import OWN, RESULTS, DirtyTreeError, provenance
from benchmarks.rounds import Measured, circumstances
from ding_like.comm.keys import make_keys
from ding_like.comm.rest.messages import ANSWER_HEADER, PROTOCOL, Signer, draw_secret

_FILE = "coordinator.jsonl"
_ITEMS, _ITEM_ROWS = 16, 8  # of a message, in a minute; of a segment
_BUFFER_ROWS = 4_000_000
_DATA_S, _BEAT_S = 2.0, 3.0
_SAMPLE_S = 0.1
_START_S = 60.0
_CONFIG = """
main_config = dict(
    exp_name="run",
    env=dict(collector_env_num=1, evaluator_env_num=1, n_evaluator_episode=1, env_id="CartPole-v1", stop_value=1e9),
    policy=dict(
        random_collect_size=64,
        learn=dict(update_per_collect=1, batch_size=64),
        collect=dict(n_sample=64),
        eval=dict(evaluator=dict(eval_freq=100_000_000)),
        other=dict(replay_buffer=dict(replay_buffer_size=_BUFFER_ROWS)),
    ),
)
create_config = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="dqn"))
"""
# What the server on paper is to do with 1,000 collectors: at least so many requests a second, at most so many ms.
BARS = {"waitress:200": {"p99_ms": 250.0}, "gunicorn:1000": {"requests_per_s": 400.0, "p99_ms": 250.0, "rss_mb": 500.0}}
# Ten minutes: what is kept of each request for five would show.
_SECONDS = {"gunicorn:1000": 600.0}


class Case(NamedTuple):
    """Load: the server, how many collectors run, and for how long."""

    server: str
    collectors: int
    seconds: float

    @classmethod
    def parse(cls, text: str) -> Case:
        server, _, number = text.partition(":")
        if server not in ("waitress", "gunicorn") or not number.isdecimal():
            raise argparse.ArgumentTypeError(f"{text!r} is not waitress:N or gunicorn:N")
        return cls(server, int(number), _SECONDS.get(text, 60.0))

    @property
    def name(self) -> str:
        return f"{self.server}:{self.collectors}"


class Client:
    """Connection of one worker, which counts the replies."""

    def __init__(self, port: int, key: bytes, role: str, number: int) -> None:
        self._port, self._role, self._number = port, role, number
        self._secret = draw_secret()
        self._signer = Signer(role, key, secret=self._secret, clock=time.monotonic)
        self._signer.offset_s = time.time() - time.monotonic()  # the coordinator is on this machine
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._seq = 0
        self.worker = ""
        self.latencies_s: list[float] = []
        self.acked: list[str] = []
        self.errors = 0
        self.refusals: Counter[str] = Counter()

    async def ask(self, path: str, body: dict[str, Any], *, is_counted: bool = True) -> dict[str, Any] | None:
        """Send one message and return the answer; None, and an error counted, for a refusal or a broken connection."""
        data = json.dumps(body).encode()
        self._seq += 1
        signed, asked = self._signer.sign("POST", path, data, turn=f"load:{self._seq}", worker=self.worker)
        own = "".join(f"{name}: {value}\r\n" for name, value in signed.items())
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"X-DL-Protocol: {PROTOCOL}\r\n{own}Content-Length: {len(data)}\r\n\r\n"
        )
        started = time.perf_counter()
        try:
            if self._writer is None:
                self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
            assert self._reader is not None
            self._writer.write(head.encode() + data)
            status, answer, signature = await asyncio.wait_for(_read(self._reader), 30.0)
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
            self.errors += 1
            self.close()
            return None
        if is_counted:
            self.latencies_s.append(time.perf_counter() - started)
        if status != 200:
            self.errors += is_counted
            self.refusals[json.loads(answer)["error"]["code"]] += 1
            return None
        if not self._signer.is_answer(signature, asked, status, answer, worker=self.worker):
            raise RuntimeError(f"the answer to {path} is not signed")
        found: dict[str, Any] = json.loads(answer)
        return found

    async def register(self) -> None:
        body = {"role": self._role, "host": "load", "pid": self._number, "package": ding_like.__version__}
        body.update(incarnation=f"load{self._number}", secret=self._secret)
        answer = await self.ask("/v1/workers", body, is_counted=False)
        if answer is None:
            raise RuntimeError(f"{self._role} {self._number} cannot register")
        self.worker = answer["worker_id"]

    async def claim(self, deadline_s: float) -> dict[str, Any]:
        while time.monotonic() < deadline_s:
            answer = await self.ask("/v1/tasks/claim", {"wait_s": 0.0}, is_counted=False)
            task = None if answer is None else answer["task"]
            if task is not None and task["kind"] == "eval":
                count = task["cfg"]["n_episode"]
                result = {"returns": [0.0] * count, "lengths": [1] * count, "version": 0, "duration_s": 0.0}
                body = {"attempt": task["attempt"], "result": result}
                await self.ask(f"/v1/tasks/{task['task_id']}/finish", body, is_counted=False)
            elif task is not None:
                found: dict[str, Any] = task
                return found
            await asyncio.sleep(0.2)
        raise RuntimeError(f"{self._role} {self._number} gets no task")

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None


async def _read(reader: asyncio.StreamReader) -> tuple[int, bytes, str]:
    """Return status, body and signature of an answer."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    found = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(found["content-length"]))
    return int(first.split(" ")[1]), body, found.get(ANSWER_HEADER.lower(), "")


async def _collect(client: Client, until_s: float, items: int) -> None:
    """Announce segments and send heartbeats until a moment."""
    task = await client.claim(until_s)
    sent = 0
    rng = random.Random(client.worker)
    due = {"data": time.monotonic() + rng.uniform(0, _DATA_S), "beat": time.monotonic() + rng.uniform(0, _BEAT_S)}
    while True:
        name = min(due, key=lambda each: due[each])
        if due[name] >= until_s:
            return
        await asyncio.sleep(max(due[name] - time.monotonic(), 0.0))
        due[name] += _DATA_S if name == "data" else _BEAT_S
        if name == "beat":
            beat = {"state": "collect", "task_id": task["task_id"], "attempt": task["attempt"]}
            await client.ask(f"/v1/workers/{client.worker}/heartbeat", beat)
            continue
        names = [f"{client.worker}.{sent + index:08d}" for index in range(items)]
        sent += items
        common = {"rows": _ITEM_ROWS, "sha256": "0" * 64, "nbytes": 2000}
        segments = [{"name": each, **common, "policy_version": 0, "env_steps": _ITEM_ROWS} for each in names]
        body = {"attempt": task["attempt"], "segments": segments}
        answer = await client.ask(f"/v1/tasks/{task['task_id']}/data", body)
        if answer is not None:
            client.acked += [*answer["accepted"], *answer["duplicate"]]


async def _learn(client: Client, until_s: float) -> None:
    """Ask for batches ten times a second until a moment."""
    task = await client.claim(until_s)
    named = {"task_id": task["task_id"], "attempt": task["attempt"]}
    await client.ask(f"/v1/policies/{task['policy_id']}", {**named, "version": 0, "sha256": "0" * 64, "nbytes": 1})
    have = iteration = 0
    while time.monotonic() < until_s:
        asked = {"batch_size": 64, "num_batches": 32, "cur_learner_iter": iteration, "have_segments_up_to": have}
        answer = await client.ask(f"/v1/buffers/{task['buffer_id']}/sample", {**named, **asked, "wait_s": 0.0})
        if answer is not None:
            have = answer["new_segments"][-1]["serial"] if answer["new_segments"] else have
            iteration += 0 if answer["batches"] is None else answer["batches"]["num_batches"]
        if answer is None or not answer["new_segments"]:  # else there may be more of them
            await asyncio.sleep(_SAMPLE_S)
    client.acked = [str(iteration)]


async def _load(
    port: int, keys: dict[str, bytes], collectors: int, seconds: float, items: int
) -> tuple[list[Client], Client]:
    learner = Client(port, keys["learner"], "learner", 0)
    await learner.register()
    until_s = time.monotonic() + seconds
    learning = asyncio.create_task(_learn(learner, until_s))
    clients = [Client(port, keys["collector"], "collector", number + 1) for number in range(collectors)]
    for client in clients:
        await client.register()
    await asyncio.gather(*(_collect(client, until_s, items) for client in clients), learning)
    for client in (*clients, learner):
        client.close()
    return clients, learner


def _start(server: str, folder: Path, port: int) -> subprocess.Popen[bytes]:
    (folder / "load_config.py").write_text(_CONFIG.replace("_BUFFER_ROWS", str(_BUFFER_ROWS)))
    options = ["-c", "load_config.py", "--key-file", "keys.json", "--port", str(port)]
    if server == "waitress":
        command = [sys.executable, "-m", "ding_like.entry.cli", "-m", "dist", "-M", "coordinator", *options]
    else:
        app = "ding_like.entry.parallel_entry:coordinator_app(config='load_config.py', key_file='keys.json')"
        command = [sys.executable, "-m", "gunicorn", "--workers", "1", "--threads", "16", "-k", "gthread"]
        command += ["--keep-alive", "75", "--worker-connections", "4000", "-b", f"127.0.0.1:{port}", app]
    with open(folder / "said.txt", "wb") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1.0) as probe:
                probe.sendall(b"GET /v1/hello HTTP/1.1\r\nHost: 127.0.0.1\r\nX-DL-Protocol: 1\r\n\r\n")
                if probe.recv(16).startswith(b"HTTP/1.1 200"):
                    return process
        except OSError:
            time.sleep(0.1)
    process.kill()
    raise RuntimeError(f"the coordinator has not started: {(folder / 'said.txt').read_text()[-1000:]}")


def _memory_mb(pid: int) -> float:
    """Return the resident memory of a process and its children, in megabytes."""
    pids = [pid]
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    pids += [int(child) for child in children]
    pages = sum(int(Path(f"/proc/{each}/statm").read_text().split()[1]) for each in pids)
    return pages * 4096 / 1e6


def measure(case: Case, seconds: float) -> dict[str, Any]:
    """Run one case and return its row."""
    # All that is announced fits into the buffer, so that nothing is overwritten: what is not there at the end is lost.
    items = max(min(_ITEMS, int(_BUFFER_ROWS * _DATA_S / (case.collectors * seconds * _ITEM_ROWS))), 1)
    with tempfile.TemporaryDirectory(prefix="ding-load-") as name:
        folder = Path(name)
        keys = make_keys(folder / "keys.json")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        process = _start(case.server, folder, port)
        try:
            clients, learner = asyncio.run(_load(port, keys, case.collectors, seconds, items))
            memory_mb = _memory_mb(process.pid)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)
        with sqlite3.connect(folder / "run/coordinator.sqlite") as db:
            saved = [json.loads(value) for (value,) in db.execute("SELECT value FROM item WHERE kind = 'segment'")]
        db.close()
    latencies = sorted(each for client in clients for each in client.latencies_s)
    acked = [each for client in clients for each in client.acked]
    names = [each["name"] for each in saved]
    return {
        "case": case.name,
        "seconds": seconds,
        "items_a_message": items,
        "requests_per_s": round(len(latencies) / seconds, 1),
        "items_per_s": round(len(acked) / seconds, 1),
        "p50_ms": _percentile_ms(latencies, 0.5),
        "p99_ms": _percentile_ms(latencies, 0.99),
        "worst_ms": _percentile_ms(latencies, 1.0),
        "errors": sum(client.errors for client in (*clients, learner)),
        "refusals": dict(sum((client.refusals for client in (*clients, learner)), Counter())),
        "acked_items": len(acked),
        "lost": len(set(acked) - set(names)),
        "doubled": len(names) - len(set(names)) + len(saved) - len({each["serial"] for each in saved}),
        "batches_drawn": int(learner.acked[0]),
        "sample_p99_ms": _percentile_ms(sorted(learner.latencies_s), 0.99),
        "rss_mb": round(memory_mb, 1),
    }


def _percentile_ms(ordered: Sequence[float], share: float) -> float:
    return round(1e3 * ordered[min(int(share * len(ordered)), len(ordered) - 1)], 2) if ordered else float("nan")


def main(argv: list[str] | None = None) -> None:
    """Run the cases, print their rows beside the bars, and write them."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.coordinator", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    cases = [Case.parse("waitress:200"), Case.parse("gunicorn:1000")]
    parser.add_argument("--case", nargs="+", type=Case.parse, default=cases, metavar="SERVER:N")
    parser.add_argument("--seconds", type=float, help="of load in each case (60; ten minutes of gunicorn:1000)")
    parser.add_argument("--minutes", type=float, help="the same, in minutes")
    parser.add_argument("--out", type=Path, help="file for the rows (default: in benchmarks/own for the whole set)")
    parser.add_argument("--record", action="store_true", help="write into benchmarks/results, which pages of docs show")
    parser.add_argument("--allow-dirty", action="store_true", help="record a tree that differs from its commit")
    args = parser.parse_args(argv)
    if args.record and (args.case != cases or args.out is not None):
        parser.error("--record is of the whole set: leave --case and --out out")
    try:
        code = provenance(allow_dirty=args.allow_dirty or not args.record)
    except DirtyTreeError as error:
        parser.error(str(error))
    rows = []
    seconds = args.seconds if args.minutes is None else 60.0 * args.minutes
    for case in args.case:
        row = measure(case, seconds or case.seconds)
        rows.append({**row, "from": "this run", "bars": BARS.get(case.name, {})})
        for name, value in row.items():
            bar = BARS.get(case.name, {}).get(name)
            print(f"  {name:16} {value!s:>16}{'' if bar is None else f'   bar {bar:g}'}")
    out = args.out or ((RESULTS if args.record else OWN) / _FILE if args.case == cases else None)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        versions = {name: version(name) for name in ("flask", "waitress", "gunicorn")}
        lines = [*rows, circumstances(Measured([], {"ours": versions}, {}), code)]
        out.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
