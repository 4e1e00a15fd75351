"""Run many threads of many processes one at a time, on virtual time, in an order that a seed decides.

A thread is a greenlet. It runs until it waits for something; then the next of those that can run is drawn. Time stands
still while a thread can run, and else jumps to the next timer. A process is what is killed and paused.
"""

from __future__ import annotations

import heapq
import logging
import traceback
import zlib
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

import greenlet

EPOCH_S = 1_700_000_000.0  # what wall clocks show at the beginning
_TRACE_KEPT = 400
_MAX_STEPS_AT_ONCE = 200_000  # of threads, without time passing: more means that something spins
_PREEMPTION = 0.1  # chance that a thread has to give way where it takes a lock that is free


class KilledError(BaseException):
    """Unwind a thread whose process was killed."""


class SimulationFailure(AssertionError):  # noqa: N818 - what a test sees of it is a failed assertion
    """Violated invariant of a simulation; `kind` is its name."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class Process:
    """Simulated operating system process: its threads, its clocks, and whether it is alive and runs."""

    def __init__(self, world: World, name: str, role: str, number: int) -> None:
        self.world = world
        self.name = name
        self.role = role
        self.number = number  # of all processes of the run, from 1: rows say by it who made them
        self.is_alive = True
        self.is_paused = False
        self.has_ended = False  # by itself
        self.wall_offset_s = 0.0
        self.monotonic_offset_s = world.rng.uniform(0.0, 1e5)  # hosts were started at different times
        self.threads: list[SimThread] = []
        self.frozen: list[SimThread] = []  # that could run, were the process not paused
        self.kept: list[Any] = []  # objects whose finalisers must not run in the middle of a run

    def spawn(self, target: Callable[[], None], name: str) -> SimThread:
        """Start a thread."""
        thread = SimThread(self, target, name)
        self.threads.append(thread)
        self.world.make_ready(thread)
        return thread

    def __repr__(self) -> str:
        return self.name


class SimThread:
    """Thread of a simulated process."""

    def __init__(self, process: Process, target: Callable[[], None], name: str) -> None:
        self.process = process
        self.name = name
        self.token = 0  # of what it waits for; older wishes to wake it are void
        self.is_blocked = False
        self.is_woken = False  # by what it waited for, not by its deadline
        self.has_ended = False
        self.blocked_since_s: float | None = None  # without a deadline
        self.joiners: list[tuple[SimThread, int]] = []
        self._target = target
        self.greenlet = greenlet.greenlet(self._run, parent=process.world.hub)

    def _run(self) -> None:
        try:
            if self.process.is_alive:
                self._target()
        except KilledError:
            pass
        except BaseException as error:  # whatever it is, the world is to know
            self.process.world.thread_failed(self, error)
        finally:
            self.has_ended = True
            world = self.process.world
            if self in self.process.threads:
                self.process.threads.remove(self)
            for joiner, token in self.joiners:
                world.wake(joiner, token)


class World:
    """Scheduler of a simulation: virtual time, the threads that can run, timers, the trace, and the first failure."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.hub = greenlet.getcurrent()
        self.rng = Random(f"{seed}/schedule")
        self.now_s = 1000.0
        self.clean_s = 0.0  # time that passed while nothing was broken
        self.num_faults_active = 0
        self.current: SimThread | None = None
        self.processes: list[Process] = []
        self.failure: SimulationFailure | None = None
        self.is_done = False
        self.trace: deque[str] = deque(maxlen=_TRACE_KEPT)
        self.trace_hash = 0
        self.num_traced = 0
        self.on_thread_failed: Callable[[SimThread, BaseException], None] = self._fail_for_thread
        self._ready: list[SimThread] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._num_timers = 0

    # --- processes

    def process(self, name: str, role: str) -> Process:
        """Make a process without threads."""
        made = Process(self, name, role, len(self.processes) + 1)
        self.processes.append(made)
        return made

    def kill(self, process: Process) -> None:
        """End a process where it is: its threads unwind, and nothing that they do on the way reaches the outside.

        For callbacks of timers only: a thread cannot unwind itself.
        """
        assert self.current is None, "kill from a timer"
        process.is_alive = process.is_paused = False
        process.frozen.clear()
        while process.threads:
            thread = process.threads.pop()
            if not thread.greenlet:  # it has not begun
                thread.has_ended = True
                continue
            self.current = thread
            thread.greenlet.throw(KilledError)
            self.current = None

    def pause(self, process: Process) -> None:
        """Stop a process as SIGSTOP does: time goes on without it."""
        process.is_paused = True

    def go_on(self, process: Process) -> None:
        """Let a paused process run again."""
        process.is_paused = False
        frozen, process.frozen = process.frozen, []
        self._ready += frozen

    # --- threads

    def check_alive(self) -> None:
        """Raise KilledError in a thread whose process is dead."""
        if self.current is not None and not self.current.process.is_alive:
            raise KilledError

    def block(self, deadline_s: float | None, register: Callable[[SimThread, int], None] | None = None) -> bool:
        """Let others run until someone wakes this thread (True) or the deadline passes (False)."""
        self.check_alive()
        thread = self.current
        assert thread is not None, "only threads wait"
        thread.token += 1
        token = thread.token
        if register is not None:
            register(thread, token)
        if deadline_s is not None:
            self.at(deadline_s, lambda: self._expire(thread, token))
        thread.is_blocked, thread.is_woken = True, False
        thread.blocked_since_s = self.now_s if deadline_s is None else None
        self._leave()
        return thread.is_woken

    def wake(self, thread: SimThread, token: int) -> bool:
        """Let a thread go on that waits with this token; return whether it did wait."""
        if not thread.is_blocked or thread.token != token or not thread.process.is_alive:
            return False
        thread.is_woken = True
        self.make_ready(thread)
        return True

    def _expire(self, thread: SimThread, token: int) -> None:
        if thread.is_blocked and thread.token == token and thread.process.is_alive:
            self.make_ready(thread)

    def make_ready(self, thread: SimThread) -> None:
        thread.is_blocked, thread.blocked_since_s = False, None
        self._ready.append(thread)

    def sleep(self, seconds: float) -> None:
        """Let time pass for the current thread."""
        self.block(self.now_s + max(seconds, 0.0))

    def maybe_give_way(self) -> None:
        """Let others run first, at times."""
        self.check_alive()
        if self.current is not None and self.rng.random() < _PREEMPTION:
            self._ready.append(self.current)
            self._leave()

    def _leave(self) -> None:
        self.hub.switch()
        self.check_alive()

    # --- time

    def at(self, when_s: float, call: Callable[[], None]) -> None:
        """Have `call` made at a time, outside of all threads."""
        self._num_timers += 1
        heapq.heappush(self._timers, (when_s, self._num_timers, call))

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        self.at(self.now_s + seconds, call)

    def monotonic(self) -> float:
        return self.now_s + (0.0 if self.current is None else self.current.process.monotonic_offset_s)

    def wall(self) -> float:
        offset_s = 0.0 if self.current is None else self.current.process.wall_offset_s
        return EPOCH_S + self.now_s + offset_s

    # --- the loop

    def run(self) -> None:
        """Run until `is_done` or a failure. Raises SimulationFailure."""
        steps = 0
        while not self.is_done and self.failure is None:
            if self._ready:
                steps += 1
                if steps > _MAX_STEPS_AT_ONCE:
                    self.fail("spin", f"threads run on and on without time passing: {self._ready[:4]}")
                self._step()
            elif self._timers:
                when_s, _, call = heapq.heappop(self._timers)
                if when_s > self.now_s:
                    steps = 0
                    if not self.num_faults_active:
                        self.clean_s += when_s - self.now_s
                    self.now_s = when_s
                call()
            else:
                self.fail("deadlock", "no thread can run, and none has a deadline")
        if self.failure is not None:
            raise self.failure

    def _step(self) -> None:
        ready = self._ready
        place = self.rng.randrange(len(ready)) if len(ready) > 1 else 0
        thread = ready[place]
        ready[place] = ready[-1]
        ready.pop()
        if thread.has_ended or not thread.process.is_alive:
            return
        if thread.process.is_paused:
            thread.process.frozen.append(thread)
            return
        self.current = thread
        thread.greenlet.switch()
        self.current = None

    def close(self) -> None:
        """Kill everything that is left."""
        for process in self.processes:
            self.kill(process)

    # --- what happened

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        who = "" if self.current is None else f" {self.current.process.name}/{self.current.name}"
        line = f"{self.now_s:10.4f}{who}: {text}"
        self.num_traced += 1
        self.trace_hash = zlib.crc32(line.encode(), self.trace_hash)
        self.trace.append(line)

    def fail(self, kind: str, message: str) -> None:
        """Keep the first failure; the loop raises it."""
        if self.failure is None:
            self.note(f"FAILED {kind}: {message}")
            self.failure = SimulationFailure(kind, message)

    def thread_failed(self, thread: SimThread, error: BaseException) -> None:
        self.on_thread_failed(thread, error)

    def _fail_for_thread(self, thread: SimThread, error: BaseException) -> None:
        text = "".join(traceback.format_exception(error)[-6:])
        self.fail("thread_died", f"{thread.process}/{thread.name}: {error!r}\n{text}")


class TraceHandler(logging.Handler):
    """Put the package's log records among the trace's lines, beside its hash."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        who = "" if self._world.current is None else f" {self._world.current.process.name}"
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + "".join(traceback.format_exception(*record.exc_info)[-4:])
        self._world.trace.append(f"{self._world.now_s:10.4f}{who}:   log {record.levelname}: {text}")
