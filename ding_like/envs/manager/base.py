"""Record of one lane: its seeds, its actions since the last seeded reset, its crashes; and what all lanes share."""

from __future__ import annotations

import copy
import functools
import logging
import math
import traceback
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, SupportsFloat, TypeVar

import numpy as np

from ding_like.data.batch import copy_obs, obs_to_columns, take_lanes, write_obs
from ding_like.envs.di_engine_style import SEED_LIMIT
from ding_like.envs.factory import check_command, make_lane_env
from ding_like.envs.spaces import ActionLayout, AnyEnv, ObsLayout, Space, check_equal_spaces
from ding_like.envs.wrappers import adopt_wrapper_states, load_wrapper_states, wrapper_states
from ding_like.errors import CheckpointError, EnvError, SchemaError, TrainingError, describe_error, raised_at
from ding_like.types import Array, Config, EnvAction, EnvFn, EnvLike, EnvObs, Info, Obs, RewardShaping, State, StepBatch
from ding_like.utils.bounds import ABOVE_0, FROM_0, Bounds, Configurable
from ding_like.utils.registries import ENV_MANAGER_REGISTRY
from ding_like.utils.seeding import make_rng, rng_state, set_rng_state

logger = logging.getLogger(__name__)


# An env that breaks this often without finishing an episode is broken for good.
CRASH_LOOP = 5
_SHOWN_ACTIONS = 5


class CrashBudget:
    """Count of how often one env broke; ends the run if it is in a crash loop or restarts too often.

    The envs of a manager share `logged`: an exception from the same line of user code is logged once, and again after
    100, 1000, ... times. `check` is the command that looks into the env.
    """

    def __init__(self, name: str, cfg: Config, *, logged: Counter[str] | None = None, check: str = "") -> None:
        self._name = name
        self._max_restarts = int(cfg["max_env_restarts"])
        self._logged: Counter[str] = Counter() if logged is None else logged
        self._how = f"To look into it: {check}" if check else ""
        self.restarts = 0
        self.in_a_row = 0  # crashes; the manager sets it to 0 at an episode's end

    def record_crash(self, error: BaseException, history: str = "") -> None:
        """Log a crash; raise EnvError, with `history` in both, if there were too many."""
        if form := _form_fault(error):
            raise EnvError(f"{self._name}: {form}. {self._how}") from error
        self.in_a_row += 1
        self.restarts += 1
        story = f"{self._name} broke: {describe_error(error)}{history and f' ({history})'}"
        if self.in_a_row >= CRASH_LOOP:
            why = f"It broke {self.in_a_row} times without finishing an episode."
        elif self.restarts > self._max_restarts:
            why = f"It used up its {self._max_restarts} restarts; set env.manager.max_env_restarts higher to go on."
        else:
            self._log(story, raised_at(error))
            return
        raise EnvError(f"{story}. {why} {self._how}".rstrip()) from error

    def _log(self, story: str, at: str) -> None:
        self._logged[at] += 1
        times = self._logged[at]
        if not at or times == 1:
            logger.warning("%s; recreated, its open episode is dropped", story)
        elif times >= 100 and times == 10 ** (len(str(times)) - 1):
            logger.warning("%s; the %dth time that %s raises in these envs", story, times, at)


def _form_fault(error: BaseException) -> str:
    """Return which form an answer lacks that could not be unpacked; "" for an exception of the env's own code."""
    if isinstance(error, SchemaError):
        return str(error)
    if type(error) not in (ValueError, TypeError) or raised_at(error):
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    if frames and not any(package in frames[-1].filename for package in ("ding_like", "gymnasium")):
        return ""  # an installed env fails by itself
    text = str(error)
    if "(expected 2" in text:
        return f"reset() must return two values, (obs, info) ({text})"
    if "(expected 5" in text or "cannot unpack non-iterable" in text:
        return f"reset() must return (obs, info), and step() (obs, reward, terminated, truncated, info) ({text})"
    return ""


class Lane:
    """What makes a lane's env repeatable.

    Seeding the env with `reset_seed` and playing `journal` again brings it to where it is. The journal is bounded:
    once it holds more than `resume_replay_steps` actions, the open stretch cannot be played again.
    """

    def __init__(self, index: int, cfg: Config, *, logged: Counter[str], check: str = "") -> None:
        self.index = index
        self.reset_seed: int | None = None  # None: not reset yet
        self.options: dict[str, Any] | None = None  # handed to every reset of this lane's env
        self.wrappers: list[State] = []  # what the env's wrappers remembered just before the last seeded reset
        self.crashes = CrashBudget(f"env {index}", cfg, logged=logged, check=check)
        self._reseed_after = int(cfg["reseed_after"])
        self._replay_steps = int(cfg["resume_replay_steps"])
        # One more than either limit needs: a full journal has passed both.
        self.journal: deque[Any] = deque(maxlen=max(self._replay_steps, self._reseed_after) + 1)

    def seed(self, seed: int, *, dynamic: bool) -> None:
        """Give the next reset `seed`; later ones draw from the lane's own generator, or repeat it if not `dynamic`."""
        self._first_seed = seed
        self._is_used = False
        self._dynamic = dynamic
        self._rng = make_rng(seed, "lane")

    def draw_seed(self) -> int:
        """Return the seed of the next reset."""
        if not self._is_used or not self._dynamic:
            self._is_used = True
            return self._first_seed
        return int(self._rng.integers(SEED_LIMIT))

    def seed_after_episode(self) -> int | None:
        """Return the seed of the reset that follows an episode's end; None continues the env's own generator."""
        return self.draw_seed() if not self._dynamic or len(self.journal) >= self._reseed_after else None

    def seed_ahead(self) -> tuple[int, int]:
        """Return (seed, steps), which lets another process follow the rule of `seed_after_episode`.

        An episode that ends `steps` or more after the last seeded reset is followed by a reset with that seed, an
        earlier one by a reset without. What the lane draws next is not changed by this.
        """
        ahead = copy.copy(self)
        ahead._rng = copy.deepcopy(self._rng)
        return ahead.draw_seed(), self._reseed_after if self._dynamic else 0

    def record_reset(self, seed: int | None) -> None:
        """Record a reset of the env, with `seed` if it was seeded."""
        if seed is not None:
            self.reset_seed = seed
            self.journal.clear()

    @property
    def can_replay(self) -> bool:
        """Whether the journal holds everything since the last seeded reset."""
        return self.reset_seed is not None and len(self.journal) <= self._replay_steps

    def record_crash(self, error: BaseException) -> None:
        """Count a crash of this lane's env; raise EnvError if there were too many."""
        last = [np.asarray(action).tolist() for action in list(self.journal)[-_SHOWN_ACTIONS:]]
        history = f"last seeded reset {self.reset_seed}, {len(self.journal)} steps ago; last actions {last}"
        self.crashes.record_crash(error, "" if self.reset_seed is None else history)

    def state_dict(self) -> State:
        """Return everything needed to bring the lane back; `actions` is empty if it cannot be played again."""
        return {
            "reset_seed": self.reset_seed,
            "can_replay": self.can_replay,
            "actions": np.array(list(self.journal) if self.can_replay else []),
            "options": self.options,
            "wrappers": self.wrappers,
            "first_seed": self._first_seed,
            "is_used": self._is_used,
            "dynamic": self._dynamic,
            "rng": rng_state(self._rng),
            "restarts": self.crashes.restarts,
            "crashes_in_a_row": self.crashes.in_a_row,
        }

    def load_state_dict(self, state: State) -> None:
        """Restore seeds and counts; the manager restores the env and the journal."""
        self.seed(int(state["first_seed"]), dynamic=bool(state["dynamic"]))
        set_rng_state(self._rng, state["rng"])
        self._is_used = bool(state["is_used"])
        self.reset_seed = state["reset_seed"]
        self.options = state["options"]
        self.wrappers = state["wrappers"]
        self.crashes.restarts = int(state["restarts"])
        self.crashes.in_a_row = int(state["crashes_in_a_row"])
        self.journal.clear()


def reward_fault(reward: object) -> str:
    """Return why a reward is not one number (numpy would convert a text); "" if it is one."""
    if shape := getattr(reward, "shape", ()):
        return f"rewards have shape {shape}, expected one number; return float(reward)."
    if not hasattr(reward, "__float__"):
        return (
            f"a reward is {type(reward).__name__} {reward!r}, expected one number: set it on every path "
            "through step(), and return float(reward)."
        )
    return ""


def first_obs_fault(layout: ObsLayout, index: int, obs: EnvObs) -> str:
    """Return how the first observation of env `index` breaks its space; "" if it fits."""
    fault = layout.fault(obs)
    if fault is None:
        return ""
    return (
        f"the first observation of env {index} {fault}. Fix the env or its space, in a wrapper self.observation_space."
    )


def recreate(make: Callable[[], AnyEnv], broken: AnyEnv | None, wrappers: Sequence[State] = ()) -> AnyEnv:
    """Close a broken env and return a new one whose wrappers have the states of the old ones, or else `wrappers`."""
    if broken is not None:
        wrappers = wrapper_states(broken)
        try:
            broken.close()
        except Exception as error:  # close() of a broken env may raise anything; the env is replaced
            logger.debug("closing the broken env %s failed: %s", broken, error)
    env = make()
    load_wrapper_states(env, wrappers)
    return env


def close_envs(envs: Mapping[int, EnvLike]) -> None:
    """Close the envs of some lanes, or games by number."""
    for lane, env in envs.items():
        try:
            env.close()
        except Exception as error:  # close() may raise anything; the other envs are closed too
            logger.warning("closing env %d failed: %s: %s", lane, type(error).__name__, error)


def play_again(
    env: AnyEnv, *, seed: int, options: Info | None, actions: Iterable[EnvAction], note: Callable[[EnvAction], None]
) -> EnvObs:
    """Reset an env with `seed`, play `actions` again, and return the last observation; `note` is called before each."""
    obs, _ = env.reset(seed=seed, options=options)
    for action in actions:
        note(action)
        obs, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            obs, _ = env.reset(options=options)
    return obs


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

    def __init__(self, env_fn: Sequence[EnvFn], cfg: Config | None = None, *, num_players: int | None = None) -> None:
        """Prepare the lanes: one for each env, or for each player of each game, where envs are games."""
        if not env_fn:
            raise EnvError("a manager needs at least one env; give env_fn a list of callables that each make one.")
        self._cfg = {**self.config, **(cfg or {})}
        self._env_fn = list(env_fn)
        self.num_envs, self.num_players = len(env_fn), num_players or 1
        self.num_lanes = num_lanes = self.num_envs * self.num_players
        self.game_steps = 0
        self.ended_games: list[int] = []
        self.lanes_lost: list[int] = []  # lanes that `load_state_dict` had to reset afresh: their open rows are void
        self._check = check_command(env_fn[0]) if num_players is None else ""
        logged: Counter[str] = Counter()
        self._lanes = [Lane(index, self._cfg, logged=logged, check=self._check) for index in range(num_lanes)]
        # Bound once: looking up journal.append each time costs 1 % of a CartPole step.
        self._note_action = [lane.journal.append for lane in self._lanes]
        self._all = list(range(num_lanes))
        self._all_lanes = constant(np.arange(num_lanes, dtype=np.int64))
        self._all_false = constant(np.zeros(num_lanes, bool))
        self.ready = np.ones(num_lanes, bool)
        self.is_launched = False
        self.closed = False
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

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        """Give the next reset of lane i the seed `seed + i`."""
        self._dynamic = dynamic_seed
        for lane in self._lanes:
            lane.seed(seed + lane.index, dynamic=dynamic_seed)

    def launch(self) -> None:
        """Reset all lanes for the first time; a second call does nothing."""
        self._check_open()
        if not self.is_launched:
            self.is_launched = True
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
        own_seeds = [] if seeds is None else list(seeds)
        if seeds is not None and len(own_seeds) != len(chosen):
            raise EnvError(f"reset got {len(own_seeds)} seeds for {len(chosen)} lanes; give one seed per lane.")
        for index, seed in zip(chosen, own_seeds, strict=False):
            self._lanes[index].seed(int(seed), dynamic=self._dynamic)
        for index, own in (options or {}).items():
            self._lanes[index].options = own
        if self.is_launched:
            self._reset_lanes(chosen)
        else:
            self.launch()

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
        return {"is_launched": self.is_launched, "dynamic": self._dynamic, "lanes": lanes, "obs": copy_obs(self.obs)}

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
        self.is_launched = bool(state["is_launched"])
        self.lanes_lost = self._restore(state) if self.is_launched else []
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
        if not self.closed:
            self.closed = True
            self._close_envs()

    @abstractmethod
    def _close_envs(self) -> None: ...

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self.closed:
            raise EnvError("the env manager is closed; make a new one.")

    def _check_running(self) -> None:
        self._check_open()
        if not self.is_launched:
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
    dropped = np.union1d(batch.dropped, np.array(failed, np.int64))
    return rows_of(batch, np.flatnonzero(~np.isin(batch.lanes, failed)))._replace(dropped=dropped)


def rows_of(batch: StepBatch, rows: Array) -> StepBatch:
    """Return some rows of a batch, with the infos of their lanes."""
    obs, lanes = take_lanes(batch.next_obs, rows), batch.lanes[rows]
    infos = {lane: batch.info[lane] for lane in lanes.tolist() if lane in batch.info}
    flags = batch.terminated[rows], batch.truncated[rows]
    return StepBatch(lanes, obs, batch.reward[rows], *flags, infos, batch.dropped)


def rows_equal(left: Obs, right: Obs) -> Array:
    """Return bool[R]: which rows of two observations of one space, without NaN, are the same."""
    others = obs_to_columns("", right)
    is_equal = [
        (mine == others[key]).reshape(len(mine), -1).all(axis=1) for key, mine in obs_to_columns("", left).items()
    ]
    return np.asarray(np.all(is_equal, axis=0))


def view_rows(obs: Obs, start: int, stop: int) -> Obs:
    """Return a view of some rows, [stop - start, O...]."""
    return {key: array[start:stop] for key, array in obs.items()} if isinstance(obs, dict) else obs[start:stop]


_Ended = tuple[int, int, bool, bool]  # row, lane, terminated, truncated


@ENV_MANAGER_REGISTRY.register("base")
class BaseEnvManager(ArrayEnvManager):
    """Manager that steps envs in a loop, writes straight into arrays, and resets ended envs at once.

    All lanes are always ready, and all lanes that are stepped answer. `obs` alternates between two buffers: what `step`
    returns stays as it is until the next `step`, and so does the `obs` that was there before it.
    """

    def __init__(self, env_fn: Sequence[EnvFn], cfg: Config | None = None) -> None:
        super().__init__(env_fn, cfg)
        self._envs: list[AnyEnv] = []
        try:
            for make in self._env_fn:
                self._envs.append(make_lane_env(make))
            first = self._envs[0]
            if hasattr(first, "num_players"):
                raise EnvError(f"{first!r} has several players: set env.manager.type='game'.")
            check_equal_spaces(first, dict(enumerate(self._envs)))
            self._set_spaces(first.observation_space, first.action_space)
        except BaseException:
            self.close()
            raise
        self._buffers = [self._layout.allocate(self.num_lanes) for _ in range(2)]
        self._writers = [self._layout.writer(buffer) for buffer in self._buffers]
        self._current = 0
        self._has_stepped = False
        self._step_env = [env.step for env in self._envs]  # bound once, as `_note_action` is

    @property
    def obs(self) -> Obs:
        return self._buffers[self._current]

    def step(self, lanes: Array, actions: Array, *, timeout_s: float | None = None) -> StepBatch:
        """Step `lanes` with `actions` [R, A...]; `timeout_s` cannot be kept in process and is ignored."""
        self._check_running()
        chosen = self._check_lanes(lanes)
        is_full = chosen == self._all
        rows = self._all_lanes if is_full else np.array(chosen, np.int64)
        before = self._buffers[self._current]
        self._current ^= 1
        after, write = self._buffers[self._current], self._writers[self._current]
        if not is_full:
            write_obs(after, before)  # idle lanes keep their observation
        taken = self._actions.split(self._actions.for_envs(actions, len(chosen)))
        step_env, note_action = self._step_env, self._note_action
        rewards: list[SupportsFloat] = []
        infos: dict[int, Mapping[str, Any]] = {}
        ended: list[_Ended] = []
        failed: dict[int, Exception] = {}
        for lane, action in zip(chosen, taken, strict=True):
            note_action[lane](action)
            obs = None
            try:
                obs, reward, terminated, truncated, info = step_env[lane](action)
                write(lane, obs)
            except Exception as error:  # an env may raise anything; the lane is recreated
                failed[lane] = self._layout.explained(error, obs)
                rewards.append(0.0)
                continue
            if terminated or truncated:
                ended.append((len(rewards), lane, terminated, truncated))
            if info:
                infos[lane] = info
            rewards.append(reward)
        try:
            reward_row = np.array(rewards, np.float32)
        except (TypeError, ValueError):
            _check_rewards(rewards)
            raise
        if reward_row.ndim != 1 or not self._has_stepped:
            self._has_stepped = True
            _check_rewards(rewards)
        if not (math.isfinite(sum(reward_row.tolist())) and self._layout.all_finite(after)):
            self._find_nonfinite(chosen, after, reward_row, failed)
        if ended or failed:
            # The first observations of new episodes overwrite `after`: report a copy.
            over, cut = np.zeros((2, len(rows)), bool)
            for row, _, is_over, is_cut in ended:
                over[row], cut[row] = is_over, is_cut
            batch = StepBatch(rows, take_lanes(after, rows), reward_row, over, cut, infos, NO_LANES)
            return self._counted(self._settle(batch, ended, failed))
        no_flag = self._all_false[: len(chosen)]
        next_obs = after if is_full else take_lanes(after, rows)
        self.game_steps += len(chosen)
        self.ended_games = []
        return StepBatch(rows, next_obs, reward_row, no_flag, no_flag, infos, NO_LANES)

    def _find_nonfinite(self, chosen: list[int], after: Obs, reward: Array, failed: dict[int, Exception]) -> None:
        """Add the lanes whose reward or observation is not finite to those that failed."""
        finite_obs = self._layout.finite_rows(after)
        for row, lane in enumerate(chosen):
            if lane not in failed and not math.isfinite(reward[row]):
                failed[lane] = self._nonfinite(lane, "reward")
            elif lane not in failed and not finite_obs[lane]:
                failed[lane] = self._nonfinite(lane, "observation")

    def _settle(self, batch: StepBatch, ended: list[_Ended], failed: dict[int, Exception]) -> StepBatch:
        """Begin new episodes where one ended or failed, and return the batch without the failed lanes."""
        for _, index, _, _ in ended:
            if index not in failed:
                self._lanes[index].crashes.in_a_row = 0
                self._begin_episode(index, self._lanes[index].seed_after_episode())
        if not failed:
            return batch
        for index, error in failed.items():
            self._lanes[index].record_crash(error)
            self._begin_episode(index, self._lanes[index].draw_seed(), make_anew=True)
        return without_lanes(batch, sorted(failed))

    def _begin_episode(self, index: int, seed: int | None, *, make_anew: bool = False) -> None:
        """Reset one env and write its first observation; one that breaks is recreated and tried again."""
        lane = self._lanes[index]
        while True:
            try:
                if make_anew:
                    self._make_anew(index)
                if seed is not None:
                    lane.wrappers = wrapper_states(self._envs[index])
                obs, _ = self._envs[index].reset(seed=seed, options=lane.options)
            except Exception as error:  # an env may raise anything; record_crash ends a crash loop
                lane.record_crash(error)
            else:
                if fault := first_obs_fault(self._layout, index, obs):
                    raise EnvError(fault)
                if lane.reset_seed is None and index == 0:
                    self._warn_of_cut(self._layout.cut_values(obs))
                self._writers[self._current](index, obs)
                if self._layout.all_finite(view_rows(self.obs, index, index + 1)):
                    lane.record_reset(seed)
                    return
                lane.record_crash(self._nonfinite(index, "first observation"))
            seed, make_anew = lane.draw_seed(), True

    def _make_anew(self, index: int) -> None:
        make = functools.partial(make_lane_env, self._env_fn[index])
        self._envs[index] = recreate(make, self._envs[index])
        self._step_env[index] = self._envs[index].step

    def _wrapped_envs(self) -> Sequence[AnyEnv]:
        return self._envs

    def _reset_lanes(self, lanes: list[int]) -> None:
        for index in lanes:
            self._begin_episode(index, self._lanes[index].draw_seed())

    def _restore(self, state: State) -> list[int]:
        is_back = [self._replay(index, state["lanes"][index]) for index in self._all]
        is_equal = rows_equal(self.obs, state["obs"])
        return [index for index in self._all if not (is_back[index] and is_equal[index])]

    def _replay(self, index: int, saved: State) -> bool:
        """Reset one env with its seed and play its actions again; return whether that was possible."""
        load_wrapper_states(self._envs[index], saved["wrappers"])
        if not saved["can_replay"]:
            return False
        lane, env = self._lanes[index], self._envs[index]
        seed, actions = saved["reset_seed"], self._actions.split(saved["actions"].astype(self._actions.dtype))
        lane.record_reset(seed)
        try:
            obs = play_again(env, seed=seed, options=lane.options, actions=actions, note=lane.journal.append)
        except Exception as error:  # an env may raise anything; the lane counts as lost
            logger.warning("env %d broke while its actions were played again: %s", index, error)
            return False
        self._writers[self._current](index, obs)
        return True

    def _close_envs(self) -> None:
        close_envs(dict(enumerate(self._envs)))


def _check_rewards(rewards: list[SupportsFloat]) -> None:
    for reward in rewards:
        if fault := reward_fault(reward):
            raise EnvError(fault)
