"""IQN and FQF: an update beside a slow walk over rows and pairs of quantiles, and how they act."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils import parameters_to_vector

from ding_like.config import deep_merge, to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.errors import ConfigError
from ding_like.policy import create_policy, get_policy_cls
from ding_like.policy.iqn import IQNPolicy
from ding_like.rl_utils.value_family import fraction_gradient, fraction_loss
from tests.policy.differences import assert_finite_differences, in_float64
from tests.policy.values import make_rows, with_masks

OBS, ACTIONS, ROWS = 3, 4, 16
BOTH = pytest.mark.parametrize("name", ["iqn", "fqf"])
MODEL = dict(
    obs_shape=OBS,
    action_shape=ACTIONS,
    encoder_hidden_size_list=[8, 8],
    num_quantiles=5,
    quantile_embedding_size=6,
    head_layer_num=1,
)


def make(name: str, **changes: Any) -> Any:
    """Return a policy whose two networks, and whose proposals, differ from where they begin."""
    torch.manual_seed(0)
    cfg = to_plain(get_policy_cls({"type": name}).default_config())
    rate = {"learning_rate_quantile": 1e-3, "learning_rate_fraction": 1e-3} if name == "fqf" else {}
    policy: Any = create_policy(deep_merge(deep_merge(cfg, dict(type=name, model=MODEL, learn=rate)), changes))
    with torch.no_grad():
        for parameter in policy._target_model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        for model in (policy.get_attribute("model"), policy._target_model) if name == "fqf" else ():
            torch.nn.init.normal_(model.proposal.linear.weight)
    return policy


def rows(seed: int = 0, *, masked: bool = False) -> TransitionBatch:
    batch = make_rows(ROWS, obs=OBS, actions=ACTIONS, seed=seed)
    batch = batch.with_columns(reward=3.0 * batch["reward"])  # on both sides of Huber's corner
    return with_masks(batch, actions=ACTIONS) if masked else batch


def part(batch: TransitionBatch, name: str) -> np.ndarray:
    return batch.columns[f"{name}/board" if f"{name}/board" in batch.columns else name]


@torch.no_grad()
def slow_losses(policy: Any, batch: TransitionBatch, *, double: bool, kappa: float) -> list[float]:
    """Return the losses of rows in float64: number by number, at the fractions that the policy will draw or propose."""
    twin = copy.deepcopy(policy)
    online, target = twin.get_attribute("model").double(), twin._target_model.double()
    if policy.cfg.type == "iqn":
        twin._noise.begin()
        drawn_target, drawn = twin._draw(ROWS, 4).double(), twin._draw(ROWS, 5).double()

    def ask(
        model: Any, obs: torch.Tensor, fractions: torch.Tensor | None
    ) -> tuple[list[Any], list[float], list[float]]:
        """Return (quantiles of each action, their fractions, their weights) of one observation."""
        if fractions is not None:
            values = model.quantiles(obs, fractions)[0]
            return values.tolist(), fractions[0].tolist(), [1.0 / fractions.shape[1]] * fractions.shape[1]
        widths = model.proposal.linear(model.values.encoder(obs)).softmax(-1)[0].tolist()
        middles = [sum(widths[:i]) + 0.5 * widths[i] for i in range(len(widths))]
        values = model.values.quantiles(obs, torch.tensor([middles], dtype=torch.float64))[0]
        return values.tolist(), middles, widths

    losses = []
    for row in range(ROWS):
        obs, next_obs = (torch.from_numpy(part(batch, name)[row : row + 1]).double() for name in ("obs", "next_obs"))
        is_iqn = policy.cfg.type == "iqn"
        after, _, weights = ask(target, next_obs, drawn_target[row : row + 1] if is_iqn else None)
        judge = online if double else target
        middles = torch.tensor([[0.1, 0.3, 0.5, 0.7, 0.9]], dtype=torch.float64) if is_iqn else None
        quantiles, _, shares = ask(judge, next_obs, middles)
        expected = [sum(z * share for z, share in zip(each, shares, strict=True)) for each in quantiles]
        legal = list(range(ACTIONS))
        if "next_obs/action_mask" in batch.columns:
            legal = np.flatnonzero(batch["next_obs/action_mask"][row]).tolist()
        reward, discount = float(batch["reward"][row]), float(batch["discount"][row])
        goals = [reward] * len(weights)
        if legal and not batch["terminated"][row]:
            best = max(legal, key=lambda action: expected[action])
            goals = [reward + discount * z for z in after[best]]
        values, fractions, _ = ask(online, obs, drawn[row : row + 1] if is_iqn else None)
        loss = 0.0
        for value, fraction in zip(values[int(batch["action"][row])], fractions, strict=True):
            for goal, weight in zip(goals, weights, strict=True):
                error = goal - value
                huber = 0.5 * error**2 if abs(error) <= kappa else kappa * (abs(error) - 0.5 * kappa)
                loss += weight * abs(fraction - (error < 0)) * huber / kappa
        losses.append(loss)
    return losses


@pytest.mark.parametrize(("double", "masked"), [(True, False), (False, True)])
@pytest.mark.parametrize("backend", ["auto", "autograd"])
@BOTH
def test_an_update_equals_a_slow_walk_over_pairs_of_quantiles(
    name: str, backend: str, double: bool, masked: bool
) -> None:
    number = {"num_target_quantiles": 4} if name == "iqn" else {}
    policy = make(
        name, double=double, priority=True, priority_IS_weight=True, learn=dict(backend=backend, kappa=0.7, **number)
    )
    assert (policy._by_hand is not None) == (backend == "auto")
    batch = rows(masked=masked)

    expected = slow_losses(policy, batch, double=double, kappa=0.7)
    info, priority = policy.grad(batch)

    np.testing.assert_allclose(priority, expected, rtol=2e-6, atol=1e-6)
    assert float(info["total_loss"]) == pytest.approx(float(np.mean(batch["weight"] * np.array(expected))), rel=1e-6)


@BOTH
def test_the_gradient_of_values_equals_finite_differences(name: str) -> None:
    policy = make(name, learn=dict(backend="autograd"))
    for model in (policy.get_attribute("model"), policy._target_model):
        model.double()
    for params in (policy._params, policy._target_params):
        params.rebuild()
    if name == "fqf":
        policy._fraction_params.rebuild()
    batch = in_float64(rows())
    draw = getattr(policy, "_draw", None)
    policy._draw = lambda *shape: draw(*shape).double()
    policy.grad(batch)

    # FQF proposes fractions from the encoder's features, a way that the gradient of values does not take.
    first = (
        sum(parameter.numel() for parameter in policy.get_attribute("model").values.encoder.parameters())
        if name == "fqf"
        else 0
    )
    loss = lambda: float(policy.grad(batch)[0]["total_loss"])  # noqa: E731
    assert_finite_differences(policy._params, loss, first=first, rel=1e-4)


@pytest.mark.parametrize("backend", ["auto", "autograd"])
def test_the_gradient_of_proposals_is_the_closed_form_through_the_proposing_layer(backend: str) -> None:
    policy = make("fqf", priority=True, priority_IS_weight=True, learn=dict(backend=backend, ent_coef=0.2))
    batch = rows()

    policy.grad(batch)

    twin = copy.deepcopy(policy.get_attribute("model")).double()
    features = twin.values.encoder(torch.from_numpy(batch["obs"]).double()).detach()
    parts = twin.proposal(features)
    action = torch.from_numpy(batch["action"])
    at = [twin.values.of_features(features, fractions)[torch.arange(ROWS), action] for fractions in parts[:2]]
    slope = fraction_gradient(at[0], at[1]).detach()
    each = fraction_loss(parts.bounds, slope, parts.entropy, entropy_weight=0.2)
    (torch.from_numpy(batch["weight"]).double() * each).mean().backward()
    expected = torch.cat([parameter.grad.flatten() for parameter in twin.proposal.parameters()])
    torch.testing.assert_close(policy.grad_vectors()[1][:-1].double(), expected, rtol=1e-4, atol=1e-6)


def test_neither_loss_of_fqf_trains_the_other_network() -> None:
    for still, moves in (("learning_rate_fraction", "values"), ("learning_rate_quantile", "proposal")):
        policy = make("fqf", learn={still: 0.0})
        before = copy.deepcopy(policy.get_attribute("model").state_dict())
        policy.grad(rows())
        policy.apply()
        changed = {
            key.partition(".")[0]
            for key, value in policy.get_attribute("model").state_dict().items()
            if (value != before[key]).any()
        }
        assert changed == {moves}


@BOTH
def test_the_whole_target_network_moves(name: str) -> None:
    policy = make(name, learn=dict(target_update_freq=2))
    equal = []
    for _ in range(2):
        policy.grad(rows())
        policy.apply()
        models = policy.get_attribute("model"), policy._target_model
        equal.append(torch.equal(*(parameters_to_vector(model.parameters()) for model in models)))

    assert equal == [False, True]


def test_each_update_draws_fractions_of_its_own() -> None:
    policy = make("iqn", learn=dict(learning_rate=0.0))
    losses = []
    for _ in range(3):
        losses.append(float(policy.grad(rows())[0]["total_loss"]))
        policy.apply()

    assert len(set(losses)) == 3


class Unsaid(torch.nn.Module):
    """Model with the methods that the policy calls, and without the number of quantiles."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.quantiles, self.midpoints = (torch.nn.Linear(OBS, ACTIONS) for _ in range(3))


def test_a_model_without_a_number_of_quantiles_is_refused() -> None:
    with pytest.raises(ConfigError, match="num_quantiles"):
        IQNPolicy(IQNPolicy.default_config(), model=Unsaid())
