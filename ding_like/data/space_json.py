"""Gymnasium spaces as JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from gymnasium import spaces

from ding_like.data.hybrid_space import HybridSpace
from ding_like.errors import CheckpointError
from ding_like.types import Array

# A gymnasium space is generic in what it samples, which differs from env to env: hence Space[Any] throughout.
Space = spaces.Space[Any]
Json = dict[str, Any]


class OtherSpace(spaces.Space[Any]):
    """Placeholder for a space that no policy takes, such as a Text; `text` is its repr."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def sample(self, mask: object = None, probability: object = None) -> NoReturn:
        raise NotImplementedError(f"of {self.text} no more is known than its name")

    def contains(self, x: object) -> bool:
        return True

    def __repr__(self) -> str:
        return self.text


def space_to_json(space: Space) -> Json:
    """Return a space as a plain dict for JSON; what is no Box, Discrete or a combination of these is a text."""
    if isinstance(space, HybridSpace):
        bounds = {"low": space.parameter_low.tolist(), "high": space.parameter_high.tolist()}
        return {"space": "Hybrid", "n": space.num_choices, **bounds, "mask": space.parameter_mask.tolist()}
    if isinstance(space, spaces.Box):
        data = {"space": "Box", "shape": list(space.shape), "dtype": str(space.dtype)}
        return {**data, "low": _numbers(space.low), "high": _numbers(space.high)}
    if isinstance(space, spaces.Discrete):
        return {"space": "Discrete", "n": int(space.n), "start": int(space.start), "dtype": str(space.dtype)}
    if isinstance(space, spaces.MultiDiscrete):
        data = {"space": "MultiDiscrete", "nvec": np.asarray(space.nvec).tolist()}
        return {**data, "start": np.asarray(space.start).tolist(), "dtype": str(space.dtype)}
    if isinstance(space, spaces.MultiBinary):
        return {"space": "MultiBinary", "shape": list(space.shape)}
    if isinstance(space, spaces.Dict):
        return {"space": "Dict", "spaces": [[key, space_to_json(inner)] for key, inner in space.spaces.items()]}
    if isinstance(space, spaces.Tuple):
        return {"space": "Tuple", "spaces": [space_to_json(inner) for inner in space.spaces]}
    return {"space": "other", "text": str(space)}


def space_from_json(data: Json) -> Space:
    """Return what `space_to_json` was given. Raises CheckpointError for another kind of dict."""
    read = _READ.get(data.get("space", ""))
    if read is None:
        raise CheckpointError(f"a space is {data!r}, expected a dict whose 'space' is one of {', '.join(_READ)}.")
    return read(data)


def _box(data: Json) -> Space:
    dtype, shape = np.dtype(data["dtype"]), tuple(data["shape"])
    low, high = (np.broadcast_to(np.array(data[side], dtype), shape).copy() for side in ("low", "high"))
    return spaces.Box(low, high, dtype=dtype.type)


def _discrete(data: Json) -> Space:
    dtype = np.dtype(data["dtype"])
    if dtype == np.int64:  # before gymnasium 1.3 all were, and there was no such argument
        return spaces.Discrete(data["n"], start=data["start"])
    return spaces.Discrete(data["n"], start=data["start"], dtype=dtype.type)


_READ: dict[str, Callable[[Json], Space]] = {
    "Hybrid": lambda data: HybridSpace(data["n"], data["low"], data["high"], parameter_mask=data["mask"]),
    "Box": _box,
    "Discrete": _discrete,
    "MultiDiscrete": lambda data: spaces.MultiDiscrete(
        np.array(data["nvec"]), start=np.array(data["start"]), dtype=np.dtype(data["dtype"]).type
    ),
    "MultiBinary": lambda data: spaces.MultiBinary(data["shape"][0] if len(data["shape"]) == 1 else data["shape"]),
    "Dict": lambda data: spaces.Dict([(key, space_from_json(inner)) for key, inner in data["spaces"]]),
    "Tuple": lambda data: spaces.Tuple([space_from_json(inner) for inner in data["spaces"]]),
    "other": lambda data: OtherSpace(data["text"]),
}


def _numbers(bound: Array) -> Any:
    """Return bounds as one number where all are equal, as those of pictures are, else as lists."""
    first = bound.reshape(-1)[:1]
    return first.tolist()[0] if first.size and (bound == first).all() else bound.tolist()
