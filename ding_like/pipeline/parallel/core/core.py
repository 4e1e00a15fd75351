"""Decide what workers do and what becomes of what they send: tasks, leases, segments, batches, weights.

No HTTP, no threads, no clock: who calls brings the time and one lock. Every method answers one message of protocol dl/1
and saves what it changed before it returns, so that a coordinator that is killed goes on where it was.
"""

from __future__ import annotations

import logging
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import ding_like
from ding_like.comm import messages as m
from ding_like.comm.refusal import RefusedError
from ding_like.comm.wire import check_count, printable
from ding_like.errors import SchemaError
from ding_like.pipeline.parallel.core.book import DataBook
from ding_like.pipeline.parallel.core.credit import allow
from ding_like.pipeline.parallel.core.index import BufferIndex
from ding_like.pipeline.parallel.core.once import OnceIndex
from ding_like.pipeline.parallel.core.pace import OnPolicyPace, Pace
from ding_like.pipeline.parallel.core.state import StateStore
from ding_like.pipeline.parallel.core.tasks import FAILED, FINISHED, LEASED, TaskEntry, TaskTable
from ding_like.pipeline.parallel.core.workers import WorkerEntry, WorkerTable
from ding_like.worker.commander.naive import NaiveCommander

logger = logging.getLogger(__name__)

# What a worker of a role does, most urgent first.
_KINDS = {"collector": ("eval", "collect"), "learner": ("learn",)}


@dataclass(frozen=True)
class CoreConfig:
    """Hold the numbers by which the core decides."""

    pace: Pace | OnPolicyPace
    buffer_size: int
    segment_rows: int  # what a worker collects between two messages
    lease_ttl_s: float = 10.0
    heartbeat_s: float = 3.0
    max_failures: int = 3  # of one task, before the run fails


class CoordinatorCore:
    """Keep the run. Not thread-safe; `clock` gives seconds that only grow."""

    def __init__(
        self,
        cfg: CoreConfig,
        *,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        store: StateStore,
        commander: NaiveCommander,
        make_index: Callable[[str], BufferIndex | OnceIndex],
    ) -> None:
        self.cfg = cfg
        self._clock = clock
        self._wall_clock = wall_clock
        self._store = store
        self._commander = commander
        self.book = DataBook(store=store, pace=cfg.pace, make_index=make_index)
        self.tasks = TaskTable(cfg.lease_ttl_s)
        self.workers = WorkerTable()
        self.policies: dict[str, m.PolicyVersion] = {}
        self.learn_iter = 0
        self._num_tasks = 0
        self._failures_in_a_row = 0
        self.is_over = False
        self.failure: str | None = None  # why the run failed
        # Told of workers that come and go, after the fact.
        self.on_join: Callable[[str], None] = lambda worker_id: None
        self.on_leave: Callable[[str], None] = lambda worker_id: None
        self.epoch, self.run_id = 1, secrets.token_hex(8)
        self._restore()

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

    def take_removable(self) -> list[str]:
        """Return, once, the names of segments whose files nobody needs any more."""
        names, self.book.removable = self.book.removable, []
        return names

    def take_spoiled(self) -> list[str]:
        """Return, once, the names of segments whose files could not be read."""
        names, self.book.spoiled = self.book.spoiled, []
        return names

    # --- workers

    def hello(self) -> m.Hello:
        """Answer who asks without a key."""
        return m.Hello((m.PROTOCOL,), self.epoch, self._wall_clock(), ding_like.__version__, self.run_id)

    def register(self, message: m.Register) -> m.Registered:
        """Take a worker in; the same incarnation again is the same worker. Raises RefusedError for another version."""
        if message.role not in _KINDS:
            raise RefusedError("wrong_role", f"there is no role {message.role}; roles are {', '.join(_KINDS)}")
        if message.package != ding_like.__version__:
            raise RefusedError(
                "wrong_protocol",
                f"the worker has ding_like {message.package}, the coordinator {ding_like.__version__}: "
                "install the same version on both",
            )
        worker_id = f"{message.role}-{message.incarnation}"
        if worker_id in self.workers:
            self._heard_of(worker_id)
        else:
            deadline_s = self._clock() + self.cfg.lease_ttl_s
            worker = self.workers.join(worker_id, message.role, message.host, message.pid, deadline_s=deadline_s)
            with self._saving():
                self._store.put("worker", worker_id, worker.to_plain())
            self.on_join(worker_id)
        return m.Registered(worker_id, self.epoch, self.cfg.lease_ttl_s, self.cfg.heartbeat_s)

    def heartbeat(self, worker_id: str, message: m.Heartbeat) -> m.HeartbeatReply:
        """Renew a worker's leases and tell it what to do."""
        worker = self._heard_of(worker_id)
        worker.state = message.state
        commands = [m.Command("finish_task", t.task_id) for t in self.tasks.of_worker(worker_id) if t.is_asked_back]
        if self.is_over:
            commands.append(m.Command("stop"))
        return m.HeartbeatReply(tuple(commands), dict(self.policies), self.env_step, self.cfg.lease_ttl_s)

    def leave(self, worker_id: str, message: m.Leave) -> m.Ok:
        """Let a worker go; its tasks go back into the queue."""
        self._heard_of(worker_id)
        self._remove_worker(worker_id, message.reason)
        return m.Ok()

    def tick(self) -> None:
        """Take tasks back from workers that were not heard of in time."""
        now = self._clock()
        for worker in [each for each in self.workers.values() if each.deadline_s <= now]:
            self._remove_worker(worker.worker_id, f"not heard of for {self.cfg.lease_ttl_s:g} s")
        for task in self.tasks.expired(now):  # of workers that nobody knows: after a restart
            self._take_back(task, "its worker has not come back")
        self._make_tasks()

    def lost(self, host: str, pid: int, reason: str) -> bool:
        """Take the news that a process has died; return whether it was a worker that had done anything."""
        worker = self.workers.find(host, pid)
        if worker is not None:  # it has not left by itself
            self._remove_worker(worker.worker_id, reason)
            self._make_tasks()
        return self.workers.had_worked(host, pid)

    def num_workers(self, role: str) -> int:
        """Return how many workers of a role there are."""
        return len(self.workers.of_role(role))

    # --- tasks

    def claim(self, worker_id: str, message: m.Claim) -> m.ClaimReply:
        """Give a worker a task, or none."""
        worker = self._heard_of(worker_id)
        if self.is_over or (worker.role == "collector" and self._commander.is_to_end(self)):
            return m.ClaimReply(None)
        held = self.tasks.of_worker(worker_id)
        if held:  # its claim was answered, and the answer got lost
            return m.ClaimReply(self._as_task(held[0], worker))
        self._make_tasks()
        task = self.tasks.claim(worker_id, _KINDS[worker.role], self._clock())
        if task is None:
            return m.ClaimReply(None)
        if task.kind == "eval" and task.policy_id in self.policies:
            task.policy = asdict(self.policies[task.policy_id])
        self._save_tasks(task)
        return m.ClaimReply(self._as_task(task, worker))

    def task_info(self, worker_id: str, task_id: str, message: m.TaskInfo) -> m.TaskInfoReply:
        """Take news of a task; a `warning` among them is for whoever watches the run."""
        worker = self._heard_of(worker_id)
        task = self.tasks.check(task_id, message.attempt, worker_id)
        if "warning" in message.info:
            logger.warning("%s: %s", worker_id, printable(str(message.info["warning"])))
        policy = self.policies.get(task.policy_id)
        if task.kind == "learn" and self._commander.final_policy is not None:
            policy = m.PolicyVersion(**self._commander.final_policy)
        return m.TaskInfoReply(self._is_to_finish(task), self.env_step, policy, self._credit(worker, task))

    def finish_task(self, worker_id: str, task_id: str, message: m.FinishTask) -> m.EndReply:
        """Take a task's result."""
        self._heard_of(worker_id).credit = 0
        task = self.tasks.check(task_id, message.attempt, worker_id)
        result = {**message.result, "env_step": self.env_step, "policy": task.policy}
        newest = self.policy_of(task.policy_id)
        try:
            self.is_over |= self._commander.finished(task.kind, result, task_cfg=task.cfg, newest=newest)
        except SchemaError as error:
            raise RefusedError("schema", str(error)) from error
        task.status = FINISHED
        self._save_tasks(task)
        self._make_tasks()
        return m.EndReply(self.is_over)

    def fail_task(self, worker_id: str, task_id: str, message: m.FailTask) -> m.EndReply:
        """Take the news that a task failed: another attempt follows, until there were too many."""
        self._heard_of(worker_id).credit = 0
        task = self.tasks.check(task_id, message.attempt, worker_id)
        task.failures += 1
        self._failures_in_a_row += 1  # with nothing done by anybody between
        cause = printable(message.message)
        logger.error("%s failed at %s: %s", worker_id, task_id, cause)
        worst = max(task.failures, self._failures_in_a_row)
        if worst >= self.cfg.max_failures:
            task.status = FAILED
            self.failure = f"tasks failed {worst} times, last {task_id} at {worker_id}: {cause}"
            self.is_over = True
        else:
            self.tasks.release(task)
        self._save_tasks(task)
        return m.EndReply(self.is_over)

    def pinned(self) -> set[tuple[int, int]]:
        """Return (attempt, version) of the weights that must be kept: under evaluation, and the commander's."""
        plain = [task.policy for task in self.tasks.tasks.values() if task.status == LEASED]
        plain += self._commander.kept_policies
        return {(each["attempt"], each["version"]) for each in plain if each is not None}

    def live_segments(self) -> list[str]:
        """Return the names of all segments whose files are still needed."""
        return self.book.live_segments()

    def drop_surplus(self) -> None:
        """Forget queued collect tasks beyond those that there are collectors for, all but one."""
        surplus = self.tasks.surplus("collect", max(self.num_workers("collector"), 1))
        if surplus:
            self._save_tasks(*surplus)

    def num_open(self, kind: str) -> int:
        """Return how many tasks of a kind are queued or being done."""
        return self.tasks.num_open(kind)

    def policy_of(self, policy_id: str) -> dict[str, Any] | None:
        """Return the fields of the newest published version of a policy."""
        return asdict(self.policies[policy_id]) if policy_id in self.policies else None

    def ask_back(self, kind: str) -> bool:
        """Ask for the first task of a kind that is being done to be finished early; return whether there is one."""
        return self.tasks.ask_back(kind)

    # --- data

    def send_data(self, worker_id: str, task_id: str, message: m.SendData) -> m.SendDataReply:
        """Number the segments of a task and take them into the index, each once."""
        worker = self._heard_of(worker_id)
        task = self.tasks.check(task_id, message.attempt, worker_id)
        if task.kind != "collect":
            raise RefusedError("wrong_role", f"{task_id} is no task to collect")
        newest = self.policies.get(task.policy_id)
        accepted: list[str] = []
        duplicate: list[str] = []
        rejected: list[m.Rejected] = []
        with self._saving():
            for info in message.segments:
                try:
                    is_new = self.book.take(worker_id, task.buffer_id, info, newest)
                except RefusedError as error:
                    rejected.append(m.Rejected(info.name, error.code))
                    continue
                (accepted if is_new else duplicate).append(info.name)
                if is_new:
                    worker.has_worked = True
                    worker.env_steps += info.env_steps
                    worker.stats = info.stats
                    worker.policy_version = info.policy_version
            worker.credit = 0
            if accepted:
                self.book.save_number(worker_id)
                self._failures_in_a_row = 0
                self._save_run()
        return m.SendDataReply(
            tuple(accepted),
            tuple(duplicate),
            tuple(rejected),
            self._credit(worker, task),
            self.env_step,
            self.policies.get(task.policy_id),
            self._is_to_finish(task),
        )

    def sample(self, worker_id: str, buffer_id: str, message: m.Sample) -> m.SampleReply:
        """Draw as many batches as the pace allows, up to `num_batches`."""
        worker = self._heard_of(worker_id)
        task = self._learn_task(worker_id, buffer_id, message)
        check_count(message.cur_learner_iter, "cur_learner_iter")
        with self._saving():
            if message.have_segments_up_to == 0:
                self.book.take_learner_in(message.cur_learner_iter, is_again=task.attempt > 1)
            drawn = self.book.draw(buffer_id, message, self.policies.get(task.policy_id))
            if drawn.batches is not None:
                worker.has_worked = True
                self._save_run()
        # What the pace allows is learned before the end, as the serial pipeline would have.
        finish = self.is_over or (self._is_to_finish(task) and drawn.is_all)
        return m.SampleReply(
            drawn.batches, drawn.new_segments, drawn.num_rows, message.batch_size, self.env_step, finish
        )

    def update(self, worker_id: str, buffer_id: str, message: m.Update) -> m.UpdateReply:
        """Take priorities and what the learner says of itself."""
        worker = self._heard_of(worker_id)
        task = self._learn_task(worker_id, buffer_id, message)
        check_count(message.learn_iter, "learn_iter")
        self.learn_iter = max(self.learn_iter, message.learn_iter)
        if message.info:
            worker.stats = message.info
        with self._saving():
            fault = self.book.update(buffer_id, message)
            if message.bad_segments:
                self._save_run()
        if fault is not None:
            self.fail(fault)
        self._make_tasks()
        return m.UpdateReply(self._is_to_finish(task), self.env_step)

    def publish(self, worker_id: str, policy_id: str, message: m.Publish) -> m.Ok:
        """Take the news of published weights. Raises RefusedError if they are not newer than those known."""
        self._heard_of(worker_id)
        task = self.tasks.check(message.task_id, message.attempt, worker_id)
        if task.policy_id != policy_id or task.kind != "learn":
            raise RefusedError("wrong_role", f"{message.task_id} does not train {policy_id}")
        check_count(message.version, "version")
        check_count(message.nbytes, "nbytes")
        known = self.policies.get(policy_id)
        if known is not None and (message.attempt, message.version) <= (known.attempt, known.version):
            raise RefusedError("version_not_newer", f"{policy_id} is at {known.attempt}-{known.version} already")
        version = m.PolicyVersion(message.attempt, message.version, message.sha256, message.nbytes)
        with self._saving():
            self._store.put("policy", policy_id, asdict(version))
            self.book.published()
            self._save_run()
        self.policies[policy_id] = version
        if isinstance(self.cfg.pace, OnPolicyPace):
            for each in self.workers.values():
                each.credit = 0  # for rows of weights that are old now
        self._make_tasks()
        return m.Ok()

    def close(self) -> None:
        """Close buffers and state."""
        self.book.close()
        self._store.close()

    # --- inside

    def _heard_of(self, worker_id: str) -> WorkerEntry:
        worker = self.workers.get(worker_id)
        if worker is None:
            raise RefusedError("unknown", f"there is no worker {worker_id}; register again")
        now = self._clock()
        worker.deadline_s = now + self.cfg.lease_ttl_s
        self.tasks.renew(worker_id, now)
        return worker

    def _remove_worker(self, worker_id: str, reason: str) -> None:
        self.workers.remove(worker_id)
        for task in self.tasks.of_worker(worker_id):
            self._take_back(task, reason)
        with self._saving():
            self._store.delete("worker", worker_id)
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
        """Ask for a collect task back where an evaluation waits and every collector is busy."""
        waits = self.tasks.is_queued("eval")
        if waits and all(self.tasks.of_worker(each.worker_id) for each in self.workers.of_role("collector")):
            self.ask_back("collect")

    def _as_task(self, task: TaskEntry, worker: WorkerEntry) -> m.Task:
        return m.Task(
            task.task_id,
            task.attempt,
            task.kind,
            task.buffer_id,
            task.policy_id,
            {**task.cfg, "worker_index": worker.index},
            self.cfg.lease_ttl_s,
            self.policies.get(task.policy_id) if task.policy is None else m.PolicyVersion(**task.policy),
        )

    def _is_to_finish(self, task: TaskEntry) -> bool:
        return self.is_over or task.is_asked_back or self._commander.is_to_end(self)

    def _credit(self, worker: WorkerEntry, task: TaskEntry) -> int:
        """Allow a worker the rows of one segment, if there are weights to act with and the pace has room."""
        if task.policy_id not in self.policies:
            return 0
        newest = self.policies.get(task.policy_id)
        worker.credit = allow(worker, self.workers, self.cfg.segment_rows, self.book, newest, self._clock())
        return worker.credit

    def _learn_task(self, worker_id: str, buffer_id: str, message: m.Sample | m.Update) -> TaskEntry:
        task = self.tasks.check(message.task_id, message.attempt, worker_id)
        if task.kind != "learn" or task.buffer_id != buffer_id:
            raise RefusedError("wrong_role", f"{message.task_id} does not learn from {buffer_id}")
        return task

    def fail(self, failure: str) -> None:
        """End the run with a reason."""
        self.failure, self.is_over = self.failure or failure, True
        self._save_tasks()

    @contextmanager
    def _saving(self) -> Iterator[None]:
        """Save what the block changes; if it cannot be saved, the run ends: memory must not be ahead of the file."""
        try:
            with self._store.transaction():
                yield
        except sqlite3.Error as error:
            self.failure = (
                f"the coordinator's state cannot be written: {error}. Make room or mend the disk, then start the "
                "coordinator again with the same folder; it goes on from what was written."
            )
            self.is_over = True
            raise RefusedError("storage_full", self.failure) from error

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
        if saved is not None:
            self.epoch, self.run_id = saved["epoch"] + 1, saved["run_id"]
            for name in ("learn_iter", "_num_tasks", "is_over", "failure"):
                setattr(self, name, saved[name])
            self._commander.load_state_dict(saved["commander"])
        now = self._clock()
        for worker_id, worker in self._store.items("worker"):
            self.workers.join(worker_id, **worker, deadline_s=now + self.cfg.lease_ttl_s)
        for _, task in self._store.items("task"):
            self.tasks.add(TaskEntry(**task, deadline_s=now + self.cfg.lease_ttl_s))
        for policy_id, version in self._store.items("policy"):
            self.policies[policy_id] = m.PolicyVersion(**version)
        self.book.restore(None if saved is None else saved["book"])
        with self._store.transaction():
            self._save_run()
