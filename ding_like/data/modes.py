"""Modes of a policy: its interfaces to a collector, a learner, an evaluator and a commander."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias

from ding_like.data.batch import TransitionBatch
from ding_like.data.rollout import Rollout
from ding_like.errors import ConfigError
from ding_like.types import Actor, Array, Info, State

# Of a mode's fields those that are ours; the others are DI-engine's.
OUR_FIELDS = frozenset(
    ("actor", "segment", "num_ready", "reads_info", "minibatches", "grad", "apply")
    + ("grad_state", "load_grad_state", "gradient", "load_gradient")
)

# What DI-engine's functions take and give: rows as dicts of anything, by env id or in lists.
Row: TypeAlias = Mapping[str, Any]
# A mode of a policy in DI-engine's style: a named tuple with its fields, of which some may be missing.
DiEngineMode: TypeAlias = Any
# By name: an attribute of any type.
GetAttribute: TypeAlias = Callable[[str], Any]
SetAttribute: TypeAlias = Callable[[str, Any], None]
GetState: TypeAlias = Callable[[], State]
LoadState: TypeAlias = Callable[[State], None]


def refuse_to_part(*_args: object, **_kwargs: object) -> NoReturn:
    """Refuse to compute a gradient in one process for another: a policy in DI-engine's style does both in `forward`.

    Raises ConfigError.
    """
    raise ConfigError(
        "this policy cannot compute gradients in one process and apply them in another: its learn mode has "
        "forward() in DI-engine's style, which does both. Give the policy grad() and apply(), or learn in one process."
    )


class CollectMode(NamedTuple):
    """Interface of a policy to a collector: DI-engine's fields first, ours after."""

    forward: Callable[..., dict[int, dict[str, Any]]]  # ({id: obs}, **setting) -> {id: row of what was chosen}
    process_transition: Callable[[Any, Row, Any], Row]  # (obs, the row of forward, timestep)
    get_train_sample: Callable[[Sequence[Row]], Iterable[Row]]
    reset: Callable[..., None]  # (ids: list[int] | None = None)
    get_attribute: GetAttribute
    set_attribute: SetAttribute
    state_dict: GetState
    load_state_dict: LoadState
    actor: Actor
    segment: Callable[[Rollout], tuple[TransitionBatch, Array]]  # rows, and how many to keep per lane int[E]
    num_ready: Callable[[Array, Array], int]  # (length int[S], ended bool[S]): rows that segment makes of S stretches
    reads_info: bool = False  # whether `segment` reads the env's `info`, a column that loops keep for it


class LearnMode(NamedTuple):
    """Interface of a policy to a learner: DI-engine's fields first, ours after.

    `minibatches` and `grad` belong to one process, and so may `apply`, or that is another's, which has the optimizer:

        worker.load_grad_state(owner.grad_state())
        for minibatch in worker.minibatches(batch, rng):
            info, priority = worker.grad(minibatch)
            owner.load_gradient(worker.gradient())
            owner.apply()
            worker.load_grad_state(owner.grad_state())

    learns bit by bit what one policy alone does. States and gradients are nested mappings of tensors and plain numbers.
    """

    forward: Callable[..., Any]  # (rows or a batch) -> a dict of floats, or a list of them: DI-engine allows both
    reset: Callable[..., None]
    info: Callable[[], object]
    monitor_vars: Callable[[], Sequence[str] | None]
    get_attribute: GetAttribute
    set_attribute: SetAttribute
    state_dict: GetState
    load_state_dict: LoadState
    minibatches: Callable[..., Iterator[Any]]  # (batch, rng); an adapter's are results of forward
    grad: Callable[..., tuple[Info, Array | None]]  # (minibatch, **policy_kwargs) -> metrics, priorities [B] or None
    apply: Callable[[], None]
    grad_state: GetState = refuse_to_part
    load_grad_state: LoadState = refuse_to_part
    gradient: GetState = refuse_to_part
    load_gradient: LoadState = refuse_to_part


class EvalMode(NamedTuple):
    """Interface of a policy to an evaluator: DI-engine's fields first, ours after."""

    forward: Callable[..., Any]  # ({id: obs}, **setting); of a supervised policy whatever its evaluator gives it
    reset: Callable[..., None]
    get_attribute: GetAttribute
    set_attribute: SetAttribute
    state_dict: GetState
    load_state_dict: LoadState
    actor: Actor


class CommandMode(NamedTuple):
    """Interface of a policy to a commander: settings for each side, given the state of the run (`envstep`)."""

    get_setting_learn: Callable[[Mapping[str, Any]], dict[str, Any]]
    get_setting_collect: Callable[[Mapping[str, Any]], dict[str, Any]]
    get_setting_eval: Callable[[Mapping[str, Any]], dict[str, Any]]
