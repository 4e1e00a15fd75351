import numpy as np
import pytest

from benchmarks.buffer import shortened
from benchmarks.buffer_cases import CASES
from benchmarks.contenders.buffer_data import atari, cartpole, count_episodes, cut
from benchmarks.rounds import ContenderError, run_once


def test_our_contender_prints_one_figure_and_versions():
    rows = run_once(shortened(CASES["sample_256"]).contenders["ours"], timeout_s=60)

    assert [row["metric"] for row in rows if "metric" in row] == ["us_per_sample"]
    assert rows[0]["value"] > 0
    assert "torch" in rows[-1]["versions"]


def test_a_buffer_that_does_not_exist_fails_with_its_name():
    ours = shortened(CASES["sample_256"]).contenders["ours"]
    absent = ours._replace(args=("--buffer", "nobody", *ours.args[2:]))

    with pytest.raises(ContenderError, match="nobody"):
        run_once(absent, timeout_s=60)


def test_atari_columns_begin_an_episode_with_its_first_frame_and_slide():
    columns = atari(np.random.default_rng(0), 1003)
    obs, next_obs = columns["obs"], columns["next_obs"]

    assert obs.shape == (1003, 4, 84, 84)
    assert all(np.array_equal(obs[1000, 0], obs[1000, i]) for i in range(4))
    np.testing.assert_array_equal(obs[1:1000], next_obs[:999])
    np.testing.assert_array_equal(np.flatnonzero(columns["done"]), [999, 1002])


def test_episodes_and_steps_are_counted_on_from_load_to_load():
    episode, step = count_episodes(np.array([False, True, False, False, True]), 7)

    np.testing.assert_array_equal(episode, [7, 7, 8, 8, 8])
    np.testing.assert_array_equal(step, [0, 1, 0, 1, 2])


def test_cut_leaves_a_rest_away():
    parts = cut(cartpole(np.random.default_rng(0), 20), 8)

    assert [len(part["obs"]) for part in parts] == [8, 8]
