"""How observation and action spaces are laid out in arrays."""

from __future__ import annotations

import re

import numpy as np
import pytest
from gymnasium import spaces

from ding_like.envs.spaces import ActionLayout, ObsLayout
from ding_like.errors import EnvError, SchemaError


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

    assert taken == [-1, 0, 1] and all(type(action) is int for action in taken)
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
