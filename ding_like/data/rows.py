"""Turn lists of dicts into columns and back, and let policies written in DI-engine's style run on columns.

The only file of the package that loops over transitions: everything here is for code that thinks in rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np

from ding_like.data.batch import ROW_ID, TransitionBatch, nest, number_of
from ding_like.data.rollout import Rollout
from ding_like.errors import ConfigError, SchemaError
from ding_like.types import Actor, Array, Info, Obs, State, StepBatch

# Of a mode's fields those that are ours; the others are DI-engine's.
OUR_FIELDS = frozenset(
    ("actor", "segment", "num_ready", "reads_info", "minibatches", "grad", "apply", "with_returns")
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


def as_they_are(batch: TransitionBatch) -> TransitionBatch:
    """Return rows whose other columns do not follow from their rewards."""
    return batch


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
    with_returns: Callable[[TransitionBatch], TransitionBatch] = as_they_are  # of rows with other rewards


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


logger = logging.getLogger(__name__)


# The env's `info` of each step, a dict, in the rollout of a policy whose `process_transition` may read it.
INFO_COLUMN = "timestep_info"


class Timestep(NamedTuple):
    """Env step as DI-engine's `process_transition` reads it."""

    obs: Any
    reward: Any
    done: bool
    info: Mapping[str, Any]


def as_batch(data: object) -> TransitionBatch | None:
    """Return rows as columns: a batch as it is, mappings stacked once, None for what does not stack.

    DI-engine's keys become ours: `done` without `terminated` means terminated; `IS` is `weight`, `collect_iter` is
    `policy_version`. A nested mapping (a dict observation) becomes flat keys. `data` is Any because DI-engine's `push`
    takes anything.
    """
    if isinstance(data, TransitionBatch):
        return data
    rows = [data] if isinstance(data, Mapping) else data
    if not isinstance(rows, Sequence) or not rows or not all(isinstance(row, Mapping) for row in rows):
        return None
    flat = [_flat_row(row) for row in rows]
    names = flat[0].keys()
    if any(row.keys() != names for row in flat):
        return None
    columns = {name: _stack([row[name] for row in flat]) for name in names}
    if any(column is None for column in columns.values()):
        return None
    return TransitionBatch(columns)


def _flat_row(row: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            flat.update({f"{name}/{key}": inner for key, inner in _flat_row(value).items()})
        else:
            flat[name] = value
    for seed_name, name in (("IS", "weight"), ("collect_iter", "policy_version")):
        if seed_name in flat:
            value = flat.pop(seed_name)
            flat.setdefault(name, value)
    if isinstance(flat.get(ROW_ID), str):
        flat[ROW_ID] = number_of(flat[ROW_ID])
    if "done" in flat:
        done = flat.pop("done")
        if "terminated" not in flat:
            flat["terminated"], flat["truncated"] = bool(done), False
    return flat


def _stack(values: list[Any]) -> Array | None:
    """Return one column, or None where the values are ragged or no numbers."""
    try:
        arrays = [np.asarray(value) for value in values]
    except (RuntimeError, TypeError):  # tensors on a device, or part of a graph
        arrays = [np.asarray(value.detach().cpu() if hasattr(value, "detach") else value) for value in values]
    first = arrays[0]
    if any(array.shape != first.shape for array in arrays):
        return None
    column = np.stack(arrays)
    if column.dtype.kind not in "biufc":
        return None
    return _narrowed(column, values) if column.dtype == np.float64 and column.ndim == 1 else column


def _narrowed(column: Array, values: list[Any]) -> Array:
    """Return a column of float64 as float32 where its values are single numbers, of which none loses by that.

    A Python float does not ask for float64; an array of float64 does.
    """
    if not any(isinstance(value, float) for value in values):
        return column
    if not all(isinstance(value, (float, int, np.integer, np.floating)) for value in values):
        return column
    wholes = [value for value in values if isinstance(value, (int, np.integer))]
    narrow = column.astype(np.float32)
    return narrow if all(float(np.float32(value)) == value for value in wholes) else column


def to_tensor_transitions(data: Sequence[Row], shallow_copy_next_obs: bool = True) -> list[dict[str, object]]:
    """Turn the arrays of transitions into tensors; scalars stay what they are.

    With `shallow_copy_next_obs`, each `next_obs` is the next transition's `obs` (the same tensor) where the two belong
    to one episode, and the last one is its own. `data` stays untouched.
    """
    out = [{key: _to_tensor(value) for key, value in row.items() if key != "next_obs"} for row in data]
    for i, row in enumerate(data):
        if "next_obs" not in row:
            continue
        follows = i + 1 < len(data) and not row.get("done", False)
        out[i]["next_obs"] = out[i + 1]["obs"] if follows and shallow_copy_next_obs else _to_tensor(row["next_obs"])
    return out


def _to_tensor(value: Any) -> Any:
    import torch

    if isinstance(value, Mapping):
        return {key: _to_tensor(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray):
        # A copy: rows are read-only views, and a tensor over them would alias the batch.
        return torch.from_numpy(np.array(value))
    return value


def timestep_infos(answer: StepBatch, returns: Array) -> Array:
    """Return the env's `info` of each step of an answer, a column [R] of dicts, with copies of its arrays.

    At an episode's end it holds `eval_episode_return`, by default the sum of rewards, of which `returns` [E] lacks the
    last, and `TimeLimit.truncated`: DI-engine's envs say both.
    """
    infos = np.empty(len(answer.lanes), object)
    for row, lane in enumerate(answer.lanes.tolist()):
        info = _own_copy(answer.info.get(lane, {}))
        if answer.terminated[row] or answer.truncated[row]:
            info.setdefault("eval_episode_return", float(returns[lane] + answer.reward[row]))
            info.setdefault("TimeLimit.truncated", bool(answer.truncated[row] and not answer.terminated[row]))
        infos[row] = info
    return infos


def _own_copy(value: Any) -> Any:
    """Return dicts, lists and arrays that an env may write into again as copies; anything else as it is."""
    if isinstance(value, Mapping):
        return {key: _own_copy(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_own_copy(inner) for inner in value]
    return value.copy() if isinstance(value, np.ndarray) else value


class DiEngineStyleActor:
    """Actor through `forward({id: obs}) -> {id: {"action": ...}}`; with `as_float32`, observations are cast to that."""

    def __init__(self, mode: DiEngineMode, *, as_float32: bool = False) -> None:
        self._mode = mode
        self._as_float32 = as_float32

    def act(
        self, obs: Obs, *, lanes: Array, is_first: Array, rng: np.random.Generator, **setting: float | Array
    ) -> dict[str, Array]:
        first = lanes[is_first]
        if len(first):
            self._mode.reset([int(lane) for lane in first])
        outputs = self._mode.forward(self._by_lane(obs, lanes), **setting)
        try:
            batch = as_batch([outputs[int(lane)] for lane in lanes])
        except (TypeError, KeyError, IndexError):  # None, a number, a dict without one of the ids
            batch = None
        if batch is None or "action" not in batch.columns:
            raise SchemaError(
                f"{method_name(self._mode.forward)} returned {_shown(outputs)}; it must return "
                "{id: {'action': array, ...}} with an entry of equal shapes for each id that it is given, here "
                f"{lanes.tolist()}."
            )
        return dict(batch.columns)

    def _by_lane(self, obs: Obs, lanes: Array) -> dict[int, Any]:
        by_key = obs if isinstance(obs, dict) else {"": obs}
        if self._as_float32:
            by_key = {key: array.astype(np.float32, copy=False) for key, array in by_key.items()}
        rows = [{key: _to_tensors(array[i]) for key, array in by_key.items()} for i in range(len(lanes))]
        shown = [nest(row) if isinstance(obs, dict) else row[""] for row in rows]
        return dict(zip(lanes.tolist(), shown, strict=True))

    def reset(self, lanes: Array | None = None) -> None:
        self._mode.reset(None if lanes is None else [int(lane) for lane in lanes])

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        """Do nothing: a policy in DI-engine's style keeps its own state per id."""


def _to_tensors(value: Any) -> Any:
    """Return arrays and numpy's numbers, also in dicts, as tensors: a column forgets which its rows were."""
    if isinstance(value, Mapping):
        return {key: _to_tensors(inner) for key, inner in value.items()}
    return _to_tensor(np.asarray(value) if isinstance(value, np.generic) and value.dtype.kind in "biufc" else value)


class DiEngineStyleSegment:
    """Segment function that runs `process_transition` and `get_train_sample` lane by lane.

    A policy that looks ahead (n-step, unrolled sequences) gets whole episodes, so that nothing is cut short; others
    get what there is.
    """

    def __init__(self, mode: DiEngineMode) -> None:
        self._mode = mode
        self._looks_ahead = max(self._attribute("unroll_len", 1), self._attribute("nstep", 1)) > 1

    def _attribute(self, name: str, default: int) -> int:
        try:
            return int(self._mode.get_attribute(name))
        except (NotImplementedError, AttributeError, KeyError, TypeError):
            # DI-engine's get_attribute raises for names that a policy does not have; an optional one has a default.
            return default

    def num_ready(self, length: Array, ended: Array) -> int:
        """Count the rows of the stretches that `segment` would process now."""
        return int(length[ended].sum()) if self._looks_ahead else int(length.sum())

    def segment(self, rollout: Rollout) -> tuple[Any, Array]:
        """Return (training rows, keep[E]); the rows are a list where they do not stack."""
        batch = TransitionBatch(rollout.columns())
        lanes = rollout.as_lanes()
        keep = np.zeros(rollout.num_lanes, np.int64)
        samples: list[Any] = []
        for lane in range(rollout.num_lanes):
            stretch: list[dict[str, Any]] = []
            for row in lanes.row[lanes.valid[:, lane], lane]:
                stretch.append(self._transition(batch[int(row)]))
                if batch["done"][row]:
                    samples.extend(self._train_samples(stretch))
                    stretch = []
            if stretch and self._looks_ahead:
                keep[lane] = len(stretch)
            elif stretch:
                samples.extend(self._train_samples(stretch))
        stacked = as_batch(samples) if samples else TransitionBatch({})
        return (samples if stacked is None else stacked), keep

    def _transition(self, row: Mapping[str, Any]) -> dict[str, Any]:
        nested = nest(row)
        output = {key: _to_tensors(value) for key, value in nested.items() if key not in _LOOP_COLUMNS}
        reward = np.array([row["reward"]], np.float32)  # of the shape that DI-engine's envs give it
        # A loop that keeps no infos is none of a collector: nothing is made of its transitions.
        timestep = Timestep(nested["next_obs"], reward, bool(row["done"]), nested.get(INFO_COLUMN, {}))
        made = self._mode.process_transition(nested["obs"], output, timestep)
        if not isinstance(made, Mapping):
            raise SchemaError(
                f"{method_name(self._mode.process_transition)} returned {_shown(made)}; it must return one transition, "
                "a dict of 'obs', 'next_obs', 'action', 'reward' and 'done'."
            )
        transition = dict(made)
        transition.setdefault("collect_iter", int(row["policy_version"]))
        is_cut = bool(row["truncated"])
        return {**transition, "terminated": bool(row["done"]) and not is_cut, "truncated": is_cut}

    def _train_samples(self, stretch: list[dict[str, Any]]) -> Iterable[Any]:
        samples: Any = self._mode.get_train_sample(to_tensor_transitions(stretch))
        if not isinstance(samples, Iterable) or isinstance(samples, (str, Mapping)):
            raise SchemaError(
                f"{method_name(self._mode.get_train_sample)} returned {_shown(samples)}; it must return a list of "
                "training rows, or the transitions that it is given."
            )
        return samples


# What the loop adds to the columns of the actor; the rest is DI-engine's "policy output".
_LOOP_COLUMNS = frozenset(
    ("obs", "next_obs", "reward", "terminated", "truncated", "done", INFO_COLUMN)
    + ("lane", "env_id", "episode_id", "step", "policy_version", "collect_iter")
)


def adapt_collect_mode(mode: DiEngineMode) -> CollectMode:
    """Return a collect mode with our fields; `mode` is any named tuple with DI-engine's."""
    if hasattr(mode, "segment"):
        return mode  # type: ignore[no-any-return]
    _log_adapter(mode, "collect")
    segment = DiEngineStyleSegment(mode)
    return CollectMode(
        **_seed_fields(mode, CollectMode),
        actor=DiEngineStyleActor(mode),
        segment=segment.segment,
        num_ready=segment.num_ready,
        reads_info=True,
    )


def adapt_eval_mode(mode: DiEngineMode) -> EvalMode:
    """Return an eval mode with our fields; `mode` is any named tuple with DI-engine's."""
    if hasattr(mode, "actor"):
        return mode  # type: ignore[no-any-return]
    _log_adapter(mode, "eval")
    return EvalMode(**_seed_fields(mode, EvalMode), actor=DiEngineStyleActor(mode, as_float32=True))


def adapt_learn_mode(mode: DiEngineMode) -> LearnMode:
    """Return a learn mode with our fields; `mode` is any named tuple with DI-engine's.

    `forward(list of rows)` has done the whole update when it returns, so each result dict is handed on by `grad` and
    `apply` does nothing.
    """
    if hasattr(mode, "minibatches"):
        return mode  # type: ignore[no-any-return]
    _log_adapter(mode, "learn")

    def minibatches(data: Any, rng: np.random.Generator, **policy_kwargs: Any) -> Iterator[dict[str, Any]]:
        rows = [_learn_row(row) for row in data] if isinstance(data, Sequence) else data
        result = mode.forward(rows, **policy_kwargs)
        for info in result if isinstance(result, list) else [result]:
            check_logged(info, method_name(mode.forward), _seed_fields(mode, LearnMode)["monitor_vars"]() or ())
            yield info

    def grad(result: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        info = dict(result)
        return info, info.pop("priority", None)

    def apply() -> None:
        """Do nothing: `forward` has stepped the optimizer."""

    return LearnMode(**_seed_fields(mode, LearnMode), minibatches=minibatches, grad=grad, apply=apply)


def check_logged(info: object, method: str, names: Iterable[str]) -> None:
    """Raise SchemaError unless what a method of the user's own returned is a dict, with numbers under `names`."""
    if not isinstance(info, Mapping):
        raise SchemaError(
            f"{method} returned {_shown(info)}; it must return a dict of numbers to log, as in "
            "{'total_loss': loss.item()}."
        )
    for name in names:
        value = info.get(name, 0.0)
        if not isinstance(value, (int, float, np.number, np.bool_)) and not hasattr(value, "numel"):
            if not isinstance(value, np.ndarray) or value.size != 1:
                raise SchemaError(
                    f"{method} returned {_shown(value)} as '{name}'; give a number or a tensor there, or leave the "
                    "name out of _monitor_vars_learn()."
                )


def method_name(function: Callable[..., object]) -> str:
    """Return "Class.method()" of a bound method."""
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__name__", "forward")
    return f"{name}()" if owner is None else f"{type(owner).__name__}.{name}()"


def _shown(value: Any) -> str:
    """Return None, or a value's type and the beginning of its text on one line."""
    return "None" if value is None else f"{type(value).__name__} {' '.join(repr(value).split())[:80]}"


def _learn_row(row: Any) -> Any:
    """Return a row as DI-engine's learner hands it over: tensors in nested dicts, flags as Python's bool."""
    if not isinstance(row, Mapping):
        return row
    nested = nest(row)
    flags = {name: bool(nested[name]) for name in _FLAGS if np.ndim(nested.get(name, ())) == 0 and name in nested}
    return {**{name: _to_tensors(value) for name, value in nested.items()}, **flags}


_FLAGS = ("done", "terminated", "truncated")


def _seed_fields(mode: DiEngineMode, target: Any) -> dict[str, Any]:
    """Return DI-engine's fields of `mode`; one that it lacks does nothing and returns None."""
    return {name: getattr(mode, name, lambda *_, **__: None) for name in target._fields if name not in OUR_FIELDS}


_logged: set[str] = set()


def _log_adapter(mode: DiEngineMode, which: str) -> None:
    if which not in _logged:
        _logged.add(which)
        logger.info(
            "the %s mode is written in DI-engine's style (rows): it runs through an adapter, slower than columns. "
            "docs/architecture.md says how to offer columns.",
            which,
        )
