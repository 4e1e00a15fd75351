"""Copies and moves: after each, an update changes every registered policy's parameters as it would without."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.errors import SchemaError
from ding_like.policy import Policy
from tests.contracts.policy_cases import (
    ACTING,
    CASES,
    FAMILIES,
    act,
    assert_equal_states,
    by_family,
    draw_obs,
    make,
    play,
    rows_of,
    shipped_policies,
    tensors_of,
    train,
)


def _assign(policy: Policy) -> Policy:
    model = policy.get_attribute("model")
    model.load_state_dict({name: value.clone() for name, value in model.state_dict().items()}, assign=True)
    return policy


def _cast_there_and_back(policy: Policy) -> Policy:
    policy.get_attribute("model").double().float()
    return policy


def _cast_targets(policy: Policy) -> Policy:
    """Move all networks that the policy holds beside its model."""
    for value in list(vars(policy).values()):
        for network in (value, getattr(value, "target", None), getattr(value, "network", None)):
            if isinstance(network, torch.nn.Module):
                network.double().float()
    return policy


def _drop_gradients(policy: Policy) -> Policy:
    policy.get_attribute("model").zero_grad(set_to_none=True)
    return policy


OPERATIONS: dict[str, Callable[[Policy], Policy]] = {
    "deepcopy": copy.deepcopy,
    "double().float()": _cast_there_and_back,
    "targets too": _cast_targets,
    "assign=True": _assign,
    "zero_grad": _drop_gradients,
}


def test_every_registered_policy_has_a_case() -> None:
    assert shipped_policies() <= {case.policy for case in CASES.values()}


# Each in a process of its own, which has imported no other policy: the registry finds the module by the name.
FIND = """
import os, sys
import ding_like.policy.base
from ding_like.utils.registries import POLICY_REGISTRY
for name in sys.argv[1:]:
    child = os.fork()
    if not child:
        POLICY_REGISTRY.get(name)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, name
"""


def test_every_policy_is_found_by_its_name_in_a_fresh_process() -> None:
    names = sorted({case.policy for case in CASES.values() if not case.import_names})

    subprocess.run([sys.executable, "-c", FIND, *names], check=True, timeout=300)


@pytest.mark.parametrize("name", by_family(CASES))
def test_an_update_after_it_is_the_update_without_it(name: str) -> None:
    case = CASES[name]
    plain, other = make(case), make(case)
    batches = [rows_of(case, plain, seed=seed) for seed in range(1 + len(OPERATIONS))]
    train(plain, batches[:1])
    train(other, batches[:1])

    for (title, operation), batch in zip(OPERATIONS.items(), batches[1:], strict=True):
        other = operation(other)
        before = tensors_of(other.get_attribute("model").state_dict())
        train(plain, [batch])
        train(other, [batch])

        assert_equal_states(plain.learn_mode.state_dict(), other.learn_mode.state_dict())
        after = tensors_of(other.get_attribute("model").state_dict())
        assert any(not torch.equal(before[key], after[key]) for key in before), f"nothing learned after {title}"


def test_weights_that_were_assigned_are_learned_from() -> None:
    for name in FAMILIES:
        case = CASES[name]
        plain, other = make(case), make(case)
        batch = rows_of(case, plain)
        weights = make(case, seed=1).get_attribute("model").state_dict()

        plain.get_attribute("model").load_state_dict(weights)
        other.get_attribute("model").load_state_dict(
            {key: value.clone() for key, value in weights.items()}, assign=True
        )
        train(plain, [batch])
        train(other, [batch])

        assert_equal_states(plain.learn_mode.state_dict(), other.learn_mode.state_dict())


@pytest.mark.parametrize("name", by_family(CASES))
def test_it_may_come_between_a_gradient_and_its_step(name: str) -> None:
    case = CASES[name]
    plain, other = make(case), make(case)
    batch = rows_of(case, plain)

    for title in ("deepcopy", "double().float()", "assign=True"):
        for policy in (plain, other):
            minibatch = next(iter(policy.learn_mode.minibatches(batch, np.random.default_rng(0))))
            policy.learn_mode.grad(minibatch)
        other = OPERATIONS[title](other)
        plain.learn_mode.apply()
        other.learn_mode.apply()

        assert_equal_states(plain.learn_mode.state_dict(), other.learn_mode.state_dict())


@pytest.mark.parametrize("name", by_family(ACTING))
def test_actors_play_the_weights_that_were_trained_after_it(name: str) -> None:
    case = ACTING[name]
    policy = make(case, learn=dict(learning_rate=0.05))
    obs = draw_obs(case, 64, np.random.default_rng(0))
    changed = []
    for title, operation in OPERATIONS.items():
        policy = operation(policy)
        # Taken before the updates, as collectors and evaluators do.
        actors = [policy.collect_mode.actor, policy.eval_mode.actor]
        early = [act(actor, obs, 64) for actor in actors]

        train(policy, [rows_of(case, policy)])

        fresh = make(case, seed=1)
        fresh.collect_mode.load_state_dict(policy.collect_mode.state_dict())
        late = [act(actor, obs, 64) for actor in actors]
        for actor, columns in zip((fresh.collect_mode.actor, fresh.eval_mode.actor), late, strict=True):
            for column, values in act(actor, obs, 64).items():
                assert np.array_equal(columns[column], values), f"{column} after {title}"
        pairs = zip(early, late, strict=True)
        changed += [k for first, last in pairs for k in first if not np.array_equal(first[k], last[k])]
    assert changed, "other weights, other actions"


@pytest.mark.parametrize("name", by_family(CASES))
def test_training_a_deep_copy_leaves_the_first_alone(name: str) -> None:
    case = CASES[name]
    policy = make(case)
    batches = [rows_of(case, policy, seed=seed) for seed in range(2)]
    train(policy, batches[:1])
    twin = copy.deepcopy(policy)
    modes = copy.deepcopy((policy.collect_mode, policy.learn_mode) if name in ACTING else (policy.learn_mode,))
    before = copy.deepcopy(policy.learn_mode.state_dict())

    train(twin, batches[1:])
    modes[-1].forward(batches[1])

    assert_equal_states(policy.learn_mode.state_dict(), before)


@pytest.mark.parametrize("name", by_family(CASES))
def test_a_state_taken_over_goes_on_as_the_first_does(name: str) -> None:
    case = CASES[name]
    first, second = make(case), make(case, seed=1)
    batches = [rows_of(case, first, seed=seed) for seed in range(4)]
    train(first, batches[:2])

    second.learn_mode.load_state_dict(copy.deepcopy(first.learn_mode.state_dict()))
    train(first, batches[2:])
    train(second, batches[2:])

    assert_equal_states(first.learn_mode.state_dict(), second.learn_mode.state_dict())


def test_a_cast_to_another_dtype_is_refused_at_the_next_gradient() -> None:
    for name in FAMILIES:
        policy = make(CASES[name])
        batch = rows_of(CASES[name], policy)
        policy.get_attribute("model").double()

        with pytest.raises(SchemaError, match="float64"):
            train(policy, [batch])


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
