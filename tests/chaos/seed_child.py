"""Be the driver of a run with central inference, kill its processes by a plan, and write down what came of it.

`python -m tests.chaos.seed_child FOLDER`: reads `plan.json` there, trains into `run/`, writes `found.json`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ding_like.comm.workers.supervision import Processes
from ding_like.comm.zmq.rows import Arrived, RowServer
from ding_like.entry.plan import NO_LIMIT, RunArguments
from ding_like.entry.seed_entry import SeedMode
from ding_like.entry.seed_trainer import Trainer, TrainingResult
from tests.chaos.counting_policy import APPLIED, MARKS
from tests.chaos.ray_audit import audit_rows, audit_updates
from tests.chaos.run_recorder import Recorder

CONFIG = Path(__file__).with_name("ray_config.py")
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


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(argv).folder
    plan = json.loads((folder / "plan.json").read_text())
    recorder = SeedRecorder()
    recorder.install()
    striker = Striker(plan["strikes"], recorder, seed=plan["seed"])
    thread = threading.Thread(target=striker.run, name="striker", daemon=True)
    thread.start()
    arguments = RunArguments("seed", plan["seed"], NO_LIMIT, NO_LIMIT, dynamic_seed=True)
    run = SeedMode.of(str(CONFIG), arguments, overrides=plan["overrides"], exp_name=str(folder / "run")).plan
    result = Trainer.of_plan(run).start(plan["duration_s"])
    thread.join(_PATIENCE_S)
    write_found(folder, recorder, striker, result)


def write_found(folder: Path, recorder: SeedRecorder, striker: Striker, result: TrainingResult) -> None:
    assert recorder.server is not None
    drawn = np.array(recorder.drawn, np.float64).reshape(-1, MARKS)
    times = [at_s for *_, at_s in recorder.acknowledged]
    last_strike_s = max(each["at"] for each in striker.struck)
    again: dict[str, list[float]] = {}
    for each in striker.struck:
        after = [at_s - each["at"] for at_s in times if at_s > each["at"]]
        again.setdefault(each["kind"], []).append(round(min(after, default=float("inf")), 3))
    found = {
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
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
