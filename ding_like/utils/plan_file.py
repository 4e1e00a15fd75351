"""Keep what is to be run in a JSON file that says its format, so that another start goes on with it."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

from ding_like.errors import ConfigError
from ding_like.utils.files import atomic_write

T = TypeVar("T")


def save_plan(path: Path, plan: Any, *, version: int) -> None:  # Any: a dataclass
    """Write the fields of a dataclass and the version of their format."""
    with atomic_write(path) as file:
        file.write(json.dumps({"format": version, **asdict(plan)}, indent=2).encode())


def load_plan(path: Path, cls: type[T], *, version: int, still: str) -> T | None:
    """Return what `save_plan` wrote of a dataclass, lists as tuples; None where there is no file.

    Raises ConfigError for a file that is damaged, after which is said what can `still` be done, or of another version.
    """
    if not path.is_file():
        return None
    try:
        said: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found = said.pop("format")
        if found == version:
            for field in fields(cls):  # type: ignore[arg-type]  # a dataclass
                if str(field.type).startswith("tuple["):
                    said[field.name] = _as_tuple(said[field.name], int if field.type == "tuple[int, ...]" else str)
            return cls(**said)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is damaged ({error}); {still}") from error
    raise ConfigError(f"{path} is of format {found!r}, this version of ding_like reads format {version}.")


def _as_tuple(value: Any, kind: type[Any]) -> tuple[Any, ...]:
    if not isinstance(value, list) or not all(isinstance(each, kind) for each in value):
        raise TypeError(f"{value!r} is no list of {kind.__name__}")
    return tuple(value)
