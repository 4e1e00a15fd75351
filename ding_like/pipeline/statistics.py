"""Carry what the collector's wrappers have learned (means and variances) to evaluations, checkpoints and videos."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ding_like.types import EnvManager, State
from ding_like.utils.checkpoint import load_state

# A checkpoint's entry with the statistics; only runs whose wrappers learn something have it.
ENV_WRAPPERS = "env_wrappers"


class WrapperStatistics:
    """Save what the wrappers of a manager's envs know with a checkpoint, and go on from it."""

    def __init__(self, env: EnvManager) -> None:
        self._env = env

    def state_dict(self) -> State:
        """Return the states by lane; empty where no wrapper remembers anything."""
        lanes = self._env.wrapper_states()
        return {"lanes": lanes} if any(lanes) else {}

    def load_state_dict(self, state: State) -> None:
        """Let the wrappers go on learning from saved states."""
        self._env.load_wrapper_states(state["lanes"])


def share_statistics(collector_env: EnvManager, evaluator_env: EnvManager) -> None:
    """Let the evaluator's wrappers know what those of the collector know together, and learn nothing themselves."""
    lanes = collector_env.wrapper_states()
    if any(lanes):
        evaluator_env.adopt_wrapper_states(lanes)


def load_agent(mode: Any, checkpoint: Any) -> Sequence[Sequence[State]]:
    """Give the mode of a policy a checkpoint's weights; return the statistics that were saved with them, by lane.

    `checkpoint` is a file's path or what was loaded from one.
    """
    state = dict(checkpoint) if isinstance(checkpoint, dict) else load_state(checkpoint)
    lanes: Sequence[Sequence[State]] = state.pop(ENV_WRAPPERS, {"lanes": []})["lanes"]
    mode.load_state_dict(state)
    return lanes
