"""Encode a state's tensors as bytes: one contiguous vector for each dtype, which any transport can carry.

A `Layout` says where each tensor stands in the bytes. It is sent as plain JSON without offsets: these follow from
names, dtypes and shapes, so a layout from a network cannot point outside the bytes.
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
from ding_like.comm.json_fields import is_count, short
from ding_like.comm.json_version import is_version
from ding_like.errors import CommError
from ding_like.types import Array

# How numbers are sent: as they are, or float32 tensors rounded to half their bytes.
WireDtype: TypeAlias = Literal["exact", "bfloat16"]
# What two ends compare of a tensor: its shape, and its dtype by name.
Kind: TypeAlias = tuple[tuple[int, ...], str]

ALIGNED = 64  # bytes: a vector begins where a cache line does, and where any dtype may
MAX_NBYTES = 2**36  # of a state: a layout from a network that claims more is refused
MAX_TENSORS = 1_000_000
_MAX_NAME = 1024  # characters
_MAX_DIMS = 64  # as numpy has

# The dtypes that can be sent, by name, in the order of the vectors: the widest first.
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
    """Hold encoded weights: a description in plain JSON, and the bytes of all tensors."""

    head: dict[str, Any]  # policy_id, version and layout; Any: of JSON
    body: Array  # uint8 [N]


class _Tensor(NamedTuple):
    """Describe one tensor: `dtype` is its own, `wire_dtype` the one that it is sent as, both by name."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    wire_dtype: str


class _Vector(NamedTuple):
    """Describe one vector: the tensors in it, and where in the body it stands."""

    wire_dtype: torch.dtype
    tensors: tuple[_Tensor, ...]
    sizes: tuple[int, ...]  # numbers of each
    start: int  # bytes
    end: int


class Layout:
    """Describe where each tensor of a state stands in its bytes: one vector a dtype, tensors in order of name.

    Each vector begins at a multiple of 64 bytes; `nbytes` is the length of all vectors together. Layouts of equal
    names, shapes and dtypes compare equal.
    """

    def __init__(self, tensors: Iterable[_Tensor]) -> None:
        ordered = sorted(tensors, key=lambda each: (_ORDER[each.wire_dtype], each.name))
        vectors, end = [], 0
        for wire_dtype, group in groupby(ordered, key=lambda each: each.wire_dtype):
            members = tuple(group)
            sizes = tuple(prod(each.shape) for each in members)
            start = -(-end // ALIGNED) * ALIGNED
            end = start + sum(sizes) * DTYPES[wire_dtype].itemsize
            vectors.append(_Vector(DTYPES[wire_dtype], members, sizes, start, end))
        self.nbytes = end
        self._vectors = tuple(vectors)
        self._key = tuple(ordered)
        self._hash = hash(self._key)
        self._description: dict[str, Any] | None = None  # made by the first call of `describe`

    @classmethod
    def of(cls, state: Mapping[str, torch.Tensor], *, dtype: WireDtype = "exact") -> Layout:
        """Return the layout of a flat state.

        With "bfloat16" float32 tensors are sent as bfloat16, half the bytes, rounded to 8 significant bits: parameters
        of networks, and buffers such as the averages of a batch normalisation. All others stay exact: integers, bools,
        float64 (counters and running statistics), and numbers and numpy arrays of the source (named "~float",
        "~array"), such as the statistics of the envs' wrappers.

        Raises CommError that names the tensor for one of another dtype, a sparse one, one on device "meta", or a name
        of more than 1,024 characters; and for states of more than 64 GiB or a million tensors.
        """
        if dtype not in get_args(WireDtype):
            raise CommError(f"the dtype of weights is {dtype!r}; expected {' or '.join(get_args(WireDtype))}.")
        _check_tensors(state)
        return _layout(tuple((name, each.dtype, each.shape) for name, each in state.items()), dtype)

    @classmethod
    def parse(cls, described: Mapping[str, Any]) -> Layout:  # Any: of JSON
        """Return the layout of a description. Raises CommError for one that `describe` cannot have made."""
        return cls(_parse(described))

    def describe(self) -> dict[str, Any]:  # Any: of JSON
        """Return the layout as plain JSON: for each dtype that is sent, name and shape of its tensors in order.

        A tensor that is sent rounded has its own dtype behind its shape. The caller does not change the result.
        """
        if self._description is None:
            self._description = {
                _NAMES[vector.wire_dtype]: [
                    [each.name, list(each.shape)] + ([each.dtype] if each.dtype != each.wire_dtype else [])
                    for each in vector.tensors
                ]
                for vector in self._vectors
            }
        return self._description

    @property
    def vectors(self) -> list[tuple[str, int, int]]:
        """Return (dtype, begin, end) of each vector, in bytes of the body."""
        return [(_NAMES[vector.wire_dtype], vector.start, vector.end) for vector in self._vectors]

    def check(self, state: Mapping[str, torch.Tensor]) -> None:
        """Raise CommError that names the first tensor whose name, shape or dtype differs from the layout's."""
        check_alike({each.name: (each.shape, each.dtype) for each in self._key}, kinds_of(state))

    def pack(self, state: Mapping[str, torch.Tensor]) -> Array:
        """Return the bytes of a state, uint8 [nbytes], in memory of their own; see `write`."""
        body = np.empty(self.nbytes, np.uint8)
        self.write(state, body)
        return body

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
                numbers = torch.from_numpy(into[vector.start : end]).view(vector.wire_dtype)
                _copy([state[each.name] for each in vector.tensors], numbers)

    def read(self, body: Array) -> FlatState:
        """Return the state whose bytes are `body` (uint8 [nbytes]), every tensor in its own dtype.

        Tensors are views of the body, which the caller must not change afterwards; those that were sent rounded have
        memory of their own. A body that is read-only or not aligned is copied as a whole. Raises CommError for a body
        of another length, or with a bool that is neither 0 nor 1.
        """
        if body.shape != (self.nbytes,) or body.dtype != np.uint8:
            raise CommError(
                f"weights have {body.size:,} bytes in place of the {self.nbytes:,} of their layout; send them again."
            )
        if not body.flags.writeable or not body.flags.c_contiguous or body.ctypes.data % 8:
            body = body.copy()
        state: FlatState = {}
        for vector in self._vectors:
            own = body[vector.start : vector.end]
            if vector.wire_dtype is torch.bool and own.size and own.max() > 1:
                raise CommError("weights have a bool that is neither true nor false: their bytes are broken.")
            # torch refuses the strides of an empty array.
            dtype = vector.wire_dtype
            numbers = torch.from_numpy(own).view(dtype) if own.size else torch.empty(0, dtype=dtype)
            widened = {name: numbers.to(DTYPES[name]) for name in {each.dtype for each in vector.tensors}}
            pieces = {name: torch.split(each, list(vector.sizes)) for name, each in widened.items()}
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
    """Return encoded weights, in memory of their own. Raises CommError for tensors that cannot be sent."""
    layout = Layout.of(weights.state, dtype=dtype)
    return Encoded(head_of(weights.policy_id, weights.version, layout), layout.pack(weights.state))


def decode(encoded: Encoded) -> Weights:
    """Return the weights; their tensors are views of the body. Raises CommError for what `encode` did not make."""
    policy_id, version, layout = parse_head(encoded.head)
    return Weights(policy_id, version, layout.read(encoded.body))


def head_of(policy_id: str, version: Version, layout: Layout) -> dict[str, Any]:  # Any: of JSON
    """Return the head of encoded weights, plain JSON."""
    return {"policy_id": policy_id, "version": list(version), "layout": layout.describe()}


def parse_head(head: Any) -> tuple[str, Version, Layout]:  # Any: of JSON
    """Return policy, version and layout of a head. Raises CommError for anything that `head_of` does not make."""
    if not isinstance(head, Mapping):
        raise CommError(
            f"the head of weights is {short(head)}, no JSON object; expected policy_id, version and layout."
        )
    policy_id, version = head.get("policy_id"), head.get("version")
    if not isinstance(policy_id, str) or not 0 < len(policy_id) <= _MAX_NAME:
        raise CommError(
            f"weights say that their policy_id is {short(policy_id)}; expected up to {_MAX_NAME:,} characters."
        )
    if not is_version(version):
        raise CommError(f"weights say that their version is {short(version)}; expected [attempt, update], two counts.")
    return policy_id, Version(*version), Layout.parse(head.get("layout"))  # type: ignore[arg-type]  # parse checks


def kinds_of(state: Mapping[str, torch.Tensor]) -> dict[str, Kind]:
    """Return shape and dtype of each tensor, for `check_alike`."""
    return {name: (tuple(each.shape), str(each.dtype).removeprefix("torch.")) for name, each in state.items()}


def check_alike(expected: Mapping[str, Kind], found: Mapping[str, Kind]) -> None:
    """Raise CommError that names the first tensor, in order of name, whose shape or dtype is not as expected."""
    if expected == found:
        return
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            raise CommError(
                f"the weights lack {name!r}, expected with shape {list(expected[name][0])}: they are of another model."
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
    """Raise CommError for tensors that a reader would refuse, or whose numbers are not in memory one by one."""
    nbytes = 0
    for name, each in state.items():
        if not isinstance(each, torch.Tensor):
            raise CommError(f"the weights have a {type(each).__name__} at {short(name)}; expected a tensor.")
        if each.layout is not torch.strided or each.is_meta:
            kind = "no memory (device 'meta')" if each.is_meta else f"the layout {each.layout}"
            raise CommError(f"the tensor {short(name)} has {kind}, and cannot be sent; give a dense tensor in memory.")
        if not isinstance(name, str) or len(name) > _MAX_NAME:
            raise CommError(f"the weights have the name {short(name)}; expected up to {_MAX_NAME:,} characters.")
        nbytes += each.numel() * each.dtype.itemsize
    if len(state) > MAX_TENSORS or nbytes > MAX_NBYTES:
        raise CommError(
            f"the weights have {len(state):,} tensors of {nbytes:,} bytes; expected at most {MAX_TENSORS:,} tensors of "
            f"{MAX_NBYTES:,} bytes: publish parts of the model as policies of their own."
        )


@lru_cache(maxsize=64)  # a policy's state has the same layout in every version
def _layout(tensors: tuple[tuple[str, torch.dtype, torch.Size], ...], dtype: WireDtype) -> Layout:
    found = []
    for name, own, shape in tensors:
        wire_dtype = "bfloat16" if dtype == "bfloat16" and own is torch.float32 and "~" not in _last_key(name) else None
        found.append(_Tensor(name, tuple(shape), _dtype_name(name, own), wire_dtype or _NAMES[own]))
    return Layout(found)


def _last_key(name: str) -> str:
    """Return the last key of a flat name without escapes: "~" is left only before a kind of value, as in "~int"."""
    return name.rpartition("/")[2].replace("~0", "").replace("~1", "")


def _dtype_name(name: str, dtype: torch.dtype) -> str:
    if dtype not in _NAMES:
        raise CommError(f"the tensor {name!r} is {dtype}, which cannot be sent; expected one of {', '.join(DTYPES)}.")
    return _NAMES[dtype]


def _copy(tensors: Sequence[torch.Tensor], into: torch.Tensor) -> None:
    """Copy tensors one behind another into a vector in host memory; from another device in one transfer."""
    flat = [each.detach().reshape(-1) for each in tensors]
    if len({each.device for each in flat}) > 1:
        flat = [each.to(into.device) for each in flat]
    if all((each.dtype, each.device) == (into.dtype, into.device) for each in flat):
        torch.cat(flat, out=into)
    else:
        into.copy_(torch.cat(flat))  # rounding a vector is twice as fast as rounding while it is put together


def _parse(described: Any) -> list[_Tensor]:  # Any: of JSON
    if not isinstance(described, Mapping):
        raise CommError(f"the layout of weights is {short(described)}, no JSON object; expected tensors by dtype.")
    found: dict[str, _Tensor] = {}
    nbytes = 0
    for wire_dtype, tensors in described.items():
        if wire_dtype not in DTYPES or not isinstance(tensors, list):
            raise CommError(
                f"the layout of weights has {short(wire_dtype)}: {short(tensors)}; expected tensors by dtype."
            )
        for entry in tensors:
            tensor = _parse_tensor(entry, wire_dtype)
            nbytes += prod(tensor.shape) * DTYPES[wire_dtype].itemsize
            if tensor.name in found or len(found) >= MAX_TENSORS:
                raise CommError(
                    f"the layout of weights has {tensor.name[:80]!r} twice, or more than {MAX_TENSORS:,} tensors."
                )
            if nbytes > MAX_NBYTES:
                raise CommError(f"the layout of weights has more than {MAX_NBYTES:,} bytes.")
            found[tensor.name] = tensor
    return list(found.values())


def _parse_tensor(entry: Any, wire_dtype: str) -> _Tensor:  # Any: of JSON
    if not isinstance(entry, list) or not 2 <= len(entry) <= 3:
        raise CommError(f"the layout of weights has {short(entry)}; expected [name, shape] or [name, shape, dtype].")
    name, shape = entry[:2]
    dtype = entry[2] if len(entry) == 3 else wire_dtype
    if not isinstance(name, str) or len(name) > _MAX_NAME:
        raise CommError(f"the layout of weights has the name {short(name)}; expected up to {_MAX_NAME:,} characters.")
    if not isinstance(shape, list) or len(shape) > _MAX_DIMS or not all(is_count(each) for each in shape):
        raise CommError(
            f"the layout of weights has {name[:80]!r} with the shape {short(shape)}; expected a list of counts."
        )
    if dtype != wire_dtype and (dtype, wire_dtype) != ("float32", "bfloat16"):
        raise CommError(
            f"the layout of weights has {name[:80]!r} as {short(dtype)}, which is not sent as {wire_dtype}."
        )
    return _Tensor(name, tuple(shape), dtype, wire_dtype)
