"""States, weights and columns as arrays by name and as safetensors bytes, from which nothing can be executed, and back.

A policy's state is flattened to tensors by name. Weights come from, and are put into, a `torch.nn.Module`, a policy's
collect mode or another object with `state_dict` (and, as a target, `load_state_dict`), dicts of tensors, numpy arrays
and numbers, nested ones too, and a TensorDict. The package `tensordict` is not needed: an object with its documented
methods counts as one. A `TensorDictModule` and a `TensorDictParams` are modules. A TensorDict's nested keys are joined
by ".", as its own `state_dict` does, so that `TensorDict.from_module(module)` and `module` have the same names.

Encoded weights have their policy, their version and the names of rounded tensors in the file's metadata, as JSON under
`ding_like.weights`. The header's offsets must be those that follow from dtypes and shapes, so that a header from a
network cannot point outside the bytes. `delta` encodes new bytes as the blocks of 4 KiB in which they differ from older
ones that the receiver has: it pays where a large part of the weights stays the same, a frozen encoder, say.

For their way between Ray workers rows and states may be one lz4 frame.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Collection, Mapping
from math import prod
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors import numpy as arrays_format

from ding_like.comm.channels import Version, Weights, is_count, is_version, short
from ding_like.data.batch import SequenceBatch, TransitionBatch
from ding_like.errors import CommError, ConfigError
from ding_like.types import Array, Config, Section, State
from ding_like.utils.registries import pip_line

_MAX_DEPTH = 16

# Behind a key, what a value is that is no tensor. Keys themselves have "~0" and "~1" only, for "~" and "/" (RFC 6901).
_LEAF = re.compile(r"((?:[^~]|~[01])*)(~bool|~int|~float|~array|~empty)?")

FlatState = dict[str, torch.Tensor]


def flatten_state(state: Config) -> FlatState:
    """Return nested mappings as one of tensors, keys joined by "/"; numbers and numpy arrays travel as tensors.

    Tensors are those of `state`, not copies. `unflatten_state` returns equal values of the same types. Raises
    CommError, naming the place, for a value of any other type.
    """
    flat: FlatState = {}
    _flatten(state, "", flat, 0)
    return flat


def unflatten_state(flat: Mapping[str, torch.Tensor]) -> State:
    """Return what `flatten_state` was given. Raises CommError for names that it does not make."""
    state: State = {}
    for name, tensor in flat.items():
        *parents, last = name.split("/")
        leaf = _LEAF.fullmatch(last)
        if leaf is None or len(parents) > _MAX_DEPTH:
            raise CommError(f"weights have a value with the name {name[:80]!r}, which no state is saved under.")
        target = state
        for parent in parents:
            target = target.setdefault(_unescape(parent), {})
            if not isinstance(target, dict):
                raise CommError(f"weights have a value {parent[:80]!r} and others below it: {name[:80]!r}.")
        target[_unescape(leaf[1])] = _value(tensor, leaf[2] or "", name)
    return state


def _flatten(value: Any, name: str, flat: FlatState, depth: int) -> None:
    if isinstance(value, torch.Tensor):
        flat[name] = value
    elif isinstance(value, Mapping) and depth <= _MAX_DEPTH:
        if not value and name:
            flat[f"{name}~empty"] = torch.zeros(0)
        for key, inner in value.items():
            if not isinstance(key, str):
                raise CommError(f"the state of a policy has the key {key!r} in {name or 'it'!r}; expected a text.")
            escaped = key.replace("~", "~0").replace("/", "~1")
            _flatten(inner, f"{name}/{escaped}" if depth else escaped, flat, depth + 1)
    elif isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        flat[f"{name}~array"] = torch.from_numpy(np.array(value))
    elif isinstance(value, (bool, np.bool_)):
        flat[f"{name}~bool"] = torch.tensor(bool(value))
    elif isinstance(value, (int, np.integer)) and abs(int(value)) < 2**63:
        flat[f"{name}~int"] = torch.tensor(int(value), dtype=torch.int64)
    elif isinstance(value, (float, np.floating)):
        flat[f"{name}~float"] = torch.tensor(float(value), dtype=torch.float64)
    else:
        raise CommError(
            f"the collect mode's state has a {type(value).__name__} at {name!r}, which cannot be published: give "
            "tensors, numpy arrays of numbers, numbers, or dicts of these."
        )


def _value(tensor: torch.Tensor, kind: str, name: str) -> Any:
    if not kind:
        return tensor
    if kind == "~array":
        return tensor.numpy()
    if kind == "~empty":
        return {}
    if tensor.ndim:
        raise CommError(f"weights have {list(tensor.shape)} values in place of the number {name[:80]!r}.")
    return {"~bool": bool, "~int": int, "~float": float}[kind](tensor.item())


def _unescape(key: str) -> str:
    return key.replace("~1", "/").replace("~0", "~")


def state_of(source: object) -> FlatState:
    """Return all weights of a source by name; tensors are the source's own, not copies, and need no gradient.

    Raises CommError for a source of another kind, or a value in it that cannot be sent.
    """
    if _is_tensordict(source):
        state: Mapping[str, Any] = _leaves(source)
    elif isinstance(source, Mapping):
        state = source
    elif callable(state_dict := getattr(source, "state_dict", None)):
        state = state_dict()
    else:
        raise CommError(
            f"weights cannot be taken from a {type(source).__name__}: give a torch.nn.Module, a state dict, a dict of "
            "tensors or numpy arrays, a TensorDict, or an object with a method state_dict."
        )
    return {name: tensor.detach() for name, tensor in flatten_state(state).items()}


def load_into(target: object, state: Mapping[str, torch.Tensor]) -> None:
    """Put weights into a target, in place: its tensors and arrays keep their memory.

    Names, shapes and dtypes are compared first, so that nothing is changed if any differs: CommError names the first.
    """
    check_alike(kinds_of(state_of(target)), kinds_of(state))
    if _is_tensordict(target):
        _fill(_leaves(target), unflatten_state(state))
    elif isinstance(target, Mapping):
        _fill(target, unflatten_state(state))
    elif callable(load_state_dict := getattr(target, "load_state_dict", None)):
        load_state_dict(unflatten_state(state))
    else:
        raise CommError(
            f"weights cannot be put into a {type(target).__name__}: it has no method load_state_dict. Give a module, a "
            "dict or a TensorDict."
        )


def named_like(names: Collection[str], state: Mapping[str, torch.Tensor]) -> FlatState:
    """Return a state renamed to `names` if its own names differ only by "/" for "."; else unchanged.

    "0/weight" of a nested dict is "0.weight" of a module. Two names that differ only by that are ambiguous: then
    nothing is renamed.
    """
    if state.keys() == set(names):
        return dict(state)
    wanted = {name.replace("/", "."): name for name in names}
    own = {name.replace("/", "."): name for name in state}
    if wanted.keys() != own.keys() or len(wanted) != len(names) or len(own) != len(state):
        return dict(state)
    return {wanted[joined]: state[name] for joined, name in own.items()}


def _is_tensordict(source: object) -> bool:
    """Return whether a source has what the documentation of TensorDictBase promises, which no dict or module has."""
    return all(callable(getattr(source, name, None)) for name in ("flatten_keys", "unflatten_keys", "items"))


def _leaves(source: Any) -> dict[str, torch.Tensor]:  # Any: a TensorDict, of a package that need not be there
    """Return the tensors of a TensorDict by their keys, joined by "."."""
    leaves: dict[str, torch.Tensor] = {}
    for key, value in source.items(include_nested=True, leaves_only=True):
        name = key if isinstance(key, str) else ".".join(key)
        if name in leaves:
            raise CommError(f"the TensorDict has two entries with the name {name!r}, their keys joined by '.'.")
        if not isinstance(value, torch.Tensor):
            raise CommError(f"the TensorDict has a {type(value).__name__} at {name!r}; only tensors are weights.")
        leaves[name] = value
    return leaves


def _fill(target: Any, values: Mapping[str, Any]) -> None:  # Any: a dict, of values of several kinds
    """Copy values into the tensors and arrays of a nested dict; numbers are replaced."""
    for key, value in values.items():
        own = target[key]
        if isinstance(own, Mapping):
            _fill(own, value)
        elif isinstance(own, torch.Tensor):
            with torch.no_grad():
                own.copy_(value)
        elif isinstance(own, np.ndarray):
            np.copyto(own, value)
        else:
            target[key] = value


# How numbers are sent: as they are, or float32 tensors rounded to half their bytes.
WireDtype: TypeAlias = Literal["exact", "bfloat16"]
# The shape of a tensor, and its dtype by name: both ends compare them.
Kind: TypeAlias = tuple[tuple[int, ...], str]
# A safetensors file, uint8 [N].
Encoded: TypeAlias = Array

MAX_NBYTES = 2**36  # of weights from a network
_ALIGNED = 64  # bytes: data begin where a cache line does, and where any dtype may
_LENGTH = 8  # bytes of the header's length, in front of the header
_KEY = "ding_like.weights"
_MAX_NAME = 1024  # characters

# The dtypes that can be sent, by their names in safetensors.
DTYPES = {
    **{"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "BOOL": torch.bool},
    **{"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8},
    **{"U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8},
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def to_bytes(state: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None) -> Encoded:
    """Return tensors as the bytes of a safetensors file, by one copy; the header has them in the order of `state`.

    Data are in the order of the size of a number, largest first, so that each tensor begins where its dtype may.
    Raises CommError that names the tensor for one that is sparse, has no memory, or is of another dtype.
    """
    for name, tensor in state.items():
        _check_tensor(name, tensor)
    pieces, offsets, end = [], {}, 0
    for name in sorted(state, key=lambda each: -state[each].dtype.itemsize):
        pieces.append(state[name].detach().contiguous().reshape(-1).view(torch.uint8))
        offsets[name] = [end, end := end + pieces[-1].numel()]
    header: dict[str, Any] = {"__metadata__": dict(metadata or {})}
    for name, tensor in state.items():
        entry = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": offsets[name]}
        header[name] = entry
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(_LENGTH + len(text)) % _ALIGNED)
    start = _LENGTH + len(text)
    data = np.empty(start + end, np.uint8)
    data[:start] = np.frombuffer(len(text).to_bytes(_LENGTH, "little") + text, np.uint8)
    if len({piece.device for piece in pieces}) > 1:
        pieces = [piece.cpu() for piece in pieces]
    if end:
        body = torch.from_numpy(data[start:])
        if pieces[0].is_cpu:
            torch.cat(pieces, out=body)
        else:  # one transfer from the device
            body.copy_(torch.cat(pieces))
    return data


def from_bytes(data: Array) -> tuple[FlatState, dict[str, str]]:
    """Return (tensors, metadata) of a safetensors file, uint8 [N].

    Tensors are views of the bytes, which the caller must not change afterwards; bytes that are read-only or not aligned
    are copied as a whole. Raises CommError for anything that `to_bytes` does not make.
    """
    header, start = _header(data)
    if not data.flags.writeable or not data.flags.c_contiguous or data.ctypes.data % 8:
        data = np.array(data)
    metadata, state, spans = header.pop("__metadata__", {}), FlatState(), []
    try:
        for name, entry in header.items():
            (begin, end), shape, dtype = entry["data_offsets"], entry["shape"], DTYPES[entry["dtype"]]
            if not all(map(is_count, (begin, end, *shape))) or end - begin != prod(shape) * dtype.itemsize:
                raise ValueError(f"{short(name)} is {short(entry)}")
            spans.append((begin, end))
            numbers = torch.from_numpy(data[start + begin : start + end])
            # torch refuses the strides of an empty array.
            state[name] = (numbers.view(dtype) if end > begin else torch.empty(0, dtype=dtype)).view(shape)
    except (ValueError, LookupError, TypeError, RuntimeError) as error:
        raise CommError(
            f"the header of weights does not describe tensors ({type(error).__name__}: {error})."
        ) from error
    begins, ends = zip((0, 0), *sorted(spans), strict=True)
    if begins[1:] != ends[:-1] or ends[-1] != data.size - start:
        raise CommError(f"the tensors of weights do not fill the {data.size - start:,} bytes behind their header.")
    return state, metadata


def encode_weights(weights: Weights, *, dtype: WireDtype = "exact") -> Encoded:
    """Return encoded weights, in memory of their own. Raises CommError for tensors that cannot be sent.

    With "bfloat16" float32 tensors are sent as bfloat16, half the bytes, rounded to 8 significant bits: parameters of
    networks, and buffers such as the averages of a batch normalisation. All others stay exact: integers, bools, float64
    (counters and running statistics), and numbers and numpy arrays of the source (named "~float", "~array"), such as
    the statistics of the envs' wrappers.
    """
    if dtype not in get_args(WireDtype):
        raise CommError(f"the dtype of weights is {dtype!r}; expected {' or '.join(get_args(WireDtype))}.")
    state, rounded = dict(weights.state), list[str]()
    if dtype == "bfloat16":
        # Without escapes "~" is left in a last key only before a kind of value, as in "~int".
        last = {name: name.rpartition("/")[2].replace("~0", "").replace("~1", "") for name in state}
        rounded = [name for name, each in state.items() if each.dtype is torch.float32 and "~" not in last[name]]
        state |= {name: state[name].bfloat16() for name in rounded}
    head = {"policy_id": weights.policy_id, "version": list(weights.version), "rounded": rounded}
    return to_bytes(state, {_KEY: json.dumps(head)})


def decode_weights(data: Encoded) -> Weights:
    """Return the weights; their tensors are views of the bytes. Raises CommError for what `encode` did not make."""
    state, metadata = from_bytes(data)
    policy_id, version, rounded = _parse_head(metadata)
    for name in rounded:
        if name not in state:
            raise CommError(f"the header of weights has {short(name)} as a rounded tensor, which they lack.")
        state[name] = state[name].float()
    return Weights(policy_id, version, state)


def weights_name_of(data: Encoded) -> tuple[str, Version]:
    """Return policy and version of encoded weights. Raises CommError for other bytes."""
    return _parse_head(_header(data)[0].get("__metadata__"))[:2]


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


def _check_tensor(name: str, tensor: torch.Tensor) -> None:
    """Raise CommError for a tensor that a reader would refuse, or whose numbers are not in memory one by one."""
    if not isinstance(tensor, torch.Tensor):
        raise CommError(f"the weights have a {type(tensor).__name__} at {short(name)}; expected a tensor.")
    if tensor.layout is not torch.strided or tensor.is_meta:
        kind = "no memory (device 'meta')" if tensor.is_meta else f"the layout {tensor.layout}"
        raise CommError(f"the tensor {short(name)} has {kind}, and cannot be sent; give a dense tensor in memory.")
    if tensor.dtype not in _NAMES:
        raise CommError(f"the tensor {short(name)} is {tensor.dtype}, which cannot be sent; expected one of {DTYPES}.")


def _header(data: Array) -> tuple[dict[str, Any], int]:  # Any: of JSON
    """Return the header of a safetensors file, and where it ends. Raises CommError for other bytes."""
    if data.ndim != 1 or data.dtype != np.uint8:
        raise CommError(f"weights are an array of {data.dtype} {list(data.shape)}; expected bytes, uint8 [N].")
    start = _LENGTH + int.from_bytes(data[:_LENGTH].tobytes(), "little")
    if data.size < start:
        raise CommError(f"weights have {data.size:,} bytes, and their header alone should end at {start:,}.")
    try:
        header = json.loads(data[_LENGTH:start].tobytes())
    except (ValueError, RecursionError) as error:
        raise CommError(f"the header of weights is no JSON: {error}") from error
    if not isinstance(header, dict):
        raise CommError(f"the header of weights is {short(header)}; expected a JSON object.")
    return header, start


def _parse_head(metadata: Any) -> tuple[str, Version, list[str]]:  # Any: of JSON
    """Return policy, version and names of rounded tensors of a file's metadata. Raises CommError for anything else."""
    try:
        head = json.loads(metadata[_KEY])
        policy_id, version, rounded = head["policy_id"], head["version"], head["rounded"]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise CommError(f"the header does not name weights ({type(error).__name__}: {error}).") from error
    if not isinstance(policy_id, str) or not 0 < len(policy_id) <= _MAX_NAME:
        raise CommError(f"weights have the policy_id {short(policy_id)}; expected up to {_MAX_NAME:,} characters.")
    if not is_version(version):
        raise CommError(f"weights have the version {short(version)}; expected [attempt, update], two counts.")
    if not isinstance(rounded, list) or not all(isinstance(name, str) for name in rounded):
        raise CommError(f"weights have the rounded tensors {short(rounded)}; expected a list of names.")
    return policy_id, Version(*version), rounded


BLOCK = 4096  # bytes: a page; its number costs a thousandth of it
# First bytes of a delta. As the length of a safetensors head they would be beyond all limits, so none begins so.
MAGIC = b"ding-\xce\x94\xff"
# Behind it: bytes before and after, crc32 of those after, number of blocks that changed; then their numbers, and they.
_HEAD = struct.Struct("<8sQQII")
_MAX_NBYTES = 2**40


def delta(old: Array, new: Array) -> Array | None:
    """Return the delta from `old` to `new` (both uint8 [N], lengths may differ); None if it is not shorter than `new`.

    `apply_delta` restores `new`, byte for byte.
    """
    both = min(old.size, new.size) // BLOCK
    differs = np.ones(_num_blocks(new.size), np.bool_)
    words = (each[: both * BLOCK].view(np.uint64).reshape(both, BLOCK // 8) for each in (old, new))
    differs[:both] = np.not_equal(*words).any(axis=1)
    if differs.size > both and np.array_equal(old[both * BLOCK :], new[both * BLOCK :]):
        differs[both:] = False  # the last block, which is shorter
    changed = np.flatnonzero(differs).astype(np.uint32)
    last = new.size - (differs.size - 1) * BLOCK if differs.size and differs[-1] else BLOCK
    if _HEAD.size + changed.size * (4 + BLOCK) - (BLOCK - last) >= new.size:
        return None
    head = _HEAD.pack(MAGIC, old.size, new.size, zlib.crc32(new.data), changed.size)
    blocks = [new[start : start + BLOCK] for start in (changed.astype(np.int64) * BLOCK).tolist()]
    return np.concatenate([np.frombuffer(head, np.uint8), changed.view(np.uint8), *blocks])


def is_delta(data: Array) -> bool:
    """Return whether bytes are a delta, and not a whole file of weights."""
    return bool(data.size >= _HEAD.size and data[: len(MAGIC)].tobytes() == MAGIC)


def apply_delta(old: Array, changes: Array) -> Array:
    """Return the new bytes (uint8 [N], writable, in memory of their own) that `delta` was given.

    Raises CommError for bytes that are no delta, one that was made from other bytes than `old`, or a wrong checksum.
    """
    if not is_delta(changes):
        raise CommError(f"{changes.size:,} bytes are no delta of weights: they do not begin as one.")
    _, before, after, crc, num_changed = _HEAD.unpack(changes[: _HEAD.size].tobytes())
    body = _HEAD.size + 4 * num_changed
    if before != old.size or after > _MAX_NBYTES or body > changes.size:
        raise CommError(f"a delta of weights is from {before:,} bytes in place of {old.size:,}, or is cut off.")
    numbers = changes[_HEAD.size : body].view(np.uint32).astype(np.int64)
    if numbers.size and (numbers[-1] >= _num_blocks(after) or (np.diff(numbers) <= 0).any()):
        raise CommError("a delta of weights names blocks beyond its result, or not in order.")
    ends = np.minimum((numbers + 1) * BLOCK, after)
    if int((ends - numbers * BLOCK).sum()) != changes.size - body:
        raise CommError("a delta of weights has fewer or more bytes than its blocks.")
    if after - old.size > num_changed * BLOCK:
        raise CommError(f"a delta of weights makes {after:,} bytes of {old.size:,}, and does not bring the rest.")
    new = np.zeros(after, np.uint8)
    kept = min(old.size, after)
    new[:kept] = old[:kept]
    at = body
    for start, end in zip((numbers * BLOCK).tolist(), ends.tolist(), strict=True):
        new[start:end] = changes[at : at + end - start]
        at += end - start
    if zlib.crc32(new.data) != crc:
        raise CommError("a delta of weights was made from other bytes than these: the result has another checksum.")
    return new


def _num_blocks(nbytes: int) -> int:
    return -(-nbytes // BLOCK)


_HEADER = "~header"
_PARTS = ("columns", "initial", "per_window")  # of a batch of windows


def pack(columns: Mapping[str, Array], header: Config) -> bytes:
    """Return columns and a JSON-like header as safetensors. Raises CommError for columns of objects."""
    # Not ascontiguousarray, which makes a list of a lone number.
    arrays = {name: np.asarray(column, order="C") for name, column in columns.items()}
    for name, array in arrays.items():
        if array.dtype.kind not in "biuf":
            raise CommError(f"column '{name}' has dtype {array.dtype}; learners exchange numbers only.")
    data: bytes = arrays_format.save({**arrays, _HEADER: np.frombuffer(json.dumps(header).encode(), np.uint8)})
    return data


def unpack(data: bytes) -> tuple[dict[str, Array], Section]:
    """Return (columns, header) as `pack` was given them. Raises CommError for other bytes."""
    try:
        arrays: dict[str, Array] = arrays_format.load(data)
        header: Section = json.loads(arrays.pop(_HEADER).tobytes())
    except (SafetensorError, KeyError, ValueError) as error:
        raise CommError(f"{len(data)} bytes hold no columns: {error}") from error
    return arrays, header


def pack_batch(batch: TransitionBatch | SequenceBatch, header: Config) -> bytes:
    """Return rows, or windows of them, and a header as bytes; see `pack`."""
    if isinstance(batch, TransitionBatch):
        return pack(batch.columns, {"is_of_windows": False, **header})
    parts = (batch.columns, batch.initial, batch.per_window)
    named = {f"{part}/{name}": each for part, group in zip(_PARTS, parts, strict=True) for name, each in group.items()}
    return pack(named, {"is_of_windows": True, **header})


def unpack_batch(data: bytes) -> tuple[TransitionBatch | SequenceBatch, Section]:
    """Return (the batch, the header) that `pack_batch` was given. Raises CommError for other bytes."""
    columns, header = unpack(data)
    if not header.pop("is_of_windows", False):
        return TransitionBatch(columns), header
    parts: dict[str, dict[str, Array]] = {part: {} for part in _PARTS}
    for key, column in columns.items():
        part, _, name = key.partition("/")
        if part not in parts:
            raise CommError(f"a batch of windows has the column {key!r}; expected it in one of {', '.join(_PARTS)}.")
        parts[part][name] = column
    return SequenceBatch(*parts.values()), header


def padded(data: bytes, size: int) -> torch.Tensor:
    """Return bytes as a tensor of uint8 [size]."""
    tensor = torch.empty(size, dtype=torch.uint8)
    tensor.numpy()[: len(data)] = np.frombuffer(data, np.uint8)
    return tensor


def schema_of(columns: Mapping[str, Array]) -> dict[str, str]:
    """Return dtype and shape of a row by the name of its column."""
    return {name: f"{column.dtype}{list(column.shape[1:])}" for name, column in columns.items()}


_FRAME = {"content_checksum": True, "store_size": True}
_LZ4_MAGIC = bytes.fromhex("04224d18")  # the first bytes of a frame; of safetensors they would be a header of 400 MB


def pack_rows(batch: TransitionBatch) -> bytes:
    """Return rows as one compressed frame."""
    # safetensors sorts the names; the order of columns is kept in the header.
    frame: bytes = _lz4().compress(pack(batch.columns, {"names": list(batch.columns)}), **_FRAME)
    return frame


def unpack_rows(frame: bytes) -> TransitionBatch:
    """Return the rows of a frame, in memory of their own. Raises CommError for other bytes."""
    columns, header = unpack(_decompressed(frame))
    return TransitionBatch({name: columns[name].copy() for name in header["names"]})


def pack_state(state: Mapping[str, object], *, compress: bool = False) -> Array:
    """Return a copy of a nested state as bytes, uint8 [N]. Raises CommError, naming the place, for other values."""
    data = to_bytes(flatten_state(state))
    return np.frombuffer(_lz4().compress(data, **_FRAME), np.uint8) if compress else data


def unpack_state(packed: Array) -> State:
    """Return the state, in memory of its own. Raises CommError for other bytes."""
    data = packed.tobytes()
    data = _decompressed(data) if data.startswith(_LZ4_MAGIC) else data
    try:
        flat, _ = from_bytes(np.frombuffer(data, np.uint8))
    except CommError as error:
        raise CommError(f"{len(data):,} bytes are no packed state: {error}") from error
    return unflatten_state(flat)


def _decompressed(frame: bytes) -> bytes:
    try:
        data: bytes = _lz4().decompress(frame)
    except (RuntimeError, EOFError) as error:
        raise CommError(f"{len(frame):,} bytes are no lz4 frame, or were changed: {error}") from error
    return data


def _lz4() -> Any:  # Any: a module without types, of an extra
    try:
        import lz4.frame
    except ImportError as error:
        raise ConfigError(f"compress=True needs the package lz4: {pip_line('ray')}, or set compress=False.") from error
    return lz4.frame
