"""Discrete SAC: losses against a slow walk and finite differences, masks, temperature, acting, state."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Categorical

from ding_like.config import deep_merge, to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.errors import ConfigError
from ding_like.model.qac import DiscreteQAC
from ding_like.policy.sac import DiscreteSACPolicy
from tests.policy.continuous import GAMMA, act, double
from tests.policy.differences import assert_finite_differences
from tests.policy.values import make_rows

ACTIONS = 3
MODEL = dict(obs_shape=3, action_shape=ACTIONS, actor_head_hidden_size=8, critic_head_hidden_size=8)


def make_policy(dtype: torch.dtype = torch.float32, **changes) -> DiscreteSACPolicy:
    """Return a small policy whose targets differ from its critics."""
    torch.manual_seed(0)
    cfg = deep_merge(
        to_plain(DiscreteSACPolicy.default_config()),
        dict(discount_factor=GAMMA, model=MODEL, learn=dict(target_theta=0.25)),
    )
    policy = DiscreteSACPolicy(deep_merge(cfg, changes), DiscreteQAC(**MODEL, twin_critic=True).to(dtype))
    target = policy._critic.target_params.data_vector
    target.add_(0.1 * torch.randn_like(target))
    return policy


def make_batch(rows: int = 16, *, seed: int = 0, is_masked: bool = False, **columns) -> TransitionBatch:
    """Return one-step rows; with masks, the taken action is legal."""
    made = make_rows(rows, actions=ACTIONS, seed=seed, **columns).columns
    made = {name: made[name] for name in made if name in columns or name not in ("discount", "weight")}
    rng = np.random.default_rng(seed)
    for prefix in ("obs", "next_obs") if is_masked else ():
        mask = rng.random((rows, ACTIONS)) < 0.5
        mask[np.arange(rows), made["action"]] = True
        made[f"{prefix}/board"], made[f"{prefix}/action_mask"] = made.pop(prefix), mask.astype(np.int8)
    return TransitionBatch(made)


# Variants of rows and settings that every loss must get right: (rows, settings to change).
CASES = {
    "one step": (make_batch(), {}),
    "n steps": (make_batch(discount=np.random.default_rng(1).choice([0.9, 0.81], 16).astype(np.float32)), {}),
    "weights": (make_batch(weight=np.linspace(0.0, 2.0, 16, dtype=np.float32)), {"priority_IS_weight": True}),
    "ignore_done": (make_batch(), {"learn": {"ignore_done": True}}),
    "masks": (make_batch(is_masked=True), {}),
}


def board_and_legal(row, prefix: str) -> tuple[torch.Tensor, list[int]]:
    """Return one row's observation as a float64 batch of one, and the actions that are legal there."""
    if f"{prefix}/board" not in row:
        return torch.tensor(row[prefix], dtype=torch.float64)[None], list(range(ACTIONS))
    return torch.tensor(row[f"{prefix}/board"], dtype=torch.float64)[None], np.flatnonzero(
        row[f"{prefix}/action_mask"]
    ).tolist()


@torch.no_grad()
def slow_losses(policy, batch, *, alpha: float, ignore_done: bool) -> dict[str, float]:
    """Go row by row and action by action, as the paper says."""
    actor, critic, target_critic = (
        double(module)
        for module in (policy.get_attribute("model").actor, policy.get_attribute("model").critic, policy._critic.target)
    )

    def soft_value(critics, obs, legal) -> tuple[float, float]:
        pi, values = Categorical(logits=actor(obs)[0, legal]), critics(obs)[:, 0]
        each = [
            float(p) * (float(values[:, a].min()) - alpha * math.log(float(p)))
            for a, p in zip(legal, pi.probs, strict=True)
        ]
        return sum(each), float(pi.entropy())

    critic_losses, actor_losses, gaps = [], [], []
    for row in batch:
        obs, legal = board_and_legal(row, "obs")
        target = float(row["reward"])
        if ignore_done or not row["terminated"]:
            next_value, _ = soft_value(target_critic, *board_and_legal(row, "next_obs"))
            target += float(row.get("discount", GAMMA)) * next_value
        errors = [float(q) - target for q in critic(obs)[:, 0, row["action"]]]
        critic_losses.append(float(row.get("weight", 1.0)) * sum(0.5 * error**2 for error in errors))
        value, entropy = soft_value(critic, obs, legal)
        actor_losses.append(-value)
        gaps.append(entropy - 0.98 * math.log(len(legal)))
    return {
        "critic_loss": np.mean(critic_losses),
        "actor_loss": np.mean(actor_losses),
        "alpha_loss": math.log(alpha) * np.mean(gaps),
    }


@pytest.mark.parametrize("case", CASES)
def test_losses_equal_a_slow_walk_over_rows_and_actions(case):
    batch, changes = CASES[case]
    policy = make_policy(torch.float64, **changes)

    info, priority = policy.grad(batch)

    # In float64, but for rewards, discounts and alpha itself, which are float32.
    alpha = float(policy._temperature.network.log_alpha.detach().exp())
    for name, value in slow_losses(policy, batch, alpha=alpha, ignore_done=case == "ignore_done").items():
        assert float(info[name]) == pytest.approx(value, rel=1e-6, abs=1e-6), name
    assert priority is None


@pytest.mark.parametrize(
    ("case", "network"), [("weights", "critic"), ("masks", "critic"), ("one step", "actor"), ("masks", "actor")]
)
def test_gradients_equal_finite_differences(case, network):
    batch, changes = CASES[case]
    policy = make_policy(torch.float64, **changes)
    policy.grad(batch)

    loss = lambda: float(policy.grad(batch)[0][f"{network}_loss"])  # noqa: E731
    assert_finite_differences(policy._networks()[network].params, loss)


def test_where_one_action_is_legal_alpha_stays():
    batch = make_batch(is_masked=True)
    mask = np.zeros((16, ACTIONS), np.int8)
    mask[np.arange(16), batch["action"]] = 1
    policy = make_policy()

    info, _ = policy.grad(batch.with_columns(**{"obs/action_mask": mask}))

    # There is nothing to choose: neither the entropy nor its target can be anything but 0.
    assert not info["entropy"].any() and policy._temperature.params.grad_vector.item() == 0.0
    assert not policy._actor.params.grad_vector.any()


@pytest.mark.parametrize("bad", [1e9, math.inf])
def test_targets_and_losses_never_use_a_forbidden_value(bad):
    policy, batch = make_policy(), make_batch(is_masked=True)
    masks = {name: batch[name].copy() for name in ("obs/action_mask", "next_obs/action_mask")}
    for mask in masks.values():
        mask[:, 0], mask[:, 1] = 0, 1
    batch = batch.with_columns(action=np.maximum(batch["action"], 1), **masks)
    wanted = policy.grad(batch)[0]
    gradient = policy._actor.params.grad_vector.clone()

    with torch.no_grad():
        for critic in (policy._critic.network, policy._critic.target):
            critic.q.biases[-1][:, :, 0] += bad
    info = policy.grad(batch)[0]

    for name in ("target_q_value", "q_value", "actor_loss"):
        assert torch.equal(info[name], wanted[name]), name
    assert torch.equal(policy._actor.params.grad_vector, gradient) and gradient.any()
    head = policy.get_attribute("model").actor[-1].main[-1]
    assert head.bias.grad[0] == 0.0 and head.bias.grad[1:].any()


def test_where_nothing_is_allowed_next_nothing_follows():
    policy, batch = make_policy(), make_batch(is_masked=True)
    nothing = np.zeros_like(batch["next_obs/action_mask"])

    info, _ = policy.grad(batch.with_columns(terminated=np.zeros(16, bool), **{"next_obs/action_mask": nothing}))

    assert np.array_equal(info["target_q_value"], batch["reward"])


def test_collecting_draws_from_the_softmax_and_evaluation_does_the_most_likely():
    policy, obs = make_policy(), make_batch()["obs"]
    policy._actor.params.data_vector.mul_(3)
    with torch.no_grad():
        pi = policy.get_attribute("model").actor(torch.from_numpy(obs)).softmax(dim=1).numpy()

    drawn = act(policy.collect_mode.actor, np.tile(obs[:1], (20_000, 1)))
    done = act(policy.eval_mode.actor, obs)

    np.testing.assert_allclose(np.bincount(drawn, minlength=ACTIONS) / 20_000, pi[0], atol=0.015)
    assert np.array_equal(done, pi.argmax(axis=1)) and len(np.unique(done)) > 1


def test_several_actions_at_once_are_refused():
    cfg = to_plain(DiscreteSACPolicy.default_config())

    with pytest.raises(ConfigError, match="flatten the action space"):
        DiscreteSACPolicy(deep_merge(cfg, dict(model=dict(obs_shape=3, action_shape=[2, 3]))))
