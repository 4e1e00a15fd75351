"""Batches of inference requests, the forward pass that answers them, and measurements of both."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from ding_like.comm.channels import Version, Weights
from ding_like.comm.zmq.inference import COLUMNS, OBS, STATE, Refusal, Reply, Request, under
from ding_like.data.obs import columns_to_obs
from ding_like.pipeline.roles.policy_weights import PolicyWeights
from ding_like.policy import Policy
from ding_like.policy.remote_infer import check_acts_remotely
from ding_like.types import Array
from ding_like.utils.latency import LatencyMeter

_MAX_ROWS = 1_024  # of a batch: what a network makes of its rows takes memory


class Waiting(NamedTuple):
    """A request, when it came, and where its answer goes."""

    request: Request
    came_s: float
    route: bytes = b""


class Batcher:
    """Keep requests until their batch is due.

    A batch of `batchsize` requests (0: any number) runs when there are as many, a smaller one `delay_s` after its first
    request came. With 0 and 0 what is there runs, but for a moment in which those who were answered last may ask again:
    see `Gather`. A request that wants weights which are not there yet waits for them, at most for `hold_s`.
    """

    def __init__(
        self,
        *,
        batchsize: int = 0,
        delay_s: float = 0.0,
        hold_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._batchsize = math.inf if batchsize == 0 else batchsize
        self._delay_s, self._hold_s = delay_s, hold_s
        self._gather = None if batchsize or delay_s else Gather()
        self._clock = clock
        self._waiting: dict[str, Waiting] = {}  # by client, the oldest first

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: Request, route: bytes = b"") -> None:
        """Take a request in; one that is sent again keeps its place, and a client's newest one is the one it awaits."""
        before = self._waiting.get(request.client)
        order = (request.run_id, request.id)
        if before is None or order > (before.request.run_id, before.request.id):
            self._waiting.pop(request.client, None)
            self._waiting[request.client] = Waiting(request, self._clock(), route)
        elif order == (before.request.run_id, before.request.id):
            self._waiting[request.client] = Waiting(request, before.came_s, route)

    def take(self, version: Version) -> list[Waiting]:
        """Return the requests of a batch that weights of `version` may answer now; none where no batch is due."""
        if not self._waiting or self.wait_s(version) > 0:
            return []
        batch: list[Waiting] = []
        rows = 0
        for each in self._waiting.values():
            fits = len(batch) < self._batchsize and (not batch or rows + each.request.rows <= _MAX_ROWS)
            if fits and _may_answer(each, version):
                batch.append(each)
                rows += each.request.rows
        for each in batch:
            del self._waiting[each.request.client]
        return batch

    def note_batch(self, batch: Sequence[Waiting], took_s: float) -> None:
        """Take note of how long the forward pass of a batch took that is about to be answered."""
        if self._gather is not None:
            self._gather.note({each.request.client for each in batch}, took_s, now_s=self._clock())

    def wait_s(self, version: Version) -> float:
        """Return in how many seconds a batch is due if nothing more comes: 0 now, infinity where there is none."""
        ready = [each for each in self._waiting.values() if _may_answer(each, version)]
        if not ready:
            return math.inf
        if len(ready) >= self._batchsize:
            return 0.0
        now_s = self._clock()
        if self._gather is not None:
            return self._gather.wait_s(ready, now_s=now_s)
        return max(0.0, ready[0].came_s + self._delay_s - now_s)

    def take_overdue(self, version: Version) -> list[Waiting]:
        """Return the requests that have waited for their weights for too long; they are not waited for any more."""
        oldest_s = self._clock() - self._hold_s
        overdue = [each for each in self._waiting.values() if each.came_s < oldest_s and not _may_answer(each, version)]
        for each in overdue:
            del self._waiting[each.request.client]
        return overdue


class Gather:
    """Wait for those who were answered last and may be about to ask again.

    Clients that act in step would else fall apart into groups, of which one is computed while another acts, and a
    network takes less time for a row the more there are in a batch. They are waited for while they keep coming, no
    longer after the last of them than a batch takes (at most `LONGEST_S`) and for `MOST` times that in all. Batches of
    less than `LEAST_S` are not waited for; where less than a quarter came, the next `PAUSE` batches run at once.
    """

    LEAST_S = 0.001  # what sockets wait at least
    LONGEST_S = 0.05  # the first batch of a process, or one in which it was stopped, says nothing of the others
    MOST = 3.0
    PAUSE = 16

    def __init__(self) -> None:
        self._expected: set[str] = set()
        self._took_s = 0.0
        self._answered_s = -math.inf
        self._pause = 0

    def wait_s(self, there: Sequence[Waiting], *, now_s: float) -> float:
        """Return how long to wait for others where these requests, the oldest first, are there."""
        clients = {each.request.client for each in there}
        if self._pause or self._took_s < self.LEAST_S or self._expected <= clients:
            return 0.0
        first_s, last_s = (max(each.came_s, self._answered_s) for each in (there[0], there[-1]))
        left_s = min(last_s + self._took_s, first_s + self.MOST * self._took_s) - now_s
        if left_s <= 0 and 4 * len(self._expected & clients) < len(self._expected):
            self._pause = self.PAUSE
        return max(0.0, left_s)

    def note(self, clients: set[str], took_s: float, *, now_s: float) -> None:
        """Take note of whose requests a batch was made of, and how long it took."""
        self._expected, self._took_s, self._answered_s = clients, min(took_s, self.LONGEST_S), now_s
        self._pause = max(0, self._pause - 1)


def _may_answer(waiting: Waiting, version: Version) -> bool:
    least = waiting.request.least
    return least is None or version >= least


_MAX_SCHEMAS = 64  # of which memory is kept
# Name, dtype and shape of a row of each input: requests that have the same go through the network together.
Schema: TypeAlias = "tuple[tuple[str, np.dtype, tuple[int, ...]], ...]"


class InferRole:
    """Forward pass of a policy's network for several clients at once; it keeps nothing of them.

    Raises ConfigError for a policy whose network may not be elsewhere than its actors.
    """

    def __init__(self, policy: Policy) -> None:
        self._forward = check_acts_remotely(policy)[1].forward
        self._state_shapes = {name: np.shape(value) for name, value in self._forward.initial_state.items()}
        self._weights = PolicyWeights(policy)
        self._is_pinned = policy.get_attribute("device").type == "cuda"
        self._stages: dict[Schema, Stage] = {}

    @property
    def version(self) -> Version:
        """The version of the weights that are loaded."""
        return self._weights.version

    def take(self, weights: Weights) -> None:
        """Load weights that are newer than those that are loaded."""
        if weights.version > self.version:
            self._weights.take(weights)

    def answer(self, requests: Sequence[Request]) -> list[Reply | Refusal]:
        """Return the answer to each request; those of the same kind go through the network in one call.

        Raises what a network raises that has answered requests of the kind before.
        """
        answers: list[Reply | Refusal] = [Refusal("it was not looked at", is_final=False)] * len(requests)
        groups: dict[Schema, list[int]] = {}
        for place, request in enumerate(requests):
            given = {name: column.shape[1:] for name, column in under(STATE, request.inputs).items()}
            if given == self._state_shapes:
                groups.setdefault(_schema_of(request.inputs), []).append(place)
            else:
                text = f"a request brings recurrent state of shapes {given}, expected {self._state_shapes}."
                answers[place] = Refusal(text, is_final=True)
        for schema, places in groups.items():
            for place, answer in zip(places, self._run(schema, [requests[place] for place in places]), strict=True):
                answers[place] = answer
        return answers

    def _run(self, schema: Schema, requests: Sequence[Request]) -> Sequence[Reply | Refusal]:
        stage, is_known = self._stages.get(schema), schema in self._stages
        if stage is None:
            stage = Stage(schema, is_pinned=self._is_pinned)
        inputs = stage.put([request.inputs for request in requests])
        try:
            output, after = self._forward(
                columns_to_obs(OBS, inputs), {**under(COLUMNS, inputs), **under(STATE, inputs)}
            )
        except Exception as error:  # a client's first inputs may make a network raise anything; the client gets it
            if is_known:
                raise
            text = f"the network does not take {_describe(schema)}: {type(error).__name__}: {error}"
            return [Refusal(text, is_final=True)] * len(requests)
        if not is_known:
            self._keep(schema, stage)
        replies, start = [], 0
        for request in requests:
            stop = start + request.rows
            own = {name: column[start:stop] for name, column in after.items()}
            replies.append(Reply(output[start:stop], own, self.version))
            start = stop
        return replies

    def _keep(self, schema: Schema, stage: Stage) -> None:
        if len(self._stages) >= _MAX_SCHEMAS:
            self._stages.pop(next(iter(self._stages)))
        self._stages[schema] = stage


class Stage:
    """Memory in which the inputs of several requests lie one behind another, used again for the next batch.

    It is one copy of each row, and what a GPU reads from where `is_pinned`.
    """

    def __init__(self, schema: Schema, *, is_pinned: bool) -> None:
        self._schema = schema
        self._is_pinned = is_pinned
        self._capacity = 0
        self._memory: dict[str, Array] = {}

    def put(self, parts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        """Return the inputs of all requests, [B, ...] by name: views, valid until the next call."""
        first = self._schema[0][0]
        rows = sum(len(part[first]) for part in parts)
        if rows > self._capacity:
            self._capacity = 1 << (rows - 1).bit_length()
            self._memory = {name: self._allocate(dtype, shape) for name, dtype, shape in self._schema}
        views = {name: memory[:rows] for name, memory in self._memory.items()}
        for name, view in views.items():
            np.concatenate([part[name] for part in parts], out=view)
        return views

    def _allocate(self, dtype: np.dtype, shape: tuple[int, ...]) -> Array:
        empty = np.empty((self._capacity, *shape), dtype)
        return torch.from_numpy(empty).pin_memory().numpy() if self._is_pinned else empty


def _schema_of(inputs: Mapping[str, Array]) -> Schema:
    return tuple((name, array.dtype, array.shape[1:]) for name, array in inputs.items())


def _describe(schema: Schema) -> str:
    return ", ".join(f"'{name[:40]}' {dtype}{list(shape)}" for name, dtype, shape in schema)


_STATS_S = 1.0


class InferenceStats:
    """Counts of a server's work, reported once a second."""

    def __init__(self) -> None:
        self.num_garbled = 0  # requests that could not be read
        self._latency = LatencyMeter()  # from when a request was received until its answer was sent
        self._totals = {"requests": 0, "observations": 0, "batches": 0}
        self._since = dict(self._totals)
        self._busy_s = 0.0
        self._taken_s = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether it is time to report."""
        return time.monotonic() - self._taken_s >= _STATS_S

    def note(self, batch: Sequence[Waiting], took_s: float) -> None:
        """Count a batch that was answered just now, whose forward pass took so long."""
        rows, now_s = sum(each.request.rows for each in batch), time.monotonic()
        for name, number in (("requests", len(batch)), ("observations", rows), ("batches", 1)):
            self._totals[name] += number
        self._busy_s += took_s
        for each in batch:
            self._latency.note(now_s - each.came_s)

    def take(self) -> dict[str, Any]:  # Any: of JSON
        """Return the totals, and the rates since the last call."""
        now_s = time.monotonic()
        new = {name: total - self._since[name] for name, total in self._totals.items()}
        latency = self._latency.take().plain()
        found = {
            **self._totals,
            "mean_batch": new["observations"] / new["batches"] if new["batches"] else None,
            "p50_ms": latency["p50_ms"],
            "p99_ms": latency["p99_ms"],
            "busy": self._busy_s / (now_s - self._taken_s),
            "garbled": self.num_garbled,
        }
        self._since, self._busy_s, self._taken_s = dict(self._totals), 0.0, now_s
        return found
