"""Run envs in processes of their own, with what they exchange in shared memory; env manager 'subprocess'."""

from __future__ import annotations

import logging
import select
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from ding_like.data.obs import take_lanes, write_obs
from ding_like.envs.factory import check_command
from ding_like.envs.manager.array_manager import NO_LANES, ArrayEnvManager, constant
from ding_like.envs.manager.subprocess_pool import ProcessPool, Step
from ding_like.errors import EnvError
from ding_like.types import Array, Obs, State, StepBatch
from ding_like.utils.bounds import ABOVE_0, FROM_0, Bounds
from ding_like.utils.processes import num_cores
from ding_like.utils.registries import ENV_MANAGER_REGISTRY

logger = logging.getLogger(__name__)

# Steps are timed until they have taken this long together, to say when stepping in process would be faster.
_TIMED_S = 0.05
# A smaller gain is not worth a message.
_WORTH_SAYING = 1.2


@ENV_MANAGER_REGISTRY.register("subprocess")
class SubprocessEnvManager(ArrayEnvManager):
    """Step envs side by side: each process steps the envs of its lanes, one after the other.

    An env that raises is recreated in its process. One that hangs, or takes its process down, ends with the process;
    the other lanes of that process are brought back by playing their actions again, so that only its own episode is
    lost. Lanes that cannot be played again, or come out differently, lose theirs too.

    By default `step` waits for all lanes, which makes a run exactly resumable. With `wait_num` = n it returns when n
    lanes have answered; the others are not ready and answer a later call.
    """

    config = {
        **ArrayEnvManager.config,
        # Envs in each process; 0: spread over as many processes as there are cores, one env each with `wait_num`.
        "envs_per_process": 0,
        # Number of envs that a step waits for; 0: all.
        "wait_num": 0,
        # Seconds that a process has to start and to make its envs.
        "launch_timeout_s": 60.0,
        # Seconds that envs have to close before their processes are killed.
        "close_timeout_s": 5.0,
    }
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "envs_per_process": FROM_0,
        "wait_num": FROM_0,
        "launch_timeout_s": ABOVE_0,
        "close_timeout_s": ABOVE_0,
    }
    without_effect: ClassVar[Mapping[str, str]] = {}

    def __init__(self, env_fn: Sequence[Callable[[], Any]], cfg: Mapping[str, Any] | None = None) -> None:
        super().__init__(len(env_fn), cfg, check=check_command(env_fn[0]) if env_fn else "")
        if not hasattr(select, "poll"):
            raise EnvError("env_manager type 'subprocess' needs Linux or macOS; use type 'base' here.")
        self._wait_num = int(self._cfg["wait_num"])
        self.lane_seeds = not self._wait_num
        self._timed_steps, self._timed_s, self._busy_s = 0, 0.0, 0.0
        self._note_action = [lane.journal.append for lane in self._lanes]
        self._all_lanes = constant(np.arange(self.num_lanes, dtype=np.int64))
        self._all_false = constant(np.zeros(self.num_lanes, bool))
        self._pool = ProcessPool(env_fn, self._groups(), self._lanes, self._cfg, self._nonfinite)
        try:
            self._set_spaces(*self._pool.launch())
            self._pool.share(self._layout, self._actions)
        except BaseException:
            self.close()
            raise
        self._memory = self._pool.memory

    def _groups(self) -> list[list[int]]:
        """Return the lanes of each process: neighbours, and about as many everywhere."""
        per_process = int(self._cfg["envs_per_process"])
        if per_process:
            count = -(-self.num_lanes // per_process)
        else:
            count = self.num_lanes if self._wait_num else min(self.num_lanes, num_cores())
        return [group.tolist() for group in np.array_split(np.arange(self.num_lanes), count)]

    @property
    def obs(self) -> Obs:
        return self._memory.obs

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        super().seed(seed, dynamic_seed)
        if hasattr(self, "_memory"):  # the base class seeds before there is any
            self._pool.share_seeds(self._all)

    def step(self, lanes: Array, actions: Array, *, timeout_s: float | None = None) -> StepBatch:
        """Step `lanes` with `actions` [R, A...] and return the lanes that answered, ascending.

        After `timeout_s` it returns with those that have; the others are not ready and answer a later call. How long
        an env may take is set by `step_timeout_s`.
        """
        self._check_running()
        chosen = self._check_lanes(lanes)
        is_full = chosen == self._all
        if not self._ready[lanes].all():
            idle = [lane for lane in chosen if not self._ready[lane]]
            raise EnvError(f"lanes {idle} are not ready; step only lanes of `ready`.")
        taken = self._actions.for_envs(actions, len(chosen))
        self._memory.action[slice(None) if is_full else chosen] = taken
        for lane, action in zip(chosen, self._actions.split(taken), strict=True):
            self._note_action[lane](action)
        is_timed = is_full and self._timed_s < _TIMED_S
        before = (time.perf_counter(), self._pool.busy_s) if is_timed else None
        self._pool.step(chosen)
        self._pool.pump(self._has_enough, timeout_s)
        if before is not None:
            self._time_step(*before)
        return self._hand_out()

    def _has_enough(self) -> bool:
        """Tell whether a step has what it waits for."""
        pool = self._pool
        if not self._wait_num or not pool.num_busy:
            return not pool.num_busy
        stepping = sum(isinstance(task, Step) for task in pool.tasks)
        enough = len(pool.answered) >= min(self._wait_num, len(pool.answered) + stepping)
        # With no lane stepping, wait until one can be asked.
        return enough and (bool(pool.answered) or None in pool.tasks)

    def _hand_out(self) -> StepBatch:
        """Return what has come in, and let lanes act on the first observations of new episodes."""
        pool, memory = self._pool, self._memory
        is_full = len(pool.answered) == self.num_lanes
        if is_full and not (pool.ended or pool.infos or pool.dropped or pool.begun):
            pool.answered = []
            no_flag = self._all_false
            batch = StepBatch(self._all_lanes, memory.obs, memory.reward.copy(), no_flag, no_flag, {}, NO_LANES)
            return self._counted(batch, has_ended=False)
        lanes = self._all_lanes if is_full else np.array(sorted(pool.answered), np.int64)
        flags = np.array([pool.ended.get(lane, (False, False)) for lane in lanes.tolist()], bool).reshape(-1, 2)
        batch = StepBatch(
            lanes=lanes,
            next_obs=take_lanes(memory.obs, lanes),
            reward=memory.reward[lanes],
            terminated=flags[:, 0].copy(),
            truncated=flags[:, 1].copy(),
            info=pool.infos,
            dropped=np.array(sorted(pool.dropped), np.int64),
        )
        pool.answered, pool.ended, pool.infos, pool.dropped = [], {}, {}, set()
        self._open_lanes()
        return self._counted(batch)

    def _open_lanes(self) -> None:
        """Mark the lanes as ready that have nothing left to do and whose last answer was handed out."""
        pool = self._pool
        self._ready[:] = [task is None for task in pool.tasks]
        self._ready[pool.answered] = False
        opened = np.array([lane for lane in pool.begun if self._ready[lane]], np.int64)
        if len(opened):
            write_obs(self._memory.obs, take_lanes(self._memory.first_obs, opened), opened)
            pool.begun.difference_update(opened.tolist())

    def _reset_lanes(self, lanes: list[int]) -> None:
        self._pool.begin(lanes)
        self._pool.pump(lambda: all(self._pool.tasks[index] is None for index in lanes))
        self._open_lanes()

    def _restore(self, state: State) -> list[int]:
        pool = self._pool
        pool.share_seeds(self._all)
        self.load_wrapper_states([lane.wrappers for lane in self._lanes])
        if not self.lane_seeds:
            return list(self._all)
        playing = [index for index in self._all if state["lanes"][index]["can_replay"]]
        for index in playing:
            lane, saved = self._lanes[index], state["lanes"][index]
            lane.record_reset(saved["reset_seed"])
            lane.journal.extend(self._actions.split(saved["actions"].astype(self._actions.dtype)))
        pool.replay({index: take_lanes(state["obs"], np.array([index])) for index in playing})
        pool.pump(lambda: not pool.num_busy)
        lost = set(self._all) - set(playing) | pool.dropped
        pool.dropped = set()
        self._open_lanes()
        return sorted(lost)

    def wrapper_states(self) -> list[list[State]]:
        return self._ask("tell") if self._pool.has_wrappers else [[] for _ in self._all]

    def load_wrapper_states(self, states: Sequence[Sequence[State]]) -> None:
        self._ask("load", [states[index % len(states)] for index in self._all])

    def adopt_wrapper_states(self, states: Sequence[Sequence[State]]) -> None:
        self._ask("adopt", states)

    def _ask(self, do: Literal["tell", "load", "adopt"], states: Sequence[Sequence[State]] = ()) -> list[list[State]]:
        self._check_open()
        answers = self._pool.ask(do, states)
        self._open_lanes()  # an env that broke meanwhile has begun a new episode
        return answers

    def _close_envs(self) -> None:
        if hasattr(self, "_pool"):
            self._pool.close()

    def _time_step(self, started_s: float, busy_before_s: float) -> None:
        """Add up what the first steps took, and what of it the envs took; say once what that means."""
        self._timed_s += time.perf_counter() - started_s
        self._busy_s += self._pool.busy_s - busy_before_s
        self._timed_steps += 1
        gain = self._timed_s / max(self._busy_s, 1e-9)
        if self._timed_s >= _TIMED_S and gain >= _WORTH_SAYING:
            logger.info(
                "env_manager type 'base' would be about %.1fx faster here: one step of an env takes %.0f us, a round "
                "trip to the processes for %d of them %.0f us",
                gain,
                1e6 * self._busy_s / (self._timed_steps * self.num_lanes),
                self.num_lanes,
                1e6 * self._timed_s / self._timed_steps,
            )
