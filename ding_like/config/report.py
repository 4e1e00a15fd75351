"""Turn the faults of a config into one error that tells where each is and what to write instead."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ding_like.config.legacy import OTHER_NAMES
from ding_like.config.literal import literal
from ding_like.config.locate import find_lines
from ding_like.config.tree import get_path, leaves
from ding_like.errors import ConfigError

_MAX_LISTED = 12  # keys that a message lists before it says how many more there are
_MISSING = object()


class Fault(NamedTuple):
    """Name a place in a config and what is wrong there."""

    path: str
    message: str
    # It is all that is said, as the others may follow from it.
    is_decisive: bool = False
    # The key changes nothing: a config of DI-engine may carry it, and it is named once.
    is_harmless: bool = False


class NoEffect(NamedTuple):
    """Be what a class's `check_config` yields of a key that changes nothing: a harmless fault."""

    path: str
    message: str


def config_error(faults: Iterable[Fault], source: str, overrides: Mapping[str, str]) -> ConfigError:
    """Return one error with all faults; `overrides` maps a path to the argument that set it.

    Where `source` is a Python file, each fault gets the line on which its key stands.
    """
    faults = list(dict.fromkeys(faults))
    faults = [fault for fault in faults if fault.is_decisive] or faults
    lines = find_lines(source) if os.path.isfile(source) else {}
    width = max(len(fault.path) for fault in faults)
    rows = [f"  {fault.path:<{width}}   {_message(fault, overrides, lines, width)}" for fault in faults]
    count = "1 problem" if len(faults) == 1 else f"{len(faults)} problems"
    return ConfigError(f"{count} in {os.path.basename(source)}\n" + "\n".join(rows))


def suggestion(key: str, known: Mapping[str, Any], tree: Mapping[str, Any]) -> str:
    """Return what may have been meant by an unknown key.

    That is a key with another name in other libraries, a close key of its section, or that key elsewhere in `tree`.
    """
    found = [(path, get_path(tree, path, _MISSING)) for path in OTHER_NAMES.get(key, ())]
    if meant := [_key(path, value) for path, value in found if value is not _MISSING]:
        return f"did you mean {' or '.join(meant)}?"
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.6 if len(key) > 3 else 0.8)
    if close:
        return f"did you mean {_key(close[0], known[close[0]])}?"
    elsewhere = [(path, value) for path, value in leaves(tree) if path.rpartition(".")[2] == key]
    if elsewhere:
        return f"did you mean {_key(*elsewhere[0])}?"
    return f"known here: {_listed(known)}" if known else "this section takes no keys"


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more


def _key(name: str, default: object) -> str:
    return f"'{name}' (a section)" if isinstance(default, Mapping) else f"'{name}' (default {literal(default)})"


def _message(fault: Fault, overrides: Mapping[str, str], lines: Mapping[str, int], width: int) -> str:
    first, *rest = fault.message.split("\n")
    indented = "".join(f"\n{' ' * (width + 5)}{line}" for line in rest)
    return f"{first}{_origin(fault.path, overrides, lines)}{indented}"


def _origin(path: str, overrides: Mapping[str, str], lines: Mapping[str, int]) -> str:
    for set_path, override in overrides.items():
        if path == set_path or path.startswith(f"{set_path}."):
            return f" (override {override})"
    return f" (line {lines[path]})" if path in lines else ""
