"""Check of what a user wrote against the schema, which collects every fault."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from typing import Any

from easydict import EasyDict

from ding_like.config import di_engine
from ding_like.config.legacy import ELSEWHERE, LEGACY_KEYS, NOT_HERE, RENAMED_KEYS, reason_of
from ding_like.config.objects import is_object, is_object_text, object_text, with_objects
from ding_like.config.parts import ENV_TEMPLATE
from ding_like.config.report import Fault, NoEffect, suggestion
from ding_like.config.schema import Schema
from ding_like.config.tree import Tree, get_path, items, join, literal, set_path
from ding_like.errors import ConfigError
from ding_like.types import Config

# An EasyDict shows its keys as attributes: these would hide its methods (a key `get` breaks copy.deepcopy).
_RESERVED = frozenset(dir(EasyDict))
_BUFFER = "policy.other.replay_buffer"
_LEAVES = (bool, int, float, complex, str, bytes, type(None))


class _MisfitError(Exception):
    """Value that its key does not take; the message gives the reason."""


class Checker:
    """Comparison of a config with a schema; `faults` and `ignored` are what it found."""

    def __init__(self, schema: Schema, raw: Mapping[str, str], *, reserved: Collection[str] = _RESERVED) -> None:
        """Take the schema and, by path, the text of the values that came from the command line.

        Keys that are `reserved` are refused in every section.
        """
        self.faults: list[Fault] = []
        self.ignored = dict(schema.dropped)  # path of a key that has no use here -> why
        self._schema = schema
        self._raw = raw
        self._reserved = reserved
        self._renamed: Tree = {}  # path of a key that has another name here -> its value

    def check(self, user: Config) -> Tree:
        """Return the values that are in order, as plain Python and of the types that the defaults have."""
        clean = self._section(user, self._schema.defaults, "")
        for path, value in self._renamed.items():
            try:
                self._move(path, value, clean)
            except _MisfitError as misfit:
                self.faults.append(Fault(path, str(misfit)))
        return clean

    def _move(self, path: str, value: Any, clean: Tree) -> None:
        """Put the value of a key that has another name here where it belongs."""
        target = RENAMED_KEYS[path]
        fitted = self._known(value, get_path(self._schema.defaults, target), target)
        given = get_path(clean, target, fitted)
        if given != fitted:
            if not self._schema.is_di_engine or path in self._raw or target in self._raw:
                raise _MisfitError(f"is DI-engine's name of {target}, which is set to {literal(given)}; give one")
            if di_engine.read_place(path, self._schema.classes.get("policy.type")):
                self.ignored[target] = f"DI-engine reads {path}, which is {literal(fitted)}"
            else:
                self.ignored[path] = f"DI-engine reads {target}, which is {literal(given)}"
                fitted = given
        set_path(clean, target, fitted)

    def _section(self, user: Config, defaults: Tree, path: str) -> Tree:
        clean: Tree = {}
        for key, value in items(user):
            here = join(path, str(key))
            if self._schema.is_opaque(here):
                continue
            try:
                _check_key(key, self._reserved)
                if key in defaults or here in self._schema.types:
                    clean[key] = self._known(value, defaults.get(key), here)
                elif here in self._schema.without_effect:
                    self.ignored[here] = self._schema.without_effect[here]
                elif self._schema.is_free(path) and not _is_slip(path, key):
                    clean[key] = self._section(value, {}, here) if isinstance(value, Mapping) else _plain(value, here)
                elif here in RENAMED_KEYS and self._schema.knows(RENAMED_KEYS[here]):
                    self._renamed[here] = value
                else:
                    self._unknown(key, defaults, path)
            except _MisfitError as misfit:
                self.faults.append(Fault(here, str(misfit)))
        return clean

    def _known(self, value: Any, default: Any, path: str) -> Any:
        types = self._schema.types.get(path, ())
        if isinstance(default, dict) and (isinstance(value, Mapping) or not types):
            if not isinstance(value, Mapping):
                meant = self._meant(value, default, path)
                raise _MisfitError(f"expected a section, dict(...), got {_described(value)}{meant}")
            return self._section(value, default, path)
        if default is not None and not types:
            types = (type(default),)
        if value is None and (default is None or any(path in paths for paths in self._schema.alternatives)):
            return None
        if types == (str,) and path in self._raw and not isinstance(value, str):
            return self._raw[path]
        if isinstance(value, float) and types == (int,) and not value.is_integer() and path.startswith("policy."):
            raise _MisfitError(f"expected int, got float {value!r}: `ding explain {path}` says what it counts")
        return _fitted(_plain(value, path), types)

    def _meant(self, value: Any, default: Tree, path: str) -> str:
        """Return the key of a section that a text in its place may be meant for: the class or env that it names."""
        named = "env_id" if "env_id" in default else "type"
        is_known = named in default or f"{path}.type" in self._schema.classes
        if not isinstance(value, str) or not is_known:
            return ""
        return f"; did you mean {path}.{named}={value}{f' (or -p {value})' if path == 'policy' else ''}?"

    def _unknown(self, key: str, defaults: Tree, path: str) -> None:
        here = join(path, key)
        reason = reason_of(LEGACY_KEYS, here)
        if reason is not None:
            self.ignored[here] = reason
            return
        if missing := reason_of(NOT_HERE, here):
            self.faults.append(Fault(here, missing, is_decisive=True))
            return
        if elsewhere := reason_of(ELSEWHERE, here):
            raise _MisfitError(elsewhere)
        typed = {name.rpartition(".")[2]: None for name in self._schema.types if name.rpartition(".")[0] == path}
        raise _MisfitError(f"unknown key; {suggestion(key, {**typed, **defaults}, self._schema.defaults)}")


def contradictions(schema: Schema, user: Tree, merged: Tree, *, builds_model: bool = False) -> Iterator[Fault]:
    """Yield what cannot go together; alternatives to what `user` chose become None in `merged`.

    With `builds_model` the policy builds its own model, which must take the settings of `policy.model`.
    """
    for paths in schema.alternatives:
        chosen = [path for path in paths if get_path(user, path) is not None]
        if len(chosen) > 1:
            section = chosen[0].rpartition(".")[0]
            names = " and ".join(path.removeprefix(f"{section}.") for path in chosen)
            yield Fault(section, f"{names} are both set; give one")
        for path in paths if chosen else ():
            if path not in chosen:
                set_path(merged, path, None)
    out_of_bounds = {fault.path: fault for fault in _out_of_bounds(schema, merged)}
    yield from out_of_bounds.values()
    of_model = [("policy", schema.check_model)] if builds_model and schema.check_model is not None else []
    for path, check in [*schema.checks, *of_model]:
        section = EasyDict(deepcopy(get_path(merged, path)))
        for found in check(section):
            key, message = found
            if join(path, key) not in out_of_bounds:  # which has a fault already
                yield Fault(join(path, key), message, is_harmless=isinstance(found, NoEffect))
    if not schema.is_opaque("env"):
        episodes, envs = merged["env"]["n_evaluator_episode"], merged["env"]["evaluator_env_num"]
        if episodes < envs:
            text = f"{episodes} episodes for evaluator_env_num={envs} envs; give at least one episode an env"
            yield Fault("env.n_evaluator_episode", text)
    yield from _small_buffer(merged)


def _out_of_bounds(schema: Schema, merged: Tree) -> Iterator[Fault]:
    """Yield the numbers that their classes do not take."""
    for path, bounds in schema.bounds.items():
        value = get_path(merged, path)
        if not bounds.hold(value):
            default = get_path(schema.defaults, path)
            usual = "" if default is None or default == value else f" (default {literal(default)})"
            yield Fault(path, f"is {literal(value)}; give {bounds}{usual}")


def _small_buffer(merged: Tree) -> Iterator[Fault]:
    """Yield the fault of a replay buffer that never holds a batch."""
    size, batch_size = get_path(merged, f"{_BUFFER}.replay_buffer_size"), get_path(merged, "policy.learn.batch_size")
    counts_rows = get_path(merged, f"{_BUFFER}.size_unit", "rows") == "rows"
    is_used = counts_rows and get_path(merged, "policy.on_policy") is False
    if is_used and isinstance(size, int) and isinstance(batch_size, int) and 1 <= size < batch_size:
        text = f"is {size}, fewer than the {batch_size} of policy.learn.batch_size: no batch could ever be sampled"
        yield Fault(f"{_BUFFER}.replay_buffer_size", f"{text}; give {batch_size} or more")


def _check_key(key: object, reserved: Collection[str] = _RESERVED) -> None:
    if not isinstance(key, str) or not key:
        raise _MisfitError(f"a key must be a non-empty str, got {_described(key)}")
    if key in reserved:
        raise _MisfitError("this key would hide the dict method of that name; rename it")


def _is_slip(path: str, key: str) -> bool:
    """Return whether a key of an env that takes any key is a misspelt one of those that every env has."""
    return path == "env" and bool(difflib.get_close_matches(key, ENV_TEMPLATE, n=1, cutoff=0.85))


def _fitted(value: Any, types: tuple[type, ...]) -> Any:
    """Return the value as one of the types; no types mean that anything goes."""
    kind = type(value)
    if not types or kind in types:
        return value
    if kind is float and int in types and value.is_integer():  # 1e5 is how people write 100000
        return int(value)
    if kind is int and float in types:
        return float(value)
    if kind in (list, tuple) and (list in types or tuple in types):
        return value
    hint = f"; a list is written [{value!r}]" if list in types and kind in (str, int, float) else ""
    raise _MisfitError(f"expected {' or '.join(type_.__name__ for type_ in types)}, got {_described(value)}{hint}")


def _plain(value: Any, path: str = "") -> Any:
    """Return a value as plain Python, which can be saved and read back; below `policy.model` classes and layers too."""
    if isinstance(value, Mapping):
        for key in value:
            _check_key(key)
        return {key: _plain(item, path) for key, item in items(value)}
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()  # a numpy scalar
    if isinstance(value, list):
        return [_plain(item, path) for item in value]
    if isinstance(value, tuple):
        return tuple(_plain(item, path) for item in value)
    is_of_model = path.startswith("policy.model.")
    if is_of_model and (is_object(value) or is_object_text(value)):
        try:
            text = value if isinstance(value, str) else object_text(value)
            with_objects({"value": text})  # raises here, not when the model is built
            return text
        except ConfigError as error:
            raise _MisfitError(str(error).removesuffix(".")) from error
    if type(value) in _LEAVES:
        return value
    hint = "; only policy.model takes classes and layers" if is_object(value) else ""
    if inspect.isroutine(value) and path.rpartition(".")[2].startswith("learning_rate"):
        hint = "; a rate that falls is a number here, with policy.learn.schedule: see docs/learning_rate.md"
    raise _MisfitError(f"expected numbers, text, lists and dicts, which can be saved; got {_described(value)}{hint}")


def _described(value: object) -> str:
    if value is None:
        return "None"
    text = " ".join(repr(value).split())
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
