"""Describe a run in plain data: what GET /v1/status answers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ding_like.pipeline.parallel.core.core import CoordinatorCore


def status_of(core: CoordinatorCore) -> dict[str, Any]:
    """Return what there is to see of the run."""
    return {
        "run_id": core.run_id,
        "epoch": core.epoch,
        "env_step": core.env_step,
        "learn_iter": core.learn_iter,
        "granted_updates": core.granted_updates,
        "is_over": core.is_over,
        "workers": {each.worker_id: {"role": each.role, "state": each.state} for each in core.workers.values()},
        "tasks": {each.task_id: {"kind": each.kind, "status": each.status} for each in core.tasks.tasks.values()},
        "buffers": {name: {"rows": index.count} for name, index in core.book.buffers.items()},
        "stale_rows": core.book.stale_rows,
        "bad_rows": core.book.bad_rows,
        "policies": {name: asdict(version) for name, version in core.policies.items()},
    }
