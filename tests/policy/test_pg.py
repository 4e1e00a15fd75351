"""REINFORCE with a baseline: whole returns, the loss against a slow walk and finite differences, its model."""

import numpy as np
import pytest
import torch

from ding_like.config import deep_merge, to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.data.rollout import Rollout
from ding_like.model.vac import PG
from ding_like.policy.a2c import PGPolicy
from tests.policy.differences import assert_finite_differences
from tests.policy.on_policy import KINDS, act

GAMMA = 0.9


def make_policy(dtype: torch.dtype = torch.float32, **changes) -> PGPolicy:
    torch.manual_seed(0)
    cfg = to_plain(PGPolicy.default_config())
    cfg["model"] = dict(obs_shape=3, action_shape=3, encoder_hidden_size_list=[8, 8], activation="tanh")
    cfg = deep_merge(deep_merge(cfg, dict(discount_factor=GAMMA)), changes)
    space = cfg["action_space"] or "discrete"
    return PGPolicy(cfg, PG(**cfg["model"], action_space=space).to(dtype))


def make_rollout(policy, steps: int = 12, lanes: int = 3, *, seed: int = 0) -> Rollout:
    rng, rollout = np.random.default_rng(seed), Rollout(lanes)
    obs = rng.normal(size=(lanes, 3)).astype(np.float32)
    for step in range(steps):
        terminated = rng.random(lanes) < 0.2
        truncated = (rng.random(lanes) < 0.2) & ~terminated
        next_obs = rng.normal(size=(lanes, 3)).astype(np.float32)
        flags = {"terminated": terminated, "truncated": truncated, "lane": np.arange(lanes)}
        reward = rng.normal(size=lanes).astype(np.float32)
        rollout.append({"obs": obs, **act(policy, obs, seed=step), "next_obs": next_obs, "reward": reward, **flags})
        # What an episode that has ended was followed by is not what the next begins with.
        first = rng.normal(size=(lanes, 3)).astype(np.float32)
        obs = np.where((terminated | truncated)[:, None], first, next_obs)
    return rollout


def slow_returns(policy, rows) -> list[float]:
    """Sum the rewards from each row to its episode's end, step by step; V follows where it did not terminate."""
    returns = []
    for row in rows:
        total, discount, here = 0.0, 1.0, row
        following = iter([other for other in rows if other["lane"] == row["lane"]])
        while next(following) is not row:
            pass
        while True:
            total += discount * float(here["reward"])
            discount *= GAMMA
            after = None if here["terminated"] or here["truncated"] else next(following, None)
            if after is None:
                break
            here = after
        if not here["terminated"]:
            with torch.no_grad():
                total += discount * float(policy.get_attribute("model").critic(torch.tensor(here["next_obs"])[None]))
        returns.append(total)
    return returns


def test_returns_equal_a_slow_sum_to_the_end_of_each_episode():
    policy = make_policy()
    batch, keep = policy.segment(make_rollout(policy))

    expected = slow_returns(policy, list(batch))

    assert {(bool(row["terminated"]), bool(row["truncated"])) for row in batch} == {(0, 0), (1, 0), (0, 1)}
    np.testing.assert_allclose(batch["return_"], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(batch["advantage"], expected - batch["value"], rtol=1e-5, atol=1e-5)
    assert not keep.any()


@torch.no_grad()
def slow_loss(policy, batch) -> float:
    """Go row by row, as the book says."""
    learn, terms = policy._cfg.learn, []
    for row in batch:
        output, value = policy.get_attribute("model").actor_critic(torch.tensor(row["obs"], dtype=torch.float64)[None])
        action = torch.tensor(row[policy._family.column])[None]
        log_prob, entropy = (float(x) for x in policy._family.log_prob_and_entropy(output, action))
        gain = log_prob * (float(row["return_"]) - float(row["value"]))
        error = (float(value) - float(row["return_"])) ** 2
        terms.append(-gain + learn.value_weight * error - learn.entropy_weight * entropy)
    return float(np.mean(terms))


def in_float64(batch: TransitionBatch) -> TransitionBatch:
    """Return rows whose advantage is exactly return less value."""
    exact = {name: batch[name].astype(np.float64) for name in ("return_", "value")}
    return batch.with_columns(**exact, advantage=exact["return_"] - exact["value"])


@pytest.mark.parametrize(("kind", "learn"), [("one", {}), ("clipped", dict(entropy_weight=0.1, value_weight=0.25))])
def test_loss_equals_a_slow_walk_over_rows(kind, learn):
    policy = make_policy(torch.float64, learn=learn, **KINDS[kind])
    batch = in_float64(policy.segment(make_rollout(make_policy(**KINDS[kind])))[0])

    info, priority = policy.grad(batch)

    assert float(info["total_loss"]) == pytest.approx(slow_loss(policy, batch), rel=1e-6, abs=1e-6)
    assert priority is None


@pytest.mark.parametrize("kind", ["one", "clipped"])
def test_gradient_equals_finite_differences(kind):
    policy = make_policy(torch.float64, learn=dict(entropy_weight=0.1), **KINDS[kind])
    batch = in_float64(policy.segment(make_rollout(make_policy(**KINDS[kind])))[0])
    policy.grad(batch)

    assert_finite_differences(policy._params, lambda: float(policy.grad(batch)[0]["total_loss"]))


def test_policy_and_baseline_share_no_layer():
    policy = make_policy()
    actor, critic = policy.get_attribute("model").towers()

    assert not {id(p) for p in actor.parameters()} & {id(p) for p in critic.parameters()}
    assert len(list(actor.parameters())) + len(list(critic.parameters())) == len(
        list(policy.get_attribute("model").parameters())
    )


def test_head_sizes_are_of_both_heads():
    model = PG(3, 4, encoder_hidden_size_list=[8], head_hidden_size=5, head_layer_num=2)

    for head, size in ((model.actor_head, 4), (model.critic_head, 1)):
        widths = [layer.out_features for layer in head.modules() if isinstance(layer, torch.nn.Linear)]
        assert widths == [5, 5, size]
