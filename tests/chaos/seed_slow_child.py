"""Be the driver of a run whose learner is slow, look at its memory and its queue, and write down what came of it.

`python -m tests.chaos.seed_slow_child FOLDER`: reads `plan.json` there, trains into `run/`, writes `found.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ding_like.comm.workers.supervision import Processes
from ding_like.comm.zmq.rows import RowServer
from ding_like.entry.plan import NO_LIMIT, RunArguments
from ding_like.entry.seed_entry import SeedMode
from ding_like.entry.seed_trainer import Trainer

CONFIG = Path(__file__).with_name("slow_learner_config.py")
_EVERY_S = 0.1


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
            self.samples.append({"rss_mb": rss_mb(), "queue_depth": self.server.queue_depth})


def rss_mb() -> float:
    """Return the memory of this process, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(argv).folder
    plan = json.loads((folder / "plan.json").read_text())
    watch = Watch()
    watch.install()
    arguments = RunArguments("seed", plan["seed"], NO_LIMIT, NO_LIMIT, dynamic_seed=True)
    overrides = [f"system.seed.credit={plan['credit']}"]
    run = SeedMode.of(str(CONFIG), arguments, overrides=overrides, exp_name=str(folder / "run")).plan
    result = Trainer.of_plan(run).start(plan["duration_s"])
    watch.stop()
    assert watch.server is not None
    found = {"samples": watch.samples, "training_s": result.seconds, "counts": watch.server.counts}
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
