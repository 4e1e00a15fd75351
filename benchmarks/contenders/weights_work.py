"""The work of the `weights_*` benchmarks, the same for all: a module's weights go to four workers, version by version.

The clock of a version runs from the call that sends it until this process knows that all four workers have it loaded
into their modules; the update of the weights before it is not counted. Each worker checks what it has loaded: the first
number of each tensor in every version, all numbers in the last. Imports none of our modules but the clock's.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from benchmarks.common import Clock, emit, emit_versions  # isort: skip  (pins the threads first)

import torch
from torch import nn

NUM_WORKERS = 4
DEADLINE_S = 60.0  # for anything that is waited for
_VERSIONS = {10: 40, 100: 12}  # timed, by megabytes
_WARM_VERSIONS = 3
_NUM_LAYERS = 24
_MAKING = threading.Lock()


class Way(Protocol):
    """Carry weights; workers get a copy of it before anything is opened, so it holds what they need to join."""

    in_process: bool  # workers are threads of the sender's process
    acknowledges: bool  # `send` returns when all have the weights, and there is no place to call `applied`

    def prepare(self, module: nn.Module, context: Any) -> None:
        """Make what workers are to inherit; `context` is that of the processes."""

    def receive(self, index: int, module: nn.Module, applied: Callable[[], None], done: Any) -> None:
        """Be worker `index`: load one version after another, calling `applied` after each, until `done` is set.

        Return after the last version too: the number of versions is `self.num_versions`.
        """

    def open(self, module: nn.Module) -> None:
        """Meet the workers, which run by now."""

    def send(self, module: nn.Module, version: int) -> None:
        """Send the module's weights to all workers."""

    def close(self) -> None:
        """Release what the sender holds."""


class Base:
    """Base of most transports."""

    in_process = False
    acknowledges = False
    num_versions = 0

    def prepare(self, module: nn.Module, context: Any) -> None: ...

    def open(self, module: nn.Module) -> None: ...

    def close(self) -> None: ...


def make_module(megabytes: int) -> nn.Module:
    """Return a module of about this size in float32: three convolutions and layers of equal width."""
    with _MAKING:  # in threads too, each module begins with the same numbers
        return _make_module(megabytes)


def _make_module(megabytes: int) -> nn.Module:
    torch.manual_seed(0)
    convolutions = [nn.Conv2d(4, 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3, 1)]
    left = megabytes * 250_000 - sum(each.numel() for layer in convolutions for each in layer.parameters())
    width = int((left / _NUM_LAYERS) ** 0.5)
    module = nn.Sequential(*convolutions, *(nn.Linear(width, width) for _ in range(_NUM_LAYERS)))
    return module.requires_grad_(False)


class Expected:
    """Weights of each version: those of the seed, and the version added to each."""

    def __init__(self, module: nn.Module) -> None:
        self._state = {name: each.clone() for name, each in module.state_dict().items()}
        self._first = torch.stack([each.flatten()[0] for each in self._state.values()])

    def put(self, module: nn.Module, version: int) -> None:
        """Give a module the weights of a version."""
        for name, each in module.state_dict().items():
            torch.add(self._state[name], version, out=each)

    def check(self, module: nn.Module, version: int, *, all_numbers: bool = False) -> None:
        """Raise RuntimeError unless a module has the weights of a version."""
        found = module.state_dict()
        is_equal = torch.equal(torch.stack([each.flatten()[0] for each in found.values()]), self._first + version)
        if all_numbers:
            is_equal &= all(torch.equal(each, self._state[name] + version) for name, each in found.items())
        if not is_equal:
            raise RuntimeError(f"a worker has not got the weights of version {version}")


def _work(way: Way, index: int, megabytes: int, signals: _Signals) -> None:
    """Be one worker."""
    torch.set_num_threads(1)
    module = make_module(megabytes)
    expected = Expected(module)
    version = 0

    def applied() -> None:
        nonlocal version
        version += 1
        signals.applied.release()
        expected.check(module, version)

    signals.ready.release()
    way.receive(index, module, applied, signals.done)
    expected.check(module, signals.last, all_numbers=True)
    signals.right.release()


class _Signals:
    """Channels between the sender and its workers."""

    def __init__(self, context: Any, last: int) -> None:
        self.ready, self.applied, self.right = (context.Semaphore(0) for _ in range(3))
        self.done = context.Event()
        self.last = last

    def wait(self, semaphore: Any, what: str) -> None:
        """Wait until all workers have released a semaphore. Raises TimeoutError if one has not in time."""
        for number in range(NUM_WORKERS):
            if not semaphore.acquire(timeout=DEADLINE_S):
                raise TimeoutError(f"{number} of {NUM_WORKERS} workers {what} within {DEADLINE_S:g} s")


class _Threads:
    """Context of workers that are threads."""

    Semaphore = staticmethod(threading.Semaphore)
    Event = staticmethod(threading.Event)

    @staticmethod
    def Process(**settings: Any) -> threading.Thread:  # noqa: N802  (as multiprocessing has it)
        return threading.Thread(**settings)


def _context(preload: Sequence[str]) -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.contenders.weights_work", *preload])
    return context


def _time(way: Way, module: nn.Module, expected: Expected, signals: _Signals, clock: Clock) -> dict[str, list[float]]:
    """Send all versions and return, for each that is timed, the milliseconds."""
    found: dict[str, list[float]] = {"applied": [], "blocked": [], "cpu": []}
    for version in range(1, signals.last + 1):
        expected.put(module, version)
        if version == _WARM_VERSIONS + 1:
            clock.start()
        began_cpu, began = time.process_time(), time.perf_counter()
        way.send(module, version)
        returned = time.perf_counter()
        if not way.acknowledges:
            signals.wait(signals.applied, f"have loaded version {version}")
        ended, ended_cpu = time.perf_counter(), time.process_time()
        if version > _WARM_VERSIONS:
            found["applied"].append((ended - began) * 1e3)
            found["blocked"].append((returned - began) * 1e3)
            found["cpu"].append((ended_cpu - began_cpu) * 1e3)
    clock.stop()
    return found


def main(makers: dict[str, Callable[[], Way]], packages: Sequence[str], preload: Sequence[str] = ()) -> None:
    """Time one way; `preload` names modules that worker processes import."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--way", required=True, choices=makers)
    parser.add_argument("--megabytes", type=int, required=True)
    parser.add_argument("--steps", type=int, help="versions that are timed (default: by the size)")
    parser.add_argument("--profile", action="store_true", help="print where the sender's time goes")
    args = parser.parse_args()
    torch.set_num_threads(1)
    module = make_module(args.megabytes)
    expected, way, clock = Expected(module), makers[args.way](), Clock(profile=args.profile)
    way.num_versions = _WARM_VERSIONS + (args.steps or _VERSIONS.get(args.megabytes, 20))
    context = _Threads() if way.in_process else _context(preload)
    signals = _Signals(context, way.num_versions)
    way.prepare(module, context)
    workers = [
        context.Process(target=_work, args=(way, index, args.megabytes, signals), daemon=True)
        for index in range(NUM_WORKERS)
    ]
    for worker in workers:
        worker.start()
    try:
        signals.wait(signals.ready, "have started")
        way.open(module)
        found = _time(way, module, expected, signals, clock)
        signals.done.set()
        signals.wait(signals.right, "have the right weights in the end")
    finally:
        way.close()
        _end(workers)
    if args.profile:
        clock.show_profile()
        return
    median = statistics.median(found["applied"])
    emit("versions_per_s", round(1e3 / median, 3), "versions/s")
    emit("applied_p50", round(median, 3), "ms")
    emit("applied_least", round(min(found["applied"]), 3), "ms")
    emit("send_blocks_p50", round(statistics.median(found["blocked"]), 3), "ms")
    emit("sender_cpu_p50", round(statistics.median(found["cpu"]), 3), "cpu-ms")
    emit_versions(*packages, "torch", "numpy")


def _end(workers: Sequence[Any]) -> None:
    """Leave no process behind, whatever has happened."""
    for worker in workers:
        worker.join(10.0)
        if worker.is_alive() and hasattr(worker, "kill"):
            worker.kill()
            worker.join()
