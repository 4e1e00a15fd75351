"""Describe Python values by entries that a checkpoint holds, and bring values to what entries say.

An entry is {"kind": ..., "state": ...} of plain values, tensors and arrays. What it is of may be anything: hence Any.
"""

from __future__ import annotations

import copy
import enum
import functools
import logging
import pathlib
import random
import sys
import types
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, NamedTuple

import numpy as np
import torch

from ding_like.config.frozen import FrozenConfig, FrozenList
from ding_like.errors import CheckpointError
from ding_like.model.flat_params import FlatParams
from ding_like.utils.checkpoint import check_model_state, encode_state
from ding_like.utils.seeding import rng_state, set_rng_state
from ding_like.utils.user_code import told

Entry = dict[str, Any]

_PLAIN = (type(None), bool, int, float, str, bytes)
# What has nothing that training changes.
_CODE = (
    types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, functools.partial, type,
    np.ufunc, np.dtype, torch.dtype, torch.device, torch.Size, enum.Enum, pathlib.PurePath, logging.Logger,
    logging.LoggerAdapter, property, range, slice, FlatParams, FrozenConfig, FrozenList,
)  # fmt: skip
_SPACES = "gymnasium.spaces"
# Whose objects are not looked into.
_CLOSED = frozenset(("torch", "numpy", "gymnasium", *sys.stdlib_module_names)) - {"__main__"}
_DEEPEST = 8
_SMALL = 1 << 20  # bytes
_LEFT: Entry = {"kind": "left", "state": None}  # a value that stays what it is
_CONTAINERS = frozenset(("dict", "list", "tuple", "deque", "set"))


class Described(NamedTuple):
    """Hold the entry of a value."""

    entry: Entry
    needs_object: bool  # to load it, there is to be an object of its kind
    is_small: bool  # plain values, and few bytes of tensors and arrays, but no modules


class Describer:
    """Describe values that belong together: each object once; `faults` are (place, why) of what cannot be saved.

    With `copies` the entries stay as they are when the values change. `owner` is the object they are attributes of.
    """

    def __init__(self, *, copies: bool, owner: object) -> None:
        self.faults: list[tuple[str, str]] = []
        self._copies = copies
        self._seen: set[int] = {id(owner)}
        self._storages: set[int] = set()  # of tensors that are saved otherwise
        self._num_bytes = 0
        self._needs_object = self._has_state_dict = False

    def leave_out(self, module: torch.nn.Module) -> None:
        """Leave out a module, its parts and all that are views of its tensors."""
        self._seen.update(id(each) for each in module.modules())
        for tensor in (*module.parameters(), *module.buffers()):
            self._seen.add(id(tensor))
            self._storages.add(tensor.untyped_storage().data_ptr())

    def describe(self, value: Any, place: str) -> Described | None:
        """Return what is saved of a value; None where there is nothing to save."""
        self._num_bytes, self._needs_object, self._has_state_dict = 0, False, False
        entry = self._entry(value, place, depth=0)
        if entry is _LEFT:
            return None
        return Described(entry, self._needs_object, self._num_bytes <= _SMALL and not self._has_state_dict)

    def _entry(self, value: Any, place: str, *, depth: int) -> Entry:
        if _is_plain(value):
            return {"kind": "value", "state": copy.deepcopy(value)}
        if isinstance(value, np.generic):
            return {"kind": "value", "state": value}
        if isinstance(value, _CODE) or type(value).__module__.startswith(_SPACES) or id(value) in self._seen:
            return _LEFT
        if depth > _DEEPEST:
            return self._fault(place, f"more than {_DEEPEST} levels deep")
        self._seen.add(id(value))
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, np.ndarray):
            return self._array(value, place)
        if isinstance(value, (Mapping, list, tuple, deque, set, frozenset)):
            return self._container(value, place, depth=depth)
        return self._object(value, place, depth=depth)

    def _tensor(self, value: torch.Tensor) -> Entry:
        if value.untyped_storage().data_ptr() in self._storages:
            return _LEFT
        self._num_bytes += value.numel() * value.element_size()
        state = value.detach()
        return {
            "kind": "tensor",
            "state": state.clone() if self._copies else state,
            "requires_grad": value.requires_grad and value.is_leaf,
            "device": str(value.device),
        }

    def _array(self, value: np.ndarray[Any, Any], place: str) -> Entry:
        if value.dtype.hasobject or value.dtype.names is not None:
            return self._fault(place, f"an array of dtype {value.dtype}")
        self._num_bytes += value.nbytes
        return {"kind": "array", "state": value.copy() if self._copies else value}

    def _container(self, value: Any, place: str, *, depth: int) -> Entry:
        if isinstance(value, (set, frozenset)):
            if not _is_plain(list(value)):
                return self._fault(place, "a set of objects")
            return {"kind": "set", "state": sorted(value, key=repr)}
        if isinstance(value, Mapping):
            if not _is_plain(list(value)):
                return self._fault(place, "a dict whose keys are objects")
            items = [
                [key, self._entry(each, f"{place}[{key!r}]", depth=depth + 1)] for key, each in list(value.items())
            ]
            return {"kind": "dict", "state": items}
        entries = [self._entry(each, f"{place}[{i}]", depth=depth + 1) for i, each in enumerate(value)]
        if isinstance(value, deque):
            return {"kind": "deque", "state": entries, "maxlen": value.maxlen}
        return {"kind": "tuple" if isinstance(value, tuple) else "list", "state": entries}

    def _object(self, value: Any, place: str, *, depth: int) -> Entry:
        for cls, kind, read in _GENERATORS:
            if isinstance(value, cls):
                self._needs_object = True
                return {"kind": kind, "state": read(value)}
        if callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None)):
            return self._state_dict(value, place)
        is_closed = type(value).__module__.partition(".")[0] in _CLOSED
        if is_closed or not hasattr(value, "__dict__"):
            return self._fault(place, f"a {type(value).__name__}")
        self._needs_object = True
        items = vars(value).items()
        found = [(name, self._entry(each, f"{place}.{name}", depth=depth + 1)) for name, each in list(items)]
        return {"kind": "object", "state": [[name, entry] for name, entry in found if entry is not _LEFT]}

    def _state_dict(self, value: Any, place: str) -> Entry:
        if isinstance(value, torch.nn.Module):
            tensors = [*value.parameters(), *value.buffers()]
            if tensors and all(id(tensor) in self._seen for tensor in tensors):  # a part of what is saved
                return _LEFT
            self.leave_out(value)
        try:
            state = value.state_dict()
        except Exception as error:  # state_dict() of the user's class may raise anything
            return self._fault(place, f"a {type(value).__name__}, whose state_dict() raises {told(error)}")
        try:
            encode_state(state)  # refuses what a checkpoint cannot hold
        except CheckpointError as error:
            return self._fault(place, f"a {type(value).__name__}, whose state cannot be saved: {error}")
        self._needs_object = self._has_state_dict = True
        return {"kind": "state_dict", "state": state}

    def _fault(self, place: str, why: str) -> Entry:
        self.faults.append((place, why))
        return _LEFT


def _is_plain(value: Any, depth: int = 0) -> bool:
    """Tell whether a value is made of Python's own numbers, texts, lists, tuples and dicts."""
    if type(value) in _PLAIN:
        return True
    if depth > _DEEPEST:
        return False
    if type(value) in (list, tuple):
        return all(_is_plain(each, depth + 1) for each in value)
    if type(value) is dict:
        return all(type(key) in _PLAIN[:-1] and _is_plain(each, depth + 1) for key, each in value.items())
    return False


_GENERATORS: tuple[tuple[type, str, Callable[[Any], Any]], ...] = (
    (torch.Generator, "torch_generator", lambda each: each.get_state()),
    (np.random.Generator, "numpy_generator", rng_state),
    (np.random.RandomState, "numpy_random_state", lambda each: each.get_state(legacy=False)),
    (random.Random, "random", lambda each: each.getstate()),
)
_SET_STATE: dict[str, Callable[[Any, Any], Any]] = {
    "torch_generator": lambda each, state: each.set_state(state),
    "numpy_generator": set_rng_state,
    "numpy_random_state": lambda each, state: each.set_state(state),
    "random": lambda each, state: each.setstate(state),
    "state_dict": lambda each, state: each.load_state_dict(state),
}


def same(one: Any, other: Any) -> bool:
    """Tell whether two entries, or their parts, are equal to the last bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        if one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
            return False
        return bool(torch.equal(one, other))
    if isinstance(one, np.ndarray):
        return bool(one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes())
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(same(*pair) for pair in zip(one, other, strict=True))
    return bool(one == other or (one != one and other != other))


def restore(entry: Entry, now: Any, *, where: str) -> Any:
    """Return `now` brought to what an entry says: in place where it can be, else a new value.

    Raises CheckpointError where there is no object to bring to that state.
    """
    kind, state = entry["kind"], entry["state"]
    if kind == "left":
        return now
    if kind == "value":
        return _restore_plain(state, now)
    if kind == "tensor":
        return _restore_tensor(entry, now)
    if kind == "array":
        return _restore_array(state, now)
    if kind in _CONTAINERS:
        return _restore_container(entry, now, where=where)
    if now is None:
        raise CheckpointError(
            f"the checkpoint holds the state of {where}, but the policy has none: make it in _init_learn, so that it "
            "is there when the run is resumed."
        )
    if kind == "object":
        for name, inner in state:
            before = vars(now).get(name)
            after = restore(inner, before, where=f"{where}.{name}")
            if after is not before or name not in vars(now):
                vars(now)[name] = after
        return now
    if isinstance(now, torch.nn.Module):
        check_model_state(now.state_dict(), state, path=f"{where} of the checkpoint")
    try:
        _SET_STATE[kind](now, state)
    except (ValueError, KeyError, TypeError, RuntimeError, AttributeError) as error:
        raise CheckpointError(
            f"{where} is a {type(now).__name__}, which the saved state ({kind}) does not fit: {error}"
        ) from error
    return now


def _restore_plain(state: Any, now: Any) -> Any:
    fresh = copy.deepcopy(state)
    if type(now) is list and type(fresh) is list:
        now[:] = fresh
        return now
    if type(now) is dict and type(fresh) is dict:
        now.clear()
        now.update(fresh)
        return now
    return fresh


def _restore_tensor(entry: Entry, now: Any) -> torch.Tensor:
    state: torch.Tensor = entry["state"]
    if isinstance(now, torch.Tensor):
        is_apart = all(stride or size < 2 for stride, size in zip(now.stride(), now.shape, strict=True))
        if now.shape == state.shape and now.dtype == state.dtype and is_apart:
            with torch.no_grad():
                now.copy_(state)
            return now
        device = now.device
    else:
        device = torch.device(entry["device"] if torch.cuda.is_available() else "cpu")
    fresh = state.detach().clone().to(device)
    if isinstance(now, torch.nn.Parameter):
        return torch.nn.Parameter(fresh, requires_grad=entry["requires_grad"])
    return fresh.requires_grad_(entry["requires_grad"])


def _restore_array(state: Any, now: Any) -> Any:
    if isinstance(now, np.ndarray) and now.shape == state.shape and now.dtype == state.dtype and now.flags.writeable:
        now[...] = state
        return now
    return np.array(state)


def _restore_container(entry: Entry, now: Any, *, where: str) -> Any:
    kind, state = entry["kind"], entry["state"]
    if kind == "set":
        return type(now)(state) if isinstance(now, (set, frozenset)) else set(state)
    if kind == "dict":
        before = now if isinstance(now, Mapping) else {}
        kept = [(key, each) for key, each in state if each["kind"] != "left" or key in before]
        items = {key: restore(each, before.get(key), where=f"{where}[{key!r}]") for key, each in kept}
        if not isinstance(now, MutableMapping):
            return items
        for key in list(now):
            del now[key]
        for key, each in items.items():
            now[key] = each
        return now
    members = list(now) if isinstance(now, (list, tuple, deque)) else []
    members += [None] * (len(state) - len(members))
    fresh = [restore(each, members[i], where=f"{where}[{i}]") for i, each in enumerate(state)]
    if kind == "deque" and isinstance(now, deque) and now.maxlen == entry["maxlen"]:
        now.clear()
        now.extend(fresh)
        return now
    if kind == "deque":
        return deque(fresh, maxlen=entry["maxlen"])
    if kind == "list" and isinstance(now, list):
        now[:] = fresh
        return now
    if kind == "tuple":
        return type(now)(*fresh) if hasattr(now, "_fields") else tuple(fresh)
    return fresh
