"""Compare values with what their space declares, and with each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from ding_like.envs.spaces import Space


class Mismatch(NamedTuple):
    """Tell how a value differs from what its space declares, and how to fix it."""

    seen: str
    expected: str
    fix: str


def obs_mismatches(space: Space, obs: Any, name: str = "obs") -> Iterator[Mismatch]:
    """Yield what keeps an observation out of its space; `name` says which part of it is meant."""
    if isinstance(space, spaces.Dict):
        yield from _dict_mismatches(space, obs, name)
    elif isinstance(space, spaces.Box):
        yield from _box_mismatches(space, obs, name)
    elif isinstance(space, spaces.Discrete):
        if not isinstance(obs, (int, np.integer)) or isinstance(obs, bool):
            yield Mismatch(f"{name} is {describe(obs)}", "an int", f"return int({name})")
        elif not space.contains(obs):
            yield Mismatch(
                f"{name} is {obs}, outside {space}",
                f"an int from {space.start} to {space.start + space.n - 1}",
                "declare a larger Discrete(n), or one with another start",
            )
    elif not space.contains(obs):
        yield Mismatch(
            f"{name} is {describe(obs)}, which is not in {space}",
            "what observation_space.sample() gives",
            f"return {name} in that form",
        )


def _dict_mismatches(space: spaces.Dict, obs: Any, name: str) -> Iterator[Mismatch]:
    if not isinstance(obs, dict):
        yield Mismatch(f"{name} is {describe(obs)}", f"a dict with {list(space.spaces)}", f"return dict(...) as {name}")
        return
    missing, extra = [k for k in space.spaces if k not in obs], [k for k in obs if k not in space.spaces]
    if missing or extra:
        yield Mismatch(
            f"{name} has the keys {list(obs)}", f"those of its space: {list(space.spaces)}", "give both the same keys"
        )
    for key, inner in space.spaces.items():
        if key in obs:
            yield from obs_mismatches(inner, obs[key], f"{name}[{key!r}]")


def _box_mismatches(space: spaces.Box, given: Any, name: str) -> Iterator[Mismatch]:
    dtype = np.dtype(space.dtype)
    as_array = f"return np.array({name}, dtype=np.{dtype.name})"
    if not isinstance(given, (np.ndarray, np.generic)):
        yield Mismatch(f"{name} is {describe(given)}", f"a numpy array {dtype.name} {space.shape}", as_array)
        return
    obs = np.asarray(given)
    if obs.shape != space.shape:
        yield Mismatch(
            f"{name} has shape {obs.shape}",
            f"{space.shape}, the shape of its space",
            f"return another shape, or declare Box(..., shape={obs.shape})",
        )
        return
    if obs.dtype != dtype:
        yield Mismatch(f"{name} has dtype {obs.dtype}", f"{dtype.name}, the dtype of its space", as_array)
    if obs.dtype.kind not in "fiub":
        return
    if not np.isfinite(obs).all():
        at = _first(~np.isfinite(obs))
        yield Mismatch(
            f"{name}{_index(at)} is {obs[at]}",
            "finite numbers: a run drops episodes with others",
            "look for a division by 0 or a state that blows up, and end the episode before",
        )
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    outside = np.isfinite(obs) & ((obs < low) | (obs > high))
    if outside.any():
        at = _first(outside)
        yield Mismatch(
            f"{name}{_index(at)} is {obs[at]:g}",
            f"a number from {low[at]:g} to {high[at]:g}, the bounds of its space",
            f"widen the Box, or clip: {name} = np.clip({name}, space.low, space.high)",
        )


def _first(mask: Any) -> tuple[int, ...]:
    """Return the index of the first true value."""
    return tuple(int(index) for index in np.argwhere(mask)[0])


def _index(at: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, at))}]" if at else ""


def describe(value: Any) -> str:
    """Name a value's type, and the value itself if it is short."""
    if isinstance(value, np.ndarray):
        return f"an array {value.dtype} {value.shape}"
    return f"{type(value).__name__} {value!r}"[:80]


def equal(first: Any, second: Any) -> bool:
    """Tell whether two answers of an env are the same, a NaN being equal to another."""
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(equal(first[key], second[key]) for key in first)
    if isinstance(first, (tuple, list)) and isinstance(second, (tuple, list)):
        return len(first) == len(second) and all(map(equal, first, second))
    mine, theirs = np.asarray(first), np.asarray(second)
    return mine.shape == theirs.shape and bool(np.all((mine == theirs) | ((mine != mine) & (theirs != theirs))))
