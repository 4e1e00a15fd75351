"""Videos of evaluations: which episodes are chosen, how short ones are filled up."""

from __future__ import annotations

import numpy as np
import pytest

from ding_like.errors import ConfigError
from ding_like.worker import VectorEvalMonitor


def picture(value: int) -> np.ndarray:
    return np.full((4, 6, 3), value, np.uint8)


def test_the_worst_the_medians_and_the_best_episode() -> None:
    monitor = VectorEvalMonitor(env_num=1, n_episode=6)
    # The picture says the return; an episode lasts return + 1 steps.
    for value in (5, 1, 3, 4, 2, 0):
        for _ in range(value + 1):
            monitor.update_video([picture(value)])
        monitor.update_reward(0, value)

    video = monitor.get_video()

    assert video.shape == (4, 6, 3, 4, 6) and video.dtype == np.uint8
    assert video[:, 0, 0, 0, 0].tolist() == [0, 2, 3, 5]
    assert (video[0] == 0).all(), "the short episode ends with its last picture"


def test_pictures_come_by_env_and_stop_when_the_quota_is_full() -> None:
    monitor = VectorEvalMonitor(env_num=2, n_episode=2)
    monitor.update_video([picture(1), picture(10)])
    monitor.update_video([picture(2), picture(20)])
    monitor.update_reward(0, 1.0)
    monitor.update_video([picture(3), picture(30)])  # env 0 is full
    monitor.update_reward(1, 0.0)

    video = monitor.get_video()

    assert video[:, :, 0, 0, 0].tolist() == [[10, 20, 30], [1, 2, 2]]


def test_without_pictures_there_is_no_video() -> None:
    monitor = VectorEvalMonitor(env_num=1, n_episode=1)
    monitor.update_reward(0, 1.0)

    with pytest.raises(ConfigError, match="update_video"):
        monitor.get_video()


def test_pictures_may_come_by_env_id() -> None:
    monitor = VectorEvalMonitor(env_num=3, n_episode=3)
    monitor.update_video({2: picture(20), 0: picture(1)})
    monitor.update_video({0: picture(2)})
    monitor.update_reward(0, 1.0)
    monitor.update_reward(2, 0.0)

    video = monitor.get_video()

    assert video[:, :, 0, 0, 0].tolist() == [[20, 20], [1, 2]]


def test_a_picture_of_an_env_that_there_is_none_of_is_refused() -> None:
    monitor = VectorEvalMonitor(env_num=2, n_episode=2)

    with pytest.raises(ConfigError, match=r"envs \[2\]; this monitor has envs 0 to 1"):
        monitor.update_video({0: picture(1), 2: picture(2)})
