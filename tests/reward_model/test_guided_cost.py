"""Guided cost learning: loss and reward against a walk over rows."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ding_like.reward_model.base import Sizes
from tests.reward_model.imitation import SIZES, expert_of, in_double, make, rows_as_tensors
from tests.reward_model.rows import rows_of, step

every_size = pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)


def cost(network: Any, row: dict[str, Any]) -> Tensor:
    return network.head(network.main(torch.cat([row["obs"], row["action"]], dim=1)))[0, 0]


@every_size
def test_loss_and_gradient_are_those_of_a_walk_over_rows(sizes: Sizes, tmp_path: Path) -> None:
    model, batch = make("guided_cost", tmp_path, sizes), rows_of(1, sizes, 6)
    batch = batch.with_columns(obs=np.concatenate([batch["obs"][:5], 30 + batch["obs"][5:]]))  # log pi below -10
    drawn = np.random.default_rng(0).integers(40, size=6)
    model._rng = np.random.default_rng(0)
    loss, info = model.update(model.lay_out(batch))
    loss.backward()

    def slow() -> tuple[Any, Tensor, list[float]]:
        network = copy.deepcopy(model.module).double()
        experts = rows_as_tensors(expert_of(sizes).take(drawn), sizes)
        policies = rows_as_tensors(batch, sizes)
        assert min(row["log_prob"] for row in policies) < -10
        of_expert = sum(cost(network, row) for row in experts) / 6
        weights = [
            (-cost(network, row)).exp() / max(math.exp(row["log_prob"]), math.exp(-10)) for row in experts + policies
        ]
        total: Tensor = of_expert + (sum(weights) / 12).log() + (of_expert + 1) ** 2  # type: ignore[assignment, union-attr]
        network.zero_grad()
        total.backward()
        return (
            network,
            total,
            [float(of_expert.detach()), float(np.mean([float(cost(network, row).detach()) for row in policies]))],
        )

    network, expected, costs = in_double(slow)
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    for own, theirs in zip(model.module.parameters(), network.parameters(), strict=True):
        np.testing.assert_allclose(own.grad, theirs.grad, rtol=1e-3, atol=1e-5)
    assert [float(info["expert_cost"]), float(info["policy_cost"])] == pytest.approx(costs, rel=1e-4)


@every_size
def test_the_reward_is_minus_the_cost(sizes: Sizes, tmp_path: Path) -> None:
    model, batch = make("guided_cost", tmp_path, sizes), rows_of(1, sizes)
    network = copy.deepcopy(model.module).double()
    expected = [-float(cost(network, row).detach()) for row in rows_as_tensors(batch, sizes)]
    np.testing.assert_allclose(model.estimate(batch)["reward"], expected, rtol=1e-4, atol=1e-6)


def test_a_step_of_the_expert_comes_to_be_worth_one(tmp_path: Path) -> None:
    model = make("guided_cost", tmp_path, update_per_collect=400, batch_size=64)
    far = rows_of(1, rows=100).with_columns(obs=rows_of(1, rows=100)["obs"] + 5)
    step(model, far)
    of_expert = model.estimate(expert_of(SIZES["discrete"]))["reward"].mean()
    assert of_expert == pytest.approx(1.0, abs=0.1)
    assert model.estimate(far)["reward"].mean() < of_expert - 1
