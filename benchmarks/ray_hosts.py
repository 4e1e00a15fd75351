"""Measure what a host of workers costs on Ray, with threads beside it: deaths, control calls, weights, calls.

python -m benchmarks.ray_hosts --out docs/reports/ray_hosts.json

A death is a `kill -9` from here until `wait` returns; a control call is made while the worker's call runs pure Python,
which keeps the interpreter's lock; weights are 10 MB of float32 to four workers, until all have taken them.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.provenance import provenance
from ding_like.comm.channels import Version, Weights
from ding_like.comm.ray.cluster import RayCluster
from ding_like.comm.ray.host import RayHost, RayWorker
from ding_like.comm.ray.library import load_ray
from ding_like.comm.ray.own_cluster import Amounts
from ding_like.comm.workers.host import Call, Host, Resources, WorkerHandle, WorkerLostError
from ding_like.comm.workers.threads import ThreadHost
from ding_like.comm.workers.weights import HostWeightPublisher, HostWeightReader
from ding_like.pipeline.build.process import prepare_worker

_WAIT_S = 120.0
_SMALL = Resources(num_cpus=0.1)
_READERS = 4
_TENSORS = 8


class Busy(HostWeightReader):
    """Compute in pure Python until it is stopped."""

    def __init__(self) -> None:
        super().__init__()
        self._is_stopped = False

    def ping(self) -> None: ...

    def compute(self) -> int:
        number = 0
        self._is_stopped = False
        while not self._is_stopped:
            number = (number * 1103515245 + 12345) % 2147483648
        return number

    def stop(self) -> None:
        self._is_stopped = True


class Rig:
    """Start workers of a host and time their calls."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._number = 0

    def start(self) -> Any:
        self._number += 1
        worker = self.host.start(Busy, name=f"worker{self._number}", resources=_SMALL)
        self.outcome(worker.call("ping"))
        return worker

    def outcome(self, call: Call) -> Any:
        assert self.host.wait([call], timeout_s=_WAIT_S) == [call]
        return call.result()

    def compute(self, worker: WorkerHandle) -> Call:
        """Have a worker compute, and return when it has begun to."""
        call = worker.call("compute")
        assert self.host.wait([call], timeout_s=0.05) == []
        return call

    def end(self, workers: Sequence[WorkerHandle], calls: Sequence[Call]) -> None:
        for worker in workers:
            self.outcome(worker.control("stop"))
        for call in calls:
            self.outcome(call)


def time_ms(do: Callable[[], Any]) -> float:
    started = time.perf_counter()
    do()
    return (time.perf_counter() - started) * 1e3


def summed_up(times_ms: Sequence[float]) -> dict[str, float]:
    """Return the figures of a measure, in ms."""
    p50, p95 = np.percentile(times_ms, [50, 95])
    found = {"least": min(times_ms), "p50": p50, "p95": p95, "most": max(times_ms)}
    return {**{name: round(float(value), 3) for name, value in found.items()}, "number": len(times_ms)}


def death(rig: Rig, *, is_busy: bool) -> float:
    """Return the ms until the death of a worker is known, an idle one's or one's that computes."""
    worker: RayWorker = rig.start()
    process = worker.process
    assert process is not None
    call = rig.compute(worker) if is_busy else worker.ended
    started = time.perf_counter()
    os.kill(process.pid, signal.SIGKILL)
    assert rig.host.wait([call], timeout_s=_WAIT_S) == [call]
    found = time.perf_counter() - started
    try:
        call.result()
    except WorkerLostError:
        return found * 1e3
    raise AssertionError("the worker was killed, and its call has a result")


def controls(rig: Rig, number: int) -> list[float]:
    """Return the ms of control calls of a worker that computes."""
    worker = rig.start()
    call = rig.compute(worker)
    times = [time_ms(lambda: rig.outcome(worker.control("ping"))) for _ in range(number)]
    rig.end([worker], [call])
    rig.host.kill(worker)
    return times


def calls(rig: Rig, number: int) -> list[float]:
    """Return the ms of calls that do nothing, one after another."""
    worker = rig.start()
    times = [time_ms(lambda: rig.outcome(worker.call("ping"))) for _ in range(number)]
    rig.host.kill(worker)
    return times


def publications(rig: Rig, number: int, nbytes: int, *, is_busy: bool) -> list[float]:
    """Return the ms until all workers have taken weights of `nbytes`; they idle, or compute."""
    workers = [rig.start() for _ in range(_READERS)]
    publisher = HostWeightPublisher(rig.host, lambda: workers)
    under_way = [rig.compute(worker) for worker in workers] if is_busy else []
    state = {f"part {each}": torch.randn(nbytes // 4 // _TENSORS) for each in range(_TENSORS)}

    def publish(update: int) -> None:
        receipt = publisher.publish(Weights("policy", Version(1, update), state), wait_s=_WAIT_S)
        assert len(receipt.delivered) == _READERS, receipt

    publish(1)  # the first makes the layout, on both sides
    times = [time_ms(lambda update=update: publish(update)) for update in range(2, number + 2)]  # type: ignore[misc]
    rig.end(workers if is_busy else [], under_way)
    publisher.close()
    for worker in workers:
        rig.host.kill(worker)
    return times


def measure(rig: Rig, settings: argparse.Namespace, *, has_processes: bool) -> dict[str, Any]:
    """Return all figures of a host, in ms, and print each as it comes."""
    measures: dict[str, Callable[[], list[float]]] = {
        "call": lambda: calls(rig, settings.calls),
        "control call while the worker computes": lambda: controls(rig, settings.controls),
        f"weights to {_READERS} idle workers": lambda: publications(
            rig, settings.publications, settings.nbytes, is_busy=False
        ),
        f"weights to {_READERS} workers that compute": lambda: publications(
            rig, settings.publications, settings.nbytes, is_busy=True
        ),
    }
    if has_processes:
        measures["kill -9 of an idle worker is known"] = lambda: [
            death(rig, is_busy=False) for _ in range(settings.kills)
        ]
        measures["kill -9 of a worker that computes is known"] = lambda: [
            death(rig, is_busy=True) for _ in range(settings.kills)
        ]
    found = {}
    for name, each in measures.items():
        found[name] = summed_up(each())
        print(f"  {name}: {json.dumps(found[name])}", flush=True)
    return found


def run(settings: argparse.Namespace) -> dict[str, Any]:
    """Measure both hosts, each alone."""
    torch.set_num_threads(1)
    found = {}
    with ExitStack() as stack:
        threads = ThreadHost()
        stack.callback(threads.close)
        print("threads", flush=True)
        found["threads"] = measure(Rig(threads), settings, has_processes=False)
    with ExitStack() as stack:
        stack.enter_context(RayCluster(amounts=Amounts(num_cpus=4, object_store_bytes=2**30)))
        host = RayHost(prepare=prepare_worker)
        stack.callback(host.close)
        print("ray", flush=True)
        found["ray"] = measure(Rig(host), settings, has_processes=True)
    return found


def summary(found: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a table: what was measured on Ray, and what it is to stay below."""
    bars = {"kill -9 of an idle worker is known": 50.0, "kill -9 of a worker that computes is known": 50.0}
    rows = []
    for name, each in found["ray"].items():
        row = {"what": f"{name} (Ray)", "n": each["number"], "p50_ms": each["p50"], "p95_ms": each["p95"]}
        row["worst_ms"] = each["most"]
        rows.append({**row, "bar_ms": bars[name]} if name in bars else row)
    return rows


def main() -> None:
    """Measure, and write the figures to a file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ray_hosts", description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="deaths of each kind")
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--controls", type=int, default=100)
    parser.add_argument("--publications", type=int, default=50)
    parser.add_argument("--nbytes", type=int, default=10_000_000, help="of the weights")
    parser.add_argument("--allow-dirty", action="store_true", help="also from a tree that differs from its commit")
    parser.add_argument("--out", help="a file to write the figures to")
    settings = parser.parse_args()
    code = provenance(allow_dirty=settings.allow_dirty or not settings.out)
    names = ("kills", "calls", "controls", "publications", "nbytes")
    found = run(settings)
    record = {
        **code.to_plain(),
        "setting": {name: getattr(settings, name) for name in names},
        "cpus": os.cpu_count(),
        "ray": load_ray().__version__,
        "milliseconds": found,
        "summary": summary(found),
    }
    if settings.out:
        Path(settings.out).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
