"""Base of every reward model: its slot in the learner, transitions as tensors, updates, averages of several learners.

A learner gives each batch, before the policy sees it, to `collect`, `train` and `estimate` in this order. A method
overrides `update`, the loss of one minibatch, and `rewards`, the reward of transitions; one that learns nothing more
overrides `rewards` alone. The others are here. Networks are built in `build`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np
import torch
from easydict import EasyDict
from torch import Tensor, nn
from torch.nn import functional

from ding_like.config import declared_faults, deep_merge, inherited_config
from ding_like.data.batch import TransitionBatch, columns_to_obs, map_obs, split_mask
from ding_like.data.data_files import read_data
from ding_like.data.demonstrations import NOT_SET, Demonstrations
from ding_like.errors import ConfigError
from ding_like.model.encoder import ObsShape, lay_out
from ding_like.model.flat_params import FlatParams
from ding_like.model.layers import Activation, build_mlp
from ding_like.model.optimizer import FlatOptimizer
from ding_like.types import Config, Info, State
from ding_like.utils.bounds import ABOVE_0, FROM_0, FROM_1, Bounds, Configurable
from ding_like.utils.seeding import rng_state, set_rng_state

# Mean over all learners of a vector, in one message; None: there is one learner.
MeanOfLearners = Callable[[Tensor], Tensor]
# (observations, actions as the env takes them, action masks or None) -> the policy's log probabilities [N].
LogProb = Callable[[Any, Tensor, Any], Tensor]


@dataclass(frozen=True)
class Sizes:
    """Sizes of observations and actions, as a policy's `model` section has them."""

    obs_shape: ObsShape
    action_shape: int | Sequence[int]
    is_discrete: bool

    @classmethod
    def of_policy(cls, cfg: Config) -> Sizes:
        """Read a policy section that was fitted to an env. Raises ConfigError for hybrid actions."""
        kind, shape = cfg.get("action_space") or "discrete", cfg["model"]["action_shape"]
        if kind == "hybrid" or isinstance(shape, Mapping):
            raise ConfigError("reward models take discrete or continuous actions, and this env has hybrid ones.")
        return cls(cfg["model"]["obs_shape"], shape, kind == "discrete")

    @property
    def choices(self) -> tuple[int, ...]:
        """Numbers of choices of discrete actions, one for each of them."""
        return (self.action_shape,) if isinstance(self.action_shape, int) else tuple(self.action_shape)

    @property
    def action_size(self) -> int:
        """Length of an action as networks take it: of its one-hot form, where it is discrete."""
        return sum(self.choices) if self.is_discrete else prod(self.choices)


@dataclass(frozen=True, eq=False)
class Transitions:
    """Transitions as tensors; the steps of rows that are sequences lie one after another."""

    obs: Any  # [N, O...], or a dict of these
    action: Tensor  # [N, A] float32; one-hot of discrete actions
    next_obs: Any  # as obs
    reward: Tensor  # [N] float32
    terminated: Tensor  # [N] bool
    valid: Tensor | None = None  # [N] bool: steps within their episode; None: all
    mask: Tensor | None = None  # [N, A] which actions `obs` allows; None: all
    row_steps: int = 1  # steps of each row, which lie one after another; 1 as well of single transitions

    def __len__(self) -> int:
        return len(self.reward)

    def take(self, index: Tensor) -> Transitions:
        """Return the transitions at index [M] int64."""
        obs, next_obs = (map_obs(lambda it: it[index], each) for each in (self.obs, self.next_obs))
        valid, mask = (None if each is None else each[index] for each in (self.valid, self.mask))
        return Transitions(
            obs, self.action[index], next_obs, self.reward[index], self.terminated[index], valid, mask=mask
        )

    def within_episodes(self) -> Transitions:
        """Return the transitions that `valid` marks."""
        return self if self.valid is None else self.take(self.valid.nonzero().flatten())


class RewardModel(Configurable):
    """Model that gives transitions rewards and learns from the batches that the policy learns from.

    With `mean` it is one of several learners' models, equal on all of them: each computes gradients and statistics of
    its own rows, of which all use the mean. `rng` draws minibatches. A batch of the policy comes with
    `batches_per_collect - 1` others of the same collection.
    """

    config: dict[str, Any] = dict(
        type="",
        # Gradient steps for each collection of rows that the policy learns from.
        update_per_collect=10,
        batch_size=64,  # rows of a minibatch, from which one step is computed
        learning_rate=1e-3,  # learning rate of Adam
        # Largest norm of the gradient; None: no limit.
        grad_clip_norm=None,
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "update_per_collect": FROM_0,
        "batch_size": FROM_1,
        "learning_rate": ABOVE_0,
        "grad_clip_norm": ABOVE_0,
    }
    # Whether `self.expert` is read of `data_path`.
    needs_expert = False
    # Whether it takes rows that are sequences alone.
    needs_sequences = False
    monitored: tuple[str, ...] = ("reward_model_loss",)  # what the learner logs beside the policy's

    @classmethod
    def default_config(cls) -> EasyDict:
        """Return the defaults, those of the base classes included."""
        return inherited_config(cls)

    @classmethod
    def check_config(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the section `reward_model`."""
        yield from declared_faults(cls, cfg)
        if cls.needs_expert and not cfg["data_path"]:
            yield "data_path", NOT_SET

    def __init__(
        self,
        cfg: Config,
        sizes: Sizes,
        *,
        rng: np.random.Generator,
        device: str | torch.device = "cpu",
        batches_per_collect: int = 1,
        mean: MeanOfLearners | None = None,
        log_prob: LogProb | None = None,
    ) -> None:
        """Build the networks, which draw from torch's generator, and read the demonstrations.

        `log_prob` is the policy's. Raises ConfigError where it is needed and the policy has none.
        """
        self._cfg, self.sizes, self.device = EasyDict(deep_merge(self.default_config(), cfg)), sizes, device
        self._rng, self._mean, self._log_prob = rng, mean, log_prob
        if log_prob is None and self.needs_log_prob():
            raise ConfigError(
                f"reward model '{self._cfg.type}' needs the probabilities that the policy gives to actions, and this "
                "policy has none: choose policy 'ppo', 'a2c', 'sac' or 'discrete_sac', or reward_model.type='gail' or "
                "'airl' with reward_model.policy_term=False."
            )
        self._updates_per_batch, self._owed = self._cfg.update_per_collect / batches_per_collect, 0.0
        self._collected: Transitions | None = None
        self._laid_out: tuple[TransitionBatch, Transitions] | None = None  # the last batch, and the same as tensors
        self._is_pretrained = False
        self._params: FlatParams | None = None
        self._module = self.build().to(device)
        if any(each.requires_grad for each in self._module.parameters()):
            self._params = FlatParams(self._module)
            limits = {"learning_rate": self._cfg.learning_rate, "grad_clip_norm": self._cfg.grad_clip_norm}
            self._optimizer = FlatOptimizer(self._params, **limits)
        if self.needs_expert:
            self.expert = self.read_expert(self._cfg.data_path)

    # ---- what a method overrides

    def build(self) -> nn.Module:
        """Return the networks, which `update` and `rewards` find in `self.module`; it may hold buffers to save."""
        return nn.Module()

    def needs_log_prob(self) -> bool:
        """Return whether `log_prob` is called, which not every policy has."""
        return False

    def update(self, minibatch: Transitions) -> tuple[Tensor, Info]:
        """Return (loss of a minibatch of the policy's transitions, 0-dim; what to log of it)."""
        raise NotImplementedError(f"{type(self).__name__} has networks, and so must say how they learn: update().")

    @abstractmethod
    def rewards(self, transitions: Transitions) -> Tensor:
        """Return the rewards [N] of transitions; called without a gradient, for all rows of a batch at once."""

    def pretrain(self) -> Info:
        """Learn before the first batch, of the demonstrations alone, and return what the last step reports."""
        return {}

    # ---- the slot

    def collect(self, batch: TransitionBatch) -> None:
        """Take the batch that the policy learns from next, of which `train` draws."""
        self._collected = self.transitions_of(batch).within_episodes()

    def train(self) -> Info:
        """Take the gradient steps that are due for the batch collected last, and return what the last one reports.

        The first call runs `pretrain` before.
        """
        info: Info = {}
        if not self._is_pretrained:
            info, self._is_pretrained = self.pretrain(), True
        if self._params is None or self._collected is None:
            return info
        self._owed += self._updates_per_batch
        while self._owed >= 1.0:
            self._owed -= 1.0
            info = self._step(self._params, self.draw(self._collected))
        return info

    def estimate(self, batch: TransitionBatch) -> TransitionBatch:
        """Return a batch with these rewards; the one given stays as it is."""
        with torch.no_grad():
            reward = self.rewards(self.transitions_of(batch))
        reward = reward.reshape(batch["reward"].shape)
        if "mask" in batch.columns and "num_steps" in batch.columns:  # beyond an episode a row is zero
            steps = torch.arange(reward.shape[1], device=reward.device)
            reward = reward * (steps < torch.as_tensor(batch["num_steps"], device=reward.device)[:, None])
        return batch.with_columns(reward=reward.numpy() if reward.device.type == "cpu" else reward)

    def state_dict(self) -> State:
        """Return networks, optimizer, generator and the steps that are owed, for an exact resume."""
        state: dict[str, Any] = {"model": self._module.state_dict(), "owed": self._owed, "rng": rng_state(self._rng)}
        state["is_pretrained"] = self._is_pretrained
        if self._params is not None:
            state["optimizer"] = self._optimizer.state_dict()
        return state

    def load_state_dict(self, state: State) -> None:
        """Take over a copy of what `state_dict` returned."""
        self._module.load_state_dict(state["model"])
        self._owed, self._is_pretrained = state["owed"], state["is_pretrained"]
        set_rng_state(self._rng, state["rng"])
        if self._params is not None:
            self._optimizer.load_state_dict(state["optimizer"])

    # ---- tools

    @property
    def module(self) -> Any:  # Any: what `build` returned
        """Networks that `build` returned."""
        return self._module

    def transitions_of(self, batch: TransitionBatch) -> Transitions:
        """Return what `lay_out` makes of a batch, once where `collect` and `estimate` are given the same one."""
        if self._laid_out is None or self._laid_out[0] is not batch:
            self._laid_out = batch, self.lay_out(batch)
        return self._laid_out[1]

    def lay_out(self, batch: TransitionBatch) -> Transitions:
        """Return the transitions of rows, of which those that are sequences give as many as they have steps."""
        columns = batch.columns
        is_sequence = columns["reward"].ndim > 1
        obs, mask = split_mask(self._as_tensors(columns_to_obs("obs", columns)))
        if is_sequence:  # [B, L + 1, O...]
            mask = None if mask is None else mask[:, :-1].flatten(0, 1)
            next_obs = map_obs(lambda it: it[:, 1:].flatten(0, 1), obs)
            obs = map_obs(lambda it: it[:, :-1].flatten(0, 1), obs)
        else:
            next_obs = self._as_tensors(split_mask(columns_to_obs("next_obs", columns))[0])
        action, reward = self._as_tensors(columns["action"]), self._as_tensors(columns["reward"]).float()
        valid, row_steps = None, 1
        if is_sequence:
            action, row_steps = action.flatten(0, 1), reward.shape[1]
            valid = self._as_tensors(columns["mask"]).flatten() if "mask" in columns else None
        terminated = self._as_tensors(columns["terminated"]).bool().flatten()
        features = self.action_features(action)
        return Transitions(obs, features, next_obs, reward.flatten(), terminated, valid, mask, row_steps)

    def _as_tensors(self, value: Any) -> Any:
        return map_obs(lambda it: torch.as_tensor(it, device=self.device), value)

    def action_features(self, action: Tensor) -> Tensor:
        """Return actions as networks take them [N, A] float32: discrete ones, [N] or [N, K], one-hot."""
        if not self.sizes.is_discrete:
            return action.reshape(len(action), -1).float()
        each = action.reshape(len(action), -1).long()
        hot = [functional.one_hot(each[:, place], num) for place, num in enumerate(self.sizes.choices)]
        return torch.cat(hot, dim=1).float()

    def log_prob(self, transitions: Transitions) -> Tensor:
        """Return the log probabilities [N] that the policy, as it is now, gives to the actions; no gradient."""
        assert self._log_prob is not None, "a model that needs it"
        sizes, action = self.sizes, transitions.action
        if sizes.is_discrete:
            action = torch.stack([hot.argmax(dim=1) for hot in action.split(sizes.choices, dim=1)], dim=1)
            action = action[:, 0] if isinstance(sizes.action_shape, int) else action
        with torch.no_grad():
            return self._log_prob(transitions.obs, action, transitions.mask)

    def read_expert(self, path: str) -> Transitions:
        """Return the transitions of a file of demonstrations. Raises DingError where they do not fit the env."""
        return self.lay_out(self.demonstrations(path).batch())

    def demonstrations(self, path: str) -> Demonstrations:
        """Return a file of demonstrations. Raises SchemaError, ConfigError where they do not fit the env."""
        found, sizes = read_data(path), self.sizes
        num_actions = len(sizes.choices) if sizes.is_discrete else sizes.action_size
        found.check_actions(num_actions, sizes.choices if sizes.is_discrete else None)
        features = lay_out(sizes.obs_shape, activation="relu").to(self.device)
        try:
            with torch.no_grad():
                features(self.lay_out(found.batch()[:1]).obs)
        except (ValueError, RuntimeError) as error:
            raise ConfigError(f"{path} does not fit this env, whose obs_shape is {sizes.obs_shape}: {error}") from error
        return found

    def draw(self, transitions: Transitions, size: int | None = None) -> Transitions:
        """Return `size` transitions drawn with replacement, by default as many as a minibatch has."""
        index = self._rng.integers(len(transitions), size=self._cfg.batch_size if size is None else size)
        return transitions.take(torch.as_tensor(index, device=self.device))

    def mean_of_learners(self, values: Tensor) -> Tensor:
        """Return the mean of a vector over all learners; of one alone, the vector."""
        return values if self._mean is None else self._mean(values).to(values.device)

    def _step(self, params: FlatParams, minibatch: Transitions) -> Info:
        params.follow()
        loss, info = self.update(minibatch)
        loss = params.backward(loss)
        if self._mean is not None:
            params.grad_and_loss.copy_(self._mean(params.grad_and_loss))
        self._optimizer.step()
        return {"reward_model_loss": loss, **info}


class PairNetwork(nn.Module):
    """Network of observations, and with `action_size` of actions beside them, to [N, output_size].

    Images go through convolutions first, whole numbers are one-hot.
    """

    def __init__(
        self, obs_shape: ObsShape, hidden_size_list: Sequence[int], *, action_size: int = 0, output_size: int = 1,
        activation: Activation = "relu",
    ) -> None:  # fmt: skip
        super().__init__()
        self.features = lay_out(obs_shape, activation=activation)
        size = int(self.features.output_size) + action_size
        self.main = build_mlp(size, hidden_size_list, activation=activation)
        self.head = nn.Linear(int(hidden_size_list[-1]), output_size)

    def forward(self, obs: Any, action: Tensor | None = None) -> Tensor:
        """Return outputs [N, output_size]."""
        x = self.features(obs)
        out: Tensor = self.head(self.main(x if action is None else torch.cat([x, action], dim=1)))
        return out


class Moments(nn.Module):
    """Mean and deviation of all vectors seen so far [N, size], the same for all learners (Chan et al. 1983).

    They are buffers, and so saved with the networks.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.count: Tensor
        self.mean: Tensor
        self.square_sum: Tensor
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("square_sum", torch.zeros(size, dtype=torch.float64))

    def update(self, values: Tensor, mean_of_learners: Callable[[Tensor], Tensor] | None = None) -> None:
        """Take in vectors [N, size], or numbers [N] where size is 1; of several learners, the mean of each one's."""
        flat = values.detach().reshape(-1, len(self.mean)).double()
        new = torch.tensor([float(len(flat))], dtype=torch.float64, device=flat.device)
        sums = torch.cat([new, flat.sum(0), flat.square().sum(0)])
        if mean_of_learners is not None:
            sums = mean_of_learners(sums)
        num, mean = sums[0], sums[1 : 1 + len(self.mean)] / sums[0]
        square_sum = (sums[1 + len(self.mean) :] - num * mean.square()).clamp_(min=0.0)
        total, shift = self.count + num, mean - self.mean
        self.square_sum += square_sum + shift.square() * self.count * num / total
        self.mean += shift * num / total
        self.count.copy_(total)

    @property
    def std(self) -> Tensor:
        """Standard deviation [size] float32; 1 where there is none to speak of."""
        variance = self.square_sum / self.count.clamp(min=1.0)
        return torch.where(variance > 1e-12, variance.sqrt(), 1.0).float()

    def normalise(self, values: Tensor, limit: float = 5.0) -> Tensor:
        """Return vectors less the mean, by the deviation, within +-limit."""
        out: Tensor = ((values.float() - self.mean.float()) / self.std).clamp(-limit, limit)
        return out
