"""Be the driver of a run with central inference, and write down what came of it.

`python -m tests.chaos.seed_child FOLDER`: reads `plan.json` there, trains into `run/`, writes `found.json`. A plan with
`strikes` has processes killed; without, the learner is slow, and memory and queue are looked at.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ding_like.comm.workers.processes import Processes
from ding_like.comm.zmq.rows import Arrived, RowServer
from ding_like.entry.seed_entry import SeedMode, Trainer, TrainingResult
from ding_like.entry.training import NO_LIMIT, RunArguments
from tests.chaos.counting_policy import APPLIED, MARKS
from tests.chaos.run_recorder import Recorder, audit_rows, audit_updates

COUNTED, SLOW = (Path(__file__).with_name(f"{name}_config.py") for name in ("ray", "slow_learner"))
_EVERY_S = 0.1
_LOOK_S = 0.01
_PATIENCE_S = 60.0  # for a process to strike


class SeedRecorder(Recorder):
    """Note what the driver acknowledges, too, and which processes it has."""

    def __init__(self) -> None:
        super().__init__()
        self.acknowledged: list[tuple[str, int, int, float]] = []  # source, run id, number, monotonic seconds
        self.processes: Processes | None = None
        self.server: RowServer | None = None

    def install(self) -> None:
        super().install()
        recorder, acknowledge, start = self, RowServer.acknowledge, Processes.start

        def note_acknowledged(self: RowServer, arrived: Arrived) -> None:
            acknowledge(self, arrived)
            recorder.server = self
            recorder.hand_over(arrived.segment)
            recorder.acknowledged.append((arrived.source, arrived.run_id, arrived.number, time.monotonic()))

        def keep_processes(self: Processes, **named: Any) -> bool:
            recorder.processes = self
            return start(self, **named)

        RowServer.acknowledge = note_acknowledged  # type: ignore[method-assign]
        Processes.start = keep_processes  # type: ignore[method-assign]

    @property
    def out_of_order(self) -> int:
        """Return the segments that are not the next of their source, or come after those of a later run of it."""
        wrong, last = 0, dict.fromkeys((each[0] for each in self.acknowledged), (-1, 0))
        for source, run_id, seq, _ in self.acknowledged:
            last_run_id, last_seq = last[source]
            is_next = seq == last_seq + 1 if run_id == last_run_id else run_id > last_run_id and seq == 1
            wrong += not is_next
            last[source] = run_id, seq
        return wrong


class Striker:
    """Kill processes of a run by a plan of (seconds, kind), each at its time or as soon as there is one."""

    def __init__(self, plan: Sequence[Sequence[Any]], recorder: SeedRecorder, *, seed: int) -> None:
        self._plan = plan
        self._recorder = recorder
        self._rng = random.Random(seed)
        self._killed: set[int] = set()
        self.struck: list[dict[str, Any]] = []

    def run(self) -> None:
        while not self._recorder.acknowledged:
            time.sleep(_LOOK_S)
        started_s = time.monotonic()
        for after_s, kind in self._plan:
            time.sleep(max(started_s + after_s - time.monotonic(), 0.0))
            name, pid = self._victim(kind)
            with suppress(ProcessLookupError):
                self.struck.append({"name": name, "kind": kind, "at": time.monotonic()})
                os.kill(pid, signal.SIGKILL)

    def _victim(self, kind: str) -> tuple[str, int]:
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            assert self._recorder.processes is not None
            pids = self._recorder.processes.pids
            found = [(name, pid) for name, pid in pids.items() if name.startswith(kind) and pid not in self._killed]
            if found:
                name, pid = self._rng.choice(sorted(found))
                self._killed.add(pid)
                return name, pid
            time.sleep(_LOOK_S)
        raise TimeoutError(f"no {kind} is at work")


class Watch:
    """Look at this process's memory and at the queue of its way of rows, from when its workers are ready."""

    def __init__(self) -> None:
        self.samples: list[dict[str, Any]] = []
        self.server: RowServer | None = None
        self._is_ready = threading.Event()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def install(self) -> None:
        """Begin to look once the workers are ready."""
        watch, start, start_server = self, Processes.start, RowServer.start

        def note_start(self: Processes, **named: Any) -> bool:
            are_ready = start(self, **named)
            watch._is_ready.set()
            return are_ready

        def keep_server(self: RowServer) -> RowServer:
            watch.server = self
            return start_server(self)

        Processes.start = note_start  # type: ignore[method-assign]
        RowServer.start = keep_server  # type: ignore[method-assign]
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(10.0)

    def _run(self) -> None:
        self._is_ready.wait(120.0)
        while not self._is_over.wait(_EVERY_S):
            assert self.server is not None
            rss_mb = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
            self.samples.append({"rss_mb": round(rss_mb, 1), "queue_depth": self.server.queue_depth})


def main(folder: Path) -> None:
    plan = json.loads((folder / "plan.json").read_text())
    if "strikes" not in plan:
        watch = Watch()
        watch.install()
        result = train(SLOW, plan, folder)
        watch.stop()
        assert watch.server is not None
        found = {"samples": watch.samples, "training_s": result.seconds, "counts": watch.server.counts}
    else:
        recorder = SeedRecorder()
        recorder.install()
        striker = Striker(plan["strikes"], recorder, seed=plan["seed"])
        thread = threading.Thread(target=striker.run, name="striker", daemon=True)
        thread.start()
        result = train(COUNTED, plan, folder)
        thread.join(_PATIENCE_S)
        found = what_was_found(recorder, striker, result)
    (folder / "found.json").write_text(json.dumps(found))


def train(config: Path, plan: dict[str, Any], folder: Path) -> TrainingResult:
    arguments = RunArguments("seed", plan["seed"], NO_LIMIT, NO_LIMIT, dynamic_seed=True)
    run = SeedMode.of(str(config), arguments, overrides=plan["overrides"], exp_name=str(folder / "run")).plan
    return Trainer.of_plan(run).start(plan["duration_s"])


def what_was_found(recorder: SeedRecorder, striker: Striker, result: TrainingResult) -> dict[str, Any]:
    assert recorder.server is not None
    drawn = np.array(recorder.drawn, np.float64).reshape(-1, MARKS)
    times = [at_s for *_, at_s in recorder.acknowledged]
    last_strike_s = max(each["at"] for each in striker.struck)
    again: dict[str, list[float]] = {}
    for each in striker.struck:
        after = [at_s - each["at"] for at_s in times if at_s > each["at"]]
        again.setdefault(each["kind"], []).append(round(min(after, default=float("inf")), 3))
    return {
        "rows": audit_rows(recorder.handed_over, recorder.stored)._asdict(),
        "updates": audit_updates(drawn, APPLIED.all())._asdict(),
        "segments": len(recorder.handed_over),
        "env_steps": recorder.env_steps,
        "torn": recorder.torn,
        "out_of_order": recorder.out_of_order,
        "struck": striker.struck,
        "counts": recorder.server.counts,
        "training_s": result.seconds,
        "actors_at_the_end": len({source for source, *_, at_s in recorder.acknowledged if at_s > last_strike_s}),
        "longest_without_rows_s": round(max(b - a for a, b in itertools.pairwise(times)), 3),
        "rows_again_after_s": again,
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
