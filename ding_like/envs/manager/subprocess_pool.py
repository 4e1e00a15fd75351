"""Keep lanes going in processes: tell each process what its lanes have to do next, and replace those that break."""

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
from typing import Any, Literal

import numpy as np

from ding_like.data.obs import take_lanes
from ding_like.envs.manager.array_manager import rows_equal
from ding_like.envs.manager.lane import Lane
from ding_like.envs.manager.subprocess_memory import ASK, MAKE, RESET, STEP, LaneMemory, anonymous_file
from ding_like.envs.manager.subprocess_message import failure_of, space_of
from ding_like.envs.manager.subprocess_process import Command, EnvProcess, pickle_env_fns, preparation, stop_all
from ding_like.envs.manager.subprocess_worker import Start
from ding_like.envs.spaces import ActionLayout, ObsLayout, Space, check_equal_spaces
from ding_like.errors import DingError, EnvError
from ding_like.types import Obs, State

logger = logging.getLogger(__name__)

_WHAT = {STEP: "a step", RESET: "a reset", MAKE: "making the env", ASK: "reading or setting the wrappers' state"}


@dataclass(frozen=True, eq=False)
class Begin:
    """Have a lane begin a new episode; `make_anew` its env before."""

    seed: int
    make_anew: bool


@dataclass(frozen=True, eq=False)
class Step:
    """Have a lane take its last journalled action; if it did before its process ended, `expected` [1, O...] follows."""

    expected: Obs | None = None


@dataclass(frozen=True, eq=False)
class Replay:
    """Bring a lane back by playing `actions` again, to where it acts on `expected` [1, O...]; then do `then`."""

    actions: Sequence[Any]
    expected: Obs | None
    then: Step | None


@dataclass(frozen=True, eq=False)
class Ask:
    """Have wrappers "load" the states of their lane, "adopt" those of all, or just "tell" what they remember."""

    do: Literal["tell", "load", "adopt"]
    states: Sequence[Sequence[State]]


Task = Begin | Step | Replay | None
_STEP = Step()


class ProcessPool:
    """Hold the processes, what each lane has yet to do, and what has come in and was not handed out.

    Users set tasks (`step`, `begin`, `replay`) and `pump` until they are done. A crash, a hang or the end of a process
    is counted by the lane's `crashes`, which raise EnvError if there are too many; the lane goes on with a new episode
    and is in `dropped` if its episode was open.
    """

    def __init__(
        self,
        env_fn: Sequence[Callable[[], Any]],
        groups: Sequence[Sequence[int]],
        lanes: Sequence[Lane],
        cfg: Mapping[str, Any],
        nonfinite: Callable[[int, str], Exception],
    ) -> None:
        self._lanes = lanes
        self._nonfinite = nonfinite
        self._limits = {STEP: cfg["step_timeout_s"], RESET: cfg["reset_timeout_s"], MAKE: cfg["launch_timeout_s"]}
        self._limits[ASK] = cfg["reset_timeout_s"]
        self._check_at = 0.0  # when to look for processes that are late
        self.tasks: list[Task] = [None] * len(lanes)
        self.num_busy = 0  # processes that owe an answer
        self.answered: list[int] = []  # lanes that have stepped
        self.ended: dict[int, tuple[bool, bool]] = {}  # those of them whose episode ended -> terminated, truncated
        self.infos: dict[int, Mapping[str, Any]] = {}
        self.dropped: set[int] = set()
        self.begun: set[int] = set()  # lanes whose `first_obs` is what to act on
        self.has_wrappers = False  # that remember anything
        self._ask: Ask | None = None
        self._silent: set[int] = set()  # lanes that have not answered it
        self._told_states: list[list[State]] = [[] for _ in lanes]
        self._memory: LaneMemory | None = None
        self._memory_file = anonymous_file()
        pickled = pickle_env_fns(env_fn)
        told = preparation(pickled)
        starts = [
            Start(
                index, group, len(lanes), len(groups), [bytes(pickled[lane]) for lane in group], None, told, _is_first()
            )
            for index, group in enumerate(groups)
        ]
        self._processes = [EnvProcess(start, self._memory_file) for start in starts]
        self._poll = select.poll()
        self._by_end: dict[int, EnvProcess] = {}
        self._spaces: dict[int, Any] = {}  # by lane, as described
        # Also runs at the end of the interpreter, and for a manager that was not closed.
        self.close = weakref.finalize(self, _close, os.getpid(), self._processes, self._memory_file, cfg)

    def launch(self) -> tuple[Space, Space]:
        """Start all processes at once, wait until they have made their envs, and return the spaces of all lanes."""
        for process in self._processes:
            self._start(process)
        self.pump(lambda: not self.num_busy)
        found = {lane: list(map(space_of, own)) for lane, own in sorted(self._spaces.items())}
        envs = {lane: SimpleNamespace(observation_space=own[0], action_space=own[1]) for lane, own in found.items()}
        check_equal_spaces(envs[0], envs)
        return found[0][0], found[0][1]

    def share(self, layout: ObsLayout, actions: ActionLayout) -> None:
        """Lay out the memory that the processes share."""
        num_lanes, num_processes = len(self._lanes), len(self._processes)
        self._memory = LaneMemory(self._memory_file, layout, actions, num_lanes=num_lanes, num_processes=num_processes)
        for index, process in enumerate(self._processes):
            process.doing = self._memory.doing(index)

    @property
    def memory(self) -> LaneMemory:
        assert self._memory is not None, "the processes were launched"
        return self._memory

    @property
    def busy_s(self) -> float:
        """Return the seconds that all processes together have worked on commands."""
        return sum(process.doing.busy_s for process in self._processes if process.doing is not None)

    def share_seeds(self, lanes: Iterable[int]) -> None:
        """Let the processes know the lanes' next seeds, so that an episode's end needs no question and answer."""
        for index in lanes:
            self.memory.next_seed[index], self.memory.reseed_after[index] = self._lanes[index].seed_ahead()

    def step(self, lanes: Iterable[int]) -> None:
        """Have lanes take their last journalled actions, which are in the memory."""
        for index in lanes:
            self.tasks[index] = _STEP
        self._advance_all()

    def begin(self, lanes: Iterable[int]) -> None:
        """Have lanes begin new episodes, whatever they are doing; what came in from them is forgotten."""
        for index in lanes:
            self._forget(index)
            self._begin(index)
        self._advance_all()

    def replay(self, lanes: Mapping[int, Obs]) -> None:
        """Bring lanes to where their journals end, where they act on the given observations [1, O...]."""
        for index, expected in lanes.items():
            self.tasks[index] = Replay(tuple(self._lanes[index].journal), expected, None)
        self._advance_all()

    def ask(self, do: Literal["tell", "load", "adopt"], states: Sequence[Sequence[State]] = ()) -> list[list[State]]:
        """Return what the wrappers of each lane remember, after "load" (a state by lane) or "adopt" (all, by all)."""
        self._ask, self._silent = Ask(do, states), set(range(len(self._lanes)))
        try:
            self._advance_all()
            self.pump(lambda: not self._silent)
        finally:
            self._ask, self._silent = None, set()
        return list(self._told_states)

    def pump(self, is_done: Callable[[], bool], timeout_s: float | None = None) -> None:
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

    def _start(self, process: EnvProcess) -> None:
        process.start(self._spaces.get(0))
        self._by_end[process.read_end] = process
        self._poll.register(process.read_end, select.POLLIN)
        self.num_busy += 1

    def _advance_all(self) -> None:
        for process in self._processes:
            self._advance(process)

    def _advance(self, process: EnvProcess) -> None:
        """Tell an idle process what to do next: bring lanes back, begin episodes, answer, step; in that order."""
        if process.command is not None:
            return
        waiting: dict[type, dict[int, Task]] = {}
        for index in process.lanes:
            task = self.tasks[index]
            waiting.setdefault(type(task), {})[index] = task
        if Replay in waiting:
            self._send(process, "replay", waiting[Replay])
        elif Begin in waiting:
            self._send(process, "begin", waiting[Begin])
        elif self._ask is not None and not self._silent.isdisjoint(process.lanes):
            self._send_ask(process, self._ask)
        elif Step in waiting:
            self._send(process, "step", waiting[Step])

    def _send(self, process: EnvProcess, kind: Literal["replay", "begin", "step"], tasks: Mapping[int, Task]) -> None:
        message: Any = None
        if kind != "step":
            message = {"do": kind, "lanes": [self._told(index, task) for index, task in tasks.items()]}
        elif len(tasks) < len(process.lanes):
            message = {"do": kind, "lanes": list(tasks)}
        process.send(kind, tasks, message)
        self.num_busy += 1

    def _send_ask(self, process: EnvProcess, ask: Ask) -> None:
        lanes = [index for index in process.lanes if index in self._silent]
        states = [ask.states[index] for index in lanes] if ask.do == "load" else ask.states
        process.send("ask", dict.fromkeys(lanes, ask), {"do": ask.do, "lanes": lanes, "states": list(states)})
        self.num_busy += 1

    def _told(self, index: int, task: Task) -> list[Any]:
        lane = self._lanes[index]
        if isinstance(task, Begin):
            return [index, task.seed, lane.options, lane.wrappers, task.make_anew]
        assert isinstance(task, Replay), "a step is told by its lane alone"
        like = self.memory.action
        actions = np.array(task.actions, like.dtype).reshape(-1, *like.shape[1:])
        return [index, lane.reset_seed, lane.options, lane.wrappers, actions]

    def _receive(self, process: EnvProcess) -> None:
        try:
            received = process.receive()
        except EOFError:
            self._replace(process)
            return
        if received is None:
            return
        command, answer = received
        self.num_busy -= 1
        if command.kind == "start":
            self._take_start(process, answer)
        elif command.kind == "step":
            self._take_steps(command, answer)
        elif command.kind == "begin":
            self._take_beginnings(command, answer or {})
        elif command.kind == "ask":
            self._take_states(command, answer)
        else:
            self._take_replays(command, answer or {})
        self._advance(process)

    def _take_start(self, process: EnvProcess, answer: Mapping[str, Any]) -> None:
        if "failure" in answer:
            self._replace(process, failure_of(answer["failure"]))
        elif self._memory is None:
            self._spaces.update(zip(process.lanes, answer["spaces"], strict=True))
            self._note_wrappers(answer)
            self.has_wrappers |= any(states for _, states in answer["wrappers"])

    def _note_wrappers(self, answer: Mapping[str, Any]) -> None:
        for index, states in answer.get("wrappers", ()):
            self._lanes[index].wrappers = states

    def _take_states(self, command: Command, answer: Mapping[str, Any]) -> None:
        ask = self._ask
        if ask is None or ask not in command.tasks.values():
            return  # who asked has failed and does not wait any more
        for _, described in answer.get("failed", ()):
            raise failure_of(described)
        if ask.do != "tell":  # a lane's books keep what was known just before its last seeded reset
            self._note_wrappers(answer)
        for index, states in answer["wrappers"]:
            self._told_states[index] = states
            self._silent.discard(index)

    def _take_steps(self, command: Command, answer: Mapping[str, Any] | None) -> None:
        failed = self._failures(answer) if answer else {}
        for index, task in command.tasks.items():
            if self.tasks[index] is not task:
                continue  # broken off by a reset
            if index in failed:
                self._drop(index)
                self._make_anew(index, failed[index])
                continue
            assert isinstance(task, Step), "the command was to step"
            if task.expected is not None and not self._is_at(index, self.memory.obs, task.expected):
                self._lose(index)
                continue
            self.tasks[index] = None
            self.answered.append(index)
        if answer:
            self._note_wrappers(answer)
            arrived = {index for index in command.tasks if self.tasks[index] is None}
            self.infos.update((index, info) for index, info in answer.get("infos", ()) if index in arrived)
            for index, terminated, truncated in answer.get("ended", ()):
                if index in arrived:
                    self.ended[index] = terminated, truncated
                    self._lanes[index].crashes.record_finished_episode()
                    self._take_beginning(index, self._lanes[index].seed_after_episode(), self._unbegun(answer))

    def _failures(self, answer: Mapping[str, Any]) -> dict[int, Exception]:
        """Return the lanes whose step failed. Raises EnvError for what breaks the rules at every try."""
        self._check_rules(answer)
        failed = {index: failure_of(described) for index, described in answer.get("failed", ())}
        bad = answer.get("nonfinite", ())
        return {**failed, **{index: self._nonfinite(index, what) for index, what in bad}}

    def _unbegun(self, answer: Mapping[str, Any]) -> dict[int, Exception]:
        """Return the lanes whose episode could not begin. Raises EnvError for what breaks the rules at every try."""
        self._check_rules(answer)
        failed = {index: failure_of(described) for index, described in answer.get("unbegun", ())}
        failed.update(
            (index, self._nonfinite(index, "first observation")) for index in answer.get("bad_beginnings", ())
        )
        return failed

    def _check_rules(self, answer: Mapping[str, Any]) -> None:
        if "fault" in answer:
            raise EnvError(answer["fault"])

    def _take_beginnings(self, command: Command, answer: Mapping[str, Any]) -> None:
        unbegun = self._unbegun(answer)
        self._note_wrappers(answer)
        for index, task in command.tasks.items():
            if self.tasks[index] is task:
                assert isinstance(task, Begin), "the command was to begin"
                self.tasks[index] = None
                self._take_beginning(index, task.seed, unbegun)

    def _take_beginning(self, index: int, seed: int | None, unbegun: Mapping[int, Exception]) -> None:
        if index in unbegun:
            self._make_anew(index, unbegun[index])
            return
        self._lanes[index].record_reset(seed)
        self.begun.add(index)
        if seed is not None:
            self.share_seeds([index])

    def _take_replays(self, command: Command, answer: Mapping[str, Any]) -> None:
        failed = {index: failure_of(described) for index, described in answer.get("failed", ())}
        for index, task in command.tasks.items():
            if self.tasks[index] is not task:
                continue  # broken off by a reset
            assert isinstance(task, Replay), "the command was to replay"
            if index in failed:
                logger.warning("env %d broke while its actions were played again: %s", index, failed[index])
                self._lose(index, make_anew=True)
            elif task.expected is not None and not self._is_at(index, self.memory.first_obs, task.expected):
                self._lose(index)
            else:
                self.tasks[index] = task.then
                if task.then is None:
                    self.begun.add(index)

    def _is_at(self, index: int, obs: Obs, expected: Obs) -> bool:
        return bool(rows_equal(take_lanes(obs, np.array([index])), expected)[0])

    def _begin(self, index: int, *, make_anew: bool = False) -> None:
        self.tasks[index] = Begin(self._lanes[index].draw_seed(), make_anew)

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
        self.dropped.add(index)

    def _forget(self, index: int) -> None:
        """Forget what came in from a lane."""
        if index in self.answered:
            self.answered.remove(index)
        self.ended.pop(index, None)
        self.infos.pop(index, None)
        self.begun.discard(index)

    def _replace_late(self) -> None:
        """Replace the processes in which an env takes longer than it may."""
        now = time.monotonic()
        self._check_at = now + min(self._limits.values())
        for process in self._processes:
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

        The lane it was working on has crashed; where that cannot be told, all its lanes have. The others come back.
        """
        command, work = process.command, process.working_on()
        self._poll.unregister(process.read_end)
        del self._by_end[process.read_end]
        death = process.end()
        self.num_busy -= command is not None
        error = error or ChildProcessError(f"its process {death}")
        if self._memory is None:
            raise _launch_error(process, error)
        culprits = process.lanes if work is None else [work[1]]
        is_step = command is not None and command.kind == "step"
        done = list(command.tasks) if command is not None and is_step else []
        done = done[: done.index(culprits[0])] if culprits[0] in done else []
        for index in process.lanes:
            if index in culprits:
                if not isinstance(self.tasks[index], Begin):
                    self._drop(index)
                self._make_anew(index, error)
            else:
                self._bring_back(index, has_stepped=index in done)
        self._start(process)

    def _bring_back(self, index: int, *, has_stepped: bool) -> None:
        """Have a lane whose process has ended come to where it was; `has_stepped`: its pending step was done."""
        task, lane = self.tasks[index], self._lanes[index]
        if isinstance(task, (Begin, Replay)):
            return
        if not lane.can_replay:
            self._lose(index)
            return
        is_beginning = index in self.begun
        now = take_lanes(self.memory.first_obs if is_beginning else self.memory.obs, np.array([index]))
        actions = tuple(lane.journal)
        if task is None:
            self.tasks[index] = Replay(actions, now, None)
        elif task.expected is not None or has_stepped:
            # What it acted on is written over; what came of the step is compared instead.
            self.tasks[index] = Replay(actions[:-1], None, task if task.expected is not None else Step(now))
        else:
            self.tasks[index] = Replay(actions[:-1], now, task)


def _is_first() -> bool:
    """Tell whether it is asked for the first time in this process."""
    return next(_counter) == 0


_counter = itertools.count()


def _launch_error(process: EnvProcess, error: Exception) -> Exception:
    if isinstance(error, DingError):
        return error
    wrapped = EnvError(
        f"the process of envs {process.lanes} could not make them: {type(error).__name__}: {error}. Try one in this "
        "process, with manager type 'base'; a class that a new process cannot import belongs into a module."
    )
    wrapped.__cause__ = error
    return wrapped


def _close(owner: int, processes: Sequence[EnvProcess], memory_file: int, cfg: Mapping[str, Any]) -> None:
    if os.getpid() != owner:  # a fork of the owner ends: the processes are not its own
        return
    killed = stop_all(processes, cfg["close_timeout_s"])
    if killed:
        logger.warning("%d env processes did not close in %g s and were killed", killed, cfg["close_timeout_s"])
    os.close(memory_file)
