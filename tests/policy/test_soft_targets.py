"""Munchausen DQN and soft Q-learning: an update equals a slow walk over rows, with and without masks."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ding_like.config import deep_merge
from ding_like.data.batch import TransitionBatch
from ding_like.policy.forward import SoftmaxOfValues
from tests.policy.values import ACTIONS, make_policy, make_rows, with_masks

TAU, ALPHA, CLIP = 0.5, 0.9, -0.7  # a clip that cuts some bonuses, and leaves others


SETTINGS: dict[str, dict[str, Any]] = {
    "mdqn": dict(entropy_tau=TAU, m_alpha=ALPHA, m_clip=CLIP),
    "sql": dict(learn=dict(alpha=TAU)),
}


def make(name: str, **changes: Any) -> Any:
    policy = make_policy(name, **deep_merge(SETTINGS[name], changes))
    target = policy._target_params.data_vector
    target.add_(0.3 * torch.randn(target.shape, generator=torch.Generator().manual_seed(3)))
    return policy


def softmax(values: list[float]) -> list[float]:
    """Return the probabilities of actions by exp(value / TAU), the largest taken off first."""
    parts = [math.exp((value - max(values)) / TAU) for value in values]
    return [part / sum(parts) for part in parts]


def slow_targets(policy: Any, batch: TransitionBatch) -> tuple[list[float], int]:
    """Return (targets of the papers, row by row in float64; how many of Munchausen DQN's bonuses were cut)."""
    target = copy.deepcopy(policy._target_model).double()
    board = "/board" if "obs/board" in batch.columns else ""
    found, num_cut = [], 0
    for row in batch:
        values, next_values = (
            target.q(torch.tensor(row[f"{name}{board}"], dtype=torch.float64)[None])[0].tolist()
            for name in ("obs", "next_obs")
        )
        bonus = TAU * math.log(softmax(values)[int(row["action"])])
        num_cut += bonus < CLIP
        legal = row["next_obs/action_mask"] if board else np.ones(ACTIONS, bool)
        allowed = [value for value, may in zip(next_values, legal, strict=True) if may]
        if policy._cfg.type == "sql":
            soft, bonus = TAU * math.log(sum(math.exp(value / TAU) for value in allowed)) if allowed else 0.0, 0.0
            follows = 0.0 if row["terminated"] else float(row["discount"]) * soft
            found.append(float(row["reward"]) + follows)
            continue
        soft = sum(p * (value - TAU * math.log(p)) for p, value in zip(softmax(allowed), allowed, strict=True))
        follows = 0.0 if row["terminated"] else float(row["discount"]) * soft
        found.append(float(row["reward"]) + ALPHA * max(bonus, CLIP) + follows)
    return found, num_cut


@pytest.mark.parametrize("backend", ["auto", "autograd"])
@pytest.mark.parametrize("is_masked", [False, True])
@pytest.mark.parametrize("name", SETTINGS)
def test_an_update_equals_a_slow_walk_over_rows(name: str, is_masked: bool, backend: str) -> None:
    batch = make_rows(64)
    if is_masked:
        batch = with_masks(batch)
    policy = make(name, priority=True, priority_IS_weight=True, learn=dict(backend=backend))
    targets, num_cut = slow_targets(policy, batch)
    model = copy.deepcopy(policy.get_attribute("model")).double()
    obs = torch.tensor(batch["obs/board" if is_masked else "obs"], dtype=torch.float64)
    chosen = model.q(obs).gather(1, torch.tensor(batch["action"])[:, None])[:, 0]
    loss: Tensor = (torch.tensor(batch["weight"]) * (chosen - torch.tensor(targets, dtype=torch.float64)) ** 2).mean()
    gradient = torch.cat([grad.flatten() for grad in torch.autograd.grad(loss, list(model.parameters()))])

    info, _ = policy.grad(batch)

    if name == "mdqn":
        assert 0 < num_cut < len(batch), "both sides of the clip are tried"
    np.testing.assert_allclose(np.asarray(info["target_q_value"]), targets, rtol=1e-5, atol=1e-6)
    assert float(info["total_loss"]) == pytest.approx(loss.item(), rel=1e-5)
    torch.testing.assert_close(policy._params.grad_vector.double(), gradient, rtol=1e-4, atol=1e-6)


def test_soft_q_learning_draws_actions_by_the_softmax_of_their_values() -> None:
    values = np.array([[0.0, 1.0, 2.0, 0.5]], np.float32).repeat(20_000, axis=0)
    mask = np.array([[1, 1, 1, 0]], np.int8).repeat(20_000, axis=0)
    choice, rng = SoftmaxOfValues(TAU), np.random.default_rng(0)

    drawn = np.bincount(choice(values, mask, rng, {})["action"], minlength=4) / 20_000
    explored = np.bincount(choice(values, mask, rng, {"eps": 1.0})["action"], minlength=4) / 20_000

    np.testing.assert_allclose(drawn[:3], softmax([0.0, 1.0, 2.0]), atol=0.01)
    np.testing.assert_allclose(explored[:3], 1 / 3, atol=0.015)
    assert drawn[3] == explored[3] == 0
