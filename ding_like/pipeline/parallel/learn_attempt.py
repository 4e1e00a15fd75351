"""Hold what belongs to one attempt at the task of learning: it is made with the attempt and closed with it."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from ding_like.comm.channels import Version, Weights
from ding_like.comm.flat_state import flatten_state
from ding_like.comm.rest import batch_source, weight_publisher
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.agent import TaskHandle
from ding_like.comm.rest.batch_source import BatchReader, Fetched, RestBatchSource
from ding_like.comm.rest.refusal import RefusedError
from ding_like.comm.rest.weight_publisher import RestWeightPublisher
from ding_like.comm.rest.weight_reader import read_published
from ding_like.comm.rest.worker_link import WorkerLink
from ding_like.data.batch import TransitionBatch
from ding_like.data.segment_file import SegmentError, read_segment
from ding_like.errors import CommError, SchemaError
from ding_like.pipeline.parallel.settings import batch_rows, buffer_size
from ding_like.pipeline.parallel.training import Training
from ding_like.types import Array

logger = logging.getLogger(__name__)

_NO_DATA_S = 600.0  # without a batch for so long, the learner gives up


class LearnAttempt:
    """Bring batches of one attempt to a learner, and its weights and reports to the coordinator.

    What goes wrong in its threads is raised by the next call, a RefusedError once the attempt is over.
    """

    def __init__(
        self, task: m.Task, handle: TaskHandle, *, link: WorkerLink, training: Training, cfg: Mapping[str, Any]
    ) -> None:
        self.task = task
        self._handle = handle
        self._link = link
        self._training = training
        self._learner = training.learner
        self._cfg = cfg
        self._main = cfg["main"]
        self._publisher = RestWeightPublisher(link, task)
        self._published_s = -math.inf
        self._source: RestBatchSource | None = None  # once batches are asked for
        self._first_s = math.inf  # when the first batch came
        self._have = 0  # serial of the last segment that was brought by hand
        self.train_s = 0.0

    def close(self, *, is_done: bool) -> None:
        """End the threads: after reports and the last weights have gone out where the attempt `is_done`."""
        training, link = self._training, self._link
        training.train_s += self.train_s
        self.train_s, self._first_s = 0.0, math.inf
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
        version = Version(self.task.attempt, self._learner.train_iter)
        receipt = self._publisher.publish(Weights(self.task.policy_id, version, flatten_state(state)))
        if not receipt.skipped:
            self._published_s = time.monotonic()

    @property
    def publishing_is_due(self) -> bool:
        """Tell whether it is time, or an evaluation or on-policy collectors wait for this very iteration."""
        policy = self._main.policy
        is_awaited = policy.on_policy or self._learner.train_iter % policy.eval.evaluator.eval_freq == 0
        return bool(is_awaited) or time.monotonic() - self._published_s >= float(self._cfg["publish_interval_s"])

    # --- batches in

    @property
    def batch_rows(self) -> int:
        """Return the rows of one `train` call: on-policy, all that are collected for it."""
        if self._main.policy.on_policy:
            return batch_rows(self._main.policy)
        return int(self._learner.policy.get_attribute("batch_size"))

    def open_source(self, batch_size: int) -> None:
        """Begin to fetch batches ahead of need; what was fetched before and not drawn is lost."""
        training = self._training
        if self._source is not None:
            self._source.close()
            training.learned_updates = self._source.num_learned
        self._source = RestBatchSource(
            self._link.coordinator,
            self.task,
            worker_id=self._link.agent.worker_id,
            read=self.read,
            batch_size=self.batch_rows if self._main.policy.on_policy else batch_size,
            buffer_size=buffer_size(self._main),
            num_batches=int(self._cfg["num_batches"]),
            schema=training.schema,
            train_iter=self._learner.train_iter,
            learned=training.learned_updates,
            waits_for_late=bool(self._main.policy.on_policy),
        )

    def next_batch(self) -> TransitionBatch | None:
        """Wait for the next batch; None: the task is to be finished. Raises CommError if none comes for ten minutes."""
        source = self._opened()
        deadline = time.monotonic() + _NO_DATA_S
        while not self._handle.finish_asked:
            batch = source.next(timeout_s=1.0)
            if batch is not None:
                self._first_s = min(self._first_s, time.monotonic())
                self._learner.collector_envstep = source.env_step
                return batch
            if source.finished:
                break
            if time.monotonic() > deadline:
                raise CommError(f"no batch has come for {_NO_DATA_S:g} s: no collector sends data.")
        return None

    def report(self, learn_info: Mapping[str, Any]) -> None:
        """Tell of an update with the batch given out last; many reports travel together."""
        self.train_s = max(time.monotonic() - self._first_s, 0.0)
        if self._source is not None:
            priorities = self._training.priorities(learn_info["priority_info"])
            self._source.feedback(learn_info["learner_step"], priority=priorities.get("priority"), info=self._averages)

    @property
    def env_step(self) -> int:
        """Return the env steps of the run, as of the last reply."""
        return self._opened().env_step

    @property
    def learned_updates(self) -> int:
        """Return how many batches were learned from, those of earlier attempts included."""
        return self._training.learned_updates if self._source is None else self._source.num_learned

    def _opened(self) -> RestBatchSource:
        if self._source is None:
            raise CommError("no batches were asked for: call get_data first.")
        return self._source

    def _averages(self) -> dict[str, Any]:
        monitor = self._learner.monitor
        return {} if monitor is None else {name: float(value) for name, value in monitor.averages().items()}

    def read(self, segment: m.NewSegment) -> dict[str, Array]:
        """Read a segment, once, and look at its rows. Raises SegmentError for one that is not to be learned from."""
        files, training = self._link.files, self._training
        files.fetch_segment(segment.name, nbytes=segment.nbytes, sha256=segment.sha256)
        try:
            columns, meta = read_segment(
                files.segments,
                segment.name,
                rows=segment.rows,
                sha256=segment.sha256,
                nbytes=segment.nbytes,
                row_bytes=training.schema.row_bytes,
                observed_bytes=training.statistics.num_bytes,
            )
        finally:
            files.forget_segment(segment.name)
        training.row_check(columns)
        try:
            training.statistics.merge(meta.observed, serial=segment.serial)
        except SchemaError as error:
            raise SegmentError("schema", str(error)) from error
        return columns

    # --- batches that are brought by hand, as the coordinator of DI-engine's API does

    @cached_property
    def _reader(self) -> BatchReader:
        return BatchReader(buffer_size(self._main), self._training.schema, grows=bool(self._main.policy.on_policy))

    def demand(self) -> dict[str, Any]:
        """Return what is asked for next: the fields of messages.Sample."""
        return {
            "task_id": self.task.task_id,
            "attempt": self.task.attempt,
            "batch_size": self.batch_rows,
            "num_batches": 1,
            "cur_learner_iter": self._learner.train_iter,
            "have_segments_up_to": self._have,
        }

    def take(self, reply: m.SampleReply, train: Callable[[TransitionBatch], None]) -> None:
        """Call `train` with each batch of a reply."""
        self._reader.take(Fetched([(each, self.read(each)) for each in reply.new_segments], reply.batches))
        if reply.new_segments:
            self._have = reply.new_segments[-1].serial
        while not self._reader.is_empty:
            train(self._reader.draw())

    # --- the end

    def take_final_weights(self) -> None:
        """Go back to the weights whose evaluation ended the run: learning went on while it was played.

        Where a limit ended it, the coordinator names the newest weights, and those are the last: they go out first.
        """
        task, link = self.task, self._link
        self.publish(self._training.acting_state())
        self._publisher.flush(timeout_s=link.time_left(weight_publisher.CLOSE_S))
        final = link.ask_task(task).policy
        if final is None or (final.attempt, final.version) >= (task.attempt, self._learner.train_iter):
            return
        weights = read_published(link.files, task.policy_id, final)
        self._training.judged_weights(final.version, weights.state)

    def warn(self, text: str) -> None:
        """Log a line, and have the coordinator show it to whoever watches the run."""
        self._link.warn(self.task, text)
