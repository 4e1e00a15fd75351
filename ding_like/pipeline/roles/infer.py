"""Answer requests of several clients by one call of a policy's `Forward`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import torch

from ding_like.comm.channels import Version, Weights
from ding_like.comm.zmq.inference_messages import COLUMNS, STATE, Refusal, Reply, Request, obs_of, under
from ding_like.pipeline.roles.loaded_weights import LoadedWeights
from ding_like.policy import Policy
from ding_like.policy.remote_infer import check_acts_remotely
from ding_like.types import Array

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
        self._weights = LoadedWeights(policy)
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
            output, after = self._forward(obs_of(inputs), {**under(COLUMNS, inputs), **under(STATE, inputs)})
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
