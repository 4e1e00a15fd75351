"""Collecting rank of a run: follows the trainer's words, and sends it rows.

Rows travel as safetensors bytes, with what belongs to them as JSON in the metadata: nothing in them is executed.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import torch

from ding_like.comm.channels import CollectRequest, Segment, Version, Weights
from ding_like.comm.learner_group import LearnerGroup, Pair
from ding_like.comm.tensors import from_bytes, to_bytes
from ding_like.comm.update_worker import SHUTDOWN, WeightUpdateWorker, key_of
from ding_like.data.batch import TransitionBatch
from ding_like.errors import CommError
from ding_like.pipeline.collect import PolicyWeights, RolloutWorker
from ding_like.types import Array
from ding_like.utils.registries import RANK_COLLECTOR_REGISTRY

_LOOK_S = 1.0  # between two looks at whether the trainer lives
TRAINER = 0
DROP = "drop"  # what the trainer answers to rows that it does not take any more
_SEGMENT, _ROWS, _OBSERVED = "segment", "rows/", "observed/"


@RANK_COLLECTOR_REGISTRY.register("rank")
class RankCollector(WeightUpdateWorker):
    """Collecting rank of a run: `continue` collects what the trainer has ordered, `update_weights` brings weights.

    `make_end(rank)` builds envs, policy and collector. An order is a JSON text under `NODE_{r}_order`; rows are
    announced by a header in the store, and sent once the trainer asks for them: `timeout_s` is the longest that sending
    may take then, in seconds.
    """

    def __init__(self, group: LearnerGroup, make_end: Callable[[int], RolloutWorker], *, timeout_s: float) -> None:
        super().__init__(group.store, group.rank, timeout_s=timeout_s)
        self._group = group
        self._end = make_end(group.rank)
        self._state: Weights | None = None
        self._order = CollectRequest(False, 0, 0, None)
        self._rows: Pair | None = None
        self._end.connect(PolicyWeights(self._end.policy), self)
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
        order = json.loads(text or "{}")
        version = Version(*order["newest"])
        self._order = CollectRequest(False, int(order["rows"]), int(order["env_step"]), version)
        if order.get("statistics"):
            self._end.statistics.use_flat({name: np.array(each) for name, each in order["statistics"].items()})
        if self._state is not None:
            self._end.weights.put(self._state._replace(version=version))
            self._state = None
        self._end.collect(self._order)

    def seed(self, number: int) -> int:
        """Seed the envs: their next episodes begin from it."""
        self._end.envs.seed(number)
        return number

    # --- where its rows go: a RowSink

    def put(self, segment: Segment) -> CollectRequest:
        """Send a segment to the trainer; return the order it was collected for."""
        body = torch.from_numpy(encode_segment(segment))
        number = self._group.store.add("num_rows", 1)
        self._group.announce(f"rows/{number}", json.dumps([self.rank, body.numel()]))
        if self._group.wait_for(f"take/{number}", of=[TRAINER], delete=True) == DROP:
            return self._order  # the run has ended
        if self._rows is None:
            self._rows = Pair(self._group.store, f"rows/{self.rank}", member=1, timeout_s=self._timeout_s)
        self._rows.send(body, timeout_s=self._timeout_s)
        return self._order

    def order(self, *, timeout_s: float) -> CollectRequest:
        """Return the newest order."""
        return self._order

    def close(self) -> None:
        """Close the envs and the connections; may be called again."""
        if self._rows is not None:
            self._rows.close()
        self._end.close()
        super().close()


def encode_segment(segment: Segment) -> Array:
    """Return a segment as bytes, uint8 [N]. Raises CommError for rows that are no columns of numbers."""
    batch = segment.batch
    if not isinstance(batch, TransitionBatch) or any(each.dtype.kind not in "biuf" for each in batch.columns.values()):
        raise CommError(
            f"ranks send rows as columns of numbers, and the policy makes {type(batch).__name__}s of others: give its "
            "rows numbers of equal shapes, or run it with `ding -m serial`."
        )
    columns = {f"{_ROWS}{name}": each for name, each in batch.columns.items()}
    columns |= {f"{_OBSERVED}{name}": np.asarray(each) for name, each in segment.observed.items()}
    # torch takes arrays that may be written to.
    state = {name: torch.from_numpy(each if each.flags.writeable else each.copy()) for name, each in columns.items()}
    head = {"version": list(segment.version), "env_steps": segment.env_steps, "stats": dict(segment.stats)}
    return to_bytes(state, {_SEGMENT: json.dumps(head)})


def decode_segment(body: Array) -> Segment:
    """Return the segment; its columns are views of `body` (uint8 [N]). Raises CommError for other bytes."""
    state, metadata = from_bytes(body)
    try:
        head = json.loads(metadata[_SEGMENT])
        version, env_steps, stats = Version(*map(int, head["version"])), int(head["env_steps"]), dict(head["stats"])
    except (LookupError, TypeError, ValueError) as error:
        raise CommError(f"the header of rows does not describe them ({type(error).__name__}: {error}).") from error
    columns, observed = (
        {name.removeprefix(prefix): each.numpy() for name, each in state.items() if name.startswith(prefix)}
        for prefix in (_ROWS, _OBSERVED)
    )
    return Segment(TransitionBatch(columns), version, env_steps, stats, observed)
