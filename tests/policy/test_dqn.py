import copy

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


@torch.no_grad()
def slow_loss(policy: DQNPolicy, batch: TransitionBatch, *, double: bool, huber: bool, ignore_done: bool) -> float:
    """Go row by row, as the paper says."""
    losses = []
    for row in batch:
        q_next = policy._target_model.q(torch.tensor(row["next_obs"][None]))[0]
        online = policy._model.q(torch.tensor(row["next_obs"][None]))[0]
        value = q_next[int(online.argmax())] if double else q_next.max()
        goes_on = ignore_done or not row["terminated"]
        target = float(row["reward"]) + (float(row.get("discount", 0.97)) * float(value) if goes_on else 0.0)
        error = float(policy._model.q(torch.tensor(row["obs"][None]))[0, int(row["action"])]) - target
        loss = error**2 if not huber else (0.5 * error**2 if abs(error) <= 1 else abs(error) - 0.5)
        losses.append(loss * float(row.get("weight", 1.0)))
    return float(np.mean(losses))


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("loss", ["huber", "mse"])
@pytest.mark.parametrize("ignore_done", [True, False])
@pytest.mark.parametrize("backend", ["auto", "autograd"])
def test_loss_equals_a_slow_walk_over_rows(double, loss, ignore_done, backend):
    policy = make_policy(double=double, learn=dict(loss=loss, ignore_done=ignore_done, backend=backend))
    assert (policy._by_hand is not None) == (backend == "auto")
    # A target network of its own, so that mixing up the two shows.
    with torch.no_grad():
        policy._target_params.data_vector.add_(0.1 * torch.randn_like(policy._target_params.data_vector))
    batch = make_batch()

    info, priority = policy.grad(batch)

    expected = slow_loss(policy, batch, double=double, huber=loss == "huber", ignore_done=ignore_done)
    assert float(info["total_loss"]) == pytest.approx(expected, rel=1e-5)
    assert priority is None


def test_importance_weights_scale_each_row():
    policy = make_policy(priority=True, priority_IS_weight=True)
    batch = make_batch().with_columns(weight=np.linspace(0, 2, 16).astype(np.float32))

    info, _ = policy.grad(batch)

    expected = slow_loss(policy, batch, double=True, huber=False, ignore_done=False)
    assert float(info["total_loss"]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("loss", ["huber", "mse"])
def test_both_backends_learn_the_same(loss):
    policies = [make_policy(priority=True, learn=dict(loss=loss, backend=backend)) for backend in ("auto", "autograd")]
    for seed in range(20):
        batch = make_batch(seed=seed).with_columns(weight=np.linspace(0.5, 1.5, 16).astype(np.float32))
        results = []
        for policy in policies:
            results.append(policy.grad(batch))
            policy.apply()
        (info, priority), (other_info, other_priority) = results
        np.testing.assert_allclose(priority, other_priority, rtol=1e-4, atol=1e-5)
        assert float(info["total_loss"]) == pytest.approx(float(other_info["total_loss"]), rel=1e-4)

    torch.testing.assert_close(policies[0]._params.data_vector, policies[1]._params.data_vector, rtol=1e-3, atol=1e-4)


def test_priorities_are_absolute_td_errors():
    policy = make_policy(priority=True, learn=dict(loss="mse"))

    info, priority = policy.grad(make_batch())

    assert float((priority**2).mean()) == pytest.approx(float(info["total_loss"]), rel=1e-5)


def test_one_step_rows_without_discount_use_gamma():
    policy = make_policy()
    with_column = make_batch(discount=False).with_columns(discount=np.full(16, 0.97, np.float32))

    first, _ = policy.grad(make_batch(discount=False))
    second, _ = policy.grad(with_column)

    assert float(first["total_loss"]) == pytest.approx(float(second["total_loss"]), rel=1e-6)


@pytest.mark.parametrize("backend", ["auto", "autograd"])
@pytest.mark.parametrize("dueling", [True, False])
def test_gradient_equals_plain_autograd(backend, dueling):
    policy = make_policy(double=False, learn=dict(backend=backend), model=dict(dueling=dueling))
    twin = copy.deepcopy(policy._model)
    batch = make_batch().to("cpu")

    policy.grad(make_batch())

    with torch.no_grad():
        value = policy._target_model.q(batch["next_obs"]).amax(1)
        target = batch["reward"] + batch["discount"] * value * (~batch["terminated"])
    q = twin.q(batch["obs"]).gather(1, batch["action"][:, None])[:, 0]
    for parameter in twin.parameters():
        parameter.grad = None
    torch.nn.functional.mse_loss(q, target).backward()
    for mine, theirs in zip(policy._model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


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


def test_learning_fits_fixed_targets():
    policy = make_policy(learn=dict(learning_rate=1e-2))
    batch = make_batch().with_columns(terminated=np.ones(16, bool))

    losses = []
    for _ in range(200):
        info, _ = policy.grad(batch)
        policy.apply()
        losses.append(float(info["total_loss"]))

    assert losses[-1] < 0.01 * losses[0]


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


def test_acting_sees_each_update():
    policy = make_policy(learn=dict(learning_rate=0.1))
    obs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    for _ in range(3):
        policy.grad(make_batch())
        policy.apply()

    with torch.no_grad():
        expected = policy._model.q(torch.from_numpy(obs)).numpy()

    np.testing.assert_allclose(policy.eval_mode.actor.infer.forward.array(obs), expected, rtol=1e-4, atol=1e-5)


def test_state_round_trip_continues_bit_equal():
    first = make_policy(learn=dict(target_update_freq=2))
    for seed in range(3):
        first.grad(make_batch(seed=seed))
        first.apply()
    second = make_policy(learn=dict(target_update_freq=2))
    second.learn_mode.load_state_dict(copy.deepcopy(first.learn_mode.state_dict()))

    for policy in (first, second):
        for seed in range(3, 6):
            policy.grad(make_batch(seed=seed))
            policy.apply()

    assert torch.equal(first._params.data_vector, second._params.data_vector)
    assert torch.equal(first._target_params.data_vector, second._target_params.data_vector)
    assert second._params.is_intact()


def test_a_checkpoint_of_another_shape_is_refused_and_changes_nothing():
    policy = make_policy()
    before = policy._params.data_vector.clone()
    state = {"model": {name: value[:1] for name, value in policy._model.state_dict().items()}}

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


@pytest.mark.parametrize("eps", [0.0, 0.5, 1.0])
def test_only_legal_actions_are_taken(eps):
    policy, batch = make_policy(), masked(make_batch(200))
    obs = {"state": batch["obs/state"], "action_mask": batch["obs/action_mask"]}

    out = policy._collect_actor.act(
        obs, lanes=np.arange(200), is_first=np.zeros(200, bool), rng=np.random.default_rng(0), eps=eps
    )

    assert obs["action_mask"][np.arange(200), out["action"]].all()
    if eps == 1.0:
        legal = [set(np.flatnonzero(mask)) for mask in obs["action_mask"]]
        assert set().union(*legal) == set(out["action"].tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize("backend", ["auto", "autograd"])
@pytest.mark.parametrize("double", [True, False])
def test_the_target_looks_at_legal_next_actions_only(double, backend):
    policy, batch = make_policy(double=double, learn=dict(backend=backend)), masked(make_batch())

    info, _ = policy.grad(batch)

    expected = []
    with torch.no_grad():
        for row in batch:
            legal = np.flatnonzero(row["next_obs/action_mask"]).tolist()
            next_obs = torch.tensor(row["next_obs/state"][None])
            target_q = policy._target_model.q(next_obs)[0]
            chooser = policy._model.q(next_obs)[0] if double else target_q
            best = max(legal, key=lambda action: float(chooser[action]))
            value = 0.0 if row["terminated"] else float(target_q[best])
            expected.append(float(row["reward"]) + float(row["discount"]) * value)
    np.testing.assert_allclose(np.asarray(info["target_q_value"]), expected, rtol=1e-5, atol=1e-6)


def test_a_mask_after_the_end_that_allows_nothing_leaves_the_target_finite():
    policy, batch = make_policy(), masked(make_batch())
    nothing = batch["next_obs/action_mask"] * ~batch["terminated"][:, None]

    info, _ = policy.grad(batch.with_columns(**{"next_obs/action_mask": nothing.astype(np.int8)}))

    assert np.isfinite(np.asarray(info["target_q_value"])).all()


def test_dict_observations_are_learned_from_through_torch():
    policy = make_policy(model=dict(obs_shape={"state": 3, "more": {"one_hot": [3]}}))
    batch = masked(make_batch(), beside=True)

    info, _ = policy.grad(batch)
    before = policy._params.data_vector.clone()
    policy.apply()

    assert np.isfinite(float(info["total_loss"])) and not torch.equal(before, policy._params.data_vector)


def test_importance_weights_are_left_out_unless_the_config_asks_for_them():
    batch = make_batch()
    weighted = batch.with_columns(weight=np.linspace(0, 2, 16).astype(np.float32))

    losses = [float(make_policy(priority=True).grad(rows)[0]["total_loss"]) for rows in (batch, weighted)]

    assert losses[0] == losses[1]
