"""Rows that no env gives are not learned from, even if a trusted worker sends them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import Space, spaces

from ding_like.comm.rest.rows import RowCheck
from ding_like.data.schema import Schema
from ding_like.data.segment_file import SegmentError

BOX = spaces.Box(-1.0, 1.0, (3,), np.float32)


def rows(**changes: Any) -> dict[str, Any]:
    own = {
        "obs": np.zeros((4, 3), np.float32), "next_obs": np.zeros((4, 3), np.float32), "action": np.arange(4) % 2,
        "reward": np.ones(4, np.float32), "terminated": np.zeros(4, bool),
    }  # fmt: skip
    return {**own, **changes}


def with_one(name: str, value: float) -> Any:
    column = np.array(rows()[name], copy=True)
    column.flat[1] = value
    return column


def test_good_rows_pass() -> None:
    check = RowCheck(BOX, spaces.Discrete(2), Schema.of(rows()))

    check(rows())
    check(rows())


def test_rows_of_no_env_are_refused_even_where_the_schema_has_them() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        (dict(obs=np.zeros((4, 2), np.float32)), "column obs has rows"),
        (dict(next_obs=np.zeros((4, 3, 1), np.float32)), "column next_obs has rows"),
        (dict(obs=with_one("obs", np.nan)), "column obs has numbers that are not finite"),
        (dict(reward=with_one("reward", np.inf)), "column reward has numbers that are not finite"),
        (dict(reward=with_one("reward", -np.inf)), "column reward has numbers that are not finite"),
        (dict(reward=with_one("reward", 3e38)), r"column reward .* not finite in a loss: from 1 to 3e\+38, expected"),
        (dict(obs=with_one("obs", -1e15)), "column obs has numbers that are not finite in a loss: from -1e"),
        (dict(action=np.array([0, 1, 2, 0])), "column action has numbers"),
        (dict(action=np.array([0, 1, -1, 0])), "column action has numbers"),
        (dict(action=np.zeros(4, np.float32)), "column action has numbers"),
    ]
    for changes, said in cases:
        with pytest.raises(SegmentError, match=said) as caught:
            RowCheck(BOX, spaces.Discrete(2), Schema.of(rows(**changes)))(rows(**changes))
            pytest.fail(f"{changes} passes")
        assert caught.value.code == "schema"


def test_columns_are_those_of_the_schema() -> None:
    check = RowCheck(BOX, spaces.Discrete(2), Schema.of(rows()))

    for changes in (dict(extra=np.zeros(4)), dict(reward=np.ones(4)), dict(action=np.zeros((4, 1), np.int64))):
        with pytest.raises(SegmentError, match="column"):
            check(rows(**changes))
    short = rows()
    del short["reward"]
    with pytest.raises(SegmentError, match="'reward' is missing"):
        check(short)


@pytest.mark.parametrize(
    ("space", "good", "bad"),
    [
        (spaces.MultiDiscrete([2, 3]), [[1, 2]], [[2, 0]]),
        (spaces.Box(-1.0, 1.0, (2,), np.float32), [[0.5, 9.0]], [[np.nan, 0.0]]),
    ],
)
def test_other_actions(space: Space[Any], good: Any, bad: Any) -> None:
    kind = np.int64 if isinstance(space, spaces.MultiDiscrete) else np.float32
    taken = rows(action=np.array(good * 4, kind))
    check = RowCheck(BOX, space, Schema.of(taken))
    check(taken)

    with pytest.raises(SegmentError):
        check(rows(action=np.array(bad * 4, kind)))


def test_dict_observations_are_held_to_their_spaces() -> None:
    own = rows()
    for name in ("obs", "next_obs"):
        own[f"{name}/arm"], own[f"{name}/level"] = own.pop(name), np.zeros(4, np.int64)
    space = spaces.Dict({"arm": BOX, "level": spaces.Discrete(3)})
    RowCheck(space, spaces.Discrete(2), Schema.of(own))(own)

    other = {**own, "obs/arm": np.zeros((4, 9), np.float32)}
    with pytest.raises(SegmentError, match="obs/arm"):
        RowCheck(space, spaces.Discrete(2), Schema.of(other))(other)


SEQUENCES = Schema.of(
    {
        "obs": np.zeros((1, 5, 3), np.float32),
        "action": np.zeros((1, 5), np.int64),
        "reward": np.zeros((1, 5), np.float32),
    }
)


def sequences(**changes: Any) -> dict[str, Any]:
    columns = {"obs": np.ones((2, 5, 3)), "action": np.array([[0, 1, 1, 0, 0]] * 2), "reward": np.ones((2, 5))}
    typed = {name: column.astype(SEQUENCES[name].dtype) for name, column in columns.items()}
    return {**typed, **changes}


def test_rows_that_are_sequences_pass_where_the_policys_rows_are() -> None:
    box = spaces.Box(-1, 1, (3,), np.float32)

    RowCheck(box, spaces.Discrete(2), SEQUENCES)(sequences())


def test_sequences_that_are_not_the_policys_are_refused() -> None:
    check = RowCheck(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2), SEQUENCES)
    cases: list[tuple[dict[str, Any], str]] = [
        (dict(obs=np.ones((2, 4, 3), np.float32)), "column 'obs' has rows"),
        (dict(obs=np.ones((2, 5, 2), np.float32)), "column 'obs' has rows"),
        (dict(action=np.zeros((2, 4), np.int64)), "column 'action' has rows"),
        (dict(action=np.array([[0, 1, 1, 0, 0], [0, 0, 0, 0, 2]])), "column action has numbers"),
        (dict(reward=np.array([[0, 0, 0, 0, 0], [0, 0, 0, np.nan, 0]], np.float32)), "are not finite"),
    ]
    for changes, said in cases:
        with pytest.raises(SegmentError, match=said):
            check(sequences(**changes))
            pytest.fail(f"{changes} passes")


def test_sequences_of_another_env_are_refused_even_where_the_schema_has_them() -> None:
    with pytest.raises(SegmentError, match=r"column obs has rows \(5, 3\), the envs give \(4,\)"):
        RowCheck(spaces.Box(-1, 1, (4,), np.float32), spaces.Discrete(2), SEQUENCES)(sequences())
