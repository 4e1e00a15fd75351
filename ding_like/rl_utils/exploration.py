"""Exploration: schedules, epsilon-greedy actions, noise, and actions between [-1, 1] and the bounds of an env."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

import numpy as np

from ding_like.errors import ConfigError, EnvError
from ding_like.types import Array

if TYPE_CHECKING:
    from torch import Tensor

Schedule: TypeAlias = Callable[[int], float]


def constant(value: float) -> Schedule:
    """Return a schedule that always says `value`."""
    return lambda step: value


def linear_schedule(start: float, end: float, *, num_steps: float) -> Schedule:
    """Return a straight line from `start` at step 0 to `end` at `num_steps`, and `end` from there on.

    Raises ConfigError if `num_steps` is not positive.
    """
    if num_steps <= 0:
        raise ConfigError(
            f"a linear schedule needs num_steps above 0, got {num_steps}; use `constant` for a fixed value"
        )
    return lambda step: start + (end - start) * min(step / num_steps, 1.0)


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
        return cast(Array, values.argmax(axis=-1))
    legal = action_mask.reshape(values.shape) != 0
    check_some_legal(legal)
    # A legal value of minus infinity still beats what is forbidden.
    return cast(Array, np.where(legal, np.maximum(values, np.finfo(values.dtype).min), -np.inf).argmax(axis=-1))


def check_some_legal(legal: Array) -> None:
    """Raise EnvError if a row of the last axis of a mask [R, ..., A] allows no action."""
    some = legal.any(axis=-1)
    if not some.all():
        rows = np.unique(np.nonzero(~some)[0]).tolist()
        raise EnvError(f"the action mask allows no action in rows {rows}; an env must leave at least one legal action")


def epsilon_greedy(
    greedy: Array, eps: float | Array, *, num_actions: int, rng: np.random.Generator, action_mask: Array | None = None
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
    return np.where(draws[0] < eps, random_action, greedy)


def _pick_legal(action_mask: Array, draw: Array) -> Array:
    """Return the legal action of rank `floor(draw * number of legal ones)` in each row."""
    rank = np.cumsum(action_mask != 0, axis=1)  # [R, A]: legal actions up to and including this one
    num_legal = rank[:, -1]
    check_some_legal(rank)
    return cast(Array, (rank > np.floor(draw * num_legal)[:, None]).argmax(axis=1))


def gaussian_noise(rows: int, size: int, *, sigma: float | Array, rng: np.random.Generator) -> Array:
    """Return normal noise [R, A], float32; `sigma` is one standard deviation, or one per row [R].

    Every call takes R * A numbers from `rng`, whatever sigma is: runs that differ in it stay comparable.
    """
    noise = rng.standard_normal((rows, size), dtype=np.float32)
    noise *= sigma if isinstance(sigma, (int, float)) else np.asarray(sigma, np.float32)[:, None]
    return noise


def factorised_noise(rows: int, size: int, *, rng: np.random.Generator) -> Array:
    """Return f(e) = sgn(e) sqrt(|e|) of standard normal e [R, P], float32: what noisy networks take.

    Source: Fortunato et al. 2018, section 3.
    """
    eps = rng.standard_normal((rows, size), dtype=np.float32)
    return np.copysign(np.sqrt(np.abs(eps)), eps)


def exploration_arms(num_arms: int, *, beta: float, gamma_max: float, gamma_min: float) -> tuple[Array, Array]:
    """Return (weights of the bonus, discounts) [N] of arms that explore the more the higher their number is.

    There are two arms or more. Source: Badia et al. 2020, Never Give Up, appendix A.
    """
    index = np.arange(num_arms)
    betas = beta / (1 + np.exp(-10 * (2 * index - (num_arms - 2)) / max(num_arms - 2, 1)))
    betas[0], betas[-1] = 0.0, beta
    share = index / (num_arms - 1)
    gammas = 1 - np.exp((1 - share) * math.log(1 - gamma_max) + share * math.log(1 - gamma_min))
    return betas, gammas


class ActionRange:
    """Scale of each dimension of an action: -1 is `low`, 1 is `high`, `centre` and half of its width, `half`, between.

    All four are float32 [A]. `(action - centre) / half` is the way back.
    Raises ConfigError for bounds that are not finite, or not in order.
    """

    def __init__(self, low: float | Sequence[float], high: float | Sequence[float]) -> None:
        self.low, self.high = (np.array(side, np.float32, ndmin=1) for side in (low, high))
        if not (np.isfinite(self.low).all() and np.isfinite(self.high).all()):
            raise ConfigError(
                f"actions have the bounds {self.low.tolist()} to {self.high.tolist()}, but this policy needs finite "
                "ones: set policy.action_low and policy.action_high, or bound the env's actions in a wrapper"
            )
        if not (self.low < self.high).all():
            raise ConfigError(f"action_low {self.low.tolist()} must be below action_high {self.high.tolist()}")
        self.centre: Array = (self.high + self.low) / 2
        self.half: Array = (self.high - self.low) / 2

    def to_env(self, action: Array) -> Array:
        """Return actions [R, A] of [-1, 1] in the env's units; what lies outside is cut to the bounds."""
        scaled: Array = action * self.half
        scaled += self.centre
        np.maximum(scaled, self.low, out=scaled)
        np.minimum(scaled, self.high, out=scaled)
        return scaled

    def tensor_to_env(self, action: Tensor) -> Tensor:
        """Do what `to_env` does, with tensors."""
        import torch  # actors have none

        low, high, centre, half = (
            torch.as_tensor(each, device=action.device) for each in (self.low, self.high, self.centre, self.half)
        )
        return torch.minimum(torch.maximum(action * half + centre, low), high)
