"""The prisoner's dilemma as users of DI-engine and of gymnasium write a game of two players."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ding_like.envs import BaseEnv, BaseEnvTimestep

_ONE, _CHOICE = spaces.Box(0.0, 1.0, (2,), np.float32), spaces.Discrete(2)
# Form -> observation and action space: of one player, or of both in one of the ways that are in use.
FORMS: dict[str, Any] = {
    "one": (_ONE, _CHOICE),
    "list": ([_ONE, _ONE], [_CHOICE, _CHOICE]),
    "tuple": (spaces.Tuple([_ONE, _ONE]), spaces.Tuple([_CHOICE, _CHOICE])),
    "rows": (spaces.Box(0.0, 1.0, (2, 2), np.float32), _CHOICE),
}
PAYOFF = np.array([[3.0, 0.0], [4.0, 1.0]])  # of the first player; to defect, action 1, is always better


def played(actions: Any) -> tuple[np.ndarray, np.ndarray, list[dict[str, Any]]]:
    """Return what players see, what they are paid and the info of each."""
    first, second = (int(action) for action in actions)
    paid = np.array([[PAYOFF[first, second]], [PAYOFF[second, first]]])
    infos = [{"result": "draws", "eval_episode_return": own} for own in paid]
    return np.eye(2, dtype=np.float32), paid, infos


class TheirDilemma(BaseEnv):
    """Game in DI-engine's style."""

    def __init__(self, cfg: Any = None) -> None:
        self._observation_space, self._action_space = FORMS[(cfg or {}).get("form", "one")]

    def seed(self, seed: int, dynamic_seed: bool = True) -> None: ...

    def close(self) -> None: ...

    def reset(self) -> np.ndarray:
        return np.eye(2, dtype=np.float32)

    def step(self, action: Any) -> BaseEnvTimestep:
        obs, paid, infos = played(action)
        return BaseEnvTimestep(obs, paid, True, infos)  # type: ignore[arg-type]


class OldDilemma(gymnasium.Env[Any, Any]):
    """Game that is a gymnasium env by class and in DI-engine's style by what it returns."""

    def __init__(self, form: str = "one") -> None:
        self.observation_space, self.action_space = FORMS[form]

    def seed(self, seed: int, dynamic_seed: bool = True) -> None: ...

    def reset(self) -> Any:  # type: ignore[override]
        return np.eye(2, dtype=np.float32)

    def step(self, action: Any) -> Any:
        obs, paid, infos = played(action)
        return BaseEnvTimestep(obs, paid, True, infos)  # type: ignore[arg-type]


class GymnasiumsDilemma(gymnasium.Env[Any, Any]):
    """Game in gymnasium's form; `each`: it ends for each player."""

    def __init__(self, form: str = "one", *, each: bool = False, cut: bool = False) -> None:
        self.observation_space, self.action_space = FORMS[form]
        self._each, self._cut = each, cut
        self.seeds: list[int | None] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.seeds.append(seed)
        return np.eye(2, dtype=np.float32), {}

    def step(self, action: Any) -> Any:
        obs, paid, _ = played(action)
        over: Any = [not self._cut] * 2 if self._each else not self._cut
        cut: Any = [self._cut] * 2 if self._each else self._cut
        return obs, paid.ravel().tolist(), over, cut, {"result": "draws"}
