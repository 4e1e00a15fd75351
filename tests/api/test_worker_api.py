"""`ding_like.worker` offers what the API page of `ding.worker` promises: worker_api.json, made by make_table.py."""

from __future__ import annotations

import abc
import ast
import inspect
import json
from collections.abc import Iterator, Sequence
from inspect import Parameter
from typing import Any

import ding_like.worker
from tests.api.make_table import TABLE

PAGE: dict[str, Any] = json.loads(TABLE.read_text("utf-8"))

# The page lists these as methods of the interface; the classes below it, and their users, have them as properties.
PROPERTIES = frozenset(("ISerialCollector.envstep", "BaseCommLearner.hooks4call"))


def test_classes_and_functions_are_as_on_the_page() -> None:
    faults = []
    for name, entry in PAGE["classes"].items():
        faults += compare_bases(name, entry["bases"])
        for member, wanted in entry["members"].items():
            faults += compare_member(getattr(ding_like.worker, name), f"{name}.{member}", wanted)
    for name, params in PAGE["functions"].items():
        function = inspect.signature(getattr(ding_like.worker, name))
        faults += compare_params(name, params, list(function.parameters.values()))

    assert not faults, "\n" + "\n".join(faults)


def compare_bases(name: str, bases: Sequence[str]) -> Iterator[str]:
    """Say which bases a class lacks: those that the page describes, and ABC; others are DI-engine's own affair."""
    ours = getattr(ding_like.worker, name)
    for base in bases:
        wanted = (
            abc.ABC if base == "ABC" else getattr(ding_like.worker, base, None) if base in PAGE["classes"] else object
        )
        if wanted is None or not issubclass(ours, wanted):
            yield f"{name} is no {base}"


def compare_member(owner: type, where: str, wanted: dict[str, Any]) -> Iterator[str]:
    """Say in what one method or property differs from the page."""
    name = where.rpartition(".")[2]
    ours = inspect.getattr_static(owner, name, None)
    marks = wanted.get("marks", [])
    if ours is None:
        yield f"{where} is missing"
    elif "property" in marks or where in PROPERTIES:
        if not isinstance(ours, property):
            yield f"{where} is no property"
        elif "writable" in marks and ours.fset is None:
            yield f"{where} cannot be set"
    else:
        yield from compare_method(owner, ours, where, wanted["params"], marks)


def compare_method(owner: Any, ours: Any, where: str, params: list[str], marks: list[str]) -> Iterator[str]:
    """Say in what one method differs from the page; `owner` is a class, Any for its abstract methods."""
    for mark, kind in (("classmethod", classmethod), ("staticmethod", staticmethod)):
        if (mark in marks) != isinstance(ours, kind):
            yield f"{where} is {'no' if mark in marks else 'a'} {mark}"
    name = where.rpartition(".")[2]
    if "abstractmethod" in marks and name not in owner.__abstractmethods__:
        yield f"{where} is not abstract"
    function = getattr(ours, "__func__", ours)
    given = list(inspect.signature(function).parameters.values())
    yield from compare_params(where, params, given if isinstance(ours, staticmethod) else given[1:])


def compare_params(where: str, page: Sequence[str], ours: Sequence[Parameter]) -> Iterator[str]:
    """Say in what parameters differ: ours may have more of them, at the end or by keyword, with defaults."""
    left = {parameter.name: parameter for parameter in ours}
    by_position = [parameter for parameter in ours if parameter.kind is Parameter.POSITIONAL_OR_KEYWORD]
    after_star = False
    for i, text in enumerate(page):
        name, _, default = text.partition("=")
        parameter = left.pop(name.lstrip("*"), None)
        if parameter is None:
            yield f"{where}: parameter {text} is missing"
        elif name.startswith("*"):
            after_star = True
            kind = Parameter.VAR_KEYWORD if name.startswith("**") else Parameter.VAR_POSITIONAL
            if parameter.kind is not kind:
                yield f"{where}: {parameter} should be {text}"
        else:
            if not after_star and (i >= len(by_position) or by_position[i].name != name):
                yield f"{where}: {name} cannot be given as positional argument {i + 1}"
            if not same_default(default, parameter.default):
                yield f"{where}: {name} has the default {parameter.default!r}, the page has {default or 'none'}"
    variable = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    for parameter in left.values():
        if parameter.default is Parameter.empty and parameter.kind not in variable:
            yield f"{where}: {parameter.name} is not on the page and has no default"


def same_default(page: str, ours: Any) -> bool:
    if not page:
        return ours is Parameter.empty
    wanted = ast.literal_eval(page)
    # The page's one mutable default, {}, is None here, which a caller cannot tell from it.
    return (type(ours) is type(wanted) and ours == wanted) or (wanted == {} and ours is None)


def test_comparison_finds_differences_and_lets_more_keywords_pass() -> None:
    def faults(page: list[str], ours: Any) -> list[str]:
        return list(compare_params("f", page, list(inspect.signature(ours).parameters.values())))

    assert faults(["a"], lambda: 0) == ["f: parameter a is missing"]
    assert "f: a cannot be given as positional argument 1" in faults(["a", "b"], lambda b, a: 0)
    assert faults(["a"], lambda *, a: 0) == ["f: a cannot be given as positional argument 1"]
    assert faults(["a=1"], lambda a=True: 0) == ["f: a has the default True, the page has 1"]
    assert faults(["a"], lambda a=1: 0) == ["f: a has the default 1, the page has none"]
    assert faults(["**kwargs"], lambda kwargs: 0)[0] == "f: kwargs should be **kwargs"
    assert faults(["a"], lambda a, b: 0) == ["f: b is not on the page and has no default"]
    assert faults(["a", "b=1"], lambda a, b=1, *, more=2: 0) == faults(["a={}"], lambda a=None: 0) == []
