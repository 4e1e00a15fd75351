"""DQN, C51, QR-DQN and Rainbow: whole updates beside slow walks over rows, in both backends; acting, targets, state."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ding_like.config import deep_merge
from ding_like.data.batch import TransitionBatch
from ding_like.errors import CheckpointError, ConfigError
from ding_like.model.layers import factor_noise
from ding_like.policy import get_policy_cls
from tests.policy.continuous import act
from tests.policy.values import ACTIONS, OBS, make_policy, make_rows, with_masks
from tests.rl_utils.slow_families import SlowCategorical, SlowQuantiles, SlowScalar

NUM, V_MIN, V_MAX, KAPPA = 5, -2.0, 2.0, 0.7
ATOMS = np.linspace(V_MIN, V_MAX, NUM).tolist()  # 1 apart
SUPPORT = dict(v_min=V_MIN, v_max=V_MAX, n_atom=NUM)
PARTS = ("dueling", "distributional", "noise")
FULL, PLAIN = dict.fromkeys(PARTS, True), dict.fromkeys(PARTS, False)
SOME = [FULL, *(dict(FULL, **{part: False}) for part in PARTS)]  # all parts, and each of them alone switched off
MODELS: dict[str, dict[str, Any]] = {
    "dqn": {},
    "c51": SUPPORT,
    "qrdqn": dict(num_quantiles=NUM),
    "rainbow": dict(SUPPORT, encoder_hidden_size_list=[6], head_hidden_size=5),
}


def make(name: str, **changes: Any) -> Any:
    """Return a policy with a target network of its own, so that mixing up the two shows."""
    policy = make_policy(name, **deep_merge(dict(model=MODELS[name]), changes))
    target = policy._target_params.data_vector
    target.add_(0.3 * torch.randn(target.shape, generator=torch.Generator().manual_seed(3)))
    return policy


# ---- updates


@torch.no_grad()
def drawn(policy: Any) -> dict[str, Tensor | None]:
    """Return the noise that the next gradient will draw for each use of a network."""
    uses = ("target", "judge", "online") if policy._cfg.double else ("target", "online")
    if policy._noise is None:
        return dict.fromkeys(("target", "judge", "online"))
    noise, size = copy.deepcopy(policy._noise), policy.get_attribute("model").noise_size
    noise.begin()
    return {"judge": None, **{use: factor_noise(noise.normal(size)).double() for use in uses}}


def slow_update(policy: Any, batch: TransitionBatch) -> tuple[float, Tensor, list[float]]:
    """Return (weighted loss, its gradient, priorities) row by row in float64, without policy code."""
    cfg, noise = policy._cfg, drawn(policy)
    model, target = copy.deepcopy(policy.get_attribute("model")).double(), copy.deepcopy(policy._target_model).double()
    is_c51 = getattr(model, "distributional", False)
    slow: Any = SlowQuantiles(NUM, KAPPA) if cfg.type == "qrdqn" else SlowScalar(cfg.learn.loss)
    slow = SlowCategorical(ATOMS) if is_c51 else slow
    for parameter in model.parameters():
        parameter.grad = None

    def points(network: Any, obs: Tensor, use: str) -> Tensor:
        found: Tensor = network.points(obs) if noise[use] is None else network.noisy_points(obs, noise[use])
        return found[0]

    def mean_of(of_actions: Tensor) -> list[float]:
        if is_c51:
            of_actions = of_actions.softmax(-1) * torch.tensor(ATOMS, dtype=of_actions.dtype)
        found: list[float] = of_actions.reshape(ACTIONS, -1).sum(-1).tolist()
        return found

    board = "/board" if "obs/board" in batch.columns else ""
    total, priorities = torch.zeros((), dtype=torch.float64), []
    for row in batch:
        obs, next_obs = (torch.tensor(row[f"{key}{board}"], dtype=torch.float64)[None] for key in ("obs", "next_obs"))
        with torch.no_grad():
            after = points(target, next_obs, "target")
            judge = mean_of(points(model, next_obs, "judge") if cfg.double else after)
        legal = np.flatnonzero(row["next_obs/action_mask"]).tolist() if board else range(ACTIONS)
        goes_on = len(legal) and (cfg.learn.ignore_done or not row["terminated"])
        following = after[max(legal, key=lambda action: judge[action])] if goes_on else None
        if following is not None:
            following = (following.softmax(0) if is_c51 else following).tolist()
        target_of_row = slow.target(following, float(row["reward"]), float(row.get("discount", 0.97)))
        each, priority = slow.compare(points(model, obs, "online")[int(row["action"])], target_of_row)
        total = total + (float(row["weight"]) if cfg.priority_IS_weight else 1.0) * each / len(batch)
        priorities.append(priority)
    total.backward()
    gradient = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    return float(total.detach()), gradient, priorities


# On both sides of Huber's corner, and a weight of 0.
WIDE = make_rows(weight=np.linspace(0.0, 2.0, 16).astype(np.float32))
WIDE = WIDE.with_columns(reward=3.0 * WIDE["reward"])
ONE_STEP = TransitionBatch({name: column for name, column in WIDE.columns.items() if name != "discount"})
ROWS = {"n steps": make_rows(), "wide": WIDE, "one step": ONE_STEP, "masks": with_masks(WIDE)}
WEIGHTS = dict(priority=True, priority_IS_weight=True)
UPDATES: list[tuple[str, str, dict[str, Any]]] = [
    ("dqn", "n steps", {}),
    ("dqn", "one step", dict(double=False)),
    ("dqn", "wide", dict(**WEIGHTS, nstep=3, learn=dict(loss="mse"))),
    ("dqn", "wide", dict(**WEIGHTS, nstep=3, double=False, learn=dict(loss="huber"))),
    ("dqn", "wide", dict(priority=True, learn=dict(loss="huber"), model=dict(dueling=False))),
    ("dqn", "n steps", dict(learn=dict(ignore_done=True), model=dict(dueling=False))),
    ("dqn", "masks", WEIGHTS),
    ("dqn", "masks", dict(double=False)),
    ("dqn", "n steps", dict(model=dict(noise=True))),
    ("dqn", "masks", dict(double=False, model=dict(noise=True, dueling=False))),
    *(
        (name, rows, dict(**WEIGHTS, double=double, model=dict(dueling=dueling), learn=learn))
        for name, learn in (("c51", {}), ("qrdqn", dict(kappa=KAPPA)))
        for rows, dueling, double in (("n steps", False, True), ("n steps", True, False), ("masks", True, True))
    ),
    *(("rainbow", "n steps", dict(model=form)) for form in SOME),
    *(("rainbow", rows, dict(double=False, model=form)) for rows, form in (("n steps", FULL), ("n steps", PLAIN))),
    *(("rainbow", "masks", dict(double=double, model=form)) for form in (FULL, PLAIN) for double in (False, True)),
]


@pytest.mark.parametrize("backend", ["auto", "autograd"])
@pytest.mark.parametrize(("name", "rows", "changes"), UPDATES)
def test_an_update_equals_a_slow_walk_over_rows(name: str, rows: str, changes: dict[str, Any], backend: str) -> None:
    policy, batch = make(name, **deep_merge(changes, dict(learn=dict(backend=backend)))), ROWS[rows]
    assert (policy._by_hand is not None) == (backend == "auto")
    loss, gradient, priorities = slow_update(policy, batch)

    info, priority = policy.grad(batch)

    rel = 1e-5 if name in ("dqn", "rainbow") else 0.0
    assert float(info["total_loss"]) == pytest.approx(loss, rel=rel, abs=1e-6)
    found = policy.grad_vectors()[0][:-1].double().numpy()
    np.testing.assert_allclose(found, gradient.numpy(), rtol=10 * rel or 1e-7, atol=1e-6)
    if policy._cfg.priority:  # errors, not weighted ones
        np.testing.assert_allclose(priority, priorities, rtol=10 * rel or 1e-7, atol=max(rel, 2e-6))
    else:
        assert priority is None


def test_equal_noise_gives_the_same_gradient_and_an_update_draws_anew() -> None:
    policy, batch = make("rainbow"), make_rows()

    first = policy.grad(batch)[0]["total_loss"]
    again = policy.grad(batch)[0]["total_loss"]
    before = drawn(policy)
    policy.apply()

    assert float(first) == float(again)
    after = drawn(policy)
    assert all(not torch.equal(after[use], before[use]) for use in before)
    assert len({tuple(eps.tolist()) for eps in before.values() if eps is not None}) == 3, "each use has its own"


# ---- targets


def update(policy: Any) -> None:
    policy.grad(make_rows())
    policy.apply()


def test_target_network_is_copied_every_so_many_updates() -> None:
    policy = make_policy(learn=dict(target_update_freq=3))
    equal = []
    for _ in range(6):
        update(policy)
        equal.append(torch.equal(policy._target_params.data_vector, policy._params.data_vector))

    assert equal == [False, False, True, False, False, True]


def test_target_network_follows_by_momentum() -> None:
    policy = make_policy(learn=dict(target_theta=0.25))
    before = policy._target_params.data_vector.clone()

    update(policy)

    expected = before + 0.25 * (policy._params.data_vector - before)
    torch.testing.assert_close(policy._target_params.data_vector, expected)


# ---- acting


def test_epsilon_is_drawn_per_lane_and_an_array_gives_each_its_own() -> None:
    actor, obs = make_policy().collect_mode.actor, np.zeros((4000, OBS), np.float32)
    greedy, rng = act(actor, obs), np.random.default_rng(0)

    same = act(actor, obs, rng=rng, eps=0.5) == greedy
    split = act(actor, obs, rng=rng, eps=np.repeat([0.0, 1.0], 2000)) == greedy

    # Half of the lanes explore, and a quarter of those hit the greedy action of 4 anyway.
    assert 0.58 < same.mean() < 0.67
    assert split[:2000].all() and split[2000:].mean() < 0.3


def test_command_mode_says_epsilon_for_the_env_step() -> None:
    policy = make_policy(other=dict(eps=dict(type="linear", start=1.0, end=0.0, decay=100)))

    assert policy.command_mode.get_setting_collect({"envstep": 25})["eps"] == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("name", "model"), [("c51", dict(dueling=True)), ("qrdqn", dict(dueling=True)), ("rainbow", SOME[0] | SOME[2])]
)
def test_evaluation_plays_what_is_expected_of_the_means(name: str, model: dict[str, Any]) -> None:
    policy = make(name, model=model)
    obs = np.random.default_rng(0).normal(0.0, 5.0, size=(200, OBS)).astype(np.float32)

    actions = [act(policy.eval_mode.actor, obs, rng=np.random.default_rng(seed)) for seed in range(2)]

    with torch.no_grad():
        wanted = policy.get_attribute("model")(torch.from_numpy(obs))["logit"].argmax(1).numpy()
    assert len(np.unique(wanted)) > 1
    assert np.array_equal(actions[0], wanted) and np.array_equal(actions[1], wanted)


@pytest.mark.parametrize("distributional", [True, False])
def test_every_lane_explores_by_noise_of_its_own(distributional: bool) -> None:
    policy = make("rainbow", model=dict(distributional=distributional))
    model, obs = policy.get_attribute("model"), make_rows(1)["obs"].repeat(200, axis=0)

    action = act(policy.collect_mode.actor, obs)

    eps = np.random.default_rng(0).standard_normal((200, model.noise_size), dtype=np.float32)
    noise = factor_noise(torch.from_numpy(eps))
    alone = [int(model.q(torch.from_numpy(obs[:1]), noise[row]).argmax()) for row in range(200)]
    assert action.tolist() == alone and len(set(alone)) > 1
    again = act(policy.collect_mode.actor, obs, rng=np.random.default_rng(1))
    assert not np.array_equal(action, again), "each step draws anew"


def test_without_noise_epsilon_is_all_exploration() -> None:
    actor = make("rainbow", model=dict(noise=False)).collect_mode.actor
    obs = make_rows(1)["obs"].repeat(400, axis=0)

    assert len(set(act(actor, obs, eps=0.0))) == 1
    assert len(set(act(actor, obs, eps=0.5))) == ACTIONS


# ---- models, state, DI-engine's functions


@pytest.mark.parametrize(("name", "lacks"), [("c51", r"v_min\n  v_max\n  n_atom"), ("qrdqn", "num_quantiles")])
def test_a_model_that_does_not_say_what_its_output_is_is_refused(name: str, lacks: str) -> None:
    cls = get_policy_cls({"type": name})

    with pytest.raises(ConfigError, match=rf"(?s)Linear does not have:.*{lacks}"):
        cls(cls.default_config(), model=nn.Linear(OBS, ACTIONS * NUM))


def test_a_checkpoint_of_another_shape_is_refused_and_changes_nothing() -> None:
    policy = make_policy()
    before = policy._params.data_vector.clone()
    state = {"model": {name: value[:1] for name, value in policy.get_attribute("model").state_dict().items()}}

    with pytest.raises(CheckpointError, match=r"shape|size"):
        policy.learn_mode.load_state_dict(state)

    assert torch.equal(policy._params.data_vector, before)


@pytest.mark.parametrize(
    ("changes", "message"), [(dict(model=dict(hidden_sizes=[8])), "hidden_sizes"), (dict(cuda=True), r"policy.cuda")]
)
def test_what_cannot_be_built_is_a_config_error(
    changes: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(ConfigError, match=message):
        make_policy(**changes)


def test_seed_row_functions_are_derived() -> None:
    policy = make_policy(nstep=2, discount_factor=0.5)
    mode = policy.collect_mode
    output = mode.forward({3: np.zeros(OBS, np.float32), 7: np.ones(OBS, np.float32)}, eps=0.0)
    assert set(output) == {3, 7} and 0 <= int(output[7]["action"]) < 4
    step = SimpleNamespace(obs=np.ones(OBS, np.float32), reward=np.array([2.0], np.float32), done=False, info={})

    rows = [mode.process_transition(np.zeros(OBS, np.float32), output[3], step) for _ in range(3)]
    samples = mode.get_train_sample(rows)

    assert [sample["reward"] for sample in samples] == [3.0, 3.0]
    assert np.isfinite(policy.learn_mode.forward(samples)["total_loss"])


def test_dict_observations_are_learned_from_through_torch() -> None:
    policy = make_policy(model=dict(obs_shape={"board": OBS, "more": {"one_hot": [3]}}))
    batch = with_masks(make_rows())
    more = {f"{prefix}/more": np.random.default_rng(0).integers(0, 3, len(batch)) for prefix in ("obs", "next_obs")}

    info, _ = policy.grad(batch.with_columns(**more))
    before = policy._params.data_vector.clone()
    policy.apply()

    assert np.isfinite(float(info["total_loss"])) and not torch.equal(before, policy._params.data_vector)
