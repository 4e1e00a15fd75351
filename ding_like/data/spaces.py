"""Spaces as JSON, and the space of hybrid actions: a discrete choice with its parameters, in one row of numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from gymnasium import spaces

from ding_like.errors import CheckpointError, ConfigError, EnvError, SchemaError
from ding_like.types import Array

# A float32 counts so far without gaps.
_MOST_CHOICES = 2**24


class HybridSpace(spaces.Box):
    """Space of rows float32 [1 + P]: one of K choices, then the P parameters of all choices.

    `parameter_mask` bool [K, P] says which parameters belong to which choice: none, some or all, and one parameter may
    belong to several choices. By default every choice takes all of them. All parameters of a row lie within their
    bounds, also those that its choice does not use. Raises EnvError for sizes or bounds that do not fit.
    """

    def __init__(
        self,
        num_choices: int,
        low: Sequence[float] | Array,
        high: Sequence[float] | Array,
        *,
        parameter_mask: Sequence[Sequence[float]] | Array | None = None,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        lows, highs = (np.asarray(side, np.float32) for side in (low, high))
        if not 1 <= num_choices <= _MOST_CHOICES:
            raise EnvError(f"a hybrid action has 1 to {_MOST_CHOICES:,} choices, got {num_choices}.")
        if lows.ndim != 1 or lows.shape != highs.shape or not len(lows):
            raise EnvError(
                f"the parameters of a hybrid action have low {lows.shape} and high {highs.shape}; expected one bound "
                "a parameter for each, in one row. Without parameters the action space is Discrete."
            )
        self.num_choices = int(num_choices)
        self.num_parameters = len(lows)
        self.parameter_mask = read_parameter_mask(parameter_mask, self.num_choices, self.num_parameters)
        super().__init__(
            np.concatenate([np.zeros(1, np.float32), lows]),
            np.concatenate([np.full(1, num_choices - 1, np.float32), highs]),
            dtype=np.float32,
            seed=seed,
        )

    @property
    def parameter_low(self) -> Array:
        """Return the lower bounds of the parameters [P]."""
        return np.asarray(self.low[1:])

    @property
    def parameter_high(self) -> Array:
        """Return the upper bounds of the parameters [P]."""
        return np.asarray(self.high[1:])

    def sample(self, mask: None = None, probability: None = None) -> Array:
        """Return a random row: every choice is as likely, parameters are drawn as those of a Box."""
        row: Array = super().sample() if mask is None and probability is None else super().sample(mask)
        row[0] = self.np_random.integers(self.num_choices)
        return row

    def contains(self, x: object) -> bool:
        """Return whether `x` is a row of this space: a whole number, and parameters within their bounds."""
        return super().contains(x) and bool(np.asarray(x)[0] == np.floor(np.asarray(x)[0]))

    def draw(self, rng: np.random.Generator, rows: int) -> Array:
        """Return random rows [R, 1 + P]: uniform, or normal where a parameter lacks a bound."""
        low, high = self.parameter_low, self.parameter_high
        bounded = np.isfinite(low) & np.isfinite(high)
        uniform = rng.uniform(np.where(bounded, low, 0.0), np.where(bounded, high, 1.0), (rows, self.num_parameters))
        normal = np.clip(rng.standard_normal((rows, self.num_parameters)), low, high)
        drawn = np.empty((rows, 1 + self.num_parameters), np.float32)
        drawn[:, 0] = rng.integers(self.num_choices, size=rows)
        drawn[:, 1:] = np.where(bounded, uniform, normal)
        return drawn

    def choice_of(self, row: Array) -> int:
        """Return the choice of a row. Raises SchemaError if it is none of the K."""
        number = float(row[0])
        if not (0 <= number < self.num_choices and number.is_integer()):
            raise SchemaError(
                f"a hybrid action begins with {number:g}, expected its choice, a whole number from 0 to "
                f"{self.num_choices - 1}."
            )
        return int(number)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HybridSpace) or not super().__eq__(other):
            return False
        return np.array_equal(self.parameter_mask, other.parameter_mask)

    __hash__ = None  # type: ignore[assignment]  # as a Box has none

    def __repr__(self) -> str:
        bounds = ", ".join(f"{a:g}..{b:g}" for a, b in zip(self.parameter_low, self.parameter_high, strict=True))
        uses = "; ".join(",".join(map(str, np.flatnonzero(own))) or "none" for own in self.parameter_mask)
        return f"HybridSpace({self.num_choices} choices, parameters [{bounds}], used by choice: {uses})"


def read_parameter_mask(
    given: Sequence[Sequence[float]] | Array | None, num_choices: int, num_parameters: int
) -> Array:
    """Return a mask bool [K, P], all True for None. Raises EnvError for another shape."""
    if given is None:
        return np.ones((num_choices, num_parameters), bool)
    shapes = {np.shape(row) for row in given}
    if len(given) != num_choices or shapes != {(num_parameters,)}:
        raise EnvError(
            f"the mask of parameters is {given}, expected {num_choices} rows of {num_parameters}: for each choice a "
            "row with 1 for each parameter that belongs to it."
        )
    return np.array(given).astype(bool)


def hybrid_sizes(action_shape: object) -> tuple[int, int]:
    """Return (number of choices, number of parameters) of a model's `action_shape`; ConfigError for another form."""
    keys = ("action_type_shape", "action_args_shape")
    given = [action_shape.get(key) for key in keys] if isinstance(action_shape, Mapping) else []
    # DI-engine's configs may write [2] for 2.
    items = [size[0] if isinstance(size, Sequence) and len(size) == 1 else size for size in given]
    sizes = [item for item in items if isinstance(item, int) and item >= 1]
    if len(sizes) != 2:
        raise ConfigError(
            f"policy.model.action_shape is {action_shape!r}; hybrid actions need dict(action_type_shape=number of "
            "choices, action_args_shape=number of parameters)"
        )
    return sizes[0], sizes[1]


def hybrid_mask(action_shape: object, mask: Sequence[Sequence[float]] | Array | None) -> Array:
    """Return bool [K, P], which parameters belong to which choice, of a model's `action_shape` and `action_mask`.

    None means that all belong to all. Raises ConfigError if the two do not fit.
    """
    try:
        return read_parameter_mask(mask, *hybrid_sizes(action_shape))
    except (EnvError, TypeError) as error:
        raise ConfigError(f"policy.model.action_mask does not fit policy.model.action_shape: {error}") from error


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
