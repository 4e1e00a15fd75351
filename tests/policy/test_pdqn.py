"""PDQN and MP-DQN: losses, turns, exploration, and the toy env beside its optimum."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.config import deep_merge, to_plain
from ding_like.entry import serial_pipeline
from ding_like.errors import ConfigError
from ding_like.policy.pdqn import PDQNPolicy
from tests.policy.continuous import CASES, act, double
from tests.policy.hybrid import GAMMA, HIGH, LOW, MASK, best_actions, make_batch, register_aim

OBS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
CENTRE, HALF = (LOW + HIGH) / 2, (HIGH - LOW) / 2
PASSES = pytest.mark.parametrize("multi_pass", [False, True], ids=["one pass", "multi pass"])


def make_policy(**changes: Any) -> PDQNPolicy:
    """Return a small policy whose targets differ from its networks."""
    torch.manual_seed(0)
    own = dict(
        discount_factor=GAMMA,
        action_space="hybrid",
        action_low=LOW.tolist(),
        action_high=HIGH.tolist(),
        model=dict(
            obs_shape=3,
            action_shape=dict(action_type_shape=3, action_args_shape=2),
            action_mask=MASK,
            encoder_hidden_size_list=[8],
            head_layer_num=0,
        ),
        learn=dict(target_theta=0.25),
    )
    policy = PDQNPolicy(deep_merge(deep_merge(to_plain(PDQNPolicy.default_config()), own), changes))
    for network in policy._networks().values():
        assert network.target_params is not None
        network.target_params.data_vector.add_(0.1 * torch.randn_like(network.target_params.data_vector))
    return policy


def values_one_by_one(critic: Any, obs: torch.Tensor, parameters: torch.Tensor, *, multi_pass: bool) -> torch.Tensor:
    """Return the values [K] of one observation [O] as the papers say, a pass at a time."""
    if not multi_pass:
        return critic.q(torch.cat([obs, parameters])[None])[0]
    own = [parameters * torch.tensor(MASK[k], dtype=parameters.dtype) for k in range(3)]
    return torch.stack([critic.q(torch.cat([obs, own[k]])[None])[0, k] for k in range(3)])


@torch.no_grad()
def slow_losses(policy: PDQNPolicy, batch: Any, *, multi_pass: bool, ignore_done: bool = False) -> dict[str, float]:
    """Go row by row (Xiong et al. 2018, eqs. 5 and 6; Bester et al. 2019, section 3)."""
    networks = policy._networks()
    actor, critic = double(policy.get_attribute("model").actor), double(policy.get_attribute("model").critic)
    target_actor, target_critic = double(networks["actor"].target), double(networks["critic"].target)
    critic_losses, sums = [], []
    for row in batch:
        obs, next_obs = (torch.tensor(row[name], dtype=torch.float64) for name in ("obs", "next_obs"))
        target = float(row["reward"])
        if ignore_done or not row["terminated"]:
            following = values_one_by_one(
                target_critic, next_obs, target_actor(next_obs[None])[0], multi_pass=multi_pass
            )
            target += float(row.get("discount", GAMMA)) * following.max().item()
        parameters = torch.tensor((row["action"][1:].astype(np.float64) - CENTRE) / HALF)
        value = values_one_by_one(critic, obs, parameters, multi_pass=multi_pass)[int(row["action"][0])].item()
        critic_losses.append(float(row.get("weight", 1.0)) * (value - target) ** 2)
        sums.append(values_one_by_one(critic, obs, actor(obs[None])[0], multi_pass=multi_pass).sum().item())
    return {"critic_loss": float(np.mean(critic_losses)), "actor_loss": -float(np.mean(sums))}


@pytest.mark.parametrize(
    ("variant", "multi_pass"), [*((variant, False) for variant in CASES), ("one step", True), ("weights", True)]
)
def test_losses_equal_a_slow_walk_over_rows(variant: str, multi_pass: bool) -> None:
    columns, changes = CASES[variant]
    policy = make_policy(**deep_merge(changes, dict(model=dict(multi_pass=multi_pass))))
    batch = make_batch(**columns)

    info, priority = policy.grad(batch)

    slow = slow_losses(policy, batch, multi_pass=multi_pass, ignore_done=variant == "ignore_done")
    for name, value in slow.items():
        assert float(info[name]) == pytest.approx(value, rel=1e-5, abs=1e-6), name
    assert priority is None


@PASSES
def test_each_gradient_is_that_of_its_own_loss_at_the_old_parameters(multi_pass: bool) -> None:
    policy, batch = make_policy(model=dict(multi_pass=multi_pass)), make_batch()
    actor, critic = (
        copy.deepcopy(policy.get_attribute("model").actor),
        copy.deepcopy(policy.get_attribute("model").critic),
    )

    info, _ = policy.grad(batch)

    rows = policy._rows(batch)
    q = critic(rows.obs, rows.action[:, 1:])[torch.arange(16), rows.action[:, 0].long()]
    losses = (q - info["target_q_value"]).square().mean(), -critic(rows.obs, actor(rows.obs)).sum(dim=1).mean()
    for name, loss, module in zip(("critic", "actor"), losses, (critic, actor), strict=True):
        grads = torch.autograd.grad(loss, list(module.parameters()), retain_graph=True)
        policy.grad(batch)
        found = policy._networks()[name].params.grad_vector
        torch.testing.assert_close(found, torch.cat([grad.flatten() for grad in grads]))


def test_in_several_passes_a_choice_knows_nothing_of_the_parameters_of_others() -> None:
    obs, parameters = torch.from_numpy(OBS), torch.zeros(5, 2, requires_grad=True)
    reach = {}
    for multi_pass in (False, True):
        critic = make_policy(model=dict(multi_pass=multi_pass)).get_attribute("model").critic
        values = critic(obs, parameters)
        reach[multi_pass] = [
            torch.autograd.grad(values[:, k].sum(), parameters, retain_graph=True)[0] for k in range(3)
        ]

    assert all((grad != 0).any(dim=0).all() for grad in reach[False])
    for own, grad in zip(MASK, reach[True], strict=True):
        assert ((grad != 0).any(dim=0) == torch.tensor(own).bool()).all()


def test_the_networks_take_turns_in_a_cycle() -> None:
    policy, batch = make_policy(learn=dict(update_circle=4)), make_batch()
    moved = []
    for _ in range(8):
        before = {name: each.params.data_vector.clone() for name, each in policy._networks().items()}
        info, _ = policy.grad(batch)
        policy.apply()
        changed = {n for n, each in policy._networks().items() if not torch.equal(before[n], each.params.data_vector)}
        assert ("actor_loss" in info) == ("actor" in changed)
        moved.append(changed)

    assert moved == [{"critic"}, {"critic"}, {"actor"}, {"actor"}] * 2


def test_priorities_are_absolute_td_errors() -> None:
    info, priority = make_policy(priority=True).grad(make_batch())

    assert priority is not None and priority.shape == (16,)
    assert float((priority**2).mean()) == pytest.approx(float(info["critic_loss"]), rel=1e-5)


@PASSES
def test_evaluation_does_the_best_choice_with_its_parameters(multi_pass: bool) -> None:
    policy = make_policy(model=dict(multi_pass=multi_pass, dueling=multi_pass))
    with torch.no_grad():
        parameters = policy.get_attribute("model").actor(torch.from_numpy(OBS))
        choice = policy.get_attribute("model").critic(torch.from_numpy(OBS), parameters).argmax(dim=1)

    action = act(policy.eval_mode.actor, OBS)

    np.testing.assert_array_equal(action[:, 0], choice.numpy())
    np.testing.assert_allclose(action[:, 1:], CENTRE + HALF * parameters.numpy(), rtol=1e-5)


def test_random_actions_are_uniform_in_choice_and_parameters_and_drawn_per_row() -> None:
    policy = make_policy()
    obs = np.tile(OBS[:1], (30_000, 1))

    action = act(policy.collect_mode.actor, obs, eps=1.0)

    np.testing.assert_allclose(np.bincount(action[:, 0].astype(int)) / 30_000, 1 / 3, atol=0.01)
    np.testing.assert_allclose(action[:, 1:].mean(axis=0), CENTRE, atol=0.03)
    np.testing.assert_allclose(action[:, 1:].std(axis=0), HALF / np.sqrt(3), rtol=0.02)
    assert abs(np.corrcoef(action.T)[np.triu_indices(3, 1)]).max() < 0.03


def test_greedy_rows_have_noise_on_their_parameters_and_random_ones_are_as_many_as_eps_says() -> None:
    policy = make_policy(collect=dict(noise_sigma=0.05))
    obs = np.tile(OBS[:1], (30_000, 1))
    greedy = act(policy.eval_mode.actor, obs)  # of as many rows: a row alone may differ in its last bit

    noise = act(policy.collect_mode.actor, obs, eps=0.0)[:, 1:] - greedy[:, 1:]
    by_lane = act(policy.collect_mode.actor, obs, eps=np.repeat([0.0, 0.6], 15_000), noise_sigma=0.0)

    np.testing.assert_allclose(noise.std(axis=0), 0.05 * HALF, rtol=0.03)
    is_other = (by_lane != greedy).any(axis=1)
    assert not is_other[:15_000].any()
    assert is_other[15_000:].mean() == pytest.approx(0.6, abs=0.02)
    far = act(policy.collect_mode.actor, np.tile(OBS, (100, 1)), noise_sigma=5.0)
    assert (far[:, 1:].min(axis=0) == LOW).all() and (far[:, 1:].max(axis=0) == HIGH).all()


def test_images_and_dicts_are_encoded_first() -> None:
    shape = {"picture": [3, 36, 36], "speed": 2}
    policy = make_policy(model=dict(obs_shape=shape, multi_pass=True))
    rng = np.random.default_rng(0)
    parts = {"picture": rng.integers(0, 256, (4, 3, 36, 36), np.uint8), "speed": rng.random((4, 2), np.float32)}
    batch = make_batch(4)
    columns = {name: batch[name] for name in ("action", "reward", "terminated", "truncated")}
    flat = {f"{prefix}/{key}": value for prefix in ("obs", "next_obs") for key, value in parts.items()}

    info, _ = policy.grad(type(batch)({**columns, **flat}))
    policy.apply()

    assert np.isfinite(float(info["critic_loss"])) and np.isfinite(float(info["actor_loss"]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(action_high=[2.0, float("inf")]), "policy.action_low"),
        (dict(model=dict(action_shape=3)), "action_type_shape=number of choices"),
        (dict(model=dict(action_mask=[[1, 0], [0, 1]])), "action_mask.*expected 3 rows of 2"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_policy(**changes)


@pytest.mark.slow
@pytest.mark.usefixtures("in_tmp", "no_pictures")
@PASSES
def test_the_toy_env_is_solved_near_its_optimum(multi_pass: bool) -> None:
    main = dict(
        exp_name="aim",
        env=dict(collector_env_num=8, evaluator_env_num=8, n_evaluator_episode=200, stop_value=2.0),
        policy=dict(
            random_collect_size=800,
            model=dict(multi_pass=multi_pass, encoder_hidden_size_list=[32, 32], dueling=False, head_layer_num=0),
            learn=dict(
                update_per_collect=8, batch_size=64, learning_rate_dis=3e-3, learning_rate_cont=3e-3, target_theta=0.05
            ),
            collect=dict(n_sample=32),
            other=dict(eps=dict(start=0.8, end=0.1, decay=1500)),
            eval=dict(evaluator=dict(eval_freq=10_000)),
        ),
    )
    create = dict(env=dict(type=register_aim()), env_manager=dict(type="base"), policy=dict(type="pdqn"))

    policy = serial_pipeline((main, create), seed=0, max_env_step=4000)

    obs = np.random.default_rng(1).uniform(-1, 1, (500, 2)).astype(np.float32)
    obs = obs[np.abs(obs[:, 0]) > 0.1]  # at the border both choices are nearly as good to learn
    chosen, best = act(policy.eval_mode.actor, obs), best_actions(obs)
    right = chosen[:, 0] == best[:, 0]
    assert right.mean() > 0.95
    column = 1 + best[right, 0].astype(int)
    rows = np.flatnonzero(right)
    error = np.abs(chosen[rows, column] - best[rows, column]) / HALF[column - 1]
    assert error.mean() < 0.15
