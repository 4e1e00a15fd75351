"""AIRL: discriminator, loss and reward against a walk over rows."""

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
from tests.reward_model.rows import rows_of

GAMMA = 0.8
every_size = pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)


def shaped(module: Any, row: dict[str, Any], *, state_only: bool = False) -> Tensor:
    """Return f of one row."""
    g, h = module["reward"], module["potential"]
    x = row["obs"] if state_only else torch.cat([row["obs"], row["action"]], dim=1)
    f = g.head(g.main(x))[0, 0] - h.head(h.main(row["obs"]))[0, 0]
    return f if row["terminated"] else f + GAMMA * h.head(h.main(row["next_obs"]))[0, 0]


@every_size
@pytest.mark.parametrize("state_only", [False, True])
def test_loss_and_gradient_are_those_of_a_walk_over_rows(sizes: Sizes, state_only: bool, tmp_path: Path) -> None:
    model = make("airl", tmp_path, sizes, discount_factor=GAMMA, state_only=state_only)
    batch = rows_of(1, sizes, 6).with_columns(terminated=np.arange(6) % 2 == 0)
    drawn = np.random.default_rng(0).integers(40, size=6)
    model._rng = np.random.default_rng(0)
    loss, _ = model.update(model.lay_out(batch))
    loss.backward()

    def slow() -> tuple[Any, Tensor]:
        module = copy.deepcopy(model.module).double()
        total = torch.zeros(())
        for row in rows_as_tensors(expert_of(sizes).take(drawn), sizes):
            top = shaped(module, row, state_only=state_only).exp()
            total = total - (top / (top + math.exp(row["log_prob"]))).log() / 6
        for row in rows_as_tensors(batch, sizes):
            top = shaped(module, row, state_only=state_only).exp()
            total = total - (math.exp(row["log_prob"]) / (top + math.exp(row["log_prob"]))).log() / 6
        module.zero_grad()
        total.backward()
        return module, total

    module, expected = in_double(slow)
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    for own, theirs in zip(model.module.parameters(), module.parameters(), strict=True):
        np.testing.assert_allclose(own.grad, theirs.grad, rtol=1e-3, atol=1e-6)


@every_size
@pytest.mark.parametrize("positive", [False, True])
def test_the_reward_is_the_log_odds_of_the_discriminator(sizes: Sizes, positive: bool, tmp_path: Path) -> None:
    model = make("airl", tmp_path, sizes, discount_factor=GAMMA, positive_reward=positive)
    batch = rows_of(1, sizes).with_columns(terminated=np.arange(12) % 3 == 0)
    module = copy.deepcopy(model.module).double()
    expected = []
    for row in rows_as_tensors(batch, sizes):
        top, pi = math.exp(float(shaped(module, row).detach())), math.exp(row["log_prob"])
        d = top / (top + pi)
        expected.append(-math.log(1 - d) if positive else math.log(d) - math.log(1 - d))
    np.testing.assert_allclose(model.estimate(batch)["reward"], expected, rtol=1e-4, atol=1e-5)


def test_without_the_policys_term_the_discriminator_is_the_sigmoid_of_f(tmp_path: Path) -> None:
    sizes = SIZES["box"]
    model = make("airl", tmp_path, sizes, discount_factor=GAMMA, policy_term=False, log_prob=None)
    batch = rows_of(1, sizes)
    module = copy.deepcopy(model.module).double()
    expected = [float(shaped(module, row).detach()) for row in rows_as_tensors(batch, sizes)]
    np.testing.assert_allclose(model.estimate(batch)["reward"], expected, rtol=1e-4, atol=1e-5)
    model.collect(batch)
    assert np.isfinite(float(model.train()["reward_model_loss"]))
