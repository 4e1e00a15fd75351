from __future__ import annotations

import numpy as np
import pytest

from ding_like.data.demonstrations import Demonstrations
from ding_like.errors import ConfigError
from ding_like.worker.recorder import cut_after, play_demonstrations, play_steps
from tests.worker.scripted_manager import ScriptedManager, code


class Actor:
    """Actor whose action is the step of the episode, with columns that no demonstration has."""

    def __init__(self):
        self.resets = 0
        self.settings: list[dict] = []

    def act(self, obs, *, lanes, is_first, rng, **setting):
        self.settings.append(setting)
        return {"action": obs[:, 2].astype(np.int64) % 4, "log_prob": np.zeros(len(lanes), np.float32)}

    def reset(self, lanes=None):
        self.resets += 1

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def play(manager, number, **more):
    return play_demonstrations(manager, Actor(), number, np.random.default_rng(0), **more)


@pytest.mark.parametrize("delay", [0, 3])
def test_each_lane_plays_its_share_of_whole_episodes_however_short(delay):
    # Lane 0's episodes are short, lane 1's are long: the first five to end would all be of lane 0.
    columns = play(ScriptedManager([[1], [7, 5]], delay=delay), 5)
    assert np.bincount(columns["obs"][:, 0].astype(int)).tolist() == [3 * 1, 7 + 5]
    assert np.bincount(columns["episode_id"]).tolist().count(1) == 3
    for episode in range(5):
        mine = columns["episode_id"] == episode
        lane, number = columns["obs"][mine][0, :2].astype(int)
        length = int(mine.sum())
        assert np.flatnonzero(mine).tolist() == list(range(np.flatnonzero(mine)[0], np.flatnonzero(mine)[0] + length))
        assert columns["step"][mine].tolist() == list(range(length))
        assert columns["obs"][mine].tolist() == [code(lane, number, step) for step in range(length)]
        # The last one too: the true observation, not that of the reset.
        assert columns["next_obs"][mine].tolist() == [code(lane, number, step + 1) for step in range(length)]
        ended = columns["terminated"][mine] | columns["truncated"][mine]
        assert ended.tolist() == [False] * (length - 1) + [True]
        assert columns["truncated"][mine][-1] == (number % 2 == 1)


def test_the_columns_are_those_of_demonstrations_alone(tmp_path):
    columns = play(ScriptedManager([[3], [2]]), 2)
    assert set(columns) == {
        *("obs", "next_obs", "action", "reward", "terminated", "truncated", "lane", "episode_id", "step")
    }
    assert not columns["lane"].any()
    Demonstrations(columns, {"env_id": "scripted"}).save(tmp_path / "d.safetensors")
    loaded = Demonstrations.load(tmp_path / "d.safetensors")
    assert loaded.num_episodes == 2
    assert loaded.info["env_id"] == "scripted"


def test_an_episode_that_breaks_off_is_played_again():
    columns = play(ScriptedManager([[4], [4]], drop_at={(0, 0, 2)}), 4)
    assert np.bincount(columns["episode_id"]).tolist() == [4] * 4
    assert not ((columns["obs"][:, 0] == 0) & (columns["obs"][:, 1] == 0)).any()


def test_the_actor_is_reset_and_gets_the_setting():
    actor = Actor()
    play_demonstrations(ScriptedManager([[2]]), actor, 1, np.random.default_rng(0), setting={"eps": 0.5})
    assert actor.resets == 1
    assert actor.settings == [{"eps": 0.5}] * 2


def test_fewer_episodes_than_lanes_are_refused():
    with pytest.raises(ConfigError, match="1 evaluation episodes for 2 envs"):
        play(ScriptedManager([[1], [1]]), 1)


@pytest.mark.parametrize("delay", [0, 3])
@pytest.mark.parametrize("number", [2, 9, 40, 700])
def test_a_number_of_steps_is_the_first_episodes_that_began_and_the_last_is_cut(number, delay):
    # Lane 1's episodes are long: the first to end would all be of lane 0.
    columns = play_steps(ScriptedManager([[1, 2], [7, 5]], delay=delay), Actor(), number, np.random.default_rng(0))

    assert len(columns["action"]) == number
    ends = np.flatnonzero(np.append(np.diff(columns["episode_id"]) != 0, True))
    assert np.array_equal(np.flatnonzero(columns["terminated"] | columns["truncated"]), ends)
    begun = set()
    for start, end in zip([0, *ends[:-1] + 1], ends, strict=True):
        lane, episode = columns["obs"][start, :2].astype(int)
        full = ([1, 2], [7, 5])[lane][episode % 2]
        assert columns["step"][start : end + 1].tolist() == list(range(end - start + 1))
        assert end - start + 1 == full or end == number - 1
        assert columns["terminated"][end] == (end - start + 1 == full and episode % 2 == 0)
        begun.add((lane, episode))
    lengths = {lane: [episode for other, episode in begun if other == lane] for lane in (0, 1)}
    assert all(sorted(found) == list(range(len(found))) for found in lengths.values())  # none is left out
    assert (np.diff(columns["episode_id"]) >= 0).all()


def test_what_is_cut_was_not_an_end():
    whole = play(ScriptedManager([[3, 2]]), 2)
    ended, cut = cut_after(whole, 3), cut_after(whole, 4)
    assert (ended["terminated"].tolist(), ended["truncated"].tolist()) == ([False, False, True], [False] * 3)
    assert cut["truncated"].tolist() == [False] * 3 + [True]
    assert not whole["truncated"][3]


def test_progress_is_reported_up_to_the_number():
    found = []
    play_steps(ScriptedManager([[9]]), Actor(), 600, np.random.default_rng(0), progress=found.append)
    assert found == [256, 512, 600]
