"""A coordinator's core with small numbers, who speaks for its workers, and segments whose rows can be recognised."""

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


class Rig:
    """Core of a run whose first evaluation is done; it speaks for a learner and a collector with a task each."""

    def __init__(self, folder: Path, **cfg: Any) -> None:
        self.folder, self.cfg = folder, {"clock": Clock(), **cfg}
        self.clock: Clock = self.cfg["clock"]
        folder.mkdir(exist_ok=True)
        self.core: Any = make_core(folder, **self.cfg)
        self.learner, self.learn, self.collector, self.task = begin(self.core)

    def restart(self, **cfg: Any) -> None:
        """Close the core, and make another on its state file."""
        self.core.close()
        self.core = make_core(self.folder, **{**self.cfg, **cfg})

    def join(self, role: str, number: int = 0) -> str:
        return join(self.core, role, number)

    def claim(self, worker: str) -> m.Task:
        return claim(self.core, worker)

    def publish(self, version: int, sha256: str = "x") -> m.Ok:
        message = m.Publish(self.learn.task_id, self.learn.attempt, version, sha256, 1)
        return self.core.publish(self.learner, "policy", message)  # type: ignore[no-any-return]

    def send(self, *segments: int | m.SegmentInfo, by: str = "", to: m.Task | None = None) -> m.SendDataReply:
        """Announce segments, or those with these numbers."""
        worker, task = by or self.collector, to or self.task
        infos = tuple(announced(worker, each) if isinstance(each, int) else each for each in segments)
        return self.core.send_data(worker, task.task_id, m.SendData(task.attempt, infos))  # type: ignore[no-any-return]

    def sample(self, by: str = "", to: m.Task | None = None, **changes: Any) -> m.SampleReply:
        """Ask for up to 4 batches of 2 rows."""
        task = to or self.learn
        asked = dict(batch_size=2, num_batches=4, cur_learner_iter=0, have_segments_up_to=0) | changes
        message = m.Sample(task.task_id, task.attempt, **asked)
        return self.core.sample(by or self.learner, "buffer", message)  # type: ignore[no-any-return]

    def update(self, learn_iter: int, **more: Any) -> None:
        self.core.update(
            self.learner, "buffer", m.Update(self.learn.task_id, self.learn.attempt, learn_iter, {}, **more)
        )

    def info(self, by: str = "", to: m.Task | None = None, **info: Any) -> m.TaskInfoReply:
        task = to or self.task
        reply = self.core.task_info(by or self.collector, task.task_id, m.TaskInfo(task.attempt, info))
        return reply  # type: ignore[no-any-return]

    def finish(self, by: str = "", to: m.Task | None = None, **result: Any) -> bool:
        """Send a task's result, of the collect task by default; return whether the run is over."""
        task = to or self.task
        message = m.FinishTask(task.attempt, result)
        return bool(self.core.finish_task(by or self.collector, task.task_id, message).shutdown)

    def fail(self, by: str, task: m.Task, message: str = "it broke") -> bool:
        """Report a failure; return whether the run is over."""
        return bool(self.core.fail_task(by, task.task_id, m.FailTask(task.attempt, message)).shutdown)

    def begin_evaluation(self) -> m.Task:
        """Have version 100 evaluated by the collector."""
        self.publish(100)
        self.finish()
        evaluation = self.claim(self.collector)
        assert evaluation.kind == "eval"
        return evaluation

    def evaluated(self, evaluation: m.Task, *returns: float, **changes: Any) -> bool:
        """Send the collector's result of an evaluation; return whether the run is over."""
        return self.finish(to=evaluation, **{**evaluated(evaluation, *returns).result, **changes})
