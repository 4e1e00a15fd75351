"""Decisions and saved state of the coordinator: tasks, workers, leases, segments, batches, weights.

No HTTP, no threads, no clock: the caller brings the time and one lock. Every method answers one message of protocol
dl/4 within `saving`, which saves what it changed before the answer goes out, so that a coordinator that is killed
continues where it was. `once` answers a message that may be repeated, and saves by itself.
"""

from __future__ import annotations

import hmac
import json
import logging
import secrets
from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import ding_like
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.messages import RefusedError, Stamp, check_count, printable
from ding_like.errors import SchemaError
from ding_like.pipeline.parallel.core.ledger import (
    BUFFER_ID,
    PRIORITY_INFO,
    CoreConfig,
    OnPolicyLedger,
    ReplayLedger,
)
from ding_like.pipeline.parallel.core.state import (
    FAILED,
    FINISHED,
    LEASED,
    Journal,
    SilenceWatch,
    StateStore,
    StateUnwritableError,
    TaskEntry,
    TaskTable,
    WorkerEntry,
    bounded_stats,
    check_evaluation,
    check_numbers,
)
from ding_like.types import Json
from ding_like.worker import IBuffer
from ding_like.worker.commander import NaiveCommander

__all__ = ["CoordinatorCore", "CoreConfig"]

logger = logging.getLogger(__name__)

# What a worker of a role does, most urgent first.
_KINDS = {"collector": ("eval", "collect"), "learner": ("learn",)}
# A worker that waits asks again every second; one that was silent for longer does not delay others.
_SILENT_S = 3.0
_MAX_SECRET = 256  # characters
_MAX_STATE = 64  # characters of a worker's state
_NOT_SHOWN = ("learner_step", "priority_info", "bad_segments")  # of a learner's info
_LEFT_KEPT = 64
_DONE_KEPT = 100  # tasks that have ended
_EXCUSE_S = 120.0  # more time to publish, for a learner that reports why it waits, once a minute
_SAVED = ("learn_iter", "_num_tasks", "is_over", "failure")
_OF_BOOK = ("env_step", "granted_updates", "waiting_updates", "stale_rows", "bad_rows")  # what the status shows


class CoordinatorCore:
    """State machine of a coordinator: answers the messages of workers. Not thread-safe; `clock` is monotonic [s].

    Data, batches, reports and results go through the `deal_with_*` methods of `callbacks`, which are the core's own
    until a Coordinator takes their place. `halted` is the reason why nothing is answered any more though the run is not
    over: the state file cannot be written.
    """

    def __init__(
        self,
        cfg: CoreConfig,
        *,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        store: StateStore,
        commander: NaiveCommander,
        make_buffer: Callable[[], IBuffer],
    ) -> None:
        self.cfg, self._store, self._commander = cfg, store, commander
        self._clock, self._wall_clock = clock, wall_clock
        self.book: ReplayLedger | OnPolicyLedger
        if cfg.is_on_policy:
            self.book = OnPolicyLedger(cfg, store=store)
        else:
            self.book = ReplayLedger(cfg, store=store, buffer=make_buffer())
        self.tasks = TaskTable()
        self.workers: dict[str, WorkerEntry] = {}
        # (host, pid) of the last that left after they had done something.
        self._left: deque[tuple[str, int]] = deque(maxlen=_LEFT_KEPT)
        # (worker, when by the wall's clock, why) of workers that have not left by themselves.
        self.losses: deque[tuple[str, float, str]] = deque(maxlen=_LEFT_KEPT)
        self.journal = Journal(store)
        # At whom tasks failed, with nothing done by any worker between. One that is started again is the same.
        self._failed_in_a_row: list[tuple[str, int]] = []  # role and index
        self._silence = SilenceWatch()
        self.policies: dict[str, m.PolicyVersion] = {}
        self.learn_iter = 0
        self._num_tasks = 0
        self.is_over = False
        self.failure: str | None = None  # why the run failed
        self.halted: str | None = None
        self.callbacks: Any = self  # what has the methods deal_with_* of DI-engine's coordinator
        self.epoch, self.run_id = 1, secrets.token_hex(8)
        self.is_saving = False
        self._saved_run = ""
        self._restore()

    def once(
        self,
        worker_id: str,
        stamp: Stamp | None,
        ask: Callable[[], Any],
        *,
        is_final: Callable[[Any], bool] | None = None,
    ) -> tuple[Any, bool]:
        """Return (answer, whether it is final): that of `ask`, or the final one that this message had before.

        Without `is_final` every answer is one. A final answer is saved in the transaction of what it answers, a refusal
        too, unless the same message may be taken later or the worker is not known. Raises RefusedError as `ask` does,
        and `old_message` for a number below its channel's last.
        """
        known = None if stamp is None else self.journal.find(worker_id, stamp)
        if known is not None:
            return known, True
        with self.saving():
            try:
                reply = ask()
            except RefusedError as error:
                if stamp is not None and not error.retryable and worker_id in self.journal.secrets:
                    self.journal.keep(worker_id, stamp, error)
                raise
            is_done = is_final is None or is_final(reply)
            if is_done and stamp is not None:
                self.journal.keep(worker_id, stamp, reply)
        return reply, is_done

    # --- workers

    def hello(self) -> m.Hello:
        """Answer a request without a key."""
        return m.Hello((m.PROTOCOL,), self.epoch, self._wall_clock(), ding_like.__version__, self.run_id)

    def register(self, message: m.Register) -> m.Registered:
        """Take a worker in; the same incarnation again is the same worker.

        Raises RefusedError for another version, `finished` once the run is over, and `name_taken` for a name that was
        registered with another secret.
        """
        if message.role not in _KINDS:
            raise RefusedError("wrong_role", f"there is no role {message.role}; roles are {', '.join(_KINDS)}")
        if message.package != ding_like.__version__:
            raise RefusedError(
                "wrong_protocol",
                f"the worker has ding_like {message.package}, the coordinator {ding_like.__version__}: "
                "install the same version on both",
            )
        if self.is_over:
            raise RefusedError("finished", f"run {self.run_id} is over")
        worker_id = f"{message.role}-{message.incarnation}"
        if len(message.secret) > _MAX_SECRET or not message.secret.isascii():
            found = f"the secret has {len(message.secret)} characters"
            raise RefusedError("malformed", f"{found}; expected hex, up to {_MAX_SECRET}")
        if not hmac.compare_digest(self.journal.secrets.get(worker_id, message.secret), message.secret):
            raise RefusedError("name_taken", f"{worker_id} is another worker's name; take a new incarnation")
        if worker_id in self.workers:
            self._heard_of(worker_id)
        else:
            taken = {each.index for each in self._of_role(message.role)}
            index = next(number for number in range(len(taken) + 1) if number not in taken)
            self.workers[worker_id] = WorkerEntry(worker_id, message.role, message.host, message.pid, index)
            self._store.put("worker", worker_id, self._heard_of(worker_id).to_plain())
            self.journal.add_worker(worker_id, message.secret)
            if message.role == "collector":
                self.callbacks.deal_with_increase_collector()
        return m.Registered(worker_id, self.cfg.heartbeat_s)

    def secret_of(self, worker_id: str) -> str | None:
        """Return the secret that a worker registered with; None for a worker that is not there."""
        return self.journal.secrets.get(worker_id) if worker_id in self.workers else None

    def heartbeat(self, worker_id: str, message: m.Heartbeat) -> m.HeartbeatReply:
        """Renew a worker's leases and tell it what to do."""
        worker = self._heard_of(worker_id)
        worker.state = printable(message.state, _MAX_STATE)
        commands = [m.Command("finish_task", t.task_id) for t in self.tasks.of_worker(worker_id) if t.is_asked_back]
        if self.is_over:
            commands.append(m.Command("stop"))
        return m.HeartbeatReply(tuple(commands), dict(self.policies))

    def leave(self, worker_id: str, message: m.Leave) -> m.Ok:
        """Let a worker go; its tasks go back into the queue."""
        self._heard_of(worker_id)
        self._remove_worker(worker_id, message.reason)
        return m.Ok()

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
        queued = (each for kind in _KINDS[worker.role] for each in self.tasks.queued(kind))
        task = next((each for each in queued if self._is_for(worker, each)), None)
        if task is None:
            return m.ClaimReply(None)
        task.status, task.worker_id, task.is_asked_back = LEASED, worker_id, False
        task.attempt += 1
        task.leased_s = self._clock()
        task.deadline_s = task.leased_s + self.cfg.lease_ttl_s
        if task.kind == "eval" and task.policy_id in self.policies:
            task.policy = asdict(self.policies[task.policy_id])
        if task.kind == "learn":
            self._silence.begin()
            self.book.drop_waiting()  # on-policy: this attempt has published nothing that they could be of
        self._save_tasks(task)
        return m.ClaimReply(self._as_task(task, worker))

    def task_info(self, worker_id: str, task_id: str, message: m.TaskInfo) -> m.TaskInfoReply:
        """Take news of a task; a `warning` among them is for the user."""
        worker = self._heard_of(worker_id)
        task = self.tasks.check(task_id, message.attempt, worker_id)
        if "warning" in message.info:
            logger.warning("%s: %s", worker_id, printable(str(message.info["warning"])))
            if task.kind == "learn":
                self._silence.silent_s = -_EXCUSE_S
        policy, final = self.policies.get(task.policy_id), self._commander.final_policy
        if task.kind == "learn" and final is not None:
            policy = m.PolicyVersion(**final)
        return m.TaskInfoReply(self._is_to_finish(task), self.env_step, policy, self._credit(worker, task))

    def finish_task(self, worker_id: str, task_id: str, message: m.FinishTask) -> m.EndReply:
        """Take a task's result, through the callback of its kind."""
        self._heard_of(worker_id).credit = 0
        role = "learner" if self.tasks.check(task_id, message.attempt, worker_id).kind == "learn" else "collector"
        finish = getattr(self.callbacks, f"deal_with_{role}_finish_task")
        return m.EndReply(bool(finish(task_id, dict(message.result))))

    def fail_task(self, worker_id: str, task_id: str, message: m.FailTask) -> m.EndReply:
        """Take the news that a task failed: another attempt follows, until all that are there have tried too often."""
        worker = self._heard_of(worker_id)
        worker.credit = 0
        task = self.tasks.check(task_id, message.attempt, worker_id)
        self._fail_attempt(worker, task, message.message)
        self._make_tasks()
        return m.EndReply(self.is_over)

    # --- data

    def send_data(self, worker_id: str, task_id: str, message: m.SendData) -> m.SendDataReply:
        """Take the segments of a task in, each through `deal_with_collector_send_data`."""
        worker = self._heard_of(worker_id)
        task = self.tasks.check(task_id, message.attempt, worker_id)
        if task.kind != "collect":
            raise RefusedError("wrong_role", f"{task_id} is not a task to collect")
        accepted: list[str] = []
        duplicate: list[str] = []
        rejected: list[m.Rejected] = []
        for info in message.segments:
            data = {name: value for name, value in vars(info).items() if name != "name"}
            try:
                is_new = self.callbacks.deal_with_collector_send_data(task_id, task.buffer_id, info.name, data)
            except RefusedError as error:
                logger.warning("%s", printable(error.message))
                rejected.append(m.Rejected(info.name, error.code))
                continue
            (accepted if is_new else duplicate).append(info.name)
        worker.credit = 0
        came, policy = (tuple(accepted), tuple(duplicate), tuple(rejected)), self.policies.get(task.policy_id)
        return m.SendDataReply(*came, self._credit(worker, task), self.env_step, policy, self._is_to_finish(task))

    def sample(self, worker_id: str, buffer_id: str, message: m.Sample) -> m.SampleReply:
        """Draw up to `num_batches` batches, each through `deal_with_learner_get_data`."""
        worker = self._heard_of(worker_id)
        task = self._learn_task(worker_id, buffer_id, message)
        check_count(message.cur_learner_iter, "cur_learner_iter")
        self.book.check_sample(message)
        drawn: list[m.Batches] = []
        self.book.take_learner_in(task.attempt, message.cur_learner_iter)
        news, can_draw = self.book.news(message.have_segments_up_to)
        while can_draw and len(drawn) < message.num_batches:
            batch = self.callbacks.deal_with_learner_get_data(
                task.task_id, buffer_id, message.batch_size, message.cur_learner_iter
            )
            if batch is None:
                break
            drawn.append(batch)
            worker.has_worked = True
        # What the update ratio allows is learned before the end, as the serial pipeline would have.
        finish = self.is_over or (self._is_to_finish(task) and can_draw and not drawn)
        return m.SampleReply(self.book.join(drawn), news, self.env_step, finish)

    def update(self, worker_id: str, buffer_id: str, message: m.Update) -> m.Ok:
        """Take the learner's report through `deal_with_learner_send_info`."""
        self._heard_of(worker_id)
        task = self._learn_task(worker_id, buffer_id, message)
        check_count(message.learn_iter, "learn_iter")
        info = {**message.info, "learner_step": message.learn_iter, "bad_segments": message.bad_segments}
        if message.places is not None:
            info["priority_info"] = {name: getattr(message, name) for name in PRIORITY_INFO}
        self.callbacks.deal_with_learner_send_info(task.task_id, buffer_id, info)
        self._make_tasks()
        return m.Ok()

    def publish(self, worker_id: str, policy_id: str, message: m.Publish) -> m.Ok:
        """Take the news of published weights. Raises RefusedError if they are older than those known, or others."""
        self._heard_of(worker_id)
        task = self.tasks.check(message.task_id, message.attempt, worker_id)
        if task.policy_id != policy_id or task.kind != "learn":
            raise RefusedError("wrong_role", f"{message.task_id} does not train {policy_id}")
        check_count(message.version, "version")
        check_count(message.nbytes, "nbytes")
        version = m.PolicyVersion(message.attempt, message.version, message.sha256, message.nbytes)
        known = self.policies.get(policy_id)
        if version == known:  # the answer got lost
            return m.Ok()
        if known is not None and (message.attempt, message.version) <= (known.attempt, known.version):
            raise RefusedError("version_not_newer", f"{policy_id} is at {known.attempt}-{known.version} already")
        self._store.put("policy", policy_id, asdict(version))
        self.policies[policy_id] = version
        self.book.drop_waiting()
        self._silence.begin()
        if self.cfg.is_on_policy:
            for each in self.workers.values():
                each.credit = 0  # for rows of weights that are old now
        self._make_tasks()
        return m.Ok()

    # --- callbacks of DI-engine's API, for the worker that holds the task

    def deal_with_increase_collector(self) -> None:
        """Make a task for a collector that has come."""
        self._make_tasks()

    def deal_with_decrease_collector(self) -> None:
        """End the queued collect tasks beyond those that there are collectors for, all but one."""
        surplus = max(self.num_open("collect") - max(self.num_workers("collector"), 1), 0)
        extra = self.tasks.queued("collect")[::-1][:surplus]
        for task in extra:
            task.status = FINISHED
        self._save_tasks(*extra)

    def deal_with_collector_send_data(
        self, task_id: str, buffer_id: str, data_id: str, data: Mapping[str, Json]
    ) -> bool:
        """Number the segment `data_id` and take it into the index; return False for one that came before."""
        task, worker = self._leased(task_id, buffer_id)
        info = m.SegmentInfo(**{**data, "name": data_id})
        is_new = self.book.take(worker.worker_id, info, self._wanted_weights(task.policy_id))
        if is_new:
            worker.has_worked = True
            worker.env_steps += info.env_steps
            worker.rows += info.rows
            worker.stats = bounded_stats(info.stats)
            worker.policy_version = info.policy_version
            self._failed_in_a_row.clear()
        return is_new

    def deal_with_learner_get_data(
        self, task_id: str, buffer_id: str, batch_size: int, cur_learner_iter: int
    ) -> m.Batches | None:
        """Draw one batch; None while the buffer has too few rows, or the update ratio allows no further update."""
        task, _ = self._leased(task_id, buffer_id)
        return self.book.draw(batch_size, cur_learner_iter, self.policies.get(task.policy_id))

    def deal_with_learner_send_info(self, task_id: str, buffer_id: str, info: Mapping[str, Json]) -> None:
        """Take priorities, unreadable segments and what the learner reports of itself."""
        _, worker = self._leased(task_id, buffer_id)
        shown = {name: value for name, value in info.items() if name not in _NOT_SHOWN}
        fault = self.book.update(info.get("priority_info"), info.get("bad_segments") or ())
        self.learn_iter = max(self.learn_iter, int(info["learner_step"]))
        self._silence.report(int(info["learner_step"]), self._clock())
        if shown:
            worker.stats = bounded_stats(shown)
        if fault is not None:
            self.fail(fault)

    def deal_with_collector_finish_task(self, task_id: str, finished_task: Mapping[str, Json]) -> bool:
        """Take the result of a task; return whether the run is over.

        A learner's task is queued again if its final evaluation does not confirm the one that stopped the run. A result
        that the work cannot have given is a failed attempt: raises RefusedError `schema`.
        """
        task, worker = self._leased(task_id)
        result = {**finished_task, "env_step": self.env_step, "policy": task.policy}
        newest = self.policy_of(task.policy_id)
        try:
            check_numbers(finished_task)
            if task.kind == "eval":
                version = None if task.policy is None else task.policy["version"]
                n_episode, leased_s = int(task.cfg["n_episode"]), self._clock() - task.leased_s
                check_evaluation(finished_task, n_episode=n_episode, version=version, leased_s=leased_s)
            is_over = self._commander.finished(task.kind, result, task_cfg=task.cfg, newest=newest)
        except SchemaError as error:
            self._fail_attempt(worker, task, str(error))
            raise RefusedError("schema", str(error)) from error
        self.is_over |= is_over
        if task.kind == "learn" and not is_over:
            logger.info("%s was not confirmed by the learner's final evaluation: the run goes on", task_id)
            self.tasks.release(task)
        else:
            task.status = FINISHED
        self._save_tasks(task)
        self._make_tasks()
        return self.is_over

    deal_with_learner_finish_task = deal_with_collector_finish_task

    # --- what there is

    def status(self) -> dict[str, Json]:
        """Return a snapshot of the run as plain data."""
        shown = ("role", "state", "stats", "env_steps", "policy_version")
        return {
            **{name: getattr(self, name) for name in ("run_id", "epoch", "learn_iter", "is_over", "failure", "halted")},
            **{name: getattr(self.book, name) for name in _OF_BOOK},
            "workers": {id_: {name: getattr(each, name) for name in shown} for id_, each in self.workers.items()},
            "tasks": {each.task_id: {"kind": each.kind, "status": each.status} for each in self.tasks.values()},
            "buffers": {BUFFER_ID: {"rows": self.book.count}},
            "policies": {name: asdict(version) for name, version in self.policies.items()},
        }

    def silence_s(self, worker: WorkerEntry) -> float:
        """Return the seconds since a worker's last message."""
        return max(self._clock() + self.cfg.lease_ttl_s - worker.deadline_s, 0.0)

    @property
    def env_step(self) -> int:
        """Env steps that were taken for all accepted segments."""
        return self.book.env_step

    def num_workers(self, role: str) -> int:
        """Return how many workers of a role there are."""
        return len(self._of_role(role))

    def num_open(self, kind: str) -> int:
        """Return how many tasks of a kind are queued or being done."""
        return sum(task.kind == kind and task.is_open for task in self.tasks.values())

    def policy_of(self, policy_id: str) -> dict[str, Json] | None:
        """Return the fields of the newest published version of a policy."""
        return asdict(self.policies[policy_id]) if policy_id in self.policies else None

    def ask_back(self, kind: str, *, among: Container[str] | None = None) -> bool:
        """Ask the first worker that does a task of this kind to return it; return whether a worker was asked.

        No worker is asked while another still has to return such a task. `among` are the workers that may be asked, by
        default all.
        """
        leased = [task for task in self.tasks.values() if task.status == LEASED and task.kind == kind]
        may_be = [task for task in leased if among is None or task.worker_id in among]
        if not may_be or any(task.is_asked_back for task in may_be):
            return False
        may_be[0].is_asked_back = True
        return True

    def pinned(self) -> set[tuple[int, int]]:
        """Return (attempt, version) of the weights that must be kept: under evaluation, and the commander's."""
        plain = [task.policy for task in self.tasks.values() if task.status == LEASED]
        plain += self._commander.kept_policies
        return {(each["attempt"], each["version"]) for each in plain if each is not None}

    def take_evaluations(self) -> tuple[list[dict[str, Json]], list[dict[str, Json]]]:
        """Return, once, the evaluations that have come, and those that the final evaluation did not confirm."""
        found = self._commander.evaluations, self._commander.refuted
        self._commander.evaluations, self._commander.refuted = [], []
        return found

    # --- what happens by itself

    def tick(self) -> None:
        """Take tasks back from workers that sent nothing in time, and from a learner that publishes nothing."""
        now = self._clock()
        for worker in [each for each in self.workers.values() if each.deadline_s <= now]:
            self._lose(worker.worker_id, f"not heard of for {self.cfg.lease_ttl_s:g} s")
        for task in self.tasks.values():
            if task.status == LEASED and task.deadline_s <= now:  # of a worker that is not known: after a restart
                self._take_back(task, "its worker has not come back")
        learn = self.tasks.first("learn")
        if learn is not None and learn.status == LEASED and self._silence.silent_s >= self.cfg.publish_timeout_s:
            self._silence.begin()
            why = (
                f"it reported updates up to {self.learn_iter:,} for {self.cfg.publish_timeout_s:g} s and published no "
                "weights (coordinator.publish_timeout_s)"
            )
            if learn.worker_id in self.workers:
                self._fail_attempt(self.workers[learn.worker_id], learn, why)
            else:
                self._take_back(learn, why)
        self._make_tasks()

    def lost(self, host: str, pid: int, reason: str) -> bool:
        """Take the news that a process has died; return whether it was a worker that had done anything."""
        found = next((each for each in self.workers.values() if (each.host, each.pid) == (host, pid)), None)
        if found is not None:  # it has not left by itself
            self._lose(found.worker_id, reason)
            self._make_tasks()
        return (host, pid) in self._left

    def fail(self, failure: str) -> None:
        """End the run with a reason."""
        self.failure, self.is_over = self.failure or failure, True

    def halt(self, why: str) -> None:
        """Answer nothing any more; the run is not over, and another start continues it."""
        self.halted = self.halted or why

    def close(self) -> None:
        """Close buffers and state."""
        self.book.close()
        self._store.close()

    # --- inside

    def _leased(self, task_id: str, buffer_id: str | None = None) -> tuple[TaskEntry, WorkerEntry]:
        """Return a task and the worker that holds it. Raises RefusedError without such a task or worker."""
        task = self.tasks.get(task_id)
        if task is None or (buffer_id is not None and task.buffer_id != buffer_id):
            raise RefusedError("unknown", f"there is no task {task_id} of buffer {buffer_id}")
        if task.status != LEASED:
            raise RefusedError("stale_attempt", f"{task_id} is {task.status}: no worker does it")
        return task, self._heard_of(str(task.worker_id))

    def _heard_of(self, worker_id: str) -> WorkerEntry:
        worker = self.workers.get(worker_id)
        if worker is None:
            raise RefusedError("unknown", f"there is no worker {worker_id}; register again")
        worker.deadline_s = self._clock() + self.cfg.lease_ttl_s
        for task in self.tasks.of_worker(worker_id):
            task.deadline_s = worker.deadline_s
        return worker

    def _of_role(self, role: str) -> list[WorkerEntry]:
        return [each for each in self.workers.values() if each.role == role]

    def _as_task(self, task: TaskEntry, worker: WorkerEntry) -> m.Task:
        cfg = {**task.cfg, "worker_index": worker.index, "segment_episodes": self.cfg.segment_episodes}
        policy = self.policies.get(task.policy_id) if task.policy is None else m.PolicyVersion(**task.policy)
        return m.Task(task.task_id, task.attempt, task.kind, task.buffer_id, task.policy_id, cfg, policy)

    def _is_to_finish(self, task: TaskEntry) -> bool:
        return self.is_over or task.is_asked_back or self._commander.is_to_end(self)

    def _credit(self, worker: WorkerEntry, task: TaskEntry) -> int:
        """Allow a worker the rows of one segment, if there are weights to act with and the update ratio has room.

        Room is taken by what others were allowed, and kept for those that have waited longer. On-policy it may be less
        than a segment: what is left of a batch. What comes may be more or less: it is accounted for as it is.
        """
        if (wanted := self._wanted_weights(task.policy_id)) is None:
            return 0
        now_s = self._clock()
        worker.heard_s = now_s
        since_s = now_s if worker.waits_since_s is None else worker.waits_since_s
        others = [each for each in self.workers.values() if each is not worker]
        ahead = sum(
            each.waits_since_s is not None and each.waits_since_s < since_s and now_s - each.heard_s < _SILENT_S
            for each in others
        )
        worker.credit = self.book.rows_allowed(sum(each.credit for each in others), ahead, wanted)
        worker.waits_since_s = None if worker.credit else since_s
        return worker.credit

    def _learn_task(self, worker_id: str, buffer_id: str, message: m.Sample | m.Update) -> TaskEntry:
        task = self.tasks.check(message.task_id, message.attempt, worker_id)
        if task.kind != "learn" or task.buffer_id != buffer_id:
            raise RefusedError("wrong_role", f"{message.task_id} does not learn from {buffer_id}")
        return task

    def _fail_attempt(self, worker: WorkerEntry, task: TaskEntry, cause: str) -> None:
        """Have a task tried again, at another worker if there is one; end the run if all that are there have tried."""
        cause = printable(cause)
        logger.error("%s failed at %s: %s", worker.worker_id, task.task_id, cause)
        task.failures += 1
        if worker.index not in task.failed_by:
            task.failed_by.append(worker.index)
        self._failed_in_a_row.append((worker.role, worker.index))
        in_a_row = [index for role, index in self._failed_in_a_row if role == worker.role]
        present = {each.index for each in self._of_role(worker.role)}
        tries = [(task.failures, set(task.failed_by)), (len(in_a_row), set(in_a_row))]
        worst = max((number for number, who in tries if number >= self.cfg.max_failures and present <= who), default=0)
        if worst:
            task.status = FAILED
            self.fail(f"tasks failed {worst} times, last {task.task_id} at {worker.worker_id}: {cause}")
        else:
            self.tasks.release(task)
        self._save_tasks(task)

    def _lose(self, worker_id: str, reason: str) -> None:
        """Remove a worker that has not left by itself, and record why."""
        self.losses.append((worker_id, self._wall_clock(), printable(reason)))
        self._remove_worker(worker_id, reason)

    def _remove_worker(self, worker_id: str, reason: str) -> None:
        worker = self.workers.pop(worker_id)
        if worker.has_worked:
            self._left.append((worker.host, worker.pid))
        for task in self.tasks.of_worker(worker_id):
            self._take_back(task, reason)
        self._store.delete("worker", worker_id)
        self.journal.worker_left(worker_id)
        logger.info("%s has left: %s", worker_id, printable(reason))
        if worker.role == "collector":
            self.callbacks.deal_with_decrease_collector()

    def _take_back(self, task: TaskEntry, reason: str) -> None:
        logger.info("%s goes back into the queue: %s", task.task_id, printable(reason))
        self.tasks.release(task)
        self._save_tasks(task)

    def _make_tasks(self) -> None:
        if self.is_over:
            return
        for new in self._commander.new_tasks(self):
            self._num_tasks += 1
            task = TaskEntry(f"{new.kind}-{self._num_tasks}", new.kind, new.buffer_id, new.policy_id, new.cfg)
            self.tasks[task.task_id] = task
            self._save_tasks(task)
        # A collect task is asked back where an evaluation waits and every collector that it is for is busy.
        for task in self.tasks.queued("eval"):
            may = {each.worker_id for each in self._of_role("collector") if self._is_for(each, task)}
            if all(self.tasks.of_worker(worker_id) for worker_id in may):
                self.ask_back("collect", among=may)

    def _is_for(self, worker: WorkerEntry, task: TaskEntry) -> bool:
        """Return whether a worker may have a task: not one that failed there, while another can take it."""
        if worker.index not in task.failed_by:
            return True
        others = [each for each in self._of_role(worker.role) if each.index not in task.failed_by]
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
    def saving(self) -> Iterator[None]:
        """Save what the block changes, a RefusedError notwithstanding; a block in a block is part of that.

        If it cannot be saved, nothing is answered any more: memory is ahead of the file.
        """
        if self.is_saving:
            yield
            return
        self.is_saving, refusal = True, None
        try:
            with self._store.transaction():
                try:
                    yield
                except RefusedError as error:
                    refusal = error
                self._save_run()
        except StateUnwritableError as error:
            self.halt(str(error))
            raise RefusedError("storage_full", str(error)) from error
        finally:
            self.is_saving = False
        if refusal is not None:
            raise refusal

    def _save_tasks(self, *tasks: TaskEntry) -> None:
        for task in tasks:
            self._store.put("task", task.task_id, task.to_plain())
        done = [task_id for task_id, task in self.tasks.items() if not task.is_open]
        for task_id in done[: max(len(done) - _DONE_KEPT, 0)]:  # the oldest
            del self.tasks[task_id]
            self._store.delete("task", task_id)

    def _save_run(self) -> None:
        own = {name: getattr(self, name) for name in ("epoch", "run_id", *_SAVED)}
        run = {**own, "book": self.book.plain(), "commander": self._commander.state_dict()}
        if (text := json.dumps(run)) != self._saved_run:
            self._store.put("run", "run", run)
            self._saved_run = text

    def _restore(self) -> None:
        """Continue from saved state; every lease gets one fresh term."""
        saved = dict(self._store.items("run")).get("run")
        self._store.check_start(None if saved is None else saved["run_id"], 0 if saved is None else saved["epoch"])
        if saved is not None:
            self.epoch, self.run_id = saved["epoch"] + 1, saved["run_id"]
            for name in _SAVED:
                setattr(self, name, saved[name])
            self._commander.load_state_dict(saved["commander"])
            self.book.restore(saved["book"])
        deadline_s = self._clock() + self.cfg.lease_ttl_s
        for worker_id, worker in self._store.items("worker"):
            self.workers[worker_id] = WorkerEntry(worker_id, **worker, deadline_s=deadline_s)
        for task_id, task in self._store.items("task"):
            self.tasks[task_id] = TaskEntry(**task, deadline_s=deadline_s)
        for policy_id, version in self._store.items("policy"):
            self.policies[policy_id] = m.PolicyVersion(**version)
        with self._store.transaction():
            for worker_id in sorted(set(self.journal.secrets) - set(self.workers)):
                self.journal.worker_left(worker_id)
            self._save_run()
        self._store.mark_start(self.run_id, self.epoch)
