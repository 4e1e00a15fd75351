"""Give a collect mode random actions, under DI-engine's names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gymnasium import spaces

from ding_like.data.rows import DiEngineStyleActor, adapt_collect_mode
from ding_like.errors import ConfigError
from ding_like.policy.di_engine_view import forward_rows
from ding_like.policy.random_policy import random_collect_mode
from ding_like.types import CollectMode


class PolicyFactory:
    """Maker of collect modes that act at random, to fill a buffer before the first update."""

    @staticmethod
    def get_random_policy(
        policy: Any,  # any named tuple of a collect mode, ours or in DI-engine's style
        action_space: spaces.Space[Any] | None = None,
        forward_fn: Callable[..., dict[int, dict[str, Any]]] | None = None,
    ) -> CollectMode:
        """Return the collect mode with actions drawn from `action_space`, or those of `forward_fn({id: obs})`.

        Transitions and rows are made as the policy makes them. Raises ConfigError unless exactly one of both is given,
        and for a space without bounds.
        """
        if (action_space is None) == (forward_fn is None):
            raise ConfigError(
                "get_random_policy needs action_space, or forward_fn for a space that it cannot draw from."
            )
        mode = adapt_collect_mode(policy)
        if forward_fn is not None:
            mode = mode._replace(forward=forward_fn)
            return mode._replace(actor=DiEngineStyleActor(mode))
        assert action_space is not None, "checked above"
        mode = random_collect_mode(mode, action_space)
        return mode._replace(forward=partial(forward_rows, mode.actor))


def get_random_policy(cfg: Any, policy: Any, env: Any) -> Any:
    """Return `policy`, a collect mode, with actions drawn from `env.action_space`.

    `cfg.policy.transition_with_policy_data` says that rows need what the policy says of its actions: then `policy` is
    returned as it is.
    """
    if cfg.policy.get("transition_with_policy_data", False):
        return policy
    return PolicyFactory.get_random_policy(policy, action_space=env.action_space)
