"""Size of the memory, and a check before much of it is allocated."""

from __future__ import annotations

import math
from pathlib import Path

from ding_like.errors import ConfigError

_GIB = 2**30


def available_bytes() -> float:
    """Return how much memory can be allocated without swapping; infinity where the system does not report it."""
    found = [math.inf]
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        found += [int(limit)] if limit.isdecimal() else []  # of a container; "max": none
    except OSError:  # no such file: another system than Linux, or no cgroup
        pass
    return min(found)


def check_memory(needed: int, *, what: str, fix: str) -> None:
    """Raise ConfigError if `needed` bytes are more than there are.

    Linux grants more memory than there is, and later kills the process that uses it: so this is checked before.
    """
    available = available_bytes()
    if needed > available:
        raise ConfigError(
            f"{what} needs {needed / _GIB:,.1f} GiB of memory, {available / _GIB:,.1f} GiB are available: {fix}."
        )


def check_buffer_memory(rows: int, row_bytes: int) -> None:
    """Raise ConfigError for a replay buffer of so many rows that memory cannot hold them."""
    fits = available_bytes() / 2 / max(row_bytes, 1)
    check_memory(
        rows * row_bytes,
        what=f"policy.other.replay_buffer.replay_buffer_size is {rows:,}, which at {row_bytes:,} bytes a row",
        fix=f"give {int(fits) if fits < math.inf else rows:,} or fewer",
    )
