"""Learning of a team agent by agent: each of its rows is one of every agent that acted in it.

A team is one lane, and its rows stay rows of the team wherever they are collected, stored and sent. Only the networks
and the learner take them apart (N agents, of which each sees O numbers and has A actions; S numbers are the state):

    acting     observations [R, N, O] become [R * N, O + N], the single-agent network runs, its outputs are [R, N, P]
    learning   row r of lane e becomes a row of lane e * N + i for each agent i that was alive in it

An agent's row has its own reward, and its own end: that of the team, or the step after which it acts no longer. It has
terminated where the team has or where it has come to an end for good, and else what follows is estimated from what it
saw last, which is there as its next observation. What it has not done, as it was gone, is in no row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from ding_like.data.batch import ACTION_MASK, TransitionBatch
from ding_like.data.rollout import Rollout
from ding_like.data.team import AGENTS, ALIVE, ENDED, REWARDS, STATE, TeamSizes
from ding_like.errors import ConfigError
from ding_like.model.vac import num_outputs
from ding_like.policy.base import Policy
from ding_like.policy.forward import Choose, Columns, ForwardActor
from ding_like.policy.onpolicy import OnPolicyActorCritic
from ding_like.policy.rows import STATE as MEMORY
from ding_like.rl_utils.distributions import ActionFamily, build_family
from ding_like.rl_utils.exploration import check_some_legal
from ding_like.types import Array, Obs, Setting

if TYPE_CHECKING:
    from torch import Tensor

    from ding_like.model.layers import ObsTensor


def views(obs: Mapping[str, Array], *, with_state: bool = False) -> Array:
    """Return what each agent's network takes [R * N, O + N] or, with the state behind it, [R * N, O + N + S]."""
    seen = obs[AGENTS]
    rows, agents, size = seen.shape
    width = size + agents
    out = np.empty((rows, agents, width + (obs[STATE].shape[1] if with_state else 0)), np.float32)
    out[..., :size] = seen
    out[..., size:width] = np.eye(agents, dtype=np.float32)
    if with_state:
        out[..., width:] = obs[STATE][:, None]
    return out.reshape(rows * agents, -1)


class ByAgent:
    """`Forward` that runs a network of one agent for every agent of R teams.

    Recurrent state is a column [N, S...] of each lane.
    """

    # Any: a `Forward` with `run_tensors`.
    def __init__(self, forward: Any, num_agents: int) -> None:
        self._forward, self._num_agents = forward, num_agents
        self.initial_state: Mapping[str, Array] = {
            name: np.repeat(value[None], num_agents, axis=0) for name, value in forward.initial_state.items()
        }

    def __call__(self, obs: Obs, state: Mapping[str, Array]) -> tuple[Array, Mapping[str, Array]]:
        """Return (outputs [R, N, P], new state [R, N, S...]); what else is in `state` [R, ...] is every agent's."""
        own = {name: _folded(column) for name, column in state.items() if name in self.initial_state}
        shared = {name: column.repeat(self._num_agents, axis=0) for name, column in state.items() if name not in own}
        output, after = self._forward(views(cast("dict[str, Array]", obs)), {**own, **shared})
        return self._unfolded(output), {name: self._unfolded(column) for name, column in after.items()}

    def run_tensors(self, obs: ObsTensor, state: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return what a call does, of tensors: agents are exported with it."""
        import torch  # actors have none

        assert isinstance(obs, Mapping), "a team's observation"
        seen = obs[AGENTS].float()
        numbers = torch.eye(self._num_agents, dtype=seen.dtype, device=seen.device).expand(seen.shape[0], -1, -1)
        flat = torch.cat([seen, numbers], dim=2).flatten(0, 1)
        output, after = self._forward.run_tensors(flat, {name: column.flatten(0, 1) for name, column in state.items()})
        return output.unflatten(0, (-1, self._num_agents)), {
            name: column.unflatten(0, (-1, self._num_agents)) for name, column in after.items()
        }

    def _unfolded(self, column: Array) -> Array:
        return column.reshape(-1, self._num_agents, *column.shape[1:])


class EachAgent:
    """Choice of every agent's action by itself, from outputs [R, N, P] and masks of N * A places.

    `choose` reads no setting of a lane, as those do not that draw from a distribution.
    """

    def __init__(self, choose: Choose) -> None:
        self._choose = choose

    def __call__(self, output: Array, mask: Array | None, rng: np.random.Generator, setting: Setting) -> Columns:
        """Return `action`, [R, N] or [R, N * A] of continuous ones, and the choice's other columns [R, N, ...]."""
        rows, agents = output.shape[:2]
        legal = None
        if mask is not None:
            by_agent = mask.reshape(rows, agents, -1)
            check_some_legal(by_agent)  # here, as its message names rows of the team
            legal = _folded(by_agent)
        chosen = self._choose(_folded(output), legal, rng, setting)
        columns = {name: column.reshape(rows, agents, *column.shape[1:]) for name, column in chosen.items()}
        if columns["action"].ndim > 2:
            columns["action"] = columns["action"].reshape(rows, -1)
        return columns

    def best(self, output: Tensor, mask: Tensor | None) -> Tensor:
        """Return the best actions as the env takes them."""
        agents = output.shape[1]
        legal = None if mask is None else mask.reshape(output.shape[0] * agents, -1)
        action = self._choose.best(output.flatten(0, 1), legal).unflatten(0, (-1, agents))  # type: ignore[attr-defined]
        return cast("Tensor", action.flatten(1))


def _folded(column: Array) -> Array:
    """Return [R * N, ...] of [R, N, ...]."""
    return column.reshape(-1, *column.shape[2:])


class TeamPolicy(Policy):
    """Policy whose rows are a team's: what its parts for single agents need."""

    action_spaces: tuple[str, ...] | None = ("MultiDiscrete", "Box")
    splits_rows: ClassVar[bool] = True  # whether mini-batches are of more rows than the team's
    sees_state: ClassVar[bool] = False  # whether the learner's views have the state behind them

    @cached_property
    def _team(self) -> TeamSizes:
        model = self._cfg.model
        return TeamSizes.of(model.get("obs_shape"), model.get("action_shape"), name=self._cfg.type)

    def _model_obs_shape(self) -> int:
        return self._team.view + (self._team.state if self.sees_state else 0)

    def why_no_reward_model(self) -> str | None:
        """Return why rows cannot be given other rewards."""
        return "each agent learns from its own rewards, which are in the team's observations"

    def _bounds(self) -> tuple[Any, Any]:  # Any: what a config may hold
        """Return one agent's bounds of continuous actions. Raises ConfigError where agents differ in them."""
        found = []
        for key in ("action_low", "action_high"):
            bound = self._cfg[key]
            if isinstance(bound, Sequence):
                each = np.reshape(bound, (self._team.num_agents, -1))
                if (each != each[0]).any():
                    raise ConfigError(
                        f"policy.{key} is {np.ravel(each).tolist()}, but the agents of policy '{self._cfg.type}' "
                        "share a network, and so their bounds: bring the actions of all into one range in an env "
                        "wrapper (gymnasium.wrappers.RescaleAction), or choose policy 'happo'."
                    )
                bound = each[0].tolist()
            found.append(bound)
        return found[0], found[1]

    def _agents_rows(self, columns: Mapping[str, Array], names: Sequence[str]) -> tuple[dict[str, Array], Array]:
        """Return (these columns [K, ...] of the agents that were alive in rows of a team, their places in [R * N]).

        `names` are of the team's columns, "obs" and "next_obs" of whole observations; `lane`, `reward`, `terminated`
        and `truncated` are each agent's own.
        """
        agents = self._team.num_agents
        alive = np.flatnonzero(columns[f"obs/{ALIVE}"])
        is_whole = len(alive) == columns[f"obs/{ALIVE}"].size
        rows: dict[str, Array] = {}
        for name in names:
            if name in ("obs", "next_obs"):
                rows.update(self._views_of(columns, name))
            elif name == "reward":
                rows[name] = columns[f"next_obs/{REWARDS}"].reshape(-1)
            elif name in ("terminated", "truncated"):
                rows[name] = self._ends(columns)[name]
            elif name == "lane":
                rows[name] = (columns[name][:, None] * agents + np.arange(agents)).reshape(-1)
            elif name == "action" and columns[name].dtype.kind == "f":
                rows[name] = columns[name].reshape(len(columns[name]) * agents, -1)
            elif columns[name].ndim > 1:
                rows[name] = _folded(columns[name])
            else:
                rows[name] = columns[name].repeat(agents)
        return (rows if is_whole else {name: column.take(alive, axis=0) for name, column in rows.items()}), alive

    def _views_of(self, columns: Mapping[str, Array], prefix: str) -> dict[str, Array]:
        """Return the views of all agents, beside their masks where there are any."""
        obs = {key: columns[f"{prefix}/{key}"] for key in (AGENTS, STATE)}
        seen = views(obs, with_state=self.sees_state)
        mask = columns.get(f"{prefix}/{ACTION_MASK}")
        if mask is None:
            return {prefix: seen}
        mask = mask.reshape(len(seen), -1)
        if prefix == "next_obs":
            # Of agents that have left none is legal but one. Where time alone was up for one, it could have gone on:
            # what was legal before stands in.
            gone = columns[f"next_obs/{ALIVE}"].reshape(-1) == 0
            mask = np.where(gone[:, None], columns[f"obs/{ACTION_MASK}"].reshape(mask.shape), mask)
        return {f"{prefix}/view": seen, f"{prefix}/{ACTION_MASK}": mask}

    def _ends(self, columns: Mapping[str, Array]) -> dict[str, Array]:
        """Return `terminated` and `truncated` [R * N] of every agent."""
        ended = columns[f"next_obs/{ENDED}"] != 0
        terminated = columns["terminated"][:, None] | ended
        is_over = (columns["truncated"][:, None] | terminated) | (columns[f"next_obs/{ALIVE}"] == 0)
        return {"terminated": terminated.reshape(-1), "truncated": (is_over & ~terminated).reshape(-1)}


class OnPolicyByAgent(TeamPolicy, OnPolicyActorCritic):
    """Actor-critic whose agents share its networks, and learn each from rows of its own.

    A class that has the loss follows among the base classes.
    """

    config_unused: ClassVar[Mapping[str, str]] = {}
    has_log_prob: ClassVar[bool] = False

    @cached_property
    def _family(self) -> ActionFamily:
        cfg = self._cfg
        self._warn_of_bounds()
        low, high = self._bounds()
        kind, num_actions = cfg.action_space or "discrete", self._team.num_actions
        return build_family(kind, num_actions, low=low, high=high, squash=cfg.action_bound == "tanh")

    def _model_sizes(self) -> dict[str, int]:
        kind = self._cfg.action_space or "discrete"
        return {"P": num_outputs(self._team.num_actions, action_space=kind)}

    def _make_actor(self, *, explores: bool) -> ForwardActor:
        one = super()._make_actor(explores=explores)
        return ForwardActor(ByAgent(one.forward, self._team.num_agents), EachAgent(one.choose))

    def _targets(self, rollout: Rollout) -> dict[str, Array]:
        """Return values, advantages and the critic's targets [R, N] of a rollout, 0 where an agent was gone."""
        columns, agents = rollout.columns(), self._team.num_agents
        names = ["obs", "next_obs", "reward", "terminated", "truncated", "lane"]
        rows, places = self._agents_rows(columns, [*names, *_memory(columns)])
        log = Rollout(rollout.num_lanes * agents, capacity=len(places))
        log.append(rows)
        found = {}
        for name, column in super()._targets(log).items():
            found[name] = np.zeros((len(rollout), agents), column.dtype)
            found[name].reshape(-1)[places] = column
        return found

    def _learned_rows(self, batch: TransitionBatch) -> TransitionBatch:
        """Return the rows of all agents that were alive."""
        columns = batch.columns
        places = [name for name in ("lane", "episode_id") if name in columns]
        names = ["obs", "terminated", "truncated", *places, self._action_column, *self._loss_columns]
        return TransitionBatch(self._agents_rows(columns, [*names, *_memory(columns)])[0])


def _memory(columns: Mapping[str, Array]) -> list[str]:
    """Return the names of the columns of recurrent state."""
    return [name for name in columns if name.startswith(MEMORY)]
