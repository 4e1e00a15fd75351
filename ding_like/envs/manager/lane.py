"""Record of one lane: its seeds, its actions since the last seeded reset, its crashes; and what all lanes share."""

from __future__ import annotations

import copy
import logging
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ding_like.envs.di_engine_style import SEED_LIMIT
from ding_like.envs.spaces import AnyEnv, ObsLayout
from ding_like.envs.wrappers import load_wrapper_states, wrapper_states
from ding_like.errors import EnvError, SchemaError
from ding_like.types import Config, EnvAction, EnvObs, Info, State
from ding_like.utils.imports import describe_error, raised_at
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
        self._check = check
        self.restarts = 0
        self.in_a_row = 0  # since the last finished episode

    def record_finished_episode(self) -> None:
        """Record the end of an episode."""
        self.in_a_row = 0

    def record_crash(self, error: BaseException, history: str = "") -> None:
        """Log a crash; raise EnvError, with `history` in both, if there were too many."""
        if form := _form_fault(error):
            raise EnvError(f"{self._name}: {form}. {self._how()}") from error
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
        raise EnvError(f"{story}. {why} {self._how()}".rstrip()) from error

    def _log(self, story: str, at: str) -> None:
        self._logged[at] += 1
        times = self._logged[at]
        if not at or times == 1:
            logger.warning("%s; recreated, its open episode is dropped", story)
        elif times >= 100 and times == 10 ** (len(str(times)) - 1):
            logger.warning("%s; the %dth time that %s raises in these envs", story, times, at)

    def _how(self) -> str:
        return f"To look into it: {self._check}" if self._check else ""


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


def close_envs(envs: Mapping[int, AnyEnv]) -> None:
    """Close the envs of some lanes."""
    for lane, env in envs.items():
        try:
            env.close()
        except Exception as error:  # close() may raise anything; the other envs are closed too
            logger.warning("closing env %d failed: %s: %s", lane, type(error).__name__, error)


def play_again(
    env: AnyEnv,
    *,
    seed: int,
    options: Info | None,
    actions: Iterable[EnvAction],
    note: Callable[[EnvAction], None],
) -> EnvObs:
    """Reset an env with `seed`, play `actions` again, and return the last observation; `note` is called before each."""
    obs, _ = env.reset(seed=seed, options=options)
    for action in actions:
        note(action)
        obs, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            obs, _ = env.reset(options=options)
    return obs
