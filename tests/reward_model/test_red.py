"""Random expert distillation: loss, sigma and reward against a walk over rows; the predictor learns once."""

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


def error(module: Any, row: dict[str, Any], mean: np.ndarray, std: np.ndarray) -> Tensor:
    """Return the error of one row, output by output."""
    x = torch.cat([(row["obs"] - torch.tensor(mean)) / torch.tensor(std), row["action"]], dim=1)
    predicted, wanted = (net.head(net.main(x))[0] for net in (module.predictor, module.target))
    return sum((predicted[k] - wanted[k].detach()) ** 2 for k in range(4)) / 4  # type: ignore[return-value]


def scale_of(sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
    obs = expert_of(sizes)["obs"].astype(np.float64)
    return obs.mean(axis=0), obs.std(axis=0)


@every_size
def test_loss_and_gradient_are_those_of_a_walk_over_rows(sizes: Sizes, tmp_path: Path) -> None:
    model, batch = make("red", tmp_path, sizes), rows_of(1, sizes, 6)
    model.module.scale.update(torch.tensor(expert_of(sizes)["obs"]))
    loss, _ = model.update(model.lay_out(batch))
    loss.backward()

    def slow() -> tuple[Any, Tensor]:
        module = copy.deepcopy(model.module).double()
        total: Tensor = sum(error(module, row, *scale_of(sizes)) for row in rows_as_tensors(batch, sizes)) / 6  # type: ignore[assignment]
        module.zero_grad()
        total.backward()
        return module, total

    module, expected = in_double(slow)
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    for own, theirs in zip(model.module.predictor.parameters(), module.predictor.parameters(), strict=True):
        np.testing.assert_allclose(own.grad, theirs.grad, rtol=1e-3, atol=1e-6)


@every_size
@pytest.mark.parametrize("sigma", [None, 2.5])
def test_rewards_and_sigma_are_those_of_a_walk_over_rows(sizes: Sizes, sigma: float | None, tmp_path: Path) -> None:
    model, batch = make("red", tmp_path, sizes, sigma=sigma), rows_of(1, sizes)
    found = step(model, batch)["reward"]
    module = copy.deepcopy(model.module).double()

    def errors(of: Any) -> list[float]:
        return [float(error(module, row, *scale_of(sizes)).detach()) for row in rows_as_tensors(of, sizes)]

    expected_sigma = -math.log(0.9) / np.mean(errors(expert_of(sizes))) if sigma is None else sigma
    assert float(model.module.sigma) == pytest.approx(expected_sigma, rel=1e-4)
    np.testing.assert_allclose(found, np.exp([-expected_sigma * each for each in errors(batch)]), rtol=1e-3, atol=1e-7)


def test_the_predictor_learns_before_the_first_batch_and_then_no_more(tmp_path: Path) -> None:
    model = make("red", tmp_path, pretrain_updates=300)
    before = {name: value.clone() for name, value in model.module.state_dict().items()}
    model.collect(rows_of(1))
    info = model.train()
    after = {name: value.clone() for name, value in model.module.state_dict().items()}
    assert float(info["reward_model_loss"]) < 0.05
    for name, value in after.items():
        assert torch.equal(value, before[name]) == name.startswith("target."), name
    step(model, rows_of(2))
    for name, value in model.module.state_dict().items():
        assert torch.equal(value, after[name]), name
    far = rows_of(3).with_columns(obs=rows_of(3)["obs"] + 20)
    of_expert = model.estimate(expert_of(SIZES["discrete"]))["reward"].mean()
    assert of_expert > 0.85 and model.estimate(far)["reward"].mean() < 0.2


def test_a_loaded_model_does_not_learn_again(tmp_path: Path) -> None:
    one, two = make("red", tmp_path), make("red", tmp_path, seed=3)
    step(one, rows_of(1))
    two.load_state_dict(one.state_dict())
    np.testing.assert_array_equal(step(two, rows_of(2))["reward"], step(one, rows_of(2))["reward"])
