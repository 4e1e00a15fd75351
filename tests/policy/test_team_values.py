"""Values of teams: losses and gradients are those of slow obvious versions, agents that have left count for nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ding_like.data.batch import TransitionBatch
from ding_like.errors import ConfigError
from ding_like.utils.registries import MODEL_REGISTRY
from tests.policy import team_value_rows as teams
from tests.policy.team_value_rows import (
    ACTIONS,
    AGENTS,
    OBS,
    ROWS,
    STATE,
    agent_values,
    greedy,
    here,
    target_of,
    tensor,
)

MODELS: dict[str, dict[str, Any]] = {
    "vdn": {},
    "qmix": dict(mixer_embed_size=4),
    "wqmix": dict(mixer_embed_size=4, central_hidden_size_list=[8]),
    "qtran": dict(joint_hidden_size_list=[8]),
}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("vdn", {}),
    ("qmix", {}),
    ("wqmix", dict(learn=dict(weighting="optimistically", alpha=0.3))),
    ("wqmix", dict(learn=dict(weighting="centrally", alpha=0.3))),
    ("qtran", dict(learn=dict(opt_weight=0.7, nopt_weight=0.4))),
]


def make(name: str, **cfg: Any) -> Any:
    return teams.make(name, model=MODELS[name], **cfg)


def q_tot(network: Any, name: str, batch: TransitionBatch, prefix: str, row: int, actions: Any) -> torch.Tensor:
    """Return Q_tot of what agents that are there do."""
    own = agent_values(network, batch, prefix, row)
    chosen = {agent: own[agent][actions[agent]] for agent in here(batch, prefix, row)}
    if name == "vdn":
        return torch.stack(list(chosen.values())).sum()
    return teams.monotonic(network.mixer, chosen, tensor(batch, f"{prefix}/state", row))


def q_star(network: Any, batch: TransitionBatch, prefix: str, row: int, actions: Any) -> torch.Tensor:
    """Return the central value of weighted QMIX."""
    own = agent_values(network.central_agents, batch, prefix, row)
    chosen = torch.zeros(AGENTS)
    for agent in here(batch, prefix, row):
        chosen = chosen + own[agent][actions[agent]] * torch.eye(AGENTS)[agent]
    return network.central_mixer(torch.cat([chosen, tensor(batch, f"{prefix}/state", row)])[None])[0, 0]


def of_team(network: Any, batch: TransitionBatch, prefix: str, row: int, actions: Any = None) -> torch.Tensor:
    """Return QTRAN's joint value of actions, or without any its value of the state."""
    together = torch.zeros(8)
    for agent in here(batch, prefix, row):
        features = network.agent(teams.named(batch, prefix, row, agent)[None])[0]
        if actions is None:
            together = together + network.without_action(features)
        else:
            together = together + network.with_action(torch.cat([features, torch.eye(ACTIONS)[actions[agent]]]))
    head = network.state_head if actions is None else network.joint_head
    return head(torch.cat([together, tensor(batch, f"{prefix}/state", row)])[None])[0, 0]


def slow_loss(policy: Any, name: str, batch: TransitionBatch) -> torch.Tensor:
    """Return the loss of the equations, row by row."""
    model, target, cfg = policy._model, policy._target_model, policy._cfg
    losses = []
    for row in range(len(batch)):
        actions = batch["action"][row]
        judge = model if cfg.double else target
        best = greedy(agent_values(judge, batch, "next_obs", row), batch, "next_obs", row)
        own_best = greedy(agent_values(model, batch, "obs", row), batch, "obs", row)
        if name in ("vdn", "qmix"):
            goal = target_of(batch, row, q_tot(target, name, batch, "next_obs", row, best))
            loss = (q_tot(model, name, batch, "obs", row, actions) - goal) ** 2
        elif name == "wqmix":
            goal = target_of(batch, row, q_star(target, batch, "next_obs", row, best))
            total = q_tot(model, name, batch, "obs", row, actions)
            if cfg.learn.weighting == "optimistically":
                is_full = total.item() < goal
            else:
                is_greedy = all(actions[agent] == own_best[agent] for agent in here(batch, "obs", row))
                is_full = is_greedy or goal > q_star(model, batch, "obs", row, own_best).item()
            weight = 1.0 if is_full else cfg.learn.alpha
            loss = weight * (total - goal) ** 2 + (q_star(model, batch, "obs", row, actions) - goal) ** 2
        else:
            goal = target_of(batch, row, of_team(target, batch, "next_obs", row, best))
            joint, beyond = of_team(model, batch, "obs", row, actions), of_team(model, batch, "obs", row)
            of_greedy = of_team(model, batch, "obs", row, own_best).item()
            opt = q_tot(model, "vdn", batch, "obs", row, own_best) - of_greedy + beyond
            nopt = q_tot(model, "vdn", batch, "obs", row, actions) - joint.item() + beyond
            loss = (joint - goal) ** 2 + cfg.learn.opt_weight * opt**2
            loss = loss + cfg.learn.nopt_weight * torch.minimum(nopt, torch.zeros(())) ** 2
        losses.append(loss * float(batch["weight"][row]))
    return torch.stack(losses).mean()


@pytest.mark.parametrize(("name", "settings"), VARIANTS)
@pytest.mark.parametrize("double", [False, True])
def test_the_loss_and_its_gradient_are_those_of_the_slow_version(
    name: str, settings: dict[str, Any], double: bool
) -> None:
    policy, batch = make(name, double=double, priority=True, priority_IS_weight=True, **settings), teams.rows()
    # Some rows do what is best, which the weights of weighted QMIX ask for; of an agent that has left it is no matter.
    for row in range(0, ROWS, 2):
        batch["action"][row] = greedy(agent_values(policy._model, batch, "obs", row), batch, "obs", row)
    gone = batch["obs/alive"] == 0
    batch["action"][gone] = (batch["action"][gone] + 1) % ACTIONS

    info, priorities = policy.grad(batch)

    wanted = slow_loss(policy, name, batch)
    assert float(info["total_loss"]) == pytest.approx(wanted.item(), rel=1e-5)
    ours = teams.gradients(policy)
    teams.assert_close(ours, teams.slow_gradients(policy, wanted))
    assert all(grad.abs().sum() > 0 for grad in ours.values()) and priorities.shape == (ROWS,)


def test_the_two_weightings_count_other_rows_in_full() -> None:
    batch = teams.rows()
    losses = {
        (weighting, alpha): float(
            make("wqmix", learn=dict(weighting=weighting, alpha=alpha)).grad(batch)[0]["total_loss"]
        )
        for weighting in ("optimistically", "centrally")
        for alpha in (0.0, 1.0)
    }

    assert losses["optimistically", 1.0] == losses["centrally", 1.0]
    assert 0 < losses["optimistically", 0.0] != losses["centrally", 0.0]
    assert max(losses["optimistically", 0.0], losses["centrally", 0.0]) < losses["centrally", 1.0]


@pytest.mark.parametrize(("name", "settings"), VARIANTS)
def test_an_agent_that_has_left_changes_nothing(name: str, settings: dict[str, Any]) -> None:
    batch, rng = teams.rows(), np.random.default_rng(5)
    other = {column: np.array(values) for column, values in batch.columns.items()}
    for prefix in ("obs", "next_obs"):
        gone = other[f"{prefix}/alive"] == 0
        assert gone.any()
        other[f"{prefix}/agents"][gone] = rng.normal(size=(gone.sum(), OBS))
        other[f"{prefix}/rewards"] = rng.normal(size=(ROWS, AGENTS)).astype(np.float32)
        other[f"{prefix}/ended"] = 1 - other[f"{prefix}/ended"]
    other["action"][batch["obs/alive"] == 0] = rng.integers(0, ACTIONS, (batch["obs/alive"] == 0).sum())
    policies = make(name, **settings), make(name, **settings)

    losses = [
        float(policy.grad(each)[0]["total_loss"])
        for policy, each in zip(policies, (batch, TransitionBatch(other)), strict=True)
    ]

    assert losses[0] == losses[1]
    teams.assert_close(teams.gradients(policies[0]), teams.gradients(policies[1]))


@pytest.mark.parametrize("name", list(MODELS))
def test_a_team_whose_time_is_up_is_worth_what_follows_and_one_that_ended_is_not(name: str) -> None:
    batch = teams.rows()
    cut = batch.with_columns(terminated=np.zeros(ROWS, bool), truncated=np.ones(ROWS, bool))
    going_on = batch.with_columns(terminated=np.zeros(ROWS, bool), truncated=np.zeros(ROWS, bool))
    ended = batch.with_columns(terminated=np.ones(ROWS, bool), truncated=np.zeros(ROWS, bool))

    targets = [make(name).grad(each)[0]["target_q_value"] for each in (cut, going_on, ended)]

    assert torch.equal(targets[0], targets[1])
    np.testing.assert_array_equal(targets[2].numpy(), batch["reward"])


@pytest.mark.parametrize("name", list(MODELS))
def test_networks_see_neither_who_acts_nor_what_happened(name: str) -> None:
    policy, rng = make(name), np.random.default_rng(0)
    obs = {
        "agents": rng.normal(size=(50, AGENTS, OBS)).astype(np.float32),
        "state": rng.normal(size=(50, STATE)).astype(np.float32),
    }
    given: dict[str, Any] = dict(lanes=np.arange(50), is_first=np.ones(50, bool), rng=rng)
    bare = policy.eval_mode.actor.act(obs, **given)["action"]
    outcomes = {
        "alive": rng.integers(0, 2, (50, AGENTS)).astype(np.int8),
        "ended": rng.integers(0, 2, (50, AGENTS)).astype(np.int8),
        "rewards": rng.normal(size=(50, AGENTS)).astype(np.float32),
    }

    assert np.array_equal(policy.eval_mode.actor.act({**obs, **outcomes}, **given)["action"], bare)
    assert len(np.unique(bare)) > 1


def test_a_mixer_grows_with_the_values_of_agents_and_weighted_qmix_has_one_that_need_not() -> None:
    state = {"state": torch.randn(200, STATE)}
    slopes = {}
    for name, method in (("qmix", "mix"), ("wqmix", "mix"), ("wqmix", "central_mix")):
        model, values = make(name)._model, torch.randn(200, AGENTS, requires_grad=True)
        (slopes[name, method],) = torch.autograd.grad(getattr(model, method)(values, state).sum(), values)

    assert all((slopes[name, "mix"] >= 0).all() for name in ("qmix", "wqmix"))
    assert (slopes["wqmix", "central_mix"] < 0).any()


def test_vdn_is_qmix_without_its_mixer() -> None:
    batch = teams.rows()
    vdn, qmix = make("vdn"), teams.make("qmix", model=dict(mixer=False))
    assert vdn._model.state_dict().keys() == qmix._model.state_dict().keys()

    assert float(vdn.grad(batch)[0]["total_loss"]) == float(qmix.grad(batch)[0]["total_loss"])


def test_a_team_that_does_not_say_who_acts_acts_as_a_whole() -> None:
    batch = teams.rows()
    everyone = {f"{prefix}/alive": np.ones((ROWS, AGENTS), np.int8) for prefix in ("obs", "next_obs")}
    whole = batch.with_columns(**everyone)
    silent = whole.select([name for name in whole.columns if name.split("/")[-1] not in ("alive", "ended", "rewards")])

    losses = [float(make("qmix").grad(each)[0]["total_loss"]) for each in (whole, silent)]

    assert losses[0] == losses[1] != float(make("qmix").grad(batch)[0]["total_loss"])


@pytest.mark.parametrize("name", list(MODELS))
def test_a_run_goes_on_where_it_was_saved(name: str) -> None:
    first, other = make(name, learn=dict(target_update_freq=3)), make(name, learn=dict(target_update_freq=3))
    for seed in range(4):
        first.grad(teams.rows(seed))
        first.apply()
    other.learn_mode.load_state_dict(first.learn_mode.state_dict())
    for seed in range(4, 8):
        losses = []
        for policy in (first, other):
            losses.append(float(policy.grad(teams.rows(seed))[0]["total_loss"]))
            policy.apply()
        assert losses[0] == losses[1]
    assert torch.equal(first._params.data_vector, other._params.data_vector)


@pytest.mark.parametrize("name", [*MODELS, "coma"])
@pytest.mark.parametrize("change", [dict(obs_shape=4), dict(action_shape=[2, 2, 3])])
def test_what_is_no_team_is_refused(name: str, change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"'{name}' (learns from a team|takes equally many actions)"):
        MODEL_REGISTRY.build(name, **{"obs_shape": teams.OBS_SHAPE, "action_shape": [ACTIONS] * AGENTS, **change})
