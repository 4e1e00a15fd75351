"""Supervisor of the processes of a run on this machine: it starts and replaces them, and ends all."""

from __future__ import annotations

import logging
import multiprocessing.connection
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ding_like.comm.workers.child import ChildProcess, ChildThread, error_of
from ding_like.comm.workers.failures import FailureLog, FailurePolicy, FailureRow, RestartBudget, describe_spent
from ding_like.errors import CommError, TrainingError
from ding_like.types import Json

_LOOK_S = 0.2  # the longest wait for an end or a message, after which deadlines are looked at
_AWAY_S = 1.0  # between two looks: this process was stopped meanwhile, and could not receive anything
_BACKOFF_S, _MAX_BACKOFF_S = 0.1, 5.0  # before one that died while it started is started again, doubled each time
_KILL_S = 5.0  # for processes that were killed to be gone

_logger = logging.getLogger(__name__)

Member: TypeAlias = ChildProcess | ChildThread


@dataclass(eq=False)
class Slot:
    """Place of one process after another, and its state, which only the thread of `Processes` changes.

    `make` gets the number of processes that have filled it before. `sources` are the names whose messages show that it
    works; one that has none is never silent.
    """

    name: str
    make: Callable[[int], Member]
    sources: tuple[str, ...] = ()
    member: Member | None = field(default=None, init=False)
    state: str = field(default="empty", init=False)  # "starting", "working", "waiting" after a loss, "done", "closed"
    since_s: float = field(default=0.0, init=False)  # that it is in this state
    due_s: float = field(default=0.0, init=False)  # when it is to be ready, or to be started again
    number: int = field(default=0, init=False)  # of processes that it has had
    deaths: int = field(default=0, init=False)  # in a row before one was ready
    loss: FailureRow | None = field(default=None, init=False)  # that is to be made good
    lost_s: float = field(default=0.0, init=False)
    excused: dict[str, float] = field(default_factory=dict, init=False)  # sources of lost parts: silent until then

    @property
    def kind(self) -> str:
        """The name without its number."""
        return self.name.rstrip("0123456789")


class Processes:
    """Supervisor of processes, one for each slot.

    One that ends, is not ready `start_timeout_s` after its start, or has a source without a message for
    `step_timeout_s` is killed and replaced, within a budget for each kind. `heard` returns when the last message of
    each source came, by the monotonic clock, and `lost` how many ordered rows are lost with some sources. Once a budget
    is spent, the run has failed ("stop"), or goes on without, as long as there is one of each kind ("shrink"): `check`
    raises why.
    """

    def __init__(
        self,
        slots: Sequence[Slot],
        *,
        policy: FailurePolicy | None = None,
        log: FailureLog | None = None,
        heard: Callable[[], Mapping[str, float]] = dict,
        lost: Callable[[Sequence[str]], int] = lambda _: 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy = policy or FailurePolicy()
        self._log = log or FailureLog()
        self._heard, self._lost, self._clock = heard, lost, clock
        self._slots = slots
        kinds = {slot.kind for slot in slots}
        self._budgets = {kind: RestartBudget(self._policy.restarts_per_10min, clock=clock) for kind in kinds}
        self._parts: dict[str, tuple[FailureRow, float]] = {}  # parts of processes that were lost, and when
        self._changed = threading.Condition()  # guards the next two, and reports every change of a slot
        self._failure: Exception | None = None
        self._is_stopping = False
        self._awake_s = clock()  # when the thread ran last
        self._blind_until_s = float("-inf")  # it did not run for a while before, and could receive nothing
        self._thread = threading.Thread(target=self._watch, name="supervision", daemon=True)

    # --- from any thread

    def start(self, *, is_leaving: Callable[[], bool] = lambda: False) -> bool:
        """Start all, and wait until they are ready; False: `is_leaving` became true before.

        If one cannot be started, all are ended, and what it reported is raised; TrainingError if it was not ready in
        time.
        """
        try:
            self._thread.start()
            with self._changed:
                while not self._is_stopping and any(slot.state != "working" for slot in self._slots):
                    self.check()
                    if is_leaving():
                        return False
                    self._changed.wait(_LOOK_S)
            self.check()
        except BaseException:
            self.close()
            raise
        return True

    def check(self) -> None:
        """Raise why the run cannot go on, if it cannot."""
        if self._failure is not None:
            raise self._failure

    def describe(self) -> dict[str, str]:
        """Return the states of the processes: rows of a run's panel."""
        rows: dict[str, str] = {}
        for kind in self._budgets:
            slots = [slot for slot in self._slots if slot.kind == kind]
            num_working = sum(slot.state == "working" for slot in slots)
            if num_working < len(slots):
                rows[kind] = f"{num_working} of {len(slots)} at work"
        return {**rows, "failures": str(self._log)} if self._log.rows else rows

    def is_expected(self, source: str) -> bool:
        """Return whether a source is one of these processes', which works or is to be replaced."""
        return any(
            source in slot.sources and slot.state not in ("done", "closed") and slot.excused.get(source) != float("inf")
            for slot in self._slots
        )

    @property
    def pids(self) -> dict[str, int]:
        """The process ids of those that are ready, by slot."""
        members = {slot.name: slot.member for slot in self._slots if slot.state == "working"}
        return {name: member.pid for name, member in members.items() if member is not None and member.pid is not None}

    def close(self, *, timeout_s: float = 10.0) -> None:
        """Ask all to end, kill those that have not after half of `timeout_s`, and release them; may be called again."""
        self._is_stopping = True
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        members = [slot.member for slot in reversed(self._slots) if slot.member is not None]
        for member in members:
            member.terminate()
        left = self._await_ends(members, timeout_s / 2)
        for member in left:
            member.kill()
        for member in self._await_ends(left, _KILL_S):
            _logger.warning("process %s was killed and is still there.", member.pid)
        for member in members:
            member.release()
        for slot in self._slots:
            slot.member, slot.state = None, "closed"

    def _await_ends(self, members: Iterable[Member], timeout_s: float) -> list[Member]:
        """Return those that have not ended after `timeout_s`."""
        deadline_s, left = self._clock() + timeout_s, [member for member in members if member.is_alive()]
        while left and (left_s := deadline_s - self._clock()) > 0:
            multiprocessing.connection.wait([member.sentinel for member in left], left_s)
            left = [member for member in left if member.is_alive()]
        return left

    # --- in the thread that watches

    def _watch(self) -> None:
        try:
            while not self._is_stopping:
                if self._failure is None:
                    self._look_at_deadlines()
                members = [slot.member for slot in self._slots if slot.member is not None]
                ends = [member.reports for member in members if member.reports is not None]
                multiprocessing.connection.wait([*ends, *(member.sentinel for member in members)], _LOOK_S)
                for slot in self._slots:
                    if slot.member is not None:
                        self._look_at(slot, slot.member)
        except BaseException as error:  # any error of this thread ends the watch; `check` raises it
            self._fail(error if isinstance(error, Exception) else CommError(f"the supervisor has failed: {error!r}"))

    def _look_at_deadlines(self) -> None:
        """Start what is due, and kill what is late."""
        heard, now_s = self._heard(), self._clock()
        if now_s - self._awake_s > _AWAY_S:
            self._blind_until_s = now_s
        self._awake_s = now_s
        for slot in self._slots:
            if slot.state in ("empty", "waiting") and now_s >= slot.due_s:
                self._start(slot)
            elif slot.state == "starting" and now_s >= slot.due_s:
                how = f"was not ready {self._policy.start_timeout_s:g} s after its start (failure.start_timeout_s)"
                self._lose(slot, how, TrainingError(f"{slot.name} {how}: raise it, or see what the process waits for."))
            elif slot.state == "working":
                least_s = max(slot.since_s, self._blind_until_s)
                for source in slot.sources:
                    last_s = max(heard.get(source, least_s), least_s, slot.excused.get(source, least_s))
                    if slot.state == "working" and now_s - last_s >= self._policy.step_timeout_s:
                        self._lose(slot, f"{source} was silent for {self._policy.step_timeout_s:g} s")

    def _start(self, slot: Slot) -> None:
        slot.excused.clear()
        self._move(slot, "starting", within_s=self._policy.start_timeout_s)
        slot.number += 1
        try:
            slot.member = slot.make(slot.number - 1)
            slot.member.start()
        except Exception as error:  # starting runs the user's code; the loss is counted and reported
            self._lose(slot, f"could not be started: {error}", error)

    def _look_at(self, slot: Slot, member: Member) -> None:
        """Take a process's messages, and see whether it has ended: what it sent before counts."""
        has_ended = not member.is_alive()
        for message in member.take_messages():
            self._take_message(slot, message)
        if has_ended and slot.state == "done":
            member.release()
            slot.member = None
        elif has_ended:
            self._lose(slot, member.how_it_ended(), member.error())

    def _take_message(self, slot: Slot, message: Mapping[str, Json]) -> None:
        kind, worker = message["kind"], str(message.get("worker", ""))
        if kind == "ready":
            self._note_ready(slot)
        elif kind == "lost":
            how, lost = f"{message['type']}: {message['text']}", self._lost([worker])
            row = self._log.note(worker, how=how, rows_lost=lost, detail=f"a thread of {slot.name}")
            self._parts[worker] = row, self._clock()
            slot.excused[worker] = self._clock() + self._policy.start_timeout_s
        elif kind == "back" and worker in self._parts:
            row, lost_s = self._parts.pop(worker)
            self._log.amend(row, replaced_by=worker, replaced_ms=self._ms_since(lost_s))
            slot.excused[worker] = self._clock()
        elif kind == "gone":
            slot.excused[worker] = float("inf")
            if self._policy.when_spent == "stop":
                self._fail(error_of(worker, message))
        elif kind == "done":
            self._move(slot, "done")

    def _note_ready(self, slot: Slot) -> None:
        slot.deaths = 0
        self._move(slot, "working")
        if slot.loss is not None:
            ms = self._ms_since(slot.lost_s)
            self._log.amend(slot.loss, replaced_by=f"{slot.name} (start {slot.number})", replaced_ms=ms)
            _logger.info("%s was lost and replaced after %.0f ms.", slot.name, ms)
            slot.loss = None

    def _lose(self, slot: Slot, how: str, error: Exception | None = None) -> None:
        """Record that a process is lost and kill it; have another one started, or fail the run.

        The run fails if the first one in a slot had an error before it was ready: the next one would have it too.
        """
        state, member = slot.state, slot.member
        slot.member = None
        if member is not None:
            member.kill()
            self._await_ends([member], _KILL_S)
            member.release()
        slot.lost_s = self._clock()
        detail = "" if error is None else f"{type(error).__name__}: {error}"
        slot.loss = self._log.note(slot.name, how=how, role=state, rows_lost=self._lost(slot.sources), detail=detail)
        _logger.warning("%s is lost: %s%s", slot.name, how, f" ({detail})" if detail else "")
        if error is not None and slot.number == 1 and state == "starting":
            self._move(slot, "closed")
            self._fail(error)
        elif self._budgets[slot.kind].spend():
            slot.deaths += state == "starting"
            backoff_s = min(_BACKOFF_S * 2**slot.deaths, _MAX_BACKOFF_S) if slot.deaths else 0.0
            self._move(slot, "waiting", within_s=backoff_s)
        else:
            self._move(slot, "closed")
            others = [each for each in self._slots if each.kind == slot.kind and each.state != "closed"]
            if self._policy.when_spent == "stop" or not others:
                spent = TrainingError(describe_spent(slot.loss, self._policy, least=1))
                spent.__cause__ = error
                self._fail(spent)

    def _ms_since(self, then_s: float) -> float:
        return round(1000 * (self._clock() - then_s), 1)

    def _move(self, slot: Slot, state: str, *, within_s: float = 0.0) -> None:
        with self._changed:
            slot.state, slot.since_s = state, self._clock()
            slot.due_s = slot.since_s + within_s
            self._changed.notify_all()

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()
