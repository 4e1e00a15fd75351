"""Be the driver of a run by Ray's workers, strike them by a plan, and write down what came of it.

`python -m tests.chaos.ray_child FOLDER`: reads `plan.json` there, trains into `run/`, writes `found.json`.
"""

from __future__ import annotations

import argparse
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

from ding_like.comm import local
from ding_like.comm.ray.host import RayHost
from ding_like.comm.workers.host import Host
from ding_like.comm.workers.threads import ThreadHost
from ding_like.entry import ray_entry
from ding_like.pipeline import serial
from ding_like.pipeline.build.collect_end import segment_of
from ding_like.types import Array
from tests.chaos.counting_env import recognise
from tests.chaos.counting_policy import APPLIED, MARKS, marks_of
from tests.chaos.ray_audit import audit_rows, audit_updates
from tests.chaos.recording_host import RecordedWorker, RecordingHost

CONFIG = Path(__file__).with_name("ray_config.py")
_LOOK_S = 0.02
_PATIENCE_S = 60.0  # for a worker to strike


class Recorder:
    """Note what the driver is handed, draws and stores, and end its run when all is done."""

    def __init__(self) -> None:
        self.handed_over: list[Array] = []  # keys of each segment
        self.env_steps = 0
        self.torn = 0
        self.drawn: list[Array] = []  # the gradient that each batch should have
        self.stored = np.zeros(0, np.dtype((np.void, 32)))
        self._lock = threading.Lock()
        self._limits: list[Any] = []
        self._rows: list[Any] = []

    def hand_over(self, returned: Any) -> None:
        segment = segment_of(*returned)
        found = recognise(segment.batch.columns)  # type: ignore[union-attr]  # DQN's rows stack
        with self._lock:
            self.handed_over.append(found.keys)
            self.env_steps += segment.env_steps
            self.torn += found.torn

    def install(self) -> None:
        """Have the driver's parts report here."""
        recorder, rows, run = self, local.LocalRows, serial.SerialRun
        make_rows, draw = rows.__init__, rows.next  # type: ignore[misc]
        make_run, train = run.__init__, run.run  # type: ignore[misc]

        def keep_rows(self: Any, *args: Any, **named: Any) -> None:
            make_rows(self, *args, **named)
            recorder._rows.append(self)

        def note_batch(self: Any, *, timeout_s: float) -> Any:
            batch = draw(self, timeout_s=timeout_s)
            if batch is not None:
                recorder.drawn.append(marks_of({"obs": np.asarray(batch["obs"])}).mean(0))
            return batch

        def keep_limits(self: Any, *args: Any, **named: Any) -> None:
            make_run(self, *args, **named)
            recorder._limits.append(self._limits)

        def look_at_rows(self: Any) -> Any:
            result = train(self)
            (kept,) = recorder._rows
            recorder.stored = recognise(kept._store.state_dict()["data"]).keys
            return result

        for owner, name, method in (
            (rows, "__init__", keep_rows),
            (rows, "next", note_batch),
            (run, "__init__", keep_limits),
            (run, "run", look_at_rows),
        ):
            setattr(owner, name, method)

    def end_run(self) -> None:
        """Let the run end as if it had reached its limit of env steps."""
        for limits in self._limits:
            object.__setattr__(limits, "max_env_step", 0)


class Striker:
    """Strike workers by a plan of (seconds, kind, "killed" or "stopped"), then let the run end."""

    def __init__(
        self, plan: Sequence[Sequence[Any]], kinds: Sequence[str], recorder: Recorder, *, settle_s: float
    ) -> None:
        self._plan = plan
        self._settle_s = settle_s
        self._kinds = kinds
        self._recorder = recorder
        self._rng = random.Random(0)
        self.host: RecordingHost | None = None
        self.struck: list[dict[str, Any]] = []
        self.stopped: set[int] = set()

    def run(self) -> None:
        try:
            for kind in self._kinds:
                self._victim(kind, _PATIENCE_S * 3)
            started_s = time.monotonic()
            for after_s, kind, what in self._plan:
                time.sleep(max(started_s + after_s - time.monotonic(), 0.0))
                victim = self._victim(kind, _PATIENCE_S)
                if victim is not None:
                    self._strike(victim, what)
            time.sleep(self._settle_s)
            for kind in self._kinds:
                self._victim(kind, _PATIENCE_S)
        finally:
            self._recorder.end_run()

    def _victim(self, kind: str, timeout_s: float) -> RecordedWorker | None:
        deadline = time.monotonic() + timeout_s
        struck = {each["worker"] for each in self.struck}
        while time.monotonic() < deadline:
            found = [] if self.host is None else self.host.at_work(kind)
            found = [worker for worker in found if worker.name not in struck]
            if found:
                return self._rng.choice(found)
            time.sleep(_LOOK_S)
        return None

    def _strike(self, victim: RecordedWorker, what: str) -> None:
        assert self.host is not None
        pid = victim.pid
        self.struck.append({"worker": victim.name, "what": what, "at": time.monotonic()})
        if pid is None:  # a thread of this process
            self.host.kill(victim)
            return
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL if what == "killed" else signal.SIGSTOP)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(argv).folder
    plan = json.loads((folder / "plan.json").read_text())
    recorder = Recorder()
    recorder.install()
    striker = Striker(plan["strikes"], plan["kinds"], recorder, settle_s=plan["settle_s"])

    def recorded(inner: Host) -> RecordingHost:
        striker.host = RecordingHost(inner, {"collect_data": recorder.hand_over})
        return striker.host

    ray_entry.RayHost = lambda *args, **named: recorded(RayHost(*args, **named))  # type: ignore[assignment,misc]
    thread = threading.Thread(target=striker.run, name="striker", daemon=True)
    thread.start()
    ray_entry.ray_pipeline(
        str(CONFIG), 0, overrides=plan["overrides"], exp_name=str(folder / "run"),
        host=recorded(ThreadHost()) if plan["local"] else None,
    )  # fmt: skip
    thread.join(_PATIENCE_S)
    write_found(folder, recorder, striker)


def write_found(folder: Path, recorder: Recorder, striker: Striker) -> None:
    assert striker.host is not None
    striker.host.at_work("")  # takes in the last ends
    drawn = np.array(recorder.drawn, np.float64).reshape(-1, MARKS)
    found = {
        "rows": audit_rows(recorder.handed_over, recorder.stored)._asdict(),
        "updates": audit_updates(drawn, APPLIED.all())._asdict(),
        "segments": len(recorder.handed_over),
        "env_steps": recorder.env_steps,
        "torn": recorder.torn,
        "struck": striker.struck,
        "seen": {"ended": striker.host.ended_s, "works": striker.host.works_s},
    }
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
