"""Rainbow: its loss against a slow walk over rows, its noise, and each of its parts switched off."""

from __future__ import annotations

import copy
import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.config import compile_config, deep_merge, to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.errors import ConfigError
from ding_like.model.layers import factor_noise
from ding_like.model.q_networks import RainbowDQN
from ding_like.policy.rainbow import RainbowPolicy
from tests.policy.values import make_rows

OBS, ACTIONS, ATOMS, V_MIN, V_MAX = 3, 4, 5, -2.0, 2.0
PARTS = ("dueling", "distributional", "noise")
FULL, PLAIN = dict.fromkeys(PARTS, True), dict.fromkeys(PARTS, False)
SOME = [FULL, *(dict(FULL, **{part: False}) for part in PARTS)]  # all parts, and each of them alone switched off


def make_policy(form: dict[str, bool] = FULL, **changes: Any) -> RainbowPolicy:
    torch.manual_seed(0)
    model = RainbowDQN(OBS, ACTIONS, [6], head_hidden_size=5, v_min=V_MIN, v_max=V_MAX, n_atom=ATOMS, **form)
    policy = RainbowPolicy(deep_merge(to_plain(RainbowPolicy.default_config()), changes), model=model)
    # A target network of its own, so that mixing up the two shows.
    generator = torch.Generator().manual_seed(1)
    shift = torch.randn(policy._target_params.data_vector.shape, generator=generator)
    policy._target_params.data_vector.add_(0.3 * shift)
    return policy


def make_batch(rows: int = 12, *, seed: int = 0) -> TransitionBatch:
    return make_rows(rows, obs=OBS, actions=ACTIONS, seed=seed)


def slow_network(model: RainbowDQN, obs: list[float], eps: list[float] | None) -> list[list[float]]:
    """Return N numbers for each action: weights mu + sigma * eps one by one, layer by layer."""
    values = {name: parameter.tolist() for name, parameter in model.named_parameters()}

    def f(number: float) -> float:
        return math.copysign(math.sqrt(abs(number)), number)

    def linear(name: str, x: list[float], noise: list[float]) -> list[float]:
        if f"{name}.weight" in values:
            weight, bias = values[f"{name}.weight"], values[f"{name}.bias"]
        else:
            weight, bias = copy.deepcopy(values[f"{name}.weight_mu"]), list(values[f"{name}.bias_mu"])
            eps_in, eps_out = [f(noise.pop(0)) for _ in x], [f(noise.pop(0)) for _ in bias]
            for j, i in itertools.product(range(len(bias)), range(len(x))):
                weight[j][i] += values[f"{name}.weight_sigma"][j][i] * eps_out[j] * eps_in[i]
            bias = [b + s * e for b, s, e in zip(bias, values[f"{name}.bias_sigma"], eps_out, strict=True)]
        return [sum(w * v for w, v in zip(row, x, strict=True)) + b for row, b in zip(weight, bias, strict=True)]

    left = [0.0] * model.noise_size if eps is None else list(eps)
    features = [max(v, 0.0) for v in linear("encoder.main.0", obs, left)]
    outputs = []
    for name in ("head.value.main", "head.advantage.main") if hasattr(model.head, "value") else ("head.main",):
        hidden = [max(v, 0.0) for v in linear(f"{name}.0", features, left)]
        outputs.append(linear(f"{name}.2", hidden, left))
    assert not left, "all noise has its place"
    points = ATOMS if model.distributional else 1
    advantage = [outputs[-1][action * points : (action + 1) * points] for action in range(ACTIONS)]
    if len(outputs) == 1:
        return advantage
    mean = [sum(of_action[i] for of_action in advantage) / ACTIONS for i in range(points)]
    return [[outputs[0][i] + of_action[i] - mean[i] for i in range(points)] for of_action in advantage]


def softmax(logits: list[float]) -> list[float]:
    total = sum(math.exp(x) for x in logits)
    return [math.exp(x) / total for x in logits]


def slow_row(policy: RainbowPolicy, row: Any, eps: dict[str, Any]) -> tuple[float, float]:
    """Return (loss, priority) of one row, as the papers say."""
    online, target_net, double = policy.get_attribute("model"), policy._target_model, policy._cfg.double
    atoms = [V_MIN + i * (V_MAX - V_MIN) / (ATOMS - 1) for i in range(ATOMS)]

    def value(points: list[float]) -> float:
        if not online.distributional:
            return points[0]
        return sum(z * p for z, p in zip(atoms, softmax(points), strict=True))

    following = slow_network(target_net, row["next_obs"].tolist(), eps["target"])
    judge = slow_network(online, row["next_obs"].tolist(), eps["judge"]) if double else following
    best = max(range(ACTIONS), key=lambda a: value(judge[a]))
    chosen = slow_network(online, row["obs"].tolist(), eps["online"])[int(row["action"])]
    reward, discount = float(row["reward"]), 0.0 if row["terminated"] else float(row["discount"])
    if not online.distributional:
        error = chosen[0] - (reward + discount * following[best][0])
        return error**2, abs(error)
    # Algorithm 1 of Bellemare et al. 2017.
    m = [0.0] * ATOMS
    for z, p in zip(atoms, softmax(following[best]), strict=True):
        b = (min(max(reward + discount * z, V_MIN), V_MAX) - V_MIN) / ((V_MAX - V_MIN) / (ATOMS - 1))
        low, high = math.floor(b), math.ceil(b)
        if low == high:
            m[low] += p
        else:
            m[low] += p * (high - b)
            m[high] += p * (b - low)
    loss = -sum(share * math.log(p) for share, p in zip(m, softmax(chosen), strict=True))
    return loss, loss + sum(share * math.log(share) for share in m if share > 0)


def drawn(policy: RainbowPolicy) -> dict[str, Any]:
    """Return the numbers that the next gradient will draw for each use of a network."""
    if policy._noise is None:
        return dict.fromkeys(("target", "judge", "online"))
    noise, size = copy.deepcopy(policy._noise), policy.get_attribute("model").noise_size
    noise.begin()
    uses = ("target", "judge", "online") if policy._cfg.double else ("target", "online")
    return {"judge": None, **{use: noise.normal(size).tolist() for use in uses}}


@pytest.mark.parametrize("backend", ["auto", "autograd"])
@pytest.mark.parametrize(("form", "double"), [*((form, True) for form in SOME), (FULL, False), (PLAIN, False)])
def test_loss_and_priorities_equal_a_slow_walk_over_rows(form, double, backend):
    policy = make_policy(form, double=double, learn=dict(backend=backend))
    assert (policy._by_hand is not None) == (backend == "auto")
    batch, eps = make_batch(), drawn(policy)

    info, priority = policy.grad(batch)

    rows = [slow_row(policy, row, eps) for row in batch]
    expected = np.mean([loss * float(row["weight"]) for (loss, _), row in zip(rows, batch, strict=True)])
    assert float(info["total_loss"]) == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(priority, [each for _, each in rows], rtol=1e-4, atol=1e-5)


def test_equal_noise_gives_the_same_gradient_and_an_update_draws_anew():
    policy, batch = make_policy(), make_batch()

    first = policy.grad(batch)[0]["total_loss"]
    again = policy.grad(batch)[0]["total_loss"]
    before = drawn(policy)
    policy.apply()

    assert float(first) == float(again)
    after = drawn(policy)
    assert all(after[use] != before[use] for use in before)
    assert len({tuple(eps) for eps in before.values()}) == 3, "each use has noise of its own"


@pytest.mark.parametrize("form", [FULL, dict(FULL, distributional=False)])
def test_evaluation_is_by_the_means(form):
    policy = make_policy(form)
    obs = make_batch(50)["obs"]

    actions = [act(policy.eval_mode.actor, obs, seed=seed) for seed in range(2)]

    wanted = policy.get_attribute("model").q(torch.from_numpy(obs)).argmax(1).numpy()
    assert np.array_equal(actions[0], wanted) and np.array_equal(actions[1], wanted)


def act(actor: Any, obs: np.ndarray, *, seed: int = 0, **setting: Any) -> np.ndarray:
    lanes = np.arange(len(obs))
    first = np.zeros(len(obs), bool)
    return actor.act(obs, lanes=lanes, is_first=first, rng=np.random.default_rng(seed), **setting)["action"]


@pytest.mark.parametrize("distributional", [True, False])
def test_every_lane_explores_by_noise_of_its_own(distributional):
    policy = make_policy(dict(FULL, distributional=distributional))
    obs = make_batch(1)["obs"].repeat(200, axis=0)

    action = act(policy.collect_mode.actor, obs)

    eps = np.random.default_rng(0).standard_normal((200, policy.get_attribute("model").noise_size), dtype=np.float32)
    noise = factor_noise(torch.from_numpy(eps))
    alone = [int(policy.get_attribute("model").q(torch.from_numpy(obs[:1]), noise[row]).argmax()) for row in range(200)]
    assert action.tolist() == alone and len(set(alone)) > 1
    assert not np.array_equal(action, act(policy.collect_mode.actor, obs, seed=1)), "each step draws anew"


def test_without_noise_epsilon_is_all_exploration():
    policy = make_policy(dict(FULL, noise=False))
    obs = make_batch(1)["obs"].repeat(400, axis=0)

    assert len(set(act(policy.collect_mode.actor, obs, eps=0.0))) == 1
    assert len(set(act(policy.collect_mode.actor, obs, eps=0.5))) == ACTIONS


@pytest.mark.parametrize(("form", "backend"), [(FULL, "auto"), (FULL, "autograd"), (PLAIN, "auto")])
def test_targets_never_use_a_forbidden_value(form, backend):
    policy, batch = make_policy(form, learn=dict(backend=backend)), make_batch()
    best = np.zeros((len(batch), ACTIONS), np.int8)
    best[:, 2] = 1
    columns = dict(batch.columns)
    columns["obs/board"], columns["next_obs/board"] = columns.pop("obs"), columns.pop("next_obs")
    columns["obs/action_mask"], columns["next_obs/action_mask"] = np.ones_like(best), best
    columns["terminated"] = np.zeros(len(batch), bool)

    for double in (True, False):
        policy._cfg.double = double
        eps = drawn(policy)
        target = np.asarray(policy.grad(TransitionBatch(columns))[0]["target_q_value"])

        noise = None if eps["target"] is None else factor_noise(torch.tensor(eps["target"]))
        value = policy._target_model.q(torch.from_numpy(columns["next_obs/board"]), noise)[:, 2].detach().numpy()
        wanted = columns["reward"] + columns["discount"] * value
        if not form["distributional"]:  # a distribution is cut off at the ends of its support
            np.testing.assert_allclose(target, wanted, rtol=1e-4, atol=1e-5)
        inside = np.abs(columns["reward"]) < 0.1
        np.testing.assert_allclose(target[inside], wanted[inside], rtol=1e-4, atol=1e-4)
        assert inside.any()


def test_a_loss_that_distributions_do_not_have_is_refused():
    main = dict(env=dict(env_id="CartPole-v1"), policy=dict(learn=dict(loss="huber")))
    create = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="rainbow"))

    with pytest.raises(ConfigError, match=r"policy\.learn\.loss +is 'huber', but has no effect"):
        compile_config(main, create, save=False)

    main["policy"]["model"] = dict(distributional=False)
    assert compile_config(main, create, save=False).policy.learn.loss == "huber"
