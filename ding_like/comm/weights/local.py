"""Carry weights between parts of one process; both ends may be used by different threads.

Collector and learner may share a policy: then no weights travel, and the collector has the newest anyway.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from ding_like.comm.channels import Receipt, Version, Weights
from ding_like.comm.weights.encode import Layout
from ding_like.comm.weights.newest import NewestWeights
from ding_like.errors import CommError


class LocalWeights:
    """Send copies of weights to the readers that `reader` has made: one vector a dtype, which they all share.

    Numbers are exact and whole: nothing travels that rounding them, or leaving out what has not changed, would save.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers: dict[str, NewestWeights] = {}
        self._published: dict[str, Version] = {}  # the newest of each policy
        self._is_closed = False

    def reader(self, name: str) -> NewestWeights:
        """Return the reader of a name, a new one the first time; it begins with what is published from now on."""
        with self._lock:
            return self._readers.setdefault(name, NewestWeights())

    def publish(self, weights: Weights, *, to: Sequence[str] | None = None, wait_s: float | None = None) -> Receipt:
        """Give readers a copy, which they share; see `WeightPublisher`. There is nothing to wait for."""
        with self._lock:
            if self._is_closed:
                raise CommError("weights are published after the publisher was closed.")
            names = tuple(self._readers) if to is None else tuple(to)
            before = self._published.get(weights.policy_id)
            if before is not None and weights.version <= before:
                return Receipt(skipped=names)
            self._published[weights.policy_id] = weights.version
            layout = Layout.of(weights.state)
            body = np.empty(layout.nbytes, np.uint8)
            layout.write(weights.state, body)
            copied = weights._replace(state=layout.read(body))
            known = tuple(name for name in names if name in self._readers)
            for name in known:
                self._readers[name].put(copied)
            return Receipt(delivered=known, failed=tuple(name for name in names if name not in known))

    def close(self) -> None:
        """Publish no more; readers keep what they have."""
        with self._lock:
            self._is_closed = True
