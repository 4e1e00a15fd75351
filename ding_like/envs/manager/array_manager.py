"""Base class of env managers: what all of them do alike: seeds, launch, reset, saving, closing."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import ClassVar, TypeVar

import numpy as np

from ding_like.data.obs import copy_obs, take_lanes
from ding_like.envs.manager.lane import Lane
from ding_like.envs.spaces import ActionLayout, AnyEnv, ObsLayout, Space
from ding_like.envs.wrappers import adopt_wrapper_states, load_wrapper_states, wrapper_states
from ding_like.errors import CheckpointError, EnvError, TrainingError
from ding_like.types import Array, Config, Info, Obs, RewardShaping, State, StepBatch
from ding_like.utils.bounds import ABOVE_0, FROM_0, Bounds, Configurable

logger = logging.getLogger(__name__)

_warned: set[str] = set()  # the collectors and the evaluators of a run have managers of their own

Self = TypeVar("Self", bound="ArrayEnvManager")


class ArrayEnvManager(Configurable, ABC):
    """Base class of managers: E lanes of an environment behind arrays; see `types.EnvManager` for what callers rely on.

    The first reset of lane i gets seed + i; every later seeded reset draws from the lane's own generator, or repeats
    seed + i if seeds are not dynamic. A sub-class makes the envs, sets the spaces with `_set_spaces`, and steps.
    """

    config = {
        # Seconds that a step may take, where envs have processes of their own.
        "step_timeout_s": 60.0,
        # Seconds that a reset may take, where envs have processes of their own.
        "reset_timeout_s": 60.0,
        # Env steps after a seeded reset from which the next episode begins with one; 0: every episode does.
        "reseed_after": 1000,
        # Actions that are played again on resume, at most; an episode that needs more is dropped.
        "resume_replay_steps": 10_000,
        # Restarts of an env in a run, at most; a crash loop is stopped much earlier.
        "max_env_restarts": 100,
        # What a NaN or an infinity in an observation or reward does: "drop" the episode, or "raise" an error.
        "nonfinite": "drop",
    }
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "step_timeout_s": ABOVE_0,
        "reset_timeout_s": ABOVE_0,
        "reseed_after": FROM_0,
        "resume_replay_steps": FROM_0,
        "max_env_restarts": FROM_0,
    }
    without_effect: ClassVar[Mapping[str, str]] = {
        "step_timeout_s": "an env in this process cannot be broken off; env manager 'subprocess' keeps deadlines",
        "reset_timeout_s": "an env in this process cannot be broken off; env manager 'subprocess' keeps deadlines",
    }

    num_envs: int
    num_lanes: int
    num_players = 1
    lane_seeds = True
    reward_shaping: RewardShaping | None = None
    metrics: tuple[str, ...] = ("is_success",)
    observation_space: Space
    action_space: Space

    @classmethod
    def check_config(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        """Yield (path, what is wrong) for every value that no manager can use."""
        if cfg["nonfinite"] not in ("drop", "raise"):
            yield "nonfinite", f"is {cfg['nonfinite']!r}; expected 'drop' or 'raise'"

    def __init__(self, num_lanes: int, cfg: Config | None = None, *, check: str = "") -> None:
        if num_lanes < 1:
            raise EnvError("a manager needs at least one env; give env_fn a list of callables that each make one.")
        self._cfg = {**self.config, **(cfg or {})}
        self.num_envs = self.num_lanes = num_lanes
        self.game_steps = 0
        self.ended_games: list[int] = []
        self.lanes_lost: list[int] = []  # lanes that `load_state_dict` had to reset afresh: their open rows are void
        self._check = check
        logged: Counter[str] = Counter()
        self._lanes = [Lane(index, self._cfg, logged=logged, check=check) for index in range(num_lanes)]
        self._all = list(range(num_lanes))
        self._ready = np.ones(num_lanes, bool)
        self._is_launched = False
        self._is_closed = False
        # Without a seed() the run cannot be repeated, and nothing may pretend that it can.
        self.seed(int(np.random.SeedSequence().generate_state(1)[0] >> 1))

    def _set_spaces(self, observation_space: Space, action_space: Space) -> None:
        self._layout = ObsLayout(observation_space)
        self._actions = ActionLayout(action_space)
        self.observation_space = self._layout.space
        self.action_space = self._actions.space

    @property
    @abstractmethod
    def obs(self) -> Obs:
        """Observations to act on next, [E, O...]; a live view, valid until the next `step`."""

    @property
    def ready(self) -> Array:
        """Lanes whose `obs` may be acted on, bool[E]; a live view."""
        return self._ready

    @property
    def is_launched(self) -> bool:
        """Whether the lanes have been reset for the first time."""
        return self._is_launched

    @property
    def closed(self) -> bool:
        return self._is_closed

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        """Give the next reset of lane i the seed `seed + i`."""
        self._dynamic = dynamic_seed
        for lane in self._lanes:
            lane.seed(seed + lane.index, dynamic=dynamic_seed)

    def launch(self) -> None:
        """Reset all lanes for the first time; a second call does nothing."""
        self._check_open()
        if not self._is_launched:
            self._is_launched = True
            self._reset_lanes(self._all)

    def reset(
        self,
        lanes: Array | None = None,
        *,
        seeds: Iterable[int] | None = None,
        options: Mapping[int, Info | None] | None = None,
    ) -> None:
        """Break off what `lanes` (None: all) are doing and begin new episodes.

        With `seeds`, one for each of the lanes, they begin from those seeds and their generators restart from them.
        `options` by lane go into this and every later reset of its env. Before `launch`, all lanes are reset.
        """
        self._check_open()
        chosen = self._all if lanes is None else self._check_lanes(np.asarray(lanes))
        if seeds is not None:
            self._reseed(chosen, list(seeds))
        for index, own in (options or {}).items():
            self._lanes[index].options = own
        if self._is_launched:
            self._reset_lanes(chosen)
        else:
            self.launch()

    def _reseed(self, lanes: list[int], seeds: list[int]) -> None:
        if len(seeds) != len(lanes):
            raise EnvError(f"reset got {len(seeds)} seeds for {len(lanes)} lanes; give one seed per lane.")
        for index, seed in zip(lanes, seeds, strict=True):
            self._lanes[index].seed(int(seed), dynamic=self._dynamic)

    @abstractmethod
    def _reset_lanes(self, lanes: list[int]) -> None:
        """Begin a new episode in each of `lanes`, with the seed that it draws."""

    @abstractmethod
    def step(self, lanes: Array, actions: Array, *, timeout_s: float | None = None) -> StepBatch: ...

    def _counted(self, batch: StepBatch, *, has_ended: bool = True) -> StepBatch:
        """Count a step of envs of one player; with `has_ended` False no episode ended in it."""
        self.game_steps += len(batch.lanes)
        self.ended_games = batch.lanes[batch.terminated | batch.truncated].tolist() if has_ended else []
        return batch

    def state_dict(self) -> State:
        """Return what brings every lane back to where it is: its last seeded reset and the actions since."""
        lanes = [lane.state_dict() for lane in self._lanes]
        for saved, now in zip(lanes, self.wrapper_states(), strict=False):  # a vector env has none
            if not saved["can_replay"]:
                saved["wrappers"] = now
        return {
            "is_launched": self._is_launched,
            "dynamic": self._dynamic,
            "lanes": lanes,
            "obs": copy_obs(self.obs),
        }

    def load_state_dict(self, state: State) -> None:
        """Bring every lane back by resetting it with its seed and playing its actions again.

        `obs` is then what it was. A lane that cannot be brought back (its stretch was too long, its env is not
        repeatable) begins a new episode, and is listed in `lanes_lost` and in the log.
        """
        self._check_open()
        if len(state["lanes"]) != self.num_lanes:
            raise CheckpointError(
                f"the checkpoint holds {len(state['lanes'])} lanes, this manager runs {self.num_lanes}; "
                "resume with the same number of envs."
            )
        self._dynamic = bool(state["dynamic"])
        for lane, saved in zip(self._lanes, state["lanes"], strict=True):
            lane.load_state_dict(saved)
        self._is_launched = bool(state["is_launched"])
        self.lanes_lost = self._restore(state) if self._is_launched else []
        if self.lanes_lost:
            logger.warning(
                "envs %s could not be brought back to where they were; each begins a new episode, and the open "
                "one is dropped",
                self.lanes_lost,
            )
            self._reset_lanes(self.lanes_lost)

    @abstractmethod
    def _restore(self, state: State) -> list[int]:
        """Play the journals of `state` again; return the lanes that could not be restored."""

    def wrapper_states(self) -> list[list[State]]:
        """Return the states of the wrappers of each lane's env; an empty list where no lane has an env of its own."""
        return [wrapper_states(env) for env in self._wrapped_envs()]

    def load_wrapper_states(self, states: Sequence[Sequence[State]]) -> None:
        """Load the i-th of `states` into the wrappers of lane i, in turn where there are more lanes."""
        for index, env in enumerate(self._wrapped_envs()):
            load_wrapper_states(env, states[index % len(states)])

    def adopt_wrapper_states(self, states: Sequence[Sequence[State]]) -> None:
        """Give all lanes the joint statistics of another manager's lanes, and freeze them."""
        for env in self._wrapped_envs():
            adopt_wrapper_states(env, states)

    def _wrapped_envs(self) -> Sequence[AnyEnv]:
        """Return the envs of this process, one a lane; none where one vector env has all lanes."""
        return ()

    def close(self) -> None:
        """Close every env; a second call does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._close_envs()

    @abstractmethod
    def _close_envs(self) -> None: ...

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise EnvError("the env manager is closed; make a new one.")

    def _check_running(self) -> None:
        self._check_open()
        if not self._is_launched:
            raise EnvError("the env manager is not launched; call launch() or reset() before step().")

    def _check_lanes(self, lanes: Array) -> list[int]:
        """Return lanes as a list; raise EnvError for a number that no lane has, or twice the same."""
        chosen: list[int] = lanes.tolist()
        if chosen == self._all:
            return chosen
        if len(set(chosen)) < len(chosen) or not set(chosen) <= set(self._all):
            raise EnvError(f"lanes are {chosen}; expected different numbers from 0 to {self.num_lanes - 1}.")
        return chosen

    def _warn_of_cut(self, cut: str) -> None:
        """Warn, once in a process, of observations that lose their fractions."""
        text = f"the observation of the env {cut}. To look into it: {self._check}"
        if cut and text not in _warned:
            _warned.add(text)
            logger.warning("%s", text)

    def _nonfinite(self, lane: int, what: str) -> FloatingPointError:
        """Return the error that a NaN or an infinity counts as; raise TrainingError with `nonfinite="raise"`."""
        message = f"the {what} of env {lane} holds a NaN or an infinity"
        if self._cfg["nonfinite"] == "raise":
            raise TrainingError(f"{message}. Fix the env, or set env.manager.nonfinite='drop' to drop such episodes.")
        return FloatingPointError(message)


def constant(array: Array) -> Array:
    """Return the array itself, from now on read-only: it is handed out many times."""
    array.flags.writeable = False
    return array


NO_LANES = constant(np.zeros(0, np.int64))


def without_lanes(batch: StepBatch, failed: list[int]) -> StepBatch:
    """Return the batch less the rows of `failed` lanes, which are listed as dropped."""
    kept = np.flatnonzero(~np.isin(batch.lanes, failed))
    return StepBatch(
        lanes=batch.lanes[kept],
        next_obs=take_lanes(batch.next_obs, kept),
        reward=batch.reward[kept],
        terminated=batch.terminated[kept],
        truncated=batch.truncated[kept],
        info={lane: info for lane, info in batch.info.items() if lane not in failed},
        dropped=np.union1d(batch.dropped, np.array(failed, np.int64)),
    )


def rows_equal(left: Obs, right: Obs) -> Array:
    """Return bool[R]: which rows of two observations, without NaN, are the same."""
    if isinstance(left, dict):
        assert isinstance(right, dict), "both are observations of one space"
        by_key: Array = np.all([rows_equal(left[key], right[key]) for key in left], axis=0)
        return by_key
    assert not isinstance(right, dict), "both are observations of one space"
    is_equal: Array = (left == right).reshape(len(left), -1).all(axis=1)
    return is_equal
