"""Apply wrappers that need earlier steps, of several episodes side by side: each row has wrappers of its own."""

from __future__ import annotations

from typing import Any

from ding_like.agent.layers import AnyEnv, FedEnv
from ding_like.agent.observations import Rows
from ding_like.agent.wrappers import AgentWrappers, split_obs
from ding_like.types import Array, Obs


class RowStacks:
    """Keep for each row the wrappers, around a stand-in that observes what it is fed."""

    def __init__(self, wrappers: AgentWrappers) -> None:
        self._wrappers = wrappers
        self._stacks: list[tuple[AnyEnv, FedEnv]] = []
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
