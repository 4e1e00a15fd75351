"""Torch module of an agent: from observations, and recurrent state, to the actions that it would choose.

What comes before and behind the network is a chain of small modules: normalisation with the statistics of a checkpoint,
the choice of the action, and the scaling of actions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium import spaces, wrappers
from torch import Tensor, nn

from ding_like.agent.loaded import Agent
from ding_like.agent.observations import RawBatch, Space, by_flat_name, leaves_of
from ding_like.agent.wrappers import NO_EFFECT, AnyWrapper, layers_of
from ding_like.data.obs import split_mask
from ding_like.envs.spaces import ActionLayout, ObsLayout
from ding_like.envs.wrappers.common import DiscreteAction
from ding_like.envs.wrappers.normalization import ObsNorm
from ding_like.errors import ConfigError
from ding_like.types import Array

_Step = Callable[[Tensor], Tensor]


class Port(NamedTuple):
    """Input or output of an exported file; the batch axis goes before its shape."""

    name: str
    shape: tuple[int, ...]
    dtype: str


class ExportedAgent(nn.Module):
    """Module that chooses actions [B, ...] for observations; its tensors are in the order of the ports.

    Inputs are the observation's arrays by flat name, then the recurrent state; outputs the action, then the state.
    """

    def __init__(self, agent: Agent) -> None:
        """Raise ConfigError for a policy whose actor does not act by one network."""
        super().__init__()
        # Any: users write actors too, which may lack these.
        forward: Any = getattr(agent.actor, "forward", None)
        choose: Any = getattr(agent.actor, "choose", None)
        if not callable(getattr(forward, "run_tensors", None)) or not callable(getattr(choose, "best", None)):
            raise ConfigError(
                f"policy '{agent.description.policy_name}' cannot be exported: its actor is no ForwardActor whose "
                "forward has run_tensors(obs, state) and whose choice has best(output, mask). Use ding_like.load or "
                "`ding serve`."
            )
        self.model = agent.policy.get_attribute("model").eval()
        for parameter in self.model.parameters():
            parameter.requires_grad_(False)
        self._run, self._best = forward.run_tensors, choose.best
        self._leaves = leaves_of(agent.observation_space)
        self._is_dict = isinstance(agent.observation_space, spaces.Dict)
        self._before = [step for layer in reversed(list(layers_of(agent.wrapping.stack))) for step in _obs_steps(layer)]
        held = leaves_of(ObsLayout(agent.wrapping.stack.observation_space).space)
        self._held = {name: _torch_dtype(np.dtype(leaf.dtype)) for name, leaf in held.items()}
        self._behind = _action_steps(agent)
        self.initial_state: dict[str, Array] = {
            name: np.asarray(value) for name, value in getattr(forward, "initial_state", {}).items()
        }
        self.inputs = [
            *(Port(_named(name), tuple(leaf.shape or ()), str(leaf.dtype)) for name, leaf in self._leaves.items()),
            *self._state_ports(""),
        ]
        acts = agent.action_space
        self.outputs = [Port("action", tuple(acts.shape or ()), str(acts.dtype)), *self._state_ports("next_")]

    def _state_ports(self, prefix: str) -> list[Port]:
        return [Port(f"{prefix}state/{name}", v.shape, str(v.dtype)) for name, v in self.initial_state.items()]

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return (actions [B, ...], the recurrent state behind them)."""
        num_leaves = len(self._leaves)
        leaves = dict(zip(self._leaves, inputs[:num_leaves], strict=True))
        state = dict(zip(self.initial_state, inputs[num_leaves:], strict=True))
        for step in self._before:
            leaves = {name: step(leaf) for name, leaf in leaves.items()}
        for name, leaf in leaves.items():
            start = getattr(self._leaves.get(name), "start", 0)
            counted = leaf - torch.as_tensor(np.asarray(start), dtype=leaf.dtype) if np.any(start) else leaf
            leaves[name] = counted.to(self._held[name])
        obs, mask = split_mask(leaves if self._is_dict else leaves[""])
        output, after = self._run(obs, state)
        action = self._best(output, mask)
        for step in self._behind:
            action = step(action)
        return (action, *(after[name] for name in self.initial_state))


def can_be_exported(layer: AnyWrapper) -> bool:
    """Return whether a wrapper's work can be done by an exported file."""
    if isinstance(layer, (ObsNorm, wrappers.RescaleAction, wrappers.ClipAction, DiscreteAction)):
        return True
    if isinstance(layer, wrappers.FlattenObservation):
        return isinstance(layer.env.observation_space, spaces.Box)
    return isinstance(layer, NO_EFFECT)


def _obs_steps(layer: AnyWrapper) -> Sequence[_Step]:
    if isinstance(layer, ObsNorm):
        return [_normalise(layer)]
    if isinstance(layer, wrappers.FlattenObservation):
        return [lambda obs: obs.flatten(start_dim=1)]
    return []


def _normalise(layer: ObsNorm) -> _Step:
    mean, var = torch.as_tensor(np.array(layer.obs_rms.mean)), np.array(layer.obs_rms.var)
    scale, clip = torch.as_tensor(np.sqrt(var + layer.epsilon)), layer.clip

    def step(obs: Tensor) -> Tensor:
        normal = ((obs.to(torch.float64) - mean) / scale).to(torch.float32)
        return normal.clamp(-clip, clip)

    return step


def _action_steps(agent: Agent) -> list[_Step]:
    """Return the steps from the policy's actions to those of the client's env."""
    layers = list(layers_of(agent.wrapping.stack))
    outermost = agent.wrapping.stack.action_space
    steps = [_in_env_numbers(outermost)]
    return steps + [_act(layer) for layer in layers if isinstance(layer, gymnasium.ActionWrapper)]


def _in_env_numbers(space: Space) -> _Step:
    layout = ActionLayout(space)
    dtype = _torch_dtype(layout.dtype)
    start = getattr(space, "start", 0)
    if not np.any(start):
        return lambda action: action.to(dtype)
    first = torch.as_tensor(np.asarray(start))
    return lambda action: action.to(dtype) + first.to(dtype)


def _act(layer: Any) -> _Step:
    if isinstance(layer, DiscreteAction):
        space: Any = layer.action_space  # a Discrete, whatever its wrapper's class declares
        table = torch.as_tensor(np.stack([layer.action(each) for each in range(int(space.n))]))
        return lambda action: table[action]
    inner = layer.env.action_space
    low, high = torch.as_tensor(inner.low), torch.as_tensor(inner.high)
    if isinstance(layer, wrappers.ClipAction):
        return lambda action: torch.minimum(torch.maximum(action, low), high)
    outer = layer.action_space
    at_low, at_high = (torch.as_tensor(np.asarray(layer.action(side))) for side in (outer.low, outer.high))
    slope = (at_high - at_low) / torch.as_tensor(outer.high - outer.low)
    first = torch.as_tensor(outer.low)
    return lambda action: torch.minimum(torch.maximum(at_low + (action - first) * slope, low), high).to(low.dtype)


def _torch_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    return torch.from_numpy(np.zeros(1, dtype)).dtype


def _named(leaf: str) -> str:
    return f"obs/{leaf}" if leaf else "obs"


def rows_of(inputs: Sequence[Port], obs: RawBatch, state: Mapping[str, Array]) -> list[Array]:
    """Return the arrays of a batch of observations and states in the order of the inputs."""
    arrays = {f"state/{name}": value for name, value in state.items()}
    arrays |= {_named(name): value for name, value in by_flat_name(obs).items()}
    return [np.ascontiguousarray(arrays[port.name], dtype=port.dtype) for port in inputs]
