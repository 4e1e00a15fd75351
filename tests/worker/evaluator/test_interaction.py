from __future__ import annotations

import numpy as np
import pytest
import torch

from ding_like.data.rows import EvalMode
from ding_like.errors import ConfigError
from ding_like.worker import InteractionSerialEvaluator, VectorEvalMonitor, create_serial_evaluator
from tests.worker.scripted_manager import CountingActor, ScriptedManager


def nothing(*args, **kwargs):
    return None


MODE = EvalMode(*[nothing] * 6, actor=CountingActor())


@pytest.fixture
def make(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = []

    def make(manager, **cfg) -> InteractionSerialEvaluator:
        full = {**InteractionSerialEvaluator.default_config(), "n_episode": 4, **cfg}
        made.append(InteractionSerialEvaluator(full, manager, MODE, exp_name="exp"))
        return made[-1]

    yield make
    for evaluator in made:
        evaluator.close()


@pytest.mark.parametrize("delay", [0, 2])
def test_the_first_episodes_of_each_env_count_and_no_more_steps_are_taken(make, delay):
    # Lane 0 has short episodes: it must not push its later ones in.
    manager = ScriptedManager([[1], [6]], delay=delay)
    evaluator = make(manager)

    _, info = evaluator.eval(train_iter=1)

    assert sorted({(lane, episode) for lane, episode, _ in manager.history}) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    expected = [manager.reward_of(0, e, 0) for e in range(2)]
    expected += [sum(manager.reward_of(1, e, s) for s in range(6)) for e in range(2)]
    assert info["eval_episode_return"] == expected
    assert len(manager.history) == 2 + 12


def test_each_evaluation_has_seeds_of_its_own_and_a_number_repeats_them(make):
    manager = ScriptedManager([[2], [2]])
    evaluator = make(manager)
    for number in (0, 1, 0):
        evaluator.play(4, number=number)

    first, second, again = manager.seeds[-3:]

    assert first == again != second
    assert len(set(first)) == 2


def test_stop_needs_the_value_and_some_training(make):
    evaluator = make(ScriptedManager([[2], [2]]), stop_value=-1.0)

    assert evaluator.eval(train_iter=0)[0] is False
    assert evaluator.eval(train_iter=1)[0] is True
    assert make(ScriptedManager([[2], [2]]), stop_value=1e9).eval(train_iter=1)[0] is False


def test_a_new_best_is_saved_once(make):
    evaluator, saved = make(ScriptedManager([[2], [2]])), []

    evaluator.eval(saved.append, train_iter=1)
    evaluator.eval(saved.append, train_iter=2)

    assert saved == ["ckpt_best.pth.tar"]


def test_should_eval_follows_eval_freq(make):
    evaluator = make(ScriptedManager([[2], [2]]), eval_freq=10)
    assert evaluator.should_eval(0)
    evaluator.eval(train_iter=0)

    assert [evaluator.should_eval(i) for i in (0, 1, 9, 10, 11)] == [False, False, False, True, True]


def test_fewer_episodes_than_envs_is_an_error(make):
    with pytest.raises(ConfigError, match="1 evaluation episodes for 2 envs"):
        make(ScriptedManager([[2], [2]])).eval(n_episode=1)


def test_state_round_trip_keeps_best_and_number(make):
    first, second = make(ScriptedManager([[2], [2]])), make(ScriptedManager([[2], [2]]))
    first.eval(train_iter=5)

    second.load_state_dict(first.state_dict())

    assert second.num_evals == 1 and second.best_return == first.best_return
    assert not second.should_eval(5)


def test_factory_defaults_to_interaction(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    evaluator = create_serial_evaluator({"eval_freq": 5, "n_episode": 2}, env=ScriptedManager([[2], [2]]), policy=MODE)

    assert isinstance(evaluator, InteractionSerialEvaluator)
    evaluator.close()


def test_monitor_quota_and_info():
    monitor = VectorEvalMonitor(2, 3)
    for env_id, value in ((0, 1.0), (0, 2.0), (0, 9.0), (1, 3.0), (1, 9.0)):
        monitor.update_reward(env_id, value)
        monitor.update_info(env_id, {"speed": value, "name": "x"})

    assert monitor.get_episode_return() == [1.0, 2.0, 3.0]
    assert monitor.is_finished() and monitor.get_current_episode() == 3
    assert monitor.get_latest_reward(0) == 2.0
    assert monitor.get_episode_info() == {"speed": [1.0, 2.0, 3.0], "name": ["x", "x", "x"], "speed_mean": 2.0}


def test_infos_and_returns_may_be_tensors_and_arrays():
    monitor = VectorEvalMonitor(env_num=2, n_episode=2)
    for env_id, value in ((0, 1.0), (1, 3.0)):
        monitor.update_info(env_id, {"speed": torch.tensor(value), "goals": np.array([value]), "at": torch.ones(2)})
        monitor.update_reward(env_id, np.array([value], np.float32))

    info = monitor.get_episode_info()

    assert (info["speed"], info["speed_mean"]) == ([1.0, 3.0], 2.0)
    assert (info["goals"], info["goals_mean"]) == ([1.0, 3.0], 2.0)
    assert info["at"] == [[1.0, 1.0], [1.0, 1.0]] and "at_mean" not in info
    assert monitor.get_episode_return() == [1.0, 3.0]


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
