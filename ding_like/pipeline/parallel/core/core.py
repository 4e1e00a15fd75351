"""Decisions of the coordinator: tasks, leases, segments, batches, weights.

No HTTP, no threads, no clock: who calls brings the time and one lock. Every method answers one message of protocol dl/1
and saves what it changed before it returns, so that a coordinator that is killed goes on where it was. `once` answers a
message that may come again.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import ding_like
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.refusal import RefusedError
from ding_like.comm.rest.wire import check_count, printable
from ding_like.errors import SchemaError
from ding_like.pipeline.parallel.core.bounds import bounded_stats, check_evaluation, check_learned, most_env_steps
from ding_like.pipeline.parallel.core.run import CoreConfig, Run
from ding_like.pipeline.parallel.core.tasks import FINISHED, LEASED, TaskEntry, WorkerEntry

__all__ = ["CoordinatorCore", "CoreConfig"]

logger = logging.getLogger(__name__)

# What a worker of a role does, most urgent first.
_KINDS = {"collector": ("eval", "collect"), "learner": ("learn",)}
# A worker that waits asks again every second; one that was not heard of for longer does not hold others up.
_SILENT_S = 3.0
_MAX_SECRET = 256  # characters
_MAX_STATE = 64  # characters of what a worker says it does
_NOT_SHOWN = ("learner_step", "priority_info", "bad_segments")  # of a learner's info
_EXCUSE_S = 120.0  # more time to publish, for a learner that says what is in its way; it says so once a minute


class CoordinatorCore(Run):
    """State machine of a coordinator: answers the messages of workers.

    Data, batches, reports and results go through the `deal_with_*` methods of `callbacks`, which are the core's own
    until a Coordinator takes their place.
    """

    # --- workers

    def hello(self) -> m.Hello:
        """Answer who asks without a key."""
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
        self._check_secret(worker_id, message.secret)
        if worker_id in self.workers:
            self._heard_of(worker_id)
        else:
            worker = self.workers.join(
                worker_id, message.role, message.host, message.pid, now_s=self._clock(), lease_s=self.cfg.lease_ttl_s
            )
            with self._saving():
                self._secrets[worker_id] = message.secret
                self._store.put("worker", worker_id, worker.to_plain())
                self._store.put("secret", worker_id, {"secret": message.secret})
                self.journal.come(worker_id)
            self.on_join(worker_id)
        return m.Registered(worker_id, self.epoch, self.cfg.lease_ttl_s, self.cfg.heartbeat_s)

    def _check_secret(self, worker_id: str, secret: str) -> None:
        if len(secret) > _MAX_SECRET or not secret.isascii():
            raise RefusedError(
                "malformed", f"the secret has {len(secret)} characters; expected hex, up to {_MAX_SECRET}"
            )
        known = self._secrets.get(worker_id)
        if known is not None and not hmac.compare_digest(known, secret):
            raise RefusedError("name_taken", f"{worker_id} is another worker's name; take a new incarnation")

    def secret_of(self, worker_id: str) -> str | None:
        """Return the secret that a worker registered with; None for a worker that is not there."""
        return self._secrets.get(worker_id) if worker_id in self.workers else None

    def heartbeat(self, worker_id: str, message: m.Heartbeat) -> m.HeartbeatReply:
        """Renew a worker's leases and tell it what to do."""
        worker = self._heard_of(worker_id)
        worker.state = printable(message.state, _MAX_STATE)
        commands = [m.Command("finish_task", t.task_id) for t in self.tasks.of_worker(worker_id) if t.is_asked_back]
        if self.is_over:
            commands.append(m.Command("stop"))
        return m.HeartbeatReply(tuple(commands), dict(self.policies), self.env_step, self.cfg.lease_ttl_s)

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
        kinds = _KINDS[worker.role]
        task = self.tasks.claim(worker_id, kinds, self._clock(), is_for=lambda each: self._is_for(worker, each))
        if task is None:
            return m.ClaimReply(None)
        if task.kind == "eval" and task.policy_id in self.policies:
            task.policy = asdict(self.policies[task.policy_id])
        with self._saving():
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
                self._silence.excuse(_EXCUSE_S)
        policy = self.policies.get(task.policy_id)
        if task.kind == "learn" and self._commander.final_policy is not None:
            policy = m.PolicyVersion(**self._commander.final_policy)
        return m.TaskInfoReply(self._is_to_finish(task), self.env_step, policy, self._credit(worker, task))

    def finish_task(self, worker_id: str, task_id: str, message: m.FinishTask) -> m.EndReply:
        """Take a task's result, through the callback of its kind."""
        self._heard_of(worker_id).credit = 0
        task = self.tasks.check(task_id, message.attempt, worker_id)
        is_learning = task.kind == "learn"
        callbacks = self.callbacks
        finish = callbacks.deal_with_learner_finish_task if is_learning else callbacks.deal_with_collector_finish_task
        return m.EndReply(bool(finish(task_id, dict(message.result))))

    def _check_result(self, task: TaskEntry, result: Mapping[str, Any]) -> None:
        if task.kind == "learn":
            check_learned(result)
        if task.kind == "eval":
            check_evaluation(
                result,
                n_episode=int(task.cfg["n_episode"]),
                version=None if task.policy is None else task.policy["version"],
                leased_s=self._clock() - task.leased_s,
            )

    def fail_task(self, worker_id: str, task_id: str, message: m.FailTask) -> m.EndReply:
        """Take the news that a task failed: another attempt follows, until all that are there have tried too often."""
        worker = self._heard_of(worker_id)
        worker.credit = 0
        task = self.tasks.check(task_id, message.attempt, worker_id)
        with self._saving():
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
        with self._saving():
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
        return m.SendDataReply(
            tuple(accepted),
            tuple(duplicate),
            tuple(rejected),
            self._credit(worker, task),
            self.env_step,
            self.policies.get(task.policy_id),
            self._is_to_finish(task),
        )

    def _most_env_steps(self, worker: WorkerEntry) -> float:
        """Return how many env steps a worker can have taken that it has not told of."""
        cfg = self.cfg
        if not cfg.lanes:
            return float("inf")
        present_s = self._clock() - worker.joined_s
        segment_steps = cfg.segment_rows * cfg.steps_per_row
        most = most_env_steps(lanes=cfg.lanes, segment_steps=segment_steps, present_s=present_s)
        return most - worker.env_steps

    def sample(self, worker_id: str, buffer_id: str, message: m.Sample) -> m.SampleReply:
        """Draw up to `num_batches` batches, each through `deal_with_learner_get_data`."""
        worker = self._heard_of(worker_id)
        task = self._learn_task(worker_id, buffer_id, message)
        check_count(message.cur_learner_iter, "cur_learner_iter")
        self.book.check_sample(buffer_id, message)
        drawn: list[m.Batches] = []
        with self._saving():
            self.book.take_learner_in(task.attempt, message.cur_learner_iter)
            news, can_draw = self.book.news(buffer_id, message.have_segments_up_to)
            while can_draw and len(drawn) < message.num_batches:
                batch = self.callbacks.deal_with_learner_get_data(
                    task.task_id, buffer_id, message.batch_size, message.cur_learner_iter
                )
                if batch is None:
                    break
                drawn.append(batch)
            if drawn:
                worker.has_worked = True
                self._save_run()
        # What the update ratio allows is learned before the end, as the serial pipeline would have.
        finish = self.is_over or (self._is_to_finish(task) and can_draw and not drawn)
        index = self.book.index(buffer_id)
        return m.SampleReply(index.join(drawn), news, index.count, message.batch_size, self.env_step, finish)

    def update(self, worker_id: str, buffer_id: str, message: m.Update) -> m.UpdateReply:
        """Take the learner's report through `deal_with_learner_send_info`."""
        self._heard_of(worker_id)
        task = self._learn_task(worker_id, buffer_id, message)
        check_count(message.learn_iter, "learn_iter")
        info = {**message.info, "learner_step": message.learn_iter, "bad_segments": message.bad_segments}
        if message.places is not None:
            names = ("places", "unique_ids", "priorities")
            info["priority_info"] = {name: getattr(message, name) for name in names}
        with self._saving():
            self.callbacks.deal_with_learner_send_info(task.task_id, buffer_id, info)
            self._make_tasks()
        return m.UpdateReply(self._is_to_finish(task), self.env_step)

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
        with self._saving():
            self._store.put("policy", policy_id, asdict(version))
            self.book.drop_waiting()
            self._save_run()
            self.policies[policy_id] = version
            self._silence.begin()
            if self.cfg.is_on_policy:
                for each in self.workers.values():
                    each.credit = 0  # for rows of weights that are old now
            self._make_tasks()
        return m.Ok()

    # --- callbacks of DI-engine's API, for the worker that holds the task

    def deal_with_collector_send_data(
        self, task_id: str, buffer_id: str, data_id: str, data: Mapping[str, Any]
    ) -> bool:
        """Number the segment `data_id` and take it into the index; return False for one that came before."""
        task, worker = self._leased(task_id, buffer_id)
        info = m.SegmentInfo(**{**data, "name": data_id})
        wanted, most_env_steps = self._wanted_weights(task.policy_id), self._most_env_steps(worker)
        with self._saving():
            is_new = self.book.take(worker.worker_id, buffer_id, info, wanted, most_env_steps=most_env_steps)
            if is_new:
                worker.has_worked = True
                worker.env_steps += info.env_steps
                worker.stats = bounded_stats(info.stats)
                worker.policy_version = info.policy_version
                self._failures.something_was_done()
                self._save_run()
        return is_new

    def deal_with_learner_get_data(
        self, task_id: str, buffer_id: str, batch_size: int, cur_learner_iter: int
    ) -> m.Batches | None:
        """Draw one batch; None while the buffer has too few rows, or the update ratio allows no further update."""
        task, _ = self._leased(task_id, buffer_id)
        with self._saving():
            return self.book.draw(buffer_id, batch_size, cur_learner_iter, self.policies.get(task.policy_id))

    def deal_with_learner_send_info(self, task_id: str, buffer_id: str, info: Mapping[str, Any]) -> None:
        """Take priorities, unreadable segments and what the learner reports of itself."""
        _, worker = self._leased(task_id, buffer_id)
        shown = {name: value for name, value in info.items() if name not in _NOT_SHOWN}
        with self._saving():
            fault = self.book.update(buffer_id, info.get("priority_info"), info.get("bad_segments") or ())
            self.learn_iter = max(self.learn_iter, int(info["learner_step"]))
            self._silence.report(int(info["learner_step"]), self._clock())
            if shown:
                worker.stats = bounded_stats(shown)
            if info.get("bad_segments"):
                self._save_run()
            if fault is not None:
                self.fail(fault)

    def deal_with_collector_finish_task(self, task_id: str, finished_task: Mapping[str, Any]) -> bool:
        """Take the result of a task to collect or to evaluate; return whether the run is over."""
        return self._finish(task_id, finished_task)

    def deal_with_learner_finish_task(self, task_id: str, finished_task: Mapping[str, Any]) -> bool:
        """Take the learner's result; return whether the run is over.

        If the final evaluation does not confirm the one that stopped the run, the task is queued again.
        """
        return self._finish(task_id, finished_task)

    def _finish(self, task_id: str, finished_task: Mapping[str, Any]) -> bool:
        """Take a result. One that the work cannot have given is a failed attempt: raises RefusedError `schema`."""
        task, worker = self._leased(task_id)
        result = {**finished_task, "env_step": self.env_step, "policy": task.policy}
        newest = self.policy_of(task.policy_id)
        try:
            self._check_result(task, finished_task)
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
        with self._saving():
            self._save_tasks(task)
            self._make_tasks()
        return self.is_over

    # --- inside

    def _leased(self, task_id: str, buffer_id: str | None = None) -> tuple[TaskEntry, WorkerEntry]:
        """Return a task and the worker that holds it. Raises RefusedError without such a task or worker."""
        task = self.tasks.tasks.get(task_id)
        if task is None or (buffer_id is not None and task.buffer_id != buffer_id):
            raise RefusedError("unknown", f"there is no task {task_id} of buffer {buffer_id}")
        if task.status != LEASED:
            raise RefusedError("stale_attempt", f"{task_id} is {task.status}: no worker does it")
        return task, self._heard_of(str(task.worker_id))

    def _heard_of(self, worker_id: str) -> WorkerEntry:
        worker = self.workers.get(worker_id)
        if worker is None:
            raise RefusedError("unknown", f"there is no worker {worker_id}; register again")
        now = self._clock()
        worker.deadline_s = now + self.cfg.lease_ttl_s
        self.tasks.renew(worker_id, now)
        return worker

    def _as_task(self, task: TaskEntry, worker: WorkerEntry) -> m.Task:
        return m.Task(
            task.task_id,
            task.attempt,
            task.kind,
            task.buffer_id,
            task.policy_id,
            {**task.cfg, "worker_index": worker.index, "segment_episodes": self.cfg.segment_episodes},
            self.cfg.lease_ttl_s,
            self.policies.get(task.policy_id) if task.policy is None else m.PolicyVersion(**task.policy),
        )

    def _is_to_finish(self, task: TaskEntry) -> bool:
        return self.is_over or task.is_asked_back or self._commander.is_to_end(self)

    def _credit(self, worker: WorkerEntry, task: TaskEntry) -> int:
        """Allow a worker the rows of one segment, if there are weights to act with and the update ratio has room."""
        wanted = self._wanted_weights(task.policy_id)
        if wanted is None:
            return 0
        worker.credit = self._room_for(worker, wanted)
        return worker.credit

    def _room_for(self, worker: WorkerEntry, wanted: m.PolicyVersion) -> int:
        """Return the rows that a worker may collect now: those of a segment, or none while there is no room for them.

        Room is taken by what others were allowed, and kept for those who have waited longer. On-policy it may be less
        than a segment: what is left of a batch. What comes may be more or less: it is accounted for as it is.
        """
        rows, now_s = self.cfg.segment_rows, self._clock()
        ordered = self.workers.credit_of_others(worker)
        worker.heard_s = now_s
        if self.book.is_on_policy:
            return max(0, min(rows, self.book.room(ordered, wanted)))
        since_s = now_s if worker.waits_since_s is None else worker.waits_since_s
        ahead = sum(
            each.waits_since_s is not None and each.waits_since_s < since_s and now_s - each.heard_s < _SILENT_S
            for each in self.workers.values()
            if each is not worker
        )
        is_allowed = self.book.has_room(ordered + ahead * rows, rows)
        worker.waits_since_s = None if is_allowed else since_s
        return rows if is_allowed else 0

    def _learn_task(self, worker_id: str, buffer_id: str, message: m.Sample | m.Update) -> TaskEntry:
        task = self.tasks.check(message.task_id, message.attempt, worker_id)
        if task.kind != "learn" or task.buffer_id != buffer_id:
            raise RefusedError("wrong_role", f"{message.task_id} does not learn from {buffer_id}")
        return task
