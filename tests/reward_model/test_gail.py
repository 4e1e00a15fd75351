"""GAIL: loss, gradient penalty and reward against a walk over rows."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ding_like.reward_model.base import Sizes, Transitions
from tests.reward_model.imitation import SIZES, expert_of, in_double, make, rows_as_tensors
from tests.reward_model.rows import rows_of

every_size = pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)


def logit(network: Any, row: dict[str, Any]) -> Tensor:
    """Return the output for one row, layer by layer."""
    x = torch.cat([row["obs"], row["action"]], dim=1)
    return network.head(network.main(x))[0, 0]


def minibatch(model: Any, batch: Any) -> Transitions:
    found: Transitions = model.lay_out(batch)
    return found


@every_size
def test_loss_and_gradient_are_those_of_a_walk_over_rows(sizes: Sizes, tmp_path: Path) -> None:
    model, batch = make("gail", tmp_path, sizes), rows_of(1, sizes, 6)
    drawn = np.random.default_rng(0).integers(40, size=6)  # as the model draws of its expert's rows
    model._rng = np.random.default_rng(0)
    loss, info = model.update(minibatch(model, batch))
    loss.backward()

    def slow() -> tuple[Any, Tensor, list[float]]:
        network = copy.deepcopy(model.module).double()
        experts = rows_as_tensors(expert_of(sizes).take(drawn), sizes)
        policies = rows_as_tensors(batch, sizes)
        of_expert = [torch.sigmoid(logit(network, row)) for row in experts]
        of_policy = [torch.sigmoid(logit(network, row)) for row in policies]
        total = sum(-d.log() / 6 for d in of_expert) + sum(-(1 - d).log() / 6 for d in of_policy)
        network.zero_grad()
        total.backward()  # type: ignore[union-attr]
        return (
            network,
            total,
            [
                np.mean([float(d.detach()) > 0.5 for d in of_expert]),
                np.mean([float(d.detach()) < 0.5 for d in of_policy]),
            ],
        )

    network, expected, right = in_double(slow)
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    for own, theirs in zip(model.module.parameters(), network.parameters(), strict=True):
        np.testing.assert_allclose(own.grad, theirs.grad, rtol=1e-3, atol=1e-6)
    assert [float(info["expert_accuracy"]), float(info["policy_accuracy"])] == pytest.approx(right)


@every_size
def test_the_reward_is_minus_log_of_what_the_discriminator_doubts(sizes: Sizes, tmp_path: Path) -> None:
    model, batch = make("gail", tmp_path, sizes), rows_of(1, sizes)
    network = copy.deepcopy(model.module).double()
    expected = [
        -math.log(1 - float(torch.sigmoid(logit(network, row)).detach())) for row in rows_as_tensors(batch, sizes)
    ]
    np.testing.assert_allclose(model.estimate(batch)["reward"], expected, rtol=1e-5)


@every_size
def test_the_penalty_is_of_slopes_between_expert_and_policy(sizes: Sizes, tmp_path: Path) -> None:
    plain, model = make("gail", tmp_path, sizes), make("gail", tmp_path, sizes, gradient_penalty=3.0)
    batch = rows_of(2, sizes, 5)
    for each in (plain, model):
        each._rng = np.random.default_rng(7)
    (without, _), (loss, _) = (each.update(minibatch(each, batch)) for each in (plain, model))
    rng = np.random.default_rng(7)
    drawn, share = rng.integers(40, size=5), torch.tensor(rng.random((5, 1)))
    network = copy.deepcopy(model.module).double()
    total = 0.0
    for number, (expert, policy) in enumerate(
        zip(rows_as_tensors(expert_of(sizes).take(drawn), sizes), rows_as_tensors(batch, sizes), strict=True)
    ):
        own, theirs = (torch.cat([row["obs"], row["action"]], dim=1) for row in (expert, policy))
        point = share[number, 0] * own + (1 - share[number, 0]) * theirs
        slope = []
        for place in range(point.shape[1]):  # by differences, one number after another
            up, down = point.clone(), point.clone()
            up[0, place] += 1e-5
            down[0, place] -= 1e-5
            with torch.no_grad():
                slope.append(float((network.head(network.main(up)) - network.head(network.main(down)))[0, 0]) / 2e-5)
        total += (math.sqrt(sum(each**2 for each in slope)) - 1) ** 2 / 5
    assert float((loss - without).detach()) == pytest.approx(3.0 * total, rel=1e-4)


def test_it_learns_to_tell_them_apart(tmp_path: Path) -> None:
    model = make("gail", tmp_path, update_per_collect=300, learning_rate=1e-2)
    batch = rows_of(1, rows=200).with_columns(obs=rows_of(1, rows=200)["obs"] + 20)
    model.collect(batch)
    info = model.train()
    assert info["expert_accuracy"] > 0.9 and info["policy_accuracy"] > 0.9
    of_expert = model.estimate(expert_of(SIZES["discrete"]))["reward"].mean()
    assert of_expert > model.estimate(batch)["reward"].mean() + 1
