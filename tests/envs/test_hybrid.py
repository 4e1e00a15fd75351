"""Hybrid actions: the space of their rows, and envs that take them in several forms."""

from __future__ import annotations

import copy
import functools
import pickle
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from ding_like.data.spaces import HybridSpace, hybrid_mask, hybrid_sizes
from ding_like.envs import create_env_manager
from ding_like.envs.check import check_env
from ding_like.envs.di_engine import DingEnvWrapper
from ding_like.envs.spaces import hybrid_rows
from ding_like.errors import ConfigError, EnvError, SchemaError
from ding_like.policy.di_engine_view import RandomActor
from tests.envs.scripted_env import RecordingEnv

MASK = [[1, 0], [0, 1], [0, 0]]
SPACE = HybridSpace(3, [0.0, -1.0], [1.0, 1.0], parameter_mask=MASK)
BOX = spaces.Box


def test_samples_are_rows_and_every_choice_comes_up() -> None:
    space = HybridSpace(3, [0.0, -1.0], [1.0, 1.0], seed=0)
    rows = np.stack([space.sample() for _ in range(300)])

    assert all(space.contains(row) for row in rows) and rows.dtype == np.float32
    np.testing.assert_allclose(np.bincount(rows[:, 0].astype(int)), 100, atol=30)
    assert rows[:, 1].min() >= 0 > rows[:, 2].min()


def test_equal_seeds_draw_equal_rows() -> None:
    one, other = copy.deepcopy(SPACE), pickle.loads(pickle.dumps(SPACE))  # of our own making
    one.seed(3)
    other.seed(3)

    assert one == other == SPACE
    np.testing.assert_array_equal(one.sample(), other.sample())


def test_what_is_no_row_is_not_contained() -> None:
    for row in [[3.0, 0.5, 0.0], [0.5, 0.5, 0.0], [-1.0, 0.5, 0.0], [0.0, 1.5, 0.0], [0.0, 0.5]]:
        assert SPACE.contains(np.array([1.0, 0.5, 0.0], np.float32))
        assert not SPACE.contains(np.array(row, np.float32))


def test_spaces_differ_by_bounds_choices_and_which_parameters_belong_where() -> None:
    same = HybridSpace(3, [0.0, -1.0], [1.0, 1.0], parameter_mask=np.array(MASK) * 2)

    assert same == SPACE
    assert SPACE != HybridSpace(3, [0.0, -1.0], [1.0, 1.0])
    assert SPACE != HybridSpace(4, [0.0, -1.0], [1.0, 1.0], parameter_mask=[*MASK, [0, 0]])
    assert SPACE != BOX(SPACE.low, SPACE.high)


def test_what_does_not_fit_is_refused() -> None:
    for make, message in [
        (lambda: HybridSpace(0, [0.0], [1.0]), "1 to .* choices, got 0"),
        (lambda: HybridSpace(2, [], []), "is Discrete"),
        (lambda: HybridSpace(2, [0.0], [1.0, 2.0]), "low .* and high"),
        (lambda: HybridSpace(2, [0.0], [1.0], parameter_mask=[[1, 0], [1, 1]]), "expected 2 rows of 1"),
    ]:
        with pytest.raises(EnvError, match=message):
            make()


def test_random_actors_draw_rows() -> None:
    columns = RandomActor(SPACE).act(
        np.zeros((3000, 3)), lanes=np.arange(3000), is_first=np.zeros(3000, bool), rng=np.random.default_rng(0)
    )

    assert all(SPACE.contains(row) for row in columns["action"])
    np.testing.assert_allclose(np.bincount(columns["action"][:, 0].astype(int)), 1000, atol=100)
    np.testing.assert_allclose(columns["action"][:, 1:].mean(axis=0), [0.5, 0.0], atol=0.03)
    with pytest.raises(ConfigError, match="random_collect_size=0"):
        RandomActor(HybridSpace(2, [0.0], [np.inf]))


OWN = spaces.Tuple([spaces.Discrete(3, start=5), BOX(0, 1, (1,)), BOX(-1, 1, (2,), np.float64)])
FORMS: dict[str, tuple[spaces.Space[Any], Any, list[list[int]]]] = {
    # space, the action of the row [1, 0.25, 0.5, -0.5], which parameters belong to which choice
    "flat": (OWN, (6, [0.25], [0.5, -0.5]), [[1, 0, 0], [0, 1, 1], [0, 0, 0]]),
    "nested": (
        spaces.Tuple([spaces.Discrete(2), spaces.Tuple([BOX(0, 1, (1,)), BOX(-1, 1, (2, 1))])]),
        (1, ([0.25], [[0.5], [-0.5]])),
        [[1, 0, 0], [0, 1, 1]],
    ),
    "one box for all": (
        spaces.Tuple([spaces.Discrete(2), BOX(-1, 1, (3,))]),
        (1, [0.25, 0.5, -0.5]),
        [[1, 1, 1], [1, 1, 1]],
    ),
    "dict": (
        spaces.Dict(action_type=spaces.Discrete(2), action_args=BOX(-1, 1, (3,))),
        {"action_type": 1, "action_args": [0.25, 0.5, -0.5]},
        [[1, 1, 1], [1, 1, 1]],
    ),
    "dict of a tuple": (
        spaces.Dict(choice=spaces.Discrete(2), amounts=spaces.Tuple([BOX(0, 1, (1,)), BOX(-1, 1, (2,))])),
        {"choice": 1, "amounts": ([0.25], [0.5, -0.5])},
        [[1, 0, 0], [0, 1, 1]],
    ),
}


def plain(action: Any) -> Any:
    if isinstance(action, dict):
        return {key: plain(value) for key, value in action.items()}
    if isinstance(action, tuple):
        return tuple(map(plain, action))
    return action.tolist() if isinstance(action, np.ndarray) else action


def test_a_row_becomes_what_the_env_takes() -> None:
    for form in FORMS:
        space, expected, mask = FORMS[form]
        env = hybrid_rows(RecordingEnv(space))
        env.reset(seed=0)

        env.step(np.array([1.0, 0.25, 0.5, -0.5], np.float32))

        (taken,) = env.unwrapped.taken
        assert plain(taken) == expected and space.contains(taken)
        assert env.action_space.parameter_mask.astype(int).tolist() == mask


def test_parameters_beyond_their_bounds_are_cut_to_them() -> None:
    for form in FORMS:
        space = FORMS[form][0]
        env = hybrid_rows(RecordingEnv(space))
        env.reset(seed=0)

        for beyond in (-9.0, 9.0):
            env.step(np.array([0.0, beyond, beyond, beyond], np.float32))

        assert all(space.contains(action) for action in env.unwrapped.taken)


def test_bounds_in_float64_hold_for_rows_in_float32() -> None:
    space = spaces.Tuple([spaces.Discrete(2), BOX(-0.1, 0.7, (1,), np.float64)])
    env = hybrid_rows(RecordingEnv(space))
    env.reset(seed=0)

    env.step(env.action_space.low)
    env.step(np.array([1.0, env.action_space.high[1]], np.float32))

    assert all(space.contains(action) for action in env.unwrapped.taken)


def test_a_row_without_a_choice_is_refused() -> None:
    for choice in [-1.0, 2.0, 0.5, float("nan")]:
        env = hybrid_rows(RecordingEnv(FORMS["dict"][0]))
        env.reset(seed=0)

        with pytest.raises(SchemaError, match="whole number from 0 to 1"):
            env.step(np.array([choice, 0.0, 0.0, 0.0], np.float32))


def test_an_env_that_knows_which_parameters_belong_where_is_believed() -> None:
    space = spaces.Dict(action_type=spaces.Discrete(3), action_args=BOX(-1, 1, (2,)))

    env = hybrid_rows(RecordingEnv(space, mask=MASK))

    assert env.action_space.parameter_mask.astype(int).tolist() == MASK


def test_other_spaces_stay_as_they_are() -> None:
    for space in [
        spaces.Discrete(2),
        BOX(-1, 1, (2,)),
        spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)]),
        spaces.Tuple([spaces.Discrete(2)]),
        spaces.Tuple([BOX(-1, 1, (1,)), spaces.Discrete(2)]),
        spaces.Tuple([spaces.Discrete(2), BOX(-1, 1, (1,)), BOX(-1, 1, (1,)), BOX(-1, 1, (1,))]),
        spaces.Tuple([spaces.Discrete(2), BOX(0, 3, (1,), np.int64)]),
        spaces.Dict(a=spaces.Discrete(2), b=spaces.Discrete(2)),
        spaces.Dict(a=spaces.Discrete(2)),
    ]:
        env = RecordingEnv(space)

        assert hybrid_rows(env) is env


@pytest.mark.parametrize("manager", ["base", "gym_vector", pytest.param("subprocess", marks=pytest.mark.timeout(60))])
def test_managers_see_rows(manager: str) -> None:
    space = FORMS["flat"][0]
    envs = create_env_manager(dict(type=manager), [functools.partial(RecordingEnv, space)] * 2)
    try:
        envs.seed(0)
        envs.launch()
        assert envs.action_space == hybrid_rows(RecordingEnv(space)).action_space
        rng = np.random.default_rng(0)
        for _ in range(20):
            batch = envs.step(np.arange(2), 3 * envs.action_space.draw(rng, 2) * [1 / 3, 1, 1, 1])
            assert len(batch.lanes) == 2 and not len(batch.dropped)
    finally:
        envs.close()


def test_an_env_in_the_style_of_di_engine_keeps_its_own_actions_and_managers_see_rows() -> None:
    space = FORMS["dict"][0]
    wrapper = DingEnvWrapper(RecordingEnv(space))
    wrapper.seed(0)
    wrapper.reset()

    wrapper.step({"action_type": 1, "action_args": np.zeros(3, np.float32)})
    envs = create_env_manager(dict(type="base"), [lambda: DingEnvWrapper(RecordingEnv(space))])

    assert wrapper.action_space == space
    assert isinstance(envs.action_space, HybridSpace)
    envs.close()


def test_check_env_accepts_them_and_says_what_policies_see() -> None:
    findings = check_env(lambda: RecordingEnv(FORMS["flat"][0]), num_steps=100)

    assert not [finding for finding in findings if finding.level == "fault"]
    assert any("choices with parameters" in finding.seen for finding in findings)


def test_sizes_of_another_form_are_refused() -> None:
    for shape in [3, dict(action_type_shape=3), dict(action_type_shape=0, action_args_shape=2)]:
        with pytest.raises(ConfigError, match="action_type_shape=number of choices"):
            hybrid_sizes(shape)


def test_sizes_and_masks_of_a_config_are_read() -> None:
    shape = dict(action_type_shape=3, action_args_shape=[2])

    assert hybrid_sizes(shape) == (3, 2)
    assert hybrid_mask(shape, None).all() and hybrid_mask(shape, MASK).astype(int).tolist() == MASK
    with pytest.raises(ConfigError, match="expected 3 rows of 2"):
        hybrid_mask(shape, [[1, 0]])
