"""Split a run's env wrappers between an agent and its client, and apply the agent's to observations and actions.

A client gives observations of its own env and receives actions for that env. See `layers` for which wrappers can be
applied without that env.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from ding_like.agent.layers import FedEnv, Spec, changes_nothing, layers_of
from ding_like.agent.observations import RawBatch, Rows, Space
from ding_like.envs.hybrid import HybridRows, hybrid_rows
from ding_like.envs.spaces import ActionLayout, ObsLayout
from ding_like.envs.wrappers import adopt_wrapper_states, wrap, wrapper_states
from ding_like.envs.wrappers.normalization import ObsNorm
from ding_like.errors import CheckpointError
from ding_like.types import Array, Obs, State


class WrapperSplit(NamedTuple):
    """Env of a client, and which wrappers the agent and the client apply."""

    observation_space: Space  # of the client's env
    action_space: Space
    render_mode: str | None
    specs: tuple[Spec, ...]  # of the agent's wrappers, the innermost first
    client_wrappers: tuple[str, ...]  # names, the innermost first
    parameter_mask: Any = None  # of hybrid actions, rows of numbers, where the env says it

    def stand_in(self) -> FedEnv:
        """Return what stands in for the client's env."""
        acted, mask = self.action_space, self.parameter_mask
        return FedEnv(self.observation_space, acted, render_mode=self.render_mode, parameter_mask=mask)


class AgentWrappers:
    """Wrappers of a run, applied to clients' observations, and in reverse to the policy's actions.

    `statistics` are the saved states of the wrappers in a checkpoint, by lane. Raises CheckpointError if they are
    missing or do not fit.
    """

    def __init__(self, split: WrapperSplit, statistics: Sequence[Sequence[State]] = ()) -> None:
        self._split = split
        self._statistics = statistics
        self._stack, _ = self.new_stack()
        layers = list(layers_of(self._stack))
        self._action_wrappers = [layer for layer in layers if isinstance(layer, gymnasium.ActionWrapper)]
        self._obs_wrappers = [layer for layer in reversed(layers) if isinstance(layer, gymnasium.ObservationWrapper)]
        self._obs_layout = ObsLayout(self._stack.observation_space)
        self._action_layout = ActionLayout(self._stack.action_space)

    def new_stack(self) -> tuple[gymnasium.Env[Any, Any], FedEnv]:
        """Return the wrappers, with their statistics, around a stand-in for an env, and the stand-in."""
        stack, fed = self.bare_stack(self._split)
        own = len(wrapper_states(stack))
        statistics = self._statistics
        if any(statistics):
            # States of the client's wrappers and of the env follow in the checkpoint, and are not needed.
            adopt_wrapper_states(stack, [lane[:own] for lane in statistics])
        elif any(isinstance(layer, ObsNorm) for layer in layers_of(stack)):
            raise CheckpointError(
                "it has no statistics of obs_norm, without which observations cannot be normalised: give a checkpoint "
                "that this run saved."
            )
        return stack, fed

    @staticmethod
    def bare_stack(split: WrapperSplit) -> tuple[gymnasium.Env[Any, Any], FedEnv]:
        """Return the wrappers of a split, knowing nothing, around a stand-in for an env, and the stand-in."""
        fed = split.stand_in()
        return hybrid_rows(wrap(fed, [spec for spec in split.specs if not changes_nothing(spec)])), fed

    @property
    def stack(self) -> gymnasium.Env[Any, Any]:
        """Return the wrappers, with their statistics, around a stand-in for an env."""
        return self._stack

    @property
    def names(self) -> list[str]:
        """Return the wrappers that change observations or actions, the innermost first."""
        named = (*self._obs_wrappers, *reversed(self._action_wrappers))
        return [type(layer).__name__ for layer in named if not isinstance(layer, HybridRows)]

    def to_policy(self, rows: Rows) -> Obs:
        """Return observations [R, ...] in the form in which env managers give them to a policy."""
        obs: RawBatch = rows.obs
        for layer in self._obs_wrappers:
            # ObsNorm takes a whole batch; other wrappers take one observation at a time.
            is_of_batch = isinstance(layer, ObsNorm)
            obs = layer.observation(obs) if is_of_batch else stack_obs([layer.observation(o) for o in split_obs(obs)])
        return self._obs_layout.from_batch(obs)

    def batch(self, each: Sequence[Any]) -> Obs:
        """Return what the stack observed, one by one, in the form in which env managers give it to a policy."""
        return self._obs_layout.from_batch(stack_obs(each))

    def for_stack(self, action: Array) -> list[Any]:
        """Return each of the policy's actions [R, ...] as the stack's `step` takes it."""
        return self._action_layout.split(self._action_layout.for_envs(action, len(action)))

    def to_client(self, action: Array) -> Any:
        """Return actions [R, ...] of the policy in the form that the client's env takes: an array, or one by one."""
        if not self._action_wrappers:
            return self._action_layout.for_envs(action, len(action))
        each = self.for_stack(action)
        for layer in self._action_wrappers:
            each = [layer.action(one) for one in each]
        if isinstance(self._split.action_space, (gymnasium.spaces.Tuple, gymnasium.spaces.Dict)):
            return each
        return np.stack([np.asarray(one) for one in each])


class RowStacks:
    """Wrappers that need earlier steps: of each row of a batch a stack of its own, around a stand-in for an env."""

    def __init__(self, wrappers: AgentWrappers) -> None:
        self._wrappers = wrappers
        self._stacks: list[tuple[gymnasium.Env[Any, Any], FedEnv]] = []
        self._actions: list[Any] = []  # what each row's stack took last

    def to_policy(self, rows: Rows, is_first: Array) -> Obs:
        """Return observations [R, ...] as the policy takes them; an episode begins where `is_first` [R]."""
        while len(self._stacks) < rows.num:
            self._stacks.append(self._wrappers.new_stack())
            self._actions.append(None)
        seen = []
        for row, obs in enumerate(split_obs(rows.obs)):
            stack, fed = self._stacks[row]
            fed.fed = obs
            seen.append(stack.reset()[0] if is_first[row] else stack.step(self._actions[row])[0])
        return self._wrappers.batch(seen)

    def note(self, action: Array) -> None:
        """Remember the policy's actions [R, ...]: with them the wrappers step when the next observations come."""
        self._actions[: len(action)] = self._wrappers.for_stack(action)


def split_obs(obs: RawBatch) -> list[Any]:
    """Return each observation of a batch."""
    if isinstance(obs, Mapping):
        parts = {key: split_obs(value) for key, value in obs.items()}
        count = len(next(iter(parts.values())))
        return [{key: values[row] for key, values in parts.items()} for row in range(count)]
    return list(obs)


def stack_obs(each: Sequence[Any]) -> RawBatch:
    """Return a batch of observations."""
    if isinstance(each[0], Mapping):
        return {key: stack_obs([one[key] for one in each]) for key in each[0]}
    return np.stack([np.asarray(one) for one in each])


def rows_split(split: WrapperSplit) -> WrapperSplit:
    """Return a split whose clients take hybrid actions as rows of numbers, which travel as one array."""
    return split._replace(action_space=hybrid_rows(split.stand_in()).action_space)
