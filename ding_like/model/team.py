"""Networks of a team's actor-critics: an actor for each agent, and central critics, which see what all see and do.

B is the batch, N the number of agents, O the size of what one of them sees, S that of the state, A the number of
actions of one agent (or the dimensions of a continuous one), C the number of critics of each agent. Agents of one group
share their networks, whose inputs have the agent's number, one-hot, beside what it sees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

import torch
from torch import Tensor, nn

from ding_like.data.team import AGENTS, TeamSizes
from ding_like.errors import ConfigError, SchemaError
from ding_like.model.layers import Activation, as_sizes
from ding_like.model.qac import ActionKind, ParallelMLP
from ding_like.utils.registries import MODEL_REGISTRY

# One network for all agents, one for each, or the number of each agent's group [N].
Sharing: TypeAlias = "Literal['shared', 'separate'] | Sequence[int]"
Seen = Literal["state", "agents"]
TeamObs: TypeAlias = Mapping[str, Tensor]


def groups_of(sharing: Any, num_agents: int) -> list[int]:
    """Return the number of each agent's group; ConfigError for another list than of N numbers from 0 without a gap."""
    if sharing == "shared":
        return [0] * num_agents
    if sharing == "separate":
        return list(range(num_agents))
    groups = [] if isinstance(sharing, str) or not isinstance(sharing, Sequence) else list(sharing)
    if len(groups) != num_agents or sorted(set(groups)) != list(range(len(set(groups)))):
        raise ConfigError(
            f"sharing is {sharing!r}; expected 'shared', 'separate', or the group of each of {num_agents} agents, "
            f"counted from 0: {[min(agent, 1) for agent in range(num_agents)]}, say"
        )
    return groups


class GroupedMLP(nn.Module):
    """`num` MLPs for each group of agents; all that a layer does is one batched product, whatever the groups are.

    Every group is given as many places as the largest has agents, so that groups are equal parts of a batch; what is in
    a place that no agent has is not used. Agents of groups with several have their number among the inputs.
    """

    slots: Tensor  # [G * M], the agent in each place
    places: Tensor  # [N], the place of each agent
    names: Tensor  # [N, N or 0], what is among the inputs of each agent

    def __init__(self, groups: Sequence[int], sizes: Sequence[int], *, num: int = 1, activation: Activation) -> None:
        super().__init__()
        agents, count = len(groups), max(groups) + 1
        members = [[agent for agent in range(agents) if groups[agent] == group] for group in range(count)]
        self.most = most = max(map(len, members))
        self.num, self.num_groups, self.num_agents = num, count, agents
        slots = [agent for own in members for agent in own + own[:1] * (most - len(own))]
        self.is_in_order = slots == list(range(agents))
        names = torch.eye(agents) if most > 1 else torch.zeros(agents, 0)
        self.register_buffer("slots", torch.tensor(slots), persistent=False)
        self.register_buffer("places", torch.tensor([slots.index(agent) for agent in range(agents)]), persistent=False)
        self.register_buffer("names", names, persistent=False)
        self.mlp = ParallelMLP(num * count, [sizes[0] + names.shape[1], *sizes[1:]], activation=activation)

    def forward(self, x: Tensor, num: int | None = None) -> Tensor:
        """Return [num, B, N, output] of each agent's inputs [N, B, I]; with `num` of the first so many networks."""
        rows = x.shape[1]
        networks = self.num if num is None else num
        if self.names.shape[1]:
            x = torch.cat([x, self.names.to(x.dtype).unsqueeze(1).expand(-1, rows, -1)], dim=2)
        if not self.is_in_order:
            x = x[self.slots]
        x = x.reshape(self.num_groups, self.most * rows, -1)
        if networks > 1:
            x = x.expand(networks, -1, -1, -1).reshape(networks * self.num_groups, *x.shape[1:])
        y: Tensor = self.mlp(x, networks * self.num_groups)
        y = y.view(networks, self.num_groups * self.most, rows, -1)
        return (y if self.is_in_order else y[:, self.places]).transpose(1, 2)


class TeamActors(nn.Module):
    """Actors of all agents, each of which sees its own part of the observation."""

    def __init__(self, agents: tuple[int, int], num_outputs: int, groups: Sequence[int], **layers: Any) -> None:
        super().__init__()
        sizes = [agents[1], *layers.pop("hidden_sizes"), num_outputs]
        self.shape = agents
        self.net = GroupedMLP(groups, sizes, **layers)

    def forward(self, obs: TeamObs) -> Tensor:
        """Return [B, N, P] of a team's observations. Raises SchemaError for observations of another form."""
        views = _entry(obs, AGENTS, self.shape).to(next(self.parameters()).dtype)
        return cast(Tensor, self.net(views.transpose(0, 1))[0])


class CentralCritics(nn.Module):
    """Critics of all agents, `num` for each, which see the state, or what all agents see, and what all of them do.

    `own` [N, A] marks the dimensions of a continuous action that an agent has; the others are 0 to every critic.
    """

    own: Tensor | None

    def __init__(
        self,
        seen: Seen,
        shape: tuple[int, ...],  # of the entry that is seen
        groups: Sequence[int],
        *,
        num_actions: int,
        num_values: int | None = None,  # None: the value of what is done, else of so many actions of the agent itself
        own: Tensor | None = None,
        num: int,
        hidden_sizes: Sequence[int],
        activation: Activation,
    ) -> None:
        super().__init__()
        self.seen, self.shape, self.num_values = seen, shape, num_values
        self.register_buffer("own", own, persistent=False)
        sizes = [torch.Size(shape).numel() + len(groups) * num_actions, *hidden_sizes, num_values or 1]
        self.net = GroupedMLP(groups, sizes, num=num, activation=activation)

    def forward(self, obs: TeamObs, actions: Tensor, num: int | None = None) -> Tensor:
        """Return values [C, B, N], or of all actions of each agent [C, B, N, A], of what all agents do [B, N, A].

        With [B, N, N, A] what all do is another for the critics of each agent, which come first. With `num` values are
        those of the first so many critics. Raises SchemaError for observations of another form.
        """
        dtype = next(self.parameters()).dtype
        seen = _entry(obs, self.seen, self.shape).flatten(1).to(dtype)
        actions = actions.to(dtype) if self.own is None else actions.to(dtype) * self.own.to(dtype)
        if actions.dim() == 3:
            x = torch.cat([seen, actions.flatten(1)], dim=1).expand(actions.shape[1], -1, -1)
        else:
            x = torch.cat([seen.expand(actions.shape[1], -1, -1), actions.flatten(2).transpose(0, 1)], dim=2)
        values: Tensor = self.net(x, num)
        return values.squeeze(3) if self.num_values is None else values


def _entry(obs: Any, name: str, shape: tuple[int, ...]) -> Tensor:
    """Return an entry [B, *shape] of a team's observations; SchemaError where it is not there."""
    entry = obs.get(name) if isinstance(obs, Mapping) else None
    if entry is None or tuple(entry.shape[1:]) != shape:
        got = (
            sorted(obs) if entry is None and isinstance(obs, Mapping) else list((obs if entry is None else entry).shape)
        )
        raise SchemaError(
            f"a team's observation is a dict in which '{name}' is [B, {', '.join(map(str, shape))}], got {got}: env "
            "type 'joint_petting_zoo' gives such observations."
        )
    return cast(Tensor, entry)


class _TeamModel(nn.Module):
    """Base of the networks of a team: actors, and what they give side by side."""

    actor: TeamActors
    critic: CentralCritics

    def _set_sizes(self, obs_shape: Any, action_shape: Any, model: str) -> None:
        """Read the sizes of a team; ConfigError for those of anything else."""
        self.num_agents, self.size, state, self.num_actions = TeamSizes.of(obs_shape, action_shape, name=model)
        self._shapes: dict[Seen, tuple[int, ...]] = {"state": (state,), "agents": (self.num_agents, self.size)}

    def _seen_shape(self, seen: Any) -> tuple[int, ...]:
        if seen not in self._shapes:
            raise ConfigError(f"critic_sees is {seen!r}; expected 'state' or 'agents'")
        return self._shapes[cast(Seen, seen)]

    def act(self, obs: TeamObs) -> Tensor:
        """Return what all actors give, in a row [B, N * A]."""
        return cast(Tensor, self.actor(obs).flatten(1))

    def forward(self, obs: TeamObs) -> Tensor:
        """Return what `act` does."""
        return self.act(obs)


@MODEL_REGISTRY.register("team_qac")
class TeamQAC(_TeamModel):
    """Actors, `actor(obs) -> [B, N, P]`, and critics of what all do, `critic(obs, actions) -> [C, B, N]`.

    Of discrete actions the actors give logits; of continuous ones numbers that tanh makes actions of ('regression'), or
    mean and log standard deviation of a Gaussian ('reparameterization', [B, N, 2 A]). C is 2 with `twin_critic`.
    `sharing` is 'separate', each agent with networks of its own, 'shared', one for all, or the number of each agent's
    group [N]; `critic_sees` is 'state', or 'agents': what all of them see. `action_sizes` [N] says how many of the A
    dimensions of a continuous action an agent has, where some have fewer. Raises ConfigError for what does not fit.
    """

    def __init__(
        self,
        obs_shape: Mapping[str, Any],
        action_shape: int | Sequence[int],
        action_space: ActionKind = "regression",
        twin_critic: bool = False,
        *,
        sharing: Sharing = "separate",
        critic_sees: Seen = "state",
        actor_hidden_size_list: Sequence[int] = (64, 64),
        critic_hidden_size_list: Sequence[int] = (64, 64),
        activation: Activation = "relu",
        action_sizes: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self._set_sizes(obs_shape, action_shape, "team_qac")
        agents = self.num_agents
        if action_space not in ("regression", "reparameterization"):
            raise ConfigError(f"action_space is {action_space!r}; expected 'regression' or 'reparameterization'")
        self.is_discrete, self.is_direct = not isinstance(action_shape, int), action_space == "regression"
        groups = groups_of(sharing, agents)
        layers: dict[str, Any] = dict(activation=activation)  # Any: of each keyword its own
        self.actor = TeamActors(
            (agents, self.size),
            self.num_actions * (1 if self.is_direct or self.is_discrete else 2),
            groups,
            hidden_sizes=as_sizes("actor_hidden_size_list", actor_hidden_size_list),
            **layers,
        )
        self.critic = CentralCritics(
            critic_sees,
            self._seen_shape(critic_sees),
            groups,
            num_actions=self.num_actions,
            own=self._own_dimensions(action_sizes),
            num=2 if twin_critic else 1,
            hidden_sizes=as_sizes("critic_hidden_size_list", critic_hidden_size_list),
            **layers,
        )

    def _own_dimensions(self, sizes: Sequence[int] | None) -> Tensor | None:
        """Return the dimensions of a continuous action that each agent has, ones and zeros [N, A]; None: all."""
        if sizes is None:
            return None
        own = as_sizes("action_sizes", sizes)
        if self.is_discrete:
            raise ConfigError("action_sizes is for continuous actions: of discrete ones the env's mask marks them")
        if len(own) != self.num_agents or max(own) != self.num_actions:
            raise ConfigError(
                f"action_sizes is {list(own)}; expected a number for each of {self.num_agents} agents, the largest "
                f"{self.num_actions}"
            )
        return (torch.arange(self.num_actions) < torch.tensor(own).unsqueeze(1)).float()

    def act(self, obs: TeamObs) -> Tensor:
        """Return actions in [-1, 1] in a row [B, N * A], logits, or all means and then all log deviations."""
        output = self.actor(obs)
        if self.is_discrete:
            return cast(Tensor, output.flatten(1))
        if self.is_direct:
            return cast(Tensor, output.tanh().flatten(1))
        return torch.cat([part.flatten(1) for part in output.chunk(2, dim=2)], dim=1)


@MODEL_REGISTRY.register("team_discrete_qac")
class TeamDiscreteQAC(_TeamModel):
    """Actors, `actor(obs) -> [B, N, A]` logits, and critics of all actions of an agent given what the others do.

    `critic(obs, actions) -> [C, B, N, A]` takes actions one-hot, [B, N, N, A]: those that each agent's critics see,
    where its own are 0. The arguments are those of `TeamQAC`.
    """

    def __init__(
        self,
        obs_shape: Mapping[str, Any],
        action_shape: int | Sequence[int],
        twin_critic: bool = False,
        *,
        sharing: Sharing = "separate",
        critic_sees: Seen = "state",
        actor_hidden_size_list: Sequence[int] = (64, 64),
        critic_hidden_size_list: Sequence[int] = (64, 64),
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        self._set_sizes(obs_shape, action_shape, "team_discrete_qac")
        actions = self.num_actions
        groups = groups_of(sharing, self.num_agents)
        hidden = as_sizes("actor_hidden_size_list", actor_hidden_size_list)
        agents = (self.num_agents, self.size)
        self.actor = TeamActors(agents, actions, groups, hidden_sizes=hidden, activation=activation)
        self.critic = CentralCritics(
            critic_sees,
            self._seen_shape(critic_sees),
            groups,
            num_actions=actions,
            num_values=actions,
            num=2 if twin_critic else 1,
            hidden_sizes=as_sizes("critic_hidden_size_list", critic_hidden_size_list),
            activation=activation,
        )
