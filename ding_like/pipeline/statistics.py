"""Carry what the collector's wrappers have learned (means and variances) to evaluations, checkpoints and videos.

In a serial run each lane has statistics of its own, which move with every step. In a run of several processes there is
one of all: collectors send what their envs observed (`CollectorStatistics`), the learner merges it
(`MergedStatistics`), and what it merged goes out with the weights. Between two versions of the weights a collector's
statistics stand still, so that all rows of a version are normalised alike and the values that its policy gave them stay
true. Until the learner has merged something, each lane goes by what it has seen itself, as in a serial run.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ding_like.envs.wrappers.common import moments_of, state_of_moments
from ding_like.errors import CheckpointError, ConfigError, SchemaError
from ding_like.types import Array, EnvManager, State
from ding_like.utils.checkpoint import from_di_engine, load_state
from ding_like.utils.measure import Moments, merged

if TYPE_CHECKING:  # processes that step envs import this module, and need no torch
    from ding_like.comm.learner_group import LearnerGroup

# A checkpoint's entry with the statistics, and that of published weights; only runs whose wrappers learn something
# have it.
ENV_WRAPPERS = "env_wrappers"
_SEGMENTS = "segments"
_MAX_SKIPPED = 1024  # segments that may still come, beside newer ones

# Arrays by wrapper ("0.ObsNorm") and field of Moments.
Statistics = Mapping[str, Mapping[str, Array]]


class WrapperStatistics:
    """Statistics of the wrappers of a manager's envs, as a checkpoint saves them."""

    def __init__(self, env: EnvManager) -> None:
        self._env = env

    def state_dict(self) -> State:
        """Return the states by lane; empty where no wrapper remembers anything."""
        lanes = self._env.wrapper_states()
        return {"lanes": lanes} if any(lanes) else {}

    def load_state_dict(self, state: State) -> None:
        """Let the wrappers go on learning from saved states."""
        self._env.load_wrapper_states(state["lanes"])


def share_statistics(collector_env: EnvManager, evaluator_env: EnvManager) -> None:
    """Have the evaluator's wrappers normalise by what those of the collector learned together, and learn no more."""
    lanes = collector_env.wrapper_states()
    if any(lanes):
        evaluator_env.adopt_wrapper_states(lanes)


class _Layout:
    """Wrappers of an env that learn statistics, the outermost first, and the flat names of these.

    Raises ConfigError for wrappers that remember something which cannot be merged.
    """

    def __init__(self, env: EnvManager) -> None:
        lanes = env.wrapper_states()
        states = lanes[0] if lanes else []
        for each in states:
            if not {"mean", "var", "count"} <= set(each["state"]):
                raise ConfigError(
                    f"the env's wrapper {each['type']} remembers {sorted(each['state'])} from one episode to the next, "
                    "which the processes of a parallel run cannot merge as they do the statistics of obs_norm and "
                    "reward_norm: each would train on another env. Use mode serial, or leave it out of env.wrappers."
                )
        self.types = [str(each["type"]) for each in states]
        self.shapes: list[tuple[int, ...]] = [np.shape(each["state"]["mean"]) for each in states]
        self.names = [f"{index}.{name}" for index, name in enumerate(self.types)]

    def empty(self) -> list[Moments]:
        """Return what is known of no data."""
        return [Moments.empty(shape) for shape in self.shapes]

    def states(self, each: Sequence[State]) -> list[State]:
        """Return the states of one env's wrappers."""
        return [{"type": name, "state": state} for name, state in zip(self.types, each, strict=True)]

    def states_of(self, moments: Sequence[Moments]) -> list[State]:
        """Return the states of one env's wrappers that know this and learn no more."""
        return self.states([state_of_moments(each) for each in moments])

    def flat(self, moments: Sequence[Moments]) -> dict[str, Array]:
        """Return arrays by flat name: "0.ObsNorm/mean"."""
        return {
            f"{name}/{field}": np.array(value, np.float64)
            for name, each in zip(self.names, moments, strict=True)
            for field, value in each._asdict().items()
        }

    def read(self, flat: Mapping[str, Array]) -> list[Moments]:
        """Return what `flat` was made of. Raises SchemaError for other names or shapes, and for impossible numbers."""
        expected = {f"{name}/{field}" for name in self.names for field in Moments._fields}
        if set(flat) != expected:
            raise SchemaError(f"the statistics have the names {sorted(flat)}, these env.wrappers {sorted(expected)}.")
        return [self._one(name, shape, flat) for name, shape in zip(self.names, self.shapes, strict=True)]

    @staticmethod
    def _one(name: str, shape: tuple[int, ...], flat: Mapping[str, Array]) -> Moments:
        count, mean, m2 = (np.asarray(flat[f"{name}/{field}"]) for field in Moments._fields)
        if count.shape != () or mean.shape != shape or m2.shape != shape:
            raise SchemaError(f"the statistics of {name} have shapes {mean.shape} and {m2.shape}, expected {shape}.")
        is_finite = all(each.dtype.kind == "f" and bool(np.isfinite(each).all()) for each in (count, mean, m2))
        if not is_finite or count < 0 or (m2 < 0).any():
            raise SchemaError(f"the statistics of {name} have counts or variances below 0, or no finite numbers.")
        return Moments(float(count), mean, m2)


class CollectorStatistics:
    """Statistics of a collector's envs: wrappers observe for the learner, and normalise by what it has merged.

    Make it before the envs are launched: from then on they observe. Raises ConfigError for wrappers that remember
    something which cannot be merged.
    """

    def __init__(self, env: EnvManager) -> None:
        self._env = env
        self._layout = _Layout(env)
        self._known: list[State] = [{} for _ in self._layout.types]  # without a mean: each lane goes by its own
        self._round = 1
        self._load()

    def take(self) -> dict[str, Array]:
        """Return what all lanes observed since the last call, each observation once: arrays by flat name."""
        if not self._layout.types:
            return {}
        self._round += 1
        self._load()
        lanes = self._env.wrapper_states()
        return self._layout.flat(
            [merged([Moments(**lane[row]["state"]["taken"]) for lane in lanes]) for row in range(len(self._known))]
        )

    def use(self, statistics: Statistics) -> None:
        """Normalise by the statistics of a version of the weights from now on, where they say anything."""
        self.use_flat(flat_names(statistics))

    def use_flat(self, flat: Mapping[str, Array]) -> None:
        """Normalise by statistics as `flat_names` returns them; see `use`."""
        if self._layout.types and flat:
            moments = self._layout.read(flat)
            self._known = [state_of_moments(each) if each.count else {} for each in moments]
            self._load()

    @property
    def in_force(self) -> list[State]:
        """Return by what one env's wrappers normalise; nothing while each lane goes by what it has seen itself."""
        return self._layout.states(self._known) if all(self._known) else []

    def state_dict(self) -> State:
        """Return which round the wrappers are in; the envs save what they observed."""
        return {"round": self._round}

    def load_state_dict(self, state: State) -> None:
        """Go on with envs whose saved state was restored; `use` says by what they normalise."""
        self._round = int(state["round"])

    def _load(self) -> None:
        if self._layout.types:
            now = [{**known, "round": self._round} for known in self._known]
            self._env.load_wrapper_states([self._layout.states(now)])


class MergedStatistics:
    """Statistics of the envs of all collectors, as those of one process that saw all the data.

    `env` has the wrappers of the collectors' envs. A segment counts once, however often it is read. Threads may share
    it. Raises ConfigError for wrappers that remember something which cannot be merged.
    """

    def __init__(self, env: EnvManager) -> None:
        self._layout = _Layout(env)
        self._moments = self._layout.empty()
        self._shown: list[Moments] | None = None
        self._lock = threading.Lock()
        self._last_serial = 0
        self._skipped: list[int] = []  # serials below the last that have not been merged

    @property
    def num_bytes(self) -> int:
        """Return what the arrays of a segment's `observed` take."""
        return sum(each.nbytes for each in self._layout.flat(self._layout.empty()).values())

    def check(self, observed: Mapping[str, Array]) -> None:
        """Raise SchemaError for what `merge` would refuse."""
        self._layout.read(observed)

    def merge(self, observed: Mapping[str, Array], serial: int | None = None) -> None:
        """Add what was observed for a segment, once for each `serial`. Raises SchemaError for nonsense."""
        parts = self._layout.read(observed)
        with self._lock:
            if serial is None or self._is_new(serial):
                self._moments = [own.merge(part) for own, part in zip(self._moments, parts, strict=True)]

    def set_moments(self, moments: Sequence[Moments]) -> None:
        """Go by the moments of data that were collected before, of each wrapper."""
        with self._lock:
            self._moments = list(moments)

    def _is_new(self, serial: int) -> bool:
        if serial <= self._last_serial:
            is_late = serial in self._skipped
            self._skipped = [each for each in self._skipped if each != serial]
            return is_late
        between = range(max(self._last_serial + 1, serial - _MAX_SKIPPED), serial)
        self._skipped = [*self._skipped, *between][-_MAX_SKIPPED:]
        self._last_serial = serial
        return True

    def weights(self) -> dict[str, dict[str, Array]]:
        """Return what goes out with the weights, under ENV_WRAPPERS; empty where no wrapper learns anything."""
        with self._lock:
            flat = self._layout.flat(self._moments)
        return {name: {field: flat[f"{name}/{field}"] for field in Moments._fields} for name in self._layout.names}

    def show(self, statistics: Statistics | None) -> None:
        """Evaluate and save checkpoints with the statistics of a version of the weights; None: with the present ones.

        What comes is merged with the present ones all the same.
        """
        shown = None if statistics is None else self._layout.read(flat_names(statistics))
        with self._lock:
            self._shown = shown

    def evaluate_with(self, env: EnvManager) -> None:
        """Have the envs of an evaluation normalise by the statistics, and learn no more."""
        if self._layout.types:
            with self._lock:
                states = self._layout.states_of(self._shown or self._moments)
            env.adopt_wrapper_states([states])

    def state_dict(self) -> State:
        """Return the statistics as a serial run saves them; empty where no wrapper learns anything."""
        with self._lock:
            lane = self._layout.states_of(self._shown or self._moments)
        return {"lanes": [lane]} if lane else {}

    def load_state_dict(self, state: State) -> None:
        """Go on from what this or a serial run saved. Raises CheckpointError if its envs were wrapped otherwise."""
        lanes, own = state.get("lanes", []), self._layout.types
        for types in ([each["type"] for each in lane] for lane in lanes):
            if types != own:
                raise CheckpointError(
                    f"the saved statistics are of the wrappers {types}, this run has {own}; use the env.wrappers of "
                    "the run that saved them."
                )
        if lanes:
            with self._lock:
                self._moments = [merged([moments_of(lane[row]["state"]) for lane in lanes]) for row in range(len(own))]

    def resume_state(self) -> State:
        """Return what another learner of this run goes on from: the present statistics and which segments are in them.

        Empty where no wrapper learns anything.
        """
        if not self._layout.types:
            return {}
        with self._lock:
            return {**self._layout.flat(self._moments), _SEGMENTS: np.array([self._last_serial, *self._skipped])}

    def load_resume_state(self, state: State) -> None:
        """Go on from what `resume_state` returned."""
        if state:
            flat = dict(state)
            segments = [int(serial) for serial in flat.pop(_SEGMENTS)]
            moments = self._layout.read(flat)
            with self._lock:
                self._moments, self._last_serial, self._skipped = moments, segments[0], segments[1:]


class SharedStatistics:
    """Statistics of the wrappers of all learners' collectors, which every learner merges for itself.

    Between two segments the statistics stay as they are, as in a parallel run, so that all rows of a segment are
    normalised alike, on every learner. Make it before the envs are launched. Raises ConfigError for wrappers that
    remember something which cannot be merged.
    """

    def __init__(self, env: EnvManager) -> None:
        self._env = env
        self._own = CollectorStatistics(env)
        self._all = MergedStatistics(env)
        self._acted_by: list[State] = []  # by what the last segment was normalised

    def merge(self, group: LearnerGroup) -> None:
        """Merge what all learners have observed since the last call, and normalise by it from now on."""
        observed = self._own.take()
        if not observed:  # no wrapper of this config learns anything, on any learner
            return
        packed = np.concatenate([np.ravel(np.asarray(value, np.float64)) for value in observed.values()])
        for data in group.all_gather_bytes(packed.tobytes()):
            self._all.merge(_unpacked(np.frombuffer(data, np.float64), like=observed))
        self._acted_by = self._own.in_force
        self._own.use(self._all.weights())

    def evaluate_with(self, env: EnvManager) -> None:
        """Have the envs of an evaluation normalise by the statistics, and learn no more."""
        self._all.evaluate_with(env)

    def state_dict(self) -> State:
        """Return what a checkpoint holds: the statistics as a run of one process saves them."""
        return self._all.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Resume from what a checkpoint holds."""
        self._all.load_state_dict(state)
        self._own.use(self._all.weights())

    def resume_state(self) -> State:
        """Return what this learner resumes from, after its envs."""
        return {
            "own": self._own.state_dict(),
            "all": self._all.resume_state(),
            "acted_by": self._acted_by,
            "lanes": self._env.wrapper_states(),
        }

    def load_resume_state(self, state: State) -> None:
        """Resume from what `resume_state` returned, after the envs."""
        self._own.load_state_dict(state["own"])
        self._all.load_resume_state(state["all"])
        self._acted_by = state["acted_by"]
        self._own.use(self._all.weights())
        self._env.load_wrapper_states(state["lanes"])

    def replayable(self, env_state: State) -> State:
        """Return a saved state of the envs whose open episodes end, played again, in the observations that there are.

        Wrappers would go by what they knew when an episode began. The last observations were normalised by what was in
        force in the last segment, and it is only these that count.
        """
        if not self._acted_by:
            return env_state
        return {**env_state, "lanes": [{**lane, "wrappers": self._acted_by} for lane in env_state["lanes"]]}


def _unpacked(numbers: Array, *, like: dict[str, Array]) -> dict[str, Array]:
    """Return arrays by the names and in the shapes of `like`."""
    found, start = {}, 0
    for name, value in like.items():
        size = math.prod(np.shape(value))
        found[name] = numbers[start : start + size].reshape(np.shape(value))
        start += size
    return found


def adopt_statistics(env: EnvManager, statistics: Statistics) -> None:
    """Have the envs of an evaluation normalise by what came with the weights, and learn no more."""
    layout = _Layout(env)
    if layout.types:
        moments = layout.read(flat_names(statistics)) if statistics else layout.empty()
        env.adopt_wrapper_states([layout.states_of(moments)])


def checkpoint_entry(statistics: Statistics) -> State:
    """Return what a checkpoint has under ENV_WRAPPERS of the statistics that came with the weights."""
    lane = []
    for name in sorted(statistics, key=lambda each: int(each.partition(".")[0])):
        count, mean, m2 = (np.asarray(statistics[name][field]) for field in Moments._fields)
        state = state_of_moments(Moments(float(count), mean, m2))
        lane.append({"type": name.partition(".")[2], "state": state})
    return {"lanes": [lane]}


def flat_names(statistics: Statistics) -> dict[str, Array]:
    """Return the arrays of statistics by flat name: "0.ObsNorm/mean"."""
    return {
        f"{name}/{field}": np.asarray(value) for name, entry in statistics.items() for field, value in entry.items()
    }


def load_agent(mode: Any, checkpoint: Any) -> Sequence[Sequence[State]]:
    """Give the mode of a policy a checkpoint's weights; return the statistics that were saved with them, by lane.

    `checkpoint` is a file's path or what was loaded from one.
    """
    state = dict(checkpoint) if isinstance(checkpoint, dict) else load_state(checkpoint)
    lanes: Sequence[Sequence[State]] = state.pop(ENV_WRAPPERS, {"lanes": []})["lanes"]
    mode.load_state_dict(from_di_engine(state, mode.state_dict))
    return lanes
