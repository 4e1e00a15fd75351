"""Weights of a parallel run: the learner publishes files, and its readers load those that are announced."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from ding_like.comm.channels import Receipt, Version, Weights
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.files import SharedFiles
from ding_like.comm.rest.wire import RefusedError
from ding_like.comm.rest.worker import WorkerLink
from ding_like.comm.weights.encode import Encoded, WireDtype, encode, name_of
from ding_like.comm.weights.files import WeightsGoneError, read_weights, write_weights
from ding_like.errors import CommError
from ding_like.utils.files import when_there_is_room

logger = logging.getLogger(__name__)

FLUSH_S = 30.0
_LOOK_S = 5.0
_TRIES = 5  # to read the newest weights before newer ones take their place
_TO = ("coordinator",)  # who takes weights, for all readers


class RestWeightPublisher:
    """Publisher that writes the newest weights as a file and announces them, in a thread of its own.

    It is for one attempt at a task: one that is over is raised as RefusedError. What the thread raises is raised by the
    next call. `dtype` says how numbers travel, as `encode` does.
    """

    def __init__(self, link: WorkerLink, task: m.Task, *, dtype: WireDtype = "exact") -> None:
        self._link = link
        self._task = task
        self._dtype: WireDtype = dtype
        self._changed = threading.Condition()
        self._last: Version | None = None  # that was offered
        self._newest: Encoded | None = None  # that is offered and not begun
        self._is_closed = False
        self._is_idle = True  # nothing is offered and nothing under way
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
        self._thread.start()

    def publish(self, weights: Weights, *, to: Sequence[str] | None = None, wait_s: float | None = None) -> Receipt:
        """Have a copy of weights published soon, in place of older ones that were not begun; see `WeightPublisher`.

        Raises CommError for `to`: the coordinator tells all readers of weights.
        """
        if to is not None:
            raise CommError(f"weights cannot be sent to {list(to)} alone: the coordinator tells all readers of them.")
        if self._last is not None and weights.version <= self._last:
            with self._changed:
                self._raise_failure()
            return Receipt(skipped=_TO)
        encoded = encode(weights, dtype=self._dtype)
        with self._changed:
            self._raise_failure()
            if self._is_closed:
                raise CommError("weights are published after the publisher was closed.")
            self._last = weights.version
            self._newest, self._is_idle = encoded, False
            self._changed.notify_all()
        if wait_s is None:
            return Receipt()
        return Receipt(delivered=_TO) if self._wait_until_idle(wait_s) else Receipt(failed=_TO)

    def flush(self, *, timeout_s: float = FLUSH_S) -> None:
        """Return when what was offered last is published. Raises CommError if that takes longer than `timeout_s`."""
        if not self._wait_until_idle(timeout_s):
            raise CommError(f"the last weights could not be published in {timeout_s:g} s.")

    def close(self, *, timeout_s: float = FLUSH_S) -> None:
        """Publish what was offered last, and end the thread; may be called again.

        Raises CommError if that takes longer than `timeout_s`.
        """
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise CommError(f"the last weights could not be published in {timeout_s:g} s.")
        with self._changed:
            self._raise_failure()

    def abandon(self, *, timeout_s: float) -> bool:
        """End the thread without publishing what was offered last; return whether it has ended in time.

        What it raised does not matter any more.
        """
        with self._changed:
            self._is_closed, self._newest = True, None
            self._changed.notify_all()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _wait_until_idle(self, timeout_s: float) -> bool:
        with self._changed:
            is_out = self._changed.wait_for(lambda: self._failure is not None or self._is_idle, timeout_s)
            self._raise_failure()
        return is_out

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    # --- the thread's side

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._newest is not None or self._is_closed, _LOOK_S):
                    continue
                encoded, self._newest = self._newest, None
                self._is_idle = encoded is None
            if encoded is None:
                return
            try:
                self._write_and_announce(encoded)
            except BaseException as error:  # any error of this thread is raised in the learner's
                with self._changed:
                    self._failure = error
                    self._changed.notify_all()
                return
            with self._changed:
                self._is_idle = self._newest is None
                self._changed.notify_all()

    def _write_and_announce(self, encoded: Encoded) -> None:
        task, files, link = self._task, self._link.files, self._link
        policy_id, (attempt, version) = name_of(encoded)
        with link.room(task) as room:
            written = when_there_is_room(lambda: write_weights(files.weights, encoded), **room)
        files.share_weights(policy_id, attempt, version)
        message = m.Publish(task.task_id, attempt, version, written.sha256, written.nbytes)
        try:
            link.coordinator.publish(link.worker_id, policy_id, message)
        except RefusedError as error:
            if error.code != "version_not_newer":
                raise
            # It was taken before, and the answer to that was lost.
            logger.info("version %d was published before: %s", version, error)


class RestWeightReader:
    """Reader of the newest weights, for the present task of its link.

    A task of kind 'eval' has the weights that it asks for, however many come since.
    """

    def __init__(self, link: WorkerLink) -> None:
        self._link = link

    def newest(self, policy_id: str, *, newer_than: Version | None = None, timeout_s: float = 0.0) -> Weights | None:
        """Return the newest weights that the coordinator announced; see `WeightReader`."""
        return self.wait_for(lambda: self.read_newest(policy_id, newer_than), timeout_s=timeout_s)

    def wait_for(self, read: Callable[[], Weights | None], *, timeout_s: float) -> Weights | None:
        """Return what `read` gives, asking the coordinator until `timeout_s` is over or the task is to be finished."""
        _, handle = self._link.job
        deadline = time.monotonic() + timeout_s
        while (weights := read()) is None:
            if time.monotonic() >= deadline or handle.finish_asked:
                return None
            handle.pause()
            self._ask()
        return weights

    def read(self, policy_id: str, policy: m.PolicyVersion) -> Weights:
        """Return one version of a policy's weights. Raises CommError if it cannot be read."""
        return read_published(self._link.files, policy_id, policy)

    def read_newest(self, policy_id: str, newer_than: Version | None) -> Weights | None:
        """Return the newest weights that were announced, None if they are not above `newer_than`."""
        task, handle = self._link.job
        for left in reversed(range(_TRIES)):
            newest = task.policy if task.kind == "eval" else handle.newest_policy
            if newest is None or (newer_than is not None and (newest.attempt, newest.version) <= newer_than):
                return None
            try:
                return self.read(policy_id, newest)
            except WeightsGoneError as error:
                if task.kind == "eval" or not left:
                    raise
                logger.info("%s: the newest are asked for", error)  # this process was slow, or paused
                self._ask()
        return None

    def _ask(self) -> None:
        task, handle = self._link.job
        handle.note(self._link.ask_task(task).policy)


def read_published(files: SharedFiles, policy_id: str, policy: m.PolicyVersion) -> Weights:
    """Return weights that were announced. Raises WeightsGoneError if they are not kept any more, else CommError."""
    attempt, version = policy.attempt, policy.version
    files.fetch_weights(policy_id, attempt, version, sha256=policy.sha256)
    state = read_weights(files.weights, policy_id, attempt, version, sha256=policy.sha256)
    return Weights(policy_id, Version(attempt, version), state)
