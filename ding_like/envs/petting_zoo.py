"""PettingZoo's envs: as games, whose agents move in turn (AEC) or at once (parallel), or as a team of one policy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import Space, spaces

from ding_like.data.obs import ACTION_MASK
from ding_like.envs.game import GameStep
from ding_like.envs.spaces import AnyEnv
from ding_like.errors import ConfigError, EnvError
from ding_like.types import Array, Config, EnvAction, EnvLike, EnvObs, Info
from ding_like.utils.bounds import Configurable
from ding_like.utils.imports import pip_line
from ding_like.utils.registries import ENV_REGISTRY

# An id of PettingZoo's registry, or a module of a package of such envs; nothing else is imported.
_REGISTERED = re.compile(r"[a-z0-9_]+/[A-Za-z0-9_]+-v\d+")
_MODULE = re.compile(r"(pettingzoo|mpe2)(\.[A-Za-z0-9_]+)+")


@ENV_REGISTRY.register("petting_zoo")
class PettingZooGame(Configurable):
    """Game of `cfg.env_id`, made with `cfg.kwargs`: 'classic/tictactoe-v3', or a module such as 'mpe2.simple_v3'.

    Observations with a mask of legal actions, as an entry `action_mask` or in the agent's info, are dicts of
    'observation' and 'action_mask'. With `flatten` the observation is one vector of float32. Agents must share their
    spaces. Raises ConfigError for an id that cannot be imported.
    """

    config = {
        # Id of a PettingZoo env, such as classic/tictactoe_v3.
        "env_id": None,
        # API of PettingZoo: "aec", agents act in turn, or "parallel", all at once.
        "api": "aec",
        # Keyword arguments of the environment's constructor.
        "kwargs": {},
        # Flatten observations to vectors.
        "flatten": False,
    }
    config_free: ClassVar[tuple[str, ...]] = ("kwargs",)
    config_types: ClassVar[dict[str, tuple[type, ...]]] = {"env_id": (str, type(None))}

    @classmethod
    def check_config(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        """Yield (path, what is wrong) for every contradiction."""
        env_id = cfg.get("env_id")
        if not isinstance(env_id, str) or not (_REGISTERED.fullmatch(env_id) or _MODULE.fullmatch(env_id)):
            yield "env_id", f"is {env_id!r}; expected an id of PettingZoo such as 'classic/tictactoe-v3'"
        if cfg.get("api", "aec") not in ("aec", "parallel"):
            yield "api", f"is {cfg['api']!r}; expected 'aec' or 'parallel'"

    def __init__(self, cfg: Config | None = None) -> None:
        merged = {**self.config, **(cfg or {})}
        for path, fault in self.check_config(merged):
            raise ConfigError(f"env.{path} {fault}.")
        self._is_aec = merged["api"] == "aec"
        kwargs = dict(merged["kwargs"])
        if merged.get("render_mode") is not None:
            kwargs["render_mode"] = merged["render_mode"]
        self._env = _make(merged["env_id"], merged["api"], kwargs)
        self._agents: list[str] = list(self._env.possible_agents)
        self.num_players = len(self._agents)
        self.action_space: Space[Any] = self._shared("action_space")
        own = self._shared("observation_space")
        self._has_mask = isinstance(own, spaces.Dict) and ACTION_MASK in own.spaces
        self._flatten = bool(merged["flatten"])
        self.observation_space = self._fit_space(own)

    def _shared(self, name: str) -> Space[Any]:
        """Return a space that all agents have. Raises EnvError if they differ."""
        found: list[Space[Any]] = [getattr(self._env, name)(agent) for agent in self._agents]
        if any(space != found[0] for space in found):
            raise EnvError(
                f"the agents {', '.join(self._agents)} have different {name}s; one policy network plays one space. "
                "Pad them with a wrapper of supersuit first."
            )
        return found[0]

    def _fit_space(self, space: Space[Any]) -> Space[Any]:
        if not self._has_mask:
            return self._flat_space(space)
        assert isinstance(space, spaces.Dict), "only a dict has a mask"
        rest = {key: inner for key, inner in space.spaces.items() if key != ACTION_MASK}
        fitted = {key: self._flat_space(inner) for key, inner in rest.items()}
        return spaces.Dict({**fitted, ACTION_MASK: space[ACTION_MASK]})

    def _flat_space(self, space: Space[Any]) -> Space[Any]:
        if not self._flatten:
            return space
        return spaces.Box(-np.inf, np.inf, (int(np.prod(space.shape or (1,))),), np.float32)

    def _fit(self, obs: EnvObs) -> Any:
        if not self._flatten:
            return obs
        if not self._has_mask:
            return np.asarray(obs, np.float32).reshape(-1)
        flat = {key: np.asarray(value, np.float32).reshape(-1) for key, value in obs.items() if key != ACTION_MASK}
        return {**flat, ACTION_MASK: obs[ACTION_MASK]}

    @property
    def env(self) -> EnvLike:
        """PettingZoo's env."""
        return self._env

    # --- the game

    def reset(self, seed: int | None = None) -> tuple[Sequence[EnvObs], Sequence[int]]:
        if self._is_aec:
            self._env.reset(seed=seed)
            return [self._fit(self._env.observe(agent)) for agent in self._agents], [self._player()]
        obs, _ = self._env.reset(seed=seed)
        return [self._fit(obs[agent]) for agent in self._agents], range(self.num_players)

    def step(self, actions: Mapping[int, EnvAction]) -> GameStep:
        return self._step_in_turn(actions) if self._is_aec else self._step_at_once(actions)

    def close(self) -> None:
        self._env.close()

    def render(self) -> object:
        """Return the env's picture [H, W, 3], if it was made with `render_mode='rgb_array'`."""
        return self._env.render()

    def _player(self) -> int:
        return self._agents.index(self._env.agent_selection)

    def _step_in_turn(self, actions: Mapping[int, EnvAction]) -> GameStep:
        """Step one agent. One that is done is removed by a step without action, as PettingZoo requires."""
        env = self._env
        if list(actions) != [self._player()]:
            raise EnvError(f"moves of players {sorted(actions)} were given, but player {self._player()} is to move.")
        (player,) = actions
        env.step(actions[player])
        reward = [float(env.rewards.get(agent, 0.0)) for agent in self._agents]
        over = [bool(env.terminations.get(agent, True)) for agent in self._agents]
        cut = [bool(env.truncations.get(agent, False)) for agent in self._agents]
        # Before dead agents are removed, after which they cannot be observed.
        obs = [self._fit(env.observe(agent)) if agent in env.agents else None for agent in self._agents]
        info = [dict(env.infos.get(agent, {})) for agent in self._agents]
        while env.agents and (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
            env.step(None)
        to_move = [self._player()] if env.agents else []
        return GameStep(self._with_last(obs), reward, over, cut, to_move, info)

    def _step_at_once(self, actions: Mapping[int, EnvAction]) -> GameStep:
        given = {self._agents[player]: action for player, action in actions.items()}
        obs, reward, over, cut, info = self._env.step(given)
        agents, to_move = self._agents, [self._agents.index(agent) for agent in self._env.agents]
        return GameStep(
            self._with_last([self._fit(obs[agent]) if agent in obs else None for agent in agents]),
            [float(reward.get(agent, 0.0)) for agent in agents],
            [bool(over.get(agent, True)) for agent in agents],
            [bool(cut.get(agent, False)) for agent in agents],
            to_move,
            [dict(info.get(agent, {})) for agent in agents],
        )

    def _with_last(self, obs: list[Any]) -> list[EnvAction]:
        """Put what an agent saw last in place of nothing: one that is gone sees no more."""
        last = getattr(self, "_last", [None] * self.num_players)
        self._last = [before if now is None else now for before, now in zip(last, obs, strict=True)]
        return self._last


@ENV_REGISTRY.register("joint_petting_zoo")
class JointEnv(Configurable, AnyEnv):
    """Team of one policy: a PettingZoo env whose agents act at once, such as 'mpe2.simple_spread_v3', as one lane.

    The observation has `agents` [N, O] and `state` [S] (the env's own, else all observations in a row), the action is
    one of A for each of N agents, the reward the mean of theirs. An episode ends when it does for all agents. Raises
    ConfigError for an id that cannot be made, EnvError for agents that appear and leave, or whose spaces differ.
    """

    config = {
        # Id of a PettingZoo env of the parallel API, such as mpe/simple_spread_v3.
        "env_id": None,
        # Keyword arguments of the environment's constructor.
        "kwargs": {},
    }
    config_free: ClassVar[tuple[str, ...]] = ("kwargs",)
    config_types: ClassVar[dict[str, tuple[type, ...]]] = {"env_id": (str, type(None))}

    @classmethod
    def check_config(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        """Yield (path, what is wrong) for every contradiction."""
        yield from PettingZooGame.check_config({**cfg, "api": "parallel"})

    def __init__(self, cfg: Config | None = None) -> None:
        merged = {**self.config, **(cfg or {})}
        game = PettingZooGame(
            {"env_id": merged["env_id"], "kwargs": merged["kwargs"], "api": "parallel", "flatten": True}
        )
        if not isinstance(game.action_space, spaces.Discrete) or not isinstance(game.observation_space, spaces.Box):
            game.close()
            raise ConfigError(
                f"env.env_id '{merged['env_id']}' has actions {game.action_space} and observations "
                f"{game.observation_space}; a team needs discrete actions (kwargs=dict(continuous_actions=False)) and "
                "vectors."
            )
        self._game, self._agents = game, game.num_players
        (size,) = game.observation_space.shape
        self._state_size = self._own_state_size()
        self.observation_space = spaces.Dict(
            {
                "agents": spaces.Box(-np.inf, np.inf, (self._agents, size), np.float32),
                "state": spaces.Box(-np.inf, np.inf, (self._state_size or self._agents * size,), np.float32),
            }
        )
        self.action_space = spaces.MultiDiscrete([int(game.action_space.n)] * self._agents)

    def _own_state_size(self) -> int:
        """Return the length of the env's own state; 0 where it has none."""
        space = getattr(self._game.env, "state_space", None)
        return int(np.prod(space.shape)) if isinstance(space, spaces.Box) else 0

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[EnvObs, Info]:
        super().reset(seed=seed)
        obs, _ = self._game.reset(seed)
        return self._joint(obs), {}

    def step(self, action: EnvAction) -> tuple[EnvObs, float, bool, bool, Info]:
        step = self._game.step(dict(enumerate(np.asarray(action).tolist())))
        ended = [over or cut for over, cut in zip(step.terminated, step.truncated, strict=True)]
        if any(ended) and not all(ended):
            raise EnvError("an agent of a team has ended before the others: one lane cannot go on without it.")
        terminated = all(step.terminated)
        return self._joint(step.obs), float(np.mean(step.reward)), terminated, all(ended) and not terminated, {}

    def close(self) -> None:
        self._game.close()

    def _joint(self, obs: EnvObs) -> dict[str, Array]:
        agents = np.stack(obs).astype(np.float32)
        state = np.asarray(self._game.env.state(), np.float32).reshape(-1) if self._state_size else agents.reshape(-1)
        return {"agents": agents, "state": state}


def _make(env_id: str, api: str, kwargs: dict[str, Any]) -> Any:
    """Make an env by its id in PettingZoo's registry, or by the module that makes it."""
    try:
        if _REGISTERED.fullmatch(env_id):
            import pettingzoo

            return pettingzoo.make(api, env_id, **kwargs)
        return ENV_REGISTRY.get(f"{env_id}:{'env' if api == 'aec' else 'parallel_env'}")(**kwargs)
    except Exception as error:  # PettingZoo's own errors have no common class
        extra = "mpe" if env_id.startswith("mpe2.") else "pettingzoo"
        raise ConfigError(
            f"env.env_id '{env_id}' cannot be made: {error}. Its package is installed with: {pip_line(extra)}"
        ) from error
