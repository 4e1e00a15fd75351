"""Save what wrappers remember from one episode to the next, and share it between envs.

A wrapper, or an env, with such a memory has `state_dict()` and `load_state_dict(state)`. One whose memory can be joined
with that of others has `adopt(states)` too: it takes over what they know together and learns no more, as evaluations
need it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium

from ding_like.errors import CheckpointError
from ding_like.types import State

AnyEnv = gymnasium.Env[Any, Any]  # what an env observes and takes differs from env to env


def wrapper_states(env: AnyEnv) -> list[State]:
    """Return the state of every wrapper that has one, the outermost first; empty where none remembers anything."""
    return [{"type": type(each).__name__, "state": each.state_dict()} for each in _stateful(env)]


def load_wrapper_states(env: AnyEnv, states: Sequence[State]) -> None:
    """Give the wrappers of an env the states that `wrapper_states` returned for an env like it.

    Raises CheckpointError if the env is wrapped in another way.
    """
    wrappers = list(_stateful(env))
    _check_same(wrappers, states)
    for wrapper, saved in zip(wrappers, states, strict=True):
        wrapper.load_state_dict(saved["state"])


def adopt_wrapper_states(env: AnyEnv, states: Sequence[Sequence[State]]) -> None:
    """Let an env know what several others know together, and learn no more itself.

    `states` holds what `wrapper_states` returned for each of the others: those that collect, where this one evaluates.
    Raises CheckpointError if they are wrapped in another way.
    """
    wrappers = list(_stateful(env))
    for theirs in states:
        _check_same(wrappers, theirs)
    for index, wrapper in enumerate(wrappers):
        if callable(getattr(wrapper, "adopt", None)):
            wrapper.adopt([theirs[index]["state"] for theirs in states])


def _stateful(env: AnyEnv) -> Iterator[Any]:
    """Yield, from the outermost inwards, the wrappers and the env that have a state to save."""
    layer: Any = env
    while True:
        if callable(getattr(type(layer), "state_dict", None)):
            yield layer
        if not isinstance(layer, gymnasium.Wrapper):
            return
        layer = layer.env


def _check_same(wrappers: Sequence[Any], states: Sequence[State]) -> None:
    own, theirs = [type(each).__name__ for each in wrappers], [each["type"] for each in states]
    if own != theirs:
        raise CheckpointError(
            f"the saved states are of the wrappers {theirs}, this env has {own}; use the env.wrappers of the run that "
            "saved them."
        )
