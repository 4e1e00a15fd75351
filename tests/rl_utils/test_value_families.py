"""Families of values beside slow versions: losses, targets, expectations; temporal differences and soft values."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Categorical

from ding_like.errors import ConfigError, SchemaError
from ding_like.model.q_networks import FractionProposal
from ding_like.rl_utils.td import entropy_of, legal_value, log_softmax, nstep_td_target, soft_value
from ding_like.rl_utils.value_family import (
    CategoricalValue,
    ImplicitQuantiles,
    ProposedQuantiles,
    Quantiles,
    QuantileValue,
    RescaledValue,
    ScalarValue,
    asymmetric_huber,
    fraction_gradient,
    fraction_loss,
    quantile_huber,
    quantile_huber_by_hand,
    quantile_huber_loss,
    value_rescale,
    value_unscale,
    weighted_mean,
)
from tests.rl_utils.slow_families import SlowCategorical, SlowQuantiles, SlowScalar

ROWS, ACTIONS, NUM, ATOMS = 6, 3, 6, 7
SUPPORT = [-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0]
C51 = CategoricalValue(-3.0, 3.0, ATOMS)
# Any: of each family its own.
FAMILIES: dict[str, tuple[Any, Any]] = {
    "mse": (ScalarValue("mse"), SlowScalar("mse")),
    "huber": (ScalarValue("huber"), SlowScalar("huber")),
    "huber 0.3": (ScalarValue("huber", delta=0.3), SlowScalar("huber", 0.3)),
    "categorical": (C51, SlowCategorical(SUPPORT)),
    **{f"quantiles {kappa}": (QuantileValue(NUM, kappa=kappa), SlowQuantiles(NUM, kappa)) for kappa in (1.0, 0.3, 2.5)},
}
EACH = pytest.mark.parametrize("name", FAMILIES)
ONE_OF_EACH = pytest.mark.parametrize("name", ["mse", "categorical", "quantiles 1.0"])


def drawn(name: str, dtype: torch.dtype = torch.float64, *, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return (predictions [B, A, ...], actions, targets [B, ...], weights), errors on both sides of every corner."""
    rng = np.random.default_rng(seed)
    shape = {"c": (ATOMS,), "q": (NUM,)}.get(name[0], ())
    predictions, target = 2.0 * rng.normal(size=(ROWS, ACTIONS, *shape)), 2.0 * rng.normal(size=(ROWS, *shape))
    if name == "categorical":
        target = rng.dirichlet(np.full(ATOMS, 0.3), ROWS)
        target[0] = np.eye(ATOMS)[2]
    elif shape:  # far from 0, where squares lose digits
        predictions, target = predictions + 20.0, target + 20.0
    action, weight = rng.integers(0, ACTIONS, ROWS), rng.uniform(0.1, 2.0, ROWS)
    made = [torch.from_numpy(array) for array in (predictions, action, target, weight)]
    return made[0].to(dtype), made[1], made[2].to(dtype), made[3].to(dtype)


def loss_of(family: Any, predictions: Tensor, action: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    return weighted_mean(family.loss(family.of_action(predictions, action), target).loss, weight)


@EACH
def test_loss_and_priority_equal_a_slow_walk(name: str) -> None:
    family, slow = FAMILIES[name]
    for seed in range(2):
        predictions, action, target, weight = drawn(name, seed=seed)

        each = family.loss(family.of_action(predictions.requires_grad_(), action), target)

        expected = [slow.compare(predictions[b, action[b]].detach(), target[b].tolist()) for b in range(ROWS)]
        losses = [float(loss) for loss, _ in expected]
        assert each.loss.tolist() == pytest.approx(losses, abs=1e-6)
        assert each.priority.tolist() == pytest.approx([priority for _, priority in expected], abs=1e-6)
        assert not each.priority.requires_grad
        mean = sum(float(w) * loss for w, loss in zip(weight, losses, strict=True)) / ROWS
        assert float(loss_of(family, predictions, action, target, weight).detach()) == pytest.approx(mean, abs=1e-6)


@EACH
def test_gradients_equal_finite_differences_and_none_reaches_the_target(name: str) -> None:
    family, (predictions, action, target, weight) = FAMILIES[name][0], drawn(name)
    target.requires_grad_()

    assert torch.autograd.gradcheck(lambda x: loss_of(family, x, action, target, weight), predictions.requires_grad_())
    loss_of(family, predictions, action, target, None).backward()  # type: ignore[no-untyped-call]  # torch has no types
    assert target.grad is None


@pytest.mark.parametrize("is_weighted", [False, True])
@EACH
def test_the_loss_by_hand_is_that_of_autograd(name: str, is_weighted: bool) -> None:
    family, (predictions, action, target, weight) = FAMILIES[name][0], drawn(name, torch.float32, seed=1)
    own = weight if is_weighted else None
    leaf = predictions.clone().requires_grad_()
    loss = loss_of(family, leaf, action, target, own)
    loss.backward()  # type: ignore[no-untyped-call]  # torch gives it no types
    assert leaf.grad is not None

    by_hand = family.loss_by_hand(
        predictions.numpy(), action.numpy(), target.numpy(), weight=None if own is None else own.numpy()
    )

    assert by_hand.loss == pytest.approx(float(loss.detach()), rel=1e-6)
    np.testing.assert_allclose(by_hand.grad, leaf.grad.numpy(), rtol=1e-5, atol=1e-7 if leaf.ndim == 2 else 1e-6)
    assert (by_hand.grad.dtype, by_hand.priority.dtype) == (np.float32, np.float32)
    priority = family.loss(family.of_action(predictions, action), target).priority
    np.testing.assert_allclose(by_hand.priority, priority.numpy(), rtol=1e-6, atol=1e-5)


@ONE_OF_EACH
def test_a_target_is_that_of_the_slow_walk_and_after_an_end_the_reward_whatever_follows(name: str) -> None:
    family, slow = FAMILIES[name]
    following = drawn(name, torch.float32)[2]
    rng = np.random.default_rng(0)
    reward, terminated = 3.0 * rng.normal(size=ROWS).astype(np.float32), np.arange(ROWS) % 2 == 1
    following[1] = torch.nan
    for discount in (0.5, rng.uniform(0.0, 1.0, ROWS).astype(np.float32)):
        target = family.backup(
            torch.from_numpy(reward),
            following,
            discount=discount if isinstance(discount, float) else torch.from_numpy(discount),
            terminated=torch.from_numpy(terminated),
        )
        by_hand = family.backup_by_hand(reward, following.numpy(), discount=discount, terminated=terminated)

        assert np.array_equal(by_hand, target.numpy()) and by_hand.dtype == np.float32
        for row, factor in enumerate(np.broadcast_to(discount, ROWS).tolist()):
            after = None if terminated[row] else following[row].tolist()
            assert target[row].tolist() == pytest.approx(slow.target(after, float(reward[row]), factor), abs=1e-5)


def test_returns_at_and_beyond_atoms_are_placed_on_the_support() -> None:
    even = torch.full((1, ATOMS), 1.0 / ATOMS)
    placed = [(atom, place, True) for place, atom in enumerate(SUPPORT)]
    placed += [
        (end, place, is_end) for end, place in ((99.0, 6), (-99.0, 0), (math.inf, 6)) for is_end in (True, False)
    ]
    for reward, place, terminated in placed:
        target = C51.backup(torch.tensor([reward]), even, discount=1.0, terminated=torch.tensor([terminated]))[0]
        assert target.tolist() == pytest.approx(np.eye(ATOMS)[place].tolist(), abs=1e-6) and target.min() >= 0.0


@EACH
def test_what_is_expected_is_the_mean(name: str) -> None:
    family, (predictions, _, target, _) = FAMILIES[name][0], drawn(name, torch.float32)
    expected, of_target = predictions, target
    if name == "categorical":
        atoms = torch.tensor(SUPPORT)
        expected, of_target = (predictions.softmax(-1) * atoms).sum(-1), (target * atoms).sum(-1)
    elif predictions.ndim == 3:
        expected, of_target = predictions.mean(-1), target.mean(-1)

    torch.testing.assert_close(family.expected(predictions), expected)
    np.testing.assert_allclose(family.expected_by_hand(predictions.numpy()), expected.numpy(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(family.expected_target(target), of_target)


@ONE_OF_EACH
def test_the_best_legal_action_by_the_judge_is_the_next_value(name: str) -> None:
    family, predictions = FAMILIES[name][0], drawn(name)[0][:3]
    judge = torch.tensor([[1.0, 3.0, 2.0]] * 3, dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1], [1, 0, 1], [0, 0, 0]])
    said = predictions.softmax(-1) if name == "categorical" else predictions

    best = family.of_best(predictions, judge, mask)

    torch.testing.assert_close(best[:2], torch.stack([said[0, 1], said[1, 2]]))
    nothing = {"categorical": [0.0, 0, 0, 1, 0, 0, 0], "mse": 0.0}.get(name, [0.0] * NUM)  # nothing follows: 0
    assert best[2].tolist() == pytest.approx(nothing)
    torch.testing.assert_close(family.of_best(predictions, judge, None), said[:, 1])
    torch.testing.assert_close(family.of_best(predictions, judge, mask.numpy()), best)


@EACH
def test_what_is_not_finite_has_a_loss_that_is_not(name: str) -> None:
    family, (predictions, action, target, _) = FAMILIES[name][0], drawn(name, torch.float32)
    for bad in (math.nan, math.inf):
        predictions[2, action[2]] = bad
        assert not np.isfinite(
            family.loss_by_hand(predictions.numpy(), action.numpy(), target.numpy(), weight=None).loss
        )


@EACH
def test_shapes_that_would_broadcast_are_refused(name: str) -> None:
    family, (predictions, action, target, weight) = FAMILIES[name][0], drawn(name)

    with pytest.raises(SchemaError, match=rf"action has shape \({ROWS}, 1\), expected \({ROWS},\)"):
        family.of_action(predictions, action[:, None])
    with pytest.raises(SchemaError, match="target has shape"):
        family.loss(family.of_action(predictions, action), target.unsqueeze(-1) if target.ndim == 1 else target[:, :1])
    with pytest.raises(SchemaError, match="weight has shape"):
        loss_of(family, predictions, action, target, weight[:, None])


@pytest.mark.parametrize(
    ("cls", "arguments", "message"),
    [
        (ScalarValue, ("l3",), "'l3'; expected 'huber' or 'mse'"),
        (CategoricalValue, (0.0, 1.0, 1), "n_atom is 1"),
        (CategoricalValue, (0.0, 1.0, 2.5), "n_atom is 2.5"),
        (CategoricalValue, (1.0, 1.0, 51), "v_min is 1.0 and v_max is 1.0"),
        (CategoricalValue, (0.0, math.inf, 51), "v_max is inf"),
        (QuantileValue, (0,), "num_quantiles is 0"),
        (QuantileValue, (2.5,), "num_quantiles is 2.5"),
    ],
)
def test_settings_that_make_no_loss_are_refused(cls: Any, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        cls(*arguments)
    for kappa in (0.0, math.nan):
        with pytest.raises(ConfigError, match=f"kappa is {kappa}"):
            QuantileValue(8, kappa=kappa)


def test_worked_examples() -> None:
    # Errors 0.5 and 3: huber with delta 1 gives 0.125 and 3 - 0.5.
    each = ScalarValue("huber").loss(torch.tensor([0.5, 3.0]), torch.zeros(2))
    assert (each.loss.tolist(), each.priority.tolist()) == ([0.125, 2.5], [0.5, 3.0])
    # Quantiles 0 and 3 (tau 1/4, 3/4), both targets 1, kappa 1: u = 1 costs 1/4 * 1/2, u = -2 costs 1/4 * 3/2.
    loss = QuantileValue(2).loss(torch.tensor([[0.0, 3.0]]), torch.tensor([[1.0, 1.0]])).loss
    assert float(loss) == pytest.approx(0.5)
    # Two rows, mse: slopes 2, 4 times weights 0.5, 0.25 over 2 rows are 0.5, 0.5; loss (0.5 * 1 + 0.25 * 4) / 2.
    q, weight = np.array([[1.0, 0.0], [0.0, 2.0]], np.float32), np.array([0.5, 0.25], np.float32)
    by_hand = ScalarValue("mse").loss_by_hand(q, np.array([0, 1]), np.zeros(2, np.float32), weight=weight)
    assert (by_hand.loss, by_hand.priority.tolist()) == (0.75, [1.0, 2.0])
    assert by_hand.grad.tolist() == [[0.5, 0.0], [0.0, 0.5]]
    # A team's actions are read agent by agent.
    chosen = ScalarValue("mse").of_action(torch.arange(12.0).view(2, 3, 2), torch.tensor([[0, 1, 0], [1, 1, 0]]))
    assert chosen.tolist() == [[0.0, 3.0, 4.0], [7.0, 9.0, 10.0]]


def test_no_priority_is_below_zero_where_the_prediction_is_right() -> None:
    target = np.random.default_rng(0).dirichlet(np.ones(ATOMS), 1000).astype(np.float32)
    logits = np.log(target)[:, None]

    by_hand = C51.loss_by_hand(logits, np.zeros(1000, int), target, weight=None).priority
    by_tensors = C51.loss(torch.from_numpy(logits[:, 0]), torch.from_numpy(target)).priority.numpy()

    for priority in (by_hand, by_tensors):
        assert 0.0 <= priority.min() and priority.max() < 1e-5


def test_huge_logits_have_a_loss() -> None:
    logits = np.array([[[1e4, 0.0, 0, 0, 0, 0, 0]]], np.float32)
    target = np.eye(ATOMS, dtype=np.float32)[None, 1]

    assert float(C51.loss(torch.from_numpy(logits[:, 0]), torch.from_numpy(target)).loss) == pytest.approx(1e4)
    assert C51.loss_by_hand(logits, np.zeros(1, int), target, weight=None).loss == pytest.approx(1e4)


@pytest.mark.parametrize(("num", "kappa"), [(1, 1.0), (2, 0.3), (33, 2.5)])
def test_sums_over_sorted_targets_are_sums_over_pairs(num: int, kappa: float) -> None:
    rng = np.random.default_rng(num)
    theta, target = 500.0 + 3.0 * rng.normal(size=(2, ROWS, num))
    target[0] = theta[0]  # every error 0 somewhere
    target[1] = theta[1] + kappa  # and exactly kappa
    leaf = torch.from_numpy(theta.copy()).requires_grad_()
    expected = QuantileValue(num, kappa=kappa).loss(leaf, torch.from_numpy(target)).loss
    expected.sum().backward()  # type: ignore[no-untyped-call]  # torch gives it no types
    assert leaf.grad is not None

    each, slope = quantile_huber(theta, target, tau=(np.arange(num) + 0.5) / num, kappa=kappa)

    np.testing.assert_allclose(each, expected.detach().numpy(), atol=1e-9)
    np.testing.assert_allclose(slope, leaf.grad.numpy(), atol=1e-9)


def test_each_row_may_have_another_number_of_targets_than_of_quantiles() -> None:
    rng = np.random.default_rng(0)
    theta, target = rng.normal(size=(ROWS, 3)), 2.0 * rng.normal(size=(ROWS, 5))
    leaf, tau = torch.from_numpy(theta.copy()).requires_grad_(), (torch.arange(3) + 0.5) / 3
    pairs = asymmetric_huber(torch.from_numpy(target)[:, None] - leaf[:, :, None], tau[:, None], kappa=1.0)
    expected = pairs.mean(dim=2).sum(dim=1)
    expected.sum().backward()  # type: ignore[no-untyped-call]  # torch gives it no types
    assert leaf.grad is not None

    each, slope = quantile_huber(theta, target, tau=tau.numpy(), kappa=1.0)

    np.testing.assert_allclose(each, expected.detach().numpy(), atol=1e-6)
    np.testing.assert_allclose(slope, leaf.grad.numpy(), atol=1e-6)


def test_rescaled_values_are_those_of_the_paper_and_targets_are_backed_up_on_the_scale_of_returns() -> None:
    x = torch.tensor([-8.0, -0.5, 0.0, 3.0, 100.0], dtype=torch.float64)
    expected = [math.copysign(math.sqrt(abs(v) + 1) - 1, v) + 1e-2 * v for v in x.tolist()]
    torch.testing.assert_close(value_rescale(x, 1e-2), torch.tensor(expected, dtype=torch.float64))
    reward, next_value = torch.tensor([1.0, 1.0]), value_rescale(torch.tensor([10.0, 10.0]))

    target = RescaledValue().backup(reward, next_value, discount=0.5, terminated=torch.tensor([False, True]))

    torch.testing.assert_close(target, value_rescale(torch.tensor([6.0, 1.0])))


@pytest.mark.parametrize("eps", [1e-3, 1e-2])
def test_unscaling_is_the_inverse_over_many_orders_of_magnitude(eps: float) -> None:
    size = torch.logspace(-6, 6, 200, dtype=torch.float64)
    x = torch.cat([-size, torch.zeros(1, dtype=torch.float64), size])
    torch.testing.assert_close(value_unscale(value_rescale(x, eps), eps), x, rtol=1e-9, atol=1e-12)

    small = torch.linspace(-3, 3, 301)  # float32 keeps its digits
    torch.testing.assert_close(value_unscale(value_rescale(small)), small, rtol=1e-6, atol=1e-6)


def test_target_bootstraps_unless_terminated():
    # 1 + 0.5 * 4 = 3; the terminated row keeps its reward, whatever its next value is.
    reward, next_value = torch.tensor([1.0, 1.0]), torch.tensor([4.0, float("nan")])

    target = nstep_td_target(
        reward, next_value, discount=torch.tensor([0.5, 0.5]), terminated=torch.tensor([False, True])
    )

    assert target.tolist() == [3.0, 1.0]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 9), st.integers(1, 5))
def test_double_q_learning_reads_the_target_network_at_the_online_choice(seed, num_rows, num_actions):
    online, target = torch.from_numpy(np.random.default_rng(seed).normal(size=(2, num_rows, num_actions)))

    result = legal_value(online, target, None)

    expected = [target[i][online[i].tolist().index(max(online[i].tolist()))].item() for i in range(num_rows)]
    assert result.tolist() == expected


ALPHA = 0.3


def draw(rows: int = 6, actions: int = 4) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return logits, values and masks [B, A]; every row allows at least one action."""
    generator = torch.Generator().manual_seed(0)
    logit, q = (torch.randn(rows, actions, generator=generator, dtype=torch.float64) for _ in range(2))
    mask = torch.rand(rows, actions, generator=generator) < 0.5
    mask[:, 1] = True
    return logit, q, mask


def test_the_worked_example():
    log_pi = torch.tensor([[0.5, 0.5]]).log()

    assert float(soft_value(log_pi, torch.tensor([[1.0, 3.0]]), alpha=0.1)) == pytest.approx(2 + 0.1 * math.log(2))


@pytest.mark.parametrize("is_masked", [False, True])
def test_values_and_entropies_equal_a_slow_walk_over_rows_and_legal_actions(is_masked):
    logit, q, mask = draw()
    log_pi = log_softmax(logit, mask if is_masked else None)

    values, entropies = soft_value(log_pi, q, alpha=ALPHA), entropy_of(log_pi)

    for row in range(len(logit)):
        legal = [a for a in range(4) if mask[row, a] or not is_masked]
        pi = Categorical(logits=logit[row, legal])
        expected = sum(
            float(pi.probs[i]) * (float(q[row, a]) - ALPHA * math.log(float(pi.probs[i]))) for i, a in enumerate(legal)
        )
        assert float(values[row]) == pytest.approx(expected, abs=1e-9)
        assert float(entropies[row]) == pytest.approx(float(pi.entropy()), abs=1e-9)


def test_gradients_equal_finite_differences():
    logit, q, mask = draw()
    logit.requires_grad_()

    assert torch.autograd.gradcheck(lambda x: soft_value(log_softmax(x, None), q, alpha=ALPHA), logit)
    assert torch.autograd.gradcheck(lambda x: soft_value(log_softmax(x, mask), q, alpha=ALPHA), logit)
    assert torch.autograd.gradcheck(lambda x: entropy_of(log_softmax(x, mask)), logit)


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_what_is_forbidden_changes_nothing_whatever_its_value(bad):
    logit, q, mask = draw()
    logit.requires_grad_()
    other = q.masked_fill(~mask, bad)

    value = soft_value(log_softmax(logit, mask), other, alpha=ALPHA)
    (gradient,) = torch.autograd.grad(value.sum(), logit)

    assert torch.equal(value, soft_value(log_softmax(logit, mask), q, alpha=ALPHA))
    assert gradient.isfinite().all() and not gradient[~mask].any() and gradient[mask].any()


def test_a_mask_may_be_of_numbers_and_in_another_shape():
    logit, _, mask = draw()

    assert torch.equal(log_softmax(logit, mask.to(torch.int8).reshape(6, 2, 2)), log_softmax(logit, mask))


def test_a_policy_that_is_certain_has_a_finite_value():
    value = soft_value(log_softmax(torch.tensor([[1000.0, -1000.0]]), None), torch.tensor([[2.0, 5.0]]), alpha=1.0)

    assert value.item() == 2.0


PAIR_ROWS, PAIR_ACTIONS, N, M = 7, 3, 5, 4


def draw_pairs(seed: int = 0, *, weighted: bool = False) -> tuple[Quantiles, Quantiles]:
    """Return float64 quantiles of chosen actions [B, N], and of targets [B, M]."""
    rng = np.random.default_rng(seed)
    made = []
    for number in (N, M):
        weights = rng.dirichlet(np.ones(number), PAIR_ROWS) if weighted else np.full((1, number), 1.0 / number)
        made.append(
            Quantiles(
                *map(
                    torch.from_numpy,
                    (2.0 * rng.normal(size=(PAIR_ROWS, number)), rng.random((PAIR_ROWS, number)), weights),
                )
            )
        )
    return made[0], made[1]


def slow_implicit_loss(chosen: Quantiles, target: Quantiles, kappa: float) -> list[float]:
    """Compare each predicted quantile with each target, number by number."""
    losses = []
    for row in range(PAIR_ROWS):
        total = 0.0
        for value, tau in zip(chosen.values[row].tolist(), chosen.fractions[row].tolist(), strict=True):
            weights = target.weights.expand(PAIR_ROWS, -1)[row].tolist()
            for goal, weight in zip(target.values[row].tolist(), weights, strict=True):
                error = goal - value
                huber = 0.5 * error**2 if abs(error) <= kappa else kappa * (abs(error) - 0.5 * kappa)
                total += weight * abs(tau - (1.0 if error < 0 else 0.0)) * huber / kappa
        losses.append(total)
    return losses


@pytest.mark.parametrize(("kappa", "weighted"), [(0.3, True), (1.0, False), (10.0, True)])
def test_the_loss_equals_a_slow_walk_over_pairs(kappa: float, weighted: bool) -> None:
    chosen, target = draw_pairs(weighted=weighted)

    each = quantile_huber_loss(chosen, target, kappa=kappa)

    np.testing.assert_allclose(each.numpy(), slow_implicit_loss(chosen, target, kappa), rtol=1e-12)


def test_the_gradient_equals_finite_differences() -> None:
    chosen, target = draw_pairs(weighted=True)
    values = chosen.values.clone().requires_grad_()

    assert torch.autograd.gradcheck(
        lambda x: quantile_huber_loss(chosen._replace(values=x), target, kappa=0.3).sum(), values
    )


@pytest.mark.parametrize(("kappa", "weighted"), [(0.3, True), (1.0, False)])
def test_by_hand_loss_and_gradient_are_those_of_autograd(kappa: float, weighted: bool) -> None:
    chosen, target = draw_pairs(weighted=weighted)
    values = chosen.values.clone().requires_grad_()
    each = quantile_huber_loss(chosen._replace(values=values), target, kappa=kappa)
    each.sum().backward()

    arrays = (chosen.values, chosen.fractions, target.values, target.weights)
    own, slope = quantile_huber_by_hand(*(array.numpy() for array in arrays), kappa=kappa)

    np.testing.assert_allclose(own, each.detach().numpy(), rtol=1e-12)
    np.testing.assert_allclose(slope, values.grad.numpy(), rtol=1e-12)  # type: ignore[union-attr]


class Model:
    """Model with fixed quantiles: of action a at a fraction t, 10 a + t."""

    def midpoints(self) -> Tensor:
        return torch.tensor([[0.25, 0.75]])

    def quantiles(self, obs: Any, fractions: Tensor) -> Tensor:
        return (10.0 * torch.arange(PAIR_ACTIONS)[:, None] + fractions[:, None]).expand(len(obs), -1, -1)


def test_the_best_legal_action_is_taken_and_none_is_worth_nothing() -> None:
    family = ImplicitQuantiles()
    prediction = family.predict(Model(), torch.zeros(4, 1))
    judge = torch.tensor([[0.0, 2.0, 1.0]] * 4)
    mask = torch.tensor([[1, 1, 1], [1, 0, 1], [1, 0, 0], [0, 0, 0]])

    best = family.of_best(prediction, judge, mask)

    assert best.values.tolist() == [[10.25, 10.75], [20.25, 20.75], [0.25, 0.75], [0.0, 0.0]]
    assert family.of_best(prediction, judge, None).values.tolist() == [[10.25, 10.75]] * 4


def test_a_step_of_reward_shifts_and_shrinks_quantiles_and_an_end_leaves_the_reward() -> None:
    family = ImplicitQuantiles()
    after = Quantiles(
        torch.tensor([[1.0, 2.0], [3.0, torch.nan]]), torch.tensor([[0.25, 0.75]]), torch.full((1, 2), 0.5)
    )

    target = family.backup(
        torch.tensor([10.0, 20.0]), after, discount=torch.tensor([0.5, 0.9]), terminated=torch.tensor([False, True])
    )

    assert target.values.tolist() == [[10.5, 11.0], [20.0, 20.0]]
    assert family.expected_target(target).tolist() == [10.75, 20.0]


def test_a_kappa_not_above_0_and_shapes_that_would_broadcast_are_refused() -> None:
    with pytest.raises(ConfigError, match="kappa"):
        ImplicitQuantiles(kappa=0.0)
    family, (chosen, target) = ImplicitQuantiles(), draw_pairs()
    with pytest.raises(SchemaError, match="target"):
        family.loss(chosen, target._replace(values=target.values[:1]))
    with pytest.raises(SchemaError, match="action"):
        family.of_action(family.predict(Model(), torch.zeros(4, 1)), torch.zeros(4, 1, dtype=torch.int64))


# ---- fractions


def quantile_function(fraction: Tensor) -> Tensor:
    """Be a quantile function, which nowhere decreases: of a distribution with a long tail to the right."""
    return 5.0 * fraction**8 + fraction


def wasserstein(bounds: Tensor) -> float:
    """Return the 1-Wasserstein error of parts with these inner bounds [N - 1], by the midpoint rule."""
    edges = [0.0, *bounds.tolist(), 1.0]
    total = 0.0
    for low, high in pairwise(edges):
        width = (high - low) / 20_000
        inside = low + width * (torch.arange(20_000, dtype=torch.float64) + 0.5)
        middle = quantile_function(torch.tensor(0.5 * (low + high), dtype=torch.float64))
        total += float((quantile_function(inside) - middle).abs().sum()) * width
    return total


def test_the_closed_form_is_the_derivative_of_the_wasserstein_error() -> None:
    bounds = torch.tensor([0.12, 0.35, 0.5, 0.81], dtype=torch.float64)
    edges = torch.cat([torch.zeros(1), bounds, torch.ones(1)]).double()
    middles = 0.5 * (edges[1:] + edges[:-1])

    slope = fraction_gradient(quantile_function(bounds)[None], quantile_function(middles)[None])[0]

    step = 1e-4
    for i in range(len(bounds)):
        ends = []
        for sign in (1, -1):
            moved = bounds.clone()
            moved[i] += sign * step
            ends.append(wasserstein(moved))
        assert float(slope[i]) == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-3)


def test_the_fraction_loss_has_the_given_slope_and_the_entropys() -> None:
    torch.manual_seed(0)
    logits, slope = torch.randn(PAIR_ROWS, N, dtype=torch.float64), torch.randn(PAIR_ROWS, N - 1, dtype=torch.float64)

    def loss(logits: Tensor) -> Tensor:
        widths = logits.softmax(-1)
        entropy = -(widths * widths.log()).sum(-1)
        return fraction_loss(widths.cumsum(-1)[:, :-1], slope, entropy, entropy_weight=0.3).sum()

    def slow(logits: Tensor) -> float:
        """Return the sum over bounds of slope times bound, less the bonus, number by number."""
        total = 0.0
        for row in range(PAIR_ROWS):
            widths = torch.exp(logits[row]) / torch.exp(logits[row]).sum()
            for i in range(N - 1):
                total += float(slope[row, i] * widths[: i + 1].sum())
            total += 0.3 * sum(float(width * torch.log(width)) for width in widths)
        return total

    leaf = logits.clone().requires_grad_()
    value = loss(leaf)
    value.backward()

    assert float(value.detach()) == pytest.approx(slow(logits), rel=1e-12)
    step = 1e-6
    for row, i in np.ndindex(2, N):
        ends = []
        for sign in (1, -1):
            moved = logits.clone()
            moved[row, i] += sign * step
            ends.append(slow(moved))
        assert leaf.grad is not None
        assert float(leaf.grad[row, i]) == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-6, abs=1e-8)


class Proposing:
    def predict(self, obs: Any) -> tuple[Tensor, Any]:
        parts = FractionProposal(1, 2)
        torch.nn.init.constant_(parts.linear.bias[1], float(np.log(3.0)))  # parts of 1/4 and 3/4
        torch.nn.init.zeros_(parts.linear.weight)
        return torch.tensor([[[4.0, 8.0], [0.0, 4.0]]]), parts(obs)


def test_a_proposed_quantile_counts_as_its_part_is_wide() -> None:
    family = ProposedQuantiles()

    prediction = family.predict(Proposing(), torch.ones(1, 1))

    torch.testing.assert_close(family.expected(prediction), torch.tensor([[7.0, 3.0]]))
    torch.testing.assert_close(prediction.fractions, torch.tensor([[0.125, 0.625]]))
