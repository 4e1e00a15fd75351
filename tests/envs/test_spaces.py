"""How observation and action spaces are laid out in arrays."""

from __future__ import annotations

import copy
import functools
import pickle
import re
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from ding_like.data.spaces import HybridSpace, hybrid_mask, hybrid_sizes
from ding_like.envs import create_env_manager
from ding_like.envs.check import check_env
from ding_like.envs.di_engine import DingEnvWrapper
from ding_like.envs.spaces import ActionLayout, ObsLayout, hybrid_rows
from ding_like.errors import ConfigError, EnvError, SchemaError
from ding_like.policy.di_engine_view import RandomActor
from tests.envs.scripted_env import RecordingEnv


def test_a_row_has_the_spaces_shape_and_floats_are_float32() -> None:
    for space, shape, dtype in [
        (spaces.Box(-1, 1, (4,), np.float64), (4,), np.float32),
        (spaces.Box(-1, 1, (4,), np.float32), (4,), np.float32),
        (spaces.Box(0, 255, (84, 84, 3), np.uint8), (84, 84, 3), np.uint8),
        (spaces.Box(-5, 5, (2,), np.int16), (2,), np.int16),
        (spaces.Discrete(16), (), np.int64),
        (spaces.MultiDiscrete([2, 3]), (2,), np.int64),
        (spaces.MultiBinary(5), (5,), np.int8),
    ]:
        layout = ObsLayout(space)
        rows = layout.allocate(3)

        layout.writer(rows)(1, space.sample())

        assert isinstance(rows, np.ndarray)
        assert rows.shape == (3, *shape) and rows.dtype == dtype
        assert layout.space.dtype == dtype and layout.space.shape == shape


def test_written_rows_hold_the_values_of_the_observation() -> None:
    layout = ObsLayout(
        spaces.Dict(
            {
                "image": spaces.Box(0, 255, (2, 2), np.uint8),
                "arm": spaces.Dict({"angle": spaces.Box(-4, 4, (1,), np.float64), "grip": spaces.Discrete(3)}),
            }
        )
    )
    rows = layout.allocate(2)

    layout.writer(rows)(1, {"image": np.full((2, 2), 7, np.uint8), "arm": {"angle": np.array([0.5]), "grip": 2}})

    assert isinstance(rows, dict)
    assert sorted(rows) == ["arm/angle", "arm/grip", "image"]
    assert rows["image"][1].tolist() == [[7, 7], [7, 7]]
    assert rows["arm/angle"].tolist() == [[0.0], [0.5]]
    assert rows["arm/grip"].tolist() == [0, 2]


def test_a_float64_bound_beyond_float32_means_no_bound() -> None:
    layout = ObsLayout(spaces.Box(-1e300, 1e300, (1,), np.float64))

    assert isinstance(layout.space, spaces.Box)
    assert layout.space.low.tolist() == [-np.inf] and layout.space.high.tolist() == [np.inf]


def test_a_space_that_does_not_fit_in_arrays_is_refused_by_name_and_place() -> None:
    for inner in [
        spaces.Text(10),
        spaces.Tuple([spaces.Discrete(2)]),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Graph(spaces.Discrete(2), None),
    ]:
        with pytest.raises(EnvError, match=f"{type(inner).__name__} at 'task/mission'.*[wW]rapper"):
            ObsLayout(spaces.Dict({"x": spaces.Discrete(2), "task": spaces.Dict({"mission": inner})}))
    two, many = spaces.Discrete(2), spaces.Dict({"a": spaces.Discrete(2)})
    for layout, space, said in [
        (ObsLayout, spaces.Dict({"a/b": two, "a": spaces.Dict({"b": two})}), "same flat key"),
        (ObsLayout, spaces.Dict({}), "no entries"),
        (ActionLayout, many, "action space"),
        (ActionLayout, spaces.Tuple([two]), "action space"),
    ]:
        with pytest.raises(EnvError, match=said):
            layout(space)


def test_an_observation_that_breaks_its_space_is_described() -> None:
    for obs, fault in [
        ({"a": np.zeros(2)}, None),
        ({"a": np.zeros(3)}, r"shape \(3,\) at 'a'"),
        ({"b": np.zeros(2)}, "no entry 'a'"),
        (5, "no entry 'a'"),
    ]:
        said = ObsLayout(spaces.Dict({"a": spaces.Box(-1, 1, (2,))})).fault(obs)

        assert said is None if fault is None else re.search(fault, str(said))


def test_finite_rows_finds_the_row_of_a_nan() -> None:
    layout = ObsLayout(spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "n": spaces.Discrete(3)}))
    rows = layout.allocate(3)
    assert isinstance(rows, dict)
    assert layout.all_finite(rows)

    rows["a"][1, 0] = np.nan

    assert not layout.all_finite(rows)
    assert layout.finite_rows(rows).tolist() == [True, False, True]


def test_discrete_actions_count_from_zero_whatever_their_start() -> None:
    layout = ActionLayout(spaces.Discrete(3, start=-1))

    taken = layout.split(layout.for_envs(np.array([0, 1, 2]), 3))

    assert taken == [-1, 0, 1] and all(type(action) is np.int64 for action in taken)
    assert layout.space == spaces.Discrete(3)
    several = ActionLayout(spaces.MultiDiscrete([2, 3], start=[5, 10]))
    assert several.for_envs(np.array([[0, 0], [1, 2]]), 2).tolist() == [[5, 10], [6, 12]]
    assert several.space == spaces.MultiDiscrete([2, 3])


def test_actions_for_envs_are_memory_of_their_own() -> None:
    layout = ActionLayout(spaces.Box(-1, 1, (2,), np.float32))
    actions = np.zeros((1, 2), np.float32)

    taken = layout.for_envs(actions, 1)
    actions[:] = 9

    assert taken.tolist() == [[0, 0]]


def test_actions_of_another_shape_are_refused() -> None:
    with pytest.raises(SchemaError, match=r"\(2,\).*\(2, 3\)"):
        ActionLayout(spaces.Box(-1, 1, (3,))).for_envs(np.zeros(2), 2)


def test_sampled_actions_lie_in_the_space_that_callers_see() -> None:
    for space in [
        spaces.Discrete(5, start=3),
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiBinary(4),
        spaces.Box(np.array([-1, 0], np.float32), np.array([1, np.inf], np.float32)),
    ]:
        layout = ActionLayout(space)

        for action in layout.sample(np.random.default_rng(0), 50):
            assert layout.space.contains(action)


def test_discrete_observations_count_from_zero_whatever_their_start() -> None:
    for space, obs, held in [
        (spaces.Discrete(4, start=-2), -1, 1),
        (spaces.MultiDiscrete([2, 3], start=[5, -1]), np.array([6, 0]), [1, 1]),
        (spaces.Dict({"goal": spaces.Discrete(4, start=3)}), {"goal": 6}, {"goal": 3}),
    ]:
        layout = ObsLayout(space)
        rows = layout.allocate(1)

        layout.writer(rows)(0, obs)
        batch = layout.from_batch({"goal": np.array([6])} if isinstance(obs, dict) else np.array([obs]))

        for arrays in (rows, batch):
            got = (
                {key: int(value[0]) for key, value in arrays.items()}
                if isinstance(arrays, dict)
                else arrays[0].tolist()
            )
            assert got == held
        held_space = layout.space["goal"] if isinstance(layout.space, spaces.Dict) else layout.space
        assert not np.any(held_space.start)


def test_a_float32_action_beside_a_float64_bound_is_that_bound() -> None:
    space = spaces.Box(np.array([-0.1, 0.0]), np.array([0.1, 1.0]), dtype=np.float64)
    actions = np.array([[0.1, 0.5], [-0.1, 1.0]], np.float32)
    assert not space.contains(actions[0].astype(np.float64))

    taken = ActionLayout(space).for_envs(actions, 2)

    assert all(space.contains(action) for action in taken)
    assert taken.tolist() == [[0.1, 0.5], [-0.1, 1.0]]


def test_a_space_of_ones_own_that_does_not_say_whether_it_is_flat_is_one_error():
    class Mission(spaces.Space[str]):
        pass

    space = spaces.Dict(mission=Mission(), image=spaces.Box(0, 1, (3,)))

    with pytest.raises(EnvError, match="Mission at 'mission' does not fit.*filter_keys"):
        ObsLayout(space)


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
