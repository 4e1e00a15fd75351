import gc
import weakref

import numpy as np
import pytest

from ding_like.data.batch import TransitionBatch
from ding_like.data.rows import CollectMode
from ding_like.errors import ConfigError
from ding_like.policy.base import Policy
from ding_like.worker import SampleSerialCollector, create_serial_collector, get_serial_collector_cls
from tests.worker.scripted_manager import CountingActor, ScriptedManager

LENGTHS = [[3, 1, 5], [4], [2, 7]]


class Rows(Policy):
    def __init__(self, *, nstep: int = 1, n_sample: int | None = 6, on_policy: bool = False) -> None:
        self._nstep, self._gamma, self._n_sample, self._on_policy = nstep, 0.9, n_sample, on_policy
        self._n_episode = None
        self._collect_actor = CountingActor()
        self._cfg = {}

    def _state_dict_act(self):
        return {}


@pytest.fixture
def make(in_tmp):
    made = []

    def make(manager=None, **kwargs) -> SampleSerialCollector:
        manager = manager or ScriptedManager(LENGTHS)
        cfg = SampleSerialCollector.default_config()
        made.append(SampleSerialCollector(cfg, manager, Rows(**kwargs).collect_mode, exp_name="exp"))
        return made[-1]

    yield make
    for collector in made:
        collector.close()


def keys(batch: TransitionBatch) -> list[tuple[int, int, int]]:
    return [tuple(int(v) for v in obs) for obs in batch["obs"]]


@pytest.mark.parametrize(("delay", "nstep"), [(0, 1), (0, 3), (2, 3)])
def test_calls_return_n_sample_and_the_surplus_leads_the_next(make, nstep, delay):
    manager = ScriptedManager(LENGTHS, delay=delay)
    collector = make(manager, nstep=nstep)

    batches = [collector.collect(train_iter=i) for i in range(20)]

    assert [len(batch) for batch in batches] == [6] * 20
    seen = [key for batch in batches for key in keys(batch)]
    assert len(set(seen)) == len(seen), "no sample twice"
    by_lane = [[key for key in seen if key[0] == lane] for lane in range(3)]
    history = [[key for key in manager.history if key[0] == lane] for lane in range(3)]
    for mine, stepped in zip(by_lane, history, strict=True):
        assert mine == stepped[: len(mine)], "no sample lost"
    assert collector.envstep == len(manager.history)


def test_a_surplus_that_is_enough_needs_no_step(make):
    manager = ScriptedManager([[9]] * 6)
    collector = make(manager)
    collector.collect(n_sample=2)

    batch = collector.collect(n_sample=3)

    assert [key[0] for key in keys(batch)] == [2, 3, 4] and collector.envstep == 6


def test_a_lane_that_a_resume_could_not_bring_back_loses_its_open_episode(make):
    collector, other_manager = make(nstep=3), ScriptedManager([[9], [9], [9]])
    collector.reset_env(ScriptedManager([[9], [9], [9]]))
    collector.collect(n_sample=3)
    other = make(other_manager, nstep=3)
    other_manager.lanes_lost = [1]

    other.load_state_dict(collector.state_dict())
    batch = other.collect(n_sample=9)

    assert other._loop.dropped_episodes == 1 and other._loop.dropped_steps == 3
    # Windows of lanes 0 and 2 go on from their third step; lane 1 begins a new episode.
    assert batch["step"][batch["lane"] == 1].tolist()[:1] == [0]
    assert batch["step"][batch["lane"] == 0].tolist()[:1] == [1]


def test_drop_extra_false_returns_the_surplus(make):
    collector = make()

    batch = collector.collect(n_sample=4, drop_extra=False)

    assert len(batch) == 6


def test_on_policy_surplus_is_dropped_and_counted(make):
    collector = make(on_policy=True)

    first = collector.collect(n_sample=4)
    second = collector.collect(n_sample=4)

    assert len(first) == len(second) == 4
    assert keys(second)[0][2] != 0 or keys(second)[0] not in keys(first)
    assert collector.state_dict()["report"]["total"]["dropped_steps"] == 4


def test_rows_carry_train_iter(make):
    collector = make()

    batch = collector.collect(train_iter=17)

    assert batch["policy_version"].tolist() == [17] * 6
    assert batch[0]["collect_iter"] == 17


def test_level_seeds_become_a_column(make):
    batch = make().collect(level_seeds={0: 100, 1: 101, 2: 102})

    assert batch["seed"].tolist() == [100 + int(lane) for lane in batch["lane"]]


def test_no_target_is_an_error(make):
    with pytest.raises(ConfigError, match="n_sample"):
        make(n_sample=None).collect()


def test_collect_before_there_is_a_policy_is_an_error(in_tmp):
    collector = SampleSerialCollector(SampleSerialCollector.default_config(), ScriptedManager(LENGTHS))

    with pytest.raises(ConfigError, match="env and a policy"):
        collector.collect(4)

    collector.close()


def test_another_policy_goes_on_with_open_episodes(make):
    manager = ScriptedManager([[10], [10]])
    collector = make(manager)
    collector.collect(n_sample=6)

    collector.reset_policy(Rows().collect_mode)
    batch = collector.collect(n_sample=6)

    assert keys(batch)[0] == (0, 0, 3)
    assert batch["step"].tolist() == [3, 3, 4, 4, 5, 5]


class WithValue(CountingActor):
    def act(self, obs, **kwargs):
        columns = super().act(obs, **kwargs)
        return {**columns, "value": columns["action"] / 2}


@pytest.mark.parametrize(("delay", "nstep"), [(0, 1), (2, 3)])
def test_rows_of_a_policy_with_other_columns_are_dropped_and_counted(make, delay, nstep):
    manager = ScriptedManager([[10], [10], [7]], delay=delay)
    collector = make(manager, nstep=nstep)
    given = [collector.collect(n_sample=4), collector.collect(n_sample=4)]  # a surplus is left, and open n-step windows
    mode = Rows(nstep=nstep).collect_mode._replace(actor=WithValue())

    collector.reset_policy(mode)
    given += [collector.collect(n_sample=20) for _ in range(3)]

    last = TransitionBatch.concat(given[-2:])
    assert "value" in last.columns and (last["value"] == last["action"] / 2).all()
    assert all(np.array_equal(batch["seen"], batch["obs"]) for batch in given)
    seen = [key for batch in given for key in keys(batch)]
    assert len(set(seen)) == len(seen), "no sample twice"
    for lane in range(3):
        mine = [key for key in keys(last) if key[0] == lane]
        history = [key for key in manager.history if key[0] == lane]
        start = history.index(mine[0])
        assert mine == history[start : start + len(mine)], "the new policy's rows have no gaps"
    state = collector.state_dict()
    dropped = state["report"]["total"]["dropped_steps"] + collector._loop.dropped_steps
    waiting = len(state["loop"]["rollout"]["columns"]["lane"]) + len((state["surplus"] or {"lane": []})["lane"])
    assert collector.envstep == len(seen) + waiting + dropped


def test_log_has_the_keys_of_di_engine(make, tmp_path):
    class Writer:
        lines: list = []

        def write(self, source, values, *, env_step, train_iter):
            self.lines.append((source, dict(values), env_step, train_iter))

    collector = make()
    collector._metrics = Writer()
    collector.collect(n_sample=30, train_iter=100)

    source, values, env_step, _ = Writer.lines[0]
    assert source == "collector" and env_step == 30
    wanted = (
        "episode_count envstep_count train_sample_count avg_envstep_per_episode avg_sample_per_episode "
        "avg_envstep_per_sec avg_train_sample_per_sec avg_episode_per_sec reward_mean reward_std reward_max "
        "reward_min total_envstep_count total_train_sample_count total_episode_count"
    )
    assert set(wanted.split()) <= set(values)
    assert "reward_mean" in (tmp_path / "exp/log/collector/collector_logger.txt").read_text()


def test_close_is_idempotent_and_closes_the_env(make):
    manager = ScriptedManager(LENGTHS)
    collector = make(manager)

    collector.close()
    collector.close()

    assert manager.closed


def test_scheme_parts_build_by_type(in_tmp):
    cfg = SampleSerialCollector.default_config()

    collector = create_serial_collector(cfg, env=ScriptedManager(LENGTHS), policy=Rows().collect_mode)

    assert get_serial_collector_cls(cfg) is SampleSerialCollector
    assert isinstance(collector, SampleSerialCollector)
    assert len(collector.collect(3)) == 3
    collector.close()


def test_a_mode_may_return_lists_that_do_not_stack(make):
    manager = ScriptedManager([[4], [4]])
    collector = make(manager)

    def segment(rollout):
        batch = TransitionBatch(rollout.columns())
        return [{"ragged": np.zeros(int(row["step"]))} for row in batch], np.zeros(2, np.int64)

    collector.reset_policy(Rows().collect_mode._replace(segment=segment))
    samples = collector.collect(n_sample=5) + collector.collect(n_sample=3)

    assert [len(sample["ragged"]) for sample in samples] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert CollectMode._fields[-4:] == ("actor", "segment", "num_ready", "reads_info")


def test_a_surplus_keeps_the_level_seeds_it_was_made_with(make):
    collector = make()

    first = collector.collect(n_sample=4, level_seeds={0: 100, 1: 101, 2: 102})
    second = collector.collect(n_sample=5, level_seeds={0: 200, 1: 201, 2: 202})

    assert first["seed"].tolist() == [100, 101, 102, 100]
    assert second["seed"].tolist() == [101, 102, 200, 201, 202]
    assert second["lane"].tolist() == [1, 2, 0, 1, 2]


def test_level_seeds_of_rows_without_an_env_are_an_error(make):
    collector = make()

    def segment(rollout):
        return TransitionBatch({"obs": rollout["obs"].copy()}), np.zeros(3, np.int64)

    collector.reset_policy(Rows().collect_mode._replace(segment=segment))
    with pytest.raises(ConfigError, match="have no 'env_id'"):
        collector.collect(level_seeds={0: 0, 1: 1, 2: 2})


@pytest.mark.parametrize("on_policy", [False, True])
def test_an_unrecorded_random_collect_leaves_no_trace_in_the_statistics(make, on_policy):
    manager = ScriptedManager([[2], [3], [4]])
    collector = make(manager, on_policy=on_policy)
    fresh = make(ScriptedManager([[2], [3], [4]])).state_dict()["report"]

    batch = collector.collect(n_sample=30, random_collect=True, record_random_collect=False)

    assert len(batch) == 30 and collector.envstep == 30
    assert collector.state_dict()["report"] == fresh and np.isnan(collector.mean_return)


def test_a_recorded_random_collect_counts_as_any_other(make):
    collector = make(ScriptedManager([[2], [3], [4]]))

    collector.collect(n_sample=30, random_collect=True)

    assert collector.state_dict()["report"]["total"]["train_samples"] == 30
    assert collector.mean_length < 4


def test_the_env_step_count_can_be_set_and_goes_on_from_there(make):
    collector = make()
    collector.collect()

    collector.envstep = 1000
    collector.collect()

    assert collector.envstep == 1006


def test_a_number_of_samples_that_does_not_fit_the_envs_is_told(make, caplog):
    collector = make()
    with caplog.at_level("WARNING"):
        collector.collect(n_sample=29)
        collector.collect(n_sample=31)

    assert "n_sample 29 is not a multiple of 3 envs" in caplog.text
    assert caplog.text.count("is not a multiple of") == 1, "other numbers are no news"


def test_an_abnormal_step_costs_its_episode_and_every_lane_goes_on(make):
    manager = ScriptedManager([[4], [4], [4]], abnormal_at={(1, 0, 2)})
    collector = make(manager)

    batch = collector.collect(n_sample=14)

    assert manager.ready.all()
    assert [key for key in keys(batch) if key[0] == 1] == [(1, 1, 0), (1, 1, 1), (1, 1, 2)]
    # Of 18 steps, 14 are rows, 1 is surplus, and 3 were in the void episode.
    assert collector.envstep == len(manager.history) == 18
    assert collector.state_dict()["loop"]["counters"][1:3] == [3, 1]


def test_the_actor_begins_afresh_after_an_abnormal_step(make):
    manager = ScriptedManager([[4], [4], [4]], abnormal_at={(1, 0, 2)})
    policy = Rows()
    collector = make(manager)
    collector.reset_policy(policy.collect_mode)

    collector.collect(n_sample=14)

    assert [first for _, first in policy._collect_actor.calls][:5] == [
        [True, True, True],
        [False, False, False],
        [False, False, False],
        [False, True, False],
        [True, False, True],
    ]


def test_a_score_that_the_env_tells_is_the_return(make):
    class Scored(ScriptedManager):
        def step(self, lanes, actions, *, timeout_s=None):
            answer = super().step(lanes, actions, timeout_s=timeout_s)
            ended = answer.lanes[answer.terminated | answer.truncated]
            return answer._replace(info={int(lane): {"eval_episode_return": 7.0} for lane in ended})

    collector = make(Scored([[2], [2], [2]]))

    collector.collect(n_sample=12)

    assert collector.mean_return == 7.0


def test_on_policy_rows_begin_after_the_last_call_and_open_episodes_go_on(make):
    manager = ScriptedManager([[10], [10], [10]], delay=2)
    collector = make(manager, on_policy=True, nstep=3)

    collector.collect(n_sample=6, train_iter=0)
    begin = len(manager.history)
    batch = collector.collect(n_sample=6, train_iter=1)

    assert set(keys(batch)) <= set(manager.history[begin:])
    assert {key[1] for key in keys(batch)} == {0} and min(key[2] for key in keys(batch)) > 0


def test_an_episode_that_the_manager_dropped_itself_is_dropped_once(make):
    class Says(ScriptedManager):
        def step(self, lanes, actions, *, timeout_s=None):
            answer = super().step(lanes, actions, timeout_s=timeout_s)
            return answer._replace(info={int(lane): {"abnormal": True} for lane in answer.dropped})

    manager = Says([[4], [4], [4]], drop_at={(1, 0, 2)})
    collector = make(manager)

    batch = collector.collect(n_sample=14)

    assert next(key for key in keys(batch) if key[0] == 1) == (1, 1, 0)
    assert collector.state_dict()["loop"]["counters"][2] == 1


def test_what_was_handed_out_is_freed_as_soon_as_nobody_holds_it(make):
    collector = make()
    gc.disable()
    try:
        batch = collector.collect(n_sample=6)
        gone = weakref.ref(batch.columns["obs"])
        collector.collect(n_sample=6)

        del batch

        assert gone() is None, "a circle of references holds it until the garbage collector comes by"
    finally:
        gc.enable()
