"""Never Give Up: the arms' formulas, who draws them, and an update against R2D2's with each row's own discount."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.config import deep_merge, to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.data.rollout import Rollout
from ding_like.policy.ngu import NGUPolicy
from ding_like.reward_model import create_reward_model
from ding_like.reward_model.base import Sizes
from ding_like.rl_utils.exploration import exploration_arms

LANES, OBS, ACTIONS, ARMS = 3, 2, 3, 4
MODEL = dict(obs_shape=OBS, action_shape=ACTIONS, encoder_hidden_size_list=[6], num_arms=ARMS)


def make(**changes: Any) -> NGUPolicy:
    torch.manual_seed(0)
    own = dict(model=MODEL, burnin_step=1, learn_unroll_len=4)
    policy = NGUPolicy(deep_merge(deep_merge(to_plain(NGUPolicy.default_config()), own), changes))
    with torch.no_grad():  # a target network of its own, so that mixing up the two shows
        policy._target_params.data_vector.add_(0.3 * torch.randn_like(policy._target_params.data_vector))
    return policy


def rollout_of(policy: NGUPolicy, *, steps: int = 30) -> tuple[Rollout, np.ndarray]:
    """Return (a rollout of the policy's own actions, the numbers of the arms [T, E])."""
    rng, rollout = np.random.default_rng(0), Rollout(LANES)
    actor, first, arms = policy.collect_mode.actor, np.ones(LANES, bool), []
    for _ in range(steps):
        obs = rng.normal(size=(2, LANES, OBS)).astype(np.float32)
        ended = rng.random((2, LANES)) < 0.1
        chosen = actor.act(obs[0], lanes=np.arange(LANES), is_first=first, rng=rng, eps=0.3)
        ends = {"terminated": ended[0], "truncated": ended[1] & ~ended[0]}
        reward = rng.normal(size=LANES).astype(np.float32)
        rollout.append(
            {"obs": obs[0], "next_obs": obs[1], **chosen, "lane": np.arange(LANES), "reward": reward, **ends}
        )
        arms.append(chosen["state/arm"].argmax(axis=1))
        first = ended.any(axis=0)
    return rollout, np.array(arms)


@pytest.mark.parametrize("number", [2, 3, 8])
def test_arms_are_those_of_the_paper(number: int) -> None:
    betas, gammas = exploration_arms(number, beta=0.3, gamma_max=0.997, gamma_min=0.99)

    for i in range(number):
        middle = 0.0 if i == 0 else 0.3
        if 0 < i < number - 1:
            middle = 0.3 / (1 + math.exp(-10 * (2 * i - (number - 2)) / (number - 2)))
        share = ((number - 1 - i) * math.log(1 - 0.997) + i * math.log(1 - 0.99)) / (number - 1)
        assert betas[i] == pytest.approx(middle) and gammas[i] == pytest.approx(1 - math.exp(share))
    assert (gammas[0], gammas[-1]) == (pytest.approx(0.997), pytest.approx(0.99))


def test_a_lane_that_collects_draws_an_arm_for_each_episode() -> None:
    rollout, arms = rollout_of(make(), steps=200)

    ended = (rollout["terminated"] | rollout["truncated"]).reshape(-1, LANES)
    changed = arms[1:] != arms[:-1]
    assert not (changed & ~ended[:-1]).any() and (changed & ended[:-1]).any()
    starts = np.concatenate([arms[:1].ravel(), arms[1:][ended[:-1]]])
    assert set(starts) == set(range(ARMS)) and np.bincount(starts).max() < 0.5 * len(starts)


def test_evaluations_take_the_arm_without_a_bonus() -> None:
    actor, rng = make().eval_mode.actor, np.random.default_rng(0)
    for step in range(5):
        obs = rng.normal(size=(LANES, OBS)).astype(np.float32)
        chosen = actor.act(obs, lanes=np.arange(LANES), is_first=np.full(LANES, step % 2 == 0), rng=rng)
        assert (chosen["state/arm"].argmax(axis=1) == 0).all()


def test_the_arm_changes_the_values() -> None:
    model, obs = make().get_attribute("model"), torch.randn(1, 3, OBS)
    begin = {name: torch.tensor(value)[None] for name, value in model.initial_state.items()}
    arms = torch.eye(ARMS)

    values = [model.run(obs, {**begin, "arm": arm[None]})[0] for arm in arms]

    assert not any(values[0].allclose(other) for other in values[1:])


def slow_loss(policy: NGUPolicy, row: Any, gammas: Any) -> float:
    """Return the loss of a row, step by step, with the discount of its arm; the networks are run from its state."""
    state = {name[6:]: torch.tensor(value)[None] for name, value in row.items() if name.startswith("state/")}
    gamma, losses = float(gammas[int(state["arm"].argmax())]), []
    with torch.no_grad():
        obs = torch.tensor(row["obs"])[None]
        online, target = (model.run(obs, state)[0][0] for model in (policy._model, policy._target_model))
    for t in range(int(row["num_steps"])):
        if not row["mask"][t]:
            continue
        y = float(row["reward"][t])
        if not row["terminated"][t]:
            y += gamma * float(target[t + 1][int(online[t + 1].argmax())])
        losses.append((float(online[t][int(row["action"][t])]) - y) ** 2)
    return sum(losses) / policy._cfg.learn_unroll_len


def test_the_loss_has_the_discount_of_each_row_and_a_bonus_by_its_beta() -> None:
    policy = make(learn=dict(value_rescale=False), discount_factor=0.95, discount_factor_min=0.5)
    rows, _ = policy.segment(rollout_of(policy)[0])
    model = create_reward_model(
        dict(type="ngu", hidden_size_list=[8, 4]), Sizes(OBS, ACTIONS, True), seed=0, rng=np.random.default_rng(0)
    )
    betas, gammas = exploration_arms(ARMS, beta=0.3, gamma_max=0.95, gamma_min=0.5)
    arm = rows["state/arm"].argmax(axis=1)
    assert len(set(arm)) > 2

    model.collect(rows)
    rewarded = model.estimate(rows)
    alone = model.estimate(TransitionBatch({n: c for n, c in rows.columns.items() if n != "bonus_weight"}))
    info, _ = policy.grad(rewarded)

    bonus = alone["reward"] - rows["reward"]
    np.testing.assert_allclose(rewarded["reward"], rows["reward"] + betas[arm][:, None] * bonus, rtol=1e-4, atol=1e-5)
    assert (rewarded["reward"][arm == 0] == rows["reward"][arm == 0]).all()
    expected = np.mean([slow_loss(policy, row, gammas) for row in rewarded])
    assert float(info["total_loss"]) == pytest.approx(expected, rel=1e-4)


def test_arm_0_learns_from_a_share_of_the_rows_of_the_others() -> None:
    changes = dict(learn=dict(value_rescale=False), discount_factor=0.95, discount_factor_min=0.5)
    policy = make(**deep_merge(changes, dict(learn=dict(exploit_share=0.5))))
    rows, _ = policy.segment(rollout_of(policy)[0])
    with_bonus = rows.with_columns(reward=rows["reward"] + 5.0, env_reward=rows["reward"])

    (marked,) = policy.minibatches(with_bonus, np.random.default_rng(0))
    info, _ = policy.grad(marked)

    exploits = marked["exploits"]
    assert 0.2 < exploits.mean() < 0.8 and (rows["state/arm"][exploits, 0] == 0).any()
    _, gammas = exploration_arms(ARMS, beta=0.3, gamma_max=0.95, gamma_min=0.5)
    arm = rows["state/arm"].copy()
    arm[exploits] = np.eye(ARMS, dtype=np.float32)[0]
    reward = np.where(exploits[:, None], rows["reward"], rows["reward"] + 5.0)
    changed = rows.with_columns(**{"state/arm": arm, "reward": reward})
    expected = np.mean([slow_loss(policy, row, gammas) for row in changed])
    assert float(info["total_loss"]) == pytest.approx(expected, rel=1e-4)


def test_an_actor_goes_on_exactly_from_its_state() -> None:
    policy = make()
    one, other = policy.collect_mode.actor, make().collect_mode.actor
    rngs = [np.random.default_rng(1) for _ in range(2)]
    obs, lanes = np.ones((LANES, OBS), np.float32), np.arange(LANES)
    one.act(obs, lanes=lanes, is_first=np.ones(LANES, bool), rng=np.random.default_rng(2))
    other.load_state_dict(one.state_dict())

    found = [
        actor.act(obs, lanes=lanes, is_first=np.zeros(LANES, bool), rng=rng)
        for actor, rng in zip((one, other), rngs, strict=True)
    ]

    for name, column in found[0].items():
        np.testing.assert_array_equal(column, found[1][name])
