"""Choose between the greedy and a random action."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from ding_like.errors import ConfigError, EnvError
from ding_like.rl_utils.schedule import Schedule, linear_schedule
from ding_like.types import Array

DecayType = Literal["exp", "linear"]


def get_epsilon_greedy_fn(start: float, end: float, decay: float, type_: DecayType = "exp") -> Schedule:
    """Return epsilon as a function of the env step.

    'exp': `end + (start - end) * exp(-step / decay)`, so that `decay` is the time constant; 'linear': `end` is reached
    at step `decay`. Raises ConfigError for an epsilon outside [0, 1], a decay that is not positive or another type.
    """
    for name, epsilon in (("start", start), ("end", end)):
        if not 0.0 <= epsilon <= 1.0:
            raise ConfigError(f"eps.{name} is a probability: expected a number in [0, 1], got {epsilon}")
    if decay <= 0:
        raise ConfigError(f"eps.decay is a number of env steps: expected more than 0, got {decay}")
    if type_ == "linear":
        return linear_schedule(start, end, num_steps=decay)
    if type_ == "exp":
        return lambda step: end + (start - end) * math.exp(-step / decay)
    raise ConfigError(f"eps.type is {type_!r}; expected 'exp' or 'linear'")


def greedy_action(values: Array, action_mask: Array | None = None) -> Array:
    """Return the best action [...] by `values` [..., A], of those that `action_mask` allows (not 0).

    The mask has the shape of the values, or the same numbers in a row for each of the first axis.
    Raises EnvError where it allows no action.
    """
    if action_mask is None:
        best: Array = values.argmax(axis=-1)
        return best
    legal = action_mask.reshape(values.shape) != 0
    check_some_legal(legal)
    # A legal value of minus infinity still beats what is forbidden.
    best = np.where(legal, np.maximum(values, np.finfo(values.dtype).min), -np.inf).argmax(axis=-1)
    return best


def check_some_legal(legal: Array) -> None:
    """Raise EnvError if a row of the last axis of a mask [R, ..., A] allows no action."""
    some = legal.any(axis=-1)
    if not some.all():
        rows = np.unique(np.nonzero(~some)[0]).tolist()
        raise EnvError(f"the action mask allows no action in rows {rows}; an env must leave at least one legal action")


def epsilon_greedy(
    greedy: Array,
    eps: float | Array,
    *,
    num_actions: int,
    rng: np.random.Generator,
    action_mask: Array | None = None,
) -> Array:
    """Return `greedy` [R], each row replaced by a uniformly drawn action with probability `eps` (one, or one per row).

    `action_mask` [R, A] marks the legal actions that a random one is drawn from. Every call takes exactly two numbers
    per row from `rng`, whatever eps, the outcome and the mask are: runs that differ in these stay comparable.
    Raises EnvError if a row of the mask has no legal action. Source: Sutton & Barto 2018, section 2.2.
    """
    draws = rng.random((2, greedy.shape[0]))
    if action_mask is None:
        random_action = (draws[1] * num_actions).astype(np.int64)
    else:
        random_action = _pick_legal(action_mask, draws[1])
    action: Array = np.where(draws[0] < eps, random_action, greedy)
    return action


def _pick_legal(action_mask: Array, draw: Array) -> Array:
    """Return the legal action of rank `floor(draw * number of legal ones)` in each row."""
    rank = np.cumsum(action_mask != 0, axis=1)  # [R, A]: legal actions up to and including this one
    num_legal = rank[:, -1]
    check_some_legal(rank)
    chosen: Array = (rank > np.floor(draw * num_legal)[:, None]).argmax(axis=1)
    return chosen
