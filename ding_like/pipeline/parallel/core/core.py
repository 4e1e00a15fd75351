"""Decide what workers do, and handle what they send: tasks, leases, segments, batches, weights.

No HTTP, no threads, no clock: who calls brings the time and one lock. Every method answers one message of protocol dl/1
and saves what it changed before it returns, so that a coordinator that is killed goes on where it was. `once` answers a
message that may come again.
"""

from __future__ import annotations

import hmac
import logging
from dataclasses import asdict

import ding_like
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.refusal import RefusedError
from ding_like.comm.rest.wire import check_count, printable
from ding_like.errors import SchemaError
from ding_like.pipeline.parallel.core.bounds import bounded_stats, check_evaluation, check_learned, most_env_steps
from ding_like.pipeline.parallel.core.credit import allow
from ding_like.pipeline.parallel.core.run import CoreConfig, Run
from ding_like.pipeline.parallel.core.tasks import FINISHED, TaskEntry
from ding_like.pipeline.parallel.core.workers import WorkerEntry

__all__ = ["CoordinatorCore", "CoreConfig"]

logger = logging.getLogger(__name__)

# What a worker of a role does, most urgent first.
_KINDS = {"collector": ("eval", "collect"), "learner": ("learn",)}
_MAX_SECRET = 256  # characters
_MAX_STATE = 64  # characters of what a worker says it does
_EXCUSE_S = 120.0  # more time to publish, for a learner that says what is in its way; it says so once a minute


class CoordinatorCore(Run):
    """Answer the messages of workers."""

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
        """Take a task's result.

        A result that the work cannot have given is a failed attempt: raises RefusedError `schema`. If the final
        evaluation does not confirm the one that stopped the run, the learner is to go on: the task is queued again.
        """
        worker = self._heard_of(worker_id)
        worker.credit = 0
        task = self.tasks.check(task_id, message.attempt, worker_id)
        result = {**message.result, "env_step": self.env_step, "policy": task.policy}
        newest = self.policy_of(task.policy_id)
        try:
            self._check_result(task, message)
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
        return m.EndReply(self.is_over)

    def _check_result(self, task: TaskEntry, message: m.FinishTask) -> None:
        if task.kind == "learn":
            check_learned(message.result)
        if task.kind == "eval":
            check_evaluation(
                message.result,
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
        """Number the segments of a task and take them into the index, each once."""
        worker = self._heard_of(worker_id)
        task = self.tasks.check(task_id, message.attempt, worker_id)
        if task.kind != "collect":
            raise RefusedError("wrong_role", f"{task_id} is not a task to collect")
        wanted = self._wanted_weights(task.policy_id)
        accepted: list[str] = []
        duplicate: list[str] = []
        rejected: list[m.Rejected] = []
        with self._saving():
            for info in message.segments:
                try:
                    is_new = self.book.take(
                        worker_id, task.buffer_id, info, wanted, most_env_steps=self._most_env_steps(worker)
                    )
                except RefusedError as error:
                    logger.warning("%s", printable(error.message))
                    rejected.append(m.Rejected(info.name, error.code))
                    continue
                (accepted if is_new else duplicate).append(info.name)
                if is_new:
                    worker.has_worked = True
                    worker.env_steps += info.env_steps
                    worker.stats = bounded_stats(info.stats)
                    worker.policy_version = info.policy_version
            worker.credit = 0
            if accepted:
                self.book.save_number(worker_id)
                self._failures.something_was_done()
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
        """Draw as many batches as the update ratio allows, up to `num_batches`."""
        worker = self._heard_of(worker_id)
        task = self._learn_task(worker_id, buffer_id, message)
        check_count(message.cur_learner_iter, "cur_learner_iter")
        self.book.check_sample(buffer_id, message)
        with self._saving():
            self.book.take_learner_in(task.attempt, message.cur_learner_iter)
            drawn = self.book.draw(buffer_id, message, self.policies.get(task.policy_id))
            if drawn.batches is not None:
                worker.has_worked = True
                self._save_run()
        # What the update ratio allows is learned before the end, as the serial pipeline would have.
        finish = self.is_over or (self._is_to_finish(task) and drawn.is_all)
        return m.SampleReply(
            drawn.batches, drawn.new_segments, drawn.num_rows, message.batch_size, self.env_step, finish
        )

    def update(self, worker_id: str, buffer_id: str, message: m.Update) -> m.UpdateReply:
        """Take priorities and what the learner says of itself."""
        worker = self._heard_of(worker_id)
        task = self._learn_task(worker_id, buffer_id, message)
        check_count(message.learn_iter, "learn_iter")
        with self._saving():
            fault = self.book.update(buffer_id, message)
            self.learn_iter = max(self.learn_iter, message.learn_iter)
            self._silence.report(message.learn_iter, self._clock())
            if message.info:
                worker.stats = bounded_stats(message.info)
            if message.bad_segments:
                self._save_run()
            if fault is not None:
                self.fail(fault)
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

    # --- inside

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
        worker.credit = allow(worker, self.workers, self.cfg.segment_rows, self.book, wanted, self._clock())
        return worker.credit

    def _learn_task(self, worker_id: str, buffer_id: str, message: m.Sample | m.Update) -> TaskEntry:
        task = self.tasks.check(message.task_id, message.attempt, worker_id)
        if task.kind != "learn" or task.buffer_id != buffer_id:
            raise RefusedError("wrong_role", f"{message.task_id} does not learn from {buffer_id}")
        return task
