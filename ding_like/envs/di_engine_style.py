"""Envs written in DI-engine's style (`reset() -> obs`, one `done`), their adapter to gymnasium."""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from ding_like.errors import EnvError, SchemaError
from ding_like.types import Config, EnvAction, EnvLike, EnvObs, Info, Section
from ding_like.utils.bounds import Configurable
from ding_like.utils.log import one_time_warning

# What an env observes and takes differs from env to env: hence Any in the signatures of this file.

# Exclusive; the largest range that every env's seeding accepts.
SEED_LIMIT = 2**31 - 1


class BaseEnvTimestep(NamedTuple):
    """Result of one `BaseEnv.step`."""

    obs: Any
    reward: Any
    done: bool
    info: dict[str, Any]


class BaseEnv(Configurable, ABC):
    """Base class of envs written in DI-engine's style.

    Such an env knows only `done`, which is read as terminated; `info["TimeLimit.truncated"] = True` marks an episode
    that a time limit cut. New envs are better written as `gymnasium.Env`, which has a flag for each.
    """

    @abstractmethod
    def __init__(self, cfg: Config) -> None: ...

    @abstractmethod
    def reset(self) -> EnvObs: ...

    @abstractmethod
    def step(self, action: EnvAction) -> BaseEnvTimestep: ...

    @abstractmethod
    def seed(self, seed: int, dynamic_seed: bool = True) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @property
    def observation_space(self) -> Any:
        """`_observation_space`, which the constructor sets."""
        return self._observation_space  # type: ignore[attr-defined]

    @property
    def action_space(self) -> Any:
        """`_action_space`, which the constructor sets."""
        return self._action_space  # type: ignore[attr-defined]

    @property
    def reward_space(self) -> Any:
        """`_reward_space`, which the constructor may set."""
        return getattr(self, "_reward_space", None)

    def random_action(self) -> EnvAction:
        """Return a sample of the action space."""
        return self.action_space.sample()

    @staticmethod
    def create_collector_env_cfg(cfg: Section) -> list[Section]:
        """Return one env config for each of `collector_env_num` envs."""
        cfg = copy.deepcopy(cfg)
        return [cfg] * int(cfg.pop("collector_env_num"))

    @staticmethod
    def create_evaluator_env_cfg(cfg: Section) -> list[Section]:
        """Return one env config for each of `evaluator_env_num` envs."""
        cfg = copy.deepcopy(cfg)
        return [cfg] * int(cfg.pop("evaluator_env_num"))


class DiEngineStyleEnv(gymnasium.Env[Any, Any]):
    """Gymnasium env over one in DI-engine's style; `env` is any object with its methods.

    Every reset seeds the env, from the seed it is given or from a generator that the last given seed started, so that
    an episode depends on seeds and actions alone, whatever the env does with `dynamic_seed`.
    """

    def __init__(self, env: EnvLike) -> None:
        self.env = env
        self.observation_space = _space(env, "observation_space")
        self.action_space = _space(env, "action_space")
        self.render_mode = getattr(env, "render_mode", None)
        self._is_team = hasattr(env, "agent_num")
        self._seeds_static = "dynamic_seed" in inspect.signature(env.seed).parameters

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[EnvObs, Info]:
        """Seed and reset; `options` are keyword arguments of the env's own `reset` (DI-engine's reset parameters)."""
        super().reset(seed=seed)
        own_seed = int(self.np_random.integers(SEED_LIMIT)) if seed is None else seed
        if self._seeds_static:
            self.env.seed(own_seed, dynamic_seed=False)
        else:
            self.env.seed(own_seed)
        return self.env.reset(**(options or {})), {}

    def step(self, action: EnvAction) -> tuple[EnvObs, float, bool, bool, Info]:
        obs, reward, done, info = self.env.step(np.asarray(action))
        if np.size(done) != 1:
            raise SchemaError(
                f"step() of {type(self.env).__name__} returned done {done!r}, expected one: return a bool"
            )
        truncated = False
        if done:
            self._warn_of_done()
            truncated = bool(info.get("TimeLimit.truncated", False))
        return obs, self._number(reward), bool(done) and not truncated, truncated, info

    def _number(self, reward: Any) -> Any:
        """Return the reward as a number; of a team, which `DiEngineTeam` adds up, as it is."""
        if isinstance(reward, float) or self._is_team:
            return reward
        if np.size(reward) != 1:
            raise EnvError(f"{self.env!r} returned reward {reward!r}; expected one number.")
        return float(np.asarray(reward).reshape(-1)[0])

    def _warn_of_done(self) -> None:
        one_time_warning(
            f"{type(self.env).__name__} reports only `done`: it is read as terminated. Where a time limit ends an "
            "episode, set info['TimeLimit.truncated'] = True, so that the value of the last state is still counted."
        )

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()

    def __repr__(self) -> str:
        return f"DiEngineStyleEnv({self.env!r})"


def _space(env: EnvLike, name: str) -> Any:
    space = getattr(env, name, None)
    if isinstance(space, (list, tuple)) and all(isinstance(each, gymnasium.Space) for each in space):
        return gymnasium.spaces.Tuple(space)  # one for each player of a game
    if not isinstance(space, gymnasium.Space):
        raise EnvError(
            f"{name} of {type(env).__name__} is {space!r}; expected a gymnasium.spaces object, set in the constructor."
        )
    return space
