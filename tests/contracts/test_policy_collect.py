"""What a learner publishes: the collect mode's state makes a second policy act and cut rows exactly as the first."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from tests.contracts.policy_cases import (
    ACTING,
    FAMILIES,
    act,
    assert_equal_states,
    by_family,
    draw_obs,
    make,
    play,
    rows_of,
    train,
)


def flat(state: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Return a state as it travels: tensors by name, of nested ones 'a/b'."""
    found = {}
    for name, value in state.items():
        entries = {f"{name}/{key}": entry for key, entry in value.items()} if isinstance(value, dict) else {name: value}
        found.update(entries)
    assert all(isinstance(value, torch.Tensor) for value in found.values()), found
    return {name: value.detach().clone() for name, value in found.items()}


def nested(entries: dict[str, torch.Tensor]) -> dict[str, Any]:
    state: dict[str, Any] = {}
    for name, value in entries.items():
        first, _, rest = name.partition("/")
        if rest:
            state.setdefault(first, {})[rest] = value
        else:
            state[first] = value
    return state


@pytest.mark.parametrize("name", by_family(ACTING))
def test_a_collector_with_the_published_state_makes_the_same_rows(name: str) -> None:
    case = ACTING[name]
    learner, collector = make(case), make(case, seed=1)
    train(learner, [rows_of(case, learner, seed=seed) for seed in range(3)])

    collector.collect_mode.load_state_dict(nested(flat(learner.collect_mode.state_dict())))

    rows, keep = learner.collect_mode.segment(play(case, learner, seed=5))
    others, other_keep = collector.collect_mode.segment(play(case, collector, seed=5))
    assert list(rows.columns) == list(others.columns) and np.array_equal(keep, other_keep)
    for column in rows.columns:
        assert np.array_equal(rows[column], others[column]), column


def test_weights_alone_are_enough_to_act() -> None:
    for name, mode in product(ACTING.keys() & FAMILIES, ("collect_mode", "eval_mode")):
        case = ACTING[name]
        obs = draw_obs(case, 32, np.random.default_rng(0))
        first, second = make(case), make(case, seed=1)
        getattr(second, mode).load_state_dict({"model": first.learn_mode.state_dict()["model"]})

        columns, others = (act(getattr(policy, mode).actor, obs, 32) for policy in (first, second))

        assert columns.keys() == others.keys() and all(np.array_equal(columns[k], others[k]) for k in columns), (
            name,
            mode,
        )


def test_the_scale_of_values_travels_along() -> None:
    case = ACTING["ppo value_norm"]
    learner, collector = make(case), make(case, seed=1)
    batch = rows_of(case, learner)
    train(learner, [batch.with_columns(return_=batch["return_"] * 100)])
    collector.collect_mode.load_state_dict({"model": learner.learn_mode.state_dict()["model"]})

    values = [policy.collect_mode.segment(play(case, collector))[0]["value"] for policy in (learner, collector)]

    # Without `returns` the values are in another unit: this is what the state is for.
    assert np.abs(values[0]).mean() > 10 * np.abs(values[1]).mean()


def test_a_state_with_plain_numbers_is_read_too() -> None:
    case = ACTING["ppo value_norm"]
    first, second = make(case), make(case, seed=1)
    train(first, [rows_of(case, first)])
    state = first.learn_mode.state_dict()
    state["returns"] = {name: value.item() for name, value in state["returns"].items()}

    second.learn_mode.load_state_dict(state)

    expected, fresh = (policy.learn_mode.state_dict()["returns"] for policy in (first, make(case)))
    assert_equal_states(second.learn_mode.state_dict()["returns"], expected)
    assert any(not torch.equal(value, fresh[name]) for name, value in expected.items()), "it changed while learning"
