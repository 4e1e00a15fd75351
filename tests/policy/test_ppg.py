"""PPG: the auxiliary loss against a slow walk and finite differences, its phases, the rows that wait for them."""

import copy

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, Normal, kl_divergence

from ding_like.config import deep_merge, to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.model.vac import PPG
from ding_like.policy.ppg import PPGOffPolicy, PPGPolicy
from ding_like.policy.ppo import PPOOffPolicy, PPOPolicy
from tests.policy import on_policy
from tests.policy.differences import assert_finite_differences
from tests.policy.on_policy import SMALL, make_batch

KINDS = {
    "one": dict(action_space="discrete", model=dict(action_shape=3)),
    "several": dict(action_space="discrete", model=dict(action_shape=[3, 2])),
    "box": dict(action_space="continuous", model=dict(action_shape=2, sigma_type="conditioned")),
}


def make_policy(dtype: torch.dtype = torch.float32, cls: type[PPGPolicy] = PPGPolicy, **changes) -> PPGPolicy:
    phases = dict(learn=dict(aux_freq=2, aux_train_epoch=3, batch_size=8), model=dict(critic_head_layer_num=1))
    changes = deep_merge(phases, changes)
    torch.manual_seed(0)
    sizes = {"action_shape": 3, **SMALL, **changes["model"]}
    model = PPG(3, **sizes, action_space=changes.get("action_space", "discrete"), orthogonal_init=False)
    return on_policy.make_policy(cls, network=model.to(dtype), **changes)


def aux_batch(policy, rows: int = 16, *, is_masked: bool = False) -> TransitionBatch:
    """Return rows of an auxiliary phase whose policy was another one at the beginning."""
    batch = make_batch(policy, rows, is_masked=is_masked)
    num_outputs = len(policy.get_attribute("model").actor(torch.zeros(1, 3))[0])
    old = np.random.default_rng(1).normal(size=(rows, num_outputs))
    names = [name for name in batch.columns if name.startswith("obs")]
    return batch.select([*names, "return_", "value"]).with_columns(old_output=old.astype(np.float32))


def kl_of(kind: str, old: torch.Tensor, new: torch.Tensor, legal: list[int]) -> float:
    """Return KL(old, new) of one row's outputs [P], by torch's own distributions."""
    if kind == "box":
        pair = [Normal(output[:2], output[2:].exp()) for output in (old, new)]
        return float(kl_divergence(*pair).sum())
    factors = [legal] if kind == "one" else [[0, 1, 2], [3, 4]]
    return sum(float(kl_divergence(Categorical(logits=old[f]), Categorical(logits=new[f]))) for f in factors)


@torch.no_grad()
def slow_aux_loss(policy, batch, kind: str) -> float:
    """Go row by row, as the paper says (algorithm 1)."""
    terms = []
    for row in batch:
        obs = torch.tensor(np.float64(row["obs/board"] if "obs/board" in row else row["obs"]))[None]
        legal = np.flatnonzero(row["obs/action_mask"]).tolist() if "obs/action_mask" in row else [0, 1, 2]
        model, target = policy.get_attribute("model"), float(row["return_"])
        aux = float(model.aux_head(model.actor_encoder(obs)))
        old = torch.tensor(np.float64(row["old_output"]))
        kl = kl_of(kind, old, model.actor(obs)[0], legal)
        value = float(model.critic(obs))
        terms.append(0.5 * (aux - target) ** 2 + policy._cfg.learn.aux_bc_weight * kl + 0.5 * (value - target) ** 2)
    return float(np.mean(terms))


@pytest.mark.parametrize(("kind", "is_masked"), [("one", False), ("one", True), ("several", False), ("box", False)])
def test_the_auxiliary_loss_equals_a_slow_walk_over_rows(kind, is_masked):
    policy = make_policy(torch.float64, learn=dict(aux_bc_weight=0.3), **KINDS[kind])
    batch = aux_batch(policy, is_masked=is_masked)

    info, priority = policy.grad(batch)

    assert float(info["aux_total_loss"]) == pytest.approx(slow_aux_loss(policy, batch, kind), rel=1e-6, abs=1e-6)
    assert priority is None


@pytest.mark.parametrize(("kind", "is_masked"), [("one", True), ("several", False), ("box", False)])
def test_the_auxiliary_gradient_equals_finite_differences(kind, is_masked):
    policy = make_policy(torch.float64, **KINDS[kind])
    batch = aux_batch(policy, is_masked=is_masked)
    policy.grad(batch)

    assert_finite_differences(policy._params, lambda: float(policy.grad(batch)[0]["aux_total_loss"]))


def test_values_are_in_the_critics_unit_where_it_counts_in_deviations():
    plain, scaled = make_policy(), make_policy(learn=dict(value_norm=True))
    batch = aux_batch(plain)
    scaled._returns.now.update(np.array([0.0, 4.0]))  # a deviation of 2

    one = plain.grad(batch.with_columns(return_=batch["return_"] / 2))[0]
    other = scaled.grad(batch)[0]

    assert float(one["aux_value_loss"]) == pytest.approx(float(other["aux_value_loss"]), rel=1e-6)
    assert float(one["value_loss"]) == pytest.approx(float(other["value_loss"]), rel=1e-6)


@pytest.mark.parametrize("backend", ["auto", "autograd"])
def test_in_the_policy_phase_it_is_ppo_and_leaves_the_auxiliary_head_alone(backend):
    policy = make_policy(learn=dict(backend=backend))
    cfg = deep_merge(to_plain(PPOPolicy.default_config()), dict(learn=dict(backend="autograd")))
    cfg["model"] = policy._cfg.model
    batch = make_batch(policy)
    policy.grad(aux_batch(policy))  # leaves a gradient behind, of the auxiliary head too

    info, _ = policy.grad(batch)
    reference = PPOPolicy(cfg, copy.deepcopy(policy.get_attribute("model")))
    expected, _ = reference.grad(batch)

    assert float(info["total_loss"]) == pytest.approx(float(expected["total_loss"]), rel=1e-5)
    gradients = {name: p.grad for name, p in policy.get_attribute("model").named_parameters()}
    for name, parameter in reference.get_attribute("model").named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-4, atol=1e-6)
    assert not any(gradients[name].any() for name in gradients if name.startswith("aux_head"))
    assert (policy._by_hand is None) == (backend == "autograd")


def updates(policy, batch, *, seed: int = 0) -> list[TransitionBatch]:
    """Train on a batch and return its minibatches."""
    seen = []
    for minibatch in policy.minibatches(batch, np.random.default_rng(seed)):
        seen.append(minibatch)
        policy.grad(minibatch)
        policy.apply()
    return seen


def rows_of(minibatches) -> list[list[float]]:
    return sorted(row for minibatch in minibatches for row in np.asarray(minibatch["obs"]).tolist())


def test_after_every_second_batch_all_rows_since_are_learned_from_again():
    policy = make_policy()
    batches = [make_batch(policy, seed=seed) for seed in range(4)]

    for first, second in (batches[:2], batches[2:]):
        assert all("old_output" not in minibatch.columns for minibatch in updates(policy, first))
        seen = updates(policy, second)
        phases = ["old_output" in minibatch.columns for minibatch in seen]
        # 24 rows in 3 minibatches, then 48 in 6, three times.
        assert phases == [False] * 3 + [True] * 18
        for epoch in range(3):
            part = seen[3 + 6 * epoch : 9 + 6 * epoch]
            assert rows_of(part) == rows_of([first, second])
        assert policy._kept.now == ()


def test_the_policy_that_is_kept_is_that_at_the_beginning_of_the_phase():
    policy = make_policy(learn=dict(aux_freq=1))
    outputs = []
    for minibatch in policy.minibatches(make_batch(policy), np.random.default_rng(0)):
        if "old_output" in minibatch.columns:
            if not outputs:
                beginning = copy.deepcopy(policy.get_attribute("model"))
            with torch.no_grad():
                outputs.append(beginning.actor(torch.as_tensor(np.asarray(minibatch["obs"]))))
            np.testing.assert_allclose(np.asarray(minibatch["old_output"]), outputs[-1], rtol=1e-5, atol=1e-6)
        policy.grad(minibatch)
        policy.apply()

    assert len(outputs) == 9


def test_rows_that_wait_are_copies():
    policy = make_policy()
    batch = make_batch(policy)
    before = batch["obs"].copy()

    updates(policy, batch)
    batch["obs"][:] = 7.0

    assert np.array_equal(policy._kept.now[0]["obs"], before)
    assert set(policy._kept.now[0].columns) == {"obs", "value", "return_"}


def test_a_batch_of_a_buffer_is_one_update_and_waits_for_the_phase_of_every_second():
    policy = make_policy(cls=PPGOffPolicy)
    batches = [make_batch(policy, seed=seed) for seed in range(4)]

    for first, second in (batches[:2], batches[2:]):
        assert rows_of(updates(policy, first)) == rows_of([first])
        seen = updates(policy, second)
        assert ["old_output" in minibatch.columns for minibatch in seen] == [False] + [True] * 18
        assert rows_of(seen[:1]) == rows_of([second])
        for epoch in range(3):
            assert rows_of(seen[1 + 6 * epoch : 7 + 6 * epoch]) == rows_of([first, second])


def test_from_a_buffer_both_losses_equal_slow_walks_over_rows():
    policy = make_policy(torch.float64, PPGOffPolicy, learn=dict(batch_size=48, aux_freq=1, entropy_weight=0.1))
    cfg = deep_merge(to_plain(PPOOffPolicy.default_config()), dict(learn=dict(batch_size=48, entropy_weight=0.1)))
    cfg["model"] = policy._cfg.model
    # Held to its own slow walk by tests/policy/test_ppo.py.
    reference = PPOOffPolicy(cfg, copy.deepcopy(policy.get_attribute("model")))
    batch = make_batch(policy)
    minibatches = policy.minibatches(batch, np.random.default_rng(0))

    info, _ = policy.grad(next(minibatches))
    expected, _ = reference.grad(next(reference.minibatches(batch, np.random.default_rng(0))))
    assert float(info["total_loss"]) == pytest.approx(float(expected["total_loss"]), rel=1e-6)
    policy.apply()
    for aux in minibatches:
        slow = slow_aux_loss(policy, aux, "one")  # the KL is 0 at first, and grows with each epoch
        assert float(policy.grad(aux)[0]["aux_total_loss"]) == pytest.approx(slow, rel=1e-6)
        policy.apply()
