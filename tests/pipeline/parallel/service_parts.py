"""Make a coordinator's core with small numbers, and segments whose every row can be recognised."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import ding_like
from ding_like.comm.rest import messages as m
from ding_like.data.segment_file import SegmentMeta, write_segment
from ding_like.pipeline.parallel.core import CoordinatorCore, CoreConfig
from ding_like.pipeline.parallel.core.state import StateStore
from ding_like.pipeline.rows import OnPolicyRatio, UpdateRatio
from ding_like.worker import IBuffer, NaiveReplayBuffer
from ding_like.worker.commander import NaiveCommander
from tests.support import Clock

PACKAGE = ding_like.__version__
_MESSAGES = (
    "register leave claim finish_task fail_task send_data sample update publish task_info tick lost fail".split()
)


class SavingCore(CoordinatorCore):
    """Core that saves what each message changes, as the coordinator's service has it do."""


def _saved(method: Any) -> Any:
    def call(core: CoordinatorCore, *args: Any) -> Any:
        with core.saving():
            return method(core, *args)

    return call


for _name in _MESSAGES:
    setattr(SavingCore, _name, _saved(getattr(CoordinatorCore, _name)))

RATIO = UpdateRatio(warmup_steps=16, steps=8, updates=4, max_lead=16)


def make_core(
    folder: Path,
    *,
    size: int = 40,
    clock: Clock | None = None,
    ratio: UpdateRatio | OnPolicyRatio = RATIO,
    eval_freq: int = 100,
    max_env_step: float = float("inf"),
    **cfg: Any,
) -> CoordinatorCore:
    """Return a core on the state file of a folder; ratio: 8 env steps allow 4 updates, after 16 at random."""
    settings: dict[str, Any] = dict(segment_rows=8, lease_ttl_s=10.0, max_failures=2)
    settings.update(cfg)
    commander = NaiveCommander({}, eval_freq=eval_freq, n_episode=2, stop_value=10.0, max_env_step=max_env_step)

    def make_buffer() -> IBuffer:
        cfg = {"replay_buffer_size": size}
        return NaiveReplayBuffer(cfg, exp_name=str(folder), instance_name="buffer", rng=np.random.default_rng(0))

    return SavingCore(
        CoreConfig(ratio, size, **settings),
        clock=clock or Clock(),
        wall_clock=lambda: 1000.0,
        store=StateStore(folder / "state.sqlite"),
        commander=commander,
        make_buffer=make_buffer,
    )


def join(core: Any, role: str, number: int = 0) -> str:
    """Register a worker and return its id."""
    return str(core.register(m.Register(role, "host", 1, PACKAGE, f"start{number}")).worker_id)


def claim(core: Any, worker: str) -> m.Task:
    """Claim a task that must be there."""
    task = core.claim(worker, m.Claim()).task
    assert task is not None
    return task


def evaluated(task: m.Task, *returns: float) -> m.FinishTask:
    """Return the result of an evaluation, 0 in all episodes if no returns are given."""
    values = list(returns) or [0.0] * task.cfg["n_episode"]
    version = 0 if task.policy is None else task.policy.version
    result = {"returns": values, "lengths": [1] * len(values), "version": version, "duration_s": 0.0}
    return m.FinishTask(task.attempt, result)


def begin(core: Any) -> tuple[str, m.Task, str, m.Task]:
    """Return (learner, its task, collector, its collect task) of a run whose first evaluation is done."""
    learner = join(core, "learner")
    learn = claim(core, learner)
    core.publish(learner, learn.policy_id, m.Publish(learn.task_id, learn.attempt, 0, "x", 1))
    collector = join(core, "collector")
    task = claim(core, collector)
    if task.kind == "eval":
        core.finish_task(collector, task.task_id, evaluated(task))
        task = claim(core, collector)
    return learner, learn, collector, task


def columns_of(worker: str, number: int, rows: int) -> dict[str, Any]:
    """Return rows that say whose they are: (worker's hash, segment, row)."""
    source = np.full(rows, sum(worker.encode()), np.int64)
    return {"source": source, "segment": np.full(rows, number, np.int64), "row": np.arange(rows, dtype=np.int64)}


def segment(folder: Path, worker: str, number: int, *, rows: int = 8, env_steps: int | None = None) -> m.SegmentInfo:
    """Write a segment file and return what is announced of it."""
    meta = SegmentMeta("t", 1, worker, number, 0, rows)
    written = write_segment(folder, f"{worker}.{number:08d}", columns_of(worker, number, rows), meta)
    return m.SegmentInfo(
        written.name, written.rows, written.sha256, written.nbytes, 0, rows if env_steps is None else env_steps
    )


def announced(worker: str, number: int, *, rows: int = 8) -> m.SegmentInfo:
    """Return the announcement of a segment that no learner will read."""
    return m.SegmentInfo(f"{worker}.{number:08d}", rows, "0" * 64, 100, 0, rows)
