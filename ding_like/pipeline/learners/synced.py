"""Learners of one run that keep in step: they count together, decide together, and learn as one."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from ding_like.comm.channels import Batch
from ding_like.comm.flat_state import FlatState
from ding_like.comm.learner_group import GroupReducer, LearnerGroup
from ding_like.data.rows import as_batch
from ding_like.errors import CheckpointError, CommError, ConfigError, SchemaError, TrainingError
from ding_like.pipeline.components import Components
from ding_like.pipeline.statistics import SharedStatistics
from ding_like.policy import Policy
from ding_like.policy.sharing import Share
from ding_like.types import Json, State
from ding_like.utils.resume import ResumeStore, Saved

logger = logging.getLogger(__name__)


class Due(NamedTuple):
    """Work that is due before the next rows are collected."""

    signal: int = 0  # number of the signal that ends the run, 0: none
    saves: bool = False  # a point to resume from
    evaluates: bool = False


class SyncedLearners:
    """Group of learners, each of which runs a whole serial loop with its share; `parts` are those of this one.

    Every method is called by all learners, in the same order: that of the loop. `may_refuse`: the buffer may have no
    rows for an update although it had some for an earlier one.
    """

    def __init__(self, group: LearnerGroup, parts: Components, *, may_refuse: bool) -> None:
        self._group = group
        self._parts = parts
        self._asks_always = may_refuse
        self._all_have_drawn = False
        self._steps = parts.collector.envstep  # of all learners
        self._equality = EqualityCheck(group, parts.policy)

    def begin(self, *, resumes: bool) -> None:
        """Give all learners the first one's state; check that those which resume have the same."""
        mode = self._parts.policy.learn_mode
        if not resumes:
            first = share_state(self._group, mode.state_dict() if self._group.rank == 0 else None)
            if self._group.rank:
                mode.load_state_dict(first)
        self._steps = self._parts.collector.envstep
        self._equality.check(self._parts.learner.train_iter)

    def agree(self, own: Due) -> Due:
        """Return the largest number of a signal, and what is due at the first learner of points and evaluations."""
        train_iter = self._parts.learner.train_iter
        if self._equality.is_due(train_iter):
            self._equality.check(train_iter)
        signal, saves, evaluates = self._group.max_int(own).tolist()
        return Due(signal, bool(saves), bool(evaluates))

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

    def share_batch(self, batch: Batch | None) -> Batch | None:
        """Return this learner's batch, None unless all have one; of a policy with whole batches, the rows of all."""
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
        """Wait in the first learner until the others have saved: its process ends theirs when it ends itself."""
        if self._group.rank:
            self._group.announce(f"left/{self._group.rank}")
            return
        for rank in range(1, self._group.world_size):
            self._group.wait_for(f"left/{rank}", of=[rank])


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


def join_policy(group: LearnerGroup, policy: Policy) -> GroupReducer:
    """Have a policy learn from its share of each batch; return what averages its gradients over the group.

    Raises ConfigError for a policy that does not say where its gradients are.
    """
    vectors = policy.grad_vectors()
    if not vectors:
        raise ConfigError(
            f"{type(policy).__name__} does not say where its gradients are; several learners train policies with "
            "grad() and apply() only. Start one learner."
        )
    policy.set_share(Share(group.rank, group.world_size))
    return GroupReducer(group, vectors, weight=policy.grad_weight)


def share_state(group: LearnerGroup, state: State | None = None) -> State:
    """Return the first learner's nested state, such as a learn mode's: tensors exactly, the rest as JSON.

    Raises CommError for what is neither, and for a state in a network's bytes that is not described.
    """
    described, flat = (None, None) if state is None else pack_learn_state(state)
    return restored(group.broadcast_json(described), group.broadcast_state(flat))


def pack_learn_state(state: State) -> tuple[Json, FlatState]:
    """Return a learn mode's state as (JSON that describes it, its tensors by name), which `restored` takes."""
    flat: FlatState = {}
    return _describe(state, "", flat), flat


def restored(described: Json, flat: FlatState) -> State:
    """Return the state that `pack_learn_state` was given."""
    state: State = _restore(described, flat)
    return state


class EqualityCheck:
    """Check, every `every` updates, that all learners have the same parameters, bit for bit.

    They take the same steps on the same averages, so that a difference is a fault: of a machine, of a library that
    computes otherwise there, or of a config that is not the same for all.
    """

    def __init__(self, group: LearnerGroup, policy: Policy, *, every: int = 1000) -> None:
        if every < 1:
            raise ConfigError(f"the learners are compared every {every} updates; give at least 1.")
        self._group = group
        self._policy = policy
        self._every = every
        self._compared = 0

    def is_due(self, train_iter: int) -> bool:
        """Tell whether `every` updates have passed since the last comparison, or the next multiple has been reached."""
        return train_iter // self._every != self._compared // self._every

    def check(self, train_iter: int) -> None:
        """Compare now; all learners call it after the same update. Raises TrainingError that names who differs."""
        self._compared = train_iter
        state, flat = self._policy.learn_mode.state_dict(), FlatState()
        _describe(state.get("model", state), "", flat)
        differing = self._group.differing(flat[name] for name in sorted(flat))
        if differing:
            ranks = ", ".join(f"rank {rank}" for rank in differing)
            raise TrainingError(
                f"after update {train_iter:,} the parameters of learner {ranks} differ from those of the first: what "
                "was learned since the last check is not what one learner would have. Go on from an earlier "
                "checkpoint, and see that all learners have the same config, libraries and kind of processor."
            )


def _describe(value: Any, name: str, flat: FlatState) -> list[Any]:  # Any: of a nested state; of JSON
    """Return a node [kind, what] of JSON for a value, and put its tensors into `flat`."""
    if isinstance(value, torch.Tensor):
        flat[name] = value.detach()
        return ["tensor", name]
    if isinstance(value, (np.ndarray, np.generic)):
        flat[name] = torch.from_numpy(np.array(value))
        return ["array", name]
    if isinstance(value, Mapping):
        return ["dict", [[key, _describe(each, f"{name}/{key}", flat)] for key, each in value.items()]]
    if isinstance(value, (list, tuple)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return [kind, [_describe(each, f"{name}/{number}", flat) for number, each in enumerate(value)]]
    if value is None or isinstance(value, (bool, int, float, str)):
        return ["value", value]
    raise CommError(f"the learners' state has a {type(value).__name__} at {name!r}, which cannot travel.")


def _restore(node: Any, flat: FlatState) -> Any:  # Any: see `_describe`
    kind, what = node
    if kind == "tensor":
        return flat[what]
    if kind == "array":
        return flat[what].numpy()
    if kind == "dict":
        return {key: _restore(each, flat) for key, each in what}
    if kind in ("list", "tuple"):
        members = [_restore(each, flat) for each in what]
        return tuple(members) if kind == "tuple" else members
    return what
