"""T-REX: a reward from ranked demonstrations, which may be better than the best of them (Brown et al. 2019).

For two episodes of different rank, and a snippet of each, both of one length,

    R    = sum of r(s) over a snippet
    loss = -mean(log(exp(R_better) / (exp(R_better) + exp(R_worse))))     equation 3

The network is trained on the demonstrations before the first batch, and then stays as it is. The policy's reward is
r(s), less its mean over the demonstrations, by its deviation there. Snippets of one length leave the level of r open,
and where episodes may end early, rewards below 0 make an early end the best. With `whole_episodes` R is of episodes of
different lengths and the ranking decides the level as well, which the policy's reward keeps with `centre=False`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from ding_like.config import declared_faults
from ding_like.data.batch import TransitionBatch
from ding_like.data.demonstrations import Demonstrations
from ding_like.errors import ConfigError
from ding_like.reward_model.base import Moments, PairNetwork, RewardModel, Transitions
from ding_like.types import Array, Config, Info
from ding_like.utils.bounds import FROM_0, FROM_1, Bounds
from ding_like.utils.registries import REWARD_MODEL_REGISTRY

logger = logging.getLogger(__name__)

_REPORTED = 100  # updates that the report of the training is a mean of
_CHUNK = 8192  # steps of demonstrations whose rewards are computed at once


class Ranking:
    """Episodes [K] of consecutive steps, from the worst to the best."""

    def __init__(self, episode: Array, rank: Array, source: str) -> None:
        """Take the episode and the rank of each step [N].

        Raises ConfigError for an episode with several ranks, and where all have the same.
        """
        start = np.flatnonzero(np.diff(episode, prepend=episode[0] - 1))
        length = np.diff(start, append=len(episode))
        of_episode = rank[start]
        if mixed := np.flatnonzero(rank != of_episode.repeat(length)).tolist():
            raise ConfigError(f"{source} has two ranks in one episode, at row {mixed[0]}: give all its steps the same.")
        order = of_episode.argsort(kind="stable")
        self.start, self.length, self.rank = start[order], length[order], of_episode[order]
        self.num_worse = np.searchsorted(self.rank, self.rank)  # episodes of a lower rank, which are the first ones
        self._last_pair = self.num_worse.cumsum()
        if not self._last_pair[-1]:
            raise ConfigError(f"all {len(start)} episodes of {source} have the same rank: give two ranks or more.")

    def __len__(self) -> int:
        return len(self.start)

    @property
    def num_ranks(self) -> int:
        """Number of different ranks."""
        return len(np.unique(self.rank))

    def draw_pairs(self, rng: np.random.Generator, size: int) -> Array:
        """Return places [2, size] of a worse and a better episode, any pair of different ranks as likely as another."""
        number = rng.integers(self._last_pair[-1], size=size)
        better = np.searchsorted(self._last_pair, number, side="right")
        return np.stack([number - self._last_pair[better] + self.num_worse[better], better])

    def draw_snippets(self, rng: np.random.Generator, size: int, *, shortest: int, longest: int) -> tuple[Array, Array]:
        """Return (first rows, lengths) [2, size] of a snippet of each episode of `draw_pairs`.

        The two of a pair are of one length, which is that of the shorter episode where this has fewer steps.
        """
        pair = self.draw_pairs(rng, size)
        available = self.length[pair]
        length = np.minimum(rng.integers(shortest, longest, size=size, endpoint=True), available.min(axis=0))
        return self.start[pair] + rng.integers(available - length, endpoint=True), np.stack([length, length])

    def draw_episodes(self, rng: np.random.Generator, size: int) -> tuple[Array, Array]:
        """Return (first rows, lengths) [2, size] of the whole episodes of `draw_pairs`."""
        pair = self.draw_pairs(rng, size)
        return self.start[pair], self.length[pair]


class RankedNetwork(nn.Module):
    """Network of r(s), or of r(s, a) with `action_size`, with the moments of its output over the demonstrations."""

    def __init__(self, obs_shape: Any, hidden_size_list: Sequence[int], *, action_size: int) -> None:
        super().__init__()
        self.takes_action = action_size > 0
        self.net = PairNetwork(obs_shape, hidden_size_list, action_size=action_size)
        self.moments = Moments(1)
        # All differences between steps are learned of the ranking, none is of the first weights.
        nn.init.zeros_(self.net.head.weight)
        nn.init.zeros_(self.net.head.bias)

    def forward(self, transitions: Transitions) -> Tensor:
        """Return r [N]."""
        out: Tensor = self.net(transitions.obs, transitions.action if self.takes_action else None)[:, 0]
        return out


@REWARD_MODEL_REGISTRY.register("trex")
class TREXRewardModel(RewardModel):
    """Reward network that orders ranked episodes by their returns; it reads no reward."""

    config: dict[str, Any] = dict(
        type="trex",
        # File of demonstrations with a column `rank` (higher is better), or a list of files, worst first.
        data_path="",
        # Widths of the network's hidden layers.
        hidden_size_list=[64, 64],
        # Whether the network takes the action beside the observation.
        with_action=False,
        # Gradient steps before the run.
        pretrain_updates=1000,
        # Pairs of snippets of a minibatch.
        batch_size=64,
        # Steps of the shortest snippets; of a shorter episode they are all its steps.
        min_snippet_length=25,
        # Steps of the longest snippets.
        max_snippet_length=50,
        # Whether whole episodes are compared in place of snippets.
        whole_episodes=False,
        # Weight of the mean of |r|, which is added to the loss.
        l1_weight=0.0,
        # Whether the policy's reward is r less its mean over the demonstrations, by its deviation; else it is r by its
        # root mean square, which keeps its sign.
        centre=True,
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "pretrain_updates": FROM_1,
        "min_snippet_length": FROM_1,
        "max_snippet_length": FROM_1,
        "l1_weight": FROM_0,
    }
    config_types: ClassVar[Mapping[str, tuple[type, ...]]] = {"data_path": (str, list)}
    config_idle: ClassVar[Mapping[str, tuple[bool, tuple[str, ...]]]] = {
        "whole_episodes": (True, ("min_snippet_length", "max_snippet_length"))
    }
    without_effect: ClassVar[Mapping[str, str]] = {
        "update_per_collect": "the network is trained before the run, by pretrain_updates"
    }
    needs_expert = True
    monitored = ("reward_model_loss", "pair_accuracy")
    # Column of a file that orders its episodes, and the sign by which higher is better.
    rank_column: ClassVar[str] = "rank"
    rank_sign: ClassVar[int] = 1
    ranking: Ranking  # of the episodes of `expert`

    @classmethod
    def check_config(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the section `reward_model`."""
        yield from declared_faults(cls, cfg)
        if not cfg["data_path"]:
            yield "data_path", f"is not set: give a file of demonstrations with a column '{cls.rank_column}'"
        if cfg["min_snippet_length"] > cfg["max_snippet_length"]:
            yield "min_snippet_length", f"is above max_snippet_length, {cfg['max_snippet_length']}"

    def build(self) -> nn.Module:
        """Return the network."""
        action_size = self.sizes.action_size if self._cfg.with_action else 0
        return RankedNetwork(self.sizes.obs_shape, self._cfg.hidden_size_list, action_size=action_size)

    def read_expert(self, path: str | Sequence[str]) -> Transitions:
        """Return the steps of all files, and keep the ranking of their episodes.

        Raises ConfigError for files that do not fit the env, and without two different ranks.
        """
        files, is_one = ([path], True) if isinstance(path, str) else (path, False)
        found = [self.demonstrations(each) for each in files]
        ranks = [self._ranks(each) if is_one else np.full(len(each), i) for i, each in enumerate(found)]
        file = np.repeat(np.arange(len(found)), [len(each) for each in found])
        ids = np.concatenate([each.columns["episode_id"] for each in found])
        episode = np.cumsum((np.diff(file, prepend=0) != 0) | (np.diff(ids, prepend=ids[0]) != 0))
        names = set.intersection(*(set(each.columns) for each in found))
        columns = {name: np.concatenate([each.columns[name] for each in found]) for name in names}
        self.ranking = Ranking(episode, np.concatenate(ranks), found[0].source if is_one else f"the files {path}")
        steps = self.lay_out(TransitionBatch(columns))
        # Without `next_obs`, of which half of the memory would be.
        return Transitions(steps.obs, steps.action, {}, steps.reward, steps.terminated)

    def _ranks(self, demonstrations: Demonstrations) -> Array:
        if self.rank_column not in demonstrations.columns:
            raise ConfigError(
                f"{demonstrations.source} has no column '{self.rank_column}', by which its episodes are ranked: write "
                f"one with ding_like.entry.ranked_data, or give a list of files, from the worst to the best."
            )
        rank: Array = self.rank_sign * demonstrations.columns[self.rank_column]
        return rank

    def draw_snippets(self) -> Transitions:
        """Return a minibatch of pairs of snippets: steps [2 * batch_size * L], the worse ones first.

        L is the length of the longest. Steps behind the end of a snippet are not `valid`.
        """
        cfg = self._cfg
        if cfg.whole_episodes:
            start, length = self.ranking.draw_episodes(self._rng, cfg.batch_size)
        else:
            lengths = {"shortest": cfg.min_snippet_length, "longest": cfg.max_snippet_length}
            start, length = self.ranking.draw_snippets(self._rng, cfg.batch_size, **lengths)
        step = np.arange(length.max())
        valid = step < length[..., None]
        rows = start[..., None] + step * valid
        steps = self.expert.take(torch.as_tensor(rows.ravel(), device=self.device))
        return replace(steps, valid=torch.as_tensor(valid.ravel(), device=self.device))

    def update(self, minibatch: Transitions) -> tuple[Tensor, Info]:
        """Return (the loss of pairs of snippets, the share of pairs that the network orders right)."""
        assert minibatch.valid is not None, "draw_snippets marks the steps"
        steps = self.module(minibatch.within_episodes())
        reward = steps.new_zeros(len(minibatch)).masked_scatter(minibatch.valid, steps)
        worse, better = reward.reshape(2, self._cfg.batch_size, -1).sum(dim=2)
        loss = functional.softplus(worse - better).mean()
        if self._cfg.l1_weight:
            loss = loss + self._cfg.l1_weight * steps.abs().mean()
        return loss, {"pair_accuracy": (better > worse).float().mean()}

    def pretrain(self) -> Info:
        """Train the network on pairs of snippets, and measure the mean and the deviation of its rewards."""
        assert self._params is not None, "there is a network"
        infos: list[Info] = []
        for _ in range(self._cfg.pretrain_updates):
            info = self._step(self._params, self.draw_snippets())
            infos = [*infos[1 - _REPORTED :], {name: value.clone() for name, value in info.items()}]
        with torch.no_grad():
            for index in torch.arange(len(self.expert), device=self.device).split(_CHUNK):
                self.module.moments.update(self.module(self.expert.take(index)))
        mean = {name: torch.stack([each[name] for each in infos]).mean() for name in self.monitored}
        logger.info(
            "reward model '%s': %d updates on %d episodes of %d ranks; of the last %d: loss %.3f, accuracy %.3f",
            *(self._cfg.type, self._cfg.pretrain_updates, len(self.ranking), self.ranking.num_ranks, len(infos)),
            *(float(mean[name]) for name in self.monitored),
        )
        return mean

    def collect(self, batch: TransitionBatch) -> None:
        """Keep nothing: the network learns no more once the policy does."""

    def rewards(self, transitions: Transitions) -> Tensor:
        """Return rewards [N] by their deviation over the demonstrations, with `centre` less their mean there."""
        moments: Moments = self.module.moments
        reward: Tensor = self.module(transitions)
        if self._cfg.centre:
            return (reward - moments.mean.float()) / moments.std
        return reward / (moments.mean.square() + moments.std.square()).sqrt().float()
