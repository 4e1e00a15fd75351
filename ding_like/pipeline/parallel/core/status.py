"""Describe a run in plain data: for GET /v1/status, and for the coordinator's own process."""

from __future__ import annotations

from dataclasses import asdict, dataclass
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
        "halted": core.halted,
        "state_gaps": core.journal.num_gaps,  # more than 0: the state file has lost messages that were answered
        "workers": {each.worker_id: {"role": each.role, "state": each.state} for each in core.workers.values()},
        "tasks": {each.task_id: {"kind": each.kind, "status": each.status} for each in core.tasks.tasks.values()},
        "buffers": {name: {"rows": index.count} for name, index in core.book.buffers.items()},
        "stale_rows": core.book.stale_rows,
        "bad_rows": core.book.bad_rows,
        "policies": {name: asdict(version) for name, version in core.policies.items()},
    }


@dataclass(frozen=True)
class WorkerView:
    """Numbers of a worker for the console."""

    worker_id: str
    role: str
    stats: dict[str, Any]
    env_steps: int
    policy_version: int


@dataclass(frozen=True)
class RunView:
    """Snapshot of a run."""

    is_over: bool
    failure: str | None
    halted: str | None
    env_step: int
    learn_iter: int
    waiting_updates: int
    stale_rows: int
    bad_rows: int
    policies: dict[str, dict[str, Any]]  # newest versions
    workers: tuple[WorkerView, ...]
    evaluations: tuple[dict[str, Any], ...]  # that have come since the last view
    refuted: tuple[dict[str, Any], ...]  # evaluations that the final one did not confirm, since the last view
    stop: bool
    learn_result: dict[str, Any] | None


def view_of(core: CoordinatorCore, commander: Any) -> RunView:
    """Return a view of the run; each evaluation is in one view only. The caller keeps others from the core."""
    evaluations, refuted = core.take_evaluations()
    return RunView(
        is_over=core.is_over,
        failure=core.failure,
        halted=core.halted,
        env_step=core.env_step,
        learn_iter=core.learn_iter,
        waiting_updates=core.waiting_updates,
        stale_rows=core.book.stale_rows,
        bad_rows=core.book.bad_rows,
        policies={name: asdict(version) for name, version in core.policies.items()},
        workers=tuple(
            WorkerView(each.worker_id, each.role, dict(each.stats), each.env_steps, each.policy_version)
            for each in core.workers.values()
        ),
        evaluations=tuple(evaluations),
        refuted=tuple(refuted),
        stop=commander.stop,
        learn_result=commander.learn_result,
    )
