"""Collect for a run as one of its ranks: follow the trainer's words, and send it rows."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np

from ding_like.comm.channels import Order, Segment, Version, Weights
from ding_like.comm.learner_group import LearnerGroup, Pair
from ding_like.comm.weights.newest import NewestWeights
from ding_like.comm.weights.node_store import SHUTDOWN, key_of
from ding_like.comm.weights.update_worker import WeightUpdateWorker
from ding_like.pipeline.build.collect_end import CollectEnd
from ding_like.pipeline.ranks.rows import encode_segment
from ding_like.utils.registries import RANK_COLLECTOR_REGISTRY

_LOOK_S = 1.0  # between two looks at whether the trainer lives
TRAINER = 0
DROP = "drop"  # what the trainer answers to rows that it does not take any more


@RANK_COLLECTOR_REGISTRY.register("rank")
class RankCollector(WeightUpdateWorker):
    """Collecting rank of a run: `continue` collects what the trainer has ordered, `update_weights` brings weights.

    `make_end(rank)` builds envs, policy and collector. An order is a JSON text under `NODE_{r}_order`; rows are
    announced by a header in the store, and sent once the trainer asks for them: `timeout_s` is the longest that sending
    may take then, in seconds.
    """

    def __init__(self, group: LearnerGroup, make_end: Callable[[int], CollectEnd], *, timeout_s: float) -> None:
        super().__init__(group.store, group.rank, timeout_s=timeout_s)
        self._group = group
        self._end = make_end(group.rank)
        self._received = NewestWeights()
        self._state: Weights | None = None
        self._order = Order(False, 0, 0, None)
        self._rows: Pair | None = None
        self._role = self._end.connect(self._end.loaded(self._received), self)
        group.announce(f"ready/{group.rank}")

    def serve(self) -> None:
        """Follow words until `shutdown`. Raises CommError if the trainer is lost, and what collecting raises."""
        word: str | None = ""
        while word != SHUTDOWN:
            word = self.step(timeout_s=_LOOK_S)
            if word is None:
                self._group.check(TRAINER)

    def update(self, weights: Weights) -> None:
        """Keep weights; the next order names their version, and its collection loads them."""
        self._state = weights

    def collect(self) -> None:
        """Collect what the newest order asks for, and send the rows."""
        text = self._store.get(key_of(self.rank, "order"), timeout_s=self._timeout_s)
        said = json.loads(text or "{}")
        version = Version(*said["newest"])
        self._order = Order(False, int(said["rows"]), int(said["env_step"]), version)
        if said.get("statistics"):
            self._end.statistics.use_flat({name: np.array(each) for name, each in said["statistics"].items()})
        if self._state is not None:
            self._received.put(self._state._replace(version=version))
            self._state = None
        self._end.collect(self._order)

    def seed(self, number: int) -> int:
        """Seed the envs: their next episodes begin from it."""
        self._end.envs.seed(number)
        return number

    # --- where its rows go: a RowSink

    def put(self, segment: Segment) -> Order:
        """Send a segment to the trainer; return the order it was collected for."""
        header, body = encode_segment(segment)
        number = self._group.store.add("num_rows", 1)
        self._group.announce(f"rows/{number}", json.dumps({**header, "rank": self.rank}))
        if self._group.wait_for(f"take/{number}", of=[TRAINER], delete=True) == DROP:
            return self._order  # the run has ended
        if self._rows is None:
            self._rows = Pair(self._group.store, f"rows/{self.rank}", member=1, timeout_s=self._timeout_s)
        self._rows.send(body, timeout_s=self._timeout_s)
        return self._order

    def order(self, *, timeout_s: float) -> Order:
        """Return the newest order."""
        return self._order

    def close(self) -> None:
        """Close the envs and the connections; may be called again."""
        if self._rows is not None:
            self._rows.close()
        self._end.close()
        super().close()
