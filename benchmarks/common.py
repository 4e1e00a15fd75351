"""Print one JSON line per measurement; pin the maths libraries to one thread. Imported before torch and numpy."""

from __future__ import annotations

import json
import os
import sys
import time

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""


def emit(name: str, metric: str, value: float, unit: str) -> None:
    """Print one result."""
    sys.stdout.write(json.dumps(dict(name=name, metric=metric, value=value, unit=unit)) + "\n")
    sys.stdout.flush()


class Clock:
    """Hold wall and CPU seconds from construction to `stop`."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        self.wall_s = self.cpu_s = 0.0

    def stop(self) -> None:
        """Stop the clock."""
        self.wall_s, self.cpu_s = time.perf_counter() - self._wall, time.process_time() - self._cpu


def emit_rates(name: str, clock: Clock, env_steps: int, updates: int | None = None) -> None:
    """Print the rows of a run: rates by CPU and by wall clock."""
    emit(name, "env_steps_cpu", round(env_steps / clock.cpu_s, 1), "steps/cpu-s")
    emit(name, "env_steps_wall", round(env_steps / clock.wall_s, 1), "steps/s")
    if updates is not None:
        emit(name, "updates", updates, "")
