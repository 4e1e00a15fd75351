"""Find the saved point from which several learners go on together."""

from __future__ import annotations

import json
import logging

from ding_like.comm.learner_group import LearnerGroup
from ding_like.errors import CheckpointError
from ding_like.utils.resume import ResumeStore, Saved

logger = logging.getLogger(__name__)


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
