"""Show envs whose actions are a discrete choice with parameters as envs whose actions are rows of numbers.

Managers, rollouts, buffers and transports then see one float32 column; policies and random actors know what is in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from ding_like.data.hybrid_space import HybridSpace
from ding_like.envs.di_engine_style import as_gymnasium
from ding_like.envs.spaces import AnyEnv
from ding_like.types import Array, EnvAction, EnvLike

Space = spaces.Space[Any]


class _Form(NamedTuple):
    """How an env takes its hybrid actions."""

    discrete: spaces.Discrete
    boxes: list[spaces.Box]
    are_own: bool  # box i holds the parameters of choice i alone
    pack: Callable[[int, list[Array]], Any]  # (choice, the boxes' arrays) -> the env's action


class HybridRows(gymnasium.ActionWrapper[Any, Any, Any]):
    """Wrapper that takes rows of a `HybridSpace` and passes the env's own action on, with parameters within bounds.

    Taken are the action spaces

    - `Tuple(Discrete(K), Box, ...)` and `Tuple(Discrete(K), Tuple(Box, ...))`: box i holds the parameters of choice i;
      choices without a box have none. A single box for several choices belongs to all of them;
    - `Dict` of one Discrete and one Box, such as `Dict(action_type=Discrete(K), action_args=Box)`: the parameters
      belong to all choices; with a Tuple of boxes in place of the Box as above.

    An env may declare which parameters belong to which choice in an attribute `parameter_mask` [K, P].
    """

    def __init__(self, env: AnyEnv) -> None:
        super().__init__(env)
        form = _form_of(env.action_space)
        assert form is not None, "hybrid_rows asks before it wraps"
        self._form = form
        self._ends = np.cumsum([0] + [_size(box) for box in form.boxes]).tolist()
        self._start = int(form.discrete.start)
        mask = getattr(env.unwrapped, "parameter_mask", None)
        self._space = self.action_space = HybridSpace(
            int(form.discrete.n),
            *(np.concatenate([_flat(box, side) for box in form.boxes]) for side in ("low", "high")),
            parameter_mask=self._own_mask() if mask is None else mask,
        )

    def _own_mask(self) -> Array | None:
        if not self._form.are_own:
            return None
        mask = np.zeros((int(self._form.discrete.n), self._ends[-1]), bool)
        for choice, (start, end) in enumerate(zip(self._ends, self._ends[1:], strict=False)):
            mask[choice, start:end] = True
        return mask

    def action(self, action: Array) -> EnvAction:
        """Return the env's own action for a row [1 + P]. Raises SchemaError if the row begins with no choice."""
        choice = self._space.choice_of(action)
        parts = []
        for box, start, end in zip(self._form.boxes, self._ends, self._ends[1:], strict=False):
            part = action[1 + start : 1 + end].astype(box.dtype).reshape(box.shape)
            # In the box's own numbers: a bound in float32 may lie beyond one in float64.
            parts.append(np.clip(part, box.low, box.high))
        return self._form.pack(choice + self._start, parts)


def as_lane_env(env: EnvLike) -> AnyEnv:
    """Return an env as managers step it: gymnasium's, whatever its style, whose actions are rows; see `hybrid_rows`."""
    made: AnyEnv = hybrid_rows(as_gymnasium(env))
    return made


def hybrid_rows(env: EnvLike) -> EnvLike:
    """Return an env whose hybrid actions, if it has such, are rows of a `HybridSpace`; others as they are (any env)."""
    space = getattr(env, "action_space", None)
    is_hybrid = isinstance(env, gymnasium.Env) and isinstance(space, (spaces.Tuple, spaces.Dict))
    return HybridRows(env) if is_hybrid and _form_of(space) is not None else env


def _form_of(space: Space | None) -> _Form | None:
    """Return how a space holds a choice and its parameters, None if it is not of a kind that `HybridRows` takes."""
    if isinstance(space, spaces.Tuple) and len(space.spaces) >= 2 and isinstance(space.spaces[0], spaces.Discrete):
        discrete, *rest = space.spaces
        if len(rest) == 1 and isinstance(rest[0], spaces.Tuple):
            return _form(discrete, rest[0].spaces, lambda choice, parts: (choice, tuple(parts)))
        return _form(discrete, rest, lambda choice, parts: (choice, *parts))
    if isinstance(space, spaces.Dict) and len(space.spaces) == 2:
        # Sorted, so that the Discrete is first.
        names = sorted(space.spaces, key=lambda name: not isinstance(space.spaces[name], spaces.Discrete))
        discrete, args = (space.spaces[name] for name in names)
        type_key, args_key = names
        if isinstance(args, spaces.Tuple):
            return _form(discrete, args.spaces, lambda choice, parts: {type_key: choice, args_key: tuple(parts)})
        return _form(discrete, [args], lambda choice, parts: {type_key: choice, args_key: parts[0]})
    return None


def _form(discrete: Space, boxes: Any, pack: Callable[[int, list[Array]], Any]) -> _Form | None:
    """Return the form of these spaces, None if they are not a Discrete and as many boxes of floats as may be."""
    parts = list(boxes)
    are_boxes = all(isinstance(box, spaces.Box) and np.issubdtype(box.dtype, np.floating) for box in parts)
    if not isinstance(discrete, spaces.Discrete) or not are_boxes or not sum(map(_size, parts)):
        return None
    are_own = len(parts) > 1 or discrete.n == 1
    return None if are_own and len(parts) > discrete.n else _Form(discrete, parts, are_own, pack)


def _size(box: spaces.Box) -> int:
    return int(np.prod(box.shape))


def _flat(box: spaces.Box, side: str) -> Array:
    with np.errstate(over="ignore"):  # a float64 bound beyond float32 means "no bound"
        bounds: Array = getattr(box, side).astype(np.float32).ravel()
    return bounds
