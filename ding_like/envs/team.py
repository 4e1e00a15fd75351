"""Teams: envs whose agents act at once and learn together, as one lane (decision 006).

`data/team.py` says what is in a team's observation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import Space, spaces

from ding_like.config import declared_faults
from ding_like.data.batch import ACTION_MASK
from ding_like.data.team import AGENTS, ALIVE, ENDED, RETURN_OF, REWARDS, STATE
from ding_like.envs.game import make_petting_zoo, petting_zoo_faults
from ding_like.envs.spaces import AnyEnv
from ding_like.errors import ConfigError
from ding_like.types import Array, Config, EnvAction, EnvObs, Info
from ding_like.utils.bounds import Configurable
from ding_like.utils.registries import ENV_REGISTRY


class Team(Configurable, AnyEnv):
    """Base of the envs of a team: their spaces, and the joint observation of what every agent sees.

    The action is one of A for each of N agents (MultiDiscrete), or the continuous actions of all in a row, [N * A];
    what an agent does that has left, or beyond its own actions, has no effect.
    """

    @classmethod
    def check_config(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        """Yield (path, what is wrong) for every contradiction."""
        yield from declared_faults(cls, cfg)

    def _set_spaces(
        self,
        seen: Sequence[Space[Any]],
        actions: Sequence[Space[Any]],
        *,
        state_size: int,
        has_mask: bool = False,
        names: Sequence[str] = (),
    ) -> None:
        """Set the team's spaces from those of each agent, and its agents' names; without any: agent_0 and so on.

        Raises ConfigError where agents see anything but vectors, or their actions are not all Discrete or all Box.
        """
        sizes = [
            int(np.prod(space.shape or (1,))) for space in seen if isinstance(space, (spaces.Box, spaces.Discrete))
        ]
        discrete = [int(space.n) for space in actions if isinstance(space, spaces.Discrete)]
        boxes = [space for space in actions if isinstance(space, spaces.Box)]
        if len(sizes) < len(seen) or len(actions) not in (len(discrete), len(boxes)):
            raise ConfigError(
                f"a team's agents see {', '.join(map(str, seen))} and act in {', '.join(map(str, actions))}; a team "
                "needs Box observations, and actions that are all Discrete or all Box."
            )
        self.num_agents = agents = len(seen)
        self.agent_names = list(names) or [f"agent_{agent}" for agent in range(agents)]
        self._returns = np.zeros(agents)
        self.num_actions = [int(np.prod(box.shape)) for box in boxes] or discrete  # N
        self._obs_size, most = max(sizes), max(self.num_actions)
        real = (-np.inf, np.inf)
        parts: dict[str, Space[Any]] = {
            AGENTS: spaces.Box(*real, (agents, self._obs_size), np.float32),
            STATE: spaces.Box(*real, (state_size,), np.float32),
            ALIVE: spaces.MultiBinary(agents),
            ENDED: spaces.MultiBinary(agents),
            REWARDS: spaces.Box(*real, (agents,), np.float32),
        }
        self.action_space: Any = spaces.MultiDiscrete([most] * agents)  # Any: of either kind
        if boxes:
            low, high = (
                np.concatenate([_padded(getattr(box, side), most) for box in boxes]) for side in ("low", "high")
            )
            self.action_space = spaces.Box(low, high, dtype=boxes[0].dtype.type)
        self._legal: Array | None = None  # [N, A], what agents may do in every state
        if discrete and (has_mask or len(set(discrete)) > 1):
            self._legal = (np.arange(most) < np.array(discrete)[:, None]).astype(np.int8)
            parts[ACTION_MASK] = spaces.MultiBinary([agents, most])
        self.observation_space = spaces.Dict(parts)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[EnvObs, Info]:
        """Seed the generator and set the agents' returns to 0; a subclass returns what agents see."""
        super().reset(seed=seed)
        self._returns = np.zeros(self.num_agents)
        return {}, {}

    def _joint(
        self,
        seen: Sequence[EnvObs],
        state: Array,
        *,
        alive: Sequence[bool],
        ended: Sequence[bool],
        rewards: Sequence[float],
        masks: Sequence[Any] = (),  # arrays [A], or None of an agent without
    ) -> dict[str, Array]:
        """Return the team's observation of what is true of each agent."""
        agents = np.zeros((self.num_agents, self._obs_size), np.float32)
        for row, obs in zip(agents, seen, strict=True):
            own = np.ravel(obs)
            row[: len(own)] = own
        joint: dict[str, Array] = {
            AGENTS: agents,
            STATE: np.asarray(state, np.float32).reshape(-1),
            ALIVE: np.array(alive, np.int8),
            ENDED: np.array(ended, np.int8),
            REWARDS: np.array(rewards, np.float32),
        }
        if self._legal is not None:
            joint[ACTION_MASK] = legal = self._legal.copy()
            for row, mask in zip(legal, masks, strict=False):
                if mask is not None:
                    row[: len(mask)] &= np.asarray(mask, np.int8)
            legal[joint[ALIVE] == 0] = np.arange(legal.shape[1]) == 0  # something has to be legal
        return joint

    def _paid(self, rewards: Sequence[float], *, is_over: bool) -> Info:
        """Add up what each agent was paid; return the info of the step: at the end each one's return."""
        self._returns = self._returns + rewards
        if not is_over:
            return {}
        return {"episode_info": self.agent_returns()}

    def agent_returns(self) -> dict[str, float]:
        """Return what each agent was paid since the reset, by the names of `info["episode_info"]`."""
        return {f"{RETURN_OF}{name}": float(own) for name, own in zip(self.agent_names, self._returns, strict=True)}

    def _each_action(self, action: EnvAction) -> list[Any]:
        """Return the action of each agent in its own space."""
        rows = np.asarray(action).reshape(self.num_agents, -1)  # [N, A], or [N, 1] of a discrete action each
        if isinstance(self.action_space, spaces.MultiDiscrete):
            return [int(row[0]) for row in rows]
        return [row[:size] for row, size in zip(rows, self.num_actions, strict=True)]


def _padded(bound: Array, size: int) -> Array:
    """Return the bounds of an agent's actions, with those of its last one for what it lacks."""
    flat = bound.reshape(-1)
    return np.pad(flat, (0, size - len(flat)), mode="edge")


class ParallelTeam(Team):
    """Team of all agents of a parallel env of PettingZoo, who act at once.

    `state` is the env's own, else what all agents see in a row. Agents may see vectors of different lengths, have
    different numbers of actions, and leave before the others: `alive` says who acts, and the episode ends with the last
    one. An agent's mask is in its observation, a dict of 'observation' and 'action_mask', or in its info. The reward is
    the sum of the agents' rewards, or with `team_reward` 'mean' their mean; `info` of the last step has what each was
    paid in the episode, as `episode_info`. Raises ConfigError for spaces that no team has.
    """

    def __init__(self, env: Any, *, team_reward: str = "sum") -> None:
        self._env = env
        self.render_mode, self.metadata = getattr(env, "render_mode", None), dict(getattr(env, "metadata", {}))
        names: list[str] = list(self._env.possible_agents)
        self._is_mean = team_reward == "mean"
        seen = [self._env.observation_space(agent) for agent in names]
        has_mask = any(isinstance(space, spaces.Dict) and ACTION_MASK in space.spaces for space in seen)
        seen = [self._seen_space(space["observation"] if has_mask else space) for space in seen]
        has_mask = has_mask or any(ACTION_MASK in info for info in self._env.reset()[1].values())
        try:
            self._state_size = self._own_state_size()  # 0: it has none of its own
            self._set_spaces(
                seen,
                [self._env.action_space(agent) for agent in names],
                state_size=self._state_size or sum(int(np.prod(space.shape or (1,))) for space in seen),
                has_mask=has_mask,
                names=names,
            )
        except ConfigError:
            self._env.close()
            raise

    # What a subclass may see in another way.

    def _own_state_size(self) -> int:
        own = getattr(self._env, "state_space", None)
        return int(np.prod(own.shape)) if isinstance(own, spaces.Box) else 0

    def _state(self, seen: Sequence[EnvObs]) -> Array:
        """Return the state [S]: the env's own, else what all agents see."""
        return np.ravel(self._env.state()) if self._state_size else np.concatenate([np.ravel(each) for each in seen])

    def _seen_space(self, space: Space[Any]) -> Space[Any]:
        """Return the space of what `_see` makes of an agent's observations."""
        return space

    def _see(self, obs: EnvObs) -> EnvObs:
        """Return what an agent's observation is to the team."""
        return obs

    # ---- the env

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[EnvObs, Info]:
        super().reset(seed=seed)
        obs, infos = self._env.reset(seed=seed)
        agents = self.num_agents
        self._last: list[Any] = [np.zeros(self._obs_size, np.float32)] * agents  # of agents that come later
        self._ended = [False] * agents
        return self._observe(obs, infos, [0.0] * agents, self._env.agents), {}

    def step(self, action: EnvAction) -> tuple[EnvObs, float, bool, bool, Info]:
        each = self._each_action(action)
        given = {name: own for name, own in zip(self.agent_names, each, strict=True) if name in self._env.agents}
        obs, reward, over, cut, infos = self._env.step(given)
        self._ended = [bool(over.get(name, was)) for name, was in zip(self.agent_names, self._ended, strict=True)]
        rewards = [float(reward.get(name, 0.0)) for name in self.agent_names]
        is_over = not self._env.agents or all(over[name] or cut[name] for name in given)
        terminated = is_over and not any(cut.values())
        total = sum(rewards) / (self.num_agents if self._is_mean else 1)
        info = self._paid(rewards, is_over=is_over)
        # Agents of a team whose time is up would go on: what follows is estimated for them.
        acting = [name for name in given if not over[name]] if is_over else self._env.agents
        return self._observe(obs, infos, rewards, acting), total, terminated, is_over and not terminated, info

    def _observe(
        self, obs: Mapping[str, EnvObs], infos: Mapping[str, Info], rewards: Sequence[float], acting: Sequence[str]
    ) -> dict[str, Array]:
        masks: list[Any] = [None] * self.num_agents
        for row, name in enumerate(self.agent_names):
            if name in obs:
                own, masks[row] = obs[name], infos.get(name, {}).get(ACTION_MASK)
                if isinstance(own, Mapping):
                    own, masks[row] = own["observation"], own[ACTION_MASK]
                self._last[row] = self._see(own)
        alive = [name in acting for name in self.agent_names]
        state = self._state(self._last)
        return self._joint(self._last, state, alive=alive, ended=self._ended, rewards=rewards, masks=masks)

    def render(self) -> Any:
        """Return the env's picture [H, W, 3], of an env made with `render_mode='rgb_array'`."""
        return self._env.render()

    def close(self) -> None:
        self._env.close()


@ENV_REGISTRY.register("joint_petting_zoo")
class PettingZooTeam(ParallelTeam):
    """Team of all agents of a PettingZoo env by its id, such as 'mpe2.simple_spread_v3'; see `ParallelTeam`.

    Raises ConfigError for an id that cannot be made.
    """

    config = {
        # Id of a PettingZoo env of the parallel API, such as mpe2.simple_spread_v3.
        "env_id": None,
        # Keyword arguments of the environment's constructor.
        "kwargs": {},
        # Reward of the team: "sum" or "mean" of its agents' rewards.
        "team_reward": "sum",
    }
    config_free: ClassVar[tuple[str, ...]] = ("kwargs",)
    config_types: ClassVar[dict[str, tuple[type, ...]]] = {"env_id": (str, type(None))}
    config_choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {"team_reward": ("sum", "mean")}

    @classmethod
    def check_config(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        """Yield (path, what is wrong) for every contradiction."""
        yield from super().check_config(cfg)
        yield from petting_zoo_faults(cfg)

    def __init__(self, cfg: Config | None = None) -> None:
        merged = {**PettingZooTeam.config, **(cfg or {})}
        mode = merged.get("render_mode")
        drawn = {} if mode is None else {"render_mode": mode}
        env = make_petting_zoo(merged["env_id"], "parallel", {**merged["kwargs"], **drawn})
        super().__init__(env, team_reward=merged["team_reward"])
