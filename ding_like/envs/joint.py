"""Give a team to one policy: all agents of an env that act at once are one lane with a common reward."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from ding_like.envs.petting_zoo import PettingZooGame
from ding_like.errors import ConfigError, EnvError
from ding_like.types import Array
from ding_like.utils.configurable import Configurable
from ding_like.utils.registries import ENV_REGISTRY


@ENV_REGISTRY.register("joint_petting_zoo")
class JointEnv(Configurable, gymnasium.Env[Any, Any]):
    """Make a PettingZoo env whose agents act at once, such as 'mpe2.simple_spread_v3', an env of one lane.

    The observation has `agents` [N, O] and `state` [S] (the env's own, else all observations in a row), the action is
    one of A for each of N agents, the reward the mean of theirs. An episode ends when it does for all agents. Raises
    ConfigError for an id that cannot be made, EnvError for agents that come and go or whose spaces differ.
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
    def check_config(cls, cfg: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield (path, what is wrong) for every contradiction."""
        yield from PettingZooGame.check_config({**cfg, "api": "parallel"})

    def __init__(self, cfg: Mapping[str, Any] | None = None) -> None:
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

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        obs, _ = self._game.reset(seed)
        return self._joint(obs), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        step = self._game.step(dict(enumerate(np.asarray(action).tolist())))
        ended = [over or cut for over, cut in zip(step.terminated, step.truncated, strict=True)]
        if any(ended) and not all(ended):
            raise EnvError("an agent of a team has ended before the others: one lane cannot go on without it.")
        terminated = all(step.terminated)
        return self._joint(step.obs), float(np.mean(step.reward)), terminated, all(ended) and not terminated, {}

    def close(self) -> None:
        self._game.close()

    def _joint(self, obs: Any) -> dict[str, Array]:
        agents = np.stack(obs).astype(np.float32)
        state = np.asarray(self._game.env.state(), np.float32).reshape(-1) if self._state_size else agents.reshape(-1)
        return {"agents": agents, "state": state}
