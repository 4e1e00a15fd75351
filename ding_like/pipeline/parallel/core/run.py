"""Saved state of a run: its tasks, workers, data and weights, and how they change when workers come and go."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.refusal import RefusedError
from ding_like.comm.rest.service import Stamp
from ding_like.comm.rest.wire import printable
from ding_like.pipeline.parallel.core.index import BufferIndex, OnPolicyIndex
from ding_like.pipeline.parallel.core.journal import Journal
from ding_like.pipeline.parallel.core.ledger import SegmentLedger
from ding_like.pipeline.parallel.core.state import StateStore, StateUnwritableError
from ding_like.pipeline.parallel.core.tasks import (
    FAILED,
    LEASED,
    Failures,
    SilenceWatch,
    TaskEntry,
    TaskTable,
    WorkerEntry,
    WorkerTable,
)
from ding_like.pipeline.update_ratio import OnPolicyRatio, UpdateRatio
from ding_like.worker.commander.naive import NaiveCommander

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CoreConfig:
    """Settings of the core."""

    ratio: UpdateRatio | OnPolicyRatio
    buffer_size: int
    segment_rows: int  # what a worker collects between two messages; 1 where that is `segment_episodes`
    lease_ttl_s: float = 10.0
    heartbeat_s: float = 3.0
    max_failures: int = 3  # of one task, before the run fails
    publish_timeout_s: float = 30.0  # that a learner may go on without publishing weights
    lanes: int = 0  # envs of a collector; 0: what it says of env steps is not held against the time
    steps_per_row: int = 1  # env steps; more where a row is a sequence
    first_batch_rows: int = 0  # that the first update needs
    segment_episodes: int = 0  # whole episodes that make up a segment; 0: rows do

    @property
    def is_on_policy(self) -> bool:
        """Tell whether each row is learned from once."""
        return isinstance(self.ratio, OnPolicyRatio)


class Run:
    """Saved state of a run. Not thread-safe; `clock` is monotonic, in seconds.

    `halted` says why nothing may be answered any more though the run is not over: the state file cannot be written.
    """

    def __init__(
        self,
        cfg: CoreConfig,
        *,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        store: StateStore,
        commander: NaiveCommander,
        make_index: Callable[[str], BufferIndex | OnPolicyIndex],
    ) -> None:
        self.cfg = cfg
        self._clock = clock
        self._wall_clock = wall_clock
        self._store = store
        self._commander = commander
        self.book = SegmentLedger(
            store=store,
            ratio=cfg.ratio,
            make_index=make_index,
            steps_per_row=cfg.steps_per_row,
            first_batch_rows=cfg.first_batch_rows,
            segment_episodes=cfg.segment_episodes,
        )
        self.tasks = TaskTable(cfg.lease_ttl_s)
        self.workers = WorkerTable()
        self.journal = Journal(store)
        self._secrets: dict[str, str] = {}  # of workers, and of some that have left
        self._failures = Failures(cfg.max_failures, self.workers)
        self._silence = SilenceWatch()
        self.policies: dict[str, m.PolicyVersion] = {}
        self.learn_iter = 0
        self._num_tasks = 0
        self.is_over = False
        self.failure: str | None = None  # why the run failed
        self.halted: str | None = None
        # Told of workers that come and go, after the fact.
        self.on_join: Callable[[str], None] = lambda worker_id: None
        self.on_leave: Callable[[str], None] = lambda worker_id: None
        self.callbacks: Any = self  # what has the methods deal_with_* of DI-engine's coordinator
        self.epoch, self.run_id = 1, secrets.token_hex(8)
        self._restore()

    def once(
        self,
        worker_id: str,
        stamp: Stamp | None,
        ask: Callable[[], Any],
        *,
        is_final: Callable[[Any], bool] = lambda reply: True,
    ) -> tuple[Any, bool]:
        """Return (answer, whether it is final): that of `ask`, or the final one that this message had before.

        A final answer is saved in the transaction of what it answers, a refusal too, unless the same message may be
        taken later or the worker is not known. Raises RefusedError as `ask` does, and `old_message` for a number below
        its channel's last.
        """
        known = None if stamp is None else self.journal.find(worker_id, stamp)
        if known is not None:
            return known.repeat(), True
        refusal = None
        with self._saving():
            try:
                reply = ask()
                is_done = is_final(reply)
            except RefusedError as error:
                refusal, reply = error, error
                is_done = not error.retryable and worker_id in self._secrets
            if is_done and stamp is not None:
                self.journal.keep(worker_id, stamp, reply)
        if refusal is not None:
            raise refusal
        return reply, is_done

    # --- what there is

    @property
    def env_step(self) -> int:
        """Return the env steps that were taken for all accepted segments."""
        return self.book.env_step

    @property
    def granted_updates(self) -> int:
        """Return how many batches were handed out."""
        return self.book.granted_updates

    @property
    def waiting_updates(self) -> int:
        """Return how many batches may be handed out beside those that were."""
        return self.book.waiting_updates

    def num_workers(self, role: str) -> int:
        """Return how many workers of a role there are."""
        return len(self.workers.of_role(role))

    def num_open(self, kind: str) -> int:
        """Return how many tasks of a kind are queued or being done."""
        return self.tasks.num_open(kind)

    def policy_of(self, policy_id: str) -> dict[str, Any] | None:
        """Return the fields of the newest published version of a policy."""
        return asdict(self.policies[policy_id]) if policy_id in self.policies else None

    def ask_back(self, kind: str) -> bool:
        """Ask for the first task of a kind that is being done to be finished early; return whether there is one."""
        return self.tasks.ask_back(kind)

    def pinned(self) -> set[tuple[int, int]]:
        """Return (attempt, version) of the weights that must be kept: under evaluation, and the commander's."""
        plain = [task.policy for task in self.tasks.tasks.values() if task.status == LEASED]
        plain += self._commander.kept_policies
        return {(each["attempt"], each["version"]) for each in plain if each is not None}

    def live_segments(self) -> list[str]:
        """Return the names of all segments whose files are still needed."""
        return self.book.live_segments()

    def take_removable(self) -> list[str]:
        """Return, once, the names of segments whose files are not needed any more."""
        names, self.book.removable = self.book.removable, []
        return names

    def take_spoiled(self) -> list[str]:
        """Return, once, the names of segments whose files could not be read."""
        names, self.book.spoiled = self.book.spoiled, []
        return names

    def take_evaluations(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return, once, the evaluations that have come, and those that the final evaluation did not confirm."""
        commander = self._commander
        found = commander.evaluations, commander.refuted
        commander.evaluations, commander.refuted = [], []
        return found

    # --- what happens by itself

    def tick(self) -> None:
        """Take tasks back from workers that were not heard of in time, and from a learner that publishes nothing."""
        now = self._clock()
        for worker in [each for each in self.workers.values() if each.deadline_s <= now]:
            self._remove_worker(worker.worker_id, f"not heard of for {self.cfg.lease_ttl_s:g} s")
        for task in self.tasks.expired(now):  # of workers that are not known: after a restart
            self._take_back(task, "its worker has not come back")
        learn = self.tasks.first("learn")
        if learn is not None and learn.status == LEASED and self._silence.silent_s >= self.cfg.publish_timeout_s:
            self._end_silence(learn)
        self._make_tasks()

    def _end_silence(self, learn: TaskEntry) -> None:
        worker = self.workers.get(str(learn.worker_id))
        self._silence.begin()
        why = (
            f"it reported updates up to {self.learn_iter:,} for {self.cfg.publish_timeout_s:g} s and published no "
            "weights (coordinator.publish_timeout_s)"
        )
        if worker is None:
            self._take_back(learn, why)
        else:
            self._fail_attempt(worker, learn, why)

    def lost(self, host: str, pid: int, reason: str) -> bool:
        """Take the news that a process has died; return whether it was a worker that had done anything."""
        worker = self.workers.find(host, pid)
        if worker is not None:  # it has not left by itself
            self._remove_worker(worker.worker_id, reason)
            self._make_tasks()
        return self.workers.had_worked(host, pid)

    def drop_surplus(self) -> None:
        """Forget queued collect tasks beyond those that there are collectors for, all but one."""
        surplus = self.tasks.surplus("collect", max(self.num_workers("collector"), 1))
        if surplus:
            self._save_tasks(*surplus)

    def fail(self, failure: str) -> None:
        """End the run with a reason."""
        self.failure, self.is_over = self.failure or failure, True
        self._save_tasks()

    def halt(self, why: str) -> None:
        """Answer nothing any more; the run is not over, and another start goes on with it."""
        self.halted = self.halted or why

    def close(self) -> None:
        """Close buffers and state."""
        self.book.close()
        self._store.close()

    # --- inside

    def _fail_attempt(self, worker: WorkerEntry, task: TaskEntry, cause: str) -> None:
        """Have a task tried again, at another worker if there is one; end the run if all that are there have tried."""
        cause = printable(cause)
        logger.error("%s failed at %s: %s", worker.worker_id, task.task_id, cause)
        worst = self._failures.count(worker, task)
        if worst:
            task.status = FAILED
            self.failure = f"tasks failed {worst} times, last {task.task_id} at {worker.worker_id}: {cause}"
            self.is_over = True
        else:
            self.tasks.release(task)
        self._save_tasks(task)

    def _remove_worker(self, worker_id: str, reason: str) -> None:
        self.workers.remove(worker_id)
        for task in self.tasks.of_worker(worker_id):
            self._take_back(task, reason)
        with self._saving():
            self._store.delete("worker", worker_id)
            self._forget(self.journal.go(worker_id))
        logger.info("%s has left: %s", worker_id, printable(reason))
        self.on_leave(worker_id)

    def _take_back(self, task: TaskEntry, reason: str) -> None:
        logger.info("%s goes back into the queue: %s", task.task_id, printable(reason))
        self.tasks.release(task)
        self._save_tasks(task)

    def _make_tasks(self) -> None:
        if self.is_over:
            return
        made = []
        for new in self._commander.new_tasks(self):
            self._num_tasks += 1
            task = TaskEntry(f"{new.kind}-{self._num_tasks}", new.kind, new.buffer_id, new.policy_id, new.cfg)
            self.tasks.add(task)
            made.append(task)
        if made:
            self._save_tasks(*made)
        self._free_an_evaluator()

    def _free_an_evaluator(self) -> None:
        """Ask for a collect task back where an evaluation waits and every collector that it is for is busy."""
        for task in self.tasks.queued("eval"):
            may = {each.worker_id for each in self.workers.of_role("collector") if self._is_for(each, task)}
            if all(self.tasks.of_worker(worker_id) for worker_id in may):
                self.tasks.ask_back("collect", among=may)

    def _is_for(self, worker: WorkerEntry, task: TaskEntry) -> bool:
        """Tell whether a worker may have a task: not one that failed there, while another can take it."""
        if worker.index not in task.failed_by:
            return True
        others = self._failures.hopeful(worker.role, task)
        if task.kind == "eval":  # one is asked for its collect task, if none is free
            return not others
        return all(self.tasks.of_worker(each.worker_id) for each in others)

    def _wanted_weights(self, policy_id: str) -> m.PolicyVersion | None:
        """Return the weights that collectors are to act with: on-policy, none before the present attempt's first."""
        newest = self.policies.get(policy_id)
        if newest is None or not self.cfg.is_on_policy:
            return newest
        learn = self.tasks.first("learn")
        has_learner = learn is not None and learn.status == LEASED and learn.attempt == newest.attempt
        return newest if has_learner else None

    # --- saved state

    @contextmanager
    def _saving(self) -> Iterator[None]:
        """Save what the block changes; if it cannot be saved, nothing is answered: memory is ahead of the file."""
        try:
            with self._store.transaction():
                yield
        except StateUnwritableError as error:
            self.halt(str(error))
            raise RefusedError("storage_full", str(error)) from error

    def _save_tasks(self, *tasks: TaskEntry) -> None:
        with self._saving():
            for task in tasks:
                self._store.put("task", task.task_id, task.to_plain())
            for task_id in self.tasks.forget_done():
                self._store.delete("task", task_id)
            self._save_run()

    def _save_run(self) -> None:
        self._store.put(
            "run",
            "run",
            {
                "epoch": self.epoch,
                "run_id": self.run_id,
                "book": self.book.plain(),
                "learn_iter": self.learn_iter,
                "_num_tasks": self._num_tasks,
                "is_over": self.is_over,
                "failure": self.failure,
                "commander": self._commander.state_dict(),
            },
        )

    def _restore(self) -> None:
        """Go on from saved state; every lease gets one fresh term."""
        saved = dict(self._store.items("run")).get("run")
        self._store.check_start(None if saved is None else saved["run_id"], 0 if saved is None else saved["epoch"])
        if saved is not None:
            self.epoch, self.run_id = saved["epoch"] + 1, saved["run_id"]
            for name in ("learn_iter", "_num_tasks", "is_over", "failure"):
                setattr(self, name, saved[name])
            self._commander.load_state_dict(saved["commander"])
        now = self._clock()
        for worker_id, worker in self._store.items("worker"):
            self.workers.join(worker_id, **worker, now_s=now, lease_s=self.cfg.lease_ttl_s)
        self._secrets = {worker_id: item["secret"] for worker_id, item in self._store.items("secret")}
        for _, task in self._store.items("task"):
            self.tasks.add(TaskEntry(**task, deadline_s=now + self.cfg.lease_ttl_s))
        for policy_id, version in self._store.items("policy"):
            self.policies[policy_id] = m.PolicyVersion(**version)
        self.book.restore(None if saved is None else saved["book"])
        self.journal.restore()
        with self._store.transaction():
            for worker_id in sorted({*self._secrets, *self.journal.workers} - set(self.workers)):
                self._forget(self.journal.go(worker_id))
            self._save_run()
        self._store.mark_start(self.run_id, self.epoch)

    def _forget(self, worker_ids: list[str]) -> None:
        """Forget the secrets of workers that have left long ago."""
        for worker_id in worker_ids:
            self._secrets.pop(worker_id, None)
            self._store.delete("secret", worker_id)
