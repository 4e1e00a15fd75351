"""Teams of PettingZoo's environments under DI-engine's names."""

from dizoo.petting_zoo.envs.petting_zoo_pistonball_env import PettingZooPistonballEnv
from dizoo.petting_zoo.envs.petting_zoo_simple_spread_env import PettingZooEnv

__all__ = ["PettingZooEnv", "PettingZooPistonballEnv"]
