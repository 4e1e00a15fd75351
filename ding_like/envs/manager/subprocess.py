"""Run envs in processes of their own, with what they exchange in shared memory; env manager 'subprocess'."""

from __future__ import annotations

import itertools
import logging
import os
import select
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from ding_like.data.batch import take_lanes, write_obs
from ding_like.data.spaces import space_from_json
from ding_like.envs.manager.base import NO_LANES, ArrayEnvManager, rows_equal
from ding_like.envs.manager.process import (
    ASK,
    MAKE,
    RESET,
    STEP,
    Doing,
    LaneMemory,
    Start,
    WorkerProcess,
    anonymous_file,
    failure_of,
    pickle_env_fns,
    stop_all,
)
from ding_like.envs.spaces import check_equal_spaces
from ding_like.errors import DingError, EnvError
from ding_like.types import Array, Config, EnvFn, Obs, State, StepBatch
from ding_like.utils.bounds import ABOVE_0, FROM_0, Bounds
from ding_like.utils.processes import num_cores, require_posix
from ding_like.utils.registries import ENV_MANAGER_REGISTRY

logger = logging.getLogger(__name__)

# Steps are timed until they have taken this long together, to log when stepping in process would be faster.
_TIMED_S = 0.05
# A smaller gain is not worth a message.
_WORTH_LOGGING = 1.2

_WHAT = {STEP: "a step", RESET: "a reset", MAKE: "making the env", ASK: "reading or setting the wrappers' state"}

_managers = itertools.count()

Kind = Literal["start", "replay", "begin", "ask", "step"]


@dataclass(frozen=True, eq=False)
class Task:
    """Work that a lane has yet to do in its process.

    - "step": take the last journalled action, which is in the memory; if it was taken before the process ended,
      `expected` [1, O...] is its outcome;
    - "begin": begin a new episode; arguments (seed, make_anew);
    - "replay": play actions again, to where the lane acts on `expected`, then do `then`; arguments (seed, actions);
    - "ask": return the states of the wrappers, after they "load" or "adopt" others; arguments (do, states).
    """

    kind: Kind
    arguments: tuple[Any, ...] = ()
    expected: Obs | None = None
    then: Task | None = None


_STEP = Task("step")


class Command(NamedTuple):
    """Last command to a process that it has not answered."""

    kind: Kind
    tasks: Mapping[int, Task]  # by lane, in the order in which they are carried out
    sent_s: float


class EnvProcess(WorkerProcess):
    """Process that steps the envs of some lanes, and the command that it is carrying out."""

    def __init__(self, start: Start, memory_file: int, doing: Doing | None) -> None:
        self.start = start
        self.lanes = list(start.lanes)
        self.command: Command | None = Command("start", {}, time.monotonic())
        self.doing = doing  # None until the memory is laid out
        super().__init__("ding_like.envs.manager.process", start, memory_file)

    def working_on(self) -> tuple[float, int, int] | None:
        """Return (begun at, lane, kind) of the work that is going on, None if there is none or it is not known."""
        return self.doing.read() if self.doing is not None and self.command is not None else None


@ENV_MANAGER_REGISTRY.register("subprocess")
class SubprocessEnvManager(ArrayEnvManager):
    """Manager that steps envs side by side: each process steps the envs of its lanes, one after the other.

    An env that raises is recreated in its process. One that hangs, or takes its process down, ends with the process;
    the other lanes of that process are brought back by playing their actions again, so that only its own episode is
    lost. Lanes that cannot be replayed, or end in another state, lose theirs too.

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

    def __init__(self, env_fn: Sequence[EnvFn], cfg: Config | None = None) -> None:
        super().__init__(env_fn, cfg)
        require_posix("env.manager.type=subprocess", instead="Use env.manager.type=base")
        self._wait_num = int(self._cfg["wait_num"])
        self.lane_seeds = not self._wait_num
        self._limits = {STEP: self._cfg["step_timeout_s"], MAKE: self._cfg["launch_timeout_s"]}
        self._limits[RESET] = self._limits[ASK] = self._cfg["reset_timeout_s"]
        self._check_at = 0.0  # when to look for processes that are late
        self._timed_steps, self._timed_s, self._busy_s = 0, 0.0, 0.0
        self._tasks: list[Task | None] = [None] * self.num_lanes
        self._asks: dict[int, Task] = {}
        self._states: list[list[State]] = [[] for _ in self._all]  # answers to them
        self._num_busy = 0  # processes that have not answered yet
        # Received, and not returned by a step yet:
        self._answered: list[int] = []  # lanes that have stepped
        self._ended: dict[int, tuple[bool, bool]] = {}  # those whose episode ended -> terminated, truncated
        self._infos: dict[int, Mapping[str, Any]] = {}
        self._dropped: set[int] = set()
        self._begun: set[int] = set()  # lanes whose `first_obs` is what to act on
        self._launch_processes()

    def _launch_processes(self) -> None:
        """Start all processes at once, wait until they have made their envs, and lay out the shared memory."""
        pickled = pickle_env_fns(self._env_fn)
        is_first = next(_managers) == 0
        self._has_memory = self._has_wrappers = False  # wrappers that have a state
        self._memory_file = anonymous_file()
        self._poll = select.poll()
        self._by_end: dict[int, EnvProcess] = {}
        self._spaces: dict[int, Any] = {}  # by lane, as described
        self._processes: list[EnvProcess] = []
        # Also runs at the end of the interpreter, and for a manager that was not closed.
        self._shut_down = weakref.finalize(
            self, _shut_down, os.getpid(), self._processes, self._memory_file, self._cfg["close_timeout_s"]
        )
        count = self.num_lanes if self._wait_num else min(self.num_lanes, num_cores())
        if per_process := int(self._cfg["envs_per_process"]):
            count = -(-self.num_lanes // per_process)
        # Neighbours, and about as many everywhere.
        groups = [group.tolist() for group in np.array_split(np.arange(self.num_lanes), count)]
        try:
            for number, group in enumerate(groups):
                makers = [pickled[lane] for lane in group]
                start = Start(number, group, self.num_lanes, len(groups), makers, None, is_first and not number)
                self._processes.append(self._started(EnvProcess(start, self._memory_file, None)))
            self._pump(lambda: not self._num_busy)
            found = {lane: list(map(space_from_json, own)) for lane, own in sorted(self._spaces.items())}
            envs = {lane: SimpleNamespace(observation_space=own[0], action_space=own[1]) for lane, own in found.items()}
            check_equal_spaces(envs[0], envs)
            self._set_spaces(*found[0])
        except BaseException:
            self.close()
            raise
        self._memory = LaneMemory(self._memory_file, self._layout, self._actions, self.num_lanes, len(groups))
        for process, doing in zip(self._processes, self._memory.doing, strict=True):
            process.doing = doing
        self._has_memory = True

    def _started(self, process: EnvProcess) -> EnvProcess:
        self._by_end[process.channel.read_end] = process
        self._poll.register(process.channel.read_end, select.POLLIN)
        self._num_busy += 1
        return process

    # --- an env manager

    @property
    def obs(self) -> Obs:
        return self._memory.obs

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        super().seed(seed, dynamic_seed)
        if hasattr(self, "_memory"):  # the base class seeds before there is any
            self._share_seeds(self._all)

    def step(self, lanes: Array, actions: Array, *, timeout_s: float | None = None) -> StepBatch:
        """Step `lanes` with `actions` [R, A...] and return the lanes that answered, ascending.

        After `timeout_s` it returns with those that have; the others are not ready and answer a later call. How long
        an env may take is set by `step_timeout_s`.
        """
        self._check_running()
        chosen = self._check_lanes(lanes)
        is_full = chosen == self._all
        if not self.ready[lanes].all():
            idle = [lane for lane in chosen if not self.ready[lane]]
            raise EnvError(f"lanes {idle} are not ready; step only lanes of `ready`.")
        taken = self._actions.for_envs(actions, len(chosen))
        self._memory.action[slice(None) if is_full else chosen] = taken
        for lane, action in zip(chosen, self._actions.split(taken), strict=True):
            self._note_action[lane](action)
            self._tasks[lane] = _STEP
        is_timed = is_full and self._timed_s < _TIMED_S
        before = (time.perf_counter(), self._total_busy_s()) if is_timed else None
        self._advance_all()
        self._pump(self._has_enough, timeout_s)
        if before is not None:
            self._time_step(*before)
        return self._take_batch()

    def _has_enough(self) -> bool:
        """Return whether a step has what it waits for."""
        if not self._wait_num or not self._num_busy:
            return not self._num_busy
        num_answered = len(self._answered)
        stepping = sum(task is not None and task.kind == "step" for task in self._tasks)
        enough = num_answered >= min(self._wait_num, num_answered + stepping)
        # With no lane stepping, wait until one can be asked.
        return enough and (num_answered > 0 or None in self._tasks)

    def _take_batch(self) -> StepBatch:
        """Return what was received, and show the first observations of new episodes."""
        memory = self._memory
        is_full = len(self._answered) == self.num_lanes
        if is_full and not (self._ended or self._infos or self._dropped or self._begun):
            self._answered = []
            no_flag = self._all_false
            batch = StepBatch(self._all_lanes, memory.obs, memory.reward.copy(), no_flag, no_flag, {}, NO_LANES)
            return self._counted(batch, has_ended=False)
        lanes = self._all_lanes if is_full else np.array(sorted(self._answered), np.int64)
        flags = np.array([self._ended.get(lane, (False, False)) for lane in lanes.tolist()], bool).reshape(-1, 2)
        dropped = np.array(sorted(self._dropped), np.int64)
        obs, reward = take_lanes(memory.obs, lanes), memory.reward[lanes]
        batch = StepBatch(lanes, obs, reward, flags[:, 0].copy(), flags[:, 1].copy(), self._infos, dropped)
        self._answered, self._ended, self._infos, self._dropped = [], {}, {}, set()
        self._open_lanes()
        return self._counted(batch)

    def _open_lanes(self) -> None:
        """Mark the lanes as ready that have nothing left to do and whose last answer was returned."""
        self.ready[:] = [task is None for task in self._tasks]
        self.ready[self._answered] = False
        opened = np.array([lane for lane in self._begun if self.ready[lane]], np.int64)
        if len(opened):
            write_obs(self._memory.obs, take_lanes(self._memory.first_obs, opened), opened)
            self._begun.difference_update(opened.tolist())

    def _reset_lanes(self, lanes: list[int]) -> None:
        """Begin new episodes in lanes, whatever they are doing; what was received from them is dropped."""
        for index in lanes:
            self._forget(index)
            self._begin(index)
        self._advance_all()
        self._pump(lambda: all(self._tasks[index] is None for index in lanes))
        self._open_lanes()

    def _restore(self, state: State) -> list[int]:
        self._share_seeds(self._all)
        self.load_wrapper_states([lane.wrappers for lane in self._lanes])
        if not self.lane_seeds:
            return list(self._all)
        playing = [index for index in self._all if state["lanes"][index]["can_replay"]]
        for index in playing:
            lane, saved = self._lanes[index], state["lanes"][index]
            lane.record_reset(saved["reset_seed"])
            lane.journal.extend(self._actions.split(saved["actions"].astype(self._actions.dtype)))
            self._tasks[index] = self._replay(index, list(lane.journal), take_lanes(state["obs"], np.array([index])))
        self._advance_all()
        self._pump(lambda: not self._num_busy)
        lost = set(self._all) - set(playing) | self._dropped
        self._dropped = set()
        self._open_lanes()
        return sorted(lost)

    def wrapper_states(self) -> list[list[State]]:
        return self._ask("read", [()] * self.num_lanes) if self._has_wrappers else [[] for _ in self._all]

    def load_wrapper_states(self, states: Sequence[Sequence[State]]) -> None:
        self._ask("load", [states[index % len(states)] for index in self._all])

    def adopt_wrapper_states(self, states: Sequence[Sequence[State]]) -> None:
        self._ask("adopt", [list(states)] * self.num_lanes)

    def _ask(self, do: Literal["read", "load", "adopt"], states: Sequence[Sequence[Any]]) -> list[list[State]]:
        """Return the states of the wrappers of each lane, after they "load" or "adopt" those in `states`, by lane."""
        self._check_open()
        self._asks = {index: Task("ask", (do, states[index])) for index in self._all}
        try:
            self._advance_all()
            self._pump(lambda: not self._asks)
        finally:
            self._asks = {}
        self._open_lanes()  # an env that broke meanwhile has begun a new episode
        return list(self._states)

    def _close_envs(self) -> None:
        if hasattr(self, "_shut_down"):
            self._shut_down()

    # --- commands to processes and their answers

    def _pump(self, is_done: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Take answers, and replace processes that are late, until `is_done` or `timeout_s` has passed."""
        give_up_at = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        while not is_done():
            now = time.monotonic()
            if now >= give_up_at:
                return
            # Rounded up: to wake a little too early would be to look again and again.
            wait_ms = int(max(min(self._check_at, give_up_at) - now, 0.0) * 1000.0) + 1
            for read_end, _ in self._poll.poll(wait_ms):
                self._receive(self._by_end[read_end])
            if time.monotonic() >= self._check_at:
                self._replace_late()

    def _advance_all(self) -> None:
        for process in self._processes:
            self._advance(process)

    def _advance(self, process: EnvProcess) -> None:
        """Send an idle process what to do next: bring lanes back, begin episodes, answer, step; in that order."""
        if process.command is not None:
            return
        waiting: dict[str, dict[int, Task]] = {}
        for index in process.lanes:
            if (task := self._tasks[index]) is not None:
                waiting.setdefault(task.kind, {})[index] = task
        if self._asks:
            waiting["ask"] = {index: self._asks[index] for index in process.lanes if index in self._asks}
        kinds: tuple[Kind, ...] = ("replay", "begin", "ask", "step")
        for kind in kinds:
            if tasks := waiting.get(kind):
                is_all = kind == "step" and len(tasks) == len(process.lanes)
                lanes = [] if is_all else [[index, *self._arguments(index, task)] for index, task in tasks.items()]
                process.command = Command(kind, tasks, time.monotonic())
                process.send(None if is_all else [kind, lanes])
                self._num_busy += 1
                return

    def _arguments(self, index: int, task: Task) -> tuple[Any, ...]:
        lane = self._lanes[index]
        return (lane.options, lane.wrappers, *task.arguments) if task.kind in ("begin", "replay") else task.arguments

    def _receive(self, process: EnvProcess) -> None:
        """Take the answer of a process; replace one that has ended."""
        try:
            answer = process.channel.receive()
        except EOFError:
            self._replace(process)
            return
        command, process.command = process.command, None
        assert command is not None, "a process only answers commands"
        self._num_busy -= 1
        if command.kind != "start":
            self._take(command, answer or {})
        elif "failure" in answer:
            self._replace(process, failure_of(answer["failure"]))
        elif not self._has_memory:
            self._spaces.update(zip(process.lanes, answer["spaces"], strict=True))
            for index, states in answer["wrappers"].items():
                self._lanes[index].wrappers = states
                self._has_wrappers |= bool(states)
        self._advance(process)

    def _take(self, command: Command, answer: Mapping[int, Mapping[str, Any]]) -> None:
        """Take what a command brought. Raises EnvError for what breaks the rules at every try."""
        for report in answer.values():
            if "fault" in report:
                raise EnvError(report["fault"])
        for index, task in command.tasks.items():
            report = answer.get(index, {})
            if "wrappers" in report:
                self._lanes[index].wrappers = report["wrappers"]
            is_wanted = (self._asks.get(index) if command.kind == "ask" else self._tasks[index]) is task
            if not is_wanted:  # a reset, or an error of another lane, has broken it off
                continue
            if command.kind == "step":
                self._take_step(index, task, report)
            elif command.kind == "replay":
                self._take_replay(index, task, report)
            elif command.kind == "ask":
                self._take_states(index, task, report)
            else:
                self._tasks[index] = None
                self._record_beginning(index, task.arguments[0], report)

    def _take_step(self, index: int, task: Task, report: Mapping[str, Any]) -> None:
        if "failed" in report:
            self._drop(index)
            self._make_anew(index, self._error(index, report["failed"]))
            return
        if not self._is_at(index, self._memory.obs, task.expected):
            self._lose(index)
            return
        self._tasks[index] = None
        self._answered.append(index)
        if "info" in report:
            self._infos[index] = report["info"]
        if "ended" in report:
            self._ended[index] = report["ended"]
            self._lanes[index].crashes.in_a_row = 0
            self._record_beginning(index, self._lanes[index].seed_after_episode(), report)

    def _record_beginning(self, index: int, seed: int | None, report: Mapping[str, Any]) -> None:
        if "unbegun" in report:
            self._make_anew(index, self._error(index, report["unbegun"]))
            return
        self._lanes[index].record_reset(seed)
        self._begun.add(index)
        if seed is not None:
            self._share_seeds([index])

    def _take_replay(self, index: int, task: Task, report: Mapping[str, Any]) -> None:
        if "failed" in report:
            logger.warning("env %d broke while its actions were played again: %s", index, failure_of(report["failed"]))
            self._lose(index, make_anew=True)
        elif not self._is_at(index, self._memory.first_obs, task.expected):
            self._lose(index)
        else:
            self._tasks[index] = task.then
            if task.then is None:
                self._begun.add(index)

    def _take_states(self, index: int, task: Task, report: Mapping[str, Any]) -> None:
        if "failed" in report:
            raise failure_of(report["failed"])
        if task.arguments[0] != "read":  # else the lane keeps the states just before its last seeded reset
            self._lanes[index].wrappers = report["states"]
        self._states[index] = report["states"]
        del self._asks[index]

    def _error(self, index: int, told: Any) -> Exception:
        """Return the exception behind a report: a described one, or the name of what is not finite."""
        return self._nonfinite(index, told) if isinstance(told, str) else failure_of(told)

    def _is_at(self, index: int, obs: Obs, expected: Obs | None) -> bool:
        return expected is None or bool(rows_equal(take_lanes(obs, np.array([index])), expected)[0])

    # --- lanes

    def _share_seeds(self, lanes: Iterable[int]) -> None:
        """Write the lanes' next seeds into the memory, so that an episode's end needs no question and answer."""
        for index in lanes:
            self._memory.next_seed[index], self._memory.reseed_after[index] = self._lanes[index].seed_ahead()

    def _begin(self, index: int, *, make_anew: bool = False) -> None:
        self._tasks[index] = Task("begin", (self._lanes[index].draw_seed(), make_anew))

    def _replay(self, index: int, actions: Sequence[Any], expected: Obs | None, then: Task | None = None) -> Task:
        like = self._memory.action
        played = np.array(actions, like.dtype).reshape(-1, *like.shape[1:])
        return Task("replay", (self._lanes[index].reset_seed, played), expected, then)

    def _make_anew(self, index: int, error: Exception) -> None:
        """Count a crash and have the env recreated."""
        self._lanes[index].record_crash(error)
        self._begin(index, make_anew=True)

    def _lose(self, index: int, *, make_anew: bool = False) -> None:
        """Give up an episode that cannot be brought back; no env crashed, so it is not counted as a crash."""
        logger.warning("env %d could not be brought back to where it was; its open episode is dropped", index)
        self._drop(index)
        self._begin(index, make_anew=make_anew)

    def _drop(self, index: int) -> None:
        self._forget(index)
        self._dropped.add(index)

    def _forget(self, index: int) -> None:
        """Drop what was received from a lane."""
        self._answered = [lane for lane in self._answered if lane != index]
        self._ended.pop(index, None)
        self._infos.pop(index, None)
        self._begun.discard(index)

    # --- processes that hang or end

    def _replace_late(self) -> None:
        """Replace the processes in which an env takes longer than it may."""
        now = time.monotonic()
        self._check_at = now + min(self._limits.values())
        for process in list(self._processes):
            command = process.command
            if command is None:
                continue
            since, _, kind = process.working_on() or (command.sent_s, None, MAKE)
            due = since + self._limits[kind]
            if due > now:
                self._check_at = min(self._check_at, due)
                continue
            what = "starting its process" if command.kind == "start" else _WHAT[kind]
            self._replace(process, TimeoutError(f"{what} took over {self._limits[kind]:g} s"))

    def _replace(self, process: EnvProcess, error: Exception | None = None) -> None:
        """End a process that broke, for `error` or on its own, and start a new one.

        The lane it was working on has crashed; where that is not known, all its lanes have. The others are restored.
        """
        command, work = process.command, process.working_on()
        self._poll.unregister(process.channel.read_end)
        del self._by_end[process.channel.read_end]
        death = process.end()
        self._num_busy -= command is not None
        error = error or ChildProcessError(f"its process {death}")
        if not self._has_memory:
            if isinstance(error, DingError):
                raise error
            raise EnvError(
                f"the process of envs {process.lanes} could not make them: {type(error).__name__}: {error}. Try one in "
                "this process, with manager type 'base'; a class that a new process cannot import belongs into a "
                "module."
            ) from error
        culprits = process.lanes if work is None else [work[1]]
        done = list(command.tasks) if command is not None and command.kind == "step" else []
        done = done[: done.index(culprits[0])] if culprits[0] in done else []
        for index in process.lanes:
            if index not in culprits:
                self._bring_back(index, has_stepped=index in done)
                continue
            task = self._tasks[index]
            if task is None or task.kind != "begin":
                self._drop(index)
            self._make_anew(index, error)
        start = process.start._replace(spaces=self._spaces[0])
        doing = self._memory.doing[start.number]
        doing.end()
        self._processes[start.number] = self._started(EnvProcess(start, self._memory_file, doing))

    def _bring_back(self, index: int, *, has_stepped: bool) -> None:
        """Restore a lane whose process has ended; `has_stepped`: its pending step was done."""
        task, lane = self._tasks[index], self._lanes[index]
        if task is not None and task.kind != "step":
            return
        if not lane.can_replay:
            self._lose(index)
            return
        memory = self._memory
        now: Obs | None = take_lanes(memory.first_obs if index in self._begun else memory.obs, np.array([index]))
        actions = list(lane.journal)
        if task is not None:
            del actions[-1]
            if has_stepped and task.expected is None:
                task = Task("step", expected=now)
            if task.expected is not None:
                now = None  # what it acted on is overwritten; the outcome of the step is compared instead
        self._tasks[index] = self._replay(index, actions, now, task)

    # --- whether processes are worth it

    def _total_busy_s(self) -> float:
        """Return the seconds that all processes together have worked on commands."""
        return sum(doing.busy_s for doing in self._memory.doing)

    def _time_step(self, started_s: float, busy_before_s: float) -> None:
        """Add up the time of the first steps and the envs' part of it; log once which manager would be faster."""
        self._timed_s += time.perf_counter() - started_s
        self._busy_s += self._total_busy_s() - busy_before_s
        self._timed_steps += 1
        gain = self._timed_s / max(self._busy_s, 1e-9)
        if self._timed_s >= _TIMED_S and gain >= _WORTH_LOGGING:
            logger.info(
                "env_manager type 'base' would be about %.1fx faster here: one step of an env takes %.0f us, a round "
                "trip to the processes for %d of them %.0f us",
                gain,
                1e6 * self._busy_s / (self._timed_steps * self.num_lanes),
                self.num_lanes,
                1e6 * self._timed_s / self._timed_steps,
            )


def _shut_down(owner: int, processes: Sequence[EnvProcess], memory_file: int, timeout_s: float) -> None:
    if os.getpid() != owner:  # a fork of the owner ends: the processes are not its own
        return
    killed = stop_all(processes, timeout_s)
    if killed:
        logger.warning("%d env processes did not close in %g s and were killed", killed, timeout_s)
    os.close(memory_file)
