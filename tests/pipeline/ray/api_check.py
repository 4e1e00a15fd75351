"""Compare our classes of schemes, and instances of them, with the tables of PyTorchRL's API pages in this folder."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter
from pathlib import Path
from typing import Any

import torch

from tests.api.test_worker_api import compare_params, same_default

FOLDER = Path(__file__).parent
MAKES_NOTHING = "<lambda>"  # the default of a factory that makes nothing

# What an attribute is to be, by the page's type; one that is not here may be anything but None.
KINDS: dict[str, Any] = {
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
    "dict": dict,
    "List": list,
    "python class": type,
    "torch.device": torch.device,
    "torch.tensor": (torch.Tensor, dict),
}


def read_table(name: str) -> dict[str, Any]:
    """Return a table by its file's name."""
    table: dict[str, Any] = json.loads(Path(FOLDER, name).read_text("utf-8"))
    return table


def compare_class(cls: type, entry: Mapping[str, Any]) -> Iterator[str]:
    """Say in what a class's bases, constructor and methods differ from the page's."""
    for base in entry["bases"]:
        if base not in {each.__name__ for each in cls.__mro__}:
            yield f"{cls.__name__} is no {base}"
    yield from compare_call(cls.__name__, entry["params"], cls)
    for name, wanted in entry["members"].items():
        where, ours = f"{cls.__name__}.{name}", inspect.getattr_static(cls, name, None)
        if ours is None:
            yield f"{where} is missing"
        elif "params" not in wanted:
            if not isinstance(ours, property):
                yield f"{where} is no property"
        else:
            if isinstance(ours, classmethod) != ("classmethod" in wanted.get("marks", [])):
                yield f"{where} is a classmethod, or not, against the page"
            yield from compare_call(where, wanted["params"], getattr(cls, name), skip_self=ours)


def compare_call(where: str, page: list[str], call: Callable[..., Any], *, skip_self: object = None) -> Iterator[str]:
    """Say in what the parameters of a call differ from the page's."""
    given = list(inspect.signature(call).parameters.values())
    if inspect.isfunction(skip_self):
        given = given[1:]
    defaults = dict(text.partition("=")[::2] for text in page)
    yield from compare_params(where, page, [_as_on_page(each, defaults.get(each.name, "")) for each in given])


def _as_on_page(parameter: Parameter, default: str) -> Parameter:
    """Return a parameter with the page's default where ours is as good: nothing changes it, or it makes nothing."""
    if not default or parameter.default is Parameter.empty or same_default(default, parameter.default):
        return parameter
    page, ours = ast.literal_eval(default), parameter.default
    is_equal = isinstance(ours, Mapping) and dict(ours) == page
    is_equal |= page == [] and ours == ()
    is_equal |= page == MAKES_NOTHING and callable(ours) and ours(0, 0, 0, "test") is None
    return parameter.replace(default=page) if is_equal else parameter


def compare_attributes(instance: object, entry: Mapping[str, Any]) -> Iterator[str]:
    """Say which of the page's attributes an instance lacks, or has as something else."""
    for name, kind in entry["attributes"].items():
        value = getattr(instance, name, None)
        where = f"{type(instance).__name__}.{name}"
        if value is None:
            yield f"{where} is missing"
        elif kind in KINDS and (not isinstance(value, KINDS[kind]) or (kind == "int" and isinstance(value, bool))):
            yield f"{where} is {value!r}, the page has {kind}"
