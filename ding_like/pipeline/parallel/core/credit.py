"""Share what the update ratio allows among collectors, those first who have waited longest."""

from __future__ import annotations

from ding_like.comm.rest.messages import PolicyVersion
from ding_like.pipeline.parallel.core.ledger import SegmentLedger
from ding_like.pipeline.parallel.core.workers import WorkerEntry, WorkerTable

# A worker that waits asks again every second; one that was not heard of for longer does not hold others up.
_SILENT_S = 3.0


def allow(
    worker: WorkerEntry,
    workers: WorkerTable,
    segment_rows: int,
    book: SegmentLedger,
    newest: PolicyVersion | None,
    now_s: float,
) -> int:
    """Return how many rows a worker may collect now: those of a segment, or none while there is no room for them.

    Room is taken by what others were allowed, and kept for those who have waited longer. On-policy it may be less than
    a segment: what is left of a batch. What comes may be more or less: it is accounted for as it is.
    """
    ordered = workers.credit_of_others(worker)
    worker.heard_s = now_s
    if book.is_on_policy:
        return max(0, min(segment_rows, book.room(ordered, newest)))
    since_s = now_s if worker.waits_since_s is None else worker.waits_since_s
    ahead = sum(
        each.waits_since_s is not None and each.waits_since_s < since_s and now_s - each.heard_s < _SILENT_S
        for each in workers.values()
        if each is not worker
    )
    is_allowed = book.has_room(ordered + ahead * segment_rows, segment_rows)
    worker.waits_since_s = None if is_allowed else since_s
    return segment_rows if is_allowed else 0
