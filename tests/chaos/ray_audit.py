"""Hold a run by Ray's workers against what was seen of it: each row in the buffer once, each batch applied once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ding_like.types import Array
from tests.chaos.counting_env import num_doubled


class Rows(NamedTuple):
    """Numbers of the rows that workers handed over, and of the faults among them."""

    handed_over: int
    stored: int
    lost: int  # handed over before others that are stored, and not stored
    waiting: int  # handed over last, when the run had ended
    doubled: int  # stored more than once
    unknown: int  # stored, and handed over by no worker


class Updates(NamedTuple):
    """Numbers of the batches that were drawn, and of the faults among them."""

    drawn: int
    applied: int
    lost: int  # drawn and never applied, as a whole or in part
    repeated: int  # applied more often than drawn, or a gradient that no batch has


def audit_rows(handed_over: Sequence[Array], stored: Array) -> Rows:
    """Compare rows by their keys: those of each segment [B] in the order in which they came, and the buffer's [N]."""
    found = set(stored.tolist())
    is_stored = [np.fromiter((key in found for key in keys.tolist()), bool, len(keys)) for keys in handed_over]
    last = max((number for number, each in enumerate(is_stored) if each.any()), default=-1)
    lost = sum(int((~each).sum()) for each in is_stored[: last + 1])
    waiting = sum(len(each) for each in is_stored[last + 1 :])
    known = set(np.concatenate(handed_over).tolist()) if handed_over else set()
    total = sum(map(len, handed_over))
    return Rows(total, len(stored), lost, waiting, num_doubled(stored), len(found - known))


def audit_updates(drawn: Array, applied: Array) -> Updates:
    """Compare the gradients that batches should have with those that were applied, both [N, 16], in any order."""
    wanted, found = (Counter(map(bytes, np.ascontiguousarray(each + 0.0))) for each in (drawn, applied))
    return Updates(len(drawn), len(applied), (wanted - found).total(), (found - wanted).total())


class Strike(NamedTuple):
    """Fault injected into a worker, and its consequences; times in seconds of the monotonic clock."""

    worker: str
    what: str  # "killed" or "stopped"
    at_s: float
    known_s: float | None  # when the host knew of its end
    successor: str | None
    successor_works_s: float | None  # when it was first given work
    replaced_ms: float | None  # as the run says itself


def strikes_of(struck: Sequence[dict[str, Any]], seen: dict[str, Any], rows: Sequence[dict[str, Any]]) -> list[Strike]:
    """Put together what was done, what a host saw (`ended`, `works`: seconds by worker) and `failures.jsonl`."""
    by_worker = {row["worker"]: row for row in rows}
    strikes = []
    for each in struck:
        row = by_worker.get(each["worker"], {})
        successor = row.get("replaced_by")
        strikes.append(
            Strike(
                each["worker"], each["what"], each["at"], seen["ended"].get(each["worker"]), successor,
                seen["works"].get(successor), row.get("replaced_ms"),
            )
        )  # fmt: skip
    return strikes
