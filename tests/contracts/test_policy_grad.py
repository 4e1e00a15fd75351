"""Every policy learns bit by bit the same whether one policy computes and applies gradients, or two that send bytes."""

from __future__ import annotations

import copy
import importlib
import pkgutil
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

import dizoo
from ding_like.comm.tensors import flatten_state, unflatten_state
from ding_like.data.batch import TransitionBatch
from ding_like.data.rows import adapt_learn_mode
from ding_like.errors import CheckpointError, ConfigError
from ding_like.policy import Policy
from ding_like.policy.di_engine_view import DiEngineLearnMode
from ding_like.policy.sharing import Share
from tests.contracts.policy_cases import (
    GRAD_CASES,
    GRAD_PARAMS,
    assert_equal_states,
    batches_of,
    make,
    rng_of,
    rows_of,
    shipped_policies,
    tensors_of,
)

UPDATES = 10


@pytest.fixture(params=GRAD_PARAMS)
def case(request: pytest.FixtureRequest) -> Any:
    return GRAD_CASES[request.param]


def updates_alone(policy: Policy, batch: Any, rng: np.random.Generator) -> Iterator[tuple[Any, Any]]:
    for minibatch in policy.learn_mode.minibatches(batch, rng):
        yield policy.learn_mode.grad(minibatch)
        policy.learn_mode.apply()


def sent(state: Any) -> Any:
    """Return a nested state as it arrives in another process: through bytes."""
    return unflatten_state(load(save({name: each.contiguous() for name, each in flatten_state(state).items()})))


def updates_of_two(worker: Policy, owner: Policy, batch: Any, rng: np.random.Generator) -> Iterator[tuple[Any, Any]]:
    here, there = worker.learn_mode, owner.learn_mode
    here.load_grad_state(sent(there.grad_state()))
    for minibatch in here.minibatches(batch, rng):
        yield here.grad(minibatch)
        there.load_gradient(sent(here.gradient()))
        there.apply()
        here.load_grad_state(sent(there.grad_state()))


def assert_equal_reports(ours: Any, wanted: Any) -> None:
    """Compare (info, priority) bit by bit."""
    assert ours[0].keys() == wanted[0].keys()
    for name, value in wanted[0].items():
        np.testing.assert_array_equal(np.asarray(ours[0][name]), np.asarray(value), err_msg=name)
    np.testing.assert_array_equal(np.asarray(ours[1], np.float64), np.asarray(wanted[1], np.float64))


def test_every_policy_has_a_case() -> None:
    for module in pkgutil.walk_packages(dizoo.__path__, "dizoo."):
        if module.name.endswith(".policy"):
            importlib.import_module(module.name)

    assert shipped_policies() == {case.policy for case in GRAD_CASES.values()}


def test_grad_here_and_apply_there_learn_what_one_policy_learns(case: Any) -> None:
    alone, owner, worker = make(case), make(case), make(case, seed=1)
    before = copy.deepcopy(alone.learn_mode.state_dict()["model"])

    updates = 0
    for number, batch in enumerate(batches_of(case, make(case))):
        wanted = updates_alone(alone, batch, rng_of(number))
        ours = updates_of_two(worker, owner, batch, rng_of(number))
        for one, two in zip(wanted, ours, strict=True):
            assert_equal_reports(two, one)
            updates += 1
        if updates >= UPDATES:
            break

    assert_equal_states(owner.learn_mode.state_dict(), alone.learn_mode.state_dict())
    after = alone.learn_mode.state_dict()["model"]
    assert any(not torch.equal(before[name], tensor) for name, tensor in after.items()), "it learned"


def test_grad_leaves_its_state_as_it_is(case: Any) -> None:
    policy = make(case)
    batch = next(batches_of(case, policy))
    list(updates_alone(policy, batch, rng_of(0)))
    policy.learn_mode.apply()
    before = policy.learn_mode.grad_state()

    for minibatch in islice(policy.learn_mode.minibatches(batch, rng_of(1)), 1):
        first = policy.learn_mode.grad(minibatch)
        gradient = copy.deepcopy(policy.learn_mode.gradient())
        second = policy.learn_mode.grad(minibatch)

    assert_equal_reports(second, first)
    assert_equal_states(policy.learn_mode.gradient(), gradient)
    assert_equal_states(policy.learn_mode.grad_state(), before)


def test_a_state_of_another_policy_is_refused() -> None:
    worker = make(GRAD_CASES["dqn prioritised"])
    state, before = worker.grad_state(), copy.deepcopy(worker.learn_mode.state_dict())

    with pytest.raises(CheckpointError, match=r"has parts \['numbers'\], expected \['model', 'numbers', 'target'\]"):
        worker.load_grad_state({"numbers": state["numbers"]})
    with pytest.raises(CheckpointError, match="saved by another model"):
        worker.load_grad_state(make(GRAD_CASES["dqn dueling"]).grad_state())

    assert_equal_states(worker.learn_mode.state_dict(), before)


def test_a_gradient_of_another_model_is_refused() -> None:
    with pytest.raises(CheckpointError, match="vectors of shapes"):
        make(GRAD_CASES["dqn"]).load_gradient(make(GRAD_CASES["dqn dueling"]).gradient())


def test_a_loss_that_is_not_finite_is_known_where_the_gradient_is_applied() -> None:
    case = GRAD_CASES["dqn"]
    owner, worker = make(case), make(case)
    batch = rows_of(case, owner)
    reward = batch["reward"].copy()
    reward[0] = np.inf
    before = copy.deepcopy(owner.learn_mode.state_dict()["model"])

    worker.grad(batch.with_columns(reward=reward))
    gradient = worker.gradient()
    for vector in gradient["vectors"].values():
        vector[:-1] = 1.0  # the loss alone is not finite
    owner.load_gradient(gradient)
    owner.apply()

    assert_equal_states(owner.learn_mode.state_dict()["model"], before)
    assert owner.get_attribute("nonfinite_steps") == 1


def test_a_learn_mode_in_the_style_of_di_engine_cannot_be_parted() -> None:
    mode = adapt_learn_mode(DiEngineLearnMode(*[lambda *_: None] * len(DiEngineLearnMode._fields)))

    for call in (mode.grad_state, mode.gradient, lambda: mode.load_grad_state({}), lambda: mode.load_gradient({})):
        with pytest.raises(ConfigError, match="in one process and apply them in another"):
            call()


SHARED_UPDATES = 5


def reduce(policies: list[Policy]) -> None:
    """Do what the learners of a group do between grad and apply."""
    for vectors in zip(*(policy.grad_vectors() for policy in policies), strict=True):
        mean = sum(policy.grad_weight() * vector for policy, vector in zip(policies, vectors, strict=True))
        for vector in vectors:
            vector.copy_(mean)


def learn(policies: list[Policy], batch: TransitionBatch, number: int) -> Iterator[list[Any]]:
    """Train as one and yield what each learner reports of every update; one learner is a group too."""
    shares = [batch] * len(policies)
    if not policies[0].takes_whole_batches:
        rows = len(batch) // len(policies)
        shares = [batch[rank * rows : (rank + 1) * rows] for rank in range(len(policies))]
    minibatches = [p.minibatches(share, rng_of(number)) for p, share in zip(policies, shares, strict=True)]
    for parts in zip(*minibatches, strict=True):
        reports = [policy.grad(part) for policy, part in zip(policies, parts, strict=True)]
        reduce(policies)
        for policy in policies:
            policy.apply()
        yield reports


def even(batch: TransitionBatch) -> TransitionBatch:
    return batch[: len(batch) // 2 * 2]


# Statistics of whole batches, and dropout, of which each learner draws its own.
_OF_WHOLE_BATCHES = re.compile(r"\b(crossq|dt|td3_bc|rebrac)\b")


@pytest.mark.parametrize("name", [name for name in GRAD_PARAMS if not _OF_WHOLE_BATCHES.search(str(name))])
def test_two_learners_with_half_of_the_rows_learn_what_one_does(name: str) -> None:
    case = GRAD_CASES[name]
    source, alone, pair = make(case), make(case), [make(case), make(case)]
    for rank, policy in enumerate(pair):
        policy.set_share(Share(rank, 2))
    before = copy.deepcopy(alone.learn_mode.state_dict()["model"])

    updates = 0
    for number, batch in enumerate(islice(batches_of(case, source), SHARED_UPDATES)):
        # Rows that cannot be halved are for policies that share minibatches.
        rows = batch if alone.takes_whole_batches else even(batch)
        one = learn([alone], rows, number)
        for (wanted,), ours in zip(one, learn(pair, rows, number), strict=True):
            if wanted[1] is not None:
                priority = np.concatenate([report[1] for report in ours])
                np.testing.assert_allclose(priority, wanted[1], atol=1e-5)
            updates += 1
        if updates >= SHARED_UPDATES:
            break

    wanted_state = tensors_of(alone.learn_mode.state_dict())
    states = [tensors_of(policy.learn_mode.state_dict()) for policy in pair]
    for path, value in wanted_state.items():
        first, second = (state[path] for state in states)
        if not isinstance(value, torch.Tensor):
            assert first == second == value, path
            continue
        assert torch.equal(first, second), f"{path}: the learners differ"
        # Sums of the same terms in another order: how far apart they are goes by the largest. Weights are below 1.
        atol = 1e-6 * max(1.0, float(value.abs().max()) if value.numel() else 0.0)
        torch.testing.assert_close(first, value, rtol=1e-6, atol=atol, msg=lambda text, path=path: f"{path}: {text}")
    after = alone.learn_mode.state_dict()["model"]
    assert max(float((after[name] - before[name]).abs().max()) for name in before) > 1e-4, "it learned"


@pytest.mark.parametrize(("rows", "num_learners"), [(7, 2), (8, 3), (2, 3), (1, 2)])
def test_shares_have_every_row_and_weights_of_one(rows: int, num_learners: int) -> None:
    shares = [Share(rank, num_learners) for rank in range(num_learners)]
    values = np.arange(rows) ** 2.0

    mean = sum(share.weight(rows) * values[share.of(rows)].mean() for share in shares)

    assert mean == pytest.approx(values.mean())
    assert sum(share.weight(rows) for share in shares) == pytest.approx(1)
