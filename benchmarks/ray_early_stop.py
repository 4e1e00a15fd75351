"""Stop collectors on Ray before they have finished: how long it takes, and what a slow one costs.

python -m benchmarks.ray_early_stop --out docs/reports/ray_early_stop.json [--stops 300] [--rounds 30]

`stop`: two workers collect in 8 CartPoles each; after a random while both are told to stop, and the clock runs from the
order until the rows of each are back and read. `slow`: four workers in an env that waits 2 ms a step, in one case one
of them waits 20 ms; a round ends once 3 of 4 have their share. Rounds of both cases alternate.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.provenance import DirtyTreeError, provenance
from ding_like.comm.channels import Order
from ding_like.comm.workers.calls import WorkerCalls
from ding_like.comm.workers.host import Host, WorkerHandle
from ding_like.config import compile_config
from ding_like.pipeline.build.collect_end import segment_of
from ding_like.pipeline.build.factories import SchemeFactories
from ding_like.pipeline.build.process import prepare_worker
from ding_like.pipeline.ray.c_worker_set import CWorkerSet
from ding_like.pipeline.ray.collection import Remote, SynchronousCollection
from ding_like.pipeline.roles.loaded_weights import UNTRAINED

ROOT = Path(__file__).parents[1]
FAST = "tests.pipeline.ray.sleeping_env:SleepingCartPole-v0"
SLOW = "tests.pipeline.ray.sleeping_env:TenfoldSleepingCartPole-v0"
STOP_BAR_MS = 50.0
SLOW_BAR = 1.2
SHARE = 150  # rows of each worker in a round of `slow`
FRACTION_WORKERS = 0.75
_ANSWER_S = 60.0


@dataclass(frozen=True)
class UnevenEnvs:
    """Make envs by one factory, and those of one worker by another."""

    most: Callable[..., Any]
    one: Callable[..., Any]
    index: int

    def __call__(self, device: Any, index_worker: int, index_parent: int) -> Any:
        make = self.one if index_worker == self.index else self.most
        return make(device, index_worker, index_parent)


def factories(env_id: str, *, lanes: int, folder: Path) -> SchemeFactories:
    """Return what makes collectors of a small PPO in `lanes` envs each."""
    main = dict(
        exp_name=str(folder / "run"),
        env=dict(env_id=env_id, collector_env_num=lanes, evaluator_env_num=1, n_evaluator_episode=1),
        policy=dict(learn=dict(batch_size=64), collect=dict(n_sample=128)),
    )
    create = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="ppo"))
    return SchemeFactories.of(compile_config(main, create, seed=0), seed=0)


def collectors(
    host: Host, made: SchemeFactories, *, number: int, kind: str, least: float, train_envs: Callable[..., Any]
) -> CWorkerSet:
    """Start workers that may stop once a fraction `least` of what they are to collect is there."""
    return CWorkerSet(
        number, 0, made.algo, made.actor, made.storage,
        fraction_samples=least, train_envs_factory=train_envs, worker_remote_config={"num_cpus": 1},
        host=host, kind=kind, standby=0,
    )  # fmt: skip


def time_stops(host: Host, workers: Sequence[WorkerHandle], *, stops: int, rng: np.random.Generator) -> list[float]:
    """Return the milliseconds from each order to stop until the rows of each worker were back and read."""
    found = []
    for number in range(1, stops + 1):
        order = Order(False, 10**7, 0, UNTRAINED)
        calls = [each.call("collect_data", listen_to=(("sync", number),), order=order) for each in workers]
        time.sleep(rng.uniform(0.02, 0.2))
        ordered_s = time.perf_counter()
        for each in workers:
            each.control("stop_collecting", number)
        while calls:
            done = host.wait(calls, timeout_s=_ANSWER_S)
            if not done:
                raise TimeoutError(f"stop {number}: no rows after {_ANSWER_S:g} s")
            for call in done:
                segment_of(*call.result())
                found.append(1000 * (time.perf_counter() - ordered_s))
            calls = [call for call in calls if call not in done]
    return found


class Round:
    """Collect round by round from a set of workers, as a scheme does, and note what came of each."""

    def __init__(self, host: Host, collecting: CWorkerSet, *, fraction_workers: float) -> None:
        self.seconds: list[float] = []
        self.rows: list[list[int]] = []  # of each worker, by round
        report = SimpleNamespace(note_round=self.seconds.append, setting={})
        intake: Any = SimpleNamespace(report=report, newest=lambda: UNTRAINED, put=self._put)
        calls = WorkerCalls(host, collecting.pool, step_timeout_s=_ANSWER_S)
        remote = Remote(
            collecting.pool, calls, intake, lambda wait_s: [], lambda: False, fraction_workers=fraction_workers
        )
        self._collection = SynchronousCollection(remote)
        self._num = len(collecting.remote_workers())

    def __call__(self) -> None:
        self._collection.collect(Order(False, self._num * SHARE, 0, UNTRAINED))

    def _put(self, parts: Any, order: Order) -> Order:
        self.rows.append([len(part.segment.batch) for part in parts])
        return order


def measure_stops(host: Host, folder: Path, *, stops: int) -> list[float]:
    """Return how long stops took, in milliseconds."""
    made = factories("CartPole-v1", lanes=8, folder=folder)
    with ExitStack() as stack:
        workers = collectors(host, made, number=2, kind="stopped", least=1e-6, train_envs=made.train_envs)
        stack.callback(workers.stop)
        rng = np.random.default_rng(0)
        time_stops(host, workers.remote_workers(), stops=3, rng=rng)
        return time_stops(host, workers.remote_workers(), stops=stops, rng=rng)


def measure_slow(host: Host, folder: Path, *, rounds: int) -> dict[str, dict[str, Any]]:
    """Return seconds of rounds and rows of each worker: all alike, one slow, one slow without early stop."""
    fast, slow = (factories(env_id, lanes=1, folder=folder) for env_id in (FAST, SLOW))
    uneven = UnevenEnvs(fast.train_envs, slow.train_envs, index=4)
    with ExitStack() as stack:
        alike, one_slow = (
            collectors(host, fast, number=4, kind=kind, least=0.05, train_envs=envs)
            for kind, envs in (("alike", fast.train_envs), ("uneven", uneven))
        )
        stack.callback(alike.stop)
        stack.callback(one_slow.stop)
        # First, as nobody is told to stop in it: round numbers begin again with the next case.
        waiting = Round(host, one_slow, fraction_workers=1.0)
        for _ in range(max(1, rounds // 10)):
            waiting()
        cases = {
            "alike": Round(host, alike, fraction_workers=FRACTION_WORKERS),
            "one slow": Round(host, one_slow, fraction_workers=FRACTION_WORKERS),
        }
        for number in range(rounds + 1):
            for case in cases.values():
                case()
                if number == 0:  # the first round resets the envs
                    case.seconds.clear()
                    case.rows.clear()
        cases["one slow, all waited for"] = waiting
        return {
            name: {"seconds": [round(each, 4) for each in case.seconds], "rows": case.rows}
            for name, case in cases.items()
        }


def summary_of(stops: Sequence[float], slow: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of docs/ray.md."""
    medians = {name: 1000 * statistics.median(case["seconds"]) for name, case in slow.items()}
    rows = [dict(what="collectors are told to stop, until their rows are back", bar_ms=STOP_BAR_MS, **spread(stops))]
    for name, case in slow.items():
        what = f"a round of 4 workers: {name}"
        row = dict(what=what, **spread([1000 * each for each in case["seconds"]]))
        if name == "one slow":
            row |= dict(bar_ms=round(SLOW_BAR * medians["alike"], 1), bar_of="p50_ms")
        rows.append(row)
    return rows


def spread(times_ms: Sequence[float]) -> dict[str, Any]:
    """Return how many times there are, their median, 95th percentile and worst."""
    p50, p95 = (round(float(np.percentile(times_ms, each)), 2) for each in (50, 95))
    return dict(n=len(times_ms), p50_ms=p50, p95_ms=p95, worst_ms=round(max(times_ms), 2))


def run(host: Host, folder: Path, *, stops: int, rounds: int) -> dict[str, Any]:
    """Return the report's figures."""
    times_ms, slow = measure_stops(host, folder, stops=stops), measure_slow(host, folder, rounds=rounds)
    ratio = statistics.median(slow["one slow"]["seconds"]) / statistics.median(slow["alike"]["seconds"])
    setting = dict(stops=stops, rounds=rounds, rows_each=SHARE, fraction_workers=FRACTION_WORKERS, slow_times=10)
    return dict(
        setting=setting,
        summary=summary_of(times_ms, slow),
        slow_ratio=dict(value=round(ratio, 3), bar=SLOW_BAR, is_met=ratio <= SLOW_BAR),
        rounds=slow,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--stops", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--allow-dirty", action="store_true")
    args = parser.parse_args()
    try:
        made_with = provenance(allow_dirty=args.allow_dirty or args.out is None).to_plain()
    except DirtyTreeError as error:
        sys.exit(f"benchmarks.ray_early_stop: {error}")
    # Actors find the envs of the tests.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    from tempfile import TemporaryDirectory

    from ding_like.comm.ray.cluster import RayCluster
    from ding_like.comm.ray.host import RayHost
    from ding_like.comm.ray.own_cluster import Amounts

    with TemporaryDirectory() as folder, RayCluster(amounts=Amounts(num_cpus=16)):
        host = RayHost(prepare=prepare_worker)
        try:
            report = {**made_with, **run(host, Path(folder), stops=args.stops, rounds=args.rounds)}
        finally:
            host.close()
    text = json.dumps(report, indent=1) + "\n"
    if args.out is not None:
        args.out.write_text(text)
    for row in [*report["summary"], report["slow_ratio"]]:
        print(row)


if __name__ == "__main__":
    main()
