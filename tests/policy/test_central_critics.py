"""MADDPG, MATD3 and MASAC: an update equals a slow walk over agents and rows, some of which have left."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, TanhTransform, TransformedDistribution

from ding_like.errors import ConfigError, SchemaError
from ding_like.model.team import TeamQAC, groups_of
from tests.policy.team_rows import (
    ACTIONS,
    AGENTS,
    DISCRETE,
    HALF,
    LOW,
    ROWS,
    SHAPES,
    STATE,
    Networks,
    drawn_by,
    joint,
    make_team,
    row_action,
    team_rows,
    what_follows,
)

ALPHA = 0.2
REG = 0.01
# Of each agent, where some have fewer dimensions of a continuous action than others.
SIZES = [2, 1, 2]


class Slow:
    """Losses of an update, each agent and row by itself: means over rows of sums over the agents that act."""

    draws, kind = 0, "normal"

    def __init__(self, policy: Any, batch: Any, networks: Networks, **case: Any) -> None:
        self.networks, self.discrete = networks, case.get("discrete", False)
        self.ignore_done, self.sizes = case.get("ignore_done", False), case.get("sizes", [ACTIONS] * AGENTS)
        width = DISCRETE if self.discrete else ACTIONS
        self.noise = drawn_by(policy, ROWS, AGENTS, width, num=self.draws, kind=self.kind) if self.draws else []
        self.losses: dict[str, Tensor] = {}
        of_agents: list[dict[str, Tensor]] = []
        for agent in range(AGENTS):
            acting = [number for number in range(ROWS) if batch[number]["obs/alive"][agent]]
            each = [self.of_row(batch[number], number, agent) for number in acting]
            of_agents.append({name: torch.stack([own[name] for own in each]).sum() / ROWS for name in each[0]})
        self.losses = {name: torch.stack([own[name] for own in of_agents]).sum() for name in of_agents[0]}

    def of_row(self, row: Any, number: int, agent: int) -> dict[str, Tensor]:
        """Return the losses of one agent in one row."""
        acts, follows = row["obs/alive"], row["next_obs/alive"]
        next_action = [self.next_action(row, number, other) for other in range(AGENTS)]
        next_joint = self.cut(joint(next_action[agent][0], agent, [each for each, _ in next_action], follows))
        next_values = self.networks.values(row, "next_obs", agent, next_joint, target=True)
        next_value = float(min(value.item() for value in next_values)) - float(next_action[agent][1])
        target = what_follows(row, agent, next_value, ignore_done=self.ignore_done)
        done = row_action(row, discrete=self.discrete)
        taken = self.networks.values(row, "obs", agent, self.cut(joint(done[agent], agent, done, acts)))
        error = sum((value[0] - target) ** 2 for value in taken)
        return {
            "critic": float(row.get("weight", 1.0)) * self.scale * error,
            **self.of_actor(row, number, agent, done, acts),
        }

    scale = 1.0

    def cut(self, actions: list[Tensor]) -> list[Tensor]:
        """Return actions in which dimensions that an agent lacks are 0."""
        if self.discrete:
            return actions
        return [each * (torch.arange(ACTIONS) < size) for each, size in zip(actions, self.sizes, strict=True)]

    def next_action(self, row: Any, number: int, agent: int) -> tuple[Tensor, Any]:
        """Return an agent's next action, and what its value is lowered by."""
        raise NotImplementedError

    def of_actor(self, row: Any, number: int, agent: int, done: list[Tensor], acts: Any) -> dict[str, Tensor]:
        raise NotImplementedError


class SlowMADDPG(Slow):
    """Lowe et al. 2017, equations 5 and 6."""

    def next_action(self, row: Any, number: int, agent: int) -> tuple[Tensor, Any]:
        return self.networks.act(row, "next_obs", agent, target=True).tanh().detach(), 0.0

    def chosen(self, output: Tensor, row: Any, number: int, agent: int) -> Tensor:
        return output.tanh()

    def of_actor(self, row: Any, number: int, agent: int, done: list[Tensor], acts: Any) -> dict[str, Tensor]:
        output = self.networks.act(row, "obs", agent)
        own = self.chosen(output, row, number, agent)
        value = self.networks.values(row, "obs", agent, self.cut(joint(own, agent, done, acts)))[0][0]
        return {"actor": REG * (output**2).mean() - value}


class SlowMATD3(SlowMADDPG):
    """Ackermann et al. 2019: the smaller value of smoothed actions."""

    draws = 1

    def next_action(self, row: Any, number: int, agent: int) -> tuple[Tensor, Any]:
        action, _ = super().next_action(row, number, agent)
        return (action + (0.2 * self.noise[0][number, agent]).clamp(-0.2, 0.3)).clamp(-1, 1), 0.0


class SlowDiscreteMADDPG(SlowMADDPG):
    """Draws of a softmax by Gumbel's trick, with the gradient of the softmax of what decides them."""

    draws, kind = 2, "uniform"

    def relaxed(self, output: Tensor, row: Any, number: int, agent: int, prefix: str, draw: int) -> Tensor:
        noisy = (output - torch.log(-torch.log(self.noise[draw][number, agent]))) / 0.5
        if f"{prefix}/action_mask" in row:
            legal = np.flatnonzero(row[f"{prefix}/action_mask"][agent])
            probs = torch.zeros(DISCRETE, dtype=torch.float64)
            probs[legal] = noisy[legal].softmax(0)
            return probs
        return noisy.softmax(0)

    def next_action(self, row: Any, number: int, agent: int) -> tuple[Tensor, Any]:
        output = self.networks.act(row, "next_obs", agent, target=True)
        soft = self.relaxed(output, row, number, agent, "next_obs", 0)
        return torch.eye(DISCRETE, dtype=torch.float64)[int(soft.argmax())], 0.0

    def chosen(self, output: Tensor, row: Any, number: int, agent: int) -> Tensor:
        soft = self.relaxed(output, row, number, agent, "obs", 1)
        return torch.eye(DISCRETE, dtype=torch.float64)[int(soft.argmax())] + soft - soft.detach()


class SlowMASAC(Slow):
    """SAC of each agent, whose critics are given what all agents would do."""

    draws, scale = 2, 0.5

    def drawn(self, row: Any, prefix: str, agent: int, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return an agent's action and its log density, through torch's own distributions."""
        mean, log_sigma = self.networks.act(row, prefix, agent).chunk(2)
        gaussian = Normal(mean, log_sigma.clamp(-20, 2).exp())
        squashed = TransformedDistribution(gaussian, TanhTransform(cache_size=1))
        action = squashed.transforms[0](mean + gaussian.scale * noise[agent])
        return action, squashed.log_prob(action)[: self.sizes[agent]].sum()

    def next_action(self, row: Any, number: int, agent: int) -> tuple[Tensor, Any]:
        action, log_prob = self.drawn(row, "next_obs", agent, self.noise[0][number])
        return action.detach(), ALPHA * log_prob.detach()

    def of_actor(self, row: Any, number: int, agent: int, done: list[Tensor], acts: Any) -> dict[str, Tensor]:
        drawn = [self.drawn(row, "obs", other, self.noise[1][number]) for other in range(AGENTS)]
        own, log_prob = drawn[agent]
        seen = self.cut(joint(own, agent, [each.detach() for each, _ in drawn], acts))
        value = torch.stack(self.networks.values(row, "obs", agent, seen)).min()
        gap = log_prob.detach() - self.sizes[agent]
        return {"actor": ALPHA * log_prob - value, "alpha": -math.log(ALPHA) * gap}


class SlowDiscreteMASAC(Slow):
    """Iqbal & Sha 2019 with sums over what an agent may do."""

    draws, kind, scale = 2, "uniform", 0.5

    def log_pi(self, row: Any, prefix: str, agent: int) -> dict[int, Tensor]:
        """Return the log probability of each legal action."""
        output = self.networks.act(row, prefix, agent)
        legal = list(range(DISCRETE))
        if f"{prefix}/action_mask" in row:
            legal = np.flatnonzero(row[f"{prefix}/action_mask"][agent]).tolist()
        return dict(zip(legal, output[legal].log_softmax(0), strict=True))

    def drawn(self, row: Any, number: int, prefix: str, draw: int) -> list[Tensor]:
        found = []
        for agent in range(AGENTS):
            noise = -torch.log(-torch.log(self.noise[draw][number, agent]))
            log_pi = self.log_pi(row, prefix, agent)
            each = {action: own.item() + float(noise[action]) for action, own in log_pi.items()}
            found.append(torch.eye(DISCRETE, dtype=torch.float64)[max(each, key=lambda action: each[action])])
        return found

    def soft_value(self, row: Any, number: int, agent: int, prefix: str, draw: int, acts: Any, target: bool) -> Tensor:
        others = joint(torch.zeros(DISCRETE).double(), agent, self.drawn(row, number, prefix, draw), acts)
        values = torch.stack(self.networks.values(row, prefix, agent, others, target=target)).amin(0)
        log_pi = self.log_pi(row, prefix, agent)
        return sum(own.exp() * (values[action] - ALPHA * own) for action, own in log_pi.items())  # type: ignore[return-value]

    def of_row(self, row: Any, number: int, agent: int) -> dict[str, Tensor]:
        acts, done = row["obs/alive"], row_action(row, discrete=True)
        next_value = self.soft_value(row, number, agent, "next_obs", 0, row["next_obs/alive"], target=True)
        target = what_follows(row, agent, next_value.item(), ignore_done=self.ignore_done)
        others = joint(torch.zeros(DISCRETE).double(), agent, done, acts)
        taken = [each[int(row["action"][agent])] for each in self.networks.values(row, "obs", agent, others)]
        log_pi = self.log_pi(row, "obs", agent)
        entropy = -sum((own.exp() * own).item() for own in log_pi.values())
        return {
            "critic": float(row.get("weight", 1.0)) * sum(0.5 * (value - target) ** 2 for value in taken),
            "actor": -self.soft_value(row, number, agent, "obs", 1, acts, target=False),
            "alpha": torch.tensor(math.log(ALPHA) * (entropy - 0.98 * math.log(len(log_pi))), dtype=torch.float64),
        }


LEARN: dict[str, Any] = dict(actor_reg=REG)
SLOW: dict[str, tuple[type[Slow], str, bool, dict[str, Any]]] = {
    "maddpg": (SlowMADDPG, "maddpg", False, LEARN),
    "maddpg discrete": (SlowDiscreteMADDPG, "maddpg", True, dict(LEARN, gumbel_tau=0.5)),
    "matd3": (SlowMATD3, "matd3", False, dict(LEARN, actor_update_freq=1, noise_range=dict(min=-0.2, max=0.3))),
    "masac": (SlowMASAC, "masac", False, {}),
    "masac_discrete": (SlowDiscreteMASAC, "masac_discrete", True, {}),
}
# Variants of rows and settings that every loss must get right.
CASES: dict[str, dict[str, Any]] = {
    "separate": {},
    "shared": dict(sharing="shared"),
    "groups": dict(sharing=[0, 1, 0], critic_sees="agents"),
    "weights": dict(columns=dict(weight=np.linspace(0.0, 2.0, ROWS, dtype=np.float32)), priority_IS_weight=True),
    "ignore_done": dict(ignore_done=True),
    "unequal": {},  # numbers of actions
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", SLOW)
def test_an_update_equals_a_slow_walk_over_agents_and_rows(name: str, case: str) -> None:
    slow, kind, discrete, learn = SLOW[name]
    given = CASES[case]
    sharing, seen = given.get("sharing", "separate"), given.get("critic_sees", "state")
    unequal = {"action_sizes": SIZES} if case == "unequal" and not discrete else {}
    policy = make_team(
        kind,
        discrete=discrete,
        learn=dict(learn, ignore_done=given.get("ignore_done", False)),
        model=dict(sharing=sharing, critic_sees=seen, **unequal),
        priority_IS_weight=given.get("priority_IS_weight", False),
    )
    batch = team_rows(discrete=discrete, masked=discrete and case == "unequal", **given.get("columns", {}))
    networks = Networks(policy, groups_of(sharing, AGENTS), seen=seen)
    options = dict(discrete=discrete, ignore_done=case == "ignore_done", **({"sizes": SIZES} if unequal else {}))
    losses = slow(policy, batch, networks, **options).losses

    info, priority = policy.grad(batch)

    assert priority is None
    for network in ("critic", "actor"):
        loss = losses[network]
        assert float(info[f"{network}_loss"]) == pytest.approx(float(loss.detach()), rel=1e-5, abs=1e-5)
        gradient = torch.autograd.grad(loss, list(getattr(networks, network).parameters()), retain_graph=True)
        found = policy._networks()[network].params.grad_vector.double()
        torch.testing.assert_close(found, torch.cat([grad.flatten() for grad in gradient]), rtol=1e-4, atol=1e-6)
        assert found.abs().max() > 1e-2
    if "alpha" in losses:
        assert float(info["alpha_loss"]) == pytest.approx(float(losses["alpha"]), rel=1e-4, abs=1e-5)


def gradients(policy: Any) -> Tensor:
    return torch.cat([network.params.grad_vector for network in policy._networks().values()])


@pytest.mark.parametrize("name", SLOW)
def test_what_an_agent_that_has_left_did_or_was_paid_changes_nothing(name: str) -> None:
    _, kind, discrete, _ = SLOW[name]
    policy, batch = make_team(kind, discrete=discrete), team_rows(discrete=discrete)
    info, _ = policy.grad(batch)
    expected = gradients(policy).clone()
    left = batch["obs/alive"] == 0
    paid, action = batch["next_obs/rewards"].copy(), batch["action"].copy().reshape(ROWS, AGENTS, -1)
    paid[left] = 100.0
    action[left] = 1 if discrete else LOW[:ACTIONS] + HALF[:ACTIONS]

    other, _ = policy.grad(
        batch.with_columns(**{"next_obs/rewards": paid}, action=action.reshape(batch["action"].shape))
    )

    assert left.any() and torch.equal(gradients(policy), expected)
    assert {name: float(each.mean()) for name, each in other.items()} == {
        name: float(each.mean()) for name, each in info.items()
    }


@pytest.mark.parametrize("name", SLOW)
def test_an_agent_that_acts_in_no_row_learns_nothing(name: str) -> None:
    _, kind, discrete, learn = SLOW[name]
    policy, batch = make_team(kind, discrete=discrete, learn=learn), team_rows(discrete=discrete)
    alive = batch["obs/alive"].copy()
    alive[:, 1] = 0

    policy.grad(batch.with_columns(**{"obs/alive": alive}))

    for network in policy._networks().values():
        for parameter in network.network.parameters():
            if parameter.dim() == 1:  # the temperatures
                assert parameter.grad[1] == 0.0 and parameter.grad[0] != 0.0
            else:  # of two critics, those of agent 1 come second and fifth
                of_agents = parameter.grad.unflatten(0, (-1, AGENTS))
                assert not of_agents[:, 1].any() and of_agents[:, 0].any() and of_agents[:, 2].any()


def test_a_reward_of_one_agent_moves_its_own_critic_alone() -> None:
    policy, batch = make_team("maddpg", discrete=True), team_rows(discrete=True)
    policy.grad(batch)
    before = [parameter.grad.clone() for parameter in policy._critic.network.parameters()]
    paid = batch["next_obs/rewards"].copy()
    paid[:, 2] += 5.0

    policy.grad(batch.with_columns(**{"next_obs/rewards": paid}))

    for parameter, old in zip(policy._critic.network.parameters(), before, strict=True):
        assert torch.equal(parameter.grad[:2], old[:2]) and not torch.equal(parameter.grad[2], old[2])


def test_priorities_are_errors_of_the_agents_that_act() -> None:
    policy, batch = (
        make_team("matd3", discrete=False, priority=True, learn=dict(noise=False)),
        team_rows(discrete=False),
    )
    networks = Networks(policy, groups_of("separate", AGENTS))
    expected = []
    for row in batch:
        done, errors = row_action(row, discrete=False), []
        following = [networks.act(row, "next_obs", agent, target=True).tanh() for agent in range(AGENTS)]
        for agent in np.flatnonzero(row["obs/alive"]):
            seen = joint(following[agent], agent, following, row["next_obs/alive"])
            next_value = min(
                float(each.detach()) for each in networks.values(row, "next_obs", agent, seen, target=True)
            )
            target = what_follows(row, agent, next_value, ignore_done=False)
            values = networks.values(row, "obs", agent, joint(done[agent], agent, done, row["obs/alive"]))
            errors += [abs(float(each.detach()) - target) for each in values]
        expected.append(np.mean(errors) if errors else 0.0)

    _, priority = policy.grad(batch)

    np.testing.assert_allclose(priority, expected, rtol=1e-5, atol=1e-6)


def test_one_temperature_for_all_learns_from_all() -> None:
    each, one = (make_team("masac", discrete=False, learn=dict(alpha_by_agent=own)) for own in (True, False))
    batch = team_rows(discrete=False)

    for policy in (each, one):
        policy.grad(batch)

    found = one._temperature.params.grad_vector
    assert found.shape == (1,) and each._temperature.params.grad_vector.shape == (AGENTS,)
    torch.testing.assert_close(found[0], each._temperature.params.grad_vector.sum())


def test_actors_of_matd3_and_targets_wait_for_their_critics() -> None:
    policy, batch = make_team("matd3", discrete=False), team_rows(discrete=False)

    def state() -> list[Tensor]:
        networks = policy._actor, policy._critic
        return [each.clone() for own in networks for each in (own.params.data_vector, own.target_params.data_vector)]

    before = state()
    policy.grad(batch)
    policy.apply()
    between = state()
    policy.grad(batch)
    policy.apply()

    moved = [not torch.equal(*pair) for pair in zip(before, between, strict=True)]
    assert moved == [False, False, True, False]
    assert all(not torch.equal(*pair) for pair in zip(between, state(), strict=True))


def act(policy: Any, rows: int = 2000) -> np.ndarray:
    """Return what a team does in many envs that look alike [R, N, A], one by one of discrete actions [R, N]."""
    one = team_rows(discrete=True)
    obs = {name.split("/")[1]: one[name][:1].repeat(rows, axis=0) for name in one.columns if name.startswith("obs/")}
    found = policy.collect_mode.actor.act(
        obs, lanes=np.arange(rows), is_first=np.zeros(rows, bool), rng=np.random.default_rng(0)
    )
    action: np.ndarray = found["action"]
    return action


def test_noise_is_drawn_for_each_env_and_each_agent() -> None:
    policy = make_team("maddpg", discrete=False, collect=dict(noise_sigma=0.01), learn=dict(actor_reg=0.0))
    policy._actor.params.data_vector.mul_(0.1)  # away from the bounds

    noise = act(policy)
    noise = (noise - noise.mean(axis=0)) / HALF

    assert noise.shape == (2000, AGENTS * ACTIONS)
    np.testing.assert_allclose(np.cov(noise.T), 1e-4 * np.eye(AGENTS * ACTIONS), atol=2e-5)


@pytest.mark.parametrize("name", ["maddpg", "masac_discrete"])
def test_discrete_agents_draw_by_their_logits_each_by_itself(name: str) -> None:
    policy = make_team(name, discrete=True)
    obs = team_rows(discrete=True)
    with torch.no_grad():
        pi = policy.get_attribute("model").actor({"agents": torch.from_numpy(obs["obs/agents"][:1])})[0].softmax(-1)

    action = act(policy, 20_000)

    for agent in range(AGENTS):
        np.testing.assert_allclose(np.bincount(action[:, agent], minlength=DISCRETE) / 20_000, pi[agent], atol=0.015)
    pairs = np.bincount(action[:, 0] * DISCRETE + action[:, 1], minlength=DISCRETE**2) / 20_000
    np.testing.assert_allclose(pairs, np.outer(pi[0], pi[1]).ravel(), atol=0.015)


@pytest.mark.parametrize("name", ["maddpg", "masac_discrete"])
def test_a_forbidden_action_is_drawn_in_no_update(name: str) -> None:
    policy, batch = make_team(name, discrete=True), team_rows(discrete=True, masked=True)
    policy.get_attribute("model").actor.net.mlp.biases[-1].data[:, :, -1] += 50.0  # what the last agent may not do
    seen: list[Tensor] = []
    joint_of = policy._joint
    policy._joint = lambda own, others: seen.append(others) or joint_of(own, others)

    policy.grad(batch)

    drawn = [each for each in seen if each is not seen[0] or name == "maddpg"]
    assert len(seen) >= 2 and all(not each[:, -1, -1].any() for each in drawn)
    assert any(each[:, :-1, -1].any() for each in drawn)


@pytest.mark.parametrize(
    ("sharing", "groups"), [("shared", [0, 0, 0]), ("separate", [0, 1, 2]), ([1, 0, 1], [1, 0, 1])]
)
def test_agents_of_a_group_share_weights_and_are_told_apart_by_their_number(sharing: Any, groups: list[int]) -> None:
    model = TeamQAC(SHAPES, [DISCRETE] * AGENTS, sharing=sharing)
    view = torch.randn(1, 1, 4).expand(1, AGENTS, -1)

    output = model.actor({"agents": view})[0]

    assert model.actor.net.mlp.num == len(set(groups))
    assert all(not torch.equal(output[0], output[other]) for other in (1, 2))
    with torch.no_grad():  # without its number, an agent is like the others of its group
        model.actor.net.names.zero_()
    output = model.actor({"agents": view})[0]
    for other in (1, 2):
        assert torch.allclose(output[0], output[other]) == (groups[0] == groups[other])


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        (dict(model=dict(sharing=[0, 2, 2])), "sharing is .*counted from 0"),
        (dict(model=dict(sharing="all")), "sharing is 'all'.*'separate'"),
        (dict(model=dict(critic_sees="views")), "critic_sees is 'views'; expected 'state' or 'agents'"),
        (dict(model=dict(action_space="tanh")), "action_space is 'tanh'"),
        (dict(model=dict(action_sizes=[2, 1])), "action_sizes is .*each of 3 agents"),
        (dict(model=dict(action_shape=5)), "equally many actions of each of 3 agents, got action_shape 5"),
        (dict(model=dict(obs_shape=4)), "learns from a team: observations of agents"),
        (dict(learn=dict(gumbel_tau=0.5)), "gumbel_tau is 0.5, but has no effect, as the agents' actions are contin"),
    ],
)
def test_what_does_not_fit_a_team_is_refused(changes: dict[str, Any], error: str) -> None:
    if changes.get("model", {}).get("obs_shape") == 4:
        with pytest.raises(ConfigError, match=error):
            TeamQAC(4, 6)  # type: ignore[arg-type]
        return
    with pytest.raises(ConfigError, match=error):
        make_team("maddpg", discrete=False, **changes)


def test_discrete_actions_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="equally many actions of each of 3 agents"):
        TeamQAC(SHAPES, [2, 3, 2])
    with pytest.raises(ConfigError, match="action_sizes is for continuous actions"):
        TeamQAC(SHAPES, [2, 2, 2], action_sizes=[2, 2, 1])
    with pytest.raises(
        ConfigError, match="learn.noise is True, but has no effect, as the agents' actions are discrete"
    ):
        make_team("maddpg", discrete=True, learn=dict(noise=True))


def test_a_team_that_does_not_say_who_left_is_refused() -> None:
    old = {name: shape for name, shape in SHAPES.items() if name not in ("alive", "ended")}

    policy = make_team("maddpg", discrete=True)
    policy.cfg.model.obs_shape = old
    with pytest.raises(ConfigError, match="no alive, ended: env type 'joint_petting_zoo'"):
        type(policy)(policy.cfg)


def test_steps_and_rewards_of_the_team_alone_are_refused() -> None:
    policy = make_team("maddpg", discrete=True)

    assert [path for path, _ in type(policy).check_config({**policy.cfg, "nstep": 3})] == ["nstep"]
    assert "its own reward" in str(policy.why_no_reward_model())
    with pytest.raises(SchemaError, match=r"'agents' is \[B, 3, 4\], got \['state'\]"):
        policy.get_attribute("model").actor({"state": torch.zeros(1, STATE)})
