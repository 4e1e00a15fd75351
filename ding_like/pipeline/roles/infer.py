"""Answer requests of several clients by one call of a policy's `Forward`: the role of an inference server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import torch

from ding_like.comm.channels import Version, Weights
from ding_like.comm.zmq.inference_messages import Refusal, Reply, Request, columns_of, obs_of
from ding_like.errors import CommError
from ding_like.pipeline.roles.loaded_weights import LoadedWeights
from ding_like.policy import Policy
from ding_like.policy.forward import LaneState
from ding_like.policy.remote_infer import check_acts_remotely
from ding_like.types import Array

MAX_LANES = 2**17  # of all clients, whose recurrent state is kept
_MAX_SCHEMAS = 64  # of which memory is kept
# Name, dtype and shape of a row of each input: requests that have the same go through the network together.
Schema: TypeAlias = "tuple[tuple[str, np.dtype, tuple[int, ...]], ...]"
# What becomes of a request: None asks for the recurrent state that it goes on from.
Answer: TypeAlias = "Reply | Refusal | None"


class InferRole:
    """Run a policy's network for clients, and keep the recurrent state of their lanes under the server's `name`.

    Raises ConfigError for a policy whose network may not be elsewhere than its actors.
    """

    def __init__(self, policy: Policy, *, name: str) -> None:
        self._forward = check_acts_remotely(policy)[1].forward
        self._weights = LoadedWeights(policy)
        self._is_pinned = policy.get_attribute("device").type == "cuda"
        initial = self._forward.initial_state
        self._states = ClientStates(initial, server=name) if initial else None
        self._stages: dict[Schema, Stage] = {}

    @property
    def version(self) -> Version:
        """Return the version of the weights that are loaded."""
        return self._weights.version

    def take(self, weights: Weights) -> None:
        """Load weights that are newer than those that are loaded."""
        if weights.version > self.version:
            self._weights.take(weights)

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        """Return what becomes of each request; those of the same kind go through the network in one call.

        Raises what a network raises that has answered requests of the kind before.
        """
        answers: list[Answer] = [None] * len(requests)
        groups: dict[Schema, list[int]] = {}
        for place, request in enumerate(requests):
            try:
                if self._prepare(request):
                    groups.setdefault(_schema_of(request.inputs), []).append(place)
            except CommError as error:
                answers[place] = Refusal(str(error), is_final=True)
        for schema, places in groups.items():
            for place, answer in zip(places, self._run(schema, [requests[place] for place in places]), strict=True):
                answers[place] = answer
        return answers

    def _prepare(self, request: Request) -> bool:
        """Have the recurrent state before a request at hand; False: its client has to give it. CommError: refused."""
        if self._states is not None:
            return self._states.prepare(request)
        if request.state:
            raise CommError("a request brings recurrent state; this network has none.")
        return True

    def _run(self, schema: Schema, requests: Sequence[Request]) -> Sequence[Answer]:
        stage, is_known = self._stages.get(schema), schema in self._stages
        if stage is None:
            stage = Stage(schema, is_pinned=self._is_pinned)
        inputs = stage.put([request.inputs for request in requests])
        state = {} if self._states is None else self._states.take(requests)
        try:
            output, after = self._forward(obs_of(inputs), {**columns_of(inputs), **state})
        except Exception as error:  # a client's first inputs may make a network raise anything; the client gets it
            if is_known:
                raise
            text = f"the network does not take {_describe(schema)}: {type(error).__name__}: {error}"
            return [Refusal(text, is_final=True)] * len(requests)
        if self._states is not None:
            self._states.put(requests, after)
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

    def forget(self, client: str) -> None:
        """Forget the recurrent state of a client that is gone."""
        if self._states is not None:
            self._states.forget(client)


class Stage:
    """Lay the inputs of several requests one behind another, in memory that is used again for the next batch.

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


@dataclass
class _Client:
    """Hold where the states of a client's lanes are, [L] by lane, -1 for none, and the request that made them."""

    run_id: int
    last_id: int
    slots: Array = field(default_factory=lambda: np.zeros(0, np.int64))

    def of(self, lanes: Array) -> Array:
        """Return the slots of lanes [R]."""
        missing = int(lanes.max()) + 1 - len(self.slots)
        if missing > 0:
            self.slots = np.concatenate([self.slots, np.full(missing, -1)])
        return self.slots[lanes]


class ClientStates:
    """Keep recurrent state [S...] by client, run of it, and lane.

    A client goes on from what is kept here if the server named `server` answered its request before, and no other came
    between: a client that was elsewhere meanwhile, or has forgotten, brings the state.
    """

    def __init__(self, initial: Mapping[str, Array], *, server: str, max_lanes: int = MAX_LANES) -> None:
        self._server = server
        self._shapes = {name: np.shape(value) for name, value in initial.items()}
        self._state = LaneState(initial)
        self._clients: dict[str, _Client] = {}
        self._free: list[int] = []
        self._num_slots, self._max_lanes = 0, max_lanes

    @property
    def num_lanes(self) -> int:
        """Return the lanes whose state is kept."""
        return self._num_slots - len(self._free)

    def prepare(self, request: Request) -> bool:
        """Have the state before a request in its slots; False: the client has to give it.

        Raises CommError for state of other names or shapes than the initial one's, and where there are too many lanes.
        """
        lanes, is_first = _lanes_of(request)
        client = self._client(request)
        is_new = client.of(lanes) < 0
        if request.state:
            given = {name: column.shape for name, column in request.state.items()}
            expected = {name: (request.rows, *shape) for name, shape in self._shapes.items()}
            if given != expected:
                raise CommError(f"a request brings recurrent state of shapes {given}, expected {expected}.")
        elif (is_new & ~is_first).any():
            return False
        if is_new.any():
            self._give_slots(client, np.unique(lanes[is_new]))
        if request.state:
            self._state.put(client.of(lanes), request.state)
        return True

    def _client(self, request: Request) -> _Client:
        client = self._clients.get(request.client)
        follows = None if client is None else (self._server, client.run_id, client.last_id + 1)
        if client is None or follows != (request.follows, request.run_id, request.id):
            self.forget(request.client)
            client = self._clients[request.client] = _Client(request.run_id, request.id - 1)
        return client

    def _give_slots(self, client: _Client, lanes: Array) -> None:
        missing = len(lanes) - len(self._free)
        if missing > 0:
            if self._num_slots + missing > self._max_lanes:
                raise CommError(
                    f"this server keeps the recurrent state of {self._max_lanes:,} lanes, no more: start another one."
                )
            self._free.extend(range(self._num_slots, self._num_slots + missing))
            self._num_slots += missing
            self._state.grow(self._num_slots)
        client.slots[lanes] = [self._free.pop() for _ in lanes]

    def take(self, requests: Sequence[Request]) -> dict[str, Array]:
        """Return the state before requests that are prepared, [B, S...] by name."""
        return self._state.take(self._slots(requests), np.concatenate([_lanes_of(each)[1] for each in requests]))

    def put(self, requests: Sequence[Request], state: Mapping[str, Array]) -> None:
        """Keep the state after requests. Raises SchemaError for other names or shapes than the initial state's."""
        self._state.put(self._slots(requests), state)
        for request in requests:
            self._clients[request.client].last_id = request.id

    def _slots(self, requests: Sequence[Request]) -> Array:
        return np.concatenate([self._clients[each.client].of(_lanes_of(each)[0]) for each in requests])

    def forget(self, client: str) -> None:
        """Forget a client's lanes."""
        gone = self._clients.pop(client, None)
        if gone is not None:
            self._free.extend(gone.slots[gone.slots >= 0].tolist())


def _lanes_of(request: Request) -> tuple[Array, Array]:
    """Return (lanes [R], which begin an episode [R]) of a recurrent network's request."""
    if request.lanes is None or request.is_first is None:
        raise CommError("a request does not name its lanes, by which this network keeps recurrent state.")
    return request.lanes, request.is_first


def _schema_of(inputs: Mapping[str, Array]) -> Schema:
    return tuple((name, array.dtype, array.shape[1:]) for name, array in inputs.items())


def _describe(schema: Schema) -> str:
    return ", ".join(f"'{name[:40]}' {dtype}{list(shape)}" for name, dtype, shape in schema)
