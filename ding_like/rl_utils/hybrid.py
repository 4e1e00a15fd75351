"""Give the distribution of hybrid actions: a discrete choice k, and the parameters x of that choice.

    log p(k, x) = log p(k) + sum of log N(x_j) over the parameters j of k
    entropy     = H(k) + sum over k of p(k) * sum of H(x_j) over the parameters j of k

Parameters that do not belong to the choice made are no part of the action: they count nowhere. Source: Fan et al. 2019,
"Hybrid actor-critic reinforcement learning in parameterized action space", with one joint probability for both parts.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ding_like.errors import SchemaError
from ding_like.rl_utils.distributions import ByHand, Categorical, Gaussian
from ding_like.types import Array

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
_ENTROPY_OF_ONE = 0.5 + _HALF_LOG_TWO_PI  # of a normal distribution whose sigma is 1


class Hybrid:
    """Choose one of K and the P parameters; `output` is logits, means and log sigmas side by side, [R, K + 2 P].

    Rows of actions are [R, 1 + P], the choice first. What is drawn is column `action_raw`, whose parameters count in
    the units of `Gaussian`, from which the algorithm learns; `action` is what the env takes. `parameter_mask` [K, P]
    says which parameters belong to which choice; bounds and `squash` are those of `Gaussian`.
    """

    column = "action_raw"

    def __init__(
        self,
        parameter_mask: Array,
        *,
        low: Array | None = None,
        high: Array | None = None,
        squash: bool = False,
    ) -> None:
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
        logit, mu, _ = torch.split(output, [self._choices, self._size, self._size], dim=1)
        choice = logit.argmax(dim=1, keepdim=True).to(output.dtype)
        return torch.cat([choice, self._gaussian.tensor_to_env(mu)], dim=1)

    def check_mask(self, mask: Array) -> None:
        raise SchemaError("an action mask came with hybrid actions, whose choices it cannot forbid: take it out")

    def log_prob_and_entropy(self, output: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        logit, mu, log_sigma = torch.split(output, [self._choices, self._size, self._size], dim=1)
        mask = torch.as_tensor(self._mask, device=output.device)
        choice, raw = action[:, 0].long(), action[:, 1:]
        log_prob, entropy = Categorical().log_prob_and_entropy(logit, choice)
        noise = (raw - mu) * (-log_sigma).exp()
        each = -0.5 * noise * noise - log_sigma - _HALF_LOG_TWO_PI
        if self._squash:
            each = each - 2.0 * (math.log(2.0) - raw - F.softplus(-2.0 * raw))
        expected_use = F.softmax(logit, dim=1) @ mask
        return (
            log_prob + (mask[choice] * each).sum(dim=1),
            entropy + (expected_use * (log_sigma + _ENTROPY_OF_ONE)).sum(dim=1),
        )

    def kl(self, output: Tensor, other: Tensor) -> Tensor:
        sizes = [self._choices, self._size, self._size]
        logit, mu, log_sigma = torch.split(output, sizes, dim=1)
        other_logit, other_mu, other_log_sigma = torch.split(other, sizes, dim=1)
        log_ratio = log_sigma - other_log_sigma
        distance = (mu - other_mu) * (-other_log_sigma).exp()
        each = 0.5 * ((2.0 * log_ratio).exp() + distance * distance - 1.0) - log_ratio
        expected_use = F.softmax(logit, dim=1) @ torch.as_tensor(self._mask, device=output.device)
        kl: Tensor = Categorical().kl(logit, other_logit) + (expected_use * each).sum(dim=1)
        return kl

    def by_hand(self, output: Array, action: Array) -> ByHand:
        logit, mu, log_sigma = self._parts(output)
        choice, raw = action[:, 0].astype(np.int64), action[:, 1:]
        of_choice = Categorical().by_hand(logit, choice)
        per_sigma, used = np.exp(-log_sigma), self._mask[choice]
        noise = (raw - mu) * per_sigma
        log_prob = of_choice.log_prob + np.add.reduce(used * self._log_prob_of_each(noise, log_sigma, raw), axis=1)
        probs = np.exp(logit - np.maximum.reduce(logit, axis=1, keepdims=True))
        probs /= np.add.reduce(probs, axis=1, keepdims=True)
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

    def _parts(self, output: Array) -> tuple[Array, Array, Array]:
        """Return views of logits [R, K], means [R, P] and log sigmas [R, P]."""
        middle = self._choices + self._size
        return output[:, : self._choices], output[:, self._choices : middle], output[:, middle:]

    def _log_prob_of_each(self, noise: Array, log_sigma: Array, raw: Array) -> Array:
        """Return the log density of each parameter [R, P]."""
        each: Array = -(0.5 * noise * noise + log_sigma + np.float32(_HALF_LOG_TWO_PI))
        if self._squash:
            each -= 2.0 * (np.float32(math.log(2.0)) - raw - np.logaddexp(np.float32(0.0), -2.0 * raw))
        return each

    def _to_env(self, raw: Array) -> Array:
        action = raw.copy()
        action[:, 1:] = self._gaussian.to_env(raw[:, 1:])
        return action
