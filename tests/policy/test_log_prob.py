"""Log probabilities that policies give to actions as the env takes them: what an expert's actions are judged by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import Normal, TanhTransform, TransformedDistribution

from ding_like.policy import get_policy_cls
from ding_like.policy.a2c import A2CPolicy
from ding_like.policy.ppo import PPOPolicy
from ding_like.rl_utils.distributions import Hybrid
from tests.policy import continuous, on_policy
from tests.policy.test_sqn import make as make_sqn


@pytest.mark.parametrize("kind", ["one", "several", "squashed", "clipped"])
@pytest.mark.parametrize("cls", [PPOPolicy, A2CPolicy])
def test_on_policy_it_is_that_of_the_rows(cls: Any, kind: str) -> None:
    policy = on_policy.make_policy(cls, **on_policy.KINDS[kind])
    rows = on_policy.make_batch(policy)
    with torch.no_grad():
        found = policy.log_prob(torch.tensor(rows["obs"]), torch.tensor(rows["action"]), None).numpy()
    inside = np.ones(len(rows), bool)
    if kind == "clipped":  # of what was drawn beyond a bound, only the bound is left
        inside = (np.abs(rows["action_raw"]) < 1).all(axis=1)
        assert not inside.all()
    np.testing.assert_allclose(found[inside], rows["log_prob"][inside], rtol=1e-4, atol=1e-4)
    assert np.isfinite(found).all()


def test_on_policy_actions_that_a_mask_forbids_have_no_share() -> None:
    policy = on_policy.make_policy()
    rows = on_policy.make_batch(policy, is_masked=True)
    with torch.no_grad():
        found = policy.log_prob(
            torch.tensor(rows["obs/board"]), torch.tensor(rows["action"]), torch.tensor(rows["obs/action_mask"])
        )
    np.testing.assert_allclose(found, rows["log_prob"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["sac", "tqc", "crossq"])
def test_sac_has_the_density_of_its_squashed_gaussian(name: str) -> None:
    policy = continuous.make_policy(name)
    rows = continuous.make_batch()
    action = rows["action"].copy()
    action[0] = [2.0, 0.0]  # at the bounds, where the density is that just before
    with torch.no_grad():
        mean, log_sigma = policy._model.actor(torch.tensor(rows["obs"])).double().chunk(2, dim=1)
        density = TransformedDistribution(Normal(mean, log_sigma.exp()), TanhTransform())
        inside = torch.tensor((action - continuous.CENTRE) / continuous.HALF).clamp(-1 + 1e-6, 1 - 1e-6)
        expected = density.log_prob(inside).sum(dim=1)
        found = policy.log_prob(torch.tensor(rows["obs"]), torch.tensor(action), None)
    np.testing.assert_allclose(found[1:], expected[1:], rtol=1e-3, atol=1e-3)
    assert float(found[0]) == pytest.approx(float(expected[0]), rel=0.1)


def test_discrete_sac_and_sqn_have_those_of_their_softmax() -> None:
    obs, action = torch.randn(5, 3), torch.tensor([0, 1, 2, 1, 0])
    policy = make_sqn()
    with torch.no_grad():
        found = policy.log_prob(obs, action, None)
        logits = policy._model.critic(obs).amin(dim=0) / 0.3
    expected = [float(torch.softmax(row, 0)[number].log()) for row, number in zip(logits, action, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize("name", ["dqn", "td3", "ppo_recurrent", "r2d2"])
def test_others_say_that_they_have_none(name: str) -> None:
    assert not get_policy_cls({"type": name}).has_log_prob


def test_what_was_drawn_comes_back_of_a_hybrid_action() -> None:
    # Within what tanh can tell apart from its bounds.
    family = Hybrid(np.ones((2, 3)), low=[-2.0] * 3, high=[4.0] * 3, squash=True)
    output = 0.5 * np.random.default_rng(0).normal(size=(9, 8)).astype(np.float32)
    sampled = family.sample(output, np.random.default_rng(1))
    back = family.raw_of(torch.tensor(sampled["action"]))
    np.testing.assert_allclose(back, sampled["action_raw"], rtol=1e-3, atol=1e-3)
