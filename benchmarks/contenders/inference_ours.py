"""Actors that act: by central inference (proxy and server in processes of their own), or each by a network of its own.

The same processes step the same envs and make the same choices; only where the network runs differs. Nothing is stored
and nothing learned. Processor time is that of all processes.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from benchmarks.common import emit, emit_versions  # isort: skip  (pins the threads first)

from benchmarks.contenders import ray_work as work
from benchmarks.contenders.ray_work import Run, mark

if TYPE_CHECKING:
    from benchmarks.contenders.inference_central import Central

MODULE = "inference_ours"
_MIB = 1 << 20
_WARMUP = 0.25  # part of the observations before the clock


def run_inside(args: argparse.Namespace) -> None:
    """Act on `args.steps` observations after a warm-up, and say where the clock is to be read."""
    import numpy as np

    from benchmarks.contenders.inference_actors import Actors, Reach, Sizes, own_network
    from benchmarks.processes import own_cpu_s

    work.be_measured()
    with ExitStack() as stack:
        server: Central | None = None
        if args.inference == "central":
            from benchmarks.contenders.inference_central import central

            server = stack.enter_context(
                central(
                    args.network,
                    lanes=args.lanes,
                    batchsize=args.batchsize,
                    delay_s=args.delay_s,
                    device=args.device,
                )
            )
        reach: Reach = own_network if server is None else server.reach
        actors = stack.enter_context(
            Actors(args.processes, threads=args.threads, network=args.network, lanes=args.lanes, reach=reach)
        )
        pids = {"actors": actors.pids}
        if server is not None:
            pids |= {name: [pid] for name, pid in server.pids.items()}
        actors.wait_for(int(_WARMUP * args.steps))
        before = server.sizes() if server is not None else Sizes(0, 0)
        used_s = {name: own_cpu_s(each) for name, each in pids.items()}
        actors.measure(True)
        mark("started", observations=(begun := actors.observations))
        actors.wait_for(begun + args.steps)
        acted = actors.observations
        mark("acted", observations=acted)
        actors.measure(False)
        used_s = {name: own_cpu_s(each) - used_s[name] for name, each in pids.items()}
        batch = args.lanes if server is None else server.mean_batch(since=before)
        milliseconds = 1000 * np.percentile(actors.latencies_s(), [50, 99])
    mark("told", mean_batch=batch, p50_ms=milliseconds[0], p99_ms=milliseconds[1], cpu_s=used_s)


def report(run: Run) -> None:
    """Print rates between the marks `started` and `acted`, and what was said of batches and latencies."""
    started, acted, told = run.marks["started"], run.marks["acted"], run.marks["told"].facts
    observations = acted.facts["observations"] - started.facts["observations"]
    emit("observations_cpu", round(observations / (acted.cpu_s - started.cpu_s), 1), "obs/cpu-s")
    emit("observations_wall", round(observations / (acted.wall_s - started.wall_s), 1), "obs/s")
    emit("mean_batch", round(told["mean_batch"], 2), "obs")
    emit("latency_p50", round(told["p50_ms"], 3), "ms")
    emit("latency_p99", round(told["p99_ms"], 3), "ms")
    for name, used_s in told["cpu_s"].items():
        emit(f"cpu_{name}", round(1e6 * used_s / observations, 1), "us/obs")
    emit("startup", round(started.wall_s, 2), "s")
    emit("peak_memory", round(run.memory_bytes / _MIB, 1), "MiB")
    emit("cpu_counted_by_kernel", int(run.how == "cgroup"), "")
    emit("processes_left", len(run.killed), "")
    if run.killed:
        sys.stderr.write(f"had not ended after the run: {', '.join(run.killed)}\n")


def main() -> None:
    """Run in a group whose processor time is counted, or inside it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--inference", choices=["central", "local"], required=True)
    parser.add_argument("--network", choices=["cnn", "mlp"], required=True)
    parser.add_argument("--processes", type=int, required=True, help="of actors")
    parser.add_argument("--threads", type=int, default=1, help="actors in each")
    parser.add_argument("--lanes", type=int, required=True, help="envs of each")
    parser.add_argument("--batchsize", type=int, default=0, help="inference_batchsize of the server")
    parser.add_argument("--delay-s", type=float, default=0.0, help="inference_delay of the server")
    parser.add_argument("--device", default="cpu", help="inference_device of the server (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=16_000, help="observations between the marks")
    parser.add_argument("--timeout-s", type=float, default=280.0, help="seconds after which a run is killed")
    args = parser.parse_args()
    if args.inside:
        run_inside(args)
        return
    given = ["--inference", args.inference, "--network", args.network, "--processes", str(args.processes)]
    given += ["--threads", str(args.threads)]
    given += ["--lanes", str(args.lanes), "--steps", str(args.steps)]
    given += ["--device", args.device, "--batchsize", str(args.batchsize), "--delay-s", str(args.delay_s)]
    report(work.run_measured(work.inside(MODULE, given), timeout_s=args.timeout_s))
    emit_versions("torch", "numpy", "gymnasium", "pyzmq")


if __name__ == "__main__":
    main()
