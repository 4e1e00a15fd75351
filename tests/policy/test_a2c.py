"""A2C and REINFORCE with a baseline: losses against slow walks, minibatches, whole returns, gradients."""

import numpy as np
import pytest
import torch

from ding_like.config import deep_merge, to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.data.rollout import Rollout
from ding_like.model.vac import PG
from ding_like.policy.a2c import A2CPolicy, PGPolicy
from ding_like.policy.ppo import PPOOffPolicy
from tests.policy.differences import assert_finite_differences
from tests.policy.on_policy import KINDS, act, make_batch, make_policy, play_bandit, slow_loss, train


@pytest.mark.parametrize(
    ("kind", "learn"), [("one", {}), ("clipped", dict(adv_norm=True, entropy_weight=0.1, value_weight=0.25))]
)
def test_loss_equals_a_slow_walk_over_rows(kind, learn):
    policy = make_policy(A2CPolicy, learn=learn, **KINDS[kind])
    batch = make_batch(policy)

    info, priority = policy.grad(batch)

    assert float(info["total_loss"]) == pytest.approx(slow_loss(policy, batch), rel=1e-5, abs=1e-6)
    assert priority is None


@pytest.mark.parametrize("cls", [A2CPolicy, PPOOffPolicy])
def test_all_rows_are_one_minibatch(cls):
    policy = make_policy(cls)
    batch = make_batch(policy)

    assert [part is batch for part in policy.minibatches(batch, np.random.default_rng(0))] == [True]


def test_learning_rate_follows_the_rows_trained_on():
    policy = make_policy(A2CPolicy, learn=dict(learning_rate=1e-3, schedule=dict(env_steps=48, lr_end=1e-4)))

    rates = [train(policy, make_batch(policy))[0]["cur_lr"] for _ in range(4)]

    assert rates == pytest.approx([1e-3, 5.5e-4, 1e-4, 1e-4])


def test_it_learns_a_bandit():
    rewards = play_bandit(make_policy(A2CPolicy, learn=dict(learning_rate=0.02, adv_norm=True, entropy_weight=0.0)), 60)

    assert rewards[-1] > 0.6 * rewards[0]


# ---- REINFORCE

GAMMA = 0.9


def make_pg(dtype: torch.dtype = torch.float32, **changes) -> PGPolicy:
    torch.manual_seed(0)
    cfg = to_plain(PGPolicy.default_config())
    cfg["model"] = dict(obs_shape=3, action_shape=3, encoder_hidden_size_list=[8, 8], activation="tanh")
    cfg = deep_merge(deep_merge(cfg, dict(discount_factor=GAMMA)), changes)
    space = cfg["action_space"] or "discrete"
    return PGPolicy(cfg, PG(**cfg["model"], action_space=space).to(dtype))


def play(policy, steps: int = 12, lanes: int = 3, *, seed: int = 0) -> Rollout:
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
    policy = make_pg()
    batch, keep = policy.segment(play(policy))

    expected = slow_returns(policy, list(batch))

    assert {(bool(row["terminated"]), bool(row["truncated"])) for row in batch} == {(0, 0), (1, 0), (0, 1)}
    np.testing.assert_allclose(batch["return_"], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(batch["advantage"], expected - batch["value"], rtol=1e-5, atol=1e-5)
    assert not keep.any()


def in_float64(batch: TransitionBatch) -> TransitionBatch:
    """Return rows whose advantage is exactly return less value."""
    exact = {name: batch[name].astype(np.float64) for name in ("return_", "value")}
    return batch.with_columns(**exact, advantage=exact["return_"] - exact["value"])


@pytest.mark.parametrize(("kind", "learn"), [("one", {}), ("clipped", dict(entropy_weight=0.1, value_weight=0.25))])
def test_the_loss_of_pg_equals_a_slow_walk_over_rows(kind, learn):
    policy = make_pg(torch.float64, learn=learn, **KINDS[kind])
    batch = in_float64(policy.segment(play(make_pg(**KINDS[kind])))[0])

    info, priority = policy.grad(batch)

    assert float(info["total_loss"]) == pytest.approx(slow_loss(policy, batch), rel=1e-6, abs=1e-6)
    assert priority is None


@pytest.mark.parametrize("kind", ["one", "clipped"])
def test_the_gradient_of_pg_equals_finite_differences(kind):
    policy = make_pg(torch.float64, learn=dict(entropy_weight=0.1), **KINDS[kind])
    batch = in_float64(policy.segment(play(make_pg(**KINDS[kind])))[0])
    policy.grad(batch)

    assert_finite_differences(policy._params, lambda: float(policy.grad(batch)[0]["total_loss"]))


def test_policy_and_baseline_share_no_layer():
    policy = make_pg()
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
