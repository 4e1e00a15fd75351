"""Read `path.to.key=value` arguments of the command line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from ding_like.config.parts import PARTS
from ding_like.config.report import Fault
from ding_like.config.tree import Tree, deep_merge, set_path
from ding_like.errors import ConfigError

# Where main_config shows a class: where create_config names it.
NAMED_IN_CREATE = {f"{part.path}.type": f"{part.name}.type" for part in PARTS}

CREATE = "create"  # `create.policy.type=dqn` addresses create_config, anything else main_config

_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}
# A text in quotes, which is kept, or a word without.
_BARE_WORD = re.compile(r"'[^']*'|\"[^\"]*\"|(?<![\w.])[A-Za-z_][\w./-]*")
_FLOAT_WORD = re.compile(r"[+-]?(inf|nan)", re.IGNORECASE)


class Override(NamedTuple):
    """One `path.to.key=value` argument."""

    text: str  # as it was typed
    path: str  # as faults name it: "policy.learn.batch_size", "create_config.policy.type"
    raw: str  # the text right of "="
    value: Any
    replaced: str = ""  # the text of an earlier argument that gives the same key another value


def parse_value(raw: str) -> Any:
    """Return a Python literal, true/false/null, inf/nan, or else the text itself.

    In a list or dict quotes may be left out around words: a shell takes them away. [{type: obs_norm}]
    """
    text = raw.strip()
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _FLOAT_WORD.fullmatch(text):
        return float(text)
    is_literal, value = _literal(text)
    if not is_literal and text[:1] in ("[", "{", "("):
        is_literal, value = _literal(_BARE_WORD.sub(_quoted_word, text))
    return value if is_literal else raw


def _literal(text: str) -> tuple[bool, Any]:
    """Return (whether a text is a literal of Python, its value)."""
    try:
        return True, ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):  # all that literal_eval raises
        return False, None


def _quoted_word(match: re.Match[str]) -> str:
    word = match[0]
    if word[0] in "'\"" or word in ("True", "False", "None"):
        return word
    return str(_WORDS[word.lower()]) if word.lower() in _WORDS else repr(word)


def check_overrides(texts: object) -> None:
    """Raise ConfigError for a text in place of a list of texts."""
    if isinstance(texts, str):
        raise ConfigError(f"overrides is the text {texts!r}; give a list of texts: overrides=[{texts!r}].")


def apply_overrides(texts: Iterable[str], main: Tree, create: Tree, faults: list[Fault]) -> dict[str, Override]:
    """Put every override into `main` or `create`, and return them by path; what cannot be read goes to `faults`."""
    check_overrides(texts)
    applied: dict[str, Override] = {}
    for text in texts:
        override = _parse(text, faults)
        if override is None:
            continue
        earlier = applied.get(override.path)
        if earlier is not None:
            is_same = earlier.value == override.value
            override = override._replace(replaced=earlier.replaced if is_same else earlier.text)
        applied[override.path] = override
        prefix = f"{CREATE}_config."
        if override.path.startswith(prefix):
            _change(create, override.path.removeprefix(prefix), override.value)
            continue
        _change(main, override.path, override.value)
        if override.path in NAMED_IN_CREATE:  # wherever a class is named, the override wins
            _change(create, NAMED_IN_CREATE[override.path], override.value)
    return applied


def take_overrides(
    texts: Iterable[str], tree: Tree, faults: list[Fault], *, section: str
) -> tuple[list[str], dict[str, Override]]:
    """Put the overrides of one section into `tree`, which holds it; return (the others' texts, those by path)."""
    others: list[str] = []
    applied: dict[str, Override] = {}
    for text in texts:
        if text.partition("=")[0].partition(".")[0].strip() != section:
            others.append(text)
        elif (override := _parse(text, faults)) is not None:
            applied[override.path] = override
            _change(tree, override.path, override.value)
    return others, applied


def _change(tree: Tree, path: str, value: Any) -> None:
    change: Tree = {}
    set_path(change, path, value)
    merged = deep_merge(tree, change)
    tree.clear()
    tree.update(merged)


def _parse(text: str, faults: list[Fault]) -> Override | None:
    path, equals, raw = text.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys):
        faults.append(
            Fault(text, "is not an override; write path.to.key=value, for example policy.learn.batch_size=128")
        )
        return None
    if "/" in keys[0]:
        dotted = path.strip("/ ").replace("/", ".")
        faults.append(Fault(text, f"has slashes; a key is written with dots: {dotted}={raw}"))
        return None
    if keys[0] == "main_config" and len(keys) > 1:
        faults.append(Fault(text, f"names main_config, which every key is of; write {'.'.join(keys[1:])}={raw}"))
        return None
    if keys[0] == CREATE:
        keys[0] = f"{CREATE}_config"
    return Override(text, ".".join(keys), raw, parse_value(raw))
