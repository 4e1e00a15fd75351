"""Lay observations into columns and back: an array is column 'obs', a dict is columns 'obs/<key>'."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ding_like.types import Array, Obs


def obs_to_columns(prefix: str, obs: Obs) -> dict[str, Array]:
    """Return `{prefix: obs}` or `{prefix/key: array}`."""
    if isinstance(obs, dict):
        return {f"{prefix}/{key}": value for key, value in obs.items()}
    return {prefix: obs}


def columns_to_obs(prefix: str, columns: Mapping[str, Any]) -> Any:
    """Return what `obs_to_columns` was given; works on arrays and on tensors (hence Any)."""
    if prefix in columns:
        return columns[prefix]
    start = f"{prefix}/"
    return {name[len(start) :]: column for name, column in columns.items() if name.startswith(start)}


def nest(row: Mapping[str, object]) -> dict[str, Any]:
    """Return what flat keys stand for: `{"obs/arm/angle": x}` is `{"obs": {"arm": {"angle": x}}}`.

    A name that would lie inside another one, which has a value of its own, stays as it is.
    """
    nested: dict[str, Any] = {}
    names = set(row)
    for name, value in row.items():
        *path, last = name.split("/")
        inner = nested
        if any("/".join(path[:depth]) in names for depth in range(1, len(path) + 1)):
            path, last = [], name
        for key in path:
            inner = inner.setdefault(key, {})
        inner[last] = value
    return nested


def map_obs(fn: Callable[[Any], Any], obs: Any) -> Any:
    """Return what `fn` makes of each array or tensor of an observation: of it alone, or of each in a dict."""
    return {key: map_obs(fn, value) for key, value in obs.items()} if isinstance(obs, dict) else fn(obs)


# The entry of a dict observation with the mask of legal discrete actions.
ACTION_MASK = "action_mask"


def split_mask(obs: Any) -> tuple[Any, Any]:
    """Return (observation, action mask or None) of arrays or tensors; one entry beside the mask stands for itself."""
    if not isinstance(obs, dict) or ACTION_MASK not in obs:
        return obs, None
    rest = {key: value for key, value in obs.items() if key != ACTION_MASK}
    return (next(iter(rest.values())) if len(rest) == 1 else rest), obs[ACTION_MASK]


def take_lanes(obs: Obs, lanes: Array) -> Obs:
    """Return fresh rows [R, ...] of `lanes`."""
    if isinstance(obs, dict):
        return {key: value.take(lanes, axis=0) for key, value in obs.items()}
    return obs.take(lanes, axis=0)


def copy_obs(obs: Obs) -> Obs:
    """Return memory of its own."""
    if isinstance(obs, dict):
        return {key: value.copy() for key, value in obs.items()}
    return obs.copy()


def write_obs(target: Obs, source: Obs, lanes: Array | None = None) -> None:
    """Copy `source` into `target`, whole or into the rows of `lanes`."""
    if isinstance(target, dict):
        assert isinstance(source, dict), "a dict observation is written into a dict"
        for key, value in target.items():
            write_obs(value, source[key], lanes)
        return
    assert not isinstance(source, dict), "an array observation is written into an array"
    if lanes is None:
        np.copyto(target, source)
    else:
        target[lanes] = source
