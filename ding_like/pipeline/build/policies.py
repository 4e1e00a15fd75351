"""Build policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ding_like.policy import Policy, create_policy
from ding_like.utils.seeding import set_pkg_seed


def build_policy(
    fitted: Mapping[str, Any],
    *,
    seed: int | None = None,
    model: torch.nn.Module | None = None,
    modes: Sequence[str] | None = None,
) -> Policy:
    """Return the policy of a section that `fit_policy_config` has returned.

    With `seed` the global generators, which initialise weights, are seeded first. `model` stands in place of the
    policy's own. `modes` are those of the policy that are used, "learn", "collect", "eval" and "command" (None: all).
    """
    if seed is not None:
        set_pkg_seed(seed, use_cuda=bool(fitted.get("cuda")))
    return create_policy(fitted, model=model, enable_field=None if modes is None else list(modes))
