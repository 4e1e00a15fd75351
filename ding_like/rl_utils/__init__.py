"""Hold the arithmetic of reinforcement learning as pure functions on arrays.

Rollout arithmetic is numpy. Losses are torch and live in `ding_like.rl_utils.td`, which is imported by its own name, so
that a process that only collects can use the rest without torch.
"""

from ding_like.rl_utils.exploration import epsilon_greedy, get_epsilon_greedy_fn
from ding_like.rl_utils.returns import NStep, gae, nstep_return
from ding_like.rl_utils.schedule import Schedule, constant, linear_schedule

__all__ = [
    "NStep",
    "Schedule",
    "constant",
    "epsilon_greedy",
    "gae",
    "get_epsilon_greedy_fn",
    "linear_schedule",
    "nstep_return",
]
