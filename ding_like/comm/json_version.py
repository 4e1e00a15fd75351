"""Read the version of weights that came as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from ding_like.comm.channels import Version
from ding_like.comm.json_fields import Head, is_count, short
from ding_like.errors import CommError


def is_version(value: object) -> TypeGuard[Sequence[int]]:
    """Tell whether a value is [attempt, update], the two counts that a `Version` has."""
    return isinstance(value, (list, tuple)) and len(value) == 2 and all(map(is_count, value))


def version_of(head: Head, key: str) -> Version:
    """Return the version of weights in a head."""
    value = head.get(key)
    if not is_version(value):
        raise CommError(f"'{key}' is {short(value)}; expected [attempt, update], two counts.")
    return Version(*value)
