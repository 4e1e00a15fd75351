"""Actor and critics of continuous actions with memory: the networks of recurrent SAC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from ding_like.errors import ConfigError
from ding_like.model.encoder import ObsShape, build_encoder
from ding_like.model.layers import (
    Activation,
    CellType,
    DiscreteHead,
    ObsTensor,
    RecurrentCore,
    as_sizes,
    over_time,
)
from ding_like.model.qac import ParallelMLP
from ding_like.types import Array
from ding_like.utils.registries import MODEL_REGISTRY

State = dict[str, Tensor]


class Memory(nn.Module):
    """Encoder and recurrent layer of `hidden_size`; its features are what it remembers and what it sees, side by side.

    The names of its state begin with `name`, so that one dict holds the state of several.
    """

    def __init__(
        self,
        name: str,
        obs_shape: ObsShape,
        encoder_sizes: Sequence[int] | None,
        hidden_size: int,
        *,
        cell_type: CellType,
        activation: Activation,
    ) -> None:
        super().__init__()
        self.encoder = build_encoder(obs_shape, encoder_sizes, activation=activation)
        self.core = RecurrentCore(self.encoder.output_size, hidden_size, cell_type=cell_type)
        self.names = {f"{name}_{own}": own for own in self.core.state_names}
        self.output_size = self.encoder.output_size + hidden_size

    @property
    def initial_state(self) -> dict[str, Array]:
        """The state before an episode, float32 [H] by name."""
        return {name: self.core.initial_state[own] for name, own in self.names.items()}

    def forward(self, obs: ObsTensor, state: Mapping[str, Tensor]) -> tuple[Tensor, State]:
        """Return (features [B, T, F], the state [B, H] behind the last step) of sequences [B, T, O...].

        `state` is that before the first step, and may hold columns of others.
        """
        seen = over_time(self.encoder, obs)
        remembered, behind = self.core(seen, {own: state[name] for name, own in self.names.items()})
        return torch.cat([remembered, seen], dim=2), {name: behind[own] for name, own in self.names.items()}


class RecurrentActor(nn.Module):
    """Mean and log standard deviation of a Gaussian for every step of sequences."""

    def __init__(self, memory: Memory, head: nn.Module) -> None:
        super().__init__()
        self.memory, self.head = memory, head

    def forward(self, obs: ObsTensor, state: Mapping[str, Tensor]) -> tuple[Tensor, State]:
        """Return (means and log standard deviations [B, T, 2 A], the state behind the last step)."""
        features, behind = self.memory(obs, state)
        return over_time(self.head, features), behind


class RecurrentCritic(nn.Module):
    """`num` values of an action, from the features of a memory that they share."""

    def __init__(self, memory: Memory, q: ParallelMLP) -> None:
        super().__init__()
        self.memory, self.q = memory, q

    def forward(self, features: Tensor, action: Tensor) -> Tensor:
        """Return values [N, B] of actions [B, A] in [-1, 1], in steps whose features [B, F] `memory` gave."""
        return cast(Tensor, self.q(torch.cat([features, action], dim=1))).squeeze(2)


@MODEL_REGISTRY.register("recurrent_qac")
class RecurrentQAC(nn.Module):
    """Actor and one or two critics, each of the two with an encoder and a recurrent layer of its own.

    Behind the recurrent layers stand heads of `..._head_layer_num` hidden layers of `..._head_hidden_size`, which see
    the encoded observation too. `encoder_hidden_size_list` is that of both encoders (None: 128-128-64, for images the
    network of Mnih et al. 2015). Raises ConfigError for sizes that do not fit.
    """

    def __init__(
        self,
        obs_shape: ObsShape,
        action_shape: int | Sequence[int],
        twin_critic: bool = True,
        *,
        cell_type: CellType = "lstm",
        hidden_size: int = 64,
        encoder_hidden_size_list: Sequence[int] | None = None,
        actor_head_hidden_size: int = 64,
        actor_head_layer_num: int = 1,
        critic_head_hidden_size: int = 64,
        critic_head_layer_num: int = 1,
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        actions = as_sizes("action_shape", action_shape)
        if len(actions) != 1:
            raise ConfigError(f"action_shape is {actions}, but the 'recurrent_qac' model needs one length of a vector")

        def memory(name: str) -> Memory:
            sizes = encoder_hidden_size_list
            return Memory(name, obs_shape, sizes, hidden_size, cell_type=cell_type, activation=activation)

        of_actor, of_critic = memory("actor"), memory("critic")
        head = DiscreteHead(
            of_actor.output_size,
            2 * actions[0],
            hidden_size=actor_head_hidden_size,
            layer_num=actor_head_layer_num,
            activation=activation,
        )
        self.actor = RecurrentActor(of_actor, head)
        hidden = as_sizes("critic_head_hidden_size", critic_head_hidden_size) * critic_head_layer_num
        sizes = [of_critic.output_size + actions[0], *hidden, 1]
        self.critic = RecurrentCritic(of_critic, ParallelMLP(2 if twin_critic else 1, sizes, activation=activation))

    @property
    def initial_state(self) -> dict[str, Array]:
        """The state of both before an episode, float32 [H] by name."""
        return {**self.actor.memory.initial_state, **self.critic.memory.initial_state}

    def act(self, obs: ObsTensor, state: Mapping[str, Tensor]) -> tuple[Tensor, State]:
        """Return (what the actor gives [B, T, 2 A], the state of actor and critic behind the last step)."""
        output, behind = self.actor(obs, state)
        return output, {**behind, **self.critic.memory(obs, state)[1]}

    forward = act
