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
        self._own = CollectorStatistics(env)
        self._all = MergedStatistics(env)

    def merge(self, group: LearnerGroup) -> None:
        """Merge what all learners have observed since the last call, and normalise by it from now on."""
        observed = self._own.take()
        if not observed:  # no wrapper of this config learns anything, on any learner
            return
        packed = np.concatenate([np.ravel(np.asarray(value, np.float64)) for value in observed.values()])
        for data in group.all_gather_bytes(packed.tobytes()):
            self._all.merge(_unpacked(np.frombuffer(data, np.float64), like=observed))
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
        """Return what this learner goes on from; its envs save what they have observed since the last `merge`."""
        return {"own": self._own.state_dict(), "all": self._all.resume_state()}

    def load_resume_state(self, state: State) -> None:
        """Go on from what `resume_state` returned, after the envs."""
        self._own.load_state_dict(state["own"])
        self._all.load_resume_state(state["all"])
        self._own.use(self._all.weights())


def _unpacked(numbers: Array, *, like: dict[str, Array]) -> dict[str, Array]:
    """Return arrays by the names and in the shapes of `like`."""
    found, start = {}, 0
    for name, value in like.items():
        size = math.prod(np.shape(value))
        found[name] = numbers[start : start + size].reshape(np.shape(value))
        start += size
    return found
