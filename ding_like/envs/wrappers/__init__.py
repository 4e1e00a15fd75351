"""Wrappers around environments, as a config names them, and their saved state.

A wrapper, or an env, with such a memory has `state_dict()` and `load_state_dict(state)`. One whose memory can be joined
with that of others has `adopt(states)` too: it takes over what they know together and learns no more, as evaluations
need it.
"""

from __future__ import annotations

import difflib
import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import gymnasium

from ding_like.envs.spaces import AnyEnv

# Importing them registers their short names.
from ding_like.envs.wrappers import common, pictures  # noqa: F401
from ding_like.errors import CheckpointError, ConfigError, DingError
from ding_like.types import Config, State
from ding_like.utils.registries import ENV_WRAPPER_REGISTRY

__all__ = ["adopt_wrapper_states", "find_wrapper", "load_wrapper_states", "wrap", "wrapper_states"]

logger = logging.getLogger(__name__)


def wrap(env: AnyEnv, wrappers: Iterable[Config | str]) -> AnyEnv:
    """Return `env` inside the wrappers, the first one innermost.

    Each is a dict of `type`, a registered name or the name of a class in `gymnasium.wrappers`, and the keyword
    arguments of its constructor; without arguments, the name alone.
    Raises ConfigError for an unknown type, for arguments that it does not take, and for one entry twice in a row.
    """
    wrappers = list(wrappers)
    _check_repeated(wrappers)
    for spec in wrappers:
        if not isinstance(spec, (str, Mapping)):
            raise ConfigError(f"env.wrappers: each entry is a wrapper's name or a dict with its 'type', got {spec!r}.")
        kwargs = {"type": spec} if isinstance(spec, str) else dict(spec)
        name = kwargs.pop("type", None)
        make = find_wrapper(name)
        try:
            env = make(env, **kwargs)
        except DingError:
            raise  # its message names the fault
        except (TypeError, ValueError, gymnasium.error.Error) as error:
            raise ConfigError(
                f"env.wrappers: {name} cannot be made with {kwargs}: {error}. It takes {inspect.signature(make)}, the "
                "first of which must be the env to wrap."
            ) from error
    return env


def _check_repeated(wrappers: Sequence[Any]) -> None:
    """Refuse an entry that is listed twice in a row, and warn once of a wrapper that is listed twice otherwise."""
    entries = [{"type": each} if isinstance(each, str) else each for each in wrappers]
    types = [each.get("type") if isinstance(each, Mapping) else None for each in entries]
    names = [ENV_WRAPPER_REGISTRY.canonical(each) if isinstance(each, str) else "" for each in types]
    for (entry, following), name in zip(pairwise(entries), names, strict=False):
        if entry == following and name and ":" not in name:  # one of the user's own may be meant to
            raise ConfigError(f"env.wrappers has {entry!r} twice in a row: leave one out.")
    for name in sorted({each for each in names if each and names.count(each) > 1} - _told):
        _told.add(name)
        logger.warning("env.wrappers has '%s' %d times, and all are applied: leave one out", name, names.count(name))


_told: set[str] = set()


def find_wrapper(name: object) -> Callable[..., AnyEnv]:
    """Return what `type` of a wrapper names, in our registry or in gymnasium. Raises ConfigError if it is unknown."""
    if not isinstance(name, str) or not name:
        raise ConfigError(f"env.wrappers: each entry is a dict with a 'type', got type {name!r}.")
    if ":" in name or name in ENV_WRAPPER_REGISTRY:
        found: Callable[..., AnyEnv] = ENV_WRAPPER_REGISTRY.get(name)
        return found
    known = [each for each in gymnasium.wrappers.__all__ if each != "vector"]
    if name not in known:
        close = difflib.get_close_matches(name, [*known, *ENV_WRAPPER_REGISTRY.names()], n=3)
        hint = f"did you mean {' or '.join(repr(c) for c in close)}?" if close else f"known: {', '.join(known)}"
        raise ConfigError(
            f"env.wrappers: unknown wrapper '{name}'; {hint}\n  a wrapper of your own: type='my_module:MyWrapper', or "
            f"@ENV_WRAPPER_REGISTRY.register('{name}') above it and create_config.env.import_names=['my_module']"
        )
    # Only the one that is asked for: some of them need packages that are seldom installed.
    found = getattr(gymnasium.wrappers, name)
    return found


def wrapper_states(env: AnyEnv) -> list[State]:
    """Return the state of every wrapper that has one, the outermost first; empty where none has a state."""
    return [{"type": type(each).__name__, "state": each.state_dict()} for each in stateful_layers(env)]


def load_wrapper_states(env: AnyEnv, states: Sequence[State]) -> None:
    """Give the wrappers of an env the states that `wrapper_states` returned for an env like it.

    Raises CheckpointError if the env is wrapped in another way.
    """
    wrappers = list(stateful_layers(env))
    _check_same(wrappers, states)
    for wrapper, saved in zip(wrappers, states, strict=True):
        wrapper.load_state_dict(saved["state"])


def adopt_wrapper_states(env: AnyEnv, states: Sequence[Sequence[State]]) -> None:
    """Give an env the joint statistics of several others, and freeze them.

    `states` holds what `wrapper_states` returned for each of the others: those that collect, where this one evaluates.
    Raises CheckpointError if they are wrapped in another way.
    """
    wrappers = list(stateful_layers(env))
    for theirs in states:
        _check_same(wrappers, theirs)
    for index, wrapper in enumerate(wrappers):
        if callable(getattr(wrapper, "adopt", None)):
            wrapper.adopt([theirs[index]["state"] for theirs in states])


def stateful_layers(env: AnyEnv) -> Iterator[Any]:
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
