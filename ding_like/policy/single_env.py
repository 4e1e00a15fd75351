"""Act with a policy in a single env."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

# What an env observes and takes differs from env to env: hence Any.


def single_env_forward_wrapper(forward_fn: Callable[..., Mapping[int, Mapping[str, Any]]]) -> Callable[[Any], Any]:
    """Return a function from one env's observation to its action, for a mode's `forward`, `policy.eval_mode.forward`.

    A discrete action is an int, any other an array. A recurrent policy remembers until its mode's `reset`.
    """

    def forward(obs: Any) -> Any:
        action = np.asarray(forward_fn({0: obs})[0]["action"])
        return action.item() if action.ndim == 0 and action.dtype.kind in "iu" else action

    return forward
