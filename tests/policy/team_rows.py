"""A small team with central critics, whose agents leave at times, and networks of one agent at a time."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ding_like.config import deep_merge, to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.policy import get_policy_cls

AGENTS, OBS, STATE, ACTIONS, ROWS, GAMMA = 3, 4, 5, 2, 14, 0.9
SHAPES: dict[str, Any] = {
    "agents": [AGENTS, OBS],
    "alive": AGENTS,
    "ended": AGENTS,
    "rewards": AGENTS,
    "state": STATE,
}
# Bounds that differ in width and centre, so that a forgotten scaling shows.
LOW, HIGH = np.array([-2.0, 0.0] * AGENTS), np.array([2.0, 0.5] * AGENTS)
CENTRE, HALF = (LOW + HIGH) / 2, (HIGH - LOW) / 2
DISCRETE = 3  # actions of an agent, where they are discrete


def make_team(name: str, *, discrete: bool, **changes: Any) -> Any:
    """Return a small policy whose weights are large, so that all gradients are, and whose targets differ from them."""
    torch.manual_seed(0)
    cls = get_policy_cls({"type": name})
    model = dict(obs_shape=SHAPES, actor_hidden_size_list=[8], critic_hidden_size_list=[8, 8])
    model["action_shape"] = [DISCRETE] * AGENTS if discrete else ACTIONS * AGENTS
    bounds = {} if discrete else dict(action_low=LOW.tolist(), action_high=HIGH.tolist())
    own = dict(discount_factor=GAMMA, model=model, learn=dict(target_theta=0.25), **bounds)
    policy: Any = cls(deep_merge(deep_merge(to_plain(cls.default_config()), own), changes))
    for part, network in policy._networks().items():
        if part != "temperature":
            network.params.data_vector.mul_(2.0)
        if network.target is not None:
            noise = 0.1 * torch.randn_like(network.params.data_vector)
            network.target_params.data_vector.copy_(network.params.data_vector + noise)
    return policy


def team_rows(*, discrete: bool, seed: int = 0, masked: bool = False, **columns: Any) -> TransitionBatch:
    """Return rows in which agents act, end, run out of time or have left, each paid apart; some end the episode."""
    rng = np.random.default_rng(seed)
    made: dict[str, Any] = {}
    for prefix in ("obs", "next_obs"):
        made[f"{prefix}/agents"] = rng.normal(size=(ROWS, AGENTS, OBS)).astype(np.float32)
        made[f"{prefix}/state"] = rng.normal(size=(ROWS, STATE)).astype(np.float32)
        made[f"{prefix}/rewards"] = rng.normal(size=(ROWS, AGENTS)).astype(np.float32)
    alive = rng.random((ROWS, AGENTS)) < 0.7
    fate = rng.integers(0, 3, (ROWS, AGENTS))  # acts on, ends, runs out of time
    terminated = rng.random(ROWS) < 0.2
    made["obs/alive"], made["obs/ended"] = alive, ~alive & (rng.random((ROWS, AGENTS)) < 0.5)
    made["next_obs/alive"] = alive & (fate == 0) & ~terminated[:, None]
    made["next_obs/ended"] = made["obs/ended"] | (alive & (fate == 1))
    made = {name: value.astype(np.int8) if value.dtype == bool else value for name, value in made.items()}
    if discrete:
        made["action"] = rng.integers(0, DISCRETE, (ROWS, AGENTS))
    else:
        made["action"] = rng.uniform(LOW, HIGH, (ROWS, AGENTS * ACTIONS)).astype(np.float32)
    for prefix in ("obs", "next_obs") if masked else ():
        # The last agent has one action less, and all have some that are forbidden.
        mask = rng.random((ROWS, AGENTS, DISCRETE)) < 0.6
        mask[:, :, 0] = True
        mask[:, -1, -1] = False
        if prefix == "obs":
            made["action"][:, -1] %= DISCRETE - 1
            np.put_along_axis(mask, made["action"][:, :, None], values=True, axis=2)
        made[f"{prefix}/action_mask"] = mask.astype(np.int8)
    made["reward"] = made["next_obs/rewards"].sum(axis=1)
    made["terminated"], made["truncated"] = terminated, ~terminated & (rng.random(ROWS) < 0.3)
    return TransitionBatch({**made, **columns})


def double(module: torch.nn.Module) -> torch.nn.Module:
    """Return a copy in float64, which a float32 result is held against."""
    return copy.deepcopy(module).double()


def of_agent(net: Any, agent: int, groups: list[int], x: Tensor, *, critic: int = 0) -> Tensor:
    """Return what the network of an agent gives for one input [I], layer by layer."""
    if len(set(groups)) < len(groups):
        x = torch.cat([x, torch.eye(AGENTS, dtype=x.dtype)[agent]])
    number = critic * len(set(groups)) + groups[agent]
    weights = list(zip(net.mlp.weights, net.mlp.biases, strict=True))
    for layer, (weight, bias) in enumerate(weights):
        x = x @ weight[number] + bias[number, 0]
        x = x.relu() if layer < len(weights) - 1 else x
    return x


class Networks:
    """Actors and critics of a policy in float64, asked for one agent and one row at a time."""

    def __init__(self, policy: Any, groups: list[int], *, seen: str = "state") -> None:
        self.groups, self.seen = groups, seen
        self.actor, self.critic = (double(policy._networks()[name].network) for name in ("actor", "critic"))
        self.next_critic = double(policy._critic.target)
        self.next_actor = self.actor if policy._actor.target is None else double(policy._actor.target)
        self.num_critics = self.critic.net.num

    def act(self, row: Any, prefix: str, agent: int, *, target: bool = False) -> Tensor:
        """Return what the actor of an agent gives."""
        net = (self.next_actor if target else self.actor).net
        return of_agent(net, agent, self.groups, torch.tensor(row[f"{prefix}/agents"][agent], dtype=torch.float64))

    def values(self, row: Any, prefix: str, agent: int, actions: list[Tensor], *, target: bool = False) -> list[Tensor]:
        """Return the values that each critic of an agent gives of what all agents do."""
        seen = torch.tensor(row[f"{prefix}/{self.seen}"], dtype=torch.float64).flatten()
        net = (self.next_critic if target else self.critic).net
        x = torch.cat([seen, *actions])
        return [of_agent(net, agent, self.groups, x, critic=number) for number in range(self.num_critics)]


def joint(own: Tensor, agent: int, others: list[Tensor], acts: Any) -> list[Tensor]:
    """Return what an agent's critics are given: its own action, and those of others that act."""
    return [
        own if other == agent else action if acts[other] else torch.zeros_like(action)
        for other, action in enumerate(others)
    ]


def row_action(row: Any, *, discrete: bool) -> list[Tensor]:
    """Return the action of each agent in a row, in [-1, 1] or one-hot."""
    if discrete:
        return [torch.eye(DISCRETE, dtype=torch.float64)[int(chosen)] for chosen in row["action"]]
    return list(torch.tensor((row["action"].astype(np.float64) - CENTRE) / HALF).reshape(AGENTS, ACTIONS))


def what_follows(row: Any, agent: int, value: float, *, ignore_done: bool) -> float:
    """Return the target of an agent: its own reward and what follows, unless it has ended."""
    is_over = bool(row["terminated"]) or bool(row["next_obs/ended"][agent])
    return float(row["next_obs/rewards"][agent]) + (0.0 if is_over and not ignore_done else GAMMA * value)


def drawn_by(policy: Any, *shape: int, num: int, kind: str) -> list[Tensor]:
    """Return the random numbers that a policy draws next, without drawing them."""
    generator = torch.Generator()
    generator.set_state(policy._noise.state)
    draw = torch.rand if kind == "uniform" else torch.randn
    return [draw(shape, generator=generator).double() for _ in range(num)]
