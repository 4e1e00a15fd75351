import numpy as np
import pytest

from ding_like.data.batch import TransitionBatch
from ding_like.worker.collector.loop import RolloutLoop
from tests.worker.scripted_manager import CountingActor, ScriptedManager

LENGTHS = [[3, 1, 5], [4], [2, 7]]


def make_loop(**kwargs) -> tuple[ScriptedManager, RolloutLoop]:
    manager = ScriptedManager(LENGTHS, **kwargs)
    return manager, RolloutLoop(manager, CountingActor(), rng=np.random.default_rng(0))


def rows_of(loop: RolloutLoop) -> TransitionBatch:
    assert loop.rollout is not None
    return TransitionBatch(loop.rollout.columns())


@pytest.mark.parametrize("delay", [0, 3])
def test_every_transition_is_logged_once_and_whole(delay):
    manager, loop = make_loop(delay=delay)

    for _ in range(60):
        loop.step({})

    batch = rows_of(loop)
    seen = [tuple(int(v) for v in obs) for obs in batch["obs"]]
    assert seen == manager.history
    assert np.array_equal(batch["seen"], batch["obs"]), "the actor saw what is stored"
    assert np.array_equal(batch["next_obs"], batch["obs"] + np.array([0, 0, 1], np.float32))
    assert batch["lane"].tolist() == [lane for lane, _, _ in seen]
    assert batch["step"].tolist() == [step for _, _, step in seen]
    assert len(set(batch["action"].tolist())) == len(batch)
    assert batch["reward"].tolist() == [manager.reward_of(*key) for key in seen]
    assert loop.env_steps == len(batch)


@pytest.mark.parametrize("delay", [0, 3])
def test_episode_ids_name_one_episode_of_one_lane(delay):
    _, loop = make_loop(delay=delay)

    for _ in range(60):
        loop.step({})

    batch = rows_of(loop)
    names = {(int(o[0]), int(o[1]), int(i)) for o, i in zip(batch["obs"], batch["episode_id"], strict=True)}
    assert len({n[:2] for n in names}) == len({n[2] for n in names}) == len(names)


def test_records_count_returns_and_lengths_of_whole_episodes():
    manager, loop = make_loop(delay=2)

    records = [record for _ in range(60) for record in loop.step({})]

    for lane, lengths in enumerate(LENGTHS):
        mine = [record for record in records if record.lane == lane]
        assert [record.length for record in mine] == [lengths[k % len(lengths)] for k in range(len(mine))]
        for episode, record in enumerate(mine):
            assert record.return_ == sum(manager.reward_of(lane, episode, step) for step in range(record.length))


def test_is_first_marks_the_first_step_of_each_episode():
    manager, loop = make_loop(delay=1)

    for _ in range(40):
        loop.step({})

    calls = [(lane, first) for lanes, firsts in loop._actor.calls for lane, first in zip(lanes, firsts, strict=True)]
    firsts = {lane: [first for mine, first in calls if mine == lane] for lane in range(3)}
    for lane in range(3):
        steps = [step for mine, _, step in manager.history if mine == lane]
        assert firsts[lane][: len(steps)] == [step == 0 for step in steps]


def test_rows_of_a_broken_episode_are_dropped_and_counted():
    _, loop = make_loop(drop_at={(1, 0, 2)})

    records = [record for _ in range(5) for record in loop.step({})]

    batch = rows_of(loop)
    broken = (batch["obs"][:, 0] == 1) & (batch["obs"][:, 1] == 0)
    assert not broken.any()
    assert loop.dropped_episodes == 1 and loop.dropped_steps == 2
    assert all(record.lane != 1 for record in records)
    assert (batch["obs"][:, 0] == 1).sum() == 2, "the lane's next episode goes on"


def test_idle_lanes_stand_still():
    manager, loop = make_loop()

    for _ in range(4):
        loop.step({}, idle=np.array([False, True, False]))

    assert {lane for lane, _, _ in manager.history} == {0, 2}


def test_rows_carry_the_version_of_the_policy_that_acted():
    _, loop = make_loop(delay=2)

    for version in range(30):
        loop.step({"version": version}, policy_version=version)

    batch = rows_of(loop)
    assert batch["policy_version"].tolist() == batch["acted_at"].tolist()
    assert len(set(batch["policy_version"].tolist())) > 10


def test_state_round_trip_continues_the_count():
    manager, loop = make_loop()
    for _ in range(5):
        loop.step({})
    twin = RolloutLoop(manager, CountingActor(), rng=np.random.default_rng(0))

    twin.load_state_dict(loop.state_dict())

    assert [r.length for _ in range(6) for r in twin.step({})]
    assert rows_of(twin)["step"].tolist() == [step for _, _, step in manager.history]
