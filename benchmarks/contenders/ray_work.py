"""What contenders on Ray share: the work, and how all processes of a run are measured from outside.

A contender runs twice: as itself it starts itself again, with `--inside`, in a group whose processor time is counted
(`benchmarks.processes`): driver, Ray's daemons, workers, all that they start. What runs inside says by `mark` where it
is, and waits until the time has been read.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from benchmarks.common import emit, emit_versions
from benchmarks.processes import Group, Measured

# PPO: 8 lanes of 128 steps, 4 epochs of 4 minibatches of 256.
LANES, LANE_STEPS, EPOCHS, MINIBATCHES = 8, 128, 4, 4
BATCH = LANES * LANE_STEPS
UPDATES = EPOCHS * MINIBATCHES  # of a batch
SOLVED = 475.0  # mean return of `EPISODES` fresh episodes, played greedily
EPISODES = 20
WORK_STEPS = 60 * BATCH
LIMIT_STEPS = 100_000  # when solving is given up

_MARKS = "BENCH_MARKS"  # the descriptors of the two pipes, where a run is measured
_END_S = 30.0  # in which all processes are to have ended after the run
_MIB = 1 << 20
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class Mark(NamedTuple):
    """Readings at the time of a mark of a run."""

    wall_s: float  # since the start of the command
    cpu_s: float
    facts: dict[str, Any]  # JSON that came with it


def mark(name: str, **facts: Any) -> None:
    """Mark a point of this run, and wait until the benchmark has read the time; without a benchmark nothing happens."""
    if (pipes := os.environ.get(_MARKS)) is None:
        return
    to, back = (int(each) for each in pipes.split())
    os.write(to, (json.dumps({"name": name, **facts}) + "\n").encode())
    if os.read(back, 1) != b"\n":
        raise RuntimeError("the benchmark that measures this run has ended")


def be_measured() -> None:
    """Keep the pipes of `mark` out of processes that this one starts, and end with the benchmark."""
    if (pipes := os.environ.get(_MARKS)) is None:
        return
    for each in pipes.split():
        os.set_inheritable(int(each), False)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Run(NamedTuple):
    """Cost of a run in all its processes."""

    marks: dict[str, Mark]
    wall_s: float
    cpu_s: float  # from the start until the last process had ended
    memory_bytes: int  # the most at a time
    how: str  # how processor time was counted
    killed: list[str]  # what had not ended in time


def run_measured(command: Sequence[str], *, timeout_s: float, group: Group | None = None) -> Run:
    """Run a command that says by `mark` where it is. Raises RuntimeError if it fails or takes too long."""
    to, from_ = os.pipe(), os.pipe()
    env = {**os.environ, _MARKS: f"{to[1]} {from_[0]}"}
    marks: dict[str, Mark] = {}
    # Lines of the run itself are no measurements: they go where errors go.
    measured = Measured(command, group=group, env=env, pass_fds=(to[1], from_[0]), stdout=sys.stderr)
    os.close(to[1])
    os.close(from_[0])
    with os.fdopen(to[0]) as lines, os.fdopen(from_[1], "wb", buffering=0) as answers:
        timer = _end_after(measured, timeout_s)
        for line in lines:  # ends with the process, which alone has the other end
            cpu_s, wall_s = measured.group.cpu_s(), time.perf_counter() - measured.started_s
            facts = json.loads(line)
            marks[facts.pop("name")] = Mark(wall_s, cpu_s, facts)
            answers.write(b"\n")
        status = measured.process.wait()
        wall_s = time.perf_counter() - measured.started_s
        timer.cancel()
    killed = measured.end(timeout_s=_END_S if status == 0 else 0.0)
    if status:
        raise RuntimeError(f"{' '.join(command)} ended with status {status}, after {wall_s:.0f} s of {timeout_s:.0f}")
    return Run(marks, wall_s, measured.cpu_s, measured.most_memory_bytes, measured.group.how, killed)


def _end_after(measured: Measured, timeout_s: float) -> threading.Timer:
    timer = threading.Timer(timeout_s, measured.process.kill)
    timer.daemon = True
    timer.start()
    return timer


def inside(module: str, args: Sequence[str]) -> list[str]:
    """Return the command that runs a contender's work within the group."""
    return [sys.executable, "-m", f"benchmarks.contenders.{module}", "--inside", *args]


def report_work(run: Run) -> None:
    """Print rates between the marks `started` and `trained`, what came before, and the memory of all."""
    started, trained = run.marks["started"], run.marks["trained"]
    steps = trained.facts["env_steps"] - started.facts["env_steps"]
    updates = trained.facts["updates"] - started.facts["updates"]
    emit("env_steps_cpu", round(steps / (trained.cpu_s - started.cpu_s), 1), "steps/cpu-s")
    emit("env_steps_wall", round(steps / (trained.wall_s - started.wall_s), 1), "steps/s")
    emit("peak_memory", round(run.memory_bytes / _MIB, 1), "MiB")
    emit("startup_cpu", round(started.cpu_s, 2), "cpu-s")
    emit("startup", round(started.wall_s, 2), "s")
    emit("updates_per_batch", round(updates * BATCH / steps, 3), "")
    _report_group(run)


def report_solve(run: Run) -> None:
    """Print what it took until `SOLVED`, from the start of the command until its last process had ended.

    A run that gave up at a limit of env steps or seconds prints `solved` 0: solving would take more than it took.
    """
    done = run.marks["done"].facts
    emit("cpu_to_475", round(run.cpu_s, 2), "cpu-s")
    emit("wall_to_475", round(run.wall_s, 2), "s")
    emit("solved", int(done["solved"]), "")
    emit("env_steps", done["env_steps"], "")
    emit("mean_return", round(done["mean_return"], 1), "")
    emit("peak_memory", round(run.memory_bytes / _MIB, 1), "MiB")
    _report_group(run)


def parse(description: str | None, *, solve: Collection[str]) -> argparse.Namespace:
    """Return the arguments that contenders on Ray take; `solve` are the algorithms that can be run until solved."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, required=True, help="processes that collect; 0: the driver does")
    parser.add_argument("--solve", choices=solve, help="train until solved, instead of the same work")
    parser.add_argument("--steps", type=int, help="env steps: of the work, or at most until solved")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("BENCH_ROUND", "0")))
    parser.add_argument("--limit-s", type=float, default=200.0, help="seconds after which solving is given up")
    parser.add_argument("--timeout-s", type=float, default=280.0, help="seconds after which a run is killed")
    args = parser.parse_args()
    if args.steps is None:
        args.steps = WORK_STEPS if args.solve is None else LIMIT_STEPS
    if args.solve is None:
        args.steps = max(args.steps, 2 * BATCH)  # the first batch comes before the clock
    return args


def run(
    module: str,
    description: str | None,
    run_inside: Callable[[argparse.Namespace], None],
    *,
    solve: Collection[str],
) -> None:
    """Be a contender's program: run in a group, or inside it, and print what was measured."""
    args = parse(description, solve=solve)
    if args.inside:
        run_inside(args)
        return
    measure(module, args)
    emit_versions("ray", "torch", "numpy", "gymnasium")


def measure(module: str, args: argparse.Namespace) -> None:
    """Run a contender's work in a group, and print what it took."""
    given = ["--workers", str(args.workers)]
    given += ["--steps", str(args.steps), "--seed", str(args.seed)]
    if args.solve is not None:
        given += ["--solve", args.solve, "--limit-s", str(args.limit_s)]
    run = run_measured(inside(module, given), timeout_s=args.timeout_s)
    (report_work if args.solve is None else report_solve)(run)


def _report_group(run: Run) -> None:
    emit("cpu_counted_by_kernel", int(run.how == "cgroup"), "")
    emit("processes_left", len(run.killed), "")
    if run.killed:
        sys.stderr.write(f"had not ended {_END_S:g} s after the run: {', '.join(run.killed)}\n")
