import numpy as np
import pytest

from ding_like.data.batch import TransitionBatch
from ding_like.errors import ConfigError
from ding_like.policy.base import Policy
from ding_like.types import CollectMode
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
def make(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
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


@pytest.mark.parametrize("nstep", [1, 3])
@pytest.mark.parametrize("delay", [0, 2])
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


def test_collect_before_there_is_a_policy_is_an_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
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


def test_log_has_the_seed_keys(make, tmp_path):
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


def test_factories_build_by_type(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
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
    assert CollectMode._fields[-3:] == ("actor", "segment", "num_ready")
