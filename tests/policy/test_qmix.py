"""QMIX: the loss is that of the slow obvious version, the mixer is monotonic, agents explore each by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ding_like.config import deep_merge
from ding_like.data.batch import TransitionBatch
from ding_like.errors import ConfigError, SchemaError
from ding_like.model.mixing import QMIX
from ding_like.policy.qmix import QMIXPolicy

AGENTS, OBS, STATE, ACTIONS, ROWS = 3, 4, 5, 2, 7


def make(**cfg: Any) -> QMIXPolicy:
    torch.manual_seed(0)
    model = dict(
        obs_shape={"agents": [AGENTS, OBS], "state": STATE},
        action_shape=[ACTIONS] * AGENTS,
        hidden_size_list=[8],
        mixer_embed_size=4,
    )
    return QMIXPolicy(deep_merge(QMIXPolicy.default_config(), {"model": model, **cfg}))


def rows(seed: int = 0) -> TransitionBatch:
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {
        name: rng.normal(size=shape).astype(np.float32)
        for name, shape in {
            "obs/agents": (ROWS, AGENTS, OBS),
            "obs/state": (ROWS, STATE),
            "next_obs/agents": (ROWS, AGENTS, OBS),
            "next_obs/state": (ROWS, STATE),
            "reward": (ROWS,),
        }.items()
    }
    columns["action"] = rng.integers(0, ACTIONS, (ROWS, AGENTS))
    columns["terminated"] = rng.random(ROWS) < 0.4
    columns["truncated"] = ~columns["terminated"] & (rng.random(ROWS) < 0.4)
    return TransitionBatch(columns)


def slow_loss(policy: QMIXPolicy, batch: TransitionBatch, *, double: bool, huber: bool = False) -> float:
    """Return the loss of the equations, row by row and agent by agent."""
    model, target = policy.get_attribute("model"), policy._target_model

    def values(network: Any, row: int, prefix: str) -> Any:
        agents = torch.from_numpy(batch[f"{prefix}/agents"][row])
        found = []
        for agent in range(AGENTS):
            name = torch.zeros(AGENTS)
            name[agent] = 1.0
            found.append(network.head(network.agent(torch.cat([agents[agent], name])[None]))[0])
        return torch.stack(found)

    def total(network: Any, chosen: Any, row: int, prefix: str) -> Any:
        mixer, state = network.mixer, torch.from_numpy(batch[f"{prefix}/state"][row])
        first = mixer.first_weight(state).abs().reshape(AGENTS, 4)
        hidden = sum(chosen[agent] * first[agent] for agent in range(AGENTS)) + mixer.first_bias(state)
        hidden = torch.where(hidden > 0, hidden, hidden.exp() - 1)
        return (hidden * mixer.last_weight(state).abs()).sum() + mixer.last_bias(state)[0]

    def best_legal(judge: Any, row: int, agent: int) -> int:
        legal = range(ACTIONS)
        if "next_obs/action_mask" in batch.columns:
            legal = np.flatnonzero(batch["next_obs/action_mask"][row, agent]).tolist()
        return int(max(legal, key=lambda action: float(judge[agent, action])))

    losses = []
    with torch.no_grad():
        for row in range(len(batch)):
            own = values(model, row, "obs")
            chosen = [own[agent, batch["action"][row, agent]] for agent in range(AGENTS)]
            following, judge = values(target, row, "next_obs"), values(model if double else target, row, "next_obs")
            best = [following[agent, best_legal(judge, row, agent)] for agent in range(AGENTS)]
            goal = float(batch["reward"][row])
            if not batch["terminated"][row]:
                goal += 0.99 * float(total(target, best, row, "next_obs"))
            error = float(total(model, chosen, row, "obs")) - goal
            each = error**2 if not huber else 0.5 * error**2 if abs(error) <= 1 else abs(error) - 0.5
            losses.append(each * float(batch.columns["weight"][row]) if "weight" in batch.columns else each)
    return float(np.mean(losses))


def other_target(policy: QMIXPolicy) -> None:
    """Let the target network judge the next actions differently than the online one."""
    with torch.no_grad():
        for parameter in policy._target_model.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))


@pytest.mark.parametrize(
    ("double", "weighted", "loss", "masked"),
    [
        (False, False, "mse", False),
        (True, True, "mse", False),
        (True, False, "huber", True),
        (False, True, "huber", True),
    ],
)
def test_the_loss_is_that_of_the_slow_version(double: bool, weighted: bool, loss: str, masked: bool) -> None:
    policy, batch = make(double=double, priority=True, priority_IS_weight=True, learn=dict(loss=loss)), rows()
    other_target(policy)
    rng = np.random.default_rng(1)
    if weighted:
        batch = batch.with_columns(weight=np.linspace(0.0, 2.0, ROWS).astype(np.float32))
    if masked:
        mask = np.stack([np.eye(ACTIONS, dtype=np.int8)[rng.integers(0, ACTIONS, AGENTS)] for _ in range(ROWS)])
        mask[::2] = 1
        batch = batch.with_columns(**{"next_obs/action_mask": mask})

    info, priorities = policy.grad(batch)

    expected, other = (slow_loss(policy, batch, double=each, huber=loss == "huber") for each in (double, not double))
    assert masked or abs(expected - other) > 1e-3 * abs(expected), "a policy that ignores `double` shows"
    assert float(info["total_loss"]) == pytest.approx(expected, rel=1e-5)
    assert priorities is not None and priorities.shape == (ROWS,)


def test_an_observation_that_is_no_team_is_refused_when_acting() -> None:
    with pytest.raises(SchemaError, match="'agents'"):
        make().collect_mode.actor.act(
            np.zeros((2, 4), np.float32), lanes=np.arange(2), is_first=np.zeros(2, bool), rng=np.random.default_rng(0)
        )


def test_the_total_grows_with_each_agents_value() -> None:
    model = make().get_attribute("model")
    values = torch.randn(200, AGENTS, requires_grad=True)
    (slope,) = torch.autograd.grad(model.mix(values, {"state": torch.randn(200, STATE)}).sum(), values)

    assert (slope >= 0).all() and (slope > 0).any()


def test_every_agent_explores_by_itself() -> None:
    policy, lanes = make(), 4000
    obs = {name: np.zeros((lanes, *shape), np.float32) for name, shape in (("agents", (3, OBS)), ("state", (STATE,)))}
    setting: dict[str, Any] = dict(lanes=np.arange(lanes), is_first=np.zeros(lanes, bool))
    actor = policy.collect_mode.actor
    greedy = actor.act(obs, rng=np.random.default_rng(0), **setting)["action"]
    drawn = actor.act(obs, rng=np.random.default_rng(0), eps=0.5, **setting)["action"]

    assert greedy.shape == (lanes, AGENTS) and (greedy == greedy[0]).all()
    changed = drawn != greedy
    # Half explore, and half of these hit the same action of two: a quarter each, independently of each other.
    assert changed.mean(axis=0) == pytest.approx([0.25] * AGENTS, abs=0.03)
    assert changed.all(axis=1).mean() == pytest.approx(0.25**3, abs=0.01)


@pytest.mark.parametrize(
    ("obs_shape", "action_shape"),
    [(4, [2, 2]), ({"agents": [2, 3]}, [2, 2]), ({"agents": [2, 3], "state": 4}, [2, 3])],
)
def test_what_is_no_team_is_refused(obs_shape: Any, action_shape: Any) -> None:
    with pytest.raises(ConfigError, match="qmix"):
        QMIX(obs_shape, action_shape)


def test_without_a_mixer_values_of_agents_are_added_up() -> None:
    model = QMIX({"agents": [AGENTS, OBS], "state": STATE}, [ACTIONS] * AGENTS, [8], mixer=False)
    values = torch.arange(6.0).reshape(2, 3)

    assert model.mix(values, {"state": torch.zeros(2, STATE)}).tolist() == [3.0, 12.0]
    assert not any("mixer" in name for name in model.state_dict())
