"""Define the networks of QMIX: one Q network that all agents share, and a mixer whose weights the state makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ding_like.errors import ConfigError, SchemaError
from ding_like.model.mlp import build_mlp
from ding_like.utils.registries import MODEL_REGISTRY


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
        mixed: Tensor = (hidden * self.last_weight(state).abs()).sum(1) + self.last_bias(state).squeeze(1)
        return mixed


@MODEL_REGISTRY.register("qmix")
class QMIX(nn.Module):
    """Network of the values of every agent's actions, and of all agents' together.

    Observations are dicts of `agents` [B, N, O] and `state` [B, S]; each agent's network is the same and its input
    names the agent. With `mixer=False` values are added up (Sunehag et al. 2018). Raises ConfigError for other
    observations, and where agents have different numbers of actions.
    """

    def __init__(
        self,
        obs_shape: Mapping[str, Any],
        action_shape: Sequence[int],
        hidden_size_list: Sequence[int] = (64, 64),
        *,
        mixer_embed_size: int = 32,
        mixer: bool = True,
    ) -> None:
        super().__init__()
        agents, state = (obs_shape.get(name) for name in ("agents", "state")) if _is_joint(obs_shape) else (None, None)
        if agents is None or len(agents) != 2 or not isinstance(state, int):
            raise ConfigError(
                f"model 'qmix' takes observations of agents [N, O] and state [S], not {obs_shape}: env type "
                "'joint_petting_zoo' gives them."
            )
        if not isinstance(action_shape, Sequence) or len(set(action_shape)) != 1 or len(action_shape) != agents[0]:
            raise ConfigError(f"model 'qmix' takes one action of equal kind per agent, got sizes {action_shape}.")
        self.num_agents, self.num_actions = int(agents[0]), int(action_shape[0])
        self.agent = build_mlp(int(agents[1]) + self.num_agents, list(hidden_size_list))
        self.head = nn.Linear(int(hidden_size_list[-1]), self.num_actions)
        self.mixer = Mixer(self.num_agents, state, mixer_embed_size) if mixer else None

    def q(self, obs: Mapping[str, Tensor]) -> Tensor:
        """Return each agent's action values [B, N, A]. Raises SchemaError for observations that are no dict."""
        if not isinstance(obs, Mapping):
            raise SchemaError(
                f"a team's observation is a dict of 'agents' [B, N, O] and 'state' [B, S], got an array of shape "
                f"{tuple(obs.shape)}: env type 'joint_petting_zoo' gives such observations."
            )
        own = obs["agents"].to(self.head.weight.dtype)
        names = torch.eye(self.num_agents, dtype=own.dtype, device=own.device).expand(own.shape[0], -1, -1)
        values: Tensor = self.head(self.agent(torch.cat([own, names], dim=-1)))
        return values

    def mix(self, values: Tensor, obs: Mapping[str, Tensor]) -> Tensor:
        """Return Q_tot [B] of one value per agent [B, N]."""
        if self.mixer is None:
            return values.sum(1)
        mixed: Tensor = self.mixer(values, obs["state"].to(values.dtype))
        return mixed

    def forward(self, obs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return {'logit': action values [B, N, A]}."""
        return {"logit": self.q(obs)}


def _is_joint(obs_shape: Any) -> bool:
    return isinstance(obs_shape, Mapping) and isinstance(obs_shape.get("agents"), Sequence)
