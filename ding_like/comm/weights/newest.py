"""Keep the newest weights of each policy that a transport has received, and wake readers that wait."""

from __future__ import annotations

import threading

from ding_like.comm.channels import Version, Weights
from ding_like.errors import CommError


class NewestWeights:
    """Implement WeightReader over weights that a transport hands in by `put`; threads may share it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._newest: dict[str, Weights] = {}
        self._failure: Exception | None = None

    def put(self, weights: Weights) -> None:
        """Keep weights, in place of a policy's older ones."""
        with self._changed:
            self._newest[weights.policy_id] = weights
            self._changed.notify_all()

    def fail(self, failure: Exception) -> None:
        """Have every later call of `newest` raise CommError: no more weights come, because of `failure`."""
        with self._changed:
            self._failure = failure
            self._changed.notify_all()

    def newest(self, policy_id: str, *, newer_than: Version | None = None, timeout_s: float = 0.0) -> Weights | None:
        """Return the newest weights of a policy; see `WeightReader`."""

        def found() -> Weights | None:
            if self._failure is not None:
                raise CommError(f"no more weights can be received: {self._failure}") from self._failure
            weights = self._newest.get(policy_id)
            return None if weights is None or (newer_than is not None and weights.version <= newer_than) else weights

        with self._changed:
            return self._changed.wait_for(found, max(timeout_s, 0.0)) or None
