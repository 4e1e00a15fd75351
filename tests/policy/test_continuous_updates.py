"""DDPG and its kin, SAC and its: an update equals a slow walk over rows, targets follow, training finds the way.

DDPG and TD3: acting, checkpoints, and whose turn an update is. SAC: temperature, and masks where actions are discrete.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, Normal, TanhTransform, TransformedDistribution

from ding_like.config import deep_merge, to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.errors import ConfigError
from ding_like.model.qac import DiscreteQAC
from ding_like.policy.sac import DiscreteSACPolicy, SACPolicy
from tests.policy import hybrid, test_pdqn
from tests.policy.continuous import (
    CASES,
    CENTRE,
    GAMMA,
    HALF,
    HIGH,
    LOW,
    act,
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
from tests.policy.differences import assert_finite_differences
from tests.policy.values import make_rows

ALPHA = 0.2


def ddpg_row(x: Any, networks: dict[str, Any], noise: list[Tensor]) -> Any:
    """Return (critics' loss given the target of a next value, next value, actor's loss): Lillicrap et al. 2016."""
    next_value = networks["target_critic"](x.next_obs, networks["target_actor"](x.next_obs)).item()
    q = networks["critic"](x.obs, x.action)
    return lambda target: (q[0] - target) ** 2, next_value, -networks["critic"](x.obs, networks["actor"](x.obs))[0]


ATOMS = np.linspace(-2.0, 2.0, 7)  # so few and so close that targets lie beyond both ends too


def projected(probs: list[float], target: Any) -> list[float]:
    """Share the probabilities of returns, [M] or all of them one number, between the atoms next to each."""
    places = (np.broadcast_to(target, len(probs)).clip(ATOMS[0], ATOMS[-1]) - ATOMS[0]) / (ATOMS[1] - ATOMS[0])
    return [
        sum(p * max(0.0, 1.0 - abs(place - number)) for p, place in zip(probs, places, strict=True))
        for number in range(len(ATOMS))
    ]


def d4pg_row(x: Any, networks: dict[str, Any], noise: list[Tensor]) -> Any:
    """Go as Barth-Maron et al. 2018, algorithm 1; of two critics the one that expects less makes the target."""
    atoms = torch.from_numpy(ATOMS)
    critics = networks["target_critic"](x.next_obs, networks["target_actor"](x.next_obs))[:, 0].softmax(-1).detach()
    probs = min(critics, key=lambda own: float(own @ atoms)).tolist()
    log_p = networks["critic"](x.obs, x.action)[:, 0].log_softmax(-1)

    def of_critics(target: Any) -> Tensor:
        return torch.stack([-m * own[number] for number, m in enumerate(projected(probs, target)) for own in log_p])

    return of_critics, ATOMS, -networks["critic"](x.obs, networks["actor"](x.obs))[0, 0].softmax(-1) @ atoms


def td3_row(x: Any, networks: dict[str, Any], noise: list[Tensor]) -> Any:
    """Go as Fujimoto et al. 2018, algorithm 1."""
    smoothed = networks["target_actor"](x.next_obs) + (0.2 * noise[0]).clamp(-0.2, 0.3)
    next_q = networks["target_critic"](x.next_obs, smoothed.clamp(-1, 1))
    q = networks["critic"](x.obs, x.action)
    actor_loss = -networks["critic"](x.obs, networks["actor"](x.obs))[0]
    return lambda target: (q[0] - target) ** 2 + (q[1] - target) ** 2, next_q.min().item(), actor_loss


def draw(actor: Any, obs: Tensor, epsilon: Tensor) -> tuple[Tensor, Tensor]:
    """Return one action and its log density, through torch's own distributions."""
    mean, log_sigma = actor(obs).chunk(2, dim=1)
    gaussian = Normal(mean, log_sigma.clamp(-20, 2).exp())
    squashed = TransformedDistribution(gaussian, TanhTransform(cache_size=1))
    action = squashed.transforms[0](mean + gaussian.scale * epsilon)
    return action, squashed.log_prob(action).sum()


def sac_row(x: Any, networks: dict[str, Any], noise: list[Tensor]) -> Any:
    """Go as Haarnoja et al. 2018b, algorithm 1."""
    next_action, next_log_prob = draw(networks["actor"], x.next_obs, noise[0])
    next_value = networks["target_critic"](x.next_obs, next_action).min() - ALPHA * next_log_prob
    q = networks["critic"](x.obs, x.action)
    action, log_prob = draw(networks["actor"], x.obs, noise[1])
    actor_loss = ALPHA * log_prob - networks["critic"](x.obs, action).min()
    return lambda target: 0.5 * ((q[0] - target) ** 2 + (q[1] - target) ** 2), next_value.item(), actor_loss


def tqc_row(x: Any, networks: dict[str, Any], noise: list[Tensor]) -> Any:
    """Go as Kuznetsov et al. 2020, section 3: 2 critics of 5 quantiles, of which the 2 largest of all are left out."""
    next_action, next_log_prob = draw(networks["actor"], x.next_obs, noise[0])
    quantiles = sorted(networks["target_critic"](x.next_obs, next_action).flatten().tolist())[:-2]
    next_value = np.array(quantiles) - ALPHA * next_log_prob.item()
    q = networks["critic"](x.obs, x.action)[:, 0]

    def of_critics(target: Any) -> Tensor:
        loss = torch.zeros(1, dtype=torch.float64)
        for own in q:
            for number, theta in enumerate(own):
                for y in np.broadcast_to(target, len(quantiles)).tolist():
                    u = y - theta
                    huber = u**2 / 2 if abs(u) <= 1 else abs(u) - 0.5
                    loss = loss + abs((number + 0.5) / 5 - float(u < 0)) * huber / (5 * len(quantiles))
        return loss

    action, log_prob = draw(networks["actor"], x.obs, noise[1])
    actor_loss = ALPHA * log_prob - networks["critic"](x.obs, action).mean()
    return of_critics, next_value, actor_loss


@dataclass
class Algorithm:
    """One algorithm: its slow loss of a row, how many rows of noise it draws for each row, settings."""

    row: Callable[..., Any]
    draws: int = 0
    learn: dict[str, Any] | None = None
    model: dict[str, Any] | None = None


# Every update is one of TD3's actor, and a narrow range cuts much of the noise.
ALGORITHMS = {
    "ddpg": Algorithm(ddpg_row),
    "d4pg": Algorithm(d4pg_row, model=dict(v_min=-2.0, v_max=2.0, n_atom=len(ATOMS), twin_critic=True)),
    "td3": Algorithm(td3_row, 1, dict(actor_update_freq=1, noise_range=dict(min=-0.2, max=0.3))),
    "sac": Algorithm(sac_row, 2),
    "tqc": Algorithm(tqc_row, 2, dict(num_dropped=1), dict(num_quantiles=5)),
}


def make(name: str, **changes: Any) -> Any:
    learn = {**(ALGORITHMS[name].learn or {}), **changes.pop("learn", {})}
    model = {**(ALGORITHMS[name].model or {}), **changes.pop("model", {})}
    return make_policy(name, learn=learn, model=model, **changes)


def slow_losses(name: str, policy: Any, batch: Any, *, ignore_done: bool = False) -> tuple[dict[str, Tensor], Any]:
    """Go row by row in float64; return the losses and the networks that they may be differentiated by."""
    modules = {
        "actor": policy.get_attribute("model").actor,
        "critic": policy.get_attribute("model").critic,
        "target_critic": policy._critic.target,
    }
    if policy._actor.target is not None:
        modules["target_actor"] = policy._actor.target
    networks = {key: double(module) for key, module in modules.items()}
    draws = ALGORITHMS[name].draws
    noise = peek_noise(policy, draws * len(batch), 2).split(len(batch)) if draws else []
    critic_losses, actor_losses = [], []
    for number, row in enumerate(batch):
        own_noise = [each[number] for each in noise]
        of_critics, next_value, of_actor = ALGORITHMS[name].row(tensors(row), networks, own_noise)
        target = td_target(row, next_value, ignore_done=ignore_done)
        critic_losses.append(float(row.get("weight", 1.0)) * of_critics(target).sum())
        actor_losses.append(of_actor.sum())
    return {"critic": torch.stack(critic_losses).mean(), "actor": torch.stack(actor_losses).mean()}, networks


@pytest.mark.parametrize("backend", ["auto", "autograd"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_update_equals_a_slow_walk_over_rows(name: str, case: str, backend: str) -> None:
    columns, changes = CASES[case]
    policy, batch = make(name, **deep_merge(changes, dict(learn=dict(backend=backend)))), make_batch(**columns)
    assert (policy._by_hand is not None) == (backend == "auto" and name != "d4pg")
    losses, networks = slow_losses(name, policy, batch, ignore_done=case == "ignore_done")

    info, priority = policy.grad(batch)

    assert priority is None
    for network, loss in losses.items():
        assert float(info[f"{network}_loss"]) == pytest.approx(float(loss.detach()), rel=1e-6, abs=1e-6)
        gradient = torch.autograd.grad(loss, list(networks[network].parameters()), retain_graph=True)
        found = policy._networks()[network].params.grad_vector.double()
        torch.testing.assert_close(found, torch.cat([grad.flatten() for grad in gradient]), rtol=1e-4, atol=1e-6)
    if name in ("sac", "tqc"):
        # Two action dimensions: the entropy aims at -2.
        expected = math.log(ALPHA) * (float(info["entropy"].mean()) + 2)
        assert float(info["alpha_loss"]) == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_an_own_loss_of_values_is_not_passed_over_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    def doubled(self: SACPolicy, prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return (prediction - target).square(), prediction - target

    own, usual, batch = type("Own", (SACPolicy,), {"_compare": doubled}), make("sac"), make_batch()
    policy = own(usual.cfg)
    assert policy._by_hand is None and usual._by_hand is not None
    policy.learn_mode.load_state_dict(usual.learn_mode.state_dict())

    policy.grad(batch)
    usual.grad(batch)

    found, expected = (each._critic.params.grad_vector for each in (policy, usual))
    torch.testing.assert_close(found, 2.0 * expected, rtol=1e-4, atol=1e-6)


def test_without_noise_the_target_is_that_of_the_target_actor() -> None:
    policy, batch = make("td3", learn=dict(noise=False)), make_batch()

    info, _ = policy.grad(batch)

    rows = policy._rows(batch)
    with torch.no_grad():
        next_q = policy._critic.target(rows.next_obs, policy._actor.target(rows.next_obs)).amin(dim=0)
    expected = rows.reward + 0.9 * next_q * ~rows.terminated
    torch.testing.assert_close(info["target_q_value"].expand_as(expected), expected)


@pytest.mark.parametrize("name", [*ALGORITHMS, "discrete_sac", "pdqn"])
def test_targets_follow_the_stepped_networks_by_momentum(name: str) -> None:
    policy, batch = policy_and_batch(name)
    before = {key: network.target_params.data_vector.clone() for key, network in targets_of(policy).items()}

    train(policy, [batch])

    assert set(before) == ({"critic"} if "sac" in name or name == "tqc" else {"critic", "actor"})
    for key, network in targets_of(policy).items():
        expected = before[key].lerp(network.params.data_vector, 0.25)
        torch.testing.assert_close(network.target_params.data_vector, expected)


def policy_and_batch(name: str, **changes: Any) -> tuple[Any, Any]:
    if name == "discrete_sac":
        return make_discrete(**changes), discrete_batch()
    if name == "pdqn":
        return test_pdqn.make_policy(**changes), hybrid.make_batch()
    return make(name, **changes), make_batch()


def targets_of(policy: Any) -> dict[str, Any]:
    return {key: network for key, network in policy._networks().items() if network.target is not None}


def test_priorities_of_d4pg_are_mean_divergences_of_target_and_prediction() -> None:
    policy, batch = make("d4pg", priority=True), make_batch()
    losses = slow_losses("d4pg", policy, batch)[0]
    rows = policy._rows(batch)
    with torch.no_grad():
        action = policy._actor.target(rows.next_obs)
        next_values = policy._critic.target(rows.next_obs, action).double().softmax(-1)
    entropy = []
    for row, of_critics in zip(batch, next_values.transpose(0, 1), strict=True):
        probs = min(of_critics, key=lambda own: float(own @ torch.from_numpy(ATOMS))).tolist()
        target = projected(probs, td_target(row, ATOMS, ignore_done=False))
        entropy.append(-sum(m * math.log(m) for m in target if m > 0))

    _, priority = policy.grad(batch)

    # The loss is the sum of both critics' cross entropies.
    assert priority.shape == (16,) and priority.min() >= 0.0
    assert priority.mean() == pytest.approx(float(losses["critic"].detach()) / 2 - np.mean(entropy), rel=1e-5)


@pytest.mark.parametrize("name", [*(name for name in ALGORITHMS if name != "d4pg"), "discrete_sac"])
def test_priorities_are_mean_absolute_td_errors_of_the_critics(name: str) -> None:
    policy, batch = policy_and_batch(name, priority=True)

    info, priority = policy.grad(batch)

    error = (info["q_value"] - info["target_q_value"]).abs()
    expected = error if error.ndim == 1 else error.mean(dim=0)
    np.testing.assert_allclose(priority, expected.numpy(), rtol=1e-6)


@pytest.mark.parametrize("name", ["td3", "sac"])
def test_a_state_in_the_middle_of_a_cycle_goes_on_bit_equal_and_torchs_generator_is_left_alone(name: str) -> None:
    before = torch.get_rng_state()
    first, second = make_policy(name), make_policy(name)
    torch.set_rng_state(before)
    # 3 updates: the next one is that of TD3's actor. The noise goes on from where it was as well.
    train(first, [make_batch(seed=seed) for seed in range(3)])
    second.learn_mode.load_state_dict(copy.deepcopy(first.learn_mode.state_dict()))

    for policy in (first, second):
        train(policy, [make_batch(seed=seed) for seed in range(3, 8)])

    assert all(torch.equal(mine, theirs) for mine, theirs in zip(flat_state(first), flat_state(second), strict=True))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_learning_finds_which_way_to_push(name: str) -> None:
    assert push_the_right_way(name, learning_rate=1e-2, **(dict(actor_update_freq=1) if name == "td3" else {})) > 0.8


OBS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


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


@pytest.mark.parametrize(
    ("learn", "targets_of_critics_too"), [({}, False), ({"target_update_freq": 1}, True)], ids=["together", "apart"]
)
def test_the_actor_waits_for_every_second_update_and_targets_may(learn, targets_of_critics_too):
    policy = make_policy("td3", learn=learn)
    moved = []
    for seed in range(4):
        critic, actor = policy._critic, policy._actor
        parts = [critic.params, actor.params, critic.target_params, actor.target_params]
        before = [params.data_vector.clone() for params in parts]
        train(policy, [make_batch(seed=seed)])
        moved.append([not torch.equal(now.data_vector, was) for now, was in zip(parts, before, strict=True)])

    waits, acts = [True, False, targets_of_critics_too, targets_of_critics_too], [True, True, True, True]
    assert moved == [waits, acts, waits, acts]


@pytest.mark.parametrize("name", ["ddpg", "sac"])
def test_evaluation_acts_without_noise_and_sees_each_update(name):
    policy = make_policy(name, learn=dict(learning_rate=0.1))
    train(policy, [make_batch(seed=seed) for seed in range(3)])

    with torch.no_grad():
        output = policy.get_attribute("model").actor(torch.from_numpy(OBS)).numpy()

    action = output if name == "ddpg" else np.tanh(output[:, :2])
    np.testing.assert_allclose(act(policy.eval_mode.actor, OBS), CENTRE + HALF * action, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("learn", "sign"), [({"target_entropy": 5.0}, 1), ({"target_entropy": -50.0}, -1), ({}, 0)])
def test_alpha_rises_where_the_entropy_is_below_its_target_and_a_fixed_one_stays(learn, sign):
    policy = make_policy("sac", learn=dict(alpha=0.5, auto_alpha=bool(learn), **learn))

    info, _ = policy.grad(make_batch())
    policy.apply()

    moved = policy._temperature.network.log_alpha.item() - math.log(0.5)
    assert np.sign(round(moved, 6)) == sign
    assert ("alpha_loss" in info) == bool(learn) and float(info["alpha"]) == pytest.approx(0.5)


@pytest.mark.parametrize(("log_space", "slope"), [(True, 1.0), (False, 0.2)])
def test_temperature_follows_the_gap_to_the_target_entropy(log_space, slope):
    policy = make_policy("sac", learn=dict(log_space=log_space, target_entropy=-3.0))

    info, _ = policy.grad(make_batch())

    # d/d log(alpha) of -log(alpha) * (log_prob + target), or of -alpha * (log_prob + target).
    expected = slope * (float(info["entropy"].mean()) + 3.0)
    assert float(policy._temperature.params.grad_vector) == pytest.approx(expected, rel=1e-5)


def test_collecting_draws_from_the_squashed_gaussian():
    policy = make_policy("sac")
    obs = make_batch()["obs"][:1]
    with torch.no_grad():
        mean, log_sigma = policy.get_attribute("model").actor(torch.from_numpy(obs)).numpy()[0].reshape(2, 2)

    action = act(policy.collect_mode.actor, np.tile(obs, (20_000, 1)))

    assert (action >= LOW).all() and (action <= HIGH).all()
    u = np.arctanh(((action - CENTRE) / HALF).clip(-1 + 1e-7, 1 - 1e-7))
    np.testing.assert_allclose(u.mean(axis=0), mean, atol=0.03)
    np.testing.assert_allclose(u.std(axis=0), np.exp(log_sigma), rtol=0.03)


ACTIONS = 3
MODEL = dict(obs_shape=3, action_shape=ACTIONS, actor_head_hidden_size=8, critic_head_hidden_size=8)


def make_discrete(dtype: torch.dtype = torch.float32, **changes) -> DiscreteSACPolicy:
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


def discrete_batch(rows: int = 16, *, seed: int = 0, is_masked: bool = False, **columns) -> TransitionBatch:
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
DISCRETE_CASES = {
    "one step": (discrete_batch(), {}),
    "n steps": (discrete_batch(discount=np.random.default_rng(1).choice([0.9, 0.81], 16).astype(np.float32)), {}),
    "weights": (discrete_batch(weight=np.linspace(0.0, 2.0, 16, dtype=np.float32)), {"priority_IS_weight": True}),
    "ignore_done": (discrete_batch(), {"learn": {"ignore_done": True}}),
    "masks": (discrete_batch(is_masked=True), {}),
}


def board_and_legal(row, prefix: str) -> tuple[torch.Tensor, list[int]]:
    """Return one row's observation as a float64 batch of one, and the actions that are legal there."""
    if f"{prefix}/board" not in row:
        return torch.tensor(row[prefix], dtype=torch.float64)[None], list(range(ACTIONS))
    return torch.tensor(row[f"{prefix}/board"], dtype=torch.float64)[None], np.flatnonzero(
        row[f"{prefix}/action_mask"]
    ).tolist()


@torch.no_grad()
def slow_discrete_losses(policy, batch, *, alpha: float, ignore_done: bool) -> dict[str, float]:
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


@pytest.mark.parametrize("case", DISCRETE_CASES)
def test_losses_equal_a_slow_walk_over_rows_and_actions(case):
    batch, changes = DISCRETE_CASES[case]
    policy = make_discrete(torch.float64, **changes)

    info, priority = policy.grad(batch)

    # In float64, but for rewards, discounts and alpha itself, which are float32.
    alpha = float(policy._temperature.network.log_alpha.detach().exp())
    for name, value in slow_discrete_losses(policy, batch, alpha=alpha, ignore_done=case == "ignore_done").items():
        assert float(info[name]) == pytest.approx(value, rel=1e-6, abs=1e-6), name
    assert priority is None


@pytest.mark.parametrize(
    ("case", "network"), [("weights", "critic"), ("masks", "critic"), ("one step", "actor"), ("masks", "actor")]
)
def test_gradients_equal_finite_differences(case, network):
    batch, changes = DISCRETE_CASES[case]
    policy = make_discrete(torch.float64, **changes)
    policy.grad(batch)

    loss = lambda: float(policy.grad(batch)[0][f"{network}_loss"])  # noqa: E731
    assert_finite_differences(policy._networks()[network].params, loss)


def test_where_one_action_is_legal_alpha_stays():
    batch = discrete_batch(is_masked=True)
    mask = np.zeros((16, ACTIONS), np.int8)
    mask[np.arange(16), batch["action"]] = 1
    policy = make_discrete()

    info, _ = policy.grad(batch.with_columns(**{"obs/action_mask": mask}))

    # There is nothing to choose: neither the entropy nor its target can be anything but 0.
    assert not info["entropy"].any() and policy._temperature.params.grad_vector.item() == 0.0
    assert not policy._actor.params.grad_vector.any()


@pytest.mark.parametrize("bad", [1e9, math.inf])
def test_targets_and_losses_never_use_a_forbidden_value(bad):
    policy, batch = make_discrete(), discrete_batch(is_masked=True)
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
    policy, batch = make_discrete(), discrete_batch(is_masked=True)
    nothing = np.zeros_like(batch["next_obs/action_mask"])

    info, _ = policy.grad(batch.with_columns(terminated=np.zeros(16, bool), **{"next_obs/action_mask": nothing}))

    assert np.array_equal(info["target_q_value"], batch["reward"])


def test_collecting_draws_from_the_softmax_and_evaluation_does_the_most_likely():
    policy, obs = make_discrete(), discrete_batch()["obs"]
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
