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
    """Losses of an update, each agent and row by itself: sums of means over the rows in which an agent acts."""

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
            of_agents.append({name: torch.stack([own[name] for own in each]).mean() for name in each[0]})
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
