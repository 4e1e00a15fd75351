"""R2D3: R2D2's loss over sequences of the agent and of an expert, and a margin where that is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.config import deep_merge, to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.policy import get_policy_cls
from tests import experts
from tests.policy.test_r2d2 import make_policy, make_rollout

LENGTH = 6  # burn-in and what is learned from


def rows_of(policy: Any, *, expert: int, with_mask: bool = False) -> TransitionBatch:
    """Return sequences of random steps, of which the last ones are an expert's."""
    rows, _ = policy.segment(make_rollout(policy, with_mask=with_mask))
    is_expert = np.arange(len(rows)) >= len(rows) - expert
    weight = np.linspace(0.5, 1.5, len(rows)).astype(np.float32)
    return TransitionBatch({**rows.own_memory().columns, "is_expert": is_expert, "weight": weight})


def slow_margin(policy: Any, rows: TransitionBatch) -> float:
    """Go row by row, step by step and action by action, over what burn-in leaves."""
    learn, total, model = policy.cfg.learn, 0.0, policy.get_attribute("model")
    masked = "obs/board" in rows.columns
    obs = torch.as_tensor(rows["obs/board" if masked else "obs"])
    state = {name.removeprefix("state/"): torch.as_tensor(rows[name]) for name in rows.columns if "state/" in name}
    with torch.no_grad():
        values = model.run(obs, state)[0]
    for number in range(len(rows)):
        of_row = 0.0
        for step in range(LENGTH):
            if rows["is_expert"][number] and rows["mask"][number, step]:
                action, of_step = int(rows["action"][number, step]), values[number, step].tolist()
                legal = rows["obs/action_mask"][number, step] if masked else [True] * len(of_step)
                wanted = [v + learn.expert_margin * (a != action) for a, v in enumerate(of_step) if legal[a]]
                of_row += max(wanted) - of_step[action]
        total += float(rows["weight"][number]) * learn.lambda2 * of_row / policy.cfg.learn_unroll_len
    return total / len(rows)


@pytest.mark.parametrize("with_mask", [False, True])
def test_the_margin_is_of_the_experts_steps_that_are_learned_from(with_mask: bool) -> None:
    losses = {}
    for lambda2 in (0.0, 0.7):
        policy: Any = make_policy("r2d3", learn=dict(lambda2=lambda2, expert_margin=0.4))
        rows = rows_of(policy, expert=7, with_mask=with_mask)
        losses[lambda2] = float(policy.learn_mode.grad(rows)[0]["total_loss"])

    assert losses[0.7] - losses[0.0] == pytest.approx(slow_margin(policy, rows), rel=1e-4)
    assert losses[0.7] > losses[0.0]


def test_without_a_margin_an_update_is_that_of_r2d2() -> None:
    found = []
    for name in ("r2d3", "r2d2"):
        policy: Any = make_policy(name)
        _, priority = policy.learn_mode.grad(rows_of(policy, expert=7))
        found.append((policy._params.grad_and_loss.clone(), priority))

    assert torch.equal(found[0][0], found[1][0]) and (found[0][1] == found[1][1]).all()


def test_the_margins_gradient_is_of_the_experts_rows() -> None:
    policies = [make_policy("r2d3", learn=dict(lambda2=lambda2)) for lambda2 in (0.0, 1.0)]
    vectors = []
    for expert in (0, 7):
        for policy in policies:
            policy.learn_mode.grad(rows_of(policy, expert=expert))
        vectors.append([policy._params.grad_vector.clone() for policy in policies])  # type: ignore[attr-defined]

    assert torch.equal(*vectors[0]) and not torch.equal(*vectors[1])


def test_the_experts_sequences_begin_with_the_state_before_an_episode(tmp_path: Path) -> None:
    file = experts.cartpole(tmp_path / "expert.safetensors", episodes=2)
    cls = get_policy_cls({"type": "r2d3"})
    model = dict(obs_shape=4, action_shape=2, encoder_hidden_size_list=[6])
    own = dict(model=model, burnin_step=2, learn_unroll_len=4, nstep=3, collect=dict(data_path=str(file)))
    policy: Any = cls(deep_merge(to_plain(cls.default_config()), own))

    rows = policy.expert_rows(np.random.default_rng(0))
    alone = rows.alone(64)

    # The first row of an episode of 500 learns from 6 steps, each other from 4.
    assert len(rows) == 2 * (1 + -(-(500 - 6) // 4))
    assert {name for name in alone.columns if name.startswith("state/")} == {"state/h", "state/c"}
    assert not alone["state/h"].any() and alone["obs"].shape == (64, LENGTH + 1, 4)
    info, priority = policy.learn_mode.grad(alone)
    assert np.isfinite(float(info["total_loss"])) and len(priority) == 64
