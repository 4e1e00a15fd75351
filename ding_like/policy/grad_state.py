"""Keep versions of what a gradient depends on, so that what a receiver has already need not be sent again."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ding_like.errors import CheckpointError
from ding_like.types import State


class StateVersions:
    """Give out the named parts of a state that have changed since a version, as copies that stay as they are.

    A part counts as changed if its values differ from those given out last, whatever changed them: an update, a loaded
    checkpoint, a part's user. Comparing is cheap beside sending.
    """

    def __init__(self) -> None:
        # Numbers of another sender mean nothing here, so that its receivers are sent all.
        self._origin = uuid.uuid4().int >> 80
        self._number = 0
        self._parts: dict[str, tuple[int, State]] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> StateVersions:
        """Return one that has given out nothing yet: the copy's parts go their own way."""
        return StateVersions()

    def give(self, parts: Mapping[str, State], since: Mapping[str, int] | None = None) -> State:
        """Return `version`, `parts` that have changed since the version `since`, and `since` if it counted.

        `since` is the `version` of what the receiver loaded last; None: it has nothing.
        """
        changed = {
            name for name, part in parts.items() if name not in self._parts or not is_equal(self._parts[name][1], part)
        }
        if changed or not self._number:
            self._number += 1
        for name in changed:
            self._parts[name] = self._number, _copied(parts[name])
        known = 0 if since is None or since["origin"] != self._origin else since["number"]
        state: State = {
            "version": {"origin": self._origin, "number": self._number},
            "parts": {name: part for name, (number, part) in self._parts.items() if number > known},
        }
        return {**state, "since": dict(since)} if since is not None and known else state


def check_fits(state: Mapping[str, Any], held: Mapping[str, int] | None, names: set[str]) -> None:
    """Raise CheckpointError for a state that lacks parts which a receiver of the version `held` does not have."""
    given, since = set(state["parts"]), state.get("since")
    if given - names:
        raise CheckpointError(f"the gradient's state has parts {sorted(given - names)}, expected {sorted(names)}.")
    if since is None and given != names:
        raise CheckpointError(f"the gradient's state lacks the parts {sorted(names - given)}: ask for all of them.")
    if since is not None and dict(since) != held:
        raise CheckpointError(
            f"the gradient's state holds what has changed since version {dict(since)}, but version {held} was loaded "
            "last: ask with grad_state(since=...) for what has changed since that, or without it for all."
        )


def is_equal(one: Any, other: Any) -> bool:
    """Tell whether two nested states have equal values, bit by bit."""
    if isinstance(one, Mapping):
        return (
            isinstance(other, Mapping)
            and one.keys() == other.keys()
            and all(is_equal(value, other[name]) for name, value in one.items())
        )
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    return bool(one == other)


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _copied(each) for name, each in value.items()}
    return value.detach().clone() if isinstance(value, Tensor) else value
