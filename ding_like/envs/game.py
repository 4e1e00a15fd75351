"""Games: environments with N players, who move at once or in turn, PettingZoo's among them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from gymnasium import Space, spaces

from ding_like.data.batch import ACTION_MASK, copy_obs
from ding_like.envs.di_engine_style import DiEngineStyleEnv
from ding_like.envs.spaces import AnyEnv, ObsLayout
from ding_like.errors import ConfigError, EnvError
from ding_like.types import Actor, Array, Config, EnvAction, EnvLike, EnvObs, Info, Report
from ding_like.utils.bounds import Configurable
from ding_like.utils.registries import ENV_REGISTRY, pip_line

# What players see and do differs from game to game: hence Any.


class GameStep(NamedTuple):
    """Result of one step of a game."""

    obs: Sequence[Any]  # N; what counts are those of players who move next and of players who are done
    reward: Sequence[float]  # N, of this step alone
    terminated: Sequence[bool]  # N; a player who is done moves no more in this game
    truncated: Sequence[bool]  # N
    to_move: Sequence[int]  # players who move next; none: the game is over
    info: Sequence[Mapping[str, Any]] = ()  # N, or nothing


class Game(Protocol):
    """Env of several players, who share the spaces; plays one game after another."""

    num_players: int
    observation_space: Space[Any]  # of one player
    action_space: Space[Any]  # of one player

    def reset(self, seed: int | None = None) -> tuple[Sequence[EnvObs], Sequence[int]]:
        """Begin a game; return the players' observations [N] and who moves first."""

    def step(self, actions: Mapping[int, EnvAction]) -> GameStep:
        """Take the actions of the players who are to move, by player."""

    def close(self) -> None: ...


class PairGame:
    """Game over an env whose `obs` and `reward` have an entry for each player, in DI-engine's style or gymnasium's.

    `reset() -> obs`, `step([action0, action1, ...]) -> BaseEnvTimestep(obs, reward, done, info)`, all players at once;
    or `reset(seed=...) -> (obs, info)`, and a step with `terminated` and `truncated`, of all or of each player.
    Its spaces are those of one player, or have an equal entry (of a Box, a row) for each. `info` is one dict, in which
    `eval_episode_return` may have an entry for each player, or a list of dicts; `info["TimeLimit.truncated"]` marks a
    game that a time limit ended. An env of more than two players has an attribute `num_players`.
    """

    def __init__(self, env: EnvLike) -> None:
        missing = [name for name in ("reset", "step", "observation_space", "action_space") if not hasattr(env, name)]
        if missing:
            raise EnvError(f"{env!r} is not an env of several players: it lacks {', '.join(missing)}.")
        self._env = env
        self._is_gymnasiums = "seed" in inspect.signature(env.reset).parameters
        self.num_players = int(getattr(env, "num_players", 2))
        self.observation_space = self._space_of_one("observation_space")
        self.action_space = self._space_of_one("action_space")

    def reset(self, seed: int | None = None) -> tuple[Sequence[EnvObs], Sequence[int]]:
        return self._each(self._reset(seed), "obs"), range(self.num_players)

    def _reset(self, seed: int | None = None) -> Any:
        if self._is_gymnasiums:
            obs, _ = self._env.reset(seed=seed)
            return obs
        if seed is not None and hasattr(self._env, "seed"):
            self._env.seed(seed)
        return self._env.reset()

    def step(self, actions: Mapping[int, EnvAction]) -> GameStep:
        obs, paid, *ends, given = self._env.step([actions[player] for player in range(self.num_players)])
        info = list(given) if isinstance(given, (list, tuple)) else self._info_of_each(given)
        if self._is_gymnasiums:
            terminated, truncated = ends
            cut, done = bool(np.any(truncated)), bool(np.all(np.logical_or(terminated, truncated)))
        else:
            done = bool(np.all(*ends))
            cut = any(each.get("TimeLimit.truncated", False) for each in info)
        over, is_cut = [done and not cut] * self.num_players, [done and cut] * self.num_players
        to_move = () if done else range(self.num_players)
        reward = [float(np.asarray(value).reshape(-1)[0]) for value in self._each(paid, "reward")]
        return GameStep(self._each(obs, "obs"), reward, over, is_cut, to_move, info)

    def close(self) -> None:
        if hasattr(self._env, "close"):
            self._env.close()

    def _space_of_one(self, name: str) -> Space[Any]:
        """Return the space of one player. Raises EnvError if there is none, or players have different ones."""
        own = getattr(self._env, name)
        each = list(own) if isinstance(own, (list, tuple, spaces.Tuple)) else [own] * self.num_players
        is_shared = all(isinstance(space, Space) and space == each[0] for space in each)
        if len(each) != self.num_players or not is_shared:
            raise EnvError(
                f"{name} of {type(self._env).__name__} is {own!r:.200}; expected a gymnasium space that all "
                f"{self.num_players} players share."
            )
        one: Space[Any] = each[0]
        if name == "observation_space" and isinstance(one, spaces.Box) and one.shape[:1] == (self.num_players,):
            own_shape = np.shape(self._each(self._reset(), "obs")[0])
            if own_shape == one.shape[1:]:  # the space has a row for each player
                return spaces.Box(one.low.min(axis=0), one.high.max(axis=0), dtype=one.dtype.type)
        return one

    def _info_of_each(self, info: Report) -> list[Mapping[str, Any]]:
        returns = info.get("eval_episode_return")
        if returns is None or np.size(returns) != self.num_players:
            return [info] * self.num_players
        each = np.asarray(returns, np.float64).reshape(-1).tolist()
        return [{**info, "eval_episode_return": value} for value in each]

    def _each(self, values: Any, what: str) -> Sequence[Any]:
        """Return one entry per player, of a list or an array."""
        found: Sequence[Any] = list(values) if isinstance(values, np.ndarray) else values
        if len(found) != self.num_players:
            raise EnvError(f"the env gave {len(found)} entries as {what} for {self.num_players} players.")
        return found


def as_game(env: EnvLike) -> Game:
    """Return `env` as a Game: one that is, or an env in DI-engine's style with an entry for each player."""
    if isinstance(env, DiEngineStyleEnv):
        env = env.env
    if all(hasattr(env, name) for name in ("num_players", "reset", "step", "close")) and not hasattr(env, "seed"):
        game: Game = env
        return game
    return PairGame(env)


# An id of PettingZoo's registry, or a module of a package of such envs; nothing else is imported.
_REGISTERED = re.compile(r"[a-z0-9_]+/[A-Za-z0-9_]+-v\d+")
# Part of an id -> the extra that installs the package of the env.
_EXTRAS = {"mpe2.": "mpe", "butterfly": "butterfly", "gymnasium_robotics.": "robotics"}
_MODULE = re.compile(r"(pettingzoo|mpe2|gymnasium_robotics)(\.[A-Za-z0-9_]+)+")


class SoloEnv(AnyEnv):
    """One game, seen by a player who changes from game to game; for looking at games, one at a time.

    `VersusManager` is for many games at once.
    """

    def __init__(self, game: Game, opponent: Actor, *, seed: int = 0, render_mode: str | None = None) -> None:
        self._game, self._opponent = game, opponent
        self._layout = ObsLayout(game.observation_space)
        self.observation_space, self.action_space = game.observation_space, game.action_space
        self.render_mode = render_mode
        self._rng = np.random.default_rng(seed)
        self._own = -1
        self._is_first: list[bool] = []

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[EnvObs, Info]:
        super().reset(seed=seed)
        self._own = (self._own + 1) % self._game.num_players
        self._is_first = [True] * self._game.num_players
        obs, to_move = self._game.reset(seed)
        nothing = [False] * len(obs)
        step, _ = self._until_own_move(GameStep(obs, nothing, nothing, nothing, to_move))
        if self._own not in step.to_move:
            return self.reset(seed=None)  # it was over before our first move
        return step.obs[self._own], {}

    def step(self, action: EnvAction) -> tuple[EnvObs, float, bool, bool, Info]:
        obs, players = self._beside
        step, reward = self._until_own_move(self._game.step({self._own: action, **self._act(obs, players)}))
        own = self._own
        return step.obs[own], reward, bool(step.terminated[own]), bool(step.truncated[own]), {}

    def _until_own_move(self, step: GameStep) -> tuple[GameStep, float]:
        """Make the others' moves until it is our turn or the end; return the last step and the sum of our rewards."""
        reward = float(step.reward[self._own])
        while step.to_move and self._own not in step.to_move:
            step = self._game.step(self._act(step.obs, list(step.to_move)))
            reward += float(step.reward[self._own])
        self._beside = (step.obs, [player for player in step.to_move if player != self._own])
        return step, reward

    def _act(self, obs: EnvObs, players: list[int]) -> dict[int, Any]:
        """Return the opponent's moves of these players."""
        if not players:
            return {}
        rows = self._layout.allocate(len(players))
        write = self._layout.writer(rows)
        for row, player in enumerate(players):
            write(row, obs[player])
        is_first = np.array([self._is_first[player] for player in players])
        lanes = np.array(players, np.int64)
        actions = self._opponent.act(copy_obs(rows), lanes=lanes, is_first=is_first, rng=self._rng)["action"]
        for player in players:
            self._is_first[player] = False
        return dict(zip(players, actions, strict=True))

    def render(self) -> Any:
        """Return the game's picture. Raises EnvError for a game that has none."""
        render = getattr(self._game, "render", None)
        if render is None:
            raise EnvError(f"{type(self._game).__name__} cannot render: it has no render().")
        return render()

    def close(self) -> None:
        self._game.close()


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
        yield from petting_zoo_faults(cfg)
        if cfg.get("api", "aec") not in ("aec", "parallel"):
            yield "api", f"is {cfg['api']!r}; expected 'aec' or 'parallel'"

    def __init__(self, cfg: Config | None = None) -> None:
        merged = {**self.config, **(cfg or {})}
        for path, fault in self.check_config(merged):
            raise ConfigError(f"env.{path} {fault}.")
        self._is_aec = merged["api"] == "aec"
        drawn = {} if merged.get("render_mode") is None else {"render_mode": merged["render_mode"]}
        self.env: Any = make_petting_zoo(merged["env_id"], merged["api"], {**merged["kwargs"], **drawn})
        self._agents: list[str] = list(self.env.possible_agents)
        self.num_players = len(self._agents)
        self.action_space: Space[Any] = self._shared("action_space")
        own = self._shared("observation_space")
        self._has_mask = isinstance(own, spaces.Dict) and ACTION_MASK in own.spaces
        self._flatten = bool(merged["flatten"])
        self._last: list[Any] = [None] * self.num_players  # what each agent saw last: one that is gone sees no more
        self.observation_space = self._fit_space(own)

    def _shared(self, name: str) -> Space[Any]:
        """Return a space that all agents have. Raises EnvError if they differ."""
        found: list[Space[Any]] = [getattr(self.env, name)(agent) for agent in self._agents]
        if any(space != found[0] for space in found):
            raise EnvError(
                f"the agents {', '.join(self._agents)} have different {name}s; one policy network plays one space. "
                "Pad them with a wrapper of supersuit first."
            )
        return found[0]

    def _fit_space(self, space: Space[Any]) -> Space[Any]:
        if not self._flatten:
            return space
        if not isinstance(space, spaces.Dict) or not self._has_mask:
            return _flat_space(space)
        entries = space.spaces.items()
        return spaces.Dict({key: inner if key == ACTION_MASK else _flat_space(inner) for key, inner in entries})

    def _fit(self, obs: EnvObs) -> Any:
        """Return an observation in our space: with `flatten`, all but the mask is flat."""
        if not self._flatten:
            return obs
        if not self._has_mask:
            return _flat(obs)
        return {key: value if key == ACTION_MASK else _flat(value) for key, value in obs.items()}

    # --- the game

    def reset(self, seed: int | None = None) -> tuple[Sequence[EnvObs], Sequence[int]]:
        if self._is_aec:
            self.env.reset(seed=seed)
            return [self._fit(self.env.observe(agent)) for agent in self._agents], [self._player()]
        obs, _ = self.env.reset(seed=seed)
        return [self._fit(obs[agent]) for agent in self._agents], range(self.num_players)

    def step(self, actions: Mapping[int, EnvAction]) -> GameStep:
        return self._step_in_turn(actions) if self._is_aec else self._step_at_once(actions)

    def close(self) -> None:
        self.env.close()

    def render(self) -> object:
        """Return the env's picture [H, W, 3], if it was made with `render_mode='rgb_array'`."""
        return self.env.render()

    def _player(self) -> int:
        return self._agents.index(self.env.agent_selection)

    def _step_in_turn(self, actions: Mapping[int, EnvAction]) -> GameStep:
        """Step one agent. One that is done is removed by a step without action, as PettingZoo requires."""
        env = self.env
        if list(actions) != [self._player()]:
            raise EnvError(f"moves of players {sorted(actions)} were given, but player {self._player()} is to move.")
        (player,) = actions
        env.step(actions[player])
        reward = [float(env.rewards.get(agent, 0.0)) for agent in self._agents]
        over = [bool(env.terminations.get(agent, True)) for agent in self._agents]
        cut = [bool(env.truncations.get(agent, False)) for agent in self._agents]
        # Before dead agents are removed, after which they cannot be observed.
        obs = self._seen({agent: env.observe(agent) for agent in env.agents})
        info = [dict(env.infos.get(agent, {})) for agent in self._agents]
        while env.agents and (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
            env.step(None)
        to_move = [self._player()] if env.agents else []
        return GameStep(obs, reward, over, cut, to_move, info)

    def _step_at_once(self, actions: Mapping[int, EnvAction]) -> GameStep:
        given = {self._agents[player]: action for player, action in actions.items()}
        obs, reward, over, cut, info = self.env.step(given)
        agents, to_move = self._agents, [self._agents.index(agent) for agent in self.env.agents]
        return GameStep(
            self._seen(obs),
            [float(reward.get(agent, 0.0)) for agent in agents],
            [bool(over.get(agent, True)) for agent in agents],
            [bool(cut.get(agent, False)) for agent in agents],
            to_move,
            [dict(info.get(agent, {})) for agent in agents],
        )

    def _seen(self, obs: Mapping[str, EnvObs]) -> list[Any]:
        """Return what each agent sees, or saw last, of PettingZoo's observations by agent."""
        now = [self._fit(obs[agent]) if agent in obs else None for agent in self._agents]
        self._last = [last if own is None else own for last, own in zip(self._last, now, strict=True)]
        return self._last


def _flat(value: Any) -> Array:
    return np.asarray(value, np.float32).reshape(-1)


def _flat_space(space: Space[Any]) -> Space[Any]:
    return spaces.Box(-np.inf, np.inf, (int(np.prod(space.shape or (1,))),), np.float32)


def petting_zoo_faults(cfg: Config) -> Iterable[tuple[str, str]]:
    """Yield (path, what is wrong) where `env_id` is no id of PettingZoo."""
    env_id = cfg.get("env_id")
    if not isinstance(env_id, str) or not (_REGISTERED.fullmatch(env_id) or _MODULE.fullmatch(env_id)):
        yield "env_id", f"is {env_id!r}; expected an id of PettingZoo such as 'classic/tictactoe-v3'"


def make_petting_zoo(env_id: str, api: str, kwargs: dict[str, Any]) -> Any:
    """Make an env by its id in PettingZoo's registry, or by the module that makes it.

    Raises ConfigError for another id, and for one that cannot be made.
    """
    for path, fault in petting_zoo_faults({"env_id": env_id}):
        raise ConfigError(f"env.{path} {fault}.")
    try:
        if _REGISTERED.fullmatch(env_id):
            import pettingzoo

            return pettingzoo.make(api, env_id, **kwargs)
        return ENV_REGISTRY.get(f"{env_id}:{'env' if api == 'aec' else 'parallel_env'}")(**kwargs)
    except Exception as error:  # PettingZoo's own errors have no common class
        extra = next((name for family, name in _EXTRAS.items() if family in env_id), "pettingzoo")
        raise ConfigError(
            f"env.env_id '{env_id}' cannot be made: {error}. Its package is installed with: {pip_line(extra)}"
        ) from error
