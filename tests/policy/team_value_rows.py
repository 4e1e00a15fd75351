"""Rows of a team for tests of losses: agents that have left, masks, ends of both kinds; and slow obvious versions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ding_like.config import deep_merge, to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.policy import create_policy, get_policy_cls

AGENTS, OBS, STATE, ACTIONS, ROWS = 3, 4, 5, 4, 9
OBS_SHAPE = {"agents": [AGENTS, OBS], "state": STATE, "alive": AGENTS, "ended": AGENTS, "rewards": AGENTS}


def make(name: str, *, model: dict[str, Any] | None = None, **cfg: Any) -> Any:
    """Return a small policy of a team whose target network differs from the online one."""
    torch.manual_seed(0)
    own = dict(obs_shape=OBS_SHAPE, action_shape=[ACTIONS] * AGENTS, hidden_size_list=[8], **(model or {}))
    defaults = to_plain(get_policy_cls({"type": name}).default_config())
    policy: Any = create_policy(deep_merge(defaults, {"type": name, "model": own, **cfg}))
    with torch.no_grad():
        for parameter in policy._target_model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return policy


def rows(seed: int = 0, *, masked: bool = True) -> TransitionBatch:
    """Return rows in which the last agent has left before some of them, and others leave or end in some."""
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {}
    for prefix in ("obs", "next_obs"):
        columns[f"{prefix}/agents"] = rng.normal(size=(ROWS, AGENTS, OBS)).astype(np.float32)
        columns[f"{prefix}/state"] = rng.normal(size=(ROWS, STATE)).astype(np.float32)
        columns[f"{prefix}/rewards"] = rng.normal(size=(ROWS, AGENTS)).astype(np.float32)
        if masked:
            mask = rng.random((ROWS, AGENTS, ACTIONS)) < 0.6
            np.put_along_axis(mask, rng.integers(0, ACTIONS, (ROWS, AGENTS, 1)), True, axis=2)
            columns[f"{prefix}/action_mask"] = mask.astype(np.int8)
    alive = np.ones((ROWS, AGENTS), np.int8)
    alive[::3, 2] = 0
    leaves = rng.random((ROWS, AGENTS)) < 0.3
    leaves[:, 0] = False  # one of them goes on
    columns["obs/alive"], columns["obs/ended"] = alive, 1 - alive
    columns["next_obs/alive"] = (alive & ~leaves).astype(np.int8)
    columns["next_obs/ended"] = 1 - columns["next_obs/alive"]
    columns["action"] = rng.integers(0, ACTIONS, (ROWS, AGENTS))
    columns["reward"] = rng.normal(size=ROWS).astype(np.float32)
    columns["terminated"] = np.arange(ROWS) % 4 == 1
    columns["truncated"] = np.arange(ROWS) % 4 == 2
    columns["weight"] = np.linspace(0.1, 2.0, ROWS).astype(np.float32)
    return TransitionBatch(columns)


def tensor(batch: TransitionBatch, name: str, row: int) -> torch.Tensor:
    """Return one row's entry, float."""
    return torch.from_numpy(np.array(batch[name][row])).float()


def named(batch: TransitionBatch, prefix: str, row: int, agent: int) -> torch.Tensor:
    """Return what an agent's network is given: its observation and its number."""
    number = torch.zeros(AGENTS)
    number[agent] = 1.0
    return torch.cat([tensor(batch, f"{prefix}/agents", row)[agent], number])


def agent_values(network: Any, batch: TransitionBatch, prefix: str, row: int) -> list[torch.Tensor]:
    """Return the action values [A] of each agent, one after the other."""
    return [network.head(network.agent(named(batch, prefix, row, agent)[None]))[0] for agent in range(AGENTS)]


def here(batch: TransitionBatch, prefix: str, row: int) -> list[int]:
    """Return the agents that act."""
    return [agent for agent in range(AGENTS) if batch[f"{prefix}/alive"][row, agent]]


def legal(batch: TransitionBatch, prefix: str, row: int, agent: int) -> list[int]:
    """Return the actions that an agent may take."""
    name = f"{prefix}/action_mask"
    if name not in batch.columns:
        return list(range(ACTIONS))
    return [int(each) for each in np.flatnonzero(batch[name][row, agent])]


def greedy(values: list[torch.Tensor], batch: TransitionBatch, prefix: str, row: int) -> list[int]:
    """Return each agent's best legal action."""
    return [max(legal(batch, prefix, row, agent), key=own.tolist().__getitem__) for agent, own in enumerate(values)]


def monotonic(mixer: Any, values: dict[int, torch.Tensor], state: torch.Tensor) -> torch.Tensor:
    """Return what QMIX's mixer makes of the values of those agents that are there."""
    first = mixer.first_weight(state).abs().reshape(AGENTS, -1)
    hidden = mixer.first_bias(state) + sum(value * first[agent] for agent, value in values.items())
    hidden = torch.where(hidden > 0, hidden, hidden.exp() - 1)
    return (hidden * mixer.last_weight(state).abs()).sum() + mixer.last_bias(state)[0]


def target_of(batch: TransitionBatch, row: int, value: torch.Tensor) -> float:
    """Return y: what follows counts unless the row terminated."""
    following = 0.0 if batch["terminated"][row] else 0.99 * value.item()
    return float(batch["reward"][row]) + following


def gradients(policy: Any) -> dict[str, torch.Tensor]:
    """Return the gradient that an update has filled, by parameter."""
    return {name: each.grad.clone() for name, each in policy._model.named_parameters()}


def slow_gradients(policy: Any, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the gradient of a loss that was put together by hand."""
    names, parameters = zip(*policy._model.named_parameters(), strict=True)
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    pairs = zip(names, parameters, found, strict=True)
    return {name: torch.zeros_like(own) if grad is None else grad for name, own, grad in pairs}


def assert_close(ours: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    """Compare gradients by name."""
    assert ours.keys() == wanted.keys()
    for name, grad in wanted.items():
        torch.testing.assert_close(ours[name], grad, rtol=1e-4, atol=1e-6, msg=name)
