"""How an env in DI-engine's style looks as a gymnasium env."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from ding_like.envs import BaseEnv, BaseEnvTimestep, DiEngineStyleEnv, make_env
from ding_like.envs.manager.base import BaseEnvManager
from ding_like.errors import EnvError
from ding_like.utils import log
from tests.envs.my_envs import DiEngineStyleWalk


def walk(**cfg: Any) -> DiEngineStyleEnv:
    return DiEngineStyleEnv(DiEngineStyleWalk(cfg))


def step_until_over(env: DiEngineStyleEnv, action: int = 1) -> Any:
    while True:
        answer = env.step(action)
        if answer[2] or answer[3]:
            return answer


def test_done_means_terminated_and_a_time_limit_in_info_truncated() -> None:
    for env, ends in [(walk(), (True, False)), (walk(width=9, limit=2), (False, True))]:
        env.reset(seed=0)
        _, reward, *answer = step_until_over(env)
        env.close()

        assert tuple(answer[:2]) == ends and env.env.is_closed
        assert reward == 0.5 and type(reward) is float


def test_what_done_means_is_said_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_warned", set())
    env = walk()

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            env.reset(seed=0)
            step_until_over(env)

    assert caplog.text.count("reports only `done`") == 1
    assert "TimeLimit.truncated" in caplog.text


def test_a_reward_of_many_numbers_is_an_env_error() -> None:
    class Many(DiEngineStyleWalk):
        def step(self, action: Any) -> BaseEnvTimestep:
            return super().step(action)._replace(reward=np.zeros(2))

    env = DiEngineStyleEnv(Many({}))
    env.reset(seed=0)

    with pytest.raises(EnvError, match="expected one number"):
        env.step(1)


def test_a_seeded_reset_seeds_the_env_statically() -> None:
    env = walk()

    env.reset(seed=7)

    assert env.env.seeds == [(7, False)]


def test_every_reset_seeds_from_what_the_last_seeded_one_began() -> None:
    first, second = walk(), walk()

    for env in (first, second):
        for seed in (7, None, None):
            env.reset(seed=seed)

    assert first.env.seeds == second.env.seeds
    assert len({seed for seed, _ in first.env.seeds}) == 3


def test_options_are_the_resets_own_parameters() -> None:
    obs, _ = walk().reset(seed=0, options={"start": 2})

    assert obs[0] == 2


def test_an_env_whose_seed_knows_no_dynamic_seed_is_seeded_too() -> None:
    class Plain(DiEngineStyleWalk):
        def seed(self, seed: int) -> None:  # type: ignore[override]
            super().seed(seed, False)

    env = DiEngineStyleEnv(Plain({}))

    env.reset(seed=7)

    assert env.env.seeds == [(7, False)]


def test_an_env_without_spaces_is_refused() -> None:
    class Spaceless(DiEngineStyleWalk):
        observation_space = None

    with pytest.raises(EnvError, match="observation_space of Spaceless is None"):
        DiEngineStyleEnv(Spaceless({}))


def test_a_di_engine_style_env_runs_in_a_manager_and_resumes_exactly() -> None:
    def manager() -> BaseEnvManager:
        return BaseEnvManager(
            [lambda: make_env(dict(type="tests.envs.my_envs:DiEngineStyleWalk"))] * 2, dict(reseed_after=9)
        )

    rng = np.random.default_rng(0)
    original = manager()
    original.launch()
    for _ in range(40):
        original.step(np.arange(2), rng.integers(2, size=2))

    other = manager()
    other.load_state_dict(original.state_dict())

    assert other.lanes_lost == []
    assert np.array_equal(other.obs, original.obs)
    actions = rng.integers(2, size=(40, 2))
    for action in actions:
        assert np.array_equal(other.step(np.arange(2), action).next_obs, original.step(np.arange(2), action).next_obs)


def test_default_config_names_its_class_and_is_a_copy() -> None:
    cfg = DiEngineStyleWalk.default_config()

    cfg.width = 99

    assert cfg.cfg_type == "DiEngineStyleWalkDict"
    assert DiEngineStyleWalk.config["width"] == 3


def test_random_action_lies_in_the_action_space() -> None:
    env = DiEngineStyleWalk({})

    assert env.action_space.contains(env.random_action())
    assert isinstance(env, BaseEnv) and env.reward_space is not None
