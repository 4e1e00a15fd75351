"""The MinAtar environments."""

from dizoo.minatar.envs.minatar_env import MinAtarEnv, MinAtarGame

__all__ = ["MinAtarEnv", "MinAtarGame"]
