"""Protocols and aliases that the parts agree on.

Axes in shapes: T time, E lanes (one lane is one env and player), R lanes that are ready, B batch, A action,
O observation.
Nothing here imports torch; a tensor appears only as an annotation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
# One array [R, O...], or one array per key of a dict space. Keys are flat: {"image": ..., "arm/angle": ...}.
Obs: TypeAlias = "Array | dict[str, Array]"
# One part's section of a config: plain values of every kind, by name, which `config/check.py` has looked at.
Config: TypeAlias = Mapping[str, Any]
# JSON-like Python and tensors or arrays: what checkpoints hold.
State: TypeAlias = dict[str, Any]
# What one item of a sample of a replay buffer is; a window is rows of one lane that follow each other.
SampleUnit: TypeAlias = Literal["row", "window", "episode"]


class StepBatch(NamedTuple):
    """Hold what the lanes that answered one `step` call reported; rows are in the order of `lanes`."""

    lanes: Array  # [R] int64, ascending in managers that wait for all
    next_obs: Obs  # [R, O...], the true next observation, also at an episode's end
    reward: Array  # [R] float32
    terminated: Array  # [R] bool
    truncated: Array  # [R] bool
    info: Mapping[int, Mapping[str, Any]]  # by lane, only lanes with something to say
    dropped: Array  # [K] int64, lanes whose open episode broke off (crash, hang, NaN): their open rows must be dropped


# (env id, transitions of one of its episodes) -> the same transitions with other rewards.
RewardShaping: TypeAlias = Callable[[int, list[dict[str, Any]]], Sequence[Mapping[str, Any]]]


@runtime_checkable
class EnvManager(Protocol):
    """Run E lanes of an environment behind arrays: one for each env, or for each player of each game.

    `ready[E]` marks the lanes whose `obs` may be acted on; the others are in a dummy autoreset step, restarting,
    or waiting for another player. An ended lane resets itself. `step` takes ready lanes only, may be called with
    none to let the others make progress, and returns whichever lanes answered within `timeout_s` (None: the
    manager's own `step_timeout_s`).
    """

    num_envs: int
    num_lanes: int  # num_envs * num_players; lane e * num_players + p is player p of env e
    num_players: int
    lane_seeds: bool  # True: a lane resets with its own seed and replays equally, so that a run resumes exactly
    observation_space: Any  # gymnasium.Space of one lane
    action_space: Any  # gymnasium.Space of one lane
    reward_shaping: RewardShaping | None  # None: rewards are what the env gives

    @property
    def lanes_lost(self) -> list[int]:
        """Return the lanes that `load_state_dict` had to begin anew: their open rows are void."""

    @property
    def game_steps(self) -> int:
        """Return the steps of all envs so far; in a game a step is a move, of one player or of all at once."""

    @property
    def ended_games(self) -> list[int]:
        """Return the envs whose episode came to its end in the last step; those that broke off did not."""

    @property
    def obs(self) -> Obs:
        """Return what to act on next, [E, O...]; a live view, valid until the next `step`."""

    @property
    def ready(self) -> Array:
        """Return bool[E], a live view."""

    @property
    def closed(self) -> bool: ...

    def seed(self, seed: int, dynamic_seed: bool = True) -> None: ...

    def launch(self) -> None: ...

    def reset(self, lanes: Array | None = None, *, seeds: Iterable[int] | None = None) -> None: ...

    def step(self, lanes: Array, actions: Array, *, timeout_s: float | None = None) -> StepBatch: ...

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...

    def wrapper_states(self) -> list[list[State]]: ...

    def load_wrapper_states(self, states: Sequence[Sequence[State]]) -> None: ...

    def adopt_wrapper_states(self, states: Sequence[Sequence[State]]) -> None: ...

    def close(self) -> None: ...


class CheckpointPart(Protocol):
    """Save something beside a policy's weights in a checkpoint; an empty state is left out."""

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


class Actor(Protocol):
    """Turn observations into columns, `action` among them; owns recurrent state, keyed by lane."""

    def act(
        self, obs: Obs, *, lanes: Array, is_first: Array, rng: np.random.Generator, **setting: Any
    ) -> dict[str, Array]:
        """Return columns of R rows for the R `lanes`; `setting` is what the commander says (`eps`: a float or [R])."""

    def reset(self, lanes: Array | None = None) -> None: ...

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


class Reducer(Protocol):
    """Average gradients over learners between `grad` and `apply`; the serial one does nothing."""

    def reduce(self) -> None: ...


class CollectMode(NamedTuple):
    """Name what a collector uses of a policy: DI-engine's fields first, ours after."""

    forward: Any
    process_transition: Any
    get_train_sample: Any
    reset: Any
    get_attribute: Any
    set_attribute: Any
    state_dict: Any
    load_state_dict: Any
    actor: Actor
    segment: Any  # (Rollout) -> (TransitionBatch, keep int[E])
    num_ready: Any  # (length int[S], ended bool[S]) -> int: rows that segment makes of S stretches


class LearnMode(NamedTuple):
    """Name what a learner uses of a policy: DI-engine's fields first, ours after."""

    forward: Any
    reset: Any
    info: Any
    monitor_vars: Any
    get_attribute: Any
    set_attribute: Any
    state_dict: Any
    load_state_dict: Any
    minibatches: Any  # (TransitionBatch, rng) -> Iterator of minibatches
    grad: Any  # (minibatch) -> (dict name -> 0-dim tensor or number, priority [B] or None)
    apply: Any  # () -> None


class EvalMode(NamedTuple):
    """Name what an evaluator uses of a policy: DI-engine's fields first, ours after."""

    forward: Any
    reset: Any
    get_attribute: Any
    set_attribute: Any
    state_dict: Any
    load_state_dict: Any
    actor: Actor


class CommandMode(NamedTuple):
    """Name what a commander uses of a policy."""

    get_setting_learn: Any
    get_setting_collect: Any
    get_setting_eval: Any


class MetricsWriter(Protocol):
    """Take numbers by name at a point of training; `utils.metrics.MetricsSink` is the real one."""

    def write(self, source: str, values: Mapping[str, float], *, env_step: int, train_iter: int) -> None: ...
