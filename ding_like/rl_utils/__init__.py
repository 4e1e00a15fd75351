"""Arithmetic of reinforcement learning as pure functions on arrays.

Rollout arithmetic is numpy. Losses are torch and are imported from their own modules (`td`, `policy_gradient`,
`value_family`), so that a process that only collects can use the rest without torch.
"""

from __future__ import annotations

from ding_like.rl_utils.exploration import Schedule, constant, epsilon_greedy, get_epsilon_greedy_fn, linear_schedule
from ding_like.rl_utils.returns import NStep, gae, get_nstep_return_data, get_train_sample, nstep_return
from ding_like.utils.registries import lazy_exports

# Imported on first use. Names are DI-engine's.
_HOMES = {"q_nstep_td_data": "ding_like.rl_utils.td", "q_nstep_td_error": "ding_like.rl_utils.td"}
_TD = "use q_nstep_td_error, or nstep_td_target of ding_like.rl_utils.td, and a loss of torch"
# DI-engine's that are not here -> what to use.
_INSTEAD = {
    "a2c_error": "use ding_like.rl_utils.policy_gradient",
    "create_noise_generator": "use ding_like.rl_utils.exploration",
    "gae_data": "gae takes the arrays as arguments",
    "get_gae_with_default_last_value": "use gae",
    "ppo_data": "use ding_like.rl_utils.policy_gradient",
    "ppo_error": "use ding_like.rl_utils.policy_gradient",
    "q_1step_td_data": _TD,
    "q_1step_td_error": _TD,
    "v_1step_td_error": _TD,
}

__all__ = [
    "NStep",
    "Schedule",
    "constant",
    "epsilon_greedy",
    "gae",
    "get_epsilon_greedy_fn",
    "get_nstep_return_data",
    "get_train_sample",
    "linear_schedule",
    "nstep_return",
    *_HOMES,
]

__getattr__, __dir__ = lazy_exports(__name__, _HOMES, instead=_INSTEAD)
