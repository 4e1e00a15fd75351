"""State of a user's policy beside the model: what is saved with a run where the policy does not define it.

A shipped policy defines what is saved (`_state_dict_learn`), and so may any other. Where no class of the user's does,
these of its attributes are saved: whatever has `state_dict()` and `load_state_dict()` (modules, optimizers, schedules
of learning rates), generators of torch and numpy, and data that a checkpoint can hold: numbers, texts, tensors, arrays,
and lists, tuples and dicts of these. One warning names what else there is. Data that are what they were when the policy
was made are left out, so that a checkpoint brings no settings of another config along.
"""

from __future__ import annotations

import ast
import inspect
import logging
import textwrap
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import torch

from ding_like.errors import CheckpointError
from ding_like.model.flat_params import FlatParams
from ding_like.policy.sharing import copied, is_equal
from ding_like.types import PolicyLike, State
from ding_like.utils.checkpoint import check_model_state, encode_state
from ding_like.utils.log import one_time_warning
from ding_like.utils.seeding import rng_state, set_rng_state

logger = logging.getLogger(__name__)

KEY = "own"  # in the state of the learn mode
_INITIAL = "_initial_own"  # attribute with the policy's data before training
_NOT_OWN = frozenset(("_collect_actor", "_eval_actor", _INITIAL))  # actors hold nothing that training needs
_UNCHANGING = (torch.device, torch.dtype, np.dtype, logging.Logger, FlatParams)

# A policy is any subclass of Policy, and an attribute may be anything: hence Any.


def saver(policy: PolicyLike) -> Callable[[], State]:
    """Return `save` of a policy, after a look at what it holds before training."""
    if _INITIAL not in vars(policy) and _is_needed(policy):
        initial = {name: copied(each) if _kind(each) == "data" else None for name, each in _own(policy)}
        setattr(policy, _INITIAL, initial)
        if unknown := [f"{name} ({type(each).__name__})" for name, each in _own(policy) if _kind(each) == "unknown"]:
            logger.warning(
                "%s: not saved with the run, so that a resume begins them anew: %s. Give them state_dict() and "
                "load_state_dict(), or the policy _state_dict_learn() and _load_state_dict_learn().",
                type(policy).__name__,
                ", ".join(unknown),
            )
    # Partial and not lambda: a deep copy of the mode must save the copy.
    return partial(save, policy)


def save(policy: PolicyLike) -> State:
    """Return the state of the learn mode: what the policy defines, and what it holds of its own."""
    state: State = policy._state_dict_learn()
    if not _is_needed(policy):
        return state
    initial = vars(policy).get(_INITIAL, {})
    own: dict[str, Any] = {}
    for name, value in _own(policy):
        kind = _kind(value)
        if kind in ("state_dict", "generator") and name not in initial:
            one_time_warning(
                f"{type(policy).__name__}.{name} ({type(value).__name__}) is not saved with the run, as it was made "
                "after the policy: make it in _init_learn."
            )
        elif kind == "state_dict":
            own[name] = value.state_dict()
        elif kind == "generator":
            own[name] = value.get_state() if isinstance(value, torch.Generator) else rng_state(value)
        elif kind == "data" and (name not in initial or not is_equal(initial[name], value)):
            own[name] = copied(value)
    return {**state, KEY: own}


def load(policy: PolicyLike, state: State) -> None:
    """Take over what `save` returned; a state without the policy's own attributes leaves them as they are.

    Raises CheckpointError for what does not fit.
    """
    policy._load_state_dict_learn({name: part for name, part in state.items() if name != KEY})
    for name, saved in state.get(KEY, {}).items() if _is_needed(policy) else ():
        now = getattr(policy, name, None)
        if isinstance(now, torch.nn.Module):
            check_model_state(now.state_dict(), saved, path=f"{name} of the checkpoint")
        try:
            _restore(policy, name, now, saved)
        except (ValueError, KeyError, TypeError, RuntimeError, AttributeError) as error:
            raise CheckpointError(
                f"{type(policy).__name__}.{name} is a {type(now).__name__}, which the saved state does not fit: {error}"
            ) from error


def _restore(policy: PolicyLike, name: str, now: Any, saved: Any) -> None:
    """Bring an attribute to what was saved, in place where other objects may hold it."""
    kind = _kind(now)
    if kind == "state_dict":
        now.load_state_dict(saved)
    elif isinstance(now, torch.Generator):
        now.set_state(saved)
    elif kind == "generator":
        set_rng_state(now, saved)
    elif isinstance(now, torch.Tensor) and isinstance(saved, torch.Tensor) and now.shape == saved.shape:
        with torch.no_grad():
            now.copy_(saved)
    else:
        setattr(policy, name, copied(saved))


def _kind(value: Any) -> str:
    """Return how a value is saved: "state_dict", "generator", "data", "nothing" to save, or "unknown"."""
    if isinstance(value, _UNCHANGING) or inspect.isroutine(value) or inspect.isclass(value):
        return "nothing"
    if isinstance(value, (torch.Generator, np.random.Generator)):
        return "generator"
    if callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None)):
        return "state_dict"
    try:
        encode_state({"value": value})  # refuses what a checkpoint cannot hold
    except CheckpointError:
        return "unknown"
    return "data"


def _is_needed(policy: PolicyLike) -> bool:
    """Return whether a policy has attributes of its own, and no class of the user's defines how they are saved."""
    cls = type(policy)
    definer = next(each for each in cls.__mro__ if "_state_dict_learn" in vars(each))
    return "learn" in policy._enabled and not _is_shipped(cls) and _is_shipped(definer)


def _is_shipped(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "ding_like"


def _own(policy: PolicyLike) -> Iterator[tuple[str, Any]]:
    """Yield the attributes that the user's classes add, without the model and its parts."""
    others = _NOT_OWN.union(*(_names_set_by(cls) for cls in type(policy).__mro__ if _is_shipped(cls)))
    parts = {id(part) for part in (*policy._model.modules(), *policy._model.parameters(), *policy._model.buffers())}
    for name, value in vars(policy).items():
        if name not in others and id(value) not in parts:
            yield name, value


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
