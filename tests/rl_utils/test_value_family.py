"""A family of distributions fits the frame of a TD update: a small categorical one (C51) beside a slow walk over atoms.

The family is the test's own; the update around it, target, weights, priorities, double Q-learning and masks, is the
shipped frame.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ding_like.data.batch import TransitionBatch
from ding_like.errors import SchemaError
from ding_like.policy.dqn import DQNPolicy
from ding_like.rl_utils.td import legal_value
from ding_like.rl_utils.value_family import ByHand, RowLoss, ScalarValue, ValueFamily, weighted_mean

ACTIONS, ATOMS, OBS, ROWS = 3, 5, 4, 12
SUPPORT = torch.linspace(-2.0, 2.0, ATOMS)


class Categorical:
    """Predict log probabilities of returns on a support [N]: a prediction is [B, A, N], a target [B, N]."""

    def predict(self, model: Any, obs: Any) -> Tensor:
        log_probs: Tensor = model.logits(obs).log_softmax(-1)
        return log_probs

    def expected(self, prediction: Tensor) -> Tensor:
        return (prediction.exp() * SUPPORT.to(prediction.dtype)).sum(-1)

    def expected_target(self, target: Tensor) -> Tensor:
        return self.expected(target)

    def of_action(self, prediction: Tensor, action: Tensor) -> Tensor:
        return prediction[torch.arange(len(action)), action]

    def of_best(self, prediction: Tensor, judge: Tensor, mask: Any) -> Tensor:
        actions = torch.arange(ACTIONS).expand(judge.shape)
        chosen = self.of_action(prediction, legal_value(judge, actions, mask))
        if mask is None:
            return chosen
        zero = torch.where(SUPPORT == 0.0, 0.0, -torch.inf)
        return torch.where((torch.as_tensor(mask) == 0).all(-1, keepdim=True), zero, chosen)

    def backup(self, reward: Tensor, next_value: Tensor, *, discount: Tensor | float, terminated: Tensor) -> Tensor:
        low, high = float(SUPPORT[0]), float(SUPPORT[-1])
        factor = torch.as_tensor(discount) * ~terminated
        place = (reward[:, None] + factor.reshape(-1, 1) * SUPPORT).clamp(low, high).sub(low) / (
            SUPPORT[1] - SUPPORT[0]
        )
        share = (1.0 - (place[:, None, :] - torch.arange(ATOMS)[:, None]).abs()).clamp(min=0.0)  # [B, N to, N from]
        return (share * next_value.exp()[:, None, :]).sum(-1).log()

    def loss(self, chosen: Tensor, target: Tensor) -> RowLoss:
        each = -(target.exp() * chosen).sum(-1)
        return RowLoss(each, each.detach())


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(OBS, ACTIONS * ATOMS)

    def logits(self, obs: Tensor) -> Tensor:
        return self.layer(obs).view(-1, ACTIONS, ATOMS)


class C51Policy(DQNPolicy):
    @cached_property
    def _family(self) -> ValueFamily[Any]:
        return Categorical()


def make(**settings: Any) -> C51Policy:
    torch.manual_seed(0)
    cfg = C51Policy.default_config()
    cfg.update(settings)
    policy = C51Policy(cfg, model=Net())
    policy._target_params.data_vector.add_(torch.randn_like(policy._target_params.data_vector))
    return policy


def rows(*, masked: bool) -> TransitionBatch:
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {
        "reward": rng.normal(size=ROWS).astype(np.float32),
        "action": rng.integers(0, ACTIONS, ROWS),
        "terminated": rng.random(ROWS) < 0.3,
        "discount": rng.choice([0.97, 0.97**2], ROWS).astype(np.float32),
        "weight": rng.uniform(0.1, 1.0, ROWS).astype(np.float32),
    }
    obs = {name: rng.normal(size=(ROWS, OBS)).astype(np.float32) for name in ("obs", "next_obs")}
    if not masked:
        return TransitionBatch({**obs, **columns})
    mask = rng.random((ROWS, ACTIONS)) < 0.5
    mask[:2] = False  # as after an end: one row that is terminated, one that is not
    columns["terminated"][:2] = [True, False]
    obs = {f"{name}/board": value for name, value in obs.items()}
    return TransitionBatch({**obs, **columns, "obs/action_mask": np.ones_like(mask), "next_obs/action_mask": mask})


def slow_update(policy: C51Policy, batch: TransitionBatch, *, double: bool) -> tuple[Tensor, list[float]]:
    """Return (gradient of the weighted loss, losses of rows), row by row and atom by atom, in float64."""
    layers = [nn.Linear(OBS, ACTIONS * ATOMS).double() for _ in range(2)]
    for layer, model in zip(layers, (policy._model, policy._target_model), strict=True):
        layer.load_state_dict(model.layer.state_dict())
    board = "/board" if "obs/board" in batch.columns else ""
    atoms, losses = SUPPORT.tolist(), []
    total = torch.zeros((), dtype=torch.float64)
    for row in range(ROWS):
        obs, next_obs = (torch.from_numpy(batch[f"{name}{board}"][row]).double() for name in ("obs", "next_obs"))
        online, target = (layer(next_obs).view(ACTIONS, ATOMS).softmax(-1).tolist() for layer in layers)
        judge = [sum(p * z for p, z in zip(probs, atoms, strict=True)) for probs in (online if double else target)]
        legal = range(ACTIONS)
        if board:
            legal = np.flatnonzero(batch["next_obs/action_mask"][row]).tolist()
        following = [0.0] * ATOMS
        if batch["terminated"][row] or not len(legal):
            outcomes = [(float(batch["reward"][row]), 1.0)]
        else:
            best = max(legal, key=lambda action: judge[action])
            discount = float(batch["discount"][row])
            outcomes = [
                (float(batch["reward"][row]) + discount * z, p) for z, p in zip(atoms, target[best], strict=True)
            ]
        for value, prob in outcomes:
            value = min(max(value, atoms[0]), atoms[-1])
            below = min(int((value - atoms[0]) // 1.0), ATOMS - 2)  # atoms are 1 apart
            following[below] += prob * (atoms[below + 1] - value)
            following[below + 1] += prob * (value - atoms[below])
        log_probs = layers[0](obs).view(ACTIONS, ATOMS).log_softmax(-1)[int(batch["action"][row])]
        each = -sum(m * log_prob for m, log_prob in zip(following, log_probs, strict=True))
        total = total + float(batch["weight"][row]) * each / ROWS
        losses.append(float(each.detach()))
    total.backward()
    return torch.cat([parameter.grad.flatten() for parameter in layers[0].parameters()]), losses


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("masked", [False, True])
def test_an_update_of_distributions_equals_a_slow_walk_over_atoms(masked: bool, double: bool) -> None:
    policy = make(priority=True, priority_IS_weight=True, double=double)
    batch = rows(masked=masked)

    info, priority = policy.grad(batch)

    gradient, losses = slow_update(policy, batch, double=double)
    mean = float(np.mean(batch["weight"] * np.array(losses)))
    assert float(info["total_loss"]) == pytest.approx(mean, rel=1e-5)
    np.testing.assert_allclose(priority, losses, rtol=1e-4)
    torch.testing.assert_close(policy.grad_vectors()[0][:-1].double(), gradient, rtol=1e-4, atol=1e-6)


def test_what_is_logged_of_distributions_are_expected_returns() -> None:
    policy, batch = make(), rows(masked=False)

    info, _ = policy.grad(batch)

    probs = policy._model.logits(torch.from_numpy(batch["obs"])).softmax(-1)
    assert torch.allclose(info["q_value"], (probs * SUPPORT).sum(-1), atol=1e-6)
    assert info["target_q_value"].shape == (ROWS,)


def test_actors_play_what_is_expected_of_distributions() -> None:
    policy, obs = make(), rows(masked=False)["obs"]

    columns = policy.eval_mode.actor.act(
        obs, lanes=np.arange(ROWS), is_first=np.ones(ROWS, bool), rng=np.random.default_rng(0)
    )

    expected = (policy._model.logits(torch.from_numpy(obs)).softmax(-1) * SUPPORT).sum(-1)
    assert np.array_equal(columns["action"], expected.argmax(1).numpy())


def test_only_plain_values_are_differentiated_by_hand() -> None:
    assert isinstance(ScalarValue("mse"), ByHand) and not isinstance(Categorical(), ByHand)
    assert make()._by_hand is None


def test_a_team_of_actions_is_read_agent_by_agent() -> None:
    values = torch.arange(12.0).view(2, 3, 2)

    chosen = ScalarValue("mse").of_action(values, torch.tensor([[0, 1, 0], [1, 1, 0]]))

    assert chosen.tolist() == [[0.0, 3.0, 4.0], [7.0, 9.0, 10.0]]


def test_a_weight_that_would_broadcast_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"weight has shape \(3, 1\), expected \(3,\)"):
        weighted_mean(torch.zeros(3), torch.ones(3, 1))
