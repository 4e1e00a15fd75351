"""Check observations of a client against the observation space of its env, and make arrays of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np
from gymnasium import spaces

from ding_like.comm.rest.messages import RefusedError
from ding_like.data.batch import ACTION_MASK
from ding_like.errors import name_some
from ding_like.types import Array, Json

logger = logging.getLogger(__name__)

# A gymnasium space is generic in what it samples, which differs from env to env: hence Space[Any] throughout.
Space: TypeAlias = spaces.Space[Any]
# Observations as envs give them: an array [O...] or [R, O...], or dicts of those in dicts.
RawBatch: TypeAlias = Any
# What a client sent under one name: an array, or what JSON had there.
Sent: TypeAlias = Any
_SHOWN = 5  # places, or names, in a message
_MAX_DEPTH = 16  # of dicts in dicts


class Rows(NamedTuple):
    """Observations of a request as arrays."""

    obs: RawBatch
    num: int
    is_batch: bool  # False: one observation was sent, and the answer has no batch axis either


class ObservationReader:
    """Reader that checks observations against a space: names, shapes, kinds of number and range.

    One observation is [O...], a batch [R, O...] with R at most `max_batch`. A NaN and an integer out of range are
    refused. Numbers outside a Box are taken, with one warning for each entry: some envs leave the Box they declare.
    `name` is what messages call the observation.
    """

    def __init__(self, space: Space, *, max_batch: int, name: str = "obs") -> None:
        self.space = space
        self.max_batch = max_batch
        self._name = name
        self._leaves = leaves_of(space)
        self._is_dict = isinstance(space, spaces.Dict)
        boxes = {name: _box_bounds(leaf) for name, leaf in self._leaves.items() if isinstance(leaf, spaces.Box)}
        self._bounds = {name: bounds for name, bounds in boxes.items() if bounds is not None}  # no warning given yet

    @property
    def num_values(self) -> int:
        """Count of numbers in one observation."""
        return sum(int(np.prod(leaf.shape or ())) for leaf in self._leaves.values())

    def read(self, sent: Mapping[str, Sent]) -> Rows:
        """Return the observations as arrays of the space's dtypes. Raises RefusedError that names what is expected."""
        self._check_names(sent)
        arrays = {name: _read_leaf(self._quoted(name), sent[name], leaf) for name, leaf in self._leaves.items()}
        counts = {name: _count(self._quoted(name), arrays[name], leaf) for name, leaf in self._leaves.items()}
        for name, (low, high) in list(self._bounds.items()):
            outside = (arrays[name] < low) | (arrays[name] > high)
            if outside.any():
                self._warn_outside(name, arrays[name], outside)
        count = next(iter(counts.values()))
        if len(set(counts.values())) > 1:
            sizes = {name: "one" if size is None else f"{size} in a batch" for name, size in counts.items()}
            listed = ", ".join(f"{self._quoted(name)}: {size}" for name, size in sizes.items())
            _refuse(f"the entries of the observation differ in batch size ({listed}), expected one for all")
        if count is None:
            arrays = {name: array[None] for name, array in arrays.items()}
        elif not 0 < count <= self.max_batch:
            _refuse(f"the batch has {count:,} observations, expected 1 to {self.max_batch:,}")
        if ACTION_MASK in arrays:
            _check_mask(arrays[ACTION_MASK])
        return Rows(_nested_as(self.space, arrays, ""), count or 1, count is not None)

    def _warn_outside(self, name: str, array: Array, outside: Array) -> None:
        space = self._leaves[name]
        if self._bounds.pop(name, None) is None or not isinstance(space, spaces.Box):  # another thread has warned
            return
        at = tuple(np.argwhere(outside)[0])
        low, high = (np.broadcast_to(bound, array.shape)[at] for bound in (space.low, space.high))
        logger.warning(
            "%s has %g at %s, expected numbers from %g to %g there, the bounds of the env's observation space: the "
            "policy may not have seen such numbers. Give observations as the env gives them. (Logged once.)",
            *(self._quoted(name), array[at], [int(i) for i in at], low, high),
        )

    def example(self) -> Json:
        """Return an example for JSON: zeros or the nearest allowed numbers, and a mask that allows all actions."""
        return _mapped(self.space, lambda space, key: example(space, key).tolist())

    def describe(self) -> Json:
        """Return shape, dtype and kind of each array of one observation, for JSON."""
        return _mapped(self.space, lambda space, key: describe_space(space))

    def _check_names(self, sent: Mapping[str, Sent]) -> None:
        if self._is_dict and set(sent) == {""}:
            _refuse(f"'{self._name}' is no dict, expected one with {quoted(self._leaves)}")
        if not self._is_dict and set(sent) != {""}:
            expected = _expected(self._leaves[""])
            _refuse(f"'{self._name}' is a dict with {quoted(sent)}, expected {expected}")
        missing = [name for name in self._leaves if name not in sent]
        unknown = [name for name in sent if name not in self._leaves]
        if missing or unknown:
            what = f"lacks {quoted(missing)}" if missing else f"has {quoted(unknown)}"
            _refuse(f"'{self._name}' {what}, expected {quoted(self._leaves)}")

    def _quoted(self, name: str) -> str:
        return f"'{self._name}/{name}'" if name else f"'{self._name}'"


def describe_space(space: Space) -> Json:
    """Return a space's shape, dtype and kind, for JSON, with the number of choices of a discrete one."""
    found: Json = {"space": type(space).__name__, "shape": list(space.shape or ()), "dtype": str(space.dtype)}
    if isinstance(space, spaces.Discrete):
        found |= {"n": int(space.n), "start": int(space.start)}
    elif isinstance(space, spaces.MultiDiscrete):
        found |= {"nvec": np.asarray(space.nvec).tolist(), "start": np.asarray(space.start).tolist()}
    return found


def read_is_first(sent: Sent, rows: Rows) -> Array:
    """Return which rows begin an episode, bool [R]. Raises RefusedError for anything but a flag for each."""
    array = _as_array("is_first", sent)
    if array.shape != ((rows.num,) if rows.is_batch else ()) or array.dtype.kind != "b":
        _refuse(
            f"'is_first' is {array.dtype} of shape {array.shape}, expected true or false for each observation, "
            f"{rows.num} in all"
        )
    return array.reshape(rows.num)


def by_flat_name(value: Sent, path: str = "", depth: int = 0) -> dict[str, Sent]:
    """Return the values of nested dicts by flat name, as "arm/angle"; a value that is no dict has the name ""."""
    if not isinstance(value, dict):
        return {path: value}
    if depth >= _MAX_DEPTH:
        raise RefusedError("schema", f"the body has too many dicts in dicts, expected at most {_MAX_DEPTH}")
    flat: dict[str, Sent] = {}
    for key, inner in value.items():
        flat.update(by_flat_name(inner, f"{path}/{key}" if depth else key, depth + 1))
    return flat


def quoted(names: Iterable[object]) -> str:
    """Return names for a message: the first few in quotes, and how many more there are."""
    return name_some((repr(str(name)[:40]) for name in names), _SHOWN) or "nothing"


def leaves_of(space: Space, path: str = "") -> dict[str, Space]:
    """Return the spaces in nested dicts by flat name, as "arm/angle"; a space that is no dict has the name ""."""
    if not isinstance(space, spaces.Dict):
        return {path: space}
    found: dict[str, Space] = {}
    for name, inner in space.spaces.items():
        found |= leaves_of(inner, f"{path}/{name}" if path else name)
    return found


def _nested_as(space: Space, arrays: Mapping[str, Array], path: str) -> RawBatch:
    if not isinstance(space, spaces.Dict):
        return arrays[path]
    return {key: _nested_as(inner, arrays, f"{path}/{key}" if path else key) for key, inner in space.spaces.items()}


def _box_bounds(space: spaces.Box) -> tuple[Array, Array] | None:
    """Return the bounds that numbers are compared with, a float32 rounding wider; None where all numbers are inside."""
    low, high = space.low, space.high
    if low.dtype.kind == "f":
        with np.errstate(over="ignore"):  # a bound beyond float32 is none
            low, high = (bound.astype(np.float32) for bound in (low, high))
        return None if np.isinf([low, high]).all() else (np.nextafter(low, -np.inf), np.nextafter(high, np.inf))
    least, most = _range(space)
    return None if (low == least).all() and (high == most).all() else (low, high)


def _mapped(space: Space, make: Callable[[Space, str], Json], key: str = "") -> Json:
    if isinstance(space, spaces.Dict):
        return {name: _mapped(inner, make, name) for name, inner in space.spaces.items()}
    return make(space, key)


def example(space: Space, key: str = "") -> RawBatch:
    """Return an observation of zeros or the nearest allowed numbers, with a mask that allows all actions."""
    if isinstance(space, spaces.Dict):
        return {name: example(inner, name) for name, inner in space.spaces.items()}
    if key == ACTION_MASK:
        return np.ones(space.shape or (), space.dtype)
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        return np.zeros(space.shape or (), space.dtype) + np.asarray(space.start, space.dtype)
    zeros = np.zeros(space.shape or (), space.dtype)
    if isinstance(space, spaces.Box):
        return np.clip(zeros, space.low, space.high).astype(space.dtype)
    return zeros


def _read_leaf(called: str, value: Sent, space: Space) -> Array:
    array = _as_array(called, value, space)
    dtype = np.dtype(space.dtype)
    if dtype.kind == "f":
        return _cast_float(called, array, dtype)
    allowed = "iub" if isinstance(space, spaces.MultiBinary) or dtype.kind == "b" else "iu"
    if array.dtype.kind not in allowed:
        _refuse(f"{called} has numbers of {array.dtype}, expected whole numbers, {_expected(space)}")
    low, high = _range(space)
    if ((array < low) | (array > high)).any():
        _refuse(f"{called} has numbers from {array.min()} to {array.max()}, expected {_expected(space)}")
    return array.astype(dtype)


def _as_array(called: str, value: Sent, space: Space | None = None) -> Array:
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError, RecursionError) as error:
        message = f"{called} is not an array: its lists differ in length; expected {_expected(space)}"
        raise RefusedError("schema", message) from error
    if array.dtype.kind not in "biuf":
        _refuse(f"{called} is no array of numbers, expected {_expected(space)}")
    return array


def _cast_float(called: str, array: Array, dtype: np.dtype[Any]) -> Array:
    if array.dtype.kind == "b":
        _refuse(f"{called} has true and false, expected numbers of {dtype}")
    with np.errstate(over="ignore"):  # what becomes an infinity is refused below
        cast = array.astype(dtype)
    if not np.isfinite(cast).all():
        places = [[int(i) for i in place] for place in np.argwhere(~np.isfinite(cast))[:_SHOWN]]
        _refuse(f"{called} has a NaN or an infinity at {', '.join(map(str, places))}, expected finite numbers")
    return cast


def _range(space: Space) -> tuple[Any, Any]:
    """Return the least and the largest whole number that a space allows, or arrays of them."""
    if isinstance(space, spaces.Discrete):
        return int(space.start), int(space.start + space.n - 1)
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    if isinstance(space, spaces.MultiBinary) or np.dtype(space.dtype).kind == "b":
        return 0, 1
    limits = np.iinfo(np.dtype(space.dtype))
    return int(limits.min), int(limits.max)


def _count(called: str, array: Array, space: Space) -> int | None:
    """Return how many observations an array has, None for one without a batch axis."""
    shape = tuple(space.shape or ())
    if array.shape == shape:
        return None
    if array.ndim == len(shape) + 1 and array.shape[1:] == shape:
        return len(array)
    _refuse(f"{called} has shape {array.shape}, expected {_expected(space)}")


def _check_mask(mask: Array) -> None:
    legal = (mask != 0).reshape(len(mask), -1).any(axis=1)
    if not legal.all():
        rows = ", ".join(map(str, np.flatnonzero(~legal)[:_SHOWN]))
        _refuse(f"'obs/{ACTION_MASK}' allows no action at all in row {rows}, expected at least one 1")


def _expected(space: Space | None) -> str:
    if space is None:
        return "numbers, in lists as deep as its axes"
    shape = tuple(space.shape or ())
    batch = f"(R, {', '.join(map(str, shape))})" if shape else "(R,)"
    kind = str(np.dtype(space.dtype))
    if isinstance(space, spaces.Discrete):
        kind = f"a whole number from {int(space.start)} to {int(space.start + space.n - 1)}"
    elif isinstance(space, spaces.MultiDiscrete):
        kind = f"whole numbers below {np.asarray(space.start + space.nvec).tolist()}"
    elif isinstance(space, spaces.MultiBinary):
        kind = "0 or 1"
    return f"shape {shape} for one observation or {batch} for a batch, {kind}"


def _refuse(message: str) -> NoReturn:
    raise RefusedError("schema", message)
