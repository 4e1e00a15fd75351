"""Read fields of JSON that came from elsewhere: each is what it has to be, or CommError says what it is instead.

Nothing here imports torch: the inference proxy is to start in a moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from ding_like.comm.channels import Version
from ding_like.errors import CommError

MAX_NUMBER = 2**53  # JSON's numbers hold all whole numbers below
MAX_TEXT = 4_000  # characters

Head = Mapping[str, Any]  # Any: of JSON


def is_count(value: object) -> TypeGuard[int]:
    """Tell whether a value is a whole number, 0 or more."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_NUMBER


def short(value: object) -> str:
    """Return a value as an error shows it, cut to 80 characters."""
    return repr(value)[:80]


def count_of(head: Head, key: str) -> int:
    """Return a whole number, 0 or more, in a head."""
    value = head.get(key)
    if not is_count(value):
        raise CommError(f"'{key}' is {short(value)}; expected a whole number, 0 or more.")
    return value


def text_of(head: Head, key: str) -> str:
    """Return a text in a head, cut to MAX_TEXT characters."""
    value = head.get(key)
    if not isinstance(value, str):
        raise CommError(f"'{key}' is {short(value)}; expected a text.")
    return value[:MAX_TEXT]


def name_of(head: Head, key: str, *, most: int, may_be_empty: bool = False) -> str:
    """Return a name of up to `most` characters in a head."""
    value = head.get(key)
    if not isinstance(value, str) or len(value) > most or not (value or may_be_empty):
        raise CommError(f"'{key}' is {short(value)}; expected up to {most} characters.")
    return value


def plain_of(head: Head, key: str) -> dict[str, Any]:
    """Return a JSON object in a head."""
    value = head.get(key)
    if not isinstance(value, dict):
        raise CommError(f"'{key}' is {short(value)}; expected a JSON object.")
    return value


def is_version(value: object) -> TypeGuard[Sequence[int]]:
    """Tell whether a value is [attempt, update], the two counts that a `Version` has."""
    return isinstance(value, (list, tuple)) and len(value) == 2 and all(map(is_count, value))


def version_of(head: Head, key: str) -> Version:
    """Return the version of weights in a head."""
    value = head.get(key)
    if not is_version(value):
        raise CommError(f"'{key}' is {short(value)}; expected [attempt, update], two counts.")
    return Version(*value)
