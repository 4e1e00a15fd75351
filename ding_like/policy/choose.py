"""Choices of actions from a network's outputs: exploration is here, and its random numbers.

Each class is one way to choose, for R rows at once. All of them take (output, action mask or None, generator, setting)
and return columns [R, ...], `action` among them. `best(output, mask)` is what they choose of tensors without exploring:
agents are exported with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ding_like.rl_utils.distributions import MAX_LOG_SIGMA, MIN_LOG_SIGMA, ActionFamily, allowed_logits, mask_logits
from ding_like.rl_utils.exploration import ActionRange, epsilon_greedy, gaussian_noise, greedy_action
from ding_like.types import Array, Setting

if TYPE_CHECKING:
    from torch import Tensor


class Choose(Protocol):
    """What turns a network's output into columns of rows, `action` among them."""

    def __call__(
        self, output: Array, mask: Array | None, rng: np.random.Generator, setting: Setting
    ) -> dict[str, Array]: ...


class EpsilonGreedy:
    """Choice of the best action by its value, or with probability `eps` of the setting (default 0) any legal one."""

    def __call__(
        self, output: Array, mask: Array | None, rng: np.random.Generator, setting: Setting
    ) -> dict[str, Array]:
        """Return `action` int64, [R] of values [R, A]; of a team's [R, N, A] it is [R, N], drawn for each member."""
        greedy = greedy_action(output, mask)
        eps = setting.get("eps", 0.0)
        if isinstance(eps, float) and eps == 0.0:
            return {"action": greedy}
        num_actions = output.shape[-1]
        if greedy.ndim == 1:
            return {"action": epsilon_greedy(greedy, eps, num_actions=num_actions, rng=rng, action_mask=mask)}
        each = np.broadcast_to(eps, len(greedy)).repeat(greedy.shape[1])
        legal = None if mask is None else mask.reshape(-1, num_actions)
        chosen = epsilon_greedy(greedy.ravel(), each, num_actions=num_actions, rng=rng, action_mask=legal)
        return {"action": chosen.reshape(greedy.shape)}

    def best(self, output: Tensor, mask: Tensor | None) -> Tensor:
        return _best_of(output, mask)


@dataclass(frozen=True)
class GaussianNoise:
    """Choice of the action in [-1, 1] that the network gives, plus noise in units of half of the action's range."""

    action_range: ActionRange
    noise_sigma: float = 0.0  # unless the setting says another: one for all, or one per lane [R]

    def __call__(
        self, output: Array, mask: Array | None, rng: np.random.Generator, setting: Setting
    ) -> dict[str, Array]:
        """Return `action` [R, A] in the env's units."""
        sigma = setting.get("noise_sigma", self.noise_sigma)
        if not isinstance(sigma, float) or sigma != 0.0:
            output = output + gaussian_noise(*output.shape, sigma=sigma, rng=rng)
        return {"action": self.action_range.to_env(output)}

    def best(self, output: Tensor, mask: Tensor | None) -> Tensor:
        return self.action_range.tensor_to_env(output)


@dataclass(frozen=True)
class HybridEpsilonGreedy:
    """Best choice with its parameters by the network, plus noise; or with `eps` a random action.

    The noise is that of `GaussianNoise`; a random action is a choice and parameters drawn uniformly, for each row its
    own.
    """

    parameter_range: ActionRange
    num_choices: int
    noise_sigma: float = 0.0  # unless the setting says another: one for all, or one per lane [R]

    def __call__(
        self, output: Array, mask: Array | None, rng: np.random.Generator, setting: Setting
    ) -> dict[str, Array]:
        """Return `action` [R, 1 + P] in the env's units, of values and parameters in [-1, 1] side by side [R, K + P].

        Every call that explores takes 2 + 2 P numbers per row from `rng`, whatever comes of them.
        """
        values, parameters = output[:, : self.num_choices], output[:, self.num_choices :]
        choice = greedy_action(values, mask)
        eps, sigma = setting.get("eps", 0.0), setting.get("noise_sigma", self.noise_sigma)
        if not all(isinstance(each, float) and each == 0.0 for each in (eps, sigma)):
            rows, size = parameters.shape
            draws = rng.random((2, rows))
            uniform = rng.uniform(-1.0, 1.0, (rows, size)).astype(np.float32)
            parameters = parameters + gaussian_noise(rows, size, sigma=sigma, rng=rng)
            is_random = draws[0] < eps
            choice = np.where(is_random, (draws[1] * self.num_choices).astype(np.int64), choice)
            parameters = np.where(is_random[:, None], uniform, parameters)
        action = np.empty((len(output), 1 + parameters.shape[1]), np.float32)
        action[:, 0] = choice
        action[:, 1:] = self.parameter_range.to_env(parameters)
        return {"action": action}

    def best(self, output: Tensor, mask: Tensor | None) -> Tensor:
        import torch  # actors have none

        choice = _best_of(output[:, : self.num_choices], mask)
        parameters = self.parameter_range.tensor_to_env(output[:, self.num_choices :])
        return torch.cat([choice.unsqueeze(1).to(parameters.dtype), parameters], dim=1)


@dataclass(frozen=True)
class SquashedGaussian:
    """Draw from a Gaussian squashed by tanh, or its tanh(mean)."""

    action_range: ActionRange
    is_random: bool

    def __call__(
        self, output: Array, mask: Array | None, rng: np.random.Generator, setting: Setting
    ) -> dict[str, Array]:
        """Return `action` [R, A] in the env's units, of mean and log sigma side by side [R, 2 A]."""
        mean, log_sigma = np.split(output, 2, axis=1)
        if self.is_random:
            sigma = np.exp(log_sigma.clip(MIN_LOG_SIGMA, MAX_LOG_SIGMA))
            mean = mean + sigma * rng.standard_normal(mean.shape, dtype=np.float32)
        return {"action": self.action_range.to_env(np.tanh(mean))}

    def best(self, output: Tensor, mask: Tensor | None) -> Tensor:
        return self.action_range.tensor_to_env(output[:, : output.shape[1] // 2].tanh())


@dataclass(frozen=True)
class OfFamily:
    """Actions drawn from a family of distributions, or with `is_greedy` the most likely ones."""

    family: ActionFamily
    is_greedy: bool
    with_log_prob: bool = True  # False: rows need no more than the action

    def __call__(
        self, output: Array, mask: Array | None, rng: np.random.Generator, setting: Setting
    ) -> dict[str, Array]:
        """Return `action` [R, ...]; unless greedy, also `log_prob` [R] and, of continuous actions, `action_raw`."""
        if mask is not None:
            self.family.check_mask(mask)
            output = mask_logits(output, mask)
        if self.is_greedy:
            return {"action": self.family.mode(output)}
        sampled = self.family.sample(output, rng)
        return sampled if self.with_log_prob else {"action": sampled["action"]}

    def best(self, output: Tensor, mask: Tensor | None) -> Tensor:
        return self.family.mode_of(allowed_logits(output, mask))


def _best_of(values: Tensor, mask: Tensor | None) -> Tensor:
    """Return the best action [R] or [R, N] by values [R, A] or [R, N, A], of those that the mask allows."""
    if mask is None:
        return values.argmax(dim=-1)
    import torch  # actors have none

    allowed = values.clamp(min=torch.finfo(values.dtype).min)
    return torch.where(mask.reshape(values.shape) != 0, allowed, -torch.inf).argmax(dim=-1)
