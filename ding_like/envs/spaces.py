"""Lay a gymnasium space out in arrays: which dtype and shape one lane's row has, and how it gets there.

A choice with parameters becomes a row of numbers: managers, rollouts, buffers and transports then see one float32
column; policies and random actors know what is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from ding_like.data.spaces import HybridSpace
from ding_like.errors import EnvError, SchemaError
from ding_like.types import Array, EnvAction, EnvLike, EnvObs, Obs

# Gymnasium's spaces and envs are generic in what they hold, which differs from env to env.
Space = spaces.Space[Any]
AnyEnv = gymnasium.Env[Any, Any]

_ROW_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class Leaf(NamedTuple):
    """One array of an observation."""

    path: tuple[str, ...]  # keys from the outer dict to this value; empty where the observation is one array
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: Any  # where a Discrete space's numbers begin, or an array [K] of a MultiDiscrete space; None at 0

    def of(self, obs: EnvObs) -> EnvObs:
        """Return this leaf's value in an env's observation (of any nesting, hence Any)."""
        for key in self.path:
            obs = obs[key]
        return obs if self.start is None else obs - self.start


class ObsLayout:
    """Arrays that an observation space needs: one, or one per leaf of a dict space.

    Floats become float32, integers stay; those of Discrete and MultiDiscrete spaces count from 0. A nested dict becomes
    flat keys: `{"arm": {"angle": ...}}` is "arm/angle".
    `space` is what the arrays hold. Raises EnvError for a space that does not fit in arrays of fixed shape.
    """

    def __init__(self, space: Space) -> None:
        found = list(_leaves(space, ()))
        if not found:
            raise EnvError(f"observation space {space} has no entries; an observation needs at least one array.")
        self.is_dict = isinstance(space, spaces.Dict)
        self._leaves = {"/".join(leaf.path): leaf for leaf, _ in found}
        if len(self._leaves) < len(found):
            raise EnvError(f"observation space {space} has two entries with the same flat key; rename one.")
        flat = {"/".join(leaf.path): _as_held(inner) for leaf, inner in found}
        self.space: Space = spaces.Dict(flat) if self.is_dict else flat[""]
        self._float_keys = [key for key, leaf in self._leaves.items() if leaf.dtype.kind == "f"]

    def allocate(self, rows: int) -> Obs:
        """Return zeroed memory for `rows` observations, [rows, O...]."""
        arrays = {key: np.zeros((rows, *leaf.shape), leaf.dtype) for key, leaf in self._leaves.items()}
        return arrays if self.is_dict else arrays[""]

    def writer(self, arrays: Obs) -> Callable[[int, EnvObs], None]:
        """Return a function `(row, obs)` that casts an env's observation into a row of `arrays`."""
        if not isinstance(arrays, dict) and self._leaves[""].start is None:
            write: Callable[[int, Any], None] = arrays.__setitem__
            return write
        by_key = arrays if isinstance(arrays, dict) else {"": arrays}
        pairs = [(by_key[key], leaf) for key, leaf in self._leaves.items()]

        def write_leaves(row: int, obs: EnvObs) -> None:
            for array, leaf in pairs:
                array[row] = leaf.of(obs)

        return write_leaves

    def from_batch(self, obs: EnvObs, *, copy: bool = True) -> Obs:
        """Return a vector env's observations [E, O...] in our dtypes and flat keys, by default as memory of our own."""
        take = np.array if copy else np.asarray
        arrays = {key: take(leaf.of(obs), dtype=leaf.dtype) for key, leaf in self._leaves.items()}
        return arrays if self.is_dict else arrays[""]

    def fault(self, obs: EnvObs) -> str | None:
        """Return where an env's observation breaks its own space, in shape or keys; None where it fits."""
        for key, leaf in self._leaves.items():
            at = f" at '{key}'" if key else ""
            try:
                shape = np.shape(leaf.of(obs))
            except (KeyError, IndexError, TypeError):
                return f"has no entry '{key}', which its observation space names"
            except ValueError:
                return f"has lists of different lengths{at}, its observation space says shape {leaf.shape}"
            if shape != leaf.shape:
                return f"has shape {shape}{at}, its observation space says {leaf.shape}"
        return None

    def explained(self, error: Exception, obs: EnvObs) -> Exception:
        """Return the SchemaError behind an error of a step that gave `obs` (None: it gave none), or `error` itself."""
        fault = None if obs is None else self.fault(obs)
        return SchemaError(f"the observation of step() {fault}") if fault else error

    def cut_values(self, obs: EnvObs) -> str:
        """Return which floats of an observation are cut to the whole numbers of its space; "" where none are."""
        for key, leaf in self._leaves.items():
            dtype = np.asarray(leaf.of(obs)).dtype
            if dtype.kind == "f" and leaf.dtype.kind in "iub":
                at = f" at '{key}'" if key else ""
                return f"has dtype {dtype}{at}, its observation space says {leaf.dtype}: fractions are cut off"
        return ""

    def all_finite(self, obs: Obs) -> bool:
        """Return whether no observation holds a NaN or an infinity; integers are not looked at."""
        if isinstance(obs, dict):
            return all(_is_finite(obs[key]) for key in self._float_keys)
        return not self._float_keys or _is_finite(obs)

    def finite_rows(self, obs: Obs) -> Array:
        """Return bool[R]: which observations are finite throughout."""
        arrays = [obs[key] for key in self._float_keys] if isinstance(obs, dict) else [obs]
        rows = len(next(iter(obs.values())) if isinstance(obs, dict) else obs)
        finite = np.ones(rows, bool)
        for array in arrays:
            finite &= np.isfinite(array).all(axis=tuple(range(1, array.ndim)))
        return finite


def _is_finite(array: Array) -> bool:
    # count_nonzero takes a sixth of the time that .all() takes on a few dozen values.
    return int(np.count_nonzero(np.isfinite(array))) == array.size


def _leaves(space: Space, path: tuple[str, ...]) -> Iterator[tuple[Leaf, Space]]:
    if isinstance(space, spaces.Dict):
        for key, inner in space.spaces.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(space, _ROW_SPACES):
        yield Leaf(path, _shape(space), _held_dtype(space), _start(space)), space
    else:
        at = f" at '{'/'.join(path)}'" if path else ""
        raise EnvError(
            f"observation space {type(space).__name__}{at} does not fit in arrays of fixed shape; expected Box, "
            f"Discrete, MultiDiscrete, MultiBinary or Dict of these. {_way_out(space, is_entry=bool(path))}"
        )


def _is_flattenable(space: Any) -> bool:
    """Return whether gymnasium can make a space flat; a user's own space may not define it."""
    try:
        return bool(space.is_np_flattenable)
    except NotImplementedError:
        return False


def _way_out(space: Space, *, is_entry: bool) -> str:
    """Return which wrapper makes arrays of a space that has none; `is_entry`: it is one of a Dict."""
    if isinstance(space, spaces.Text):
        way = "Show text as numbers: env.wrappers=[dict(type='encode_text')]"
    elif _is_flattenable(space):
        way = "Flatten it: env.wrappers=[dict(type='FlattenObservation')]"
    else:  # Graph, Sequence and what holds them
        way = "Its length changes: show as much as fits in a Box by a gymnasium.ObservationWrapper of your own"
    leave = ", or name the entries to keep: [dict(type='FilterObservation', filter_keys=[...])]" if is_entry else ""
    return f"{way}{leave}."


def _shape(space: Space) -> tuple[int, ...]:
    return tuple(space.shape or ())


def _held_dtype(space: Space) -> np.dtype[Any]:
    dtype = np.dtype(space.dtype)
    return np.dtype(np.float32) if dtype.kind == "f" else dtype


def _start(space: Space) -> Any:
    """Return where a space's numbers begin, None if at 0 (a number or an array, hence Any)."""
    start = space.start if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)) else 0
    return start if np.any(start) else None


def _as_held(space: Space) -> Space:
    """Return the space of what our arrays hold: a float64 Box becomes a float32 one, numbers begin at 0."""
    if isinstance(space, spaces.Discrete):
        if space.dtype == np.int64:  # before gymnasium 1.3 all were, and there was no such argument
            return spaces.Discrete(int(space.n))
        return spaces.Discrete(int(space.n), dtype=space.dtype.type)
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(space.nvec, dtype=space.dtype.type)
    if not isinstance(space, spaces.Box) or space.dtype == _held_dtype(space):
        return space
    with np.errstate(over="ignore"):  # a float64 bound beyond float32 means "no bound"
        return spaces.Box(space.low.astype(np.float32), space.high.astype(np.float32), dtype=np.float32)


class ActionLayout:
    """Conversion of actions [R, A...] into what an env's `step` takes.

    Discrete actions count from 0 for all who use a manager; where an env's own count starts elsewhere, `start` is
    added here. `space` is what callers see. Raises EnvError for an action space that is not one array.
    """

    def __init__(self, space: Space) -> None:
        if not isinstance(space, _ROW_SPACES):
            raise EnvError(
                f"action space {space} is not supported; expected Discrete, Box, MultiDiscrete, MultiBinary, or a "
                "choice with parameters: Tuple(Discrete, Box, ...) or Dict(action_type=Discrete, action_args=Box). "
                "Flatten it with a wrapper, for instance env.wrappers=[dict(type='TransformAction', ...)]."
            )
        self.shape = _shape(space)
        self.dtype = np.dtype(space.dtype)
        self._start: Any = 0  # a number, or an array [A] in a MultiDiscrete space
        self.space: Space = space
        if isinstance(space, spaces.Discrete):
            self._start = int(space.start)
            self.space = spaces.Discrete(int(space.n))
        elif isinstance(space, spaces.MultiDiscrete):
            self._start = space.start
            self.space = spaces.MultiDiscrete(space.nvec, dtype=space.dtype.type)
        self._has_start = bool(np.any(self._start))
        # Policies compute in float32, whose nearest number to a bound may lie beyond it.
        self._float64_bounds: tuple[Array, Array] | None = None
        if isinstance(space, spaces.Box) and self.dtype == np.float64:
            self._float64_bounds = space.low, space.high

    def for_envs(self, actions: Array, rows: int) -> Array:
        """Return [R, A...] in the env's own count and dtype, memory of our own. Raises SchemaError on another shape."""
        if not rows:
            return np.zeros((0, *self.shape), self.dtype)
        taken = np.array(actions, dtype=self.dtype)
        if not self.shape and taken.shape == (rows, 1):  # rows [1], as policies in DI-engine's style give them
            taken = taken[:, 0]
        if taken.shape != (rows, *self.shape):
            raise SchemaError(
                f"actions have shape {taken.shape}, {rows} lanes of {self.space} take {(rows, *self.shape)}. "
                "Fix the shape in the policy's act."
            )
        if self._has_start:
            taken += self._start
        if self._float64_bounds is not None:
            for bound in self._float64_bounds:
                np.copyto(taken, bound, where=taken == bound.astype(np.float32))
        return taken

    def split(self, actions: Array) -> list[EnvAction]:
        """Return one action per lane of what `for_envs` made: a numpy number of a discrete space, else a row."""
        return list(actions)

    def sample(self, rng: np.random.Generator, rows: int) -> Array:
        """Return random actions [rows, A...] for callers to pass on: uniform, or normal where a Box has no bounds."""
        space = self.space
        if isinstance(space, HybridSpace):
            return space.draw(rng, rows)
        if isinstance(space, spaces.Discrete):
            return rng.integers(int(space.n), size=rows, dtype=np.int64)
        if isinstance(space, spaces.MultiDiscrete):
            return rng.integers(space.nvec, size=(rows, *self.shape)).astype(self.dtype)
        if isinstance(space, spaces.MultiBinary):
            return rng.integers(2, size=(rows, *self.shape)).astype(self.dtype)
        assert isinstance(space, spaces.Box), "the constructor takes no other space"
        bounded = np.isfinite(space.low) & np.isfinite(space.high)
        low, high = np.where(bounded, space.low, 0.0), np.where(bounded, space.high, 1.0)
        uniform = rng.uniform(low, high, size=(rows, *self.shape))
        normal = rng.standard_normal((rows, *self.shape))
        return np.where(bounded, uniform, np.clip(normal, space.low, space.high)).astype(self.dtype)


def check_equal_spaces(first: EnvLike, others: Mapping[int, EnvLike]) -> None:
    """Raise EnvError if a lane's env has other spaces than the first lane's (envs, hence Any)."""
    for lane, env in others.items():
        for name in ("observation_space", "action_space"):
            mine, theirs = getattr(first, name), getattr(env, name)
            if mine != theirs:
                raise EnvError(
                    f"the envs of one manager must have equal spaces, but {name} is {mine} in lane 0 and {theirs} "
                    f"in lane {lane}. Use one manager per kind of env."
                )


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
        if mask is None and form.are_own:
            mask = np.zeros((int(form.discrete.n), self._ends[-1]), bool)
            for choice, (start, end) in enumerate(pairwise(self._ends)):
                mask[choice, start:end] = True
        self._space = self.action_space = HybridSpace(
            int(form.discrete.n),
            *(np.concatenate([_flat(box, side) for box in form.boxes]) for side in ("low", "high")),
            parameter_mask=mask,
        )

    def action(self, action: Array) -> EnvAction:
        """Return the env's own action for a row [1 + P]. Raises SchemaError if the row begins with no choice."""
        choice = self._space.choice_of(action)
        parts = []
        for box, (start, end) in zip(self._form.boxes, pairwise(self._ends), strict=True):
            part = action[1 + start : 1 + end].astype(box.dtype).reshape(box.shape)
            # In the box's own numbers: a bound in float32 may lie beyond one in float64.
            parts.append(np.clip(part, box.low, box.high))
        return self._form.pack(choice + self._start, parts)


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
