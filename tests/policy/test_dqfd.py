"""DQfD: rows hold one step and several, and the loss equals a slow walk over rows and actions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ding_like.data.batch import TransitionBatch
from ding_like.data.rollout import Rollout
from ding_like.policy.rows import OneAndNStepRows
from ding_like.rl_utils.td import large_margin
from tests import experts
from tests.policy.values import ACTIONS, make_policy, make_rows

GAMMA = 0.97


def make(**changes: Any) -> Any:
    """Return a small policy whose target network differs from the other, so that mixing up the two shows."""
    policy = make_policy("dqfd", discount_factor=GAMMA, **changes)
    policy._target_params.data_vector.add_(0.3 * torch.randn_like(policy._target_params.data_vector))
    return policy


def batch_of(rows: int = 16, *, masked: bool = False, **columns: Any) -> TransitionBatch:
    """Return rows of two lengths, a part of them an expert's."""
    other = make_rows(rows, seed=1)
    one_step = {f"one_step/{name}": other[name] for name in ("reward", "next_obs", "terminated")}
    made = make_rows(rows, is_expert=np.arange(rows) >= 10, **one_step, **columns)
    if not masked:
        return made
    legal, named = np.random.default_rng(2).random((3, rows, ACTIONS)) < 0.6, dict(made.columns)
    legal[0, np.arange(rows), made["action"]] = True
    for name, mask in zip(("obs", "next_obs", "one_step/next_obs"), legal, strict=True):
        mask[:, 0] |= ~mask.any(axis=1)
        named |= {f"{name}/board": named.pop(name), f"{name}/action_mask": mask}
    return TransitionBatch(named)


def board_and_legal(row: Any, name: str) -> tuple[Tensor, list[int]]:
    """Return an observation of a row as a batch of one, and the actions that its mask allows."""
    nested = row[name]
    if isinstance(nested, dict):
        return torch.as_tensor(nested["board"])[None], [int(a) for a in np.flatnonzero(nested["action_mask"])]
    return torch.as_tensor(nested)[None], list(range(ACTIONS))


def slow_loss(policy: Any, batch: TransitionBatch, **learn: Any) -> Tensor:
    """Go row by row, and action by action."""
    cfg = {**policy.cfg.learn, **learn}
    online, target, losses = policy.get_attribute("model"), policy._target_model, []

    def distance(error: Tensor) -> Tensor:
        if cfg["loss"] == "mse":
            return error**2
        return error**2 / 2 if error.abs().item() <= 1 else error.abs() - 0.5

    for number in range(len(batch)):
        row = {name: column[number] for name, column in batch.columns.items()}
        for name in ("obs", "next_obs", "one_step/next_obs"):
            if f"{name}/board" in row:
                row[name] = {key: row[f"{name}/{key}"] for key in ("board", "action_mask")}
        values, total = online.q(board_and_legal(row, "obs")[0])[0], torch.zeros(())
        for start, discount, weight in (("", row["discount"], cfg["lambda1"]), ("one_step/", GAMMA, 1.0)):
            aim = torch.tensor(float(row[f"{start}reward"]))
            if not row[f"{start}terminated"]:
                obs, legal = board_and_legal(row, f"{start}next_obs")
                with torch.no_grad():
                    best = max(legal, key=lambda a, obs=obs: online.q(obs)[0, a].item())
                    aim = aim + float(discount) * target.q(obs)[0, best]
            total = total + weight * distance(values[row["action"]] - aim)
        if row["is_expert"]:
            legal = board_and_legal(row, "obs")[1]
            margins = [values[a] + (cfg["expert_margin"] if a != row["action"] else 0.0) for a in legal]
            total = total + cfg["lambda2"] * (torch.stack(margins).max() - values[row["action"]])
        losses.append(total * (float(row["weight"]) if policy.cfg.priority_IS_weight else 1.0))
    return torch.stack(losses).mean()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        dict(learn=dict(loss="huber", lambda1=0.3, lambda2=0.7, expert_margin=1.7)),
        dict(priority=True, priority_IS_weight=True, learn=dict(lambda2=0.2)),
        dict(learn=dict(lambda1=0.0)),
        dict(learn=dict(lambda2=0.0)),
    ],
)
@pytest.mark.parametrize("masked", [False, True])
def test_loss_and_gradient_equal_a_walk_over_rows_and_actions(changes: dict[str, Any], masked: bool) -> None:
    policy, batch = make(**changes), batch_of(masked=masked)

    info, _ = policy.learn_mode.grad(batch)
    found, model = policy._params.grad_vector.clone(), policy.get_attribute("model")
    loss = slow_loss(policy, batch)
    wanted = torch.cat([each.flatten() for each in torch.autograd.grad(loss, list(model.parameters()))])

    assert float(info["total_loss"]) == pytest.approx(loss.item(), rel=1e-5)
    assert torch.allclose(found, wanted, atol=1e-5)


def test_priorities_are_the_errors_of_one_step() -> None:
    policy, batch = make(priority=True), batch_of()

    _, priority = policy.learn_mode.grad(batch)

    for number in (0, 5, 15):
        one = batch.take(np.array([number]))
        slow = slow_loss(policy, one, lambda1=0.0, lambda2=0.0)
        assert priority[number] == pytest.approx(slow.item() ** 0.5, rel=1e-4)


def test_the_margin_is_of_an_experts_rows_alone() -> None:
    policy, batch = make(), batch_of()
    own = TransitionBatch({name: column for name, column in batch.columns.items() if name != "is_expert"})

    with_none, _ = policy.learn_mode.grad(own)
    with_some, _ = policy.learn_mode.grad(batch)

    assert float(with_none["total_loss"]) == pytest.approx(slow_loss(policy, batch, lambda2=0.0).item(), rel=1e-5)
    assert float(with_some["total_loss"]) > float(with_none["total_loss"])


def test_the_large_margin_is_zero_where_the_action_is_better_by_it() -> None:
    values = torch.tensor([[1.0, 0.1, -3.0], [1.0, 0.5, 0.0], [0.0, 2.0, 5.0]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 1], [1, 1, 0]])

    found = large_margin(values, torch.tensor([0, 0, 0]), margin=0.8, mask=mask)

    assert found.tolist() == pytest.approx([0.0, 0.3, 2.8])


def test_weight_decay_pulls_the_weights_towards_zero() -> None:
    policy = make(learn=dict(lambda1=0.0, lambda2=0.0, optimizer=dict(weight_decay=1e6), learning_rate=1e-4))
    before = policy._params.data_vector.clone()

    policy.learn_mode.grad(batch_of())
    policy.learn_mode.apply()

    moved = policy._params.data_vector - before
    assert (moved * before <= 0).all() and bool(moved.any())


@pytest.mark.parametrize("nstep", [1, 3])
def test_rows_hold_their_first_step_and_their_window(nstep: int) -> None:
    rng, rollout, steps = np.random.default_rng(0), Rollout(2), 14
    for step in range(steps):
        ended = step in (6, 11)
        rollout.append(
            {
                "obs": np.array([[step], [100 + step]], np.float32),
                "next_obs": np.array([[step + 1], [101 + step]], np.float32),
                "action": rng.integers(0, 2, 2),
                "reward": rng.normal(size=2).astype(np.float32),
                "terminated": np.array([ended, False]),
                "truncated": np.array([False, ended]),
                "lane": np.arange(2),
            }
        )
    log = {name: column.copy() for name, column in rollout.columns().items()}

    rows, keep = OneAndNStepRows(nstep, GAMMA).segment(rollout)

    assert keep.tolist() == [nstep - 1 if steps - 12 >= nstep - 1 else steps - 12] * 2
    assert len(rows) == 2 * steps - int(keep.sum())
    for row in rows:
        lane, step = divmod(int(row["obs"][0]), 100)
        end = min(step + nstep - 1, next(last for last in (6, 11, 99) if last >= step))
        at = [2 * number + lane for number in range(step, end + 1)]
        assert row["reward"] == pytest.approx(sum(GAMMA**i * log["reward"][n] for i, n in enumerate(at)), abs=1e-5)
        assert row["discount" if nstep > 1 else "reward"] == pytest.approx(
            GAMMA ** len(at) if nstep > 1 else log["reward"][at[0]], rel=1e-5
        )
        assert row["next_obs"] == log["next_obs"][at[-1]] and row["terminated"] == log["terminated"][at[-1]]
        first = {name: log[name][at[0]] for name in ("reward", "next_obs", "terminated")}
        assert row["one_step"] == first


def test_the_experts_rows_have_both_lengths(tmp_path: Path) -> None:
    file = experts.cartpole(tmp_path / "expert.safetensors", episodes=2)
    model = dict(obs_shape=4, action_shape=2)
    policy = make_policy("dqfd", nstep=4, discount_factor=GAMMA, model=model, collect=dict(data_path=str(file)))

    alone = policy.expert_rows(np.random.default_rng(0)).alone(2000)

    assert set(np.round(alone["reward"], 4)) == {
        np.float32(round(sum(GAMMA**i for i in range(n)), 4)) for n in (1, 2, 3, 4)
    }
    assert (alone["one_step/reward"] == 1).all() and alone["obs"].shape == (2000, 4)
