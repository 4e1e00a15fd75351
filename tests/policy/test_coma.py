"""COMA: loss, gradient and targets are those of slow obvious versions; agents that have left count for nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ding_like.config import deep_merge, to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.data.rollout import Rollout
from ding_like.policy.coma import COMAPolicy
from tests.policy import team_value_rows as teams
from tests.policy.team_value_rows import ACTIONS, AGENTS, OBS, ROWS, here, legal, named, tensor

GAMMA, LAMBDA, LANES, STEPS = 0.99, 0.8, 2, 8


def make(**cfg: Any) -> Any:
    return teams.make("coma", model=dict(critic_hidden_size_list=[8]), **cfg)


def q_values(network: Any, batch: TransitionBatch, prefix: str, row: int, agent: int, actions: Any) -> torch.Tensor:
    """Return the critic's values [A] of an agent's actions, where the others that are there do `actions`."""
    others = [torch.zeros(ACTIONS) for _ in range(AGENTS)]
    for other in here(batch, prefix, row):
        if other != agent:
            others[other][actions[other]] = 1.0
    given = [tensor(batch, f"{prefix}/state", row), named(batch, prefix, row, agent), *others]
    return network.critic_net(torch.cat(given)[None])[0]


def slow_loss(policy: Any, batch: TransitionBatch) -> torch.Tensor:
    """Return the loss of the equations, row by row and agent by agent."""
    model, learn = policy._model, policy._cfg.learn
    policy_losses, value_losses, entropies = [], [], []
    for row in range(len(batch)):
        for agent in here(batch, "obs", row):
            action, may = batch["action"][row, agent], legal(batch, "obs", row, agent)
            values = q_values(model, batch, "obs", row, agent, batch["action"][row])
            log_probs = model.actor_net(named(batch, "obs", row, agent)[None])[0][may].log_softmax(0)
            probs = log_probs.exp()
            baseline = sum(prob * values[each] for prob, each in zip(probs, may, strict=True))
            policy_losses.append(-(values[action] - baseline).item() * log_probs[may.index(action)])
            value_losses.append((values[action] - float(batch["return_"][row])) ** 2)
            entropies.append(-(probs * log_probs).sum())
    mean_policy, mean_value, mean_entropy = (
        torch.stack(each).mean() for each in (policy_losses, value_losses, entropies)
    )
    return mean_policy + learn.value_weight * mean_value - learn.entropy_weight * mean_entropy


def own_rows(seed: int = 0) -> TransitionBatch:
    """Return rows whose actions are legal, with targets."""
    batch, rng = teams.rows(seed), np.random.default_rng(seed)
    for row in range(ROWS):
        batch["action"][row] = [rng.choice(legal(batch, "obs", row, agent)) for agent in range(AGENTS)]
    return batch.with_columns(return_=rng.normal(size=ROWS).astype(np.float32))


def log(seed: int = 0) -> TransitionBatch:
    """Return steps of two lanes, in which episodes terminate, are cut, and go on; an agent leaves before they do."""
    parts = [own_rows(seed + step) for step in range(STEPS)]
    batch = TransitionBatch({name: np.concatenate([part[name][:LANES] for part in parts]) for name in parts[0].columns})
    step = np.arange(STEPS).repeat(LANES)
    lane = np.tile(np.arange(LANES), STEPS)
    terminated, truncated = (step == 3) & (lane == 0), (step == 4) & (lane == 1)
    return batch.with_columns(lane=lane, terminated=terminated, truncated=truncated)


def test_the_loss_and_its_gradient_are_those_of_the_slow_version() -> None:
    policy, batch = make(learn=dict(value_weight=0.7, entropy_weight=0.2)), own_rows()

    info, priorities = policy.grad(batch)

    wanted = slow_loss(policy, batch)
    assert float(info["total_loss"]) == pytest.approx(wanted.item(), rel=1e-5) and priorities is None
    ours = teams.gradients(policy)
    teams.assert_close(ours, teams.slow_gradients(policy, wanted))
    assert all(grad.abs().sum() > 0 for grad in ours.values())


def test_targets_are_lambda_returns_of_the_target_critic() -> None:
    policy, batch = make(learn=dict(batch_size=4)), log()
    found: dict[int, float] = {}
    for minibatch in policy.minibatches(batch, np.random.default_rng(3)):
        for row in range(len(minibatch)):
            where = np.flatnonzero((batch["obs/state"] == np.asarray(minibatch["obs/state"][row])).all(axis=1))
            found[int(where[0])] = float(minibatch["return_"][row])

    drawn = policy._draw(
        {name: batch[f"next_obs/{name}"] for name in ("agents", "state", "alive", "action_mask")},
        np.random.default_rng(3),
    )

    def worth(prefix: str, row: int, actions: Any) -> float:
        alone = [
            q_values(policy._target_model, batch, prefix, row, agent, actions)[actions[agent]].item()
            for agent in here(batch, prefix, row)
        ]
        return float(np.mean(alone))

    assert sorted(found) == list(range(len(batch)))
    for lane in range(LANES):
        following: tuple[float, float] | None = None  # (Q' of the next step, its target)
        for row in range((STEPS - 1) * LANES + lane, -1, -LANES):
            if batch["terminated"][row]:
                ahead = 0.0
            elif batch["truncated"][row] or following is None:
                ahead = worth("next_obs", row, drawn[row])
            else:
                ahead = (1 - LAMBDA) * following[0] + LAMBDA * following[1]
            target = float(batch["reward"][row]) + GAMMA * ahead
            assert found[row] == pytest.approx(target, rel=1e-4), (lane, row)
            following = worth("obs", row, batch["action"][row]), target


def test_an_action_that_is_drawn_where_time_is_up_is_legal() -> None:
    policy, batch = make(), log()
    obs = {name: batch[f"next_obs/{name}"] for name in ("agents", "state", "alive", "action_mask")}

    for seed in range(5):
        drawn = policy._draw(obs, np.random.default_rng(seed))
        assert np.take_along_axis(obs["action_mask"], drawn[..., None], axis=2).all()


def test_an_agent_that_has_left_changes_nothing() -> None:
    batch, rng = own_rows(), np.random.default_rng(5)
    other = {column: np.array(values) for column, values in batch.columns.items()}
    gone = other["obs/alive"] == 0
    other["obs/agents"][gone] = rng.normal(size=(gone.sum(), OBS))
    other["obs/rewards"] = rng.normal(size=(ROWS, AGENTS)).astype(np.float32)
    other["action"][gone] = (other["action"][gone] + 1) % ACTIONS
    first, second = make(), make()

    losses = [
        float(policy.grad(each)[0]["total_loss"]) for policy, each in ((first, batch), (second, TransitionBatch(other)))
    ]

    assert losses[0] == losses[1]
    teams.assert_close(teams.gradients(first), teams.gradients(second))


def test_the_critic_does_not_see_the_action_whose_value_it_gives() -> None:
    model, rng = make()._model, np.random.default_rng(0)
    obs = {"agents": torch.randn(6, AGENTS, OBS), "state": torch.randn(6, teams.STATE)}
    actions = torch.eye(ACTIONS)[torch.from_numpy(rng.integers(0, ACTIONS, (6, AGENTS)))]
    other = actions.clone()
    other[:, 1] = other[:, 1].roll(1, dims=-1)

    with torch.no_grad():
        change = (model.critic(obs, actions) - model.critic(obs, other)).abs().sum(dim=(0, 2))

    assert change[1] == 0 and (change[[0, 2]] > 0).all()


def test_the_target_critic_is_copied_by_period_and_a_run_goes_on_where_it_was_saved() -> None:
    first, other = make(learn=dict(target_update_freq=3)), make(learn=dict(target_update_freq=3))
    for seed in range(4):
        first.grad(own_rows(seed))
        first.apply()
        is_copied = torch.equal(first._target_params.data_vector, first._params.data_vector)
        assert is_copied == (seed == 2)
    other.learn_mode.load_state_dict(first.learn_mode.state_dict())
    for seed in range(4, 7):
        for policy in (first, other):
            policy.grad(own_rows(seed))
            policy.apply()
    assert torch.equal(first._params.data_vector, other._params.data_vector)
    assert torch.equal(first._target_params.data_vector, other._target_params.data_vector)


def test_rows_need_no_critic_and_random_actions_are_refused() -> None:
    policy = make()
    assert not policy.rows_need_networks
    assert set(log().columns) >= set(policy.segment(_rollout(log()))[0].columns)

    cfg = deep_merge(to_plain(COMAPolicy.default_config()), dict(random_collect_size=8))
    assert [path for path, _ in COMAPolicy.check_config(cfg)] == ["random_collect_size"]


def _rollout(batch: TransitionBatch) -> Rollout:
    rollout = Rollout(LANES)
    for step in range(STEPS):
        rollout.append({name: values[step * LANES : (step + 1) * LANES] for name, values in batch.columns.items()})
    return rollout
