"""Receive weights: files that a coordinator announces in its answers, those to heartbeats included."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from ding_like.comm.channels import Version, Weights
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.shared_files import SharedFiles
from ding_like.comm.rest.worker_link import TaskUser
from ding_like.comm.weights.files import WeightsGoneError, read_weights

logger = logging.getLogger(__name__)

_TRIES = 5  # to read the newest weights before newer ones take their place


class RestWeightReader(TaskUser):
    """Reader of the newest weights, for one task of a worker after another; `begin` comes first.

    A task of kind 'eval' has the weights that it asks for, however many come since.
    """

    def newest(self, policy_id: str, *, newer_than: Version | None = None, timeout_s: float = 0.0) -> Weights | None:
        """Return the newest weights that the coordinator announced; see `WeightReader`."""
        return self.wait_for(lambda: self.read_newest(policy_id, newer_than), timeout_s=timeout_s)

    def wait_for(self, read: Callable[[], Weights | None], *, timeout_s: float) -> Weights | None:
        """Return what `read` gives, asking the coordinator until `timeout_s` is over or the task is to be finished."""
        _, handle = self._begun()
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
        task, handle = self._begun()
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
        task, handle = self._begun()
        handle.note(self._link.ask_task(task).policy)


def read_published(files: SharedFiles, policy_id: str, policy: m.PolicyVersion) -> Weights:
    """Return weights that were announced. Raises WeightsGoneError if they are not kept any more, else CommError."""
    attempt, version = policy.attempt, policy.version
    files.fetch_weights(policy_id, attempt, version, nbytes=policy.nbytes, sha256=policy.sha256)
    state = read_weights(files.weights, policy_id, attempt, version, sha256=policy.sha256)
    return Weights(policy_id, Version(attempt, version), state)
