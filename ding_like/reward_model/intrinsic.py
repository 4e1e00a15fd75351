"""What exploration bonuses share: how they join the env's reward, and the networks that several of them have.

    reward = r + weight * b                with intrinsic_reward_type 'add'; 'assign' leaves r out

b is the bonus of a transition. Rows with a column `bonus_weight` [B] have their own share of it beside the weight, and
keep r in a column `env_reward`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from ding_like.data.batch import BONUS_WEIGHT, LAST_STEP, TransitionBatch
from ding_like.model.encoder import ObsShape, is_one_hot
from ding_like.model.layers import as_sizes, build_mlp, init_orthogonal
from ding_like.reward_model.base import MeanOfLearners, Moments, PairNetwork, RewardModel, Sizes
from ding_like.types import Config
from ding_like.utils.bounds import FINITE, FROM_0, Bounds


class IntrinsicRewardModel(RewardModel):
    """Reward model whose `rewards` are a bonus that joins the env's rewards."""

    config: dict[str, Any] = dict(
        # How the bonus joins the env's reward: "add", "assign" (in its place), or "new": a column `intrinsic_reward`
        # beside it, for a policy of your own.
        intrinsic_reward_type="add",
        intrinsic_reward_weight=0.01,  # what the bonus is multiplied by
        # Widths of the networks' layers; the last one is the number of features.
        hidden_size_list=[64, 64, 128],
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {"intrinsic_reward_weight": FROM_0}
    config_choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"intrinsic_reward_type": ("add", "assign", "new")}

    @classmethod
    def check_config(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the section `reward_model`."""
        yield from super().check_config(cfg)
        if len(cfg["hidden_size_list"]) < 2:
            sizes = list(cfg["hidden_size_list"])
            yield (
                "hidden_size_list",
                f"is {sizes}; give two widths or more, such as [64, 64]: the last is the features'",
            )

    def __init__(self, cfg: Config, sizes: Sizes, **settings: Any) -> None:
        """Build the networks; the last action and reward, where they are observed, are not in what is new."""
        shape = sizes.obs_shape
        if isinstance(shape, Mapping):
            sizes = replace(sizes, obs_shape={key: part for key, part in shape.items() if key not in LAST_STEP})
        super().__init__(cfg, sizes, **settings)

    def estimate(self, batch: TransitionBatch) -> TransitionBatch:
        """Return a batch whose rewards have the bonus in them; the one given stays as it is."""
        bonus = super().estimate(batch)["reward"]
        kind = self._cfg.intrinsic_reward_type
        if kind == "new":
            return batch.with_columns(intrinsic_reward=bonus)
        reward, bonus = (self._as_tensors(each).float() for each in (batch["reward"], bonus))
        bonus = self._cfg.intrinsic_reward_weight * bonus
        if BONUS_WEIGHT in batch.columns:
            share = self._as_tensors(batch[BONUS_WEIGHT])
            bonus = share.reshape(-1, *[1] * (bonus.ndim - 1)) * bonus
            batch = batch.with_columns(env_reward=batch["reward"])
        reward = bonus if kind == "assign" else reward + bonus
        return batch.with_columns(reward=reward.numpy() if reward.device.type == "cpu" else reward)


class DistillationRewardModel(IntrinsicRewardModel):
    """Bonus that has random network distillation in it: `distillation` are its networks."""

    config: dict[str, Any] = dict(
        # Normalise the observations of random network distillation by the moments of all that were seen.
        obs_norm=True,
        obs_norm_clamp_min=-5.0,  # lowest number of a normalised observation
        obs_norm_clamp_max=5.0,  # highest number of a normalised observation
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {"obs_norm_clamp_min": FINITE, "obs_norm_clamp_max": FINITE}

    @classmethod
    def check_config(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the section `reward_model`."""
        yield from super().check_config(cfg)
        low, high = cfg["obs_norm_clamp_min"], cfg["obs_norm_clamp_max"]
        if low >= high:
            yield "obs_norm_clamp_min", f"is {low}, not below obs_norm_clamp_max, {high}: give -5 and 5, say"

    def build_distillation(self) -> RandomDistance:
        """Return the networks, for `build` to put where `distillation` finds them."""
        cfg = self._cfg
        clamp = (cfg.obs_norm_clamp_min, cfg.obs_norm_clamp_max) if cfg.obs_norm else None
        return RandomDistance(self.sizes.obs_shape, cfg.hidden_size_list, clamp)

    @property
    @abstractmethod
    def distillation(self) -> RandomDistance:
        """Networks of random network distillation."""

    def collect(self, batch: TransitionBatch) -> None:
        """Take the batch that the policy learns from next, and the moments of it."""
        super().collect(batch)
        assert self._collected is not None
        self.distillation.observe(self._collected.next_obs, self.mean_of_learners)


class ObsMoments(nn.Module):
    """Observations less their running mean, by their running deviation, within limits.

    Of a dict each part has moments of its own; whole numbers that stand for categories stay as they are.
    """

    def __init__(self, obs_shape: ObsShape, low: float, high: float) -> None:
        super().__init__()
        self._low, self._high = low, high
        self._is_dict = isinstance(obs_shape, Mapping) and not is_one_hot(obs_shape)
        parts: Any = obs_shape if self._is_dict else {"": obs_shape}
        self._shapes = {key: as_sizes("obs_shape", shape) for key, shape in parts.items() if not is_one_hot(shape)}
        # A list and not a ModuleDict, which refuses keys with a dot in them.
        self.moments = nn.ModuleList(Moments(prod(shape)) for shape in self._shapes.values())

    # Any: observations are tensors, in a dict or not.
    def _parts(self, obs: Any) -> Iterator[tuple[str, Moments, Tensor]]:
        for (key, shape), moments in zip(self._shapes.items(), self.moments, strict=True):
            assert isinstance(moments, Moments)
            yield key, moments, (obs[key] if self._is_dict else obs).reshape(-1, prod(shape))

    def update(self, obs: Any, mean_of_learners: MeanOfLearners | None = None) -> None:
        """Take in observations [N, O...], or a dict of these."""
        for _, moments, values in self._parts(obs):
            moments.update(values, mean_of_learners)

    def forward(self, obs: Any) -> Any:
        """Return observations [N, O...] normalised."""
        found = dict(obs) if self._is_dict else {"": obs}
        for key, moments, values in self._parts(obs):
            normal = moments.normalise(values, float("inf")).clamp(self._low, self._high)
            found[key] = normal.reshape(-1, *self._shapes[key])
        return found if self._is_dict else found[""]


class RandomDistance(nn.Module):
    """Distance between a fixed random network's features and those of a network that predicts them.

    It is small for observations that the predictor has learned from (Burda et al. 2019). `moments` are those of all
    distances so far; None for `clamp`: observations are not normalised.
    """

    def __init__(self, obs_shape: ObsShape, hidden_size_list: Sequence[int], clamp: tuple[float, float] | None) -> None:
        super().__init__()
        *hidden, size = hidden_size_list
        self.inputs = None if clamp is None else ObsMoments(obs_shape, *clamp)
        self.target, self.predictor = (PairNetwork(obs_shape, hidden, output_size=size) for _ in range(2))
        for network in (self.target, self.predictor):
            init_orthogonal(network)
        self.target.requires_grad_(False)
        self.moments = Moments(1)

    def forward(self, obs: Any) -> Tensor:  # Any: a tensor, or a dict of these
        """Return the mean square of the features' differences [N]."""
        seen = obs if self.inputs is None else self.inputs(obs)
        return (self.predictor(seen) - self.target(seen)).square().mean(dim=1)

    def observe(self, obs: Any, mean_of_learners: MeanOfLearners) -> None:
        """Take in the moments of observations [N, O...] and of their distances."""
        with torch.no_grad():
            if self.inputs is not None:
                self.inputs.update(obs, mean_of_learners)
            self.moments.update(self(obs), mean_of_learners)


class InverseModel(nn.Module):
    """Features of observations, and the action between two of them by their features (Pathak et al. 2017).

    What of an observation no action influences helps with no action, and so is not in the features.
    """

    def __init__(self, sizes: Sizes, hidden_size_list: Sequence[int]) -> None:
        super().__init__()
        *hidden, self.output_size = hidden_size_list
        self._sizes = sizes
        self.features = PairNetwork(sizes.obs_shape, hidden, output_size=self.output_size)
        self.main = build_mlp(2 * self.output_size, hidden)
        self.head = nn.Linear(hidden[-1], sizes.action_size)

    def loss(self, features: Tensor, next_features: Tensor, action: Tensor) -> Tensor:
        """Return the loss of the action's prediction, a mean over transitions of features [N, F].

        It is -log p(a), summed over the discrete actions of a step, or |a - a_hat|^2 / 2 of a continuous one.
        """
        predicted = self.head(self.main(torch.cat([features, next_features], dim=1)))
        if not self._sizes.is_discrete:
            return 0.5 * (predicted - action).square().sum(dim=1).mean()
        parts = zip(predicted.split(self._sizes.choices, dim=1), action.split(self._sizes.choices, dim=1), strict=True)
        each = [functional.cross_entropy(logits, chosen.argmax(dim=1)) for logits, chosen in parts]
        return torch.stack(each).sum()
