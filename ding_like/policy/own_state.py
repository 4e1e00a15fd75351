"""Save what a policy of the user's own holds beside the model, and load it back exactly.

A shipped policy says itself what is saved with a run (`_state_dict_learn`), and so may any other. For a policy that
does not, or that adds attributes to a shipped one, its own attributes are found: tensors, modules, optimizers,
schedules, random generators, arrays and plain values, also inside lists, dicts and objects of the user's classes. Data
that are what they were when the policy was made are left out, so that a checkpoint brings no settings of another config
along.
"""

from __future__ import annotations

import ast
import inspect
import logging
import textwrap
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import TYPE_CHECKING

from ding_like.policy.own_values import Described, Describer, Entry, restore, same
from ding_like.types import State

if TYPE_CHECKING:
    from ding_like.policy.base import Policy

logger = logging.getLogger(__name__)

KEY = "own"  # in the state of the learn mode
# Of each instance: actors hold nothing that training goes on from, and the rest is this module's.
_INITIAL, _TOLD = "_initial_own", "_told_own"
_NOT_OWN = frozenset(("_collect_actor", "_eval_actor", _INITIAL, _TOLD))


def saver(policy: Policy) -> Callable[[], State]:
    """Return `save` of a policy, after a look at what it holds before training; what cannot be saved is said once."""
    _note_beginning(policy)
    # Partial and not lambda: a deep copy of the mode must save the copy.
    return partial(save, policy)


def _note_beginning(policy: Policy) -> None:
    if _INITIAL in vars(policy) or not _is_needed(policy):
        return
    initial: dict[str, Entry | None] = {}
    setattr(policy, _INITIAL, initial)
    describer = _describer(policy, copies=True)
    for name, described in _own(policy, describer):
        initial[name] = described.entry if described.is_small else None
    _say(policy, describer)


def save(policy: Policy) -> State:
    """Return the state of the learn mode: what the policy says, and what it holds of its own."""
    state = policy._state_dict_learn()
    if not _is_needed(policy):
        return state
    describer = _describer(policy, copies=False)
    entries: dict[str, Entry] = {}
    initial = vars(policy).get(_INITIAL, {})
    for name, described in _own(policy, describer):
        if described.needs_object and name not in initial:
            describer.faults.append((name, "an object that was made after the policy: make it in _init_learn"))
        elif not same(described.entry, initial.get(name)):
            entries[name] = described.entry
    _say(policy, describer)
    return {**state, KEY: entries}


def load(policy: Policy, state: State) -> None:
    """Take over what `save` returned; a state without the policy's own attributes leaves them as they are.

    Raises CheckpointError for what does not fit.
    """
    given = {name: part for name, part in state.items() if name != KEY}
    policy._load_state_dict_learn(given)
    entries = state.get(KEY)
    if entries is None or not _is_needed(policy):
        return
    for name, entry in {**vars(policy).get(_INITIAL, {}), **entries}.items():
        if entry is None:
            continue
        now = getattr(policy, name, None)
        then = restore(entry, now, where=name)
        if then is not now:
            setattr(policy, name, then)


def _is_needed(policy: Policy) -> bool:
    """Tell whether a policy has attributes of its own that nobody says how to save."""
    cls = type(policy)
    says = next(each for each in cls.__mro__ if "_state_dict_learn" in vars(each))
    return "learn" in policy._enabled and not _is_shipped(cls) and _is_shipped(says)


def _is_shipped(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "ding_like"


def _own(policy: Policy, describer: Describer) -> Iterator[tuple[str, Described]]:
    """Yield the attributes that the user's classes add, with what is saved of each."""
    others = _NOT_OWN.union(*(_names_set_by(cls) for cls in type(policy).__mro__ if _is_shipped(cls)))
    for name, value in vars(policy).items():
        if name not in others:
            described = describer.describe(value, name)
            if described is not None:
                yield name, described


def _describer(policy: Policy, *, copies: bool) -> Describer:
    """Return what describes values: all but what is the model's."""
    describer = Describer(copies=copies, owner=policy)
    describer.leave_out(policy._model)
    return describer


def _say(policy: Policy, describer: Describer) -> None:
    """Name what is not saved, each once."""
    told: set[str] = vars(policy).setdefault(_TOLD, set())
    for place, why in describer.faults:
        if place in told:
            continue
        told.add(place)
        logger.warning(
            "%s.%s (%s) is not saved with the run: a resume begins it anew. Give it state_dict() and "
            "load_state_dict(), or the policy _state_dict_learn() and _load_state_dict_learn().",
            type(policy).__name__,
            place,
            why,
        )


@cache
def _names_set_by(cls: type) -> frozenset[str]:
    """Return the names of a class's own attributes, and of those that its code sets on `self`."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError):  # no source: what is its own is saved twice, which does no harm
        return frozenset(vars(cls))
    return frozenset(vars(cls)).union(
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if isinstance(node.value, ast.Name) and node.value.id == "self"
    )
