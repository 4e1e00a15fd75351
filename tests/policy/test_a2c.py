"""A2C: the loss, its one minibatch, state. Rows and acting are PPO's, see test_ppo."""

import copy

import numpy as np
import pytest
import torch

from ding_like.config import deep_merge, to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.data.rollout import Rollout
from ding_like.policy.a2c import A2CPolicy

SMALL = dict(encoder_hidden_size_list=[8, 8], activation="tanh", actor_head_layer_num=0, critic_head_layer_num=0)
KINDS = {
    "discrete": dict(action_space="discrete", model=dict(action_shape=3)),
    "continuous": dict(action_space="continuous", model=dict(action_shape=2)),
}


def make_policy(**changes) -> A2CPolicy:
    torch.manual_seed(0)
    cfg = to_plain(A2CPolicy.default_config())
    cfg["model"] = dict(obs_shape=3, action_shape=3, **SMALL)
    return A2CPolicy(deep_merge(cfg, changes))


def act(policy, obs, *, seed: int = 0):
    rows = len(obs)
    return policy.collect_mode.actor.act(
        obs, lanes=np.arange(rows), is_first=np.zeros(rows, bool), rng=np.random.default_rng(seed)
    )


def make_batch(policy, rows: int = 24, *, seed: int = 0) -> TransitionBatch:
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(rows, 3)).astype(np.float32)
    made_up = {name: rng.normal(size=rows).astype(np.float32) for name in ("advantage", "return_", "value")}
    return TransitionBatch({"obs": obs, **act(policy, obs, seed=seed), **made_up})


def train(policy, batch):
    infos = []
    for minibatch in policy.minibatches(batch, np.random.default_rng(0)):
        info, _ = policy.grad(minibatch)
        policy.apply()
        infos.append({name: float(value) for name, value in info.items()})
    return infos


@torch.no_grad()
def slow_loss(policy, batch):
    """Go row by row, as the paper says."""
    learn, advantage = policy._cfg.learn, batch["advantage"].astype(float)
    if learn.adv_norm:
        advantage = (advantage - advantage.mean()) / advantage.std()
    terms = []
    for i, row in enumerate(batch):
        output, value = policy._model.actor_critic(torch.tensor(row["obs"][None]))
        action = torch.tensor(row[policy._family.column])[None]
        log_prob, entropy = (float(x) for x in policy._family.log_prob_and_entropy(output, action))
        error = (float(value) - float(row["return_"])) ** 2
        terms.append(-log_prob * advantage[i] + learn.value_weight * error - learn.entropy_weight * entropy)
    return np.mean(terms)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("learn", [dict(), dict(adv_norm=True, entropy_weight=0.1, value_weight=0.25)])
def test_loss_equals_a_slow_walk_over_rows(kind, learn):
    policy = make_policy(learn=learn, **KINDS[kind])
    batch = make_batch(policy)

    info, priority = policy.grad(batch)

    assert float(info["total_loss"]) == pytest.approx(slow_loss(policy, batch), rel=1e-5, abs=1e-6)
    assert priority is None


def test_all_rows_are_one_minibatch():
    policy = make_policy()
    batch = make_batch(policy)

    assert [part is batch for part in policy.minibatches(batch, np.random.default_rng(0))] == [True]


def test_minibatches_have_every_row_once_if_a_size_is_given():
    policy = make_policy(learn=dict(batch_size=8))
    batch = make_batch(policy)

    parts = list(policy.minibatches(batch, np.random.default_rng(0)))

    assert [len(part) for part in parts] == [8, 8, 8]
    seen = np.concatenate([np.asarray(part["obs"]) for part in parts])
    assert sorted(seen.tolist()) == sorted(batch["obs"].tolist())


def test_learning_rate_follows_the_rows_trained_on():
    policy = make_policy(learn=dict(learning_rate=1e-3, schedule=dict(env_steps=48, lr_end=1e-4)))

    rates = [train(policy, make_batch(policy))[0]["cur_lr"] for _ in range(4)]

    assert rates == pytest.approx([1e-3, 5.5e-4, 1e-4, 1e-4])


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_a_bandit(kind):
    # The best action is the first one, or a raw 0.5 in each dimension.
    policy = make_policy(learn=dict(learning_rate=0.02, adv_norm=True, entropy_weight=0.0), **KINDS[kind])
    rng = np.random.default_rng(0)
    rewards = []
    for turn in range(60):
        obs = rng.normal(size=(128, 3)).astype(np.float32)
        columns = act(policy, obs, seed=turn)
        chosen = columns[policy._family.column].reshape(128, -1)
        reward = -np.abs(chosen - (0.5 if chosen.dtype.kind == "f" else 0)).sum(axis=1).astype(np.float32)
        flags = {"terminated": np.ones(128, bool), "truncated": np.zeros(128, bool), "lane": np.arange(128)}
        rollout = Rollout(128)
        rollout.append({"obs": obs, "next_obs": obs, **columns, "reward": reward, **flags})
        train(policy, policy.segment(rollout)[0])
        rewards.append(reward.mean())

    assert rewards[-1] > 0.6 * rewards[0]


def test_state_round_trip_continues_bit_equal():
    schedule = dict(env_steps=100, lr_end=0.0)
    first, second = make_policy(learn=dict(schedule=schedule)), make_policy(learn=dict(schedule=schedule))
    train(first, make_batch(first))
    second.learn_mode.load_state_dict(copy.deepcopy(first.learn_mode.state_dict()))

    batch = make_batch(first, seed=1)
    infos = [train(policy, batch) for policy in (first, second)]

    assert infos[0] == infos[1]
    assert torch.equal(first._params.data_vector, second._params.data_vector)
