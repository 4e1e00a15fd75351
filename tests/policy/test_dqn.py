import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.config import deep_merge, to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.errors import CheckpointError, ConfigError
from ding_like.policy.dqn import DQNPolicy


def make_policy(**changes) -> DQNPolicy:
    torch.manual_seed(0)
    cfg = to_plain(DQNPolicy.default_config())
    cfg["model"] = dict(obs_shape=3, action_shape=4, encoder_hidden_size_list=[8, 8])
    return DQNPolicy(deep_merge(cfg, changes))


def make_batch(rows: int = 16, *, seed: int = 0, discount: bool = True) -> TransitionBatch:
    rng = np.random.default_rng(seed)
    columns = {
        "obs": rng.normal(size=(rows, 3)).astype(np.float32),
        "next_obs": rng.normal(size=(rows, 3)).astype(np.float32),
        "action": rng.integers(0, 4, rows),
        "reward": rng.normal(size=rows).astype(np.float32),
        "terminated": rng.random(rows) < 0.3,
        "truncated": rng.random(rows) < 0.3,
    }
    if discount:
        columns["discount"] = rng.choice([0.97, 0.97**2], rows).astype(np.float32)
    return TransitionBatch(columns)


def masked(batch: TransitionBatch, *, seed: int = 0, beside: bool = False) -> TransitionBatch:
    """Return a batch whose observations are dicts with an action mask; the taken action is legal."""
    rng = np.random.default_rng(seed)
    columns = dict(batch.columns)
    for name in ("obs", "next_obs"):
        mask = rng.random((len(batch), 4)) < 0.5
        mask[np.arange(len(batch)), columns["action"]] = True
        columns[f"{name}/action_mask"] = mask.astype(np.int8)
        columns[f"{name}/state"] = columns.pop(name)
        if beside:
            columns[f"{name}/more"] = rng.integers(0, 3, len(batch))
    return TransitionBatch(columns)


def weighted(seed: int = 0) -> TransitionBatch:
    """Return n-step rows with discounts and weights that differ from row to row, one of them 0."""
    rng = np.random.default_rng(100 + seed)
    return make_batch(seed=seed).with_columns(
        weight=np.linspace(0.0, 2.0, 16).astype(np.float32)[rng.permutation(16)],
        discount=rng.choice([0.97, 0.97**2, 0.97**3], 16).astype(np.float32),
        reward=(3.0 * rng.normal(size=16)).astype(np.float32),  # on both sides of Huber's corner
    )


def slow_update(policy: Any, batch: TransitionBatch) -> tuple[torch.Tensor, float, list[float]]:
    """Return (gradient, weighted loss, TD errors), row by row in float64, without policy code."""
    cfg = policy._cfg
    model, target = copy.deepcopy(policy.get_attribute("model")).double(), copy.deepcopy(policy._target_model).double()
    for parameter in model.parameters():
        parameter.grad = None
    state = "/state" if "obs/state" in batch.columns else ""
    total, errors = torch.zeros((), dtype=torch.float64), []
    for row in batch:
        obs, next_obs = (torch.tensor(row[f"{key}{state}"], dtype=torch.float64)[None] for key in ("obs", "next_obs"))
        with torch.no_grad():
            following = target.q(next_obs)[0]
            judge = model.q(next_obs)[0] if cfg.double else following
        legal = np.flatnonzero(row["next_obs/action_mask"]).tolist() if state else range(4)
        value = float(following[max(legal, key=lambda action: float(judge[action]))])
        goes_on = cfg.learn.ignore_done or not row["terminated"]
        y = float(row["reward"]) + (float(row.get("discount", 0.97)) * value if goes_on else 0.0)
        error = model.q(obs)[0, int(row["action"])] - y
        size = error.abs()
        mse = cfg.learn.loss == "mse"
        each = error**2 if mse else 0.5 * error**2 if float(size.detach()) <= 1.0 else size - 0.5
        weight = float(row["weight"]) if cfg.priority_IS_weight else 1.0
        total = total + weight * each / len(batch)
        errors.append(float(size.detach()))
    total.backward()
    gradient = torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()])
    return gradient, float(total.detach()), errors


WEIGHTS = dict(priority=True, priority_IS_weight=True)
VARIANTS: dict[str, tuple[Callable[[], TransitionBatch], dict[str, Any]]] = {
    "as it is": (make_batch, {}),
    "one step": (lambda: make_batch(discount=False), dict(double=False)),
    "weights": (weighted, dict(**WEIGHTS, nstep=3, learn=dict(loss="mse"))),
    "weights, huber, single": (weighted, dict(**WEIGHTS, nstep=3, double=False, learn=dict(loss="huber"))),
    "weights not asked for": (weighted, dict(priority=True, learn=dict(loss="huber"), model=dict(dueling=False))),
    "ignore_done": (make_batch, dict(learn=dict(ignore_done=True), model=dict(dueling=False))),
    "masks": (lambda: masked(weighted()), WEIGHTS),
    "masks, single": (lambda: masked(weighted()), dict(double=False)),
}


@pytest.mark.parametrize("backend", ["auto", "autograd"])
@pytest.mark.parametrize("name", VARIANTS)
def test_an_update_equals_a_slow_walk_over_rows(name, backend):
    make_rows, changes = VARIANTS[name]
    policy, batch = make_policy(**deep_merge(changes, dict(learn=dict(backend=backend)))), make_rows()
    assert (policy._by_hand is not None) == (backend == "auto")
    # A target network of its own, so that mixing up the two shows.
    target = policy._target_params.data_vector
    target.add_(0.3 * torch.randn(target.shape, generator=torch.Generator().manual_seed(3)))

    info, priority = policy.grad(batch)

    gradient, total, errors = slow_update(policy, batch)
    torch.testing.assert_close(policy._params.grad_vector.double(), gradient, rtol=1e-4, atol=1e-6)
    assert float(info["total_loss"]) == pytest.approx(total, rel=1e-5)
    if policy._cfg.priority:  # errors, not weighted ones
        np.testing.assert_allclose(priority, errors, rtol=1e-4, atol=1e-5)
    else:
        assert priority is None


def test_target_network_is_copied_every_so_many_updates():
    policy = make_policy(learn=dict(target_update_freq=3))
    equal = []
    for _ in range(6):
        policy.grad(make_batch())
        policy.apply()
        equal.append(torch.equal(policy._target_params.data_vector, policy._params.data_vector))

    assert equal == [False, False, True, False, False, True]


def test_target_network_follows_by_momentum():
    policy = make_policy(learn=dict(target_theta=0.25))
    before = policy._target_params.data_vector.clone()

    policy.grad(make_batch())
    policy.apply()

    expected = before + 0.25 * (policy._params.data_vector - before)
    torch.testing.assert_close(policy._target_params.data_vector, expected)


def test_epsilon_is_drawn_per_lane_and_an_array_gives_each_its_own():
    policy = make_policy()
    obs = np.zeros((4000, 3), np.float32)
    lanes, first = np.arange(4000), np.zeros(4000, bool)
    actor, rng = policy.collect_mode.actor, np.random.default_rng(0)
    greedy = actor.act(obs, lanes=lanes, is_first=first, rng=rng)["action"]

    same = actor.act(obs, lanes=lanes, is_first=first, rng=rng, eps=0.5)["action"] == greedy
    split = actor.act(obs, lanes=lanes, is_first=first, rng=rng, eps=np.repeat([0.0, 1.0], 2000))["action"] == greedy

    # Half of the lanes explore, and a quarter of those hit the greedy action of 4 anyway.
    assert 0.58 < same.mean() < 0.67
    assert split[:2000].all() and split[2000:].mean() < 0.3


def test_command_mode_says_epsilon_for_the_env_step():
    policy = make_policy(other=dict(eps=dict(type="linear", start=1.0, end=0.0, decay=100)))

    assert policy.command_mode.get_setting_collect({"envstep": 25})["eps"] == pytest.approx(0.75)


def test_a_checkpoint_of_another_shape_is_refused_and_changes_nothing():
    policy = make_policy()
    before = policy._params.data_vector.clone()
    state = {"model": {name: value[:1] for name, value in policy.get_attribute("model").state_dict().items()}}

    with pytest.raises(CheckpointError, match=r"shape|size"):
        policy.learn_mode.load_state_dict(state)

    assert torch.equal(policy._params.data_vector, before)


def test_unknown_model_argument_is_a_config_error():
    with pytest.raises(ConfigError, match="hidden_sizes"):
        make_policy(model=dict(hidden_sizes=[8]))


def test_cuda_without_a_gpu_is_a_config_error(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(ConfigError, match=r"policy.cuda"):
        make_policy(cuda=True)


def test_seed_row_functions_are_derived():
    policy = make_policy(nstep=2, discount_factor=0.5)
    mode = policy.collect_mode
    output = mode.forward({3: np.zeros(3, np.float32), 7: np.ones(3, np.float32)}, eps=0.0)
    assert set(output) == {3, 7} and 0 <= int(output[7]["action"]) < 4

    class Step:
        obs, reward, done, info = np.ones(3, np.float32), np.array([2.0], np.float32), False, {}

    rows = [mode.process_transition(np.zeros(3, np.float32), output[3], Step) for _ in range(3)]
    samples = mode.get_train_sample(rows)

    assert [sample["reward"] for sample in samples] == [3.0, 3.0]
    result = policy.learn_mode.forward([{**sample, "next_obs": sample["next_obs"]} for sample in samples])
    assert np.isfinite(result["total_loss"])


def test_dict_observations_are_learned_from_through_torch():
    policy = make_policy(model=dict(obs_shape={"state": 3, "more": {"one_hot": [3]}}))

    info, _ = policy.grad(masked(make_batch(), beside=True))
    before = policy._params.data_vector.clone()
    policy.apply()

    assert np.isfinite(float(info["total_loss"])) and not torch.equal(before, policy._params.data_vector)
