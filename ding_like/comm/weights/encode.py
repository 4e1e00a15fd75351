"""Lay the tensors of a state one behind another in one vector a dtype, which any transport carries as bytes.

A `Layout` says where each tensor stands. It is plain JSON on its way, and has no offsets: they follow from the names,
dtypes and shapes, so that a layout from a network can point nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from math import prod
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import torch

from ding_like.comm.channels import Version, Weights
from ding_like.comm.flat_state import FlatState
from ding_like.errors import CommError
from ding_like.types import Array

# How numbers travel: as they are, or float32 parameters in half their bytes.
WireDtype: TypeAlias = Literal["exact", "bfloat16"]

ALIGNED = 64  # bytes: a vector begins where a cache line does, and where any dtype may
MAX_NBYTES = 2**36  # of a state: what is said to be larger is nonsense
MAX_TENSORS = 1_000_000
_MAX_NAME = 1024  # characters
_MAX_DIMS = 64  # as numpy has
_MAX_NUMBER = 2**53  # of versions: JSON has whole numbers up to here

# What can travel, by name, in the order of the vectors: the widest first.
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.int64, torch.uint64),
        *(torch.float32, torch.int32, torch.uint32),
        *(torch.float16, torch.bfloat16, torch.int16, torch.uint16),
        *(torch.int8, torch.uint8, torch.bool),
    )
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_ORDER = {name: place for place, name in enumerate(DTYPES)}


class Encoded(NamedTuple):
    """Hold weights as they travel: a description in plain JSON, and the bytes of all numbers."""

    head: dict[str, Any]  # policy_id, version and layout; Any: of JSON
    body: Array  # uint8 [N]


class _Tensor(NamedTuple):
    """Say what a tensor is and what it travels as, dtypes by name."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    travels: str


class _Vector(NamedTuple):
    """Hold the tensors of one vector, and where in the body it stands."""

    travels: torch.dtype
    tensors: tuple[_Tensor, ...]
    sizes: tuple[int, ...]  # numbers of each
    start: int  # bytes
    end: int


class Layout:
    """Say where each tensor of a state stands in the bytes: one contiguous vector a dtype, tensors in order of name.

    Each vector begins at a multiple of 64 bytes; `nbytes` are those of all vectors together. Equal layouts compare
    equal.
    """

    def __init__(self, tensors: Iterable[_Tensor]) -> None:
        ordered = sorted(tensors, key=lambda each: (_ORDER[each.travels], each.name))
        vectors, end = [], 0
        for travels, group in groupby(ordered, key=lambda each: each.travels):
            members = tuple(group)
            sizes = tuple(prod(each.shape) for each in members)
            start = -(-end // ALIGNED) * ALIGNED
            end = start + sum(sizes) * DTYPES[travels].itemsize
            vectors.append(_Vector(DTYPES[travels], members, sizes, start, end))
        self.nbytes = end
        self._vectors = tuple(vectors)
        self._key = tuple(ordered)
        self._hash = hash(self._key)
        self._description: dict[str, Any] | None = None  # once it was asked for

    @classmethod
    def of(cls, state: Mapping[str, torch.Tensor], *, dtype: WireDtype = "exact") -> Layout:
        """Return the layout of a flat state.

        With "bfloat16" those tensors travel in half their bytes, rounded to 8 significant bits, that are float32: the
        parameters of networks, and buffers such as the averages of a batch normalisation. All else is exact: integers
        and bools, float64, which counters and running statistics are kept in, and what was a number or a numpy array
        ("~float", "~array"), as the statistics of the envs' wrappers are.

        Raises CommError, naming the tensor, for what cannot travel: other dtypes, sparse tensors and those without
        memory, names of more than 1,024 characters, states of more than 64 GiB or a million tensors.
        """
        if dtype not in get_args(WireDtype):
            raise CommError(f"weights cannot travel as {dtype!r}; expected {' or '.join(get_args(WireDtype))}.")
        _check_tensors(state)
        return _layout(tuple((name, each.dtype, each.shape) for name, each in state.items()), dtype)

    @classmethod
    def parse(cls, described: Mapping[str, Any]) -> Layout:  # Any: of JSON
        """Return the layout that `describe` described. Raises CommError for anything that it does not say."""
        return cls(_parse(described))

    def describe(self) -> dict[str, Any]:  # Any: of JSON
        """Return the layout as plain JSON: for each dtype that travels, name and shape of its tensors in order.

        A tensor that is rounded on its way has its own dtype behind its shape. The caller does not change it.
        """
        if self._description is None:
            self._description = {
                _NAMES[vector.travels]: [
                    [each.name, list(each.shape)] + ([each.dtype] if each.dtype != each.travels else [])
                    for each in vector.tensors
                ]
                for vector in self._vectors
            }
        return self._description

    @property
    def vectors(self) -> list[tuple[str, int, int]]:
        """Return (dtype, begin, end) of each vector, in bytes of the body."""
        return [(_NAMES[vector.travels], vector.start, vector.end) for vector in self._vectors]

    def check(self, state: Mapping[str, torch.Tensor]) -> None:
        """Raise CommError that names the first tensor whose name, shape or dtype differs from the layout's."""
        expected = {each.name: (each.shape, each.dtype) for each in self._key}
        check_alike(
            expected, {name: (tuple(each.shape), _dtype_name(name, each.dtype)) for name, each in state.items()}
        )

    def write(self, state: Mapping[str, torch.Tensor], into: Array) -> None:
        """Write a state that has this layout into bytes `into` (uint8 [nbytes]): one copy for each vector.

        Bytes between vectors are set to 0. The state has to pass `check`; tensors of any device and stride will do.
        """
        if into.shape != (self.nbytes,) or into.dtype != np.uint8:
            raise CommError(f"a layout of {self.nbytes:,} bytes cannot be written into {into.shape} of {into.dtype}.")
        end = 0
        for vector in self._vectors:
            into[end : vector.start] = 0
            end = vector.end
            if vector.end > vector.start:
                numbers = torch.from_numpy(into[vector.start : end]).view(vector.travels)
                _copy([state[each.name] for each in vector.tensors], numbers)

    def read(self, body: Array) -> FlatState:
        """Return the state whose bytes are `body` (uint8 [nbytes]), with every dtype as it was before its way.

        Tensors are views of the body, which is the caller's and has to stay as it is; those that were rounded on their
        way have memory of their own. A body that is read-only or not aligned is copied as a whole. Raises CommError for
        a body of another length or bools that are none.
        """
        if body.shape != (self.nbytes,) or body.dtype != np.uint8:
            raise CommError(f"weights have {body.size:,} bytes in place of the {self.nbytes:,} of their layout.")
        if not body.flags.writeable or not body.flags.c_contiguous or body.ctypes.data % 8:
            body = body.copy()
        state: FlatState = {}
        for vector in self._vectors:
            own = body[vector.start : vector.end]
            if vector.travels is torch.bool and own.size and own.max() > 1:
                raise CommError("weights have a bool that is neither true nor false: their bytes are broken.")
            # An empty array's strides are none that torch takes.
            numbers = torch.from_numpy(own).view(vector.travels) if own.size else torch.empty(0, dtype=vector.travels)
            widened = {dtype: numbers.to(DTYPES[dtype]) for dtype in {each.dtype for each in vector.tensors}}
            pieces = {dtype: torch.split(each, list(vector.sizes)) for dtype, each in widened.items()}
            for place, each in enumerate(vector.tensors):
                state[each.name] = pieces[each.dtype][place].view(each.shape)
        return state

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Layout) and self._hash == other._hash and self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Layout({len(self._key)} tensors, {self.nbytes:,} bytes)"


def encode(weights: Weights, *, dtype: WireDtype = "exact") -> Encoded:
    """Return weights as they travel, in memory of their own. Raises CommError for tensors that cannot."""
    layout = Layout.of(weights.state, dtype=dtype)
    body = np.empty(layout.nbytes, np.uint8)
    layout.write(weights.state, body)
    return Encoded(head_of(weights.policy_id, weights.version, layout), body)


def decode(encoded: Encoded) -> Weights:
    """Return weights that travelled; their tensors are views of the body. Raises CommError for nonsense."""
    policy_id, version, layout = parse_head(encoded.head)
    return Weights(policy_id, version, layout.read(encoded.body))


def head_of(policy_id: str, version: Version, layout: Layout) -> dict[str, Any]:  # Any: of JSON
    """Return the head of encoded weights, plain JSON."""
    return {"policy_id": policy_id, "version": list(version), "layout": layout.describe()}


def parse_head(head: Any) -> tuple[str, Version, Layout]:  # Any: of JSON
    """Return what a head says. Raises CommError for anything that `head_of` does not make."""
    if not isinstance(head, Mapping):
        raise CommError(f"the head of weights is {_said(head)}, no JSON object.")
    policy_id, version = head.get("policy_id"), head.get("version")
    if not isinstance(policy_id, str) or not 0 < len(policy_id) <= _MAX_NAME:
        raise CommError(f"weights say that their policy is {_said(policy_id)}; expected a name.")
    if not isinstance(version, (list, tuple)) or len(version) != 2 or not all(_is_count(each) for each in version):
        raise CommError(f"weights say that their version is {_said(version)}; expected [attempt, update].")
    return policy_id, Version(*version), Layout.parse(head.get("layout"))  # type: ignore[arg-type]  # parse checks


def check_alike(
    expected: Mapping[str, tuple[tuple[int, ...], str]], found: Mapping[str, tuple[tuple[int, ...], str]]
) -> None:
    """Raise CommError that names the first tensor, in order of name, whose shape or dtype is not as expected.

    Both are (shape, dtype) by name.
    """
    if expected == found:
        return
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            raise CommError(
                f"the weights lack {name!r}, of shape {list(expected[name][0])}: they are of another model."
            )
        if name not in expected:
            raise CommError(f"the weights have {name!r}, which is not expected: they are of another model.")
        if expected[name] != found[name]:
            (shape, dtype), (other, other_dtype) = expected[name], found[name]
            raise CommError(
                f"the weights have {name!r} as {other_dtype} {list(other)}; expected {dtype} {list(shape)}: they are "
                "of another model."
            )


def _check_tensors(state: Mapping[str, torch.Tensor]) -> None:
    """Raise CommError for what a reader would refuse, or what has no numbers in a row."""
    nbytes = 0
    for name, each in state.items():
        if not isinstance(each, torch.Tensor):
            raise CommError(f"the weights have a {type(each).__name__} at {_said(name)}; expected a tensor.")
        if each.layout is not torch.strided or each.is_meta:
            kind = "no memory (device 'meta')" if each.is_meta else f"the layout {each.layout}"
            raise CommError(f"the tensor {_said(name)} has {kind}, and cannot travel; make it dense first.")
        if not isinstance(name, str) or len(name) > _MAX_NAME:
            raise CommError(f"the weights have the name {_said(name)}; expected up to {_MAX_NAME:,} characters.")
        nbytes += each.numel() * each.dtype.itemsize
    if len(state) > MAX_TENSORS or nbytes > MAX_NBYTES:
        raise CommError(
            f"the weights have {len(state):,} tensors of {nbytes:,} bytes; at most {MAX_TENSORS:,} of {MAX_NBYTES:,} "
            "travel together."
        )


@lru_cache(maxsize=64)  # a policy's state has the same layout in every version
def _layout(tensors: tuple[tuple[str, torch.dtype, torch.Size], ...], dtype: WireDtype) -> Layout:
    found = []
    for name, own, shape in tensors:
        travels = "bfloat16" if dtype == "bfloat16" and own is torch.float32 and "~" not in _last_key(name) else None
        found.append(_Tensor(name, tuple(shape), _dtype_name(name, own), travels or _NAMES[own]))
    return Layout(found)


def _last_key(name: str) -> str:
    """Return the last key of a flat name with "~" only before what kind of value it is, if that is no tensor."""
    return name.rpartition("/")[2].replace("~0", "").replace("~1", "")


def _dtype_name(name: str, dtype: torch.dtype) -> str:
    if dtype not in _NAMES:
        raise CommError(f"the tensor {name!r} is {dtype}, which cannot travel; expected one of {', '.join(DTYPES)}.")
    return _NAMES[dtype]


def _copy(tensors: Sequence[torch.Tensor], into: torch.Tensor) -> None:
    """Copy tensors behind one another into a vector of the host; from another device it is one transfer."""
    flat = [each.detach().reshape(-1) for each in tensors]
    if len({each.device for each in flat}) > 1:
        flat = [each.to(into.device) for each in flat]
    if all((each.dtype, each.device) == (into.dtype, into.device) for each in flat):
        torch.cat(flat, out=into)
    else:
        into.copy_(torch.cat(flat))  # rounding a vector is twice as fast as rounding while it is put together


def _parse(described: Any) -> list[_Tensor]:  # Any: of JSON
    if not isinstance(described, Mapping):
        raise CommError(f"the layout of weights is {_said(described)}, no JSON object.")
    found: dict[str, _Tensor] = {}
    nbytes = 0
    for travels, tensors in described.items():
        if travels not in DTYPES or not isinstance(tensors, list):
            raise CommError(f"the layout of weights has {_said(travels)}: {_said(tensors)}; expected tensors by dtype.")
        for entry in tensors:
            tensor = _parse_tensor(entry, travels)
            nbytes += prod(tensor.shape) * DTYPES[travels].itemsize
            if tensor.name in found or len(found) >= MAX_TENSORS:
                raise CommError(f"the layout of weights has {tensor.name[:80]!r} twice, or too many tensors.")
            if nbytes > MAX_NBYTES:
                raise CommError(f"the layout of weights has more than {MAX_NBYTES:,} bytes.")
            found[tensor.name] = tensor
    return list(found.values())


def _parse_tensor(entry: Any, travels: str) -> _Tensor:  # Any: of JSON
    if not isinstance(entry, list) or not 2 <= len(entry) <= 3:
        raise CommError(f"the layout of weights has {_said(entry)}; expected [name, shape] or [name, shape, dtype].")
    name, shape = entry[:2]
    dtype = entry[2] if len(entry) == 3 else travels
    if not isinstance(name, str) or len(name) > _MAX_NAME:
        raise CommError(f"the layout of weights has the name {_said(name)}.")
    if not isinstance(shape, list) or len(shape) > _MAX_DIMS or not all(_is_count(each) for each in shape):
        raise CommError(f"the layout of weights has {name[:80]!r} with the shape {_said(shape)}.")
    if dtype != travels and (dtype, travels) != ("float32", "bfloat16"):
        raise CommError(
            f"the layout of weights has {name[:80]!r} as {_said(dtype)}, which does not travel as {travels}."
        )
    return _Tensor(name, tuple(shape), dtype, travels)


def _is_count(value: Any) -> bool:  # Any: of JSON
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_NUMBER


def _said(value: Any) -> str:  # Any: of JSON
    return repr(value)[:80]
