"""State of a policy: what several learners, or gradients applied in another process, need, and what a run saves.

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
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from ding_like.errors import CheckpointError, ConfigError
from ding_like.model.flat_params import FlatParams
from ding_like.types import PolicyLike, State
from ding_like.utils.checkpoint import check_model_state, encode_state
from ding_like.utils.log import one_time_warning
from ding_like.utils.seeding import rng_state, set_rng_state


class Share(NamedTuple):
    """Place of a learner, `rank` of `num_learners` that act as one; alone by default."""

    rank: int = 0
    num_learners: int = 1

    def of(self, num_rows: int) -> slice:
        """Return this learner's rows of so many; all of them where there are fewer rows than learners."""
        if num_rows < self.num_learners:
            return slice(0, num_rows)
        return slice(num_rows * self.rank // self.num_learners, num_rows * (self.rank + 1) // self.num_learners)

    def weight(self, num_rows: int) -> float:
        """Return what the mean over this learner's rows counts in the mean over all."""
        rows = self.of(num_rows)
        return 1.0 / self.num_learners if num_rows < self.num_learners else (rows.stop - rows.start) / num_rows


ALONE = Share()


T = TypeVar("T")


@dataclass
class Pending(Generic[T]):
    """Value that an update moves: `now`, and `next` from the update under way on."""

    now: T
    encode: Callable[[T], Any]  # as a state: nested mappings of tensors and numbers, or one of these
    decode: Callable[[Any], T]

    def __post_init__(self) -> None:
        self.next = self.now

    @property
    def state(self) -> Any:
        """The present value, as a state."""
        return self.encode(self.now)

    @property
    def next_state(self) -> Any:
        """The value after the update under way, as a state."""
        return self.encode(self.next)

    def load(self, state: Any) -> None:
        """Take over what `state` returned."""
        self.now = self.next = self.decode(state)

    def load_next(self, state: Any) -> None:
        """Let `commit` take over what `next_state` returned."""
        self.next = self.decode(state)

    def commit(self) -> None:
        """Begin the next update with the value that this one made."""
        self.now = self.next


class GradNoise:
    """Random numbers of gradients, equal ones until the update that they belong to has been applied.

    The generator is its own: other code may draw from torch's global one between two updates.

    `begin` starts an update where the last `commit` ended, so that a gradient depends on `state` alone: `grad` calls
    it, and `apply` calls `commit`. A process that only applies takes over `next_state` of the one that drew.
    """

    def __init__(self, device: torch.device) -> None:
        """Seed the generator by torch's global one."""
        self._device = device
        self._generator = torch.Generator(device)
        self._generator.manual_seed(int(torch.randint(2**62, ())))
        self.state = self._generator.get_state()  # where the next update begins, uint8 [N]; afresh for each update
        self._num_bytes = self.state.numel()
        self._has_drawn = False

    @property
    def next_state(self) -> Tensor:
        """Return where the update under way ends, uint8 [N]."""
        return self._generator.get_state() if self._has_drawn else self.state

    def begin(self) -> None:
        """Begin the draws of an update, afresh if they were begun before."""
        if self._has_drawn:
            self.load(self.state)

    def normal(self, *shape: int, share: Share = ALONE) -> Tensor:
        """Return standard normal numbers [R, ...]; of several learners', each has its own."""
        return self._draw(torch.randn, shape, share)

    def uniform(self, *shape: int, share: Share = ALONE) -> Tensor:
        """Return numbers in [0, 1) [R, ...], each as likely as another; of several learners', each has its own."""
        return self._draw(torch.rand, shape, share)

    def _draw(self, draw: Callable[..., Tensor], shape: tuple[int, ...], share: Share) -> Tensor:
        self._has_drawn = True
        rows = shape[0]
        drawn = draw((rows * share.num_learners, *shape[1:]), generator=self._generator, device=self._device)
        return drawn[share.rank * rows : (share.rank + 1) * rows]

    def commit(self) -> None:
        """Begin the next update where this one ended."""
        self.state, self._has_drawn = self.next_state, False

    def load(self, state: Tensor) -> None:
        """Begin the next update at `state`."""
        self._set(state)
        self.state, self._has_drawn = state, False

    def load_next(self, state: Tensor) -> None:
        """Let the update under way end at `state`, which another process's `next_state` was."""
        self._set(state)
        self._has_drawn = True

    def _set(self, state: Tensor) -> None:
        """Let the generator be in a state; one of another kind of device, whose states have another size, seeds it."""
        state = state.cpu()
        if state.numel() == self._num_bytes:
            self._generator.set_state(state)
        else:
            self._generator.manual_seed(zlib.crc32(state.numpy().data))


# Value beside the networks that `grad` reads. Any: of each its own.
Moving: TypeAlias = Pending[Any] | GradNoise


def is_equal(one: Any, other: Any) -> bool:
    """Return whether two nested states have equal values, bit by bit."""
    if isinstance(one, Mapping):
        is_alike = isinstance(other, Mapping) and one.keys() == other.keys()
        return is_alike and all(is_equal(value, other[name]) for name, value in one.items())
    if isinstance(one, (list, tuple)):
        is_alike = type(one) is type(other) and len(one) == len(other)
        return is_alike and all(map(is_equal, one, other))
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.dtype == other.dtype and np.array_equal(one, other)
    return bool(one == other)


def copied(value: Any) -> Any:
    """Return a copy of a nested state."""
    if isinstance(value, Mapping):
        return {name: copied(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        items = [copied(each) for each in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, np.ndarray):
        return value.copy()
    return value.detach().clone() if isinstance(value, Tensor) else value


def check_sharing(policy: PolicyLike) -> None:
    """Raise ConfigError, with the reason, for a policy whose gradients another process cannot apply."""
    name = f"policy '{policy.cfg.get('type') or type(policy).__name__}'"
    if callable(getattr(policy, "_forward_learn", None)):
        raise ConfigError(
            f"{name} learns in DI-engine's style (_forward_learn), which gives no gradients that another process could "
            "apply: give it grad() and apply(), or compute gradients centrally (one gradient worker)."
        )
    if not policy.grad_vectors():
        raise ConfigError(
            f"{name} does not say where its gradients are (grad_vectors): compute gradients centrally (one gradient "
            "worker)."
        )


def mean_gradient(gradients: Sequence[State]) -> State:
    """Return the mean of what several policies' `gradient` returned."""
    share, vectors = 1.0 / len(gradients), {}
    for name, first in gradients[0]["vectors"].items():
        vectors[name] = first * share
        for gradient in gradients[1:]:
            vectors[name].add_(gradient["vectors"][name], alpha=share)
    return {"vectors": vectors, "moves": gradients[0]["moves"]}


def weaken(policy: PolicyLike, gradient: State, factor: float) -> State:
    """Return a gradient that counts only a share `factor`; what else it says of an update stays as it is."""
    num_gradients = len(list(policy._optimizers()))
    vectors = {
        name: vector * factor if int(name) < num_gradients else vector for name, vector in gradient["vectors"].items()
    }
    return {**gradient, "vectors": vectors}


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
