"""Teams in DI-engine's form: envs with `agent_num`, an observation by its names, and one action for each agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from ding_like.data.batch import ACTION_MASK
from ding_like.envs.di_engine_style import DiEngineStyleEnv
from ding_like.envs.spaces import AnyEnv
from ding_like.envs.team import Team
from ding_like.errors import ConfigError, EnvError, SchemaError
from ding_like.types import Array, EnvAction, EnvObs, Info
from ding_like.utils.log import one_time_info

# DI-engine's names of what agents see, and of the state.
_SEEN, _STATE = "agent_state", "global_state"
_FORM = (
    "spaces.Dict(agent_state=Box [N, O], global_state=Box [S]), with action_mask=Box or MultiBinary [N, A] where "
    "agents have masks"
)


def agents_of(env: AnyEnv) -> int | None:
    """Return the `agent_num` of an env in this form, whatever wraps it; None of any other env, a game too."""
    inner: Any = env.unwrapped
    agents = getattr(inner.env if isinstance(inner, DiEngineStyleEnv) else inner, "agent_num", None)
    return int(agents) if agents is not None and isinstance(env.observation_space, spaces.Dict) else None


class DiEngineTeam(Team):
    """Team over a gymnasium env, or one in DI-engine's style, whose `agent_num` agents are observed together.

    It observes a dict of `agent_state` [N, O], `global_state` [S] and, where agents have masks, `action_mask` [N, A];
    further entries are left out. A state for each agent, [N, S], becomes one, in a row; without any it is what all
    agents see. It takes an array of actions [N], or [N, A] where they are continuous: its action space is that of one
    agent, a MultiDiscrete [N] or Box [N, A] of all, or a Dict or Tuple with one for each. Its reward is one number,
    which each agent is paid, or one for each agent, whose sum is the team's.
    Raises EnvError for spaces that are not of this form, and SchemaError for an answer that is not.
    """

    def __init__(self, env: AnyEnv, agents: int) -> None:
        self.env, self.render_mode, self.metadata = env, env.render_mode, env.metadata
        own = env.observation_space
        assert isinstance(own, spaces.Dict), "it is asked before"
        found = own.spaces
        seen, state, mask = (found.get(name) for name in (_SEEN, _STATE, ACTION_MASK))
        if seen is None or len(seen.shape or ()) < 2 or (seen.shape or ())[0] != agents:
            what = f"is {own}" if seen is None else f"has {_SEEN} {seen}"
            raise EnvError(
                f"observation_space of a team of agent_num={agents} {what}, not what each agent sees. Set "
                f"observation_space = {_FORM}, with N={agents}."
            )
        each = _each_action_space(env.action_space, agents)
        starts = [int(space.start) for space in each if isinstance(space, spaces.Discrete)]
        self._starts = np.array(starts) if starts else None
        self._own = {name: space for name, space in found.items() if name in (_SEEN, _STATE, ACTION_MASK)}
        size = int(np.prod((seen.shape or ())[1:]))
        try:
            self._set_spaces(
                [spaces.Box(-np.inf, np.inf, (size,), np.float32)] * agents,
                each,
                state_size=agents * size if state is None else int(np.prod(state.shape or (1,))),
                has_mask=mask is not None,
            )
        except ConfigError as error:
            raise EnvError(str(error)) from error
        if mask is not None and (self._legal is None or mask.shape != self._legal.shape):
            actions = f"{agents}, {max(self.num_actions)}"
            raise EnvError(
                f"action_mask of observation_space has shape {mask.shape}, expected [{actions}], one row an agent. "
                f"Set action_mask = spaces.MultiBinary([{actions}]), or leave it out of continuous actions."
            )
        if state is not None and len(state.shape or ()) > 1:
            one_time_info(f"{_name(env)}: global_state has shape {state.shape}; the team's state is all of it in a row")

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[EnvObs, Info]:
        super().reset(seed=seed)
        obs, info = self.env.reset(seed=seed, options=options)
        agents = self.num_agents
        return self._observe(obs, [0.0] * agents, is_alive=True, is_ended=False), info

    def step(self, action: EnvAction) -> tuple[EnvObs, float, bool, bool, Info]:
        given = np.asarray(action).reshape(self.num_agents, -1)
        if self._starts is not None:
            given = given[:, 0] + self._starts
        obs, reward, terminated, truncated, info = self.env.step(given)
        if np.size(terminated) != 1 or np.size(truncated) != 1:
            raise SchemaError(
                f"step() of {_name(self.env)} ended with {terminated!r}; a team ends as a whole: return one bool"
            )
        rewards, total = self._rewards(reward)
        is_over = bool(terminated) or bool(truncated)
        joint = self._observe(obs, rewards, is_alive=not terminated, is_ended=bool(terminated))
        info = {**info, **self._paid(rewards, is_over=is_over)}
        return joint, total, bool(terminated), bool(truncated), info

    def _rewards(self, reward: Any) -> tuple[list[float], float]:
        """Return what each agent is paid, and the team."""
        values = np.asarray(reward, np.float64).reshape(-1).tolist()
        if len(values) == 1:
            return values * self.num_agents, values[0]
        if len(values) != self.num_agents:
            raise SchemaError(
                f"the reward of {_name(self.env)} has {len(values)} numbers; a team of agent_num={self.num_agents} is "
                f"paid one, or {self.num_agents}, one an agent: return float(reward), or an array [{self.num_agents}]"
            )
        return values, sum(values)

    def _observe(self, obs: EnvObs, rewards: Sequence[float], *, is_alive: bool, is_ended: bool) -> dict[str, Array]:
        parts = {name: self._part(obs, name, space) for name, space in self._own.items()}
        agents = self.num_agents
        seen = list(parts[_SEEN])
        return self._joint(
            seen,
            parts.get(_STATE, parts[_SEEN]),
            alive=[is_alive] * agents,
            ended=[is_ended] * agents,
            rewards=rewards,
            masks=list(parts.get(ACTION_MASK, ())),
        )

    def _part(self, obs: EnvObs, name: str, space: Space[Any]) -> Array:
        """Return one entry of an observation, in the shape that its space says. Raises SchemaError for another."""
        own = obs.get(name) if isinstance(obs, Mapping) else None
        if own is None:
            has = f"has the keys {list(obs)}" if isinstance(obs, Mapping) else f"is {type(obs).__name__}"
            raise SchemaError(f"the observation of {_name(self.env)} {has}; its space names '{name}': return it too")
        shape = np.shape(own)
        if shape != space.shape:
            raise SchemaError(
                f"{name} of {_name(self.env)} has shape {shape}, its observation space says {space.shape}: give both "
                "the same shape"
            )
        return np.asarray(own)

    def render(self) -> Any:
        """Return the env's own picture."""
        return self.env.render()

    def close(self) -> None:
        self.env.close()


def _name(env: AnyEnv) -> str:
    inner: Any = env.unwrapped
    return type(inner.env if isinstance(inner, DiEngineStyleEnv) else inner).__name__


def _each_action_space(space: Space[Any], agents: int) -> list[Space[Any]]:
    """Return the action space of each agent. Raises EnvError where there are not as many as agents."""
    each: list[Space[Any]] = [space] * agents  # that of one agent
    if isinstance(space, spaces.Dict):
        each = list(space.spaces.values())
    elif isinstance(space, spaces.Tuple):
        each = list(space.spaces)
    elif isinstance(space, spaces.MultiDiscrete):
        each = [
            spaces.Discrete(int(size), start=int(start)) for size, start in zip(space.nvec, space.start, strict=True)
        ]
    elif isinstance(space, spaces.Box) and len(space.shape) == 2:
        each = [spaces.Box(low, high, dtype=space.dtype.type) for low, high in zip(space.low, space.high, strict=True)]
    if len(each) != agents or not all(isinstance(one, (spaces.Discrete, spaces.Box)) for one in each):
        raise EnvError(
            f"action_space of a team of agent_num={agents} is {space}. Set action_space to that of one agent, Discrete "
            f"or Box [A], or to that of all, MultiDiscrete [{agents}] or Box [{agents}, A]."
        )
    return each


def as_team(env: AnyEnv) -> AnyEnv:
    """Return a team of an env in this form, other envs as they are."""
    agents = agents_of(env)
    return env if agents is None else DiEngineTeam(env, agents)
