"""R2D2's loss, gradient, priorities and rows, each against a slow walk over rows and steps."""

from __future__ import annotations

import copy
import math
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.config import deep_merge, to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.data.rollout import Rollout
from ding_like.policy import get_policy_cls
from ding_like.policy.r2d2 import R2D2Policy
from ding_like.policy.rows import SequenceRows, SequenceShape
from tests.policy.differences import assert_finite_differences

LANES, OBS, ACTIONS, GAMMA = 3, 2, 3, 0.9
MODEL = dict(obs_shape=OBS, action_shape=ACTIONS, encoder_hidden_size_list=[6])


def make_policy(name: str = "r2d2", **changes: Any) -> R2D2Policy:
    torch.manual_seed(0)
    cls = get_policy_cls({"type": name})
    own = dict(model=MODEL, discount_factor=GAMMA, burnin_step=2, learn_unroll_len=4, nstep=3)
    policy = cls(deep_merge(deep_merge(to_plain(cls.default_config()), own), changes))
    assert isinstance(policy, R2D2Policy)
    # A target network of its own, so that mixing up the two shows.
    with torch.no_grad():
        policy._target_params.data_vector.add_(0.3 * torch.randn_like(policy._target_params.data_vector))
    return policy


def in_float64(policy: R2D2Policy) -> R2D2Policy:
    for model, params in (
        (policy.get_attribute("model"), policy._params),
        (policy._target_model, policy._target_params),
    ):
        model.double()
        params.rebuild()
    return policy


def make_rollout(policy: R2D2Policy, *, seed: int = 0, steps: int = 30, with_mask: bool = False) -> Rollout:
    """Return a rollout of random steps, with states that no network gave."""
    rng, rollout = np.random.default_rng(seed), Rollout(LANES)
    states = {name: value.shape for name, value in policy.get_attribute("model").initial_state.items()}
    for _ in range(steps):
        ended = rng.random((2, LANES)) < 0.1
        row: dict[str, Any] = {}
        for prefix in ("obs", "next_obs"):
            vector = rng.normal(size=(LANES, OBS)).astype(np.float32)
            mask = rng.random((LANES, ACTIONS)) < 0.6
            mask[:, 0] |= ~mask.any(axis=1)
            row |= {f"{prefix}/board": vector, f"{prefix}/action_mask": mask} if with_mask else {prefix: vector}
        rollout.append(
            {
                **row,
                **{f"state/{name}": rng.normal(size=(LANES, *shape)) for name, shape in states.items()},
                "action": rng.integers(0, ACTIONS, LANES),
                "lane": np.arange(LANES),
                "reward": rng.normal(size=LANES),
                "terminated": ended[0],
                "truncated": ended[1] & ~ended[0],
            }
        )
    return rollout


def h(x: float) -> float:
    return math.copysign(math.sqrt(abs(x) + 1) - 1, x) + 1e-3 * x


def h_inverse(x: float) -> float:
    return math.copysign(((math.sqrt(1 + 4e-3 * (abs(x) + 1 + 1e-3)) - 1) / 2e-3) ** 2 - 1, x)


def unroll(model: Any, raw: Any, *, burn_in: int, frozen: Any) -> list[torch.Tensor]:
    """Return the values [A] of each observation of a row, step by step; burn-in is `frozen`'s, without a gradient."""
    obs = raw["obs/board"] if "obs/board" in raw else raw["obs"]
    state = {name: torch.tensor(raw[f"state/{name}"][None]).double() for name in model.initial_state}
    values = []
    for t in range(int(raw["num_steps"]) + 1):
        burns = t < burn_in and not raw["mask"][0]
        one = torch.tensor(obs[t]).double().view(1, 1, -1)
        with torch.no_grad() if burns else nullcontext():
            q, state = (frozen if burns else model).run(one, state)
        values.append(q[0, 0])
    return values


def slow_row(policy: R2D2Policy, raw: Any, frozen: Any) -> tuple[torch.Tensor, list[float]]:
    """Return (loss, absolute errors of the steps that are learned from) of one row, as the paper says.

    Targets and burn-in are made with the weights of `frozen`.
    """
    cfg, last = policy._cfg, int(raw["num_steps"])
    squeeze, stretch = (h, h_inverse) if cfg.learn.value_rescale else (float, float)
    live = unroll(policy.get_attribute("model"), raw, burn_in=cfg.burnin_step, frozen=frozen)
    with torch.no_grad():
        online = unroll(frozen, raw, burn_in=0, frozen=frozen)
        target = unroll(policy._target_model, raw, burn_in=0, frozen=policy._target_model)
    loss, errors = torch.zeros((), dtype=torch.float64), []
    for t in range(last):
        if not raw["mask"][t]:
            continue
        end = min(t + cfg.nstep, last)
        value = sum(GAMMA ** (i - t) * float(raw["reward"][i]) for i in range(t, end))
        if cfg.learn.ignore_done or not raw["terminated"][end - 1]:
            judge = (online if cfg.double else target)[end].clone()
            if "obs/action_mask" in raw:
                judge[torch.tensor(raw["obs/action_mask"][end] == 0)] = -torch.inf
            value += GAMMA ** (end - t) * stretch(float(target[end][int(judge.argmax())]))
        error = live[t][int(raw["action"][t])] - squeeze(value)
        errors.append(abs(float(error.detach())))
        if cfg.learn.loss == "huber":
            loss = loss + (0.5 * error**2 if errors[-1] <= 1 else errors[-1] - 0.5 + error * 0.0)
        else:
            loss = loss + error**2
    return loss / cfg.learn_unroll_len, errors


def slow_loss(policy: R2D2Policy, raw: TransitionBatch, *, frozen: Any, weight: Any = None) -> float:
    with torch.no_grad():
        losses = [float(slow_row(policy, row, frozen)[0]) for row in raw]
    return float(np.mean(losses if weight is None else np.multiply(losses, weight)))


def both_rows(policy: R2D2Policy, **kwargs: Any) -> tuple[TransitionBatch, TransitionBatch]:
    """Return (the policy's rows, the same rows with each step's own reward and end), floats in float64."""
    rollout = make_rollout(policy, **kwargs)
    shape = SequenceShape(policy._cfg.learn_unroll_len, policy._cfg.burnin_step)
    rows, raw = policy.segment(rollout)[0], SequenceRows(shape).segment(rollout)[0]
    cast = {name: column.astype(np.float64) for name, column in rows.columns.items() if column.dtype.kind == "f"}
    exact = {name: raw[name].astype(np.float64) for name in ("reward",)}
    assert len(rows) > 8 and not raw["mask"].all() and raw["terminated"].any() and raw["truncated"].any()
    return rows.with_columns(**cast), raw.with_columns(**exact)


VARIANTS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "plain": dict(learn=dict(value_rescale=False)),
    "huber": dict(learn=dict(loss="huber")),
    "single": dict(double=False),
    "ignore_done": dict(learn=dict(ignore_done=True)),
    "no burn-in": dict(burnin_step=0, nstep=1),
    "more burn-in than steps": dict(burnin_step=5, learn_unroll_len=2, nstep=2),
    "gru": dict(model=dict(lstm_type="gru", res_link=True)),
}


@pytest.mark.parametrize(
    ("name", "with_mask"), [*((name, False) for name in VARIANTS), ("as it is", True), ("single", True)]
)
def test_loss_and_priorities_equal_a_slow_walk_over_rows_and_steps(name: str, with_mask: bool) -> None:
    policy = in_float64(make_policy(**VARIANTS[name]))
    rows, raw = both_rows(policy, with_mask=with_mask)
    weight = np.linspace(0.1, 2.0, len(rows))

    info, priority = policy.grad(rows.with_columns(weight=weight))

    # Rewards of the policy's rows are float32, so the sums of the slow version are rounded otherwise.
    expected = slow_loss(policy, raw, frozen=copy.deepcopy(policy.get_attribute("model")), weight=weight)
    assert float(info["total_loss"]) == pytest.approx(expected, rel=1e-6)
    assert priority is not None
    for row, value in zip(raw, priority, strict=True):
        errors = slow_row(policy, row, policy.get_attribute("model"))[1]
        assert float(value) == pytest.approx(0.9 * max(errors) + 0.1 * float(np.mean(errors)), rel=1e-5)


@pytest.mark.parametrize("name", ["more burn-in than steps", "gru"])
def test_gradient_equals_finite_differences(name: str) -> None:
    policy = in_float64(make_policy(**VARIANTS[name]))
    rows, raw = both_rows(policy, steps=20)
    frozen = copy.deepcopy(policy.get_attribute("model"))

    policy.grad(rows)

    assert_finite_differences(policy._params, lambda: slow_loss(policy, raw, frozen=frozen), num=3)


def test_rows_hold_nstep_returns_that_end_with_the_row() -> None:
    policy = make_policy(burnin_step=1, learn_unroll_len=3, nstep=2)
    rollout = Rollout(1)
    state = {f"state/{name}": value[None] for name, value in policy.get_attribute("model").initial_state.items()}
    for step in range(6):
        obs = np.full((1, OBS), step, np.float32)
        ends = {"terminated": np.array([step == 5]), "truncated": np.array([False])}
        rollout.append(
            {"obs": obs, "next_obs": obs + 1, "action": np.array([0]), "reward": np.float32([step + 1]), **ends}
            | {"lane": np.array([0]), "step": np.array([step]), **state}
        )

    rows, keep = policy.segment(rollout)

    # Steps 0 to 3, and 3 to 5 behind one of burn-in: each step is learned from once.
    assert rows["obs"][:, :, 0].tolist() == [[0, 1, 2, 3, 4], [3, 4, 5, 6, 0]]
    assert rows["mask"].tolist() == [[True] * 4, [False, True, True, False]]
    np.testing.assert_allclose(rows["reward"], [[1 + 1.8, 2 + 2.7, 3 + 3.6, 4], [4 + 4.5, 5 + 5.4, 6, 0]], rtol=1e-6)
    np.testing.assert_allclose(rows["discount"], [[0.81, 0.81, 0.81, 0.9], [0.81, 0.81, 0.9, 1.0]], rtol=1e-6)
    assert rows["terminated"].tolist() == [[False] * 4, [False, True, True, False]]
    assert keep.tolist() == [0]


def test_drqn_is_plain() -> None:
    policy = in_float64(make_policy("drqn", priority=False, burnin_step=0, nstep=1))
    rows, raw = both_rows(policy)

    info, priority = policy.grad(rows)

    expected = slow_loss(policy, raw, frozen=copy.deepcopy(policy.get_attribute("model")))
    assert priority is None and not policy._cfg.learn.value_rescale
    assert float(info["total_loss"]) == pytest.approx(expected, rel=1e-6)
