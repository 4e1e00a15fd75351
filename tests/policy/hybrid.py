"""What the tests of policies of hybrid actions share: a toy env whose optimum is known, and made-up rows."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ding_like.data.batch import TransitionBatch
from ding_like.utils.registries import ENV_REGISTRY
from tests.policy import continuous

# Bounds that differ in width and centre, so that a forgotten scaling shows.
LOW, HIGH = np.array([-2.0, 0.0], np.float32), np.array([2.0, 0.5], np.float32)
MASK = [[1, 0], [0, 1], [0, 0]]
GAMMA = 0.9


def make_batch(rows: int = 16, *, seed: int = 0, **columns: Any) -> TransitionBatch:
    """Return rows with actions in the env's units; some are terminated, others truncated."""
    rng = np.random.default_rng(seed)
    action = np.concatenate([rng.integers(0, 3, (rows, 1)), rng.uniform(LOW, HIGH, (rows, 2))], axis=1)
    return continuous.make_batch(rows, seed=seed, action=action.astype(np.float32), **columns)


class AimEnv(gymnasium.Env[Any, Any]):
    """Aim once: observe (u, v) in [-1, 1] x [-1, 1]; the best choice and its best parameter follow from these.

    Where u > 0, choice 0 with parameter 2 v is best, which pays 1; else choice 1 with parameter (v + 1) / 4. A
    parameter that is off by a share d of its range's half costs d^2, and the wrong one of the two pays 0.5 less. Choice
    2 has no parameter and always pays 0.3. So the optimum is a return of 1.
    """

    parameter_mask = np.array(MASK, bool)

    def __init__(self, cfg: Any = None) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Dict(action_type=spaces.Discrete(3), action_args=spaces.Box(LOW, HIGH))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._obs = self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)
        return self._obs, {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        u, v = self._obs.tolist()
        choice, args = action["action_type"], action["action_args"]
        if choice == 2:
            return self._obs, 0.3, True, False, {}
        best, half = ((2.0 * v, 2.0), ((v + 1.0) / 4.0, 0.25))[choice]
        is_right = (u > 0) == (choice == 0)
        reward = (1.0 if is_right else 0.5) - ((float(args[choice]) - best) / half) ** 2
        return self._obs, reward, True, False, {}


def best_actions(obs: np.ndarray) -> np.ndarray:
    """Return the optimal rows [R, 3] for observations [R, 2]; the parameter that is not used is 0."""
    u, v = obs.T
    choice = np.where(u > 0, 0, 1)
    return np.stack([choice, np.where(choice == 0, 2 * v, 0), np.where(choice == 1, (v + 1) / 4, 0)], axis=1)


def register_aim() -> str:
    """Register the env and return its type."""
    if "aim_env_of_the_tests" not in ENV_REGISTRY.names():
        ENV_REGISTRY.register("aim_env_of_the_tests")(AimEnv)
    return "aim_env_of_the_tests"
