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

from ding_like.comm.ray.host import RayHost
from ding_like.comm.workers.host import Host
from ding_like.comm.workers.threads import ThreadHost
from ding_like.entry import ray_entry
from ding_like.pipeline.build.collect_end import segment_of
from tests.chaos.counting_policy import APPLIED, MARKS
from tests.chaos.ray_audit import audit_rows, audit_updates
from tests.chaos.recording_host import RecordedWorker, RecordingHost
from tests.chaos.run_recorder import Recorder

CONFIG = Path(__file__).with_name("ray_config.py")
_LOOK_S = 0.02
_PATIENCE_S = 60.0  # for a worker to strike


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
        notes = {"collect_data": lambda returned: recorder.hand_over(segment_of(*returned))}
        striker.host = RecordingHost(inner, notes)
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
