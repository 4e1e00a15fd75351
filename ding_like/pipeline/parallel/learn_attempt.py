"""Hold what belongs to one attempt at the task of learning: it is made with the attempt and closed with it."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from ding_like.comm.channels import Batch
from ding_like.comm.rest import batch_source, weight_publisher
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.agent import TaskHandle, TaskLeftError
from ding_like.comm.rest.batch_source import BatchReader, Fetched, RestBatchSource
from ding_like.comm.rest.refusal import RefusedError
from ding_like.comm.rest.segment_reader import SegmentReader
from ding_like.comm.rest.weight_publisher import RestWeightPublisher
from ding_like.comm.rest.weight_reader import read_published
from ding_like.comm.rest.worker_link import WorkerLink
from ding_like.errors import CommError
from ding_like.pipeline.parallel.settings import batch_rows, buffer_size
from ding_like.pipeline.parallel.training import Training
from ding_like.pipeline.roles.train import TrainRole

logger = logging.getLogger(__name__)


class LearnAttempt:
    """Have one attempt's batches, weights and reports travel between a learner and the coordinator.

    What goes wrong in its threads is raised by the next call, a RefusedError once the attempt is over.
    """

    def __init__(
        self, task: m.Task, handle: TaskHandle, *, link: WorkerLink, training: Training, cfg: Mapping[str, Any]
    ) -> None:
        self.task = task
        self._handle = handle
        self._link = link
        self._training = training
        self._cfg = cfg
        self._main = cfg["main"]
        statistics = training.statistics
        self.read = SegmentReader(
            link.files,
            training.schema,
            training.row_check,
            observed_bytes=statistics.num_bytes,
            on_observed=statistics.merge,
        )
        self._source: RestBatchSource | None = None  # once batches are asked for
        dtype = (cfg.get("weights") or {}).get("dtype", "exact")
        self._publisher = RestWeightPublisher(link, task, dtype=dtype)
        self._role = TrainRole(
            training.learner,
            publisher=self._publisher,
            acting_state=training.acting_state,
            policy_id=task.policy_id,
            attempt=task.attempt,
            publish_interval_s=float(cfg["publish_interval_s"]),
            is_awaited=self._is_awaited,
            clock=time.monotonic,
        )
        self._is_closed = False
        self._first_s = math.inf  # when the first batch came
        self._train_s = 0.0
        self._have = 0  # serial of the last segment that was brought by hand

    def _is_awaited(self, train_iter: int) -> bool:
        """Tell whether an evaluation or on-policy collectors wait for the weights of this very iteration."""
        policy = self._main.policy
        return bool(policy.on_policy) or train_iter % policy.eval.evaluator.eval_freq == 0

    def learn(self) -> dict[str, Any]:
        """Train until the task is to be finished; return what the last model is worth.

        Raises RefusedError where the attempt was taken away, TaskLeftError where the worker is to leave, CommError
        where one of several learners is lost: a point is saved then.
        """
        learner = self._training.learner
        learner.setup_dataloader()
        try:
            learner.start()
        except CommError:
            if self._training.has_lost_a_learner:  # updates are whole or not at all: another process goes on from here
                self._training.save(self._warn, self.learned_updates)
            raise
        if self._link.is_leaving:
            self._training.save(self._warn, self.learned_updates)
            raise TaskLeftError(f"asked to leave at iteration {learner.train_iter}")
        env_step = 0 if self._source is None else self._source.env_step
        self.close(is_done=True)
        self._training.save(self._warn, self.learned_updates)  # with more env steps to come, the run goes on from here
        return {"env_step": env_step, **self._training.result()}

    def close(self, *, is_done: bool) -> None:
        """End the threads: after reports and the last weights have gone out where the attempt `is_done`.

        May be called again.
        """
        if self._is_closed:
            return
        self._is_closed = True
        training, link = self._training, self._link
        training.train_s += self._train_s
        failure: BaseException | None = None
        if self._source is not None:
            self._source.close(timeout_s=link.time_left(batch_source.CLOSE_S))
            failure = self._source.failure
            training.learned_updates = self._source.num_learned
        if is_done:
            self._publisher.close(timeout_s=link.time_left(weight_publisher.CLOSE_S))
        else:
            self._publisher.abandon(timeout_s=link.time_left(weight_publisher.CLOSE_S))
        if failure is not None and not isinstance(failure, RefusedError):
            logger.info("the last reports have not gone out: %s", failure)
            if link.is_leaving:
                link.agent.cut_off()

    # --- weights out

    def publish(self, state: Mapping[str, Any]) -> None:
        """Have the collect mode's state published soon as the learner's version, if that is newer than the last."""
        self._role.publish(state)

    # --- batches in

    @property
    def batch_rows(self) -> int:
        """Return the rows of one `train` call: on-policy, all that are collected for it."""
        if self._main.policy.on_policy:
            return batch_rows(self._main.policy)
        return int(self._training.learner.policy.get_attribute("batch_size"))

    def open_source(self, batch_size: int) -> None:
        """Begin to fetch batches ahead of need; what was fetched before and not drawn is lost."""
        training = self._training
        if self._source is not None:
            self._source.close()
            training.learned_updates = self._source.num_learned
        self._role.source = self._source = RestBatchSource(
            self._link.coordinator,
            self.task,
            worker_id=self._link.agent.worker_id,
            read=self.read,
            batch_size=self.batch_rows if self._main.policy.on_policy else batch_size,
            buffer_size=buffer_size(self._main),
            num_batches=int(self._cfg["num_batches"]),
            schema=training.schema,
            train_iter=training.learner.train_iter,
            learned=training.learned_updates,
            waits_for_late=bool(self._main.policy.on_policy),
        )

    def next_batch(self) -> Batch | None:
        """Return this learner's share of the next batch; None: the task is to be finished.

        What is due is published and saved before. Raises CommError if no batch comes for ten minutes.
        """
        self._training.save_if_due(self._warn, self.learned_updates)
        batch = self._role.next_batch(go_on=lambda: not self._handle.finish_asked)
        if batch is None:
            if not self._link.is_leaving:
                self.take_final_weights()
            return None
        self._first_s = min(self._first_s, time.monotonic())
        return self._training.share(batch)

    def report(self, learn_info: Mapping[str, Any]) -> None:
        """Report an update with the batch that came last; many reports travel together."""
        training = self._training
        training.num_updates = learn_info["learner_step"]
        self._train_s = max(time.monotonic() - self._first_s, 0.0)
        if self._source is not None:
            priorities = training.priorities(learn_info["priority_info"])
            self._role.report(training.num_updates, priority=priorities.get("priority"))

    @property
    def learned_updates(self) -> int:
        """Return how many batches were learned from, those of earlier attempts included."""
        return self._training.learned_updates if self._source is None else self._source.num_learned

    # --- batches that are brought by hand, as the coordinator of DI-engine's API does

    @cached_property
    def _reader(self) -> BatchReader:
        return BatchReader(buffer_size(self._main), self._training.schema, on_policy=bool(self._main.policy.on_policy))

    def demand(self) -> dict[str, Any]:
        """Return what is asked for next: the fields of messages.Sample."""
        return {
            "task_id": self.task.task_id,
            "attempt": self.task.attempt,
            "batch_size": self.batch_rows,
            "num_batches": 1,
            "cur_learner_iter": self._training.learner.train_iter,
            "have_segments_up_to": self._have,
        }

    def take(self, reply: m.SampleReply, train: Callable[[Batch], object]) -> None:
        """Call `train` with this learner's share of each batch of a reply."""
        self._reader.take(Fetched([(each, self.read(each)) for each in reply.new_segments], reply.batches))
        if reply.new_segments:
            self._have = reply.new_segments[-1].serial
        while not self._reader.is_empty:
            train(self._training.share(self._reader.draw()))

    # --- the end

    def take_final_weights(self) -> None:
        """Go back to the weights whose evaluation ended the run: learning went on while it was played.

        Where a limit ended it, the coordinator names the newest weights, and those are the last: they go out first.
        """
        task, link = self.task, self._link
        self._role.publish()
        self._publisher.flush(timeout_s=link.time_left(weight_publisher.CLOSE_S))
        final = link.ask_task(task).policy
        if final is None or (final.attempt, final.version) >= self._role.version:
            return
        weights = read_published(link.files, task.policy_id, final)
        self._training.judged_weights(final.version, weights.state)

    def _warn(self, text: str) -> None:
        """Log a line, and have the coordinator show it to the user."""
        self._link.warn(self.task, text)
