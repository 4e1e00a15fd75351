"""Networks of teams: agents that share one network, and what puts their values together.

VDN adds the agents' values up, QMIX mixes them by weights that the state makes; weighted QMIX and QTRAN have a joint
value beside them that no such form limits. COMA has actors in place of values, and a critic that sees all of a team.

Observations are dicts of `agents` [B, N, O] and `state` [B, S], B rows of N agents; A is the number of actions of an
agent. Networks read these two entries alone: who acts, and what happened, is for the policy to weigh (`data/team.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ding_like.data.team import AGENTS, STATE, TeamSizes
from ding_like.errors import SchemaError
from ding_like.model.layers import build_mlp
from ding_like.utils.registries import MODEL_REGISTRY

TeamObs = Mapping[str, Tensor]
_ENV = "env type 'joint_petting_zoo' gives them"


def named_agents(obs: TeamObs, dtype: torch.dtype) -> Tensor:
    """Return what each agent sees with its number, one-hot, [B, N, O + N]; raises SchemaError for no dict."""
    if not isinstance(obs, Mapping):
        raise SchemaError(
            f"a team's observation is a dict of 'agents' [B, N, O] and 'state' [B, S], got an array of shape "
            f"{tuple(obs.shape)}: {_ENV}."
        )
    seen = obs[AGENTS].to(dtype)
    numbers = torch.eye(seen.shape[1], dtype=seen.dtype, device=seen.device).expand(seen.shape[0], -1, -1)
    return torch.cat([seen, numbers], dim=-1)


def _scalar_head(input_size: int, hidden_size_list: Sequence[int]) -> nn.Sequential:
    """Return an MLP with one output."""
    return nn.Sequential(build_mlp(input_size, hidden_size_list), nn.Linear(int(hidden_size_list[-1]), 1))


class Mixer(nn.Module):
    """Mixer of agents' values into one that grows with each of them (Rashid et al. 2018, equation 5, figure 2)."""

    def __init__(self, num_agents: int, state_size: int, embed_size: int) -> None:
        super().__init__()
        self._num_agents, self._embed = num_agents, embed_size
        self.first_weight = nn.Linear(state_size, num_agents * embed_size)
        self.first_bias = nn.Linear(state_size, embed_size)
        self.last_weight = nn.Linear(state_size, embed_size)
        self.last_bias = nn.Sequential(nn.Linear(state_size, embed_size), nn.ReLU(), nn.Linear(embed_size, 1))

    def forward(self, values: Tensor, state: Tensor) -> Tensor:
        """Return Q_tot [B] of the chosen actions' values [B, N] in states [B, S]."""
        # Weights that are not negative make it monotonic: what is best for each agent is best for all.
        first = self.first_weight(state).abs().view(-1, self._num_agents, self._embed)
        hidden = F.elu(torch.bmm(values.unsqueeze(1), first).squeeze(1) + self.first_bias(state))
        return cast(Tensor, (hidden * self.last_weight(state).abs()).sum(1) + self.last_bias(state).squeeze(1))


class AgentValues(nn.Module):
    """Network of the values of an agent's actions, which all agents of a team share: its input names the agent."""

    def __init__(self, sizes: TeamSizes, hidden_size_list: Sequence[int]) -> None:
        super().__init__()
        self.num_agents, self.num_actions = sizes.num_agents, sizes.num_actions
        self.agent = build_mlp(sizes.view, list(hidden_size_list))
        self.head = nn.Linear(int(hidden_size_list[-1]), sizes.num_actions)

    def features(self, obs: TeamObs) -> Tensor:
        """Return what the last hidden layer makes of each agent's observation [B, N, H]."""
        return cast(Tensor, self.agent(named_agents(obs, self.head.weight.dtype)))

    def q(self, obs: TeamObs) -> Tensor:
        """Return each agent's action values [B, N, A]. Raises SchemaError for observations that are no dict."""
        return cast(Tensor, self.head(self.features(obs)))

    def forward(self, obs: TeamObs) -> dict[str, Tensor]:
        """Return {'logit': action values [B, N, A]}."""
        return {"logit": self.q(obs)}


@MODEL_REGISTRY.register("vdn")
class VDN(AgentValues):
    """Network of the values of every agent's actions, whose sum is the team's (Sunehag et al. 2018).

    Raises ConfigError for observations of no team, and where agents have different numbers of actions.
    """

    def __init__(
        self,
        obs_shape: Mapping[str, Any],
        action_shape: Sequence[int],
        hidden_size_list: Sequence[int] = (64, 64),
    ) -> None:
        super().__init__(TeamSizes.of(obs_shape, action_shape, name="vdn"), hidden_size_list)

    def mix(self, values: Tensor, obs: TeamObs) -> Tensor:
        """Return Q_tot [B] of one value per agent [B, N]."""
        return values.sum(1)


@MODEL_REGISTRY.register("qmix")
class QMIX(AgentValues):
    """Network of the values of every agent's actions, and of all agents' together.

    With `mixer=False` values are added up, as by 'vdn'. Raises ConfigError as VDN does.
    """

    name = "qmix"

    def __init__(
        self,
        obs_shape: Mapping[str, Any],
        action_shape: Sequence[int],
        hidden_size_list: Sequence[int] = (64, 64),
        *,
        mixer_embed_size: int = 32,
        mixer: bool = True,
    ) -> None:
        sizes = TeamSizes.of(obs_shape, action_shape, name=self.name)
        super().__init__(sizes, hidden_size_list)
        self.mixer = Mixer(sizes.num_agents, sizes.state, mixer_embed_size) if mixer else None

    def mix(self, values: Tensor, obs: TeamObs) -> Tensor:
        """Return Q_tot [B] of one value per agent [B, N]."""
        if self.mixer is None:
            return values.sum(1)
        return cast(Tensor, self.mixer(values, obs[STATE].to(values.dtype)))


@MODEL_REGISTRY.register("wqmix")
class WQMIX(QMIX):
    """QMIX beside a central value Q* that need not grow with the agents' values (Rashid et al. 2020, section 4).

    Q* has agents of its own, and an MLP of their values and the state with hidden layers `central_hidden_size_list`.
    """

    name = "wqmix"

    def __init__(
        self,
        obs_shape: Mapping[str, Any],
        action_shape: Sequence[int],
        hidden_size_list: Sequence[int] = (64, 64),
        *,
        mixer_embed_size: int = 32,
        central_hidden_size_list: Sequence[int] = (256, 256, 256),
    ) -> None:
        super().__init__(obs_shape, action_shape, hidden_size_list, mixer_embed_size=mixer_embed_size)
        sizes = TeamSizes.of(obs_shape, action_shape, name=self.name)
        self.central_agents = AgentValues(sizes, hidden_size_list)
        self.central_mixer = _scalar_head(sizes.num_agents + sizes.state, central_hidden_size_list)

    def central_q(self, obs: TeamObs) -> Tensor:
        """Return the values [B, N, A] of the agents' actions that Q* is made of."""
        return self.central_agents.q(obs)

    def central_mix(self, values: Tensor, obs: TeamObs) -> Tensor:
        """Return Q* [B] of one of these values per agent [B, N]."""
        return cast(Tensor, self.central_mixer(torch.cat([values, obs[STATE].to(values.dtype)], dim=1)).squeeze(1))


@MODEL_REGISTRY.register("qtran")
class QTRAN(AgentValues):
    """Agents' values, and beside them a joint value of any form and a value of states (Son et al. 2019, section 3).

    Both see the state, and what the agents' last hidden layer gives, each agent's encoded with its action, or without,
    and added up over the agents that are there.
    """

    def __init__(
        self,
        obs_shape: Mapping[str, Any],
        action_shape: Sequence[int],
        hidden_size_list: Sequence[int] = (64, 64),
        *,
        joint_hidden_size_list: Sequence[int] = (64, 64),
    ) -> None:
        sizes = TeamSizes.of(obs_shape, action_shape, name="qtran")
        super().__init__(sizes, hidden_size_list)
        width, joint = int(hidden_size_list[-1]), list(joint_hidden_size_list)
        self.with_action = build_mlp(width + sizes.num_actions, joint[:1])
        self.without_action = build_mlp(width, joint[:1])
        self.joint_head = _scalar_head(joint[0] + sizes.state, joint)
        self.state_head = _scalar_head(joint[0] + sizes.state, joint)

    def joint(self, obs: TeamObs, action: Tensor, present: Tensor) -> Tensor:
        """Return Q_jt [B] of joint actions [B, N], of the agents that are `present` bool [B, N]."""
        features = self.features(obs)
        chosen = F.one_hot(action.long(), self.num_actions).to(features.dtype)
        return self._of_team(self.joint_head, self.with_action(torch.cat([features, chosen], dim=-1)), obs, present)

    def state_value(self, obs: TeamObs, present: Tensor) -> Tensor:
        """Return V_jt [B], of the agents that are `present` bool [B, N]."""
        return self._of_team(self.state_head, self.without_action(self.features(obs)), obs, present)

    def _of_team(self, head: nn.Module, encoded: Tensor, obs: TeamObs, present: Tensor) -> Tensor:
        together = (encoded * present.unsqueeze(-1)).sum(1)
        return cast(Tensor, head(torch.cat([together, obs[STATE].to(together.dtype)], dim=1)).squeeze(1))


@MODEL_REGISTRY.register("coma")
class COMA(nn.Module):
    """Actor that all agents share, and a critic of the team (Foerster et al. 2018, figure 1).

    For each agent the critic gives the value of each of its actions, where the others do what they did. It sees the
    state, what the agent sees, its number and the others' actions.
    """

    def __init__(
        self,
        obs_shape: Mapping[str, Any],
        action_shape: Sequence[int],
        hidden_size_list: Sequence[int] = (64, 64),
        *,
        critic_hidden_size_list: Sequence[int] = (128, 128),
    ) -> None:
        super().__init__()
        sizes = TeamSizes.of(obs_shape, action_shape, name="coma")
        own = sizes.view
        self.actor_net = nn.Sequential(
            build_mlp(own, list(hidden_size_list)), nn.Linear(int(hidden_size_list[-1]), sizes.num_actions)
        )
        self.critic_net = nn.Sequential(
            build_mlp(sizes.state + own + sizes.num_agents * sizes.num_actions, list(critic_hidden_size_list)),
            nn.Linear(int(critic_hidden_size_list[-1]), sizes.num_actions),
        )

    def actor(self, obs: TeamObs) -> Tensor:
        """Return the logits of all agents' actions in a row [B, N * A]."""
        return cast(Tensor, self.actor_net(named_agents(obs, self._dtype)).flatten(1))

    def critic(self, obs: TeamObs, actions: Tensor) -> Tensor:
        """Return the values of each agent's actions [B, N, A] beside those of the others, one-hot [B, N, A].

        An agent's own action is not seen. Zeros are no action: of an agent that is not there.
        """
        own = named_agents(obs, self._dtype)
        agents = actions.shape[1]
        is_other = 1.0 - torch.eye(agents, dtype=own.dtype, device=own.device)  # [N, N]: agent, whose action
        others = (actions.to(own.dtype).unsqueeze(1) * is_other.unsqueeze(-1)).flatten(2)
        state = obs[STATE].to(own.dtype).unsqueeze(1).expand(-1, agents, -1)
        return cast(Tensor, self.critic_net(torch.cat([state, own, others], dim=-1)))

    @property
    def _dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    def forward(self, obs: TeamObs) -> dict[str, Tensor]:
        """Return {'logit': logits of all agents' actions in a row [B, N * A]}."""
        return {"logit": self.actor(obs)}
