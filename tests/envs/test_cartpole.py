"""The CartPole env of dizoo."""

from __future__ import annotations

import gymnasium
import numpy as np

from ding_like.envs import EnvFactory, create_env_manager, make_env

CFG = dict(type="cartpole", import_names=["dizoo.classic_control.cartpole.envs.cartpole_env"])


def test_it_is_gymnasiums_cartpole_v1() -> None:
    env = make_env(CFG)

    assert env.spec is not None and env.spec.id == "CartPole-v1"
    assert env.spec.max_episode_steps == 500


def test_it_steps_as_gymnasiums_own_does() -> None:
    ours, theirs = make_env(CFG), gymnasium.make("CartPole-v1")
    ours.reset(seed=1)
    theirs.reset(seed=1)

    for action in (0, 1, 1, 0):
        ours_obs, *ours_rest = ours.step(action)
        theirs_obs, *theirs_rest = theirs.step(action)

        assert np.array_equal(ours_obs, theirs_obs) and ours_rest == theirs_rest


def test_its_vectorised_form_is_used_by_the_vector_manager() -> None:
    manager = create_env_manager(dict(type="gym_vector"), [EnvFactory(CFG) for _ in range(2)])
    manager.launch()

    # Only gymnasium's own vector env lacks seeds for single lanes.
    assert not manager.lane_seeds
    manager.close()
