from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from ding_like.data.batch import TransitionBatch
from ding_like.errors import ConfigError, SchemaError
from ding_like.worker.collector.loop import EpisodeQuota, Episodes, RolloutLoop, StopSignals
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


class TaggedActor(CountingActor):
    """Actor whose actions differ from those of others, with `extra` columns beside them."""

    def __init__(self, first_action: int = 0, extra: Mapping[str, float] | None = None, dtype: type = np.int64) -> None:
        super().__init__()
        self._next = first_action
        self._extra, self._dtype = dict(extra or {}), dtype
        self.acted: dict[tuple[int, ...], int] = {}  # what was observed -> the action

    def act(self, obs, *, lanes, is_first, rng, **setting):
        action = super().act(obs, lanes=lanes, is_first=is_first, rng=rng)["action"].astype(self._dtype)
        self.acted |= {tuple(map(int, row)): int(a) for row, a in zip(obs, action, strict=True)}
        return {"action": action, **{name: action * factor for name, factor in self._extra.items()}}


PLAIN, WITH_LOG_PROB = {}, {"log_prob": 0.5}


def switch(first: TaggedActor, second: TaggedActor, *, delay: int, saved_between: bool = False, **kwargs):
    """Let one actor act for a while, then another; return manager and loop."""
    manager = ScriptedManager(LENGTHS, delay=delay, **kwargs)
    loop = RolloutLoop(manager, first, rng=np.random.default_rng(0))
    for _ in range(20):
        loop.step({})
    while manager.ready.all() and delay:  # some lane is to have an open row
        loop.step({})
    loop.use_actor(second)
    if saved_between:
        loop.load_state_dict(loop.state_dict())
    for _ in range(40):
        loop.step({})
    return manager, loop


@pytest.mark.parametrize("delay", [0, 3])
def test_open_rows_keep_the_action_that_was_played(delay):
    first, second = TaggedActor(1000), TaggedActor(2000)

    manager, loop = switch(first, second, delay=delay)

    batch = rows_of(loop)
    seen = [tuple(int(v) for v in obs) for obs in batch["obs"]]
    assert seen == manager.history, "no row is lost: both actors give the same columns"
    assert batch["action"].tolist() == [(first.acted | second.acted)[key] for key in seen]
    assert loop.dropped_steps == 0


@pytest.mark.parametrize(("delay", "before", "after"), [(0, PLAIN, WITH_LOG_PROB), (3, WITH_LOG_PROB, PLAIN)])
def test_rows_of_an_actor_with_other_columns_are_dropped_and_counted(delay, before, after):
    first, second = TaggedActor(1000, before), TaggedActor(2000, after)

    manager, loop = switch(first, second, delay=delay)

    batch = rows_of(loop)
    seen = [tuple(int(v) for v in obs) for obs in batch["obs"]]
    assert seen == [key for key in manager.history if key in second.acted], "all rows of the second, in order"
    assert batch["action"].tolist() == [second.acted[key] for key in seen]
    assert ("log_prob" in batch.columns) == bool(after)
    if after:
        assert (batch["log_prob"] == batch["action"] * 0.5).all()
    assert loop.dropped_steps == len(manager.history) - len(seen)
    assert loop.env_steps == len(manager.history), "they were steps all the same"


def test_a_dropped_row_counts_in_its_episode():
    manager = ScriptedManager([[4], [4]], delay=2)
    loop = RolloutLoop(manager, TaggedActor(1000), rng=np.random.default_rng(0))
    for _ in range(5):
        loop.step({})
    loop.use_actor(TaggedActor(2000, WITH_LOG_PROB))

    records = [record for _ in range(60) for record in loop.step({})]

    assert records and all(record.length == 4 for record in records)
    by_lane = {lane: [record for record in records if record.lane == lane] for lane in (0, 1)}
    for lane, mine in by_lane.items():
        returns = [sum(manager.reward_of(lane, episode, step) for step in range(4)) for episode in range(100)]
        start = returns.index(mine[0].return_)
        assert [record.return_ for record in mine] == returns[start : start + len(mine)]


def test_logged_rows_of_other_columns_stay_until_the_new_actor_acts():
    manager = ScriptedManager([[10], [10]])
    loop = RolloutLoop(manager, TaggedActor(1000), rng=np.random.default_rng(0))
    loop.step({})

    loop.use_actor(TaggedActor(2000, WITH_LOG_PROB))
    assert len(loop.take(lambda rollout: (TransitionBatch(rollout.columns()), np.zeros(2, np.int64)))) == 2
    loop.step({})

    assert "log_prob" in rows_of(loop).columns and len(rows_of(loop)) == 2
    assert loop.num_ready(lambda length, ended: int(length.sum())) == 2


def test_there_and_back_again_logs_what_was_played():
    actors = [TaggedActor(1000), TaggedActor(2000, WITH_LOG_PROB), TaggedActor(3000), TaggedActor(4000)]
    manager = ScriptedManager(LENGTHS, delay=3)
    loop = RolloutLoop(manager, actors[0], rng=np.random.default_rng(0))
    for actor in actors[1:]:
        for _ in range(2):
            loop.step({})
        loop.use_actor(actor)
    for _ in range(30):
        loop.step({})

    batch = rows_of(loop)
    played = actors[2].acted | actors[3].acted
    seen = [tuple(int(v) for v in obs) for obs in batch["obs"]]
    assert batch["action"].tolist() == [played[key] for key in seen]
    assert seen == [key for key in manager.history if key in played]


@pytest.mark.parametrize(
    ("delay", "before", "after"), [(3, PLAIN, PLAIN), (0, PLAIN, WITH_LOG_PROB), (3, WITH_LOG_PROB, PLAIN)]
)
def test_a_state_taken_after_the_switch_loses_no_played_action(delay, before, after):
    first, second = TaggedActor(1000, before), TaggedActor(2000, after)

    manager, loop = switch(first, second, delay=delay, saved_between=True)

    batch = rows_of(loop)
    seen = [tuple(int(v) for v in obs) for obs in batch["obs"]]
    assert batch["action"].tolist() == [(first.acted | second.acted)[key] for key in seen]
    assert len(seen) + loop.dropped_steps == len(manager.history)
    assert set(second.acted) & set(manager.history) <= set(seen)


def test_a_narrower_dtype_is_no_other_column():
    first, second = TaggedActor(1000), TaggedActor(2000, dtype=np.int32)

    manager, loop = switch(first, second, delay=3)

    batch = rows_of(loop)
    seen = [tuple(int(v) for v in obs) for obs in batch["obs"]]
    assert seen == manager.history and batch["action"].dtype == np.int64
    assert batch["action"].tolist() == [(first.acted | second.acted)[key] for key in seen]


def test_an_actor_may_use_its_arrays_again():
    class Sparing(TaggedActor):
        buffer = np.zeros(3, np.int64)

        def act(self, obs, *, lanes, **kwargs):
            own = self.buffer[: len(lanes)]
            own[:] = super().act(obs, lanes=lanes, **kwargs)["action"]
            return {"action": own}

    actor, manager = Sparing(), ScriptedManager(LENGTHS, delay=3)
    loop = RolloutLoop(manager, actor, rng=np.random.default_rng(0))
    for _ in range(60):
        loop.step({})

    batch = rows_of(loop)
    assert batch["action"].tolist() == [actor.acted[tuple(int(v) for v in obs)] for obs in batch["obs"]]


@pytest.mark.parametrize(
    "change",
    [
        lambda columns: {**columns, "action": columns["action"] + 0.5},
        lambda columns: {**columns, "action": columns["action"][:1]},
        lambda columns: {"action": columns["action"]},
        lambda columns: {**columns, "other": columns["action"]},
    ],
    ids=["a float", "one row for all", "a column fewer", "a column more"],
)
def test_columns_that_change_under_way_are_refused(change):
    class Fickle(CountingActor):
        def act(self, obs, *, lanes, **kwargs):
            columns = super().act(obs, lanes=lanes, **kwargs)
            return change(columns) if len(self.calls) > 4 and len(lanes) > 1 else columns

    loop = RolloutLoop(ScriptedManager([[30], [30], [30]], delay=2), Fickle(), rng=np.random.default_rng(0))

    with pytest.raises(SchemaError, match=r"action|other|seen"):
        for _ in range(60):
            loop.step({})


@pytest.mark.parametrize(("keep", "steps_after"), [(0, 2), (1, 1), (2, 3)])
def test_rows_kept_or_added_since_the_last_batch_are_dropped(keep, steps_after):
    taken_after = 3
    manager = ScriptedManager([[20], [20]], drop_at={(1, 0, taken_after + steps_after)})
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
    manager = ScriptedManager([[20], [20]])
    loop = RolloutLoop(manager, CountingActor(), rng=np.random.default_rng(0))
    for _ in range(4):
        loop.step({})
    loop.take(lambda rollout: (TransitionBatch(rollout.columns()), np.array([2, 1])))
    loop.step({})
    seen = {}

    loop.num_ready(lambda length, ended: seen.update(length=length.tolist(), ended=ended.tolist()) or 0)

    assert seen == {"length": [3, 2], "ended": [False, False]}


def test_a_lane_is_idle_only_when_no_episode_is_left_to_begin() -> None:
    rule = Episodes(4, 2)
    seen = []
    for lanes in ([0], [0, 1], [1]):
        seen.append(None if rule.idle is None else rule.idle.tolist())
        rule.note(lanes)

    assert seen == [None, None, [False, True]]
    assert rule.is_met


def test_a_signal_stops_its_round_and_those_before_but_none_after() -> None:
    signals = StopSignals()
    early = signals.rule(["sync"], 5)
    signals.stop(4, "sync")

    rules = [signals.rule(["other", "sync"], round_id) for round_id in (3, 4, 5)]

    assert [rule is not None and rule() for rule in (*rules, early)] == [True, True, False, False]
    assert signals.rule([("sync", 4)], 9)() and signals.rule([], 0) is None  # type: ignore[misc]


def test_numbers_that_are_not_whole_and_positive_are_refused() -> None:
    for value in (0, -1, 2.5, "8", True, None):
        for make in (Episodes, EpisodeQuota):
            with pytest.raises(ConfigError, match="expected a whole number, 1 or more"):
                make(value, 1)  # type: ignore[arg-type]
    for value in (-1, 1.5, None, True):
        with pytest.raises(ConfigError, match=r"round_id is .*expected a whole number, 0 or more"):
            StopSignals().stop(value, "sync")  # type: ignore[arg-type]
    assert not Episodes(np.int64(3), 3).is_met  # type: ignore[arg-type]


def test_fewer_episodes_than_lanes_are_refused_with_a_way_out() -> None:
    with pytest.raises(ConfigError, match=r"n_episode 2 is fewer than 3 envs.*lower env.collector_env_num"):
        Episodes(2, 3)
    with pytest.raises(ConfigError, match=r"2 evaluation episodes for 3 envs.*n_evaluator_episode"):
        EpisodeQuota(2, 3)
