"""What contenders of `benchmarks.scaling` share: DQN on envs that sleep, one env a worker, an update of 128 rows for
each 64 env steps, so that workers and not the learner limit the rate."""

from __future__ import annotations

import argparse
import time

from benchmarks.common import emit

STEPS_PER_UPDATE, BATCH, WARMUP = 64, 128, 256
HIDDEN = [128, 128, 64]


def parse() -> argparse.Namespace:
    """Parse a peer's arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", required=True, help="an env of slow_env")
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    return parser.parse_args()


class Rate:
    """Env steps a second from the first update on."""

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None
        self._last = 0, 0.0

    def note(self, env_steps: int, *, has_begun: bool) -> None:
        """Note how many env steps there are."""
        self._last = env_steps, time.perf_counter()
        if has_begun and self._first is None:
            self._first = self._last

    def report(self) -> None:
        """Print the rate."""
        assert self._first is not None, "no update was made"
        steps, seconds = (last - first for last, first in zip(self._last, self._first, strict=True))
        emit("env_steps_wall", round(steps / seconds, 1), "steps/s")
