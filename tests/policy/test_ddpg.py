import copy

import numpy as np
import pytest
import torch

from ding_like.config import to_plain
from ding_like.errors import CheckpointError, ConfigError
from ding_like.policy.ddpg import DDPGPolicy
from tests.config.faults import faults
from tests.policy.continuous import (
    CASES,
    HALF,
    HIGH,
    LOW,
    act,
    double,
    flat_state,
    make_batch,
    make_policy,
    push_the_right_way,
    td_target,
    tensors,
    train,
)

OBS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


@torch.no_grad()
def slow_losses(policy, batch, *, ignore_done=False) -> dict[str, float]:
    """Go row by row, as the paper says (Lillicrap et al. 2016, algorithm 1)."""
    actor, critic = double(policy._model.actor), double(policy._model.critic)
    target_actor, target_critic = double(policy._actor.target), double(policy._critic.target)
    critic_losses, values = [], []
    for row in batch:
        x = tensors(row)
        next_value = target_critic(x.next_obs, target_actor(x.next_obs)).item()
        error = critic(x.obs, x.action).item() - td_target(row, next_value, ignore_done=ignore_done)
        critic_losses.append(float(row.get("weight", 1.0)) * error**2)
        values.append(critic(x.obs, actor(x.obs)).item())
    return {"critic_loss": np.mean(critic_losses), "actor_loss": -np.mean(values)}


@pytest.mark.parametrize("case", CASES)
def test_losses_equal_a_slow_walk_over_rows(case):
    columns, changes = CASES[case]
    policy, batch = make_policy("ddpg", **changes), make_batch(**columns)

    info, priority = policy.grad(batch)

    for name, value in slow_losses(policy, batch, ignore_done=case == "ignore_done").items():
        assert float(info[name]) == pytest.approx(value, rel=1e-6, abs=1e-6)
    assert priority is None


def test_each_gradient_is_that_of_its_own_loss_at_the_old_parameters():
    policy, batch = make_policy("ddpg"), make_batch()
    actor, critic = copy.deepcopy(policy._model.actor), copy.deepcopy(policy._model.critic)

    policy.grad(batch)

    rows = policy._rows(batch)
    with torch.no_grad():
        value = policy._critic.target(rows.next_obs, policy._actor.target(rows.next_obs))[0]
        target = rows.reward + 0.9 * value * ~rows.terminated
    critic_loss = (critic(rows.obs, rows.action)[0] - target).square().mean()
    actor_loss = -critic(rows.obs, actor(rows.obs)).mean()
    expected = [
        torch.autograd.grad(loss, list(module.parameters()), retain_graph=True)
        for loss, module in ((critic_loss, critic), (actor_loss, actor))
    ]
    for network, grads in zip((policy._critic, policy._actor), expected, strict=True):
        torch.testing.assert_close(network.params.grad_vector, torch.cat([grad.flatten() for grad in grads]))


def test_targets_follow_by_momentum():
    policy = make_policy("ddpg")
    before = {name: network.target_params.data_vector.clone() for name, network in policy._networks().items()}

    train(policy, [make_batch()])

    for name, network in policy._networks().items():
        expected = before[name].lerp(network.params.data_vector, 0.25)
        torch.testing.assert_close(network.target_params.data_vector, expected)


def test_learning_finds_which_way_to_push():
    assert push_the_right_way("ddpg", learning_rate=1e-2) > 0.8


def test_priorities_are_absolute_td_errors():
    info, priority = make_policy("ddpg", priority=True).grad(make_batch())

    assert float((priority**2).mean()) == pytest.approx(float(info["critic_loss"]), rel=1e-5)


def test_evaluation_acts_without_noise_and_sees_each_update():
    policy = make_policy("ddpg", learn=dict(learning_rate=0.1))
    train(policy, [make_batch(seed=seed) for seed in range(3)])

    with torch.no_grad():
        action = policy._model.actor(torch.from_numpy(OBS)).numpy()

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


def test_state_round_trip_continues_bit_equal():
    first = make_policy("ddpg")
    train(first, [make_batch(seed=seed) for seed in range(3)])
    second = make_policy("ddpg")
    second.learn_mode.load_state_dict(copy.deepcopy(first.learn_mode.state_dict()))

    for policy in (first, second):
        train(policy, [make_batch(seed=seed) for seed in range(3, 6)])

    assert all(torch.equal(mine, theirs) for mine, theirs in zip(flat_state(first), flat_state(second), strict=True))
    assert all(network.params.is_intact() for network in second._networks().values())


def test_a_checkpoint_of_weights_alone_starts_with_equal_targets():
    first, second = make_policy("ddpg"), make_policy("ddpg")
    train(first, [make_batch()])

    second.learn_mode.load_state_dict({"model": copy.deepcopy(first._model.state_dict())})

    for name, network in second._networks().items():
        assert torch.equal(network.params.data_vector, first._networks()[name].params.data_vector)
        assert torch.equal(network.target_params.data_vector, network.params.data_vector)


def test_a_checkpoint_of_another_shape_is_refused():
    policy = make_policy("ddpg")
    state = {"model": {name: value[:1] for name, value in policy._model.state_dict().items()}}

    with pytest.raises(CheckpointError, match=r"shape|size"):
        policy.learn_mode.load_state_dict(state)


def test_one_learning_rate_stands_for_all():
    policy = make_policy("ddpg", learn=dict(learning_rate=0.5))

    assert [network.optimizer.learning_rate for network in policy._networks().values()] == [0.5, 0.5]


def test_unbounded_actions_are_refused_with_what_to_set():
    with pytest.raises(ConfigError, match=r"policy.action_low"):
        make_policy("ddpg", action_high=[2.0, float("inf")])


def test_a_share_above_one_is_a_contradiction():
    cfg = to_plain(DDPGPolicy.default_config())
    cfg["learn"]["target_theta"] = 1.5

    assert [path for path, _ in faults(DDPGPolicy, cfg)] == ["learn.target_theta"]


def test_a_loss_that_is_not_finite_changes_no_weights():
    policy = make_policy("ddpg")
    before = [network.params.data_vector.clone() for network in policy._networks().values()]

    train(policy, [make_batch(reward=np.full(16, np.nan, np.float32))])

    critic, actor = policy._networks()["critic"], policy._networks()["actor"]
    assert torch.equal(critic.params.data_vector, before[1])
    assert not torch.equal(actor.params.data_vector, before[0])
    assert policy.get_attribute("nonfinite_steps") == 1


def test_seed_row_functions_are_derived():
    policy = make_policy("ddpg", nstep=2)
    mode = policy.collect_mode
    output = mode.forward({3: OBS[0], 7: OBS[1]})
    assert set(output) == {3, 7} and output[7]["action"].shape == (2,)

    class Step:
        obs, reward, done, info = OBS[1], np.array([2.0], np.float32), False, {}

    rows = [mode.process_transition(OBS[0], output[3], Step) for _ in range(3)]
    samples = mode.get_train_sample(rows)

    assert [sample["reward"] for sample in samples] == pytest.approx([3.8, 3.8])
    assert np.isfinite(policy.learn_mode.forward(samples)["critic_loss"])
