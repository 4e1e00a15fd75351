"""Rows of a made-up team whose agents leave, and what each agent's rows are by the definition: what tests share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from ding_like.config import deep_merge, to_plain
from ding_like.data.batch import obs_to_columns
from ding_like.data.rollout import Rollout
from ding_like.policy import Policy, create_policy, get_policy_cls

AGENTS, SEEN, STATE, ACTIONS, LANES = 3, 4, 5, 3, 4
SHAPES = {"agents": [AGENTS, SEEN], "alive": AGENTS, "ended": AGENTS, "rewards": AGENTS, "state": STATE}
SMALL: dict[str, Any] = dict(encoder_hidden_size_list=[8, 8], actor_head_layer_num=0, critic_head_layer_num=0)
BOX: dict[str, Any] = dict(action_space="continuous", action_low=[-2.0, 0.0] * AGENTS, action_high=[2.0, 1.0] * AGENTS)
# How an agent's rows of one episode come to an end in a rollout.
KINDS = {"left for good", "cut by itself", "team terminated", "team cut", "goes on"}


def make(name: str, *, box: bool = False, seed: int = 0, model: Any = SMALL, **changes: Any) -> Any:
    """Return a policy for the team, with small networks drawn with `seed`."""
    torch.manual_seed(seed)
    shape = 2 * AGENTS if box else [ACTIONS] * AGENTS
    own = dict(model={**model, "obs_shape": SHAPES, "action_shape": shape}, **(BOX if box else {}))
    cls = get_policy_cls(dict(type=name))
    return create_policy(deep_merge(deep_merge(to_plain(cls.default_config()), own), {**changes, "type": name}))


class Team:
    """Lanes of a team of three in which agents leave for good, or for the rest of the episode."""

    def __init__(self, seed: int = 0, *, masked: bool = False, leaves: float = 0.08, ends: float = 0.05) -> None:
        self.rng, self.masked, self._leaves, self._ends = np.random.default_rng(seed), masked, leaves, ends
        self.first = np.ones(LANES, bool)
        self.episode = np.arange(LANES)
        self.step = np.zeros(LANES, np.int64)
        self.obs = self._draw(np.ones((LANES, AGENTS), bool), np.zeros((LANES, AGENTS), bool))

    def _draw(self, alive: np.ndarray, ended: np.ndarray) -> dict[str, np.ndarray]:
        shapes = {"agents": (LANES, AGENTS, SEEN), "state": (LANES, STATE), "rewards": (LANES, AGENTS)}
        obs = {name: self.rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
        obs.update(alive=alive.astype(np.int8), ended=ended.astype(np.int8))
        if self.masked:
            mask = self.rng.random((LANES, AGENTS, ACTIONS)) < 0.6
            mask[..., 1] = True
            mask[~alive] = np.arange(ACTIONS) == 0
            obs["action_mask"] = mask.astype(np.int8)
        return obs

    def play(self, policy: Policy, steps: int, **setting: Any) -> Rollout:
        """Return a rollout of the policy's own actions."""
        rollout = Rollout(LANES)
        for _ in range(steps):
            columns = policy.collect_mode.actor.act(
                self.obs, lanes=np.arange(LANES), is_first=self.first, rng=self.rng, **setting
            )
            alive, ended = self.obs["alive"] != 0, self.obs["ended"] != 0
            leaves = (self.rng.random((LANES, AGENTS)) < self._leaves) & alive
            after_ended = ended | (leaves & (self.rng.random((LANES, AGENTS)) < 0.5))
            after_alive = alive & ~leaves
            over = self.rng.random((2, LANES)) < self._ends
            terminated = over[0] | after_ended.all(axis=1)
            truncated = (over[1] | ~after_alive.any(axis=1)) & ~terminated
            after = self._draw(after_alive, after_ended)
            rollout.append(
                {
                    **obs_to_columns("obs", self.obs),
                    **columns,
                    **obs_to_columns("next_obs", after),
                    "lane": np.arange(LANES),
                    "episode_id": self.episode.copy(),
                    "step": self.step.copy(),
                    "reward": after["rewards"].sum(axis=1),
                    "terminated": terminated,
                    "truncated": truncated,
                }
            )
            self.first = terminated | truncated
            self.episode, self.step = self.episode + LANES * self.first, np.where(self.first, 0, self.step + 1)
            fresh = self._draw(np.ones((LANES, AGENTS), bool), np.zeros((LANES, AGENTS), bool))
            self.obs = {
                name: np.where(self.first.reshape(-1, *[1] * (column.ndim - 1)), fresh[name], column)
                for name, column in after.items()
            }
        return rollout


class Life(NamedTuple):
    """Rows of one agent in one episode, in order of time, and how they come to an end."""

    agent: int
    rows: list[int]
    end: str  # one of KINDS

    @property
    def is_terminated(self) -> bool:
        return self.end in ("left for good", "team terminated")


def lives(columns: Any) -> Iterator[Life]:
    """Yield what each agent lived through, read off a team's rows one by one."""
    episodes = sorted(set(columns["episode_id"].tolist()))
    for episode in episodes:
        rows = [row for row in range(len(columns["lane"])) if columns["episode_id"][row] == episode]
        for agent in range(columns["obs/alive"].shape[1]):
            own = [row for row in rows if columns["obs/alive"][row, agent]]
            if not own:
                continue
            last = own[-1]
            if columns["terminated"][last]:
                end = "team terminated"
            elif columns["next_obs/ended"][last, agent]:
                end = "left for good"
            elif columns["truncated"][last]:
                end = "team cut"
            else:
                end = "goes on" if columns["next_obs/alive"][last, agent] else "cut by itself"
            yield Life(agent, own, end)


def view(columns: Any, row: int, agent: int, *, prefix: str = "obs", with_state: bool = False) -> torch.Tensor:
    """Return what a network is given of an agent in a row, [1, V] or [1, V + S]."""
    number = np.zeros(len(columns[f"{prefix}/agents"][row]), np.float32)
    number[agent] = 1.0
    parts = [columns[f"{prefix}/agents"][row, agent], number]
    return torch.from_numpy(np.concatenate([*parts, *([columns[f"{prefix}/state"][row]] if with_state else [])]))[None]
