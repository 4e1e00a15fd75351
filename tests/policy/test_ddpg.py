"""DDPG and TD3: acting, checkpoints, and whose turn an update is."""

import copy

import numpy as np
import pytest
import torch

from ding_like.errors import ConfigError
from tests.policy.continuous import (
    HALF,
    HIGH,
    LOW,
    act,
    make_batch,
    make_policy,
    train,
)

OBS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


def test_evaluation_acts_without_noise_and_sees_each_update():
    policy = make_policy("ddpg", learn=dict(learning_rate=0.1))
    train(policy, [make_batch(seed=seed) for seed in range(3)])

    with torch.no_grad():
        action = policy.get_attribute("model").actor(torch.from_numpy(OBS)).numpy()

    np.testing.assert_allclose(act(policy.eval_mode.actor, OBS), (LOW + HIGH) / 2 + HALF * action, rtol=1e-5)


def test_exploration_noise_is_drawn_per_lane_in_units_of_the_range():
    policy = make_policy("ddpg", collect=dict(noise_sigma=0.1))
    obs = np.tile(OBS[:1], (20_000, 1))

    noise = act(policy.collect_mode.actor, obs) - act(policy.eval_mode.actor, obs)

    np.testing.assert_allclose(noise.std(axis=0), 0.1 * HALF, rtol=0.02)
    np.testing.assert_allclose(noise.mean(axis=0), 0.0, atol=0.01)
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.03


def test_an_array_of_sigmas_gives_each_lane_its_own():
    policy = make_policy("ddpg")
    obs = np.tile(OBS[:1], (2000, 1))

    noisy = act(policy.collect_mode.actor, obs, noise_sigma=np.repeat([0.0, 0.2], 1000))

    noise = noisy - act(policy.eval_mode.actor, obs)
    assert (noise[:1000] == 0).all()
    np.testing.assert_allclose(noise[1000:].std(axis=0), 0.2 * HALF, rtol=0.1)


def test_noisy_actions_stay_within_the_bounds():
    action = act(make_policy("ddpg").collect_mode.actor, np.tile(OBS, (100, 1)), noise_sigma=5.0)

    assert (action.min(axis=0) == LOW).all() and (action.max(axis=0) == HIGH).all()


def test_images_go_through_convolutions():
    policy = make_policy("ddpg", model=dict(obs_shape=[3, 36, 36]))
    pixels = np.random.default_rng(0).integers(0, 256, (4, 3, 36, 36), np.uint8)

    info, _ = policy.grad(make_batch(4, obs=pixels, next_obs=pixels))
    policy.apply()

    assert np.isfinite(float(info["total_loss"]))
    assert act(policy.collect_mode.actor, pixels).shape == (4, 2)


def test_a_checkpoint_of_weights_alone_starts_with_equal_targets():
    first, second = make_policy("ddpg"), make_policy("ddpg")
    train(first, [make_batch()])

    second.learn_mode.load_state_dict({"model": copy.deepcopy(first.get_attribute("model").state_dict())})

    for name, network in second._networks().items():
        assert torch.equal(network.params.data_vector, first._networks()[name].params.data_vector)
        assert torch.equal(network.target_params.data_vector, network.params.data_vector)


def test_one_learning_rate_stands_for_all():
    policy = make_policy("ddpg", learn=dict(learning_rate=0.5))

    assert [network.optimizer.learning_rate for network in policy._networks().values()] == [0.5, 0.5]


def test_unbounded_actions_are_refused_with_what_to_set():
    with pytest.raises(ConfigError, match=r"policy.action_low"):
        make_policy("ddpg", action_high=[2.0, float("inf")])


# Every update is one of the actor's, and a narrow range cuts much of the noise.


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
    td3.get_attribute("model").load_state_dict(ddpg.get_attribute("model").state_dict())
    td3.learn_mode.load_state_dict(copy.deepcopy(ddpg.learn_mode.state_dict()))

    for policy in (ddpg, td3):
        train(policy, [make_batch(seed=seed) for seed in range(3)])

    for name, value in td3.get_attribute("model").state_dict().items():
        assert torch.equal(value, ddpg.get_attribute("model").state_dict()[name]), name
