"""What every contender shares: one thread, a clock, one JSON line per measurement. Imported before torch and numpy."""

from __future__ import annotations

import cProfile
import json
import os
import platform
import pstats
import sys
import time
from importlib.metadata import version

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"
if "BENCH_GPU" not in os.environ:  # of those that measure a GPU
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

_PROFILE_LINES = 25


class Clock:
    """Measure wall and CPU seconds from `start` to `stop`; with `profile`, also where they go."""

    def __init__(self, *, profile: bool = False) -> None:
        self.wall_s = self.cpu_s = 0.0
        self._profile = cProfile.Profile() if profile else None

    def start(self) -> None:
        """Start the clock."""
        if self._profile is not None:
            self._profile.enable()
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def stop(self) -> None:
        """Stop the clock."""
        self.wall_s, self.cpu_s = time.perf_counter() - self._wall, time.process_time() - self._cpu
        if self._profile is not None:
            self._profile.disable()

    def report(self, env_steps: int, *, updates: int | None = None) -> None:
        """Print the rates of a run, or its profile: under a profiler a rate means nothing."""
        if self._profile is not None:
            self.show_profile()
            return
        emit("env_steps_cpu", round(env_steps / self.cpu_s, 1), "steps/cpu-s")
        emit("env_steps_wall", round(env_steps / self.wall_s, 1), "steps/s")
        if updates is not None:
            emit("updates", updates, "")

    def show_profile(self) -> None:
        """Print where the time went; the clock was made with `profile`."""
        pstats.Stats(self._profile).sort_stats("tottime").print_stats(_PROFILE_LINES)


def emit(metric: str, value: float, unit: str) -> None:
    """Print one measurement."""
    _print({"metric": metric, "value": value, "unit": unit})


def emit_versions(*packages: str) -> None:
    """Print what ran: Python and the installed versions of these packages."""
    _print({"versions": {"python": platform.python_version(), **{name: version(name) for name in packages}}})


def _print(row: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()
