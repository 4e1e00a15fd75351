"""Distributions of actions from an actor network's outputs: numpy to act, torch to learn, numpy to learn by hand.

Each family of distributions has all sides in one class. R lanes act, B rows are learned from, A is the number of
actions (or dimensions of a continuous one), K how many discrete actions there are at once. Acting needs no torch: what
needs it imports it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, TypeVar, cast

import numpy as np

from ding_like.errors import ConfigError, SchemaError
from ding_like.rl_utils.exploration import check_some_legal
from ding_like.types import Array

if TYPE_CHECKING:  # actors have no torch: what needs it imports it
    from torch import Tensor

# Stands for minus infinity where a mask forbids an action: times a probability of 0 it is 0 and not NaN.
FORBIDDEN = -1e9
ArrayOrTensor = TypeVar("ArrayOrTensor", Array, "Tensor")
Bound: TypeAlias = "Array | Sequence[float] | float | None"  # one side's of continuous actions
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class ByHand(NamedTuple):
    """Result of `log_prob_and_entropy` on arrays, and the way back."""

    log_prob: Array  # [B]
    entropy: Array  # [B]
    # (gradient of a loss by log_prob [B], its gradient by every entropy, a number) -> its gradient by output [B, P]
    backward: Callable[[Array, float], Array]


class ActionFamily(Protocol):
    """What an algorithm needs of a family of distributions over one env's actions."""

    column: str  # the column of a batch that `log_prob` is of

    def sample(self, output: Array, rng: np.random.Generator) -> dict[str, Array]:
        """Return `action` as the env takes it, `log_prob` [R] float32, and `column` where that is another one."""

    def mode(self, output: Array) -> Array:
        """Return the most likely action as the env takes it."""

    def mode_of(self, output: Tensor) -> Tensor:
        """Do what `mode` does, with tensors: agents are exported with it."""

    def check_mask(self, mask: Array) -> None:
        """Raise EnvError if a mask of the output [R, P] leaves one of the actions no choice."""

    def log_prob_and_entropy(self, output: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return both for each row, [B]; `action` is the batch's `column`."""

    def raw_of(self, action: Tensor) -> Tensor:
        """Return the batch's `column` of actions as the env takes them."""

    def kl(self, output: Tensor, other: Tensor) -> Tensor:
        """Return KL(p, q) [B] of the distributions that two outputs [B, P] stand for, how far q is from p."""

    def by_hand(self, output: Array, action: Array) -> ByHand:
        """Do what `log_prob_and_entropy` does in numpy."""


def log_softmax_by_hand(logits: Array) -> tuple[Array, Array]:
    """Return (log probabilities [B, A], probabilities [B, A]) of logits [B, A]."""
    shifted = logits - np.maximum.reduce(logits, axis=1, keepdims=True)
    probs = np.exp(shifted)
    total = np.add.reduce(probs, axis=1, keepdims=True)
    probs /= total
    return shifted - np.log(total), probs


class Categorical:
    """Choice of one of A actions; `output` is logits [R, A], an action is [R] int64."""

    column = "action"

    def sample(self, output: Array, rng: np.random.Generator) -> dict[str, Array]:
        action, log_prob = _sample_logits(output, rng.random(len(output)))
        return {"action": action, "log_prob": log_prob}

    def mode(self, output: Array) -> Array:
        return cast(Array, output.argmax(axis=1))

    def mode_of(self, output: Tensor) -> Tensor:
        return output.argmax(dim=1)

    def check_mask(self, mask: Array) -> None:
        check_some_legal(mask)

    def raw_of(self, action: Tensor) -> Tensor:
        return action

    def log_prob_and_entropy(self, output: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = output.log_softmax(dim=1)
        chosen = log_probs.gather(1, action.unsqueeze(1)).squeeze(1)
        return chosen, -(log_probs.exp() * log_probs).sum(dim=1)

    def mean_log_prob(self, output: Tensor) -> Tensor:
        """Return the mean [B] of the log probabilities of all actions that no mask forbids."""
        legal = output > FORBIDDEN
        return (output.log_softmax(dim=1) * legal).sum(dim=1) / legal.sum(dim=1)

    def kl(self, output: Tensor, other: Tensor) -> Tensor:
        log_p, log_q = output.log_softmax(dim=1), other.log_softmax(dim=1)
        return (log_p.exp() * (log_p - log_q)).sum(dim=1)

    def by_hand(self, output: Array, action: Array) -> ByHand:
        rows = np.arange(len(output))
        log_probs, probs = log_softmax_by_hand(output)
        entropy = -np.add.reduce(probs * log_probs, axis=1)

        def backward(by_log_prob: Array, by_entropy: float) -> Array:
            # d log p_a / dz = onehot(a) - p and dH / dz = -p (log p + H)
            grad = probs * -by_log_prob[:, None]
            grad[rows, action] += by_log_prob
            if by_entropy:
                grad -= by_entropy * probs * (log_probs + entropy[:, None])
            return grad

        return ByHand(log_probs[rows, action], entropy, backward)


class MultiCategorical:
    """K choices at once, independent of each other; `output` is all logits side by side, an action [R, K] int64.

    Bits are discrete actions of two values each.
    """

    column = "action"

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = list(sizes)
        ends = np.cumsum(self._sizes).tolist()
        self._factors = [slice(end - size, end) for size, end in zip(self._sizes, ends, strict=True)]

    def sample(self, output: Array, rng: np.random.Generator) -> dict[str, Array]:
        draws = rng.random((len(output), len(self._sizes)))
        sampled = [_sample_logits(output[:, factor], draws[:, k]) for k, factor in enumerate(self._factors)]
        actions, log_probs = zip(*sampled, strict=True)
        return {"action": np.stack(actions, axis=1), "log_prob": np.sum(log_probs, axis=0)}

    def mode(self, output: Array) -> Array:
        return np.stack([output[:, factor].argmax(axis=1) for factor in self._factors], axis=1)

    def mode_of(self, output: Tensor) -> Tensor:
        import torch

        return torch.stack([output[:, factor].argmax(dim=1) for factor in self._factors], dim=1)

    def check_mask(self, mask: Array) -> None:
        flat = mask.reshape(len(mask), sum(self._sizes))
        for factor in self._factors:
            check_some_legal(flat[:, factor])

    def raw_of(self, action: Tensor) -> Tensor:
        return action

    def log_prob_and_entropy(self, output: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        import torch

        one = Categorical()
        pairs = zip(torch.split(output, self._sizes, dim=1), action.unbind(dim=1), strict=True)
        parts = [one.log_prob_and_entropy(logit, chosen) for logit, chosen in pairs]
        log_prob, entropy = (torch.stack(column).sum(dim=0) for column in zip(*parts, strict=True))
        return log_prob, entropy

    def mean_log_prob(self, output: Tensor) -> Tensor:
        """Return the sum [B] over the choices of what it is of one."""
        import torch

        return torch.stack([Categorical().mean_log_prob(output[:, factor]) for factor in self._factors]).sum(dim=0)

    def kl(self, output: Tensor, other: Tensor) -> Tensor:
        import torch

        parts = [Categorical().kl(output[:, factor], other[:, factor]) for factor in self._factors]
        return torch.stack(parts).sum(dim=0)

    def by_hand(self, output: Array, action: Array) -> ByHand:

        one = Categorical()
        parts = [one.by_hand(output[:, factor], action[:, k]) for k, factor in enumerate(self._factors)]

        def backward(by_log_prob: Array, by_entropy: float) -> Array:
            return np.concatenate([part.backward(by_log_prob, by_entropy) for part in parts], axis=1)

        return ByHand(
            np.add.reduce([part.log_prob for part in parts]), np.add.reduce([part.entropy for part in parts]), backward
        )


class Gaussian:
    """A numbers from a normal distribution, brought into an env's bounds.

    `output` is mean and log sigma side by side, [R, 2 A]. What is drawn is column `action_raw` [R, A], from which the
    algorithm learns; `action` is what the env takes. `action_raw` counts in units where an action's bounds are -1 and 1
    (an action without bounds has the env's own unit). Then either

    - the env is given the nearest action within its bounds: clipping counts as a part of the env, and `log_prob` is
      that of `action_raw`; or
    - with `squash`, tanh brings `action_raw` within (-1, 1), and `log_prob` is the density of the result,
      `log N(u) - sum log(1 - tanh(u)^2)` (Haarnoja et al. 2018, appendix C). The entropy has no closed form: that of
      the normal distribution stands in for it.
    """

    column = "action_raw"

    def __init__(self, size: int, *, low: Bound = None, high: Bound = None, squash: bool = False) -> None:
        """Act within `low` and `high`, [A] or a number for all, by default -1 and 1 with `squash` and none without.

        Raises ConfigError if they have another shape, or if `squash` lacks one.
        """
        end = 1.0 if squash else np.inf
        self._low, self._high = _side(low, -end, size), _side(high, end, size)
        if self._low.shape != (size,) or self._high.shape != (size,):
            raise ConfigError(
                f"{size} continuous actions need as many bounds, got low {self._low.shape} and high "
                f"{self._high.shape}; flatten the action space in an env wrapper"
            )
        bounded = np.isfinite(self._low) & np.isfinite(self._high)
        if squash and not bounded.all():
            raise ConfigError(
                f"action_bound='tanh' needs actions with bounds, got low {self._low.tolist()} and high "
                f"{self._high.tolist()}; set policy.action_bound='clip', or bound the action space in an env wrapper"
            )
        with np.errstate(invalid="ignore"):  # inf - inf, where there is no bound
            self._half = np.where(bounded, (self._high - self._low) / 2, 1.0).astype(np.float32)
            self._centre = np.where(bounded, (self._high + self._low) / 2, 0.0).astype(np.float32)
        self._size = size
        self._squash = squash

    def sample(self, output: Array, rng: np.random.Generator) -> dict[str, Array]:
        mu, log_sigma = output[:, : self._size], output[:, self._size :]
        noise = rng.standard_normal(mu.shape, dtype=np.float32)
        raw = mu + np.exp(log_sigma) * noise
        log_prob = -(0.5 * noise * noise + log_sigma + np.float32(_HALF_LOG_TWO_PI)).sum(axis=1)
        if self._squash:
            log_prob -= _log_slope(raw).sum(axis=1)
        return {"action": self.to_env(raw), "action_raw": raw, "log_prob": log_prob}

    def mode(self, output: Array) -> Array:
        return self.to_env(output[:, : self._size])

    def mode_of(self, output: Tensor) -> Tensor:
        return self.tensor_to_env(output[:, : self._size])

    def tensor_to_env(self, raw: Tensor) -> Tensor:
        """Do what `to_env` does, with tensors."""
        import torch

        centre, half, low, high = (
            torch.as_tensor(np.array(each), dtype=torch.float32, device=raw.device)
            for each in (self._centre, self._half, self._low, self._high)
        )
        inside = torch.tanh(raw) if self._squash else raw
        return torch.minimum(torch.maximum(centre + half * inside, low), high)

    def check_mask(self, mask: Array) -> None:
        raise SchemaError("an action mask came with continuous actions, none of which it can forbid: take it out")

    def raw_of(self, action: Tensor) -> Tensor:
        """Return `action_raw` [B, A] of actions as the env takes them: of one at a bound, what just reaches it."""
        import torch

        centre, half = (torch.from_numpy(each).to(action.device) for each in (self._centre, self._half))
        inside = (action.reshape(-1, self._size).float() - centre) / half
        return unsquashed(inside) if self._squash else inside

    def to_env(self, raw: Array) -> Array:
        """Return what the env takes for `action_raw` [R, A], float32."""
        inside = np.tanh(raw) if self._squash else raw
        # Clipped in both cases: rounding may leave a bound by an ulp.
        return cast(Array, np.clip(self._centre + self._half * inside, self._low, self._high))

    def log_prob_and_entropy(self, output: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        mu, log_sigma = output.chunk(2, dim=1)
        noise = (action - mu) * (-log_sigma).exp()
        total_log_sigma = log_sigma.sum(dim=1)
        constant = self._size * _HALF_LOG_TWO_PI
        log_prob = -0.5 * (noise * noise).sum(dim=1) - total_log_sigma - constant
        if self._squash:
            log_prob = log_prob - _log_slope_of(action).sum(dim=1)
        return log_prob, total_log_sigma + (0.5 * self._size + constant)

    def kl(self, output: Tensor, other: Tensor) -> Tensor:
        # Squashing changes nothing: KL is the same under any one-to-one map of what is drawn.
        return _kl_of_normals(*output.chunk(2, dim=1), *other.chunk(2, dim=1)).sum(dim=1)

    def by_hand(self, output: Array, action: Array) -> ByHand:
        mu, log_sigma = output[:, : self._size], output[:, self._size :]
        per_sigma = np.exp(-log_sigma)
        noise = (action - mu) * per_sigma
        total_log_sigma = np.add.reduce(log_sigma, axis=1)
        constant = self._size * _HALF_LOG_TWO_PI
        log_prob = -0.5 * np.add.reduce(noise * noise, axis=1) - total_log_sigma - constant
        if self._squash:
            log_prob -= _log_slope(action).sum(axis=1)

        def backward(by_log_prob: Array, by_entropy: float) -> Array:
            # d log p / d mu = noise / sigma, d log p / d log sigma = noise^2 - 1, dH / d log sigma = 1
            grad = np.empty_like(output)
            grad[:, : self._size] = noise * per_sigma * by_log_prob[:, None]
            grad[:, self._size :] = (noise * noise - 1.0) * by_log_prob[:, None] + by_entropy
            return grad

        return ByHand(log_prob, total_log_sigma + (0.5 * self._size + constant), backward)


def _side(bound: Bound, default: float, size: int) -> Array:
    """Return one side's bounds [A]."""
    given = np.asarray(default if bound is None else bound, np.float32)
    return given if given.ndim else np.full(size, given)


def build_family(
    action_space: str, action_shape: int | Sequence[int], *, low: Bound = None, high: Bound = None, squash: bool = False
) -> ActionFamily:
    """Return the family for a kind of action space; bounds and `squash` are for 'continuous' ones.

    `action_shape` is the number of discrete actions, a list of them for several at once, or the number of continuous
    ones. Raises ConfigError for another kind.
    """
    if action_space == "discrete":
        return Categorical() if isinstance(action_shape, int) else MultiCategorical(action_shape)
    if action_space == "continuous":
        size = action_shape if isinstance(action_shape, int) else action_shape[0]
        return Gaussian(size, low=low, high=high, squash=squash)
    raise ConfigError(f"policy.action_space is {action_space!r}; expected 'discrete' or 'continuous'")


def mask_logits(output: Array, mask: Array) -> Array:
    """Return logits [R, A] in which the actions that `mask` [R, A] forbids (0) have no chance.

    The mask of several agents may also be [R, N, A / N].
    """
    return np.where(mask.reshape(output.shape) != 0, output, np.asarray(FORBIDDEN, output.dtype))


def allowed_logits(output: Tensor, mask: Tensor | None) -> Tensor:
    """Do what `mask_logits` does, with tensors; without a mask nothing is forbidden."""
    return output if mask is None else output.masked_fill(mask.reshape(output.shape) == 0, FORBIDDEN)


def _kl_of_normals(mu: Tensor, log_sigma: Tensor, other_mu: Tensor, other_log_sigma: Tensor) -> Tensor:
    """Return KL(p, q) [B, A] of each of two normal distributions."""
    log_ratio = log_sigma - other_log_sigma
    distance = (mu - other_mu) * (-other_log_sigma).exp()
    return 0.5 * ((2.0 * log_ratio).exp() + distance * distance - 1.0) - log_ratio


def _log_slope(raw: Array) -> Array:
    """Return log(1 - tanh(u)^2) [R, A] as 2 (log 2 - u - softplus(-2 u)): never log 0."""
    return cast(Array, 2.0 * (math.log(2.0) - raw - np.logaddexp(0.0, -2.0 * raw)))


def _log_slope_of(raw: Tensor) -> Tensor:
    """Do what `_log_slope` does, with tensors."""
    from torch.nn.functional import softplus

    return 2.0 * (math.log(2.0) - raw - softplus(-2.0 * raw))


def _sample_logits(logit: Array, draw: Array) -> tuple[Array, Array]:
    """Return (action, its log probability) by inverting the distribution function at `draw` [R], in [0, 1)."""
    shifted = logit - np.maximum.reduce(logit, axis=1, keepdims=True)
    cumulated = np.add.accumulate(np.exp(shifted), axis=1)
    total = cumulated[:, -1]
    # 1 - draw lies in (0, 1]: an action of probability 0 is never the first to reach it, nor is there none that does.
    action = np.add.reduce(cumulated < ((1.0 - draw) * total)[:, None], axis=1)
    return action, shifted[np.arange(len(action)), action] - np.log(total)


_ENTROPY_OF_ONE = 0.5 + _HALF_LOG_TWO_PI  # of a normal distribution whose sigma is 1


class Hybrid:
    """Choice of one of K, and its P parameters; `output` is logits, means and log sigmas side by side, [R, K + 2 P].

    Rows of actions are [R, 1 + P], the choice first. What is drawn is column `action_raw`, whose parameters count in
    the units of `Gaussian`, from which the algorithm learns; `action` is what the env takes. `parameter_mask` [K, P]
    says which parameters belong to which choice; bounds and `squash` are those of `Gaussian`.

        log p(k, x) = log p(k) + sum of log N(x_j) over the parameters j of k
        entropy     = H(k) + sum over k of p(k) * sum of H(x_j) over the parameters j of k

    Parameters that do not belong to the choice made are no part of the action: they count nowhere. Source: Fan et al.
    2019, "Hybrid actor-critic reinforcement learning in parameterized action space", with one joint probability.
    """

    column = "action_raw"

    def __init__(self, parameter_mask: Array, *, low: Bound = None, high: Bound = None, squash: bool = False) -> None:
        self._mask = np.asarray(parameter_mask, np.float32)
        self._choices, self._size = self._mask.shape
        self._gaussian = Gaussian(self._size, low=low, high=high, squash=squash)
        self._squash = squash

    def sample(self, output: Array, rng: np.random.Generator) -> dict[str, Array]:
        logit, mu, log_sigma = self._parts(output)
        choice = Categorical().sample(logit, rng)
        noise = rng.standard_normal(mu.shape, dtype=np.float32)
        raw = np.concatenate([choice["action"][:, None].astype(np.float32), mu + np.exp(log_sigma) * noise], axis=1)
        used = self._mask[choice["action"]]
        each = self._log_prob_of_each(noise, log_sigma, raw[:, 1:])
        log_prob = choice["log_prob"] + np.add.reduce(used * each, axis=1)
        return {"action": self._to_env(raw), "action_raw": raw, "log_prob": log_prob}

    def mode(self, output: Array) -> Array:
        logit, mu, _ = self._parts(output)
        return self._to_env(np.concatenate([logit.argmax(axis=1)[:, None].astype(np.float32), mu], axis=1))

    def mode_of(self, output: Tensor) -> Tensor:
        import torch

        logit, mu, _ = self._parts(output)
        choice = logit.argmax(dim=1, keepdim=True).to(output.dtype)
        return torch.cat([choice, self._gaussian.tensor_to_env(mu)], dim=1)

    def check_mask(self, mask: Array) -> None:
        raise SchemaError("an action mask came with hybrid actions, whose choices it cannot forbid: take it out")

    def raw_of(self, action: Tensor) -> Tensor:
        import torch

        return torch.cat([action[:, :1], self._gaussian.raw_of(action[:, 1:])], dim=1)

    def log_prob_and_entropy(self, output: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        logit, mu, log_sigma = self._parts(output)
        mask = self._mask_like(output)
        choice, raw = action[:, 0].long(), action[:, 1:]
        log_prob, entropy = Categorical().log_prob_and_entropy(logit, choice)
        noise = (raw - mu) * (-log_sigma).exp()
        each = -0.5 * noise * noise - log_sigma - _HALF_LOG_TWO_PI
        if self._squash:
            each = each - _log_slope_of(raw)
        expected_use = logit.softmax(dim=1) @ mask
        return (
            log_prob + (mask[choice] * each).sum(dim=1),
            entropy + (expected_use * (log_sigma + _ENTROPY_OF_ONE)).sum(dim=1),
        )

    def kl(self, output: Tensor, other: Tensor) -> Tensor:
        (logit, mu, log_sigma), (other_logit, other_mu, other_log_sigma) = self._parts(output), self._parts(other)
        each = _kl_of_normals(mu, log_sigma, other_mu, other_log_sigma)
        expected_use = logit.softmax(dim=1) @ self._mask_like(output)
        return Categorical().kl(logit, other_logit) + (expected_use * each).sum(dim=1)

    def by_hand(self, output: Array, action: Array) -> ByHand:
        logit, mu, log_sigma = self._parts(output)
        choice, raw = action[:, 0].astype(np.int64), action[:, 1:]
        of_choice = Categorical().by_hand(logit, choice)
        per_sigma, used = np.exp(-log_sigma), self._mask[choice]
        noise = (raw - mu) * per_sigma
        log_prob = of_choice.log_prob + np.add.reduce(used * self._log_prob_of_each(noise, log_sigma, raw), axis=1)
        probs = log_softmax_by_hand(logit)[1]
        expected_use = probs @ self._mask
        entropy_of_each = log_sigma + np.float32(_ENTROPY_OF_ONE)
        of_parameters = np.add.reduce(expected_use * entropy_of_each, axis=1)

        def backward(by_log_prob: Array, by_entropy: float) -> Array:
            grad = np.empty_like(output)
            by_logit, by_mu, by_log_sigma = self._parts(grad)
            by_logit[:] = of_choice.backward(by_log_prob, by_entropy)
            by_mu[:] = used * noise * per_sigma * by_log_prob[:, None]
            by_log_sigma[:] = used * (noise * noise - 1.0) * by_log_prob[:, None]
            if by_entropy:
                # d sum_k p_k H_k / dz_k = p_k (H_k - the mean of H), H_k the entropy of the parameters of choice k
                of_each_choice = entropy_of_each @ self._mask.T
                by_logit += by_entropy * probs * (of_each_choice - of_parameters[:, None])
                by_log_sigma += by_entropy * expected_use
            return grad

        return ByHand(log_prob, of_choice.entropy + of_parameters, backward)

    def _mask_like(self, output: Tensor) -> Tensor:
        import torch

        return torch.as_tensor(self._mask, device=output.device)

    def _parts(self, output: ArrayOrTensor) -> tuple[ArrayOrTensor, ArrayOrTensor, ArrayOrTensor]:
        """Return views of logits [R, K], means [R, P] and log sigmas [R, P]."""
        middle = self._choices + self._size
        return output[:, : self._choices], output[:, self._choices : middle], output[:, middle:]

    def _log_prob_of_each(self, noise: Array, log_sigma: Array, raw: Array) -> Array:
        """Return the log density of each parameter [R, P]."""
        each: Array = -(0.5 * noise * noise + log_sigma + np.float32(_HALF_LOG_TWO_PI))
        if self._squash:
            each -= _log_slope(raw)
        return each

    def _to_env(self, raw: Array) -> Array:
        action = raw.copy()
        action[:, 1:] = self._gaussian.to_env(raw[:, 1:])
        return action


# What keeps exp(log sigma) in range; Haarnoja et al. 2018 use these numbers in their code.
MIN_LOG_SIGMA, MAX_LOG_SIGMA = -20.0, 2.0


# Largest magnitude of tanh(u) whose u is looked for: float32 has few numbers beyond.
_MAX_SQUASHED = 1.0 - 1e-6


def unsquashed(action: Tensor) -> Tensor:
    """Return u of actions tanh(u); of those at or beyond a bound, that of one just before it."""
    return action.clamp(-_MAX_SQUASHED, _MAX_SQUASHED).atanh()


def squashed_gaussian(
    mean: Tensor, log_sigma: Tensor, noise: Tensor, own: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the action `tanh(u)` [..., A], `u = mean + exp(log_sigma) * noise`, and its log density [...].

    `noise` is standard normal; gradients flow through the rest. The density of tanh(u) is that of u over the slope of
    tanh, and `log(1 - tanh(u)^2) = 2 * (log 2 - u - softplus(-2 u))` holds where the left side has lost all digits.
    With mean 0, log_sigma 0 and noise 1: action 0.7616, log density -0.5 - 0.9189 + 0.8675 = -0.5514. Dimensions of
    which `own` is 0 are no part of the density.

    Source: Haarnoja et al. 2018, eq. 21 of appendix C.
    """
    log_sigma = log_sigma.clamp(MIN_LOG_SIGMA, MAX_LOG_SIGMA)
    u = mean + log_sigma.exp() * noise
    log_density = -0.5 * noise * noise - log_sigma - _HALF_LOG_TWO_PI
    each = log_density - _log_slope_of(u)
    return u.tanh(), (each if own is None else each * own).sum(dim=-1)


class SquashedByHand(NamedTuple):
    """What `squashed_gaussian` returns, in numpy, and its gradient."""

    action: Array  # [B, A]
    log_prob: Array  # [B]
    backward: Callable[[Array, float], Array]
    """(gradient by actions [B, A], by each log probability) -> that by means and log sigmas side by side, [B, 2 A]"""


def squashed_gaussian_by_hand(output: Array, noise: Array) -> SquashedByHand:
    """Do what `squashed_gaussian` does, in numpy, of mean and log sigma side by side [B, 2 A].

    Of `u = mean + exp(log_sigma) * noise` and `a = tanh(u)`, da/du = 1 - a^2 and d(log density)/du = 2 a.
    """
    mean, free = output[:, : noise.shape[1]], output[:, noise.shape[1] :]
    log_sigma = np.minimum(np.maximum(free, MIN_LOG_SIGMA), MAX_LOG_SIGMA)
    spread = np.exp(log_sigma) * noise
    raw = mean + spread
    action = np.tanh(raw)
    each = -0.5 * noise * noise - log_sigma - _HALF_LOG_TWO_PI - _log_slope(raw)

    def backward(by_action: Array, by_log_prob: float) -> Array:
        back = np.empty_like(output)
        by_raw = by_action * (1.0 - action * action) + (2.0 * by_log_prob) * action
        back[:, : noise.shape[1]] = by_raw
        back[:, noise.shape[1] :] = (by_raw * spread - by_log_prob) * (log_sigma == free)
        return back

    return SquashedByHand(action, np.add.reduce(each, axis=1), backward)
