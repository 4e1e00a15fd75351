import copy

import numpy as np
import pytest
import torch

from ding_like.config import to_plain
from ding_like.policy.td3 import TD3Policy
from tests.config.faults import faults
from tests.policy.continuous import (
    CASES,
    double,
    flat_state,
    make_batch,
    make_policy,
    peek_noise,
    push_the_right_way,
    td_target,
    tensors,
    train,
)

# Every update is one of the actor's, and a narrow range cuts much of the noise.
EVERY = dict(actor_update_freq=1, noise_range=dict(min=-0.2, max=0.3))


@torch.no_grad()
def slow_losses(policy, batch, noise, *, ignore_done=False) -> dict[str, float]:
    """Go row by row, as the paper says (Fujimoto et al. 2018, algorithm 1)."""
    actor, critic = double(policy._model.actor), double(policy._model.critic)
    target_actor, target_critic = double(policy._actor.target), double(policy._critic.target)
    critic_losses, values = [], []
    for row, epsilon in zip(batch, noise, strict=True):
        x = tensors(row)
        smoothed = target_actor(x.next_obs) + (0.2 * epsilon).clamp(-0.2, 0.3)
        next_q = target_critic(x.next_obs, smoothed.clamp(-1, 1))
        target = td_target(row, min(next_q[0].item(), next_q[1].item()), ignore_done=ignore_done)
        q = critic(x.obs, x.action)
        loss = (q[0].item() - target) ** 2 + (q[1].item() - target) ** 2
        critic_losses.append(float(row.get("weight", 1.0)) * loss)
        values.append(critic(x.obs, actor(x.obs))[0].item())
    return {"critic_loss": np.mean(critic_losses), "actor_loss": -np.mean(values)}


@pytest.mark.parametrize("case", CASES)
def test_losses_equal_a_slow_walk_over_rows(case):
    columns, changes = CASES[case]
    policy = make_policy("td3", **{**changes, "learn": {**EVERY, **changes.get("learn", {})}})
    batch, noise = make_batch(**columns), peek_noise(policy, 16, 2)

    info, priority = policy.grad(batch)

    for name, value in slow_losses(policy, batch, noise, ignore_done=case == "ignore_done").items():
        assert float(info[name]) == pytest.approx(value, rel=1e-6, abs=1e-6)
    assert priority is None


def test_without_noise_the_target_is_that_of_the_target_actor():
    policy = make_policy("td3", learn={**EVERY, "noise": False})
    batch = make_batch()

    info, _ = policy.grad(batch)

    expected = slow_losses(policy, batch, torch.zeros(16, 2))
    assert float(info["critic_loss"]) == pytest.approx(expected["critic_loss"], rel=1e-6)


def test_gradients_equal_plain_autograd():
    policy, batch = make_policy("td3", learn={**EVERY, "noise": False}), make_batch()
    actor, critic = copy.deepcopy(policy._model.actor), copy.deepcopy(policy._model.critic)

    policy.grad(batch)

    rows = policy._rows(batch)
    with torch.no_grad():
        next_q = policy._critic.target(rows.next_obs, policy._actor.target(rows.next_obs))
        target = rows.reward + 0.9 * torch.minimum(next_q[0], next_q[1]) * ~rows.terminated
    q = critic(rows.obs, rows.action)
    critic_loss = torch.nn.functional.mse_loss(q[0], target) + torch.nn.functional.mse_loss(q[1], target)
    actor_loss = -critic(rows.obs, actor(rows.obs))[0].mean()
    for network, loss, module in ((policy._critic, critic_loss, critic), (policy._actor, actor_loss, actor)):
        grads = torch.autograd.grad(loss, list(module.parameters()), retain_graph=True)
        torch.testing.assert_close(network.params.grad_vector, torch.cat([grad.flatten() for grad in grads]))


def test_actor_and_targets_move_with_every_second_update_of_the_critics():
    policy = make_policy("td3")
    moved = []
    for seed in range(4):
        before = [
            policy._critic.params,
            policy._actor.params,
            policy._critic.target_params,
            policy._actor.target_params,
        ]
        copies = [params.data_vector.clone() for params in before]
        train(policy, [make_batch(seed=seed)])
        moved.append(
            [not torch.equal(params.data_vector, was) for params, was in zip(before, copies, strict=True)],
        )

    waits, acts = [True, False, False, False], [True, True, True, True]
    assert moved == [waits, acts, waits, acts]


def test_targets_may_move_in_every_update_of_the_critics():
    policy = make_policy("td3", learn={"target_update_freq": 1})
    moved = []
    for seed in range(4):
        parts = [policy._actor.params, policy._critic.target_params, policy._actor.target_params]
        before = [params.data_vector.clone() for params in parts]
        train(policy, [make_batch(seed=seed)])
        moved.append([not torch.equal(now.data_vector, was) for now, was in zip(parts, before, strict=True)])

    assert moved == [[False, True, True], [True, True, True]] * 2


def test_ddpg_with_what_td3_adds_is_td3():
    learn = {"actor_update_freq": 2, "noise": True}
    ddpg, td3 = make_policy("ddpg", model={"twin_critic": True}, learn=learn), make_policy("td3")
    td3._model.load_state_dict(ddpg._model.state_dict())
    td3.learn_mode.load_state_dict(copy.deepcopy(ddpg.learn_mode.state_dict()))

    for policy in (ddpg, td3):
        train(policy, [make_batch(seed=seed) for seed in range(3)])

    for name, value in td3._model.state_dict().items():
        assert torch.equal(value, ddpg._model.state_dict()[name]), name


def test_targets_follow_the_stepped_networks_by_momentum():
    policy = make_policy("td3", learn=EVERY)
    before = policy._critic.target_params.data_vector.clone()

    train(policy, [make_batch()])

    expected = before.lerp(policy._critic.params.data_vector, 0.25)
    torch.testing.assert_close(policy._critic.target_params.data_vector, expected)


def test_priorities_are_mean_absolute_td_errors_of_the_two_critics():
    policy = make_policy("td3", priority=True, learn={**EVERY, "noise": False})

    info, priority = policy.grad(make_batch())

    expected = (info["q_value"] - info["target_q_value"]).abs().mean(dim=0)
    np.testing.assert_allclose(priority, expected.numpy(), rtol=1e-6)


def test_state_round_trip_in_the_middle_of_a_turn_continues_bit_equal():
    first = make_policy("td3")
    # 3 updates: the next one is the actor's. The noise goes on from where it was as well.
    train(first, [make_batch(seed=seed) for seed in range(3)])
    second = make_policy("td3")
    second.learn_mode.load_state_dict(copy.deepcopy(first.learn_mode.state_dict()))

    for policy in (first, second):
        train(policy, [make_batch(seed=seed) for seed in range(3, 8)])

    assert all(torch.equal(mine, theirs) for mine, theirs in zip(flat_state(first), flat_state(second), strict=True))


def test_training_leaves_torchs_global_generator_alone():
    policy = make_policy("td3")
    before = torch.get_rng_state()

    train(policy, [make_batch()])

    assert torch.equal(torch.get_rng_state(), before)


def test_learning_finds_which_way_to_push():
    assert push_the_right_way("td3", learning_rate=1e-2, actor_update_freq=1) > 0.8


@pytest.mark.parametrize(
    ("key", "value", "path"),
    [
        ("actor_update_freq", 0, "learn.actor_update_freq"),
        ("noise_range", dict(min=0.5, max=-0.5), "learn.noise_range"),
    ],
)
def test_settings_that_make_no_sense_are_contradictions(key, value, path):
    cfg = to_plain(TD3Policy.default_config())
    cfg["learn"][key] = value

    assert [path for path, _ in faults(TD3Policy, cfg)] == [path]
