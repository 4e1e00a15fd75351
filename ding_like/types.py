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
# What a commander sets for an actor, by name (`eps`, `noise_sigma`): a number for all lanes, or one per lane [R].
Setting: TypeAlias = "Mapping[str, float | Array]"
# One part's section of a config: plain values of every kind, by name, which `config/schema.py` has looked at.
Config: TypeAlias = Mapping[str, Any]
# A section that is being put together.
Section: TypeAlias = dict[str, Any]
# What `json.loads` returns, or what `json.dumps` takes.
Json: TypeAlias = Any
# One env's own observation or action: what its spaces hold, in any nesting.
EnvObs: TypeAlias = Any
EnvAction: TypeAlias = Any
# An env of any kind: gymnasium's, one in DI-engine's style, a game, or a user's object with their methods.
EnvLike: TypeAlias = Any
# A function that makes one.
EnvFn: TypeAlias = Callable[[], EnvLike]
# A function of a user, or a class, that makes a part: envs, policies, storages.
Factory: TypeAlias = Callable[..., Any]
# A policy of ours, in DI-engine's style, or of the user's: its methods are looked up by name.
PolicyLike: TypeAlias = Any
# JSON-like Python and tensors or arrays: what checkpoints hold.
State: TypeAlias = dict[str, Any]
# What one item of a sample of a replay buffer is; a window is rows of one lane that follow each other.
SampleUnit: TypeAlias = Literal["row", "window", "episode"]


class StepBatch(NamedTuple):
    """Answers of lanes to one `step` call; rows are in the order of `lanes`."""

    lanes: Array  # [R] int64, ascending in managers that wait for all
    next_obs: Obs  # [R, O...], the true next observation, also at an episode's end
    reward: Array  # [R] float32
    terminated: Array  # [R] bool
    truncated: Array  # [R] bool
    info: Mapping[int, Mapping[str, Any]]  # by lane, only of lanes that have some
    dropped: Array  # [K] int64, lanes whose open episode broke off (crash, hang, NaN): their open rows must be dropped


# (env id, transitions of one of its episodes) -> the same transitions with other rewards.
RewardShaping: TypeAlias = Callable[[int, list[dict[str, Any]]], Sequence[Mapping[str, Any]]]


@runtime_checkable
class EnvManager(Protocol):
    """E lanes of an environment behind arrays: one for each env, or for each player of each game.

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
    metrics: tuple[str, ...]  # names of what envs measure beside the return, in `info` at an episode's end

    @property
    def lanes_lost(self) -> list[int]:
        """Return the lanes that `load_state_dict` had to restart: their open rows are void."""

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
    """Part of a checkpoint beside a policy's weights; an empty state is left out."""

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


class RewardModelLike(Protocol):
    """Giver of rewards, to which a learner shows each batch (Any: of whatever the policy learns from)."""

    @property
    def monitored(self) -> Sequence[str]: ...

    def collect(self, batch: Any) -> None: ...

    def train(self) -> dict[str, Any]: ...

    def estimate(self, batch: Any) -> Any: ...

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


class Forward(Protocol):
    """Function from observations to a network's output, without a gradient: in numpy, in torch, or on a remote server.

    It draws no random numbers and keeps no state, so that rows of several lanes, or of several processes, may be put
    into one call and give what they give alone. A recurrent network's state is columns that go in and come out.
    """

    @property
    def initial_state(self) -> Mapping[str, Array]:
        """Return the state before a lane's first step, [S...] by name; a feed-forward network has none."""

    def __call__(self, obs: Obs, state: Mapping[str, Array]) -> tuple[Array, Mapping[str, Array]]:
        """Return (output [R, ...], new state) of observations without their mask and of state columns [R, S...]."""


class Actor(Protocol):
    """Chooser of actions: from observations to columns, `action` among them; owns recurrent state, keyed by lane."""

    def act(
        self, obs: Obs, *, lanes: Array, is_first: Array, rng: np.random.Generator, **setting: float | Array
    ) -> dict[str, Array]:
        """Return columns of R rows for the R `lanes`; `setting` is set by the commander (`eps`: a float or [R])."""

    def reset(self, lanes: Array | None = None) -> None: ...

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


@runtime_checkable
class SeesRewards(Protocol):
    """Actor that is given the reward of each of its actions before it acts on that lane again."""

    def observe(self, lanes: Array, reward: Array) -> None:
        """Take the rewards [R] of the last actions of the R `lanes`."""


class Reducer(Protocol):
    """Average of gradients over learners between `grad` and `apply`; the serial one does nothing."""

    def reduce(self) -> None: ...


# Values by name that one part reports to another: an env's info, a learner's priorities, a task's result.
Report: TypeAlias = Mapping[str, Any]
# What to log of an update: numbers, or tensors that may still be computed.
Info: TypeAlias = dict[str, Any]


class MetricsWriter(Protocol):
    """Receiver of numbers by name at a point of training; `utils.metrics.MetricsSink` is the real one."""

    def write(self, source: str, values: Mapping[str, float], *, env_step: int, train_iter: int) -> None: ...
