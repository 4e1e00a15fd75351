"""An episode that breaks off takes with it the rows that were not handed out yet, and no others."""

import numpy as np
import pytest

from ding_like.data.batch import TransitionBatch
from ding_like.worker.collector.loop import RolloutLoop
from tests.worker.scripted_manager import CountingActor, ScriptedManager

LONG = 20


@pytest.mark.parametrize(("keep", "steps_after"), [(0, 2), (1, 1), (2, 3)])
def test_rows_kept_or_added_since_the_last_batch_are_dropped(keep, steps_after):
    taken_after = 3
    manager = ScriptedManager([[LONG], [LONG]], drop_at={(1, 0, taken_after + steps_after)})
    loop = RolloutLoop(manager, CountingActor(), rng=np.random.default_rng(0))
    for _ in range(taken_after):
        loop.step({})
    loop.take(lambda rollout: (TransitionBatch(rollout.columns()), np.full(2, keep)))

    for _ in range(steps_after + 1):
        loop.step({})

    lane = loop.rollout["lane"]
    assert np.count_nonzero(lane == 1) == 0, "all rows of the broken episode are gone"
    assert np.count_nonzero(lane == 0) == keep + steps_after + 1, "the other lane's are there"


def test_rows_that_a_policy_keeps_count_as_open():
    manager = ScriptedManager([[LONG], [LONG]])
    loop = RolloutLoop(manager, CountingActor(), rng=np.random.default_rng(0))
    for _ in range(4):
        loop.step({})
    loop.take(lambda rollout: (TransitionBatch(rollout.columns()), np.array([2, 1])))
    loop.step({})
    seen = {}

    loop.num_ready(lambda length, ended: seen.update(length=length.tolist(), ended=ended.tolist()) or 0)

    assert seen == {"length": [3, 2], "ended": [False, False]}
