"""Wrap environments as a config says."""

from __future__ import annotations

import difflib
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import gymnasium

# Importing them registers their short names.
from ding_like.envs.wrappers import (  # noqa: F401
    actions,
    atari,
    frames,
    normalization,
    record_gif,
    returns,
    standard,
    suites,
    text,
)
from ding_like.envs.wrappers.state import adopt_wrapper_states, load_wrapper_states, wrapper_states
from ding_like.errors import ConfigError, DingError
from ding_like.utils.registries import ENV_WRAPPER_REGISTRY

__all__ = ["adopt_wrapper_states", "find_wrapper", "load_wrapper_states", "wrap", "wrapper_states"]

logger = logging.getLogger(__name__)

AnyEnv = gymnasium.Env[Any, Any]  # what an env observes and takes differs from env to env


def wrap(env: AnyEnv, wrappers: Iterable[Mapping[str, Any] | str]) -> AnyEnv:
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
            raise  # it says what is wrong
        except (TypeError, ValueError, gymnasium.error.Error) as error:
            raise ConfigError(
                f"env.wrappers: {name} cannot be made with {kwargs}: {error}. It takes {inspect.signature(make)}, the "
                "first of which must be the env to wrap."
            ) from error
    return env


def _check_repeated(wrappers: Sequence[Any]) -> None:
    """Refuse an entry that stands twice in a row, and warn once of a wrapper that stands twice otherwise."""
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


def find_wrapper(name: Any) -> Callable[..., AnyEnv]:
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
