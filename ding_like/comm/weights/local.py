"""Send weights between threads of one process, for learner and collectors that do not share a policy.

Where they share one, as in a serial run, nothing has to be sent.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from ding_like.comm.channels import Receipt, Version, Weights
from ding_like.comm.weights.encode import Layout
from ding_like.comm.weights.newest import NewestWeights
from ding_like.errors import CommError


class LocalWeights:
    """Give one copy of the weights to all readers that `reader` has made.

    Numbers are exact: within a process there is nothing that bfloat16 or deltas would save.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers: dict[str, NewestWeights] = {}
        self._published: dict[str, Version] = {}  # the newest of each policy
        self._is_closed = False

    def reader(self, name: str) -> NewestWeights:
        """Return the reader of a name, a new one the first time; it receives what is published from now on."""
        with self._lock:
            return self._readers.setdefault(name, NewestWeights())

    def publish(self, weights: Weights, *, to: Sequence[str] | None = None, wait_s: float | None = None) -> Receipt:
        """Give readers a copy, which they share; see `WeightPublisher`. `wait_s` has no effect."""
        with self._lock:
            if self._is_closed:
                raise CommError("weights are published after the publisher was closed.")
            names = tuple(self._readers) if to is None else tuple(to)
            before = self._published.get(weights.policy_id)
            if before is not None and weights.version <= before:
                return Receipt(skipped=names)
            self._published[weights.policy_id] = weights.version
            layout = Layout.of(weights.state)
            copied = weights._replace(state=layout.read(layout.pack(weights.state)))
            known = tuple(name for name in names if name in self._readers)
            for name in known:
                self._readers[name].put(copied)
            return Receipt(delivered=known, failed=tuple(name for name in names if name not in known))

    def close(self) -> None:
        """Publish no more; readers keep what they have."""
        with self._lock:
            self._is_closed = True
