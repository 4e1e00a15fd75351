"""DI-engine's view of an array manager: dicts by env id."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from ding_like.envs import DiEngineEnvManager, EnvFactory, create_env_manager
from ding_like.errors import EnvError
from tests.envs.scripted_env import ScriptedEnv

KINDS = {
    "base": dict(type="base"),
    "next step": dict(type="gym_vector", autoreset_mode="NextStep"),
    "same step": dict(type="gym_vector", autoreset_mode="SameStep"),
}


def make(kind: str = "base", num: int = 3, episode_num: float = float("inf"), **kwargs: Any) -> DiEngineEnvManager:
    env_fn = [functools.partial(ScriptedEnv, lane, **kwargs) for lane in range(num)]
    manager: Any = create_env_manager(KINDS[kind], env_fn)
    return DiEngineEnvManager(manager, episode_num=episode_num)


def test_ready_obs_has_an_observation_for_each_env() -> None:
    env = make()
    env.launch()

    ready = env.ready_obs

    assert list(ready) == [0, 1, 2]
    assert ready[1][:3].tolist() == [1, 0, 0]


def test_observations_that_were_handed_out_stay_as_they_are() -> None:
    env = make()
    env.launch()
    before = env.ready_obs[0]

    for _ in range(3):
        env.step({0: 1, 1: 1, 2: 1})

    assert before[:3].tolist() == [0, 0, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_every_env_plays_its_episodes_and_is_done(kind: str) -> None:
    env = make(kind, episode_num=2, script=((2, "terminated"), (3, "truncated")))
    env.launch()

    ends: list[tuple[int, Any]] = []
    while not env.done:
        timesteps = env.step(dict.fromkeys(env.ready_obs, 1))
        ends += [(index, t.info) for index, t in timesteps.items() if t.done]

    assert env.ready_obs == {}
    assert sorted(index for index, _ in ends) == [0, 0, 1, 1, 2, 2]
    first, second = (info for index, info in ends if index == 0)
    # Rewards of the scripted env are 10 * episode + step.
    assert first["eval_episode_return"] == 1 + 2 and first["TimeLimit.truncated"] is False
    assert second["eval_episode_return"] == 11 + 12 + 13 and second["TimeLimit.truncated"] is True


def test_a_timestep_holds_the_true_last_observation_and_a_reward_of_one_number() -> None:
    env = make(num=1, script=((1, "terminated"),))
    env.launch()

    timestep = env.step({0: 2})[0]

    assert timestep.done is True
    assert timestep.obs[:3].tolist() == [0, 0, 1]
    assert timestep.reward.tolist() == [1.0] and timestep.reward.dtype == np.float32
    assert env.ready_obs[0][:3].tolist() == [0, 1, 0]


def test_an_envs_own_return_is_kept() -> None:
    cfg = dict(type="tests.envs.my_envs:DiEngineStyleWalk", width=1)
    manager: Any = create_env_manager(dict(type="base"), [EnvFactory(cfg)])
    env = DiEngineEnvManager(manager)
    env.launch()

    assert env.step({0: 1})[0].info["eval_episode_return"] == 42.0


def test_a_broken_env_answers_abnormal_and_its_return_starts_anew(tmp_path: Any) -> None:
    env = make(num=1, script=((3, "terminated"),), faults={(0, 2): "raise"}, fault_dir=str(tmp_path))
    env.launch()

    answers = [env.step({0: 0})[0] for _ in range(5)]

    assert [t.info.get("abnormal", False) for t in answers] == [False, True, False, False, False]
    assert answers[-1].info["eval_episode_return"] == 1 + 2 + 3


def test_actions_may_be_arrays_of_one_number() -> None:
    env = make(num=1)
    env.launch()

    assert 0 in env.step({0: np.array([2])})


def test_some_of_the_envs_may_be_stepped() -> None:
    env = make(script=((9, "terminated"),))
    env.launch()

    assert list(env.step({2: 0, 0: 1})) == [0, 2]
    assert [int(obs[2]) for obs in env.ready_obs.values()] == [1, 0, 1]


def test_an_env_that_is_done_cannot_be_stepped() -> None:
    env = make(num=2, episode_num=1, script=((1, "terminated"),))
    env.launch()
    env.step({0: 0})

    with pytest.raises(EnvError, match=r"envs \[0\] have had their 1 episodes"):
        env.step({0: 0, 1: 0})


def test_reset_gives_every_env_its_episodes_again() -> None:
    env = make(num=2, episode_num=1, script=((1, "terminated"),))
    env.launch()
    env.step({0: 0, 1: 0})
    assert env.done

    env.reset()

    assert not env.done and list(env.ready_obs) == [0, 1]


def test_reset_of_some_envs_leaves_the_others() -> None:
    env = make(script=((9, "terminated"),))
    env.launch()
    env.step({0: 0, 1: 0, 2: 0})

    env.reset({1: None})

    assert [int(obs[2]) for obs in env.ready_obs.values()] == [1, 0, 1]


class Resets:
    """Make envs that tell how they were reset."""

    def __init__(self, num: int) -> None:
        self.envs = [ScriptedEnv(lane) for lane in range(num)]
        manager: Any = create_env_manager(dict(type="base"), [functools.partial(self._get, i) for i in range(num)])
        self.manager = DiEngineEnvManager(manager)

    def _get(self, index: int) -> ScriptedEnv:
        return self.envs[index]

    @property
    def seeds(self) -> list[int | None]:
        return [env.resets[-1] for env in self.envs]


@pytest.mark.parametrize(
    ("seed", "seeds"), [(10, [10, 11, 12]), ([5, 3, 1], [5, 3, 1]), ({0: 4, 1: 4, 2: 9}, [4, 4, 9])]
)
def test_seeds_are_a_number_a_list_or_a_dict(seed: Any, seeds: list[int]) -> None:
    envs = Resets(3)

    envs.manager.seed(seed)
    envs.manager.launch()

    assert envs.seeds == seeds


def test_seeds_of_a_list_hold_for_one_reset() -> None:
    envs = Resets(2)
    envs.manager.seed([5, 3])
    envs.manager.launch()

    envs.manager.reset()

    assert 5 not in envs.seeds and 3 not in envs.seeds


def test_a_seed_among_the_reset_parameters_seeds_that_env() -> None:
    envs = Resets(2)
    envs.manager.launch()

    envs.manager.reset({1: {"seed": 77}})

    assert envs.seeds[1] == 77


def test_static_seeds_repeat() -> None:
    envs = Resets(2)
    envs.manager.seed(10, dynamic_seed=False)
    envs.manager.launch()

    envs.manager.reset()

    assert envs.seeds == [10, 11]


def test_seeds_for_envs_that_do_not_exist_are_refused() -> None:
    with pytest.raises(EnvError, match="envs 0 to 1"):
        Resets(2).manager.seed([1, 2, 3])


def test_close_closes_the_manager() -> None:
    env = make()

    env.close()

    assert env.closed
