"""Ask a served policy many times while newer checkpoints come, check every answer, and write what it took.

python -m benchmarks.serve_load --out docs/reports/serve.json [--requests 10000] [--reloads 5]

A server of its own process serves SAC with `--checkpoint newest`. Four clients, two processes with two threads each and
a connection each that is kept, ask in JSON and in safetensors, one observation and 32. Every answer must be 200, its
version never older than the last one of its client, and its actions bit by bit those of the checkpoint that it names.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.numpy import load, save

from benchmarks.provenance import DirtyTreeError, provenance
from ding_like.pipeline.process import training_process
from ding_like.serve import Blueprint
from tests.serve.runs import Run, question

ROOT = Path(__file__).parents[1]
JSON, TENSORS = "application/json", "application/octet-stream"
FORMS = {"json": JSON, "safetensors": TENSORS}
ROWS = (1, 32)
LAYERS = dict(actor_head_hidden_size=256, critic_head_hidden_size=256)
PROCESSES = 2
ALONE = 500  # requests of each kind with no other client
DEADLINE_S = 300.0
_TOLD_EVERY = 20  # requests


class Kind(NamedTuple):
    """Name one kind of request."""

    form: str
    rows: int

    @property
    def name(self) -> str:
        return f"{self.form}, {self.rows} observation{'s' if self.rows > 1 else ''}"


KINDS = [Kind(form, rows) for form in FORMS for rows in ROWS]


class Client:
    """Ask one kind of question over one connection, and check the answers."""

    def __init__(self, port: int, kind: Kind, obs: np.ndarray, expected: dict[int, np.ndarray]) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._expected = expected
        self._form = kind.form
        sent = obs[0] if kind.rows == 1 else obs
        self._body = json.dumps({"obs": sent.tolist()}).encode() if kind.form == "json" else save({"obs": sent})
        self._headers = {"Content-Type": FORMS[kind.form]}
        self.latency_s: list[float] = []
        self.versions: list[int] = []

    def ask(self) -> None:
        """Ask once. Raises AssertionError for an answer that is not what it should be."""
        began = time.perf_counter()
        self._connection.request("POST", "/act", self._body, self._headers)
        response = self._connection.getresponse()
        body = response.read()
        self.latency_s.append(time.perf_counter() - began)
        assert response.status == 200, body
        header = json.loads(response.headers["X-Policy-Version"])
        version = header["train_iter"]
        if self._form == "json":
            told = json.loads(body)
            assert told["version"] == header, "header and answer name different versions"
            action = np.array(told["action"], np.float32)
        else:
            action = load(body)["action"]
        wanted = self._expected[version]
        assert np.array_equal(action, wanted), f"an action of version {version} is {action}, expected {wanted}"
        assert not self.versions or version >= self.versions[-1], f"{version} after {self.versions[-1]}"
        self.versions.append(version)

    def close(self) -> None:
        self._connection.close()


def ask_often(client: Client, count: int, tell: Any) -> None:
    """Ask so many times; tell about every few, and of a fault."""
    try:
        for number in range(1, count + 1):
            client.ask()
            if number % _TOLD_EVERY == 0:
                tell(_TOLD_EVERY)
        tell(count % _TOLD_EVERY)
    except Exception as error:  # of any kind: the process that waits for the figures receives it
        tell(f"{type(error).__name__}: {error}")
    finally:
        client.close()


def work(port: int, kinds: list[Kind], made: dict[int, tuple[Any, Any]], count: int, told: Any) -> None:
    """Be one process of clients; `made` has the observations and the expected actions by number of rows."""
    clients = [Client(port, kind, *made[kind.rows]) for kind in kinds]
    threads = [threading.Thread(target=ask_often, args=(client, count, told.put)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told.put({kind.name: (each.latency_s, each.versions) for kind, each in zip(kinds, clients, strict=True)})


def expectations(run: Run, train_iters: range) -> dict[int, tuple[np.ndarray, dict[int, np.ndarray]]]:
    """Return observations and, by iteration, the actions of its checkpoint for them, by number of rows."""
    rng, blueprint = np.random.default_rng(0), Blueprint(run.folder)
    paths = {train_iter: run.save(train_iter, name=f"copy_{train_iter}") for train_iter in train_iters}
    agents = {train_iter: blueprint.make(path) for train_iter, path in paths.items()}
    made = {}
    for rows in ROWS:
        obs = rng.normal(size=(rows, 3)).astype(np.float32)
        sent = obs[0] if rows == 1 else obs
        answers = {each: agent.act(*agent.read(question(sent))).action for each, agent in agents.items()}
        made[rows] = obs, {each: action[0] if rows == 1 else action for each, action in answers.items()}
    for each in (made[rows][1] for rows in ROWS):
        first, *others = each.values()
        assert not any(np.array_equal(first, other) for other in others), "equal actions would say nothing"
    return made


def start_server(folder: Path) -> tuple[subprocess.Popen[str], int]:
    """Return a process that serves, and its port."""
    command = [sys.executable, "-u", "-m", "ding_like.entry.cli", "serve", str(folder)]
    command += ["--checkpoint", "newest", "--reload-s", "0.05", "--import", "tests.serve.toy_envs"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sys.stderr, text=True, env=environment)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("at "):
            return process, int(line.rpartition(":")[2])
    raise RuntimeError("the server has ended before it served")


def measure(num_requests: int, num_reloads: int) -> dict[str, Any]:
    """Return the figures of one run. Raises AssertionError for any answer that is not what it should be."""
    with tempfile.TemporaryDirectory() as folder, training_process():
        run = Run(Path(folder) / "exp", "sac", dict(model=LAYERS), action="box")
        made = expectations(run, range(1, num_reloads + 2))
        run.save(1)
        server, port = start_server(run.folder)
        try:
            alone = {kind.name: _alone(port, kind, made) for kind in KINDS}
            told = _under_load(run, port, made, num_requests // len(KINDS), num_reloads)
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", "/health")
            health = json.loads(connection.getresponse().read())
            connection.close()
            server.send_signal(signal.SIGTERM)
            assert server.wait(300) == 128 + signal.SIGTERM
        finally:
            server.kill()
            server.communicate()
    assert health["requests"]["refused"] == 0
    return {"alone": alone, **told, "server": health["requests"], "loaded": health["reload"]["loaded"]}


def _alone(port: int, kind: Kind, made: dict[int, Any]) -> dict[str, float]:
    client = Client(port, kind, *made[kind.rows])
    for _ in range(ALONE):
        client.ask()
    client.close()
    return _percentiles(client.latency_s)


def _under_load(run: Run, port: int, made: dict[int, Any], count: int, num_reloads: int) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    told: Any = context.Queue()
    shares = [KINDS[number::PROCESSES] for number in range(PROCESSES)]
    processes = [context.Process(target=work, args=(port, kinds, made, count, told)) for kinds in shares]
    total, done, written = count * len(KINDS), 0, 1
    found: dict[str, tuple[list[float], list[int]]] = {}
    began, deadline = time.perf_counter(), time.monotonic() + DEADLINE_S
    for process in processes:
        process.start()
    try:
        while len(found) < len(KINDS):
            try:
                news = told.get(timeout=max(deadline - time.monotonic(), 0.0))
            except queue.Empty:
                raise AssertionError(f"only {done} of {total} answers in {DEADLINE_S:g} s") from None
            assert not isinstance(news, str), news
            if isinstance(news, dict):
                found.update(news)
                continue
            done += news
            if written <= num_reloads and done * (num_reloads + 1) >= written * total:
                written += 1
                run.save(written)
        wall_s = time.perf_counter() - began
    finally:
        for process in processes:
            process.join(10)
            process.kill()
    versions = sorted({version for _, each in found.values() for version in each})
    assert versions == list(range(1, num_reloads + 2)), f"answers are of the versions {versions}"
    return {
        "requests": sum(len(latency_s) for latency_s, _ in found.values()),
        "failed": 0,  # the first one would have ended this
        "reloads": written - 1,
        "answers_by_version": {
            str(version): sum(each.count(version) for _, each in found.values()) for version in versions
        },
        "wall_s": round(wall_s, 2),
        "kinds": {name: _percentiles(latency_s) for name, (latency_s, _) in sorted(found.items())},
    }


def _percentiles(latency_s: list[float]) -> dict[str, float]:
    p50, p99, most = (round(1000 * float(each), 3) for each in np.percentile(latency_s, (50, 99, 100)))
    return {"requests": len(latency_s), "p50_ms": p50, "p99_ms": p99, "max_ms": most}


def main() -> None:
    """Parse the command line, measure and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serve_load", description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--reloads", type=int, default=5)
    parser.add_argument("--out", type=Path, help="where to write the figures; they are printed in any case")
    parser.add_argument("--allow-dirty", action="store_true", help="record a tree that differs from its commit too")
    args = parser.parse_args()
    try:
        code = provenance(allow_dirty=args.allow_dirty or args.out is None)
    except DirtyTreeError as error:
        sys.exit(f"benchmarks.serve_load: {error}")
    found = measure(args.requests, args.reloads)
    machine = {"cpus": os.cpu_count(), "python": sys.version.split()[0], "torch": torch.__version__}
    text = json.dumps({**code.to_plain(), "machine": machine, **found}, indent=1)
    sys.stdout.write(text + "\n")
    if args.out is not None:
        args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
