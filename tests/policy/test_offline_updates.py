"""TD3+BC, ReBRAC, IQL and EDAC: an update equals a slow walk over rows, rows have next actions, training works."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal

from ding_like.config import deep_merge, read_config, to_plain
from ding_like.data.rollout import Rollout
from ding_like.entry import serial_pipeline_offline
from ding_like.errors import ConfigError
from ding_like.model.qac import ContinuousQAC, ParallelMLP, SeparateMLP
from ding_like.pipeline.process import training_process
from ding_like.policy.rows import NextActionRows
from ding_like.policy.sharing import Share
from tests import experts
from tests.policy.continuous import (
    CASES,
    CENTRE,
    HALF,
    act,
    double,
    make_batch,
    make_policy,
    peek_noise,
    td_target,
    tensors,
    train,
)
from tests.policy.test_continuous_updates import draw

# Every update is one of the actor, and clipping of noise, weights and sigma shows.
TD3 = dict(actor_update_freq=1, noise_range=dict(min=-0.2, max=0.3))
LEARN: dict[str, dict[str, Any]] = {
    "td3_bc": dict(**TD3, alpha=1.5),
    "rebrac": dict(**TD3, actor_beta=0.7, critic_beta=0.4),
    "iql": dict(tau=0.8, beta=2.0, max_weight=1.5),
    "edac": dict(eta=3.0, alpha=0.2),
}
MODEL: dict[str, dict[str, Any]] = {
    "td3_bc": dict(actor_head_layer_num=1),
    "rebrac": dict(critic_head_layer_num=1),
    "iql": {},
    "edac": dict(num_critics=4),
}
NEXT_ACTION = np.random.default_rng(5).uniform([-2.0, 0.0], [2.0, 0.5], (16, 2)).astype(np.float32)
HAS_NEXT = np.arange(16) % 4 > 0


def make(name: str, **changes: Any) -> Any:
    given = dict(learn=LEARN[name], model=MODEL[name])
    policy = make_policy(name, **deep_merge(given, changes))
    with torch.no_grad():  # layers of normalisation begin as if they were not there, sigma at 1
        for parameter in policy.get_attribute("model").parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return policy


def batch_of(**columns: Any) -> Any:
    return make_batch(**{"next_action": NEXT_ACTION, "has_next_action": HAS_NEXT, **columns})


def of_td3(name: str, policy: Any, batch: Any, nets: dict[str, Any], *, ignore_done: bool) -> dict[str, Tensor]:
    """Go as Fujimoto and Gu 2021, eq. 3 to 5, and for ReBRAC as Tarasov et al. 2023, section 3."""
    learn, noise = LEARN[name], peek_noise(policy, len(batch), 2)
    critic_losses, values, distances = [], [], []
    for number, row in enumerate(batch):
        x = tensors(row)
        smoothed = (nets["target_actor"](x.next_obs) + (0.2 * noise[number]).clamp(-0.2, 0.3)).clamp(-1, 1)
        next_value = nets["target_critic"](x.next_obs, smoothed).min().item()
        if name == "rebrac" and row["has_next_action"]:
            own = (row["next_action"].astype(np.float64) - CENTRE) / HALF
            next_value -= learn["critic_beta"] * sum((smoothed[0].detach().numpy() - own) ** 2)
        target = td_target(row, next_value, ignore_done=ignore_done)
        q = nets["critic"](x.obs, x.action)
        critic_losses.append(float(row.get("weight", 1.0)) * ((q[0] - target) ** 2 + (q[1] - target) ** 2).sum())
        action = nets["actor"](x.obs)
        judged = nets["critic"](x.obs, action)
        values.append((judged.min(dim=0).values if name == "rebrac" else judged[0]).sum())
        distances.append((action - x.action).square().sum())
    scale = sum(abs(value.item()) for value in values) / len(values)
    value, distance = torch.stack(values).mean(), torch.stack(distances).mean()
    if name == "td3_bc":
        actor_loss = -learn["alpha"] / scale * value + distance / 2  # a mean over 2 dimensions
    else:
        actor_loss = -value / scale + learn["actor_beta"] * distance
    return {"critic": torch.stack(critic_losses).mean(), "actor": actor_loss}


def of_iql(policy: Any, batch: Any, nets: dict[str, Any], *, ignore_done: bool) -> dict[str, Tensor]:
    """Go as Kostrikov et al. 2022, eq. 5 to 7."""
    losses: dict[str, list[Tensor]] = {"value": [], "critic": [], "actor": []}
    for row in batch:
        x, weight = tensors(row), float(row.get("weight", 1.0))
        least, value = nets["target_critic"](x.obs, x.action).min().item(), nets["value"](x.obs).sum()
        u = least - value
        losses["value"].append(weight * abs(0.8 - float(u.item() < 0)) * u**2)
        target = td_target(row, nets["value"](x.next_obs).item(), ignore_done=ignore_done)
        q = nets["critic"](x.obs, x.action)
        losses["critic"].append(weight * ((q[0] - target) ** 2 + (q[1] - target) ** 2).sum())
        mean, log_sigma = nets["actor"](x.obs).chunk(2, dim=1)
        log_prob = Normal(mean, log_sigma.clamp(-5, 2).exp()).log_prob(x.action).sum()
        losses["actor"].append(-min(np.exp(2.0 * u.item()), 1.5) * log_prob)
    return {name: torch.stack(each).mean() for name, each in losses.items()}


def of_edac(policy: Any, batch: Any, nets: dict[str, Any], *, ignore_done: bool) -> dict[str, Tensor]:
    """Go as An et al. 2021, algorithm 1 and eq. 4."""
    noise = peek_noise(policy, 2 * len(batch), 2).split(len(batch))
    critic_losses, actor_losses, pairs, num = [], [], [], 4
    for number, row in enumerate(batch):
        x = tensors(row)
        next_action, next_log_prob = draw(nets["actor"], x.next_obs, noise[0][number])
        next_value = nets["target_critic"](x.next_obs, next_action).min() - 0.2 * next_log_prob
        target = td_target(row, next_value.item(), ignore_done=ignore_done)
        at = x.action.clone().requires_grad_()
        q = nets["critic"](x.obs, at)[:, 0]
        critic_losses.append(float(row.get("weight", 1.0)) * 0.5 * sum((own - target) ** 2 for own in q))
        slopes = [torch.autograd.grad(own, at, create_graph=True)[0][0] for own in q]
        units = [slope / slope.norm() for slope in slopes]
        pairs.append(sum(units[i] @ units[j] for i in range(num) for j in range(num) if i != j) / (num - 1))
        action, log_prob = draw(nets["actor"], x.obs, noise[1][number])
        actor_losses.append(0.2 * log_prob - nets["critic"](x.obs, action).min())
    critic_loss = torch.stack(critic_losses).mean() + LEARN["edac"]["eta"] * torch.stack(pairs).mean()
    return {"critic": critic_loss, "actor": torch.stack(actor_losses).mean()}


def slow_losses(name: str, policy: Any, batch: Any, **given: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Go row by row in float64; return the losses and the networks that they may be differentiated by."""
    networks = policy._networks()
    nets = {key: double(each.network) for key, each in networks.items() if key != "temperature"}
    nets |= {f"target_{key}": double(each.target) for key, each in networks.items() if each.target is not None}
    if name in ("td3_bc", "rebrac"):
        return of_td3(name, policy, batch, nets, **given), nets
    return (of_iql if name == "iql" else of_edac)(policy, batch, nets, **given), nets


@pytest.mark.parametrize("backend", ["auto", "autograd"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", LEARN)
def test_an_update_equals_a_slow_walk_over_rows(name: str, case: str, backend: str) -> None:
    columns, changes = CASES[case]
    policy = make(name, **deep_merge(changes, dict(learn=dict(backend=backend))))
    batch = batch_of(**columns)
    assert (policy._by_hand is not None) == (backend == "auto")
    losses, nets = slow_losses(name, policy, batch, ignore_done=case == "ignore_done")

    info, priority = policy.grad(batch)

    assert priority is None and losses.keys() >= {"critic", "actor"}
    for network, loss in losses.items():
        assert float(info[f"{network}_loss"]) == pytest.approx(float(loss.detach()), rel=1e-5, abs=1e-6)
        gradient = torch.autograd.grad(loss, list(nets[network].parameters()), retain_graph=True)
        found = policy._networks()[network].params.grad_vector.double()
        torch.testing.assert_close(found, torch.cat([grad.flatten() for grad in gradient]), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("backend", ["auto", "autograd"])
def test_the_deviation_of_iqls_actor_has_no_gradient_beyond_its_limits(backend: str) -> None:
    policy = make("iql", learn=dict(backend=backend))
    parameter = policy.get_attribute("model").actor[1].log_sigma
    with torch.no_grad():
        parameter.copy_(torch.tensor([-7.0, -1.0]))

    policy.grad(batch_of())

    assert parameter.grad[0] == 0.0 and parameter.grad[1] != 0.0


def test_without_the_entropy_edacs_targets_are_those_of_the_least_value() -> None:
    policy, other = (make("edac", learn=dict(with_q_entropy=counts)) for counts in (False, True))
    batch = batch_of()
    rows = policy._rows(batch)
    with torch.no_grad():
        action, log_prob = policy._draw(rows.next_obs)
        least = policy._critic.target(rows.next_obs, action).amin(dim=0)

    for own, cost in ((policy, 0.0), (other, 0.2 * log_prob)):
        info, _ = own.grad(batch)

        expected = rows.reward + 0.9 * (least - cost) * ~rows.terminated
        torch.testing.assert_close(info["target_q_value"], expected, rtol=1e-4, atol=1e-5)


def test_edacs_term_turns_the_critics_gradients_apart() -> None:
    def likeness_after(eta: float) -> float:
        policy = make("edac", learn=dict(eta=eta, learning_rate=1e-3))
        with training_process():
            train(policy, [make_batch(64, seed=seed) for seed in range(60)])
        rows = policy._rows(make_batch(64, seed=99))
        action = rows.action.repeat(4, 1, 1).requires_grad_()
        slope = torch.autograd.grad(policy._critic.network(rows.obs, action).sum(), action)[0]
        cosine = nn.functional.cosine_similarity(slope[:, None], slope[None], dim=3)
        return float((cosine.sum(dim=(0, 1)) - 4.0).mean())

    assert likeness_after(1.0) < likeness_after(0.0) - 0.5


@pytest.mark.parametrize("name", LEARN)
def test_priorities_are_mean_absolute_td_errors(name: str) -> None:
    policy = make(name, priority=True)

    info, priority = policy.grad(batch_of())

    expected = (info["q_value"] - info["target_q_value"]).abs().mean(dim=0)
    np.testing.assert_allclose(priority, expected.numpy(), rtol=1e-5)


@pytest.mark.parametrize("name", ["td3_bc", "rebrac"])
def test_several_learners_are_refused_where_whole_batches_are_measured(name: str) -> None:
    with pytest.raises(ConfigError, match=f"'{name}' divides by the mean value .* --learners 1"):
        make(name).set_share(Share(0, 2))


@pytest.mark.parametrize("name", LEARN)
def test_targets_follow_the_stepped_networks(name: str) -> None:
    policy = make(name)
    targets = {key: each for key, each in policy._networks().items() if each.target is not None}
    before = {key: each.target_params.data_vector.clone() for key, each in targets.items()}

    train(policy, [batch_of()])

    assert set(before) == ({"critic", "actor"} if name in ("td3_bc", "rebrac") else {"critic"})
    for key, each in targets.items():
        torch.testing.assert_close(each.target_params.data_vector, before[key].lerp(each.params.data_vector, 0.25))


# With much weight on the values, as the data's actions go any way. EDAC's slopes are what this reward is made of.
GREEDY: dict[str, dict[str, Any]] = {
    "td3_bc": dict(alpha=10.0, actor_update_freq=1),
    "rebrac": dict(actor_beta=0.03, actor_update_freq=1),
    "iql": dict(beta=10.0, tau=0.5, max_weight=100.0),
    "edac": dict(eta=0.0),
}


@pytest.mark.parametrize("name", LEARN)
def test_learning_prefers_the_actions_of_the_data_that_are_rewarded(name: str) -> None:
    wide = dict(actor_head_hidden_size=32, critic_head_hidden_size=32)
    policy = make(name, model=wide, learn=dict(learning_rate=1e-2, **GREEDY[name]))
    rng = np.random.default_rng(0)
    with training_process():
        for seed in range(150):
            ends = dict(terminated=np.ones(64, bool), has_next_action=np.zeros(64, bool))
            batch = make_batch(64, seed=seed, next_action=np.zeros((64, 2), np.float32), **ends)
            push = np.where(rng.random(64) < 0.5, 0.5, -0.5)  # the data's actions are one of two
            action = np.stack([CENTRE[0] + HALF[0] * push, batch["action"][:, 1]], axis=1).astype(np.float32)
            reward = (np.sign(batch["obs"][:, 0]) * push).astype(np.float32)
            train(policy, [batch.with_columns(action=action, reward=reward)])

    obs = make_batch(200, seed=1000)["obs"]
    pushes = (act(policy.eval_mode.actor, obs)[:, 0] - CENTRE[0]) / HALF[0]
    assert (np.sign(obs[:, 0]) * pushes > 0.25).mean() > 0.8


def test_cloning_alone_goes_to_the_datas_actions() -> None:
    policy = make("td3_bc", learn=dict(alpha=0.0, learning_rate=1e-2, actor_update_freq=1))
    batches = [make_batch(64, seed=seed) for seed in range(200)]
    with training_process():
        train(policy, [each.with_columns(action=np.stack([each["obs"].mean(axis=1), 0.25 + 0 * each["obs"][:, 0]], 1))
                       for each in batches])  # fmt: skip

    obs = make_batch(200, seed=1000)["obs"]
    error = act(policy.eval_mode.actor, obs) - np.stack([obs.mean(axis=1), np.full(200, 0.25)], axis=1)
    assert np.sqrt((error**2).mean()) < 0.1


# ---- rows with next actions


def episodes(steps: int, seed: int) -> list[dict[str, Any]]:
    """Return steps of two lanes, the action of each its number; lane 1 acts in half of them."""
    rng, made, counts, episode = np.random.default_rng(seed), [], [0, 0], [0, 0]
    for _ in range(steps):
        for lane in (0, 1):
            if lane and rng.random() < 0.5:
                continue
            number, ended = counts[lane], rng.random() < 0.25
            counts[lane] += 1
            terminated = bool(ended and rng.random() < 0.5)
            made.append(
                dict(
                    obs=np.float32([lane, number]),
                    next_obs=np.float32([lane, number + 1]),
                    action=np.float32([number]),
                    reward=np.float32(rng.normal()),
                    terminated=terminated,
                    truncated=bool(ended and not terminated),
                    lane=lane,
                    episode_id=2 * episode[lane] + lane,
                )
            )
            episode[lane] += bool(ended)
    return made


@pytest.mark.parametrize("nstep", [1, 3])
@pytest.mark.parametrize("chunk", [1, 5, 40])
def test_a_row_has_the_action_behind_its_last_step_and_waits_for_it(nstep: int, chunk: int) -> None:
    steps, maker = episodes(40, seed=nstep), NextActionRows(nstep, 0.9)
    rollout, found = Rollout(2), []
    for start in range(0, len(steps), chunk):
        part = steps[start : start + chunk]
        rollout.append({name: np.asarray([step[name] for step in part]) for name in part[0]}, is_full_step=False)
        before = {lane: rollout["lane"] == lane for lane in (0, 1)}
        batch, keep = maker.segment(rollout)
        ready = 0
        for mine in before.values():
            ended = (rollout["terminated"] | rollout["truncated"])[mine]
            ends = np.flatnonzero(ended)
            lengths = np.diff([0, *(ends + 1), len(ended)])
            ready += maker.num_ready(lengths, np.arange(len(lengths)) < len(ends))
        assert ready == len(batch)
        found += [
            {name: column[number].copy() for name, column in batch.columns.items()} for number in range(len(batch))
        ]
        rollout.keep_last(keep)

    expected = {}
    for lane in (0, 1):
        mine = [step for step in steps if step["lane"] == lane]
        for first, step in enumerate(mine):
            window = mine[first : first + nstep]
            last = next((n for n, each in enumerate(window) if each["terminated"] or each["truncated"]), nstep - 1)
            if last >= len(window):
                continue
            if window[last]["terminated"] or window[last]["truncated"]:
                expected[lane, float(step["obs"][1])] = None
            elif first + last + 1 < len(mine):
                expected[lane, float(step["obs"][1])] = float(mine[first + last + 1]["action"][0])
    assert len(found) == len(expected) and None in expected.values()
    for row in found:
        following = expected[int(row["obs"][0]), float(row["obs"][1])]
        assert row["has_next_action"] == (following is not None)
        assert row["next_action"][0] == (following or 0.0)
        assert following is None or row["next_obs"][1] == following
        assert "is_open" not in row


# ---- networks


def test_normalised_networks_side_by_side_equal_layers_one_after_another() -> None:
    mlp = ParallelMLP(3, [4, 8, 6, 1], norm_type="LN")
    with torch.no_grad():
        for parameter in mlp.parameters():
            parameter.normal_()
    x = torch.randn(3, 5, 4)

    for number in range(3):
        y = x[number]
        for layer in range(3):
            y = y @ mlp.weights[layer][number] + mlp.biases[layer][number]
            if layer < 2:
                norm = nn.LayerNorm(y.shape[1])
                norm.weight.data.copy_(mlp.scales[layer][number, 0])
                norm.bias.data.copy_(mlp.shifts[layer][number, 0])
                y = norm(y.relu())
        torch.testing.assert_close(mlp(x)[number], y)
        torch.testing.assert_close(mlp(x[0])[0], mlp(x)[0])


def test_residual_critics_take_an_action_each() -> None:
    critic = ContinuousQAC(
        3, 2, "regression", True, actor_head_hidden_size=6, critic_head_hidden_size=6, block="simba"
    ).critic
    obs, action = torch.randn(5, 3), torch.randn(2, 5, 2)
    assert isinstance(critic.q, SeparateMLP)

    for number in range(2):
        torch.testing.assert_close(critic(obs, action)[number], critic(obs, action[number])[number])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(critic_norm_type="BN"), "expected None or 'LN'"),
        (dict(critic_norm_type="LN", block="simba"), "of its own"),
    ],
)
def test_another_norm_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ContinuousQAC(3, 2, "regression", **settings)


# ---- runs

PENDULUM = Path(__file__).parents[2] / "dizoo/classic_control/pendulum/config"


@pytest.mark.usefixtures("in_tmp", "no_pictures")
@pytest.mark.parametrize("name", LEARN)
def test_a_run_learns_from_a_file_of_demonstrations(name: str) -> None:
    experts.pendulum("data.safetensors", episodes=1)
    file = read_config(PENDULUM / f"pendulum_{name if name in ('td3_bc', 'iql') else 'td3_bc'}_config.py")
    main, create = to_plain(file.main_config), to_plain(file.create_config)
    create["policy"]["type"] = name
    if name in ("rebrac", "edac"):
        main["policy"]["learn"] = dict(batch_size=32)
    main = deep_merge(main, dict(env=dict(evaluator_env_num=1, n_evaluator_episode=1, max_episode_steps=10)))

    policy = serial_pipeline_offline((main, create), 0, exp_name="run", max_iter=5, data_path="data.safetensors")

    assert json.loads(Path("run/result.json").read_text())["train_iter"] == 5
    for network in policy._networks().values():
        assert torch.isfinite(network.params.data_vector).all()
