"""Networks of teams that learn agent by agent: of what one agent sees, or of the state too.

A policy lays what an agent sees out as one vector: its view, that is what the env shows it and its number, one-hot, and
behind it the state, for those that see it. All agents of a team share these networks; `HAPPO` has an actor for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from ding_like.data.team import AGENTS, STATE, TeamSizes
from ding_like.model.encoder import Encoder, FCEncoder, ObsShape, check_obs_shape
from ding_like.model.layers import DiscreteHead, ObsTensor, build_mlp, init_orthogonal, over_time
from ding_like.model.q_networks import DQN
from ding_like.model.vac import BC, VAC, ActionShape, ActionSpace, ActorCritic, RecurrentVAC, State
from ding_like.types import Array
from ding_like.utils.registries import MODEL_REGISTRY

# Constructors take the arguments of their base class beside their own, each of its own type: hence Any.


@MODEL_REGISTRY.register("ippo")
class AgentVAC(VAC):
    """Actor and critic of one agent's view [B, V]; `settings` are VAC's."""

    def __init__(self, obs_shape: ObsShape, action_shape: ActionShape, **settings: Any) -> None:
        sizes = TeamSizes.of(obs_shape, action_shape, name="ippo")
        super().__init__(sizes.view, sizes.num_actions, **settings)


class ViewEncoder(FCEncoder):
    """FCEncoder of the first numbers of a vector, an agent's view, whatever stands behind them."""

    def forward(self, x: Tensor) -> Tensor:
        """Encode [B, V + ...]; SchemaError for fewer numbers."""
        return super().forward(x[:, : self.obs_shape[0]])


class FirstNumbers:
    """What a `ViewEncoder` begins with, as a layer of `model.numpy_networks`."""

    def __init__(self, size: int) -> None:
        self._size = size

    def forward(self, x: Array) -> Array:
        check_obs_shape(x[:, : self._size].shape, (self._size,))
        self._shape = x.shape
        return x[:, : self._size]

    def backward(self, grad: Array) -> Array:
        back = np.zeros(self._shape, grad.dtype)
        back[:, : self._size] = grad
        return back


class CentralCritic(ActorCritic):
    """Base of networks whose actor sees an agent's view, and whose critic sees the state behind it as well."""

    _view: int  # set before the constructor of `ActorCritic` runs

    def _build_encoder(self, which: str, obs_shape: ObsShape, *args: Any, **settings: Any) -> Encoder:
        if which == "critic":
            return super()._build_encoder(which, obs_shape, *args, **settings)
        sizes = {} if args[0] is None else {"hidden_size_list": args[0]}
        plain = {name: settings[name] for name in ("activation", "norm_type", "block")}
        return ViewEncoder(self._view, **sizes, **plain)


@MODEL_REGISTRY.register("mappo")
class CentralVAC(CentralCritic, VAC):
    """Actor of one agent's view, and critic of the view and the state [B, V + S]; `settings` are VAC's.

    The two share no layer.
    """

    def __init__(self, obs_shape: ObsShape, action_shape: ActionShape, **settings: Any) -> None:
        sizes = TeamSizes.of(obs_shape, action_shape, name="mappo")
        self._view = sizes.view
        super().__init__(sizes.view + sizes.state, sizes.num_actions, share_encoder=False, **settings)


@MODEL_REGISTRY.register("ippo_recurrent")
class AgentRecurrentVAC(RecurrentVAC):
    """Actor and critic that remember one agent's views [B, T, V]; `settings` are those of 'recurrent_vac'."""

    def __init__(self, obs_shape: ObsShape, action_shape: ActionShape, **settings: Any) -> None:
        sizes = TeamSizes.of(obs_shape, action_shape, name="ippo_recurrent")
        super().__init__(sizes.view, sizes.num_actions, **settings)


@MODEL_REGISTRY.register("mappo_recurrent")
class CentralRecurrentVAC(CentralCritic, RecurrentVAC):
    """Actor that remembers one agent's views, and feed-forward critic of the view and the state [B, T, V + S].

    The critic sees the state and needs no memory: in its place it has one more layer, of `hidden_size`. `settings` are
    those of 'recurrent_vac'.
    """

    _shares_encoder = False

    def __init__(self, obs_shape: ObsShape, action_shape: ActionShape, **settings: Any) -> None:
        sizes = TeamSizes.of(obs_shape, action_shape, name="mappo_recurrent")
        self._view = sizes.view
        super().__init__(sizes.view + sizes.state, sizes.num_actions, **settings)

    def _build_middle(self, width: int) -> int:
        hidden = super()._build_middle(width)
        self.critic_middle = build_mlp(width, [hidden])
        return hidden

    def actor(self, x: ObsTensor, state: Mapping[str, Tensor]) -> tuple[Tensor, State]:
        """Return (what the action distributions are made of [B, T, P], the state behind the last step)."""
        features, behind = self.core(over_time(self.actor_encoder, x), state)
        return over_time(self.actor_head, features), behind

    def critic(self, x: ObsTensor, state: Mapping[str, Tensor]) -> tuple[Tensor, State]:
        """Return (values [B, T], the state as it came)."""
        features = over_time(self.critic_middle, over_time(self.critic_encoder, x))
        return over_time(self.critic_head, features).squeeze(2), dict(state)

    def actor_critic(self, x: ObsTensor, state: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, State]:
        """Return what `actor` and `critic` do: (outputs, values, state)."""
        outputs, behind = self.actor(x, state)
        return outputs, self.critic(x, state)[0], behind


@MODEL_REGISTRY.register("idqn")
class AgentDQN(DQN):
    """Values of one agent's actions, of its view [B, V]; `settings` are those of 'dqn'."""

    def __init__(self, obs_shape: ObsShape, action_shape: ActionShape, *args: Any, **settings: Any) -> None:
        sizes = TeamSizes.of(obs_shape, action_shape, name="idqn")
        super().__init__(sizes.view, sizes.num_actions, *args, **settings)


@MODEL_REGISTRY.register("happo")
class HAPPO(nn.Module):
    """An actor for each agent, of what it sees, and one critic of the state.

    Actors are networks 'bc', whose arguments are `actor`'s; `critic_hidden_size_list` are the critic's layers.
    """

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: ActionShape,
        *,
        action_space: ActionSpace = "discrete",
        critic_hidden_size_list: Sequence[int] = (64, 64),
        orthogonal_init: bool = True,
        **actor: Any,
    ) -> None:
        super().__init__()
        sizes = TeamSizes.of(obs_shape, action_shape, name="happo")
        self.actors = nn.ModuleList(
            BC(sizes.seen, sizes.num_actions, action_space=action_space, **actor) for _ in range(sizes.num_agents)
        )
        encoder = FCEncoder(sizes.state, critic_hidden_size_list, activation=actor.get("activation", "relu"))
        self.values = nn.Sequential(encoder, DiscreteHead(encoder.output_size, 1, layer_num=0))
        if orthogonal_init:
            init_orthogonal(self)
            init_orthogonal(self.values[1], gain=1.0)
            for each in self.actors:
                head = cast(BC, each).actor_head
                if isinstance(head, DiscreteHead):
                    init_orthogonal(head.main[-1], gain=0.01)
                else:
                    head.init_orthogonal(gain=0.01)

    def forward(self, obs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return {'logit': what all agents' distributions are made of [B, N, P], 'value': of the states [B]}."""
        outputs = [cast(BC, own).actor(obs[AGENTS][:, n]) for n, own in enumerate(self.actors)]
        return {"logit": torch.stack(outputs, dim=1), "value": self.values(obs[STATE]).squeeze(1)}
