"""Have the envs of several learners normalise alike: by what all of them have observed."""

from __future__ import annotations

import math

import numpy as np

from ding_like.comm.learner_group import LearnerGroup
from ding_like.pipeline.statistics import CollectorStatistics, MergedStatistics
from ding_like.types import Array, EnvManager, State


class SharedStatistics:
    """Hold what the wrappers of all learners' collectors have observed, which every learner merges for itself.

    Between two segments the statistics stand still, as in a parallel run, so that all rows of a segment are normalised
    alike, on every learner. Make it before the envs are launched. Raises ConfigError for wrappers that remember
    something which cannot be merged.
    """

    def __init__(self, env: EnvManager) -> None:
        self._env = env
        self._own = CollectorStatistics(env)
        self._all = MergedStatistics(env)
        self._acted_by: list[State] = []  # by what the last segment was normalised

    def merge(self, group: LearnerGroup) -> None:
        """Merge what all learners have observed since the last call, and normalise by it from now on."""
        observed = self._own.take()
        if not observed:  # no wrapper of this config learns anything, on any learner
            return
        packed = np.concatenate([np.ravel(np.asarray(value, np.float64)) for value in observed.values()])
        for data in group.all_gather_bytes(packed.tobytes()):
            self._all.merge(_unpacked(np.frombuffer(data, np.float64), like=observed))
        self._acted_by = self._own.in_force
        self._own.use(self._all.weights())

    def evaluate_with(self, env: EnvManager) -> None:
        """Have the envs of an evaluation normalise by the statistics, and learn no more."""
        self._all.evaluate_with(env)

    def state_dict(self) -> State:
        """Return what a checkpoint holds: the statistics as a run of one process saves them."""
        return self._all.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Go on from what a checkpoint holds."""
        self._all.load_state_dict(state)
        self._own.use(self._all.weights())

    def resume_state(self) -> State:
        """Return what this learner goes on from, after its envs."""
        return {
            "own": self._own.state_dict(),
            "all": self._all.resume_state(),
            "acted_by": self._acted_by,
            "lanes": self._env.wrapper_states(),
        }

    def load_resume_state(self, state: State) -> None:
        """Go on from what `resume_state` returned, after the envs."""
        self._own.load_state_dict(state["own"])
        self._all.load_resume_state(state["all"])
        self._acted_by = state["acted_by"]
        self._own.use(self._all.weights())
        self._env.load_wrapper_states(state["lanes"])

    def replayable(self, env_state: State) -> State:
        """Return a saved state of the envs whose open episodes end, played again, in the observations that there are.

        Wrappers would go by what they knew when an episode began. The last observations were normalised by what was in
        force in the last segment, and it is only these that count.
        """
        if not self._acted_by:
            return env_state
        return {**env_state, "lanes": [{**lane, "wrappers": self._acted_by} for lane in env_state["lanes"]]}


def _unpacked(numbers: Array, *, like: dict[str, Array]) -> dict[str, Array]:
    """Return arrays by the names and in the shapes of `like`."""
    found, start = {}, 0
    for name, value in like.items():
        size = math.prod(np.shape(value))
        found[name] = numbers[start : start + size].reshape(np.shape(value))
        start += size
    return found
