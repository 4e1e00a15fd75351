"""Keep the serial loops of several learners in step: they count together, decide together and learn as one."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ding_like.comm.channels import Batch
from ding_like.comm.learner_group import LearnerGroup
from ding_like.data.rows import as_batch
from ding_like.errors import CheckpointError, CommError, SchemaError
from ding_like.pipeline.learners.joined import EqualityCheck, share_state
from ding_like.pipeline.statistics import CollectorStatistics, MergedStatistics
from ding_like.types import Array, EnvManager, State
from ding_like.utils.resume import ResumeStore, Saved

if TYPE_CHECKING:
    from ding_like.pipeline.components import Components

logger = logging.getLogger(__name__)


class Turn(NamedTuple):
    """Work that is due before the next rows are collected."""

    signal: int = 0  # number of the signal that ends the run, 0: none
    saves: bool = False  # a point to resume from
    evaluates: bool = False


class Alone:
    """Agreement of a learner with the others of its run, where there are none."""

    def begin(self, *, goes_on: bool) -> None:
        """Check that all learners begin with the same weights; those that resume from saved points have them."""

    def agree(self, own: Turn) -> Turn:
        """Return what all learners do now, given what is due here; the first decides on points and evaluations."""
        return own

    def evaluate(self, evaluate: Callable[[], bool] | None) -> bool:
        """Return the result of the first learner's `evaluate`; the others, which have none, wait for it."""
        return evaluate is not None and evaluate()

    def count_steps(self) -> None:
        """Set the collector's step count to that of all learners."""

    def merge_statistics(self) -> None:
        """Merge what the envs of all learners have observed."""

    def draw(self, draw: Callable[[], Batch | None]) -> Batch | None:
        """Return the batch of this learner's store, None unless all learners have one."""
        return draw()

    def leave(self) -> None:
        """Leave the others, once all have saved their points."""


class InStep(Alone):
    """Agreement of one of several learners, each of which runs a whole serial loop with its share.

    Every collective is made by all, in the same order: that of the loop. `parts` are those of this learner.
    `may_refuse`: its buffer may have no rows for an update although it had some for an earlier one.
    """

    def __init__(self, group: LearnerGroup, parts: Components, *, may_refuse: bool) -> None:
        self._group = group
        self._parts = parts
        self._asks_always = may_refuse
        self._all_have_drawn = False
        self._steps = parts.collector.envstep  # of all learners
        self._equality = EqualityCheck(group, parts.policy)

    def begin(self, *, goes_on: bool) -> None:
        """Give all learners the first one's state, or check that those of saved points are the same."""
        mode = self._parts.policy.learn_mode
        if not goes_on:
            first = share_state(self._group, mode.state_dict() if self._group.rank == 0 else None)
            if self._group.rank:
                mode.load_state_dict(first)
        self._steps = self._parts.collector.envstep
        self._equality.check(self._parts.learner.train_iter)

    def agree(self, own: Turn) -> Turn:
        """Return the largest number of a signal, and what is due at the first learner of points and evaluations."""
        train_iter = self._parts.learner.train_iter
        if self._equality.is_due(train_iter):
            self._equality.check(train_iter)
        signal, saves, evaluates = self._group.max_int(own).tolist()
        return Turn(signal, bool(saves), bool(evaluates))

    def evaluate(self, evaluate: Callable[[], bool] | None) -> bool:
        """Evaluate on the first learner; the others wait, without a limit, as long as it lives."""
        return bool(self._group.broadcast_json(None if evaluate is None else evaluate()))

    def count_steps(self) -> None:
        """Add what the others have collected since the last count."""
        collector = self._parts.collector
        self._steps += int(self._group.sum_int([collector.envstep - self._steps])[0])
        collector.envstep = self._steps

    def merge_statistics(self) -> None:
        """Merge what the envs of all learners have observed, and normalise by it from now on."""
        if isinstance(self._parts.statistics, SharedStatistics):
            self._parts.statistics.merge(self._group)

    def draw(self, draw: Callable[[], Batch | None]) -> Batch | None:
        """Return a batch where all have one; of a policy that takes whole batches, the rows of all together."""
        batch = draw()
        if self._asks_always or not self._all_have_drawn:
            if self._group.max_int([batch is None])[0]:
                return None
            self._all_have_drawn = True
        if batch is None:
            raise CommError(
                f"learner rank {self._group.rank} has no rows for an update that the others make: its buffer has let "
                "go of rows that it had. Start one learner, or report the buffer's settings."
            )
        if not self._parts.policy.takes_whole_batches:
            return batch
        rows = as_batch(batch)
        if rows is None:
            raise SchemaError(
                f"several learners share whole batches of columns; the rows here are a {type(batch).__name__}. "
                "Let the policy's `segment` return a TransitionBatch."
            )
        return self._group.all_gather_columns(rows)

    def leave(self) -> None:
        """Have the first learner wait until the others have saved: the process that started them ends them after it."""
        if self._group.rank:
            self._group.announce(f"left/{self._group.rank}")
            return
        for rank in range(1, self._group.world_size):
            self._group.wait_for(f"left/{rank}", of=[rank])


class SharedStatistics:
    """Statistics of the wrappers of all learners' collectors, which every learner merges for itself.

    Between two segments the statistics stay as they are, as in a parallel run, so that all rows of a segment are
    normalised alike, on every learner. Make it before the envs are launched. Raises ConfigError for wrappers that
    remember something which cannot be merged.
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
        """Resume from what a checkpoint holds."""
        self._all.load_state_dict(state)
        self._own.use(self._all.weights())

    def resume_state(self) -> State:
        """Return what this learner resumes from, after its envs."""
        return {
            "own": self._own.state_dict(),
            "all": self._all.resume_state(),
            "acted_by": self._acted_by,
            "lanes": self._env.wrapper_states(),
        }

    def load_resume_state(self, state: State) -> None:
        """Resume from what `resume_state` returned, after the envs."""
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


def newest_of_all(group: LearnerGroup, store: ResumeStore) -> Saved:
    """Return this learner's point of the newest step that is whole for every learner; newer ones are forgotten.

    Every learner has a `store` of its own, and none looks into another's. Raises CheckpointError, on all, if there is
    no such step.
    """
    # Checking files may take longer than a collective may: these waits have no limit but the others' lives.
    own = store.whole_steps()
    group.announce(f"points/{group.rank}", json.dumps(own))
    others = [rank for rank in range(group.world_size) if rank != group.rank]
    found = {group.rank: own, **{rank: json.loads(group.wait_for(f"points/{rank}", of=[rank])) for rank in others}}
    common = set(own).intersection(*found.values())
    if not common:
        has = "; ".join(f"rank {rank} has {found[rank] or 'none'}" for rank in sorted(found))
        raise CheckpointError(
            f"there is nothing to resume in {store.folder}: no step is whole for all {group.world_size} learners "
            f"({has}). Start the run again, or begin from a model with --load-path."
        )
    step = max(common)
    if step != max(own):
        logger.info("going on from step %s: not every learner has saved a newer one", f"{step:,}")
    store.forget_after(step)
    return store.load(step)


def _unpacked(numbers: Array, *, like: dict[str, Array]) -> dict[str, Array]:
    """Return arrays by the names and in the shapes of `like`."""
    found, start = {}, 0
    for name, value in like.items():
        size = math.prod(np.shape(value))
        found[name] = numbers[start : start + size].reshape(np.shape(value))
        start += size
    return found
