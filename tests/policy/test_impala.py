"""IMPALA: sequences, the loss against a slow walk and finite differences, random rows, config, pipelines."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.config import compile_config, to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.entry import serial_pipeline
from ding_like.errors import ConfigError
from ding_like.policy import create_policy, impala
from ding_like.policy.di_engine_view import RandomActor
from ding_like.policy.impala import IMPALAPolicy
from ding_like.rl_utils.policy_gradient import vtrace
from tests.contracts.policy_cases import CASES, LANES, make, play, rows_of
from tests.policy.differences import assert_finite_differences, in_float64, moved_in_float64
from tests.policy.on_policy import moved


def slow_vtrace(steps: list[dict[str, float]], learn: Any, gamma: float) -> tuple[list[float], list[float]]:
    """Return (targets, advantages) of one sequence by equation 1 of the paper."""

    def target(s: int) -> float:
        total = steps[s]["value"]
        for t in range(s, len(steps)):
            trace = math.prod(learn.lambda_ * min(learn.c_clip_ratio, steps[i]["ratio"]) for i in range(s, t))
            rho = min(learn.rho_clip_ratio, steps[t]["ratio"])
            error = steps[t]["reward"] + gamma * steps[t]["next_value"] - steps[t]["value"]
            total += gamma ** (t - s) * trace * rho * error
        return total

    targets = [target(s) for s in range(len(steps))]
    advantages = []
    for s, step in enumerate(steps):
        after = targets[s + 1] if s + 1 < len(steps) else step["next_value"]
        rho = min(learn.rho_pg_clip_ratio, step["ratio"])
        advantages.append(rho * (step["reward"] + gamma * after - step["value"]))
    return targets, advantages


@torch.no_grad()
def slow_loss(policy: Any, batch: TransitionBatch) -> tuple[float, list[float]]:
    """Return (the loss, the mean error of each sequence's values), step by step in float64."""
    learn, family, model = policy._cfg.learn, policy._family, copy.deepcopy(policy.get_attribute("model")).double()
    terms, priorities = [], []
    for row in range(len(batch)):
        steps = []
        for t in range(int(batch["num_steps"][row])):
            output, value = model.actor_critic(torch.from_numpy(batch["obs"][row, t]).double()[None])
            _, next_value = model.actor_critic(torch.from_numpy(batch["obs"][row, t + 1]).double()[None])
            action = torch.as_tensor(batch[family.column][row, t])[None]
            log_prob, entropy = (float(x) for x in family.log_prob_and_entropy(output, action))
            steps.append(
                {
                    "log_prob": log_prob,
                    "entropy": entropy,
                    "ratio": math.exp(log_prob - float(batch["log_prob"][row, t])),
                    "reward": float(batch["reward"][row, t]),
                    "value": float(value),
                    "next_value": 0.0 if batch["terminated"][row, t] else float(next_value),
                }
            )
        targets, advantages = slow_vtrace(steps, learn, policy._gamma)
        weight = float(batch["weight"][row]) if policy._cfg.priority_IS_weight else 1.0
        errors = [target - step["value"] for target, step in zip(targets, steps, strict=True)]
        for step, error, advantage in zip(steps, errors, advantages, strict=True):
            terms.append(
                weight
                * (
                    -advantage * step["log_prob"]
                    + learn.value_weight * 0.5 * error**2
                    - learn.entropy_weight * step["entropy"]
                )
            )
        priorities.append(float(np.mean(np.abs(errors))))
    return float(np.mean(terms)), priorities


CLIPS = dict(learn=dict(lambda_=1.0, rho_clip_ratio=2.0, c_clip_ratio=1.5, rho_pg_clip_ratio=0.8, entropy_weight=0.1))
PRIORITISED = dict(priority=True, priority_IS_weight=True, learn=dict(value_weight=0.1, discount_factor=0.9))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("impala", {}),
        ("impala", CLIPS),
        ("impala several", CLIPS),
        ("impala box", PRIORITISED),
    ],
)
def test_loss_equals_a_slow_walk_over_the_sequences(name: str, changes: dict[str, Any]) -> None:
    policy = make(CASES[name], **changes)
    batch = rows_of(CASES[name], policy)
    batch = batch.with_columns(weight=np.linspace(0.2, 1.8, len(batch)).astype(np.float32))
    assert 0 < np.count_nonzero(~batch["mask"]) and batch["terminated"].any() and batch["truncated"].any()

    info, priority = moved(policy).grad(batch)

    loss, priorities = slow_loss(policy, batch)
    assert float(info["total_loss"]) == pytest.approx(loss, rel=1e-6, abs=1e-6)
    if policy._cfg.priority:
        assert priority is not None and priority.tolist() == pytest.approx(priorities, rel=1e-5, abs=1e-6)
    else:
        assert priority is None


def test_in_float64_the_gradient_equals_finite_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    source = make(CASES["impala box"], learn=dict(entropy_weight=0.1))
    batch, policy = in_float64(rows_of(CASES["impala box"], source)), moved_in_float64(source)
    found: list[Any] = []

    def first(*given: Any, **settings: Any) -> Any:  # targets are constants
        found.append(vtrace(*given, **settings))
        return found[0]

    monkeypatch.setattr(impala, "vtrace", first)

    policy.grad(batch)

    assert_finite_differences(policy._params, lambda: float(policy.grad(batch)[0]["total_loss"]))


def test_on_policy_every_importance_weight_is_1() -> None:
    policy = make(CASES["impala"])

    info, _ = policy.grad(rows_of(CASES["impala"], policy))

    assert float(info["importance"]) == pytest.approx(1.0, abs=1e-6)


# ---- random rows


@pytest.mark.parametrize(
    ("name", "masked", "choices"), [("impala", False, 4), ("impala", True, 4), ("impala several", False, 6)]
)
def test_random_actions_are_rows_with_the_log_probability_of_their_draw(name: str, masked: bool, choices: int) -> None:
    policy, actor = make(CASES[name]), RandomActor(CASES[name].space)

    batch, _ = policy.segment(play(CASES[name], policy, masked=masked, actor=actor))

    legal = batch["obs/action_mask"][:, :-1].sum(axis=2) if masked else np.full(batch["mask"].shape, choices)
    assert len(batch) > LANES and batch["log_prob"].dtype == np.float32
    np.testing.assert_allclose(batch["log_prob"][batch["mask"]], -np.log(legal[batch["mask"]]), rtol=1e-6)


def test_random_actions_of_a_box_are_refused() -> None:
    case = CASES["impala box"]
    policy = make(case)

    with pytest.raises(ConfigError, match="random_collect_size needs discrete actions"):
        policy.segment(play(case, policy, actor=RandomActor(case.space)))


# ---- config


def compile_with(tmp_path: Any, **changes: Any) -> Any:
    main = dict(exp_name=str(tmp_path / "exp"), env=dict(env_id="CartPole-v1"), policy=changes)
    create = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="impala"))
    return compile_config(main, create, seed=0, save=False)


def test_keys_stand_where_di_engine_has_them(tmp_path: Any) -> None:
    learn = dict(clip_value=5, grad_clip_type="clip_norm", discount_factor=0.9, optim="adam")
    collect = dict(unroll_len=16, discount_factor=0.8, gae_lambda=0.95)
    cfg = to_plain(compile_with(tmp_path, unroll_len=16, learn=learn, collect=collect, random_collect_size=256).policy)
    cfg["model"] = dict(obs_shape=4, action_shape=2)

    policy: Any = create_policy(cfg)

    assert policy._gamma == 0.9
    assert policy._unroll_len == IMPALAPolicy.env_steps_per_row(cfg) == 16
    assert policy._optimizer._clip == 5


# ---- through the pipeline


@pytest.mark.usefixtures("in_tmp", "no_pictures")
def test_a_run_collects_sequences_at_random_first_and_counts_env_steps() -> None:
    section = dict(
        unroll_len=4,
        random_collect_size=10,
        learn=dict(batch_size=4, update_per_collect=2, schedule=dict(env_steps=1000)),
        collect=dict(n_sample=8),
        eval=dict(evaluator=dict(eval_freq=99)),
    )
    envs = dict(env_id="CartPole-v1", collector_env_num=2, evaluator_env_num=1, n_evaluator_episode=1)
    create = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="impala"))

    policy: Any = serial_pipeline((dict(exp_name="exp", env=envs, policy=section), create), seed=0, max_env_step=200)

    # A turn is 8 sequences of up to 4 steps, and 2 updates for 8 * 4 steps together.
    turns = policy._progress.now.rows / 32
    assert turns == int(turns) and 4 <= turns <= 8
    assert policy._get_nonfinite_steps() == 0
