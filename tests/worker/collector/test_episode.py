import numpy as np
import pytest

from ding_like.data.batch import EpisodeBatch
from ding_like.errors import ConfigError
from ding_like.worker import EpisodeSerialCollector
from tests.worker.collector.test_sample import Rows, keys
from tests.worker.scripted_manager import ScriptedManager

# Lane 0 ends an episode at every step: a collector that takes the first to end would take only these.
LENGTHS = [[1], [9], [4]]


@pytest.fixture
def make(in_tmp):
    made = []

    def make(manager, *, nstep: int = 1, **cfg) -> EpisodeSerialCollector:
        full = {**EpisodeSerialCollector.default_config(), **cfg}
        made.append(EpisodeSerialCollector(full, manager, Rows(nstep=nstep).collect_mode, exp_name="exp"))
        return made[-1]

    yield make
    for collector in made:
        collector.close()


@pytest.mark.parametrize("delay", [0, 3])
def test_exactly_n_episodes_are_begun_and_all_are_whole(make, delay):
    manager = ScriptedManager(LENGTHS, delay=delay)
    collector = make(manager)

    for call in range(3):
        first = len(manager.history)
        episodes = collector.collect(n_episode=5)

        assert isinstance(episodes, EpisodeBatch) and len(episodes) == 5
        begun = {key[:2] for key in manager.history[first:]}
        assert {keys(episode)[0][:2] for episode in episodes} == begun, f"call {call}"
        for episode in episodes:
            lane = keys(episode)[0][0]
            assert [step for _, _, step in keys(episode)] == list(range(LENGTHS[lane][0]))
            assert len({key[:2] for key in keys(episode)}) == 1
            assert episode[-1]["done"] and not episode["done"][:-1].any()
        assert {keys(episode)[0][0] for episode in episodes} == {0, 1, 2}, "no lane is left out"
    assert collector.envstep == len(manager.history)


def test_train_samples_are_what_segment_makes(make):
    collector = make(ScriptedManager(LENGTHS), nstep=3, get_train_sample=True)

    batch = collector.collect(n_episode=3)

    assert len(batch) == 1 + 9 + 4
    assert batch["discount"].min() == np.float32(0.9**3)


def test_an_episode_that_breaks_off_is_begun_again(make):
    manager = ScriptedManager([[3], [3]], drop_at={(1, 0, 2)})
    collector = make(manager)

    episodes = collector.collect(n_episode=2)

    assert {keys(episode)[0][:2] for episode in episodes} == {(0, 0), (1, 1)}


def test_open_episodes_of_another_use_are_broken_off(make):
    manager = ScriptedManager([[5], [5]])
    manager.step(np.array([0]), np.array([1]))
    collector = make(manager)
    collector._loop.step({})

    episodes = collector.collect(n_episode=2)

    assert [len(episode) for episode in episodes] == [5, 5]


def test_reward_shaping_replaces_rewards(make):
    manager = ScriptedManager([[2], [3]])
    seen = []

    def reward_shaping(env_id, transitions):
        seen.append((env_id, len(transitions)))
        return [{**row, "reward": 100.0 + env_id} for row in transitions]

    manager.reward_shaping = reward_shaping
    collector = make(manager, reward_shaping=True)

    episodes = collector.collect(n_episode=2)

    assert sorted(seen) == [(0, 2), (1, 3)]
    assert all((episode["reward"] == 100 + keys(episode)[0][0]).all() for episode in episodes)


def test_shaped_rewards_are_in_the_train_samples(make):
    manager = ScriptedManager([[2], [3]])
    manager.reward_shaping = lambda env_id, transitions: [{**row, "reward": 1.0} for row in transitions]
    collector = make(manager, nstep=2, reward_shaping=True, get_train_sample=True)

    batch = collector.collect(n_episode=2)

    by_key = {key: float(reward) for key, reward in zip(keys(batch), batch["reward"], strict=True)}
    assert by_key == pytest.approx({(0, 0, 0): 1.9, (0, 0, 1): 1.0, (1, 0, 0): 1.9, (1, 0, 1): 1.9, (1, 0, 2): 1.0})


def test_what_cannot_be_collected_is_refused(make):
    with pytest.raises(ConfigError, match="reward_shaping"):
        make(ScriptedManager([[2], [2]]), reward_shaping=True).collect(n_episode=2)
    loses = ScriptedManager([[2], [2]])
    loses.reward_shaping = lambda env_id, transitions: transitions[1:]
    with pytest.raises(ConfigError, match="must return the transitions it was given"):
        make(loses, reward_shaping=True).collect(n_episode=2)
    collector = make(ScriptedManager([[2], [2]]))
    with pytest.raises(ConfigError, match="n_episode 1 is fewer than 2 envs"):
        collector.collect(n_episode=1)
    with pytest.raises(ConfigError, match="n_episode"):
        collector.collect()
    policy = Rows()
    policy._n_episode = 3
    collector.reset_policy(policy.collect_mode)
    assert len(collector.collect()) == 3, "the policy's own number is the default"


@pytest.mark.parametrize("kind", ["drop_at", "abnormal_at"])
def test_an_episode_lost_to_a_fault_is_replaced_and_every_lane_is_ready_after(make, kind):
    manager = ScriptedManager([[3], [3], [3], [3]], **{kind: {(1, 0, 2), (2, 1, 0)}})
    collector = make(manager)

    episodes = collector.collect(n_episode=8)

    assert len(episodes) == 8 and all(len(episode) == 3 for episode in episodes)
    assert int(manager.ready.sum()) == 4
