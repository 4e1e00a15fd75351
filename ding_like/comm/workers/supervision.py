"""Start the processes of a run on this machine, replace those that die or fall silent, and see that all end."""

from __future__ import annotations

import logging
import multiprocessing.connection
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Protocol

from ding_like.comm.workers.child import error_of
from ding_like.comm.workers.failures import FailureLog, FailurePolicy, FailureRow, RestartBudget, describe_spent
from ding_like.errors import CommError, TrainingError

_LONGEST_S = 60.0  # of a wait for anything to happen; then it is waited again
_AWAY_S = 1.0  # later than asked for: this process was stopped meanwhile, and could not hear anybody
_BACKOFF_S, _MAX_BACKOFF_S = 0.1, 5.0  # before one that died while it started is started again, doubled each time
_SLICE_S = 0.5  # after which a start looks whether it is still wanted
_KILL_S = 5.0  # for processes that were killed to be gone

_logger = logging.getLogger(__name__)


class Member(Protocol):
    """Be what fills a place: a `ChildProcess`, or what behaves like one."""

    @property
    def pid(self) -> int | None: ...

    @property
    def exitcode(self) -> int | None:
        """Return the status that it ended with; below 0: the signal."""

    @property
    def sentinel(self) -> int:
        """Return what becomes readable when it has ended."""

    @property
    def reports(self) -> Connection | None:
        """Return what becomes readable when there are messages."""

    def start(self) -> None: ...

    def take_messages(self) -> Sequence[Mapping[str, Any]]:
        """Return what it has told, each with a `kind`: "ready" once it can work, "done" before it ends as it should.

        "lost", "back" and "gone" are about a part of it, with the part's name as `worker`: "lost" says by `type`,
        `text` and `trace` what it failed with, "back" that it works again, "gone", like "lost", that it will not.
        """

    def is_alive(self) -> bool: ...

    def error(self) -> Exception | None:
        """Return what it has told that it failed with."""

    def how_it_ended(self) -> str: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...

    def release(self) -> None: ...


@dataclass(frozen=True)
class Post:
    """Name a place for one process after another.

    `make` is given how many have filled it before. `sources` are the names under which it is heard while it works; one
    that has none is never silent, and others may be for `silent_s`, by default the policy's step_timeout_s.
    """

    name: str
    make: Callable[[int], Member]
    sources: tuple[str, ...] = ()
    silent_s: float | None = None

    @property
    def kind(self) -> str:
        """Return the name without its number."""
        return self.name.rstrip("0123456789")


@dataclass(eq=False)
class _Place:
    """Hold how a post stands. Only the thread that watches changes it, until that has ended."""

    post: Post
    member: Member | None = None
    state: str = "empty"  # then "starting", "working", after a loss "waiting", and at last "done" or "closed"
    since_s: float = 0.0  # that it is in this state
    due_s: float = 0.0  # when it is to be ready, or to be started again
    number: int = 0  # of members that it has had
    deaths: int = 0  # in a row before one was ready
    loss: FailureRow | None = None  # that is to be made good
    lost_s: float = 0.0
    excused: dict[str, float] = field(default_factory=dict)  # sources of lost parts: silent until then


class Processes:
    """Supervisor of processes, one for each post.

    One that ends, is not ready `start_timeout_s` after its start, or has a source that was not heard for
    `step_timeout_s` is killed and replaced, within a budget for each kind. `heard` returns when each source was heard
    last, by the monotonic clock, and `lost` how many ordered rows are lost with some sources. Once a budget is spent,
    the run has failed ("stop"), or goes on without, as long as there is one of each kind ("shrink"): `check` raises
    why.
    """

    def __init__(
        self,
        posts: Sequence[Post],
        *,
        policy: FailurePolicy | None = None,
        log: FailureLog | None = None,
        heard: Callable[[], Mapping[str, float]] = dict,
        lost: Callable[[Sequence[str]], int] = lambda _: 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy = policy or FailurePolicy()
        self._log = log or FailureLog()
        self._heard = heard
        self._lost = lost
        self._clock = clock
        self._places = [_Place(post) for post in posts]
        kinds = {place.post.kind for place in self._places}
        self._budgets = {kind: RestartBudget(self._policy.restarts_per_10min, clock=clock) for kind in kinds}
        self._parts: dict[str, tuple[FailureRow, float]] = {}  # parts of processes that were lost, and when
        self._changed = threading.Condition()  # guards the next three, and reports every change of a place
        self._failure: Exception | None = None
        self._is_stopping = False
        self._awake_s = clock()  # when the thread that watches was last seen to run
        self._blind_until_s = float("-inf")  # it did not run for a while before, and could hear nobody
        self._wake_read, self._wake_write = multiprocessing.connection.Pipe(duplex=False)
        self._thread = threading.Thread(target=self._watch, name="supervision", daemon=True)

    # --- from any thread

    def start(self, *, is_leaving: Callable[[], bool] = lambda: False) -> bool:
        """Start all, and wait until they are ready; False: `is_leaving` became true before.

        If one cannot be started, all are ended, and what it told is raised; TrainingError if it was not ready in time.
        """
        try:
            self._thread.start()
            with self._changed:
                while not self._is_settled():
                    if is_leaving():
                        return False
                    self._changed.wait(_SLICE_S)
            self.check()
        except BaseException:
            self.close()
            raise
        return True

    def check(self) -> None:
        """Raise why the run cannot go on, if it cannot."""
        with self._changed:
            if self._failure is not None:
                raise self._failure

    def describe(self) -> dict[str, str]:
        """Return how the processes stand: rows of a run's panel."""
        said: dict[str, str] = {}
        for kind in dict.fromkeys(place.post.kind for place in self._places):
            places = [place for place in self._places if place.post.kind == kind]
            at_work = sum(place.state == "working" for place in places)
            if at_work < len(places):
                said[kind] = f"{at_work} of {len(places)} at work"
        return {**said, "failures": str(self._log)} if self._log.rows else said

    def is_expected(self, source: str) -> bool:
        """Tell whether a source is one of these processes', which works or is to be replaced."""
        return any(
            source in place.post.sources
            and place.state not in ("done", "closed")
            and place.excused.get(source) != float("inf")
            for place in self._places
        )

    @property
    def pids(self) -> dict[str, int]:
        """Return the process ids of those that are ready, by post."""
        found = {
            place.post.name: place.member.pid for place in self._places if place.member and place.state == "working"
        }
        return {name: pid for name, pid in found.items() if pid is not None}

    def close(self, *, timeout_s: float = 10.0) -> None:
        """Ask all to end, kill those that have not after half of `timeout_s`, and release them; may be called again."""
        with self._changed:
            self._is_stopping = True
            self._wake()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        members = [place.member for place in reversed(self._places) if place.member is not None]
        for member in members:
            _whatever_happens(member.terminate)
        left = self._await_ends(members, timeout_s / 2)
        for member in left:
            _whatever_happens(member.kill)
        for member in self._await_ends(left, _KILL_S):
            _logger.warning("process %s was killed and is still there.", member.pid)
        for place in self._places:
            if place.member is not None:
                _whatever_happens(place.member.release)
            place.member, place.state = None, "closed"
        for end in (self._wake_read, self._wake_write):
            end.close()

    def _wake(self) -> None:
        if not self._wake_write.closed:
            self._wake_write.send_bytes(b"!")

    def _is_settled(self) -> bool:
        """Return whether all work, or one cannot; the condition is held."""
        return self._failure is not None or self._is_stopping or all(each.state == "working" for each in self._places)

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
                    self._start_what_is_due()
                    self._end_what_is_late()
                self._await_news()
                for place in self._places:
                    if place.member is not None:
                        self._look_at(place, place.member)
        except BaseException as error:  # any error of this thread ends the watch; `check` raises it
            failure = error if isinstance(error, Exception) else CommError(f"nobody is watched any more: {error!r}")
            self._fail(failure)

    def _start_what_is_due(self) -> None:
        now_s = self._clock()
        for place in self._places:
            if place.state == "empty" or (place.state == "waiting" and now_s >= place.due_s):
                self._start(place)

    def _start(self, place: _Place) -> None:
        place.excused.clear()
        self._move(place, "starting", within_s=self._policy.start_timeout_s)
        place.number += 1
        try:
            place.member = member = place.post.make(place.number - 1)
            member.start()
        except Exception as error:  # starting runs the user's code; the loss is counted and reported
            if place.member is not None and place.member.pid is not None:
                place.member.kill()
            self._lose(place, f"could not be started: {error}", error)
            return
        self._look_at(place, member)

    def _await_news(self) -> None:
        """Wait until a process ends or tells something, or something is due."""
        members = [place.member for place in self._places if place.member is not None]
        ends = [member.reports for member in members if member.reports is not None]
        asked_s = max(min(self._due_times(), default=_LONGEST_S) - self._clock(), 0.0)
        asked_s = min(asked_s, _LONGEST_S)
        self._note_awake(0.0)
        ready = multiprocessing.connection.wait([self._wake_read, *ends, *(each.sentinel for each in members)], asked_s)
        self._note_awake(asked_s)
        if self._wake_read in ready:
            self._wake_read.recv_bytes()

    def _note_awake(self, asked_s: float) -> None:
        """Take note of the time; nobody could be heard if much more than was asked for has passed since the last."""
        now_s = self._clock()
        if now_s - self._awake_s > asked_s + _AWAY_S:
            self._blind_until_s = now_s
        self._awake_s = now_s

    def _listen(self) -> Mapping[str, float]:
        self._note_awake(0.0)
        heard = self._heard()  # which may ask, and wait for answers
        self._awake_s = self._clock()
        return heard

    def _due_times(self) -> Iterable[float]:
        if self._failure is not None:
            return
        heard = self._listen()
        for place in self._places:
            if place.state in ("starting", "waiting"):
                yield place.due_s
            elif place.state == "working" and place.post.sources:
                yield self._heard_last(place, heard)[0] + self._silent_s(place)

    def _silent_s(self, place: _Place) -> float:
        return self._policy.step_timeout_s if place.post.silent_s is None else place.post.silent_s

    def _heard_last(self, place: _Place, heard: Mapping[str, float]) -> tuple[float, str]:
        """Return the source of a place that was not heard for the longest time, and when it was."""
        least_s = max(place.since_s, self._blind_until_s)
        return min(
            (max(heard.get(source, least_s), least_s, place.excused.get(source, least_s)), source)
            for source in place.post.sources
        )

    def _end_what_is_late(self) -> None:
        heard, now_s = self._listen(), self._clock()
        for place in self._places:
            member = place.member
            if member is None or not member.is_alive():
                continue
            if place.state == "starting" and now_s >= place.due_s:
                member.kill()
                how = f"was not ready {self._policy.start_timeout_s:g} s after its start (failure.start_timeout_s)"
                self._lose(place, how, is_sure=True)
            elif place.state == "working" and place.post.sources:
                last_s, source = self._heard_last(place, heard)
                if now_s - last_s >= self._silent_s(place):
                    member.kill()
                    self._lose(place, f"{source} was silent for {self._silent_s(place):g} s")

    def _look_at(self, place: _Place, member: Member) -> None:
        """Take a process's messages, and see whether it has ended: what it told before counts."""
        has_ended = not member.is_alive()
        for message in member.take_messages():
            self._hear(place, message)
        if has_ended and place.state == "done":
            member.release()
            place.member = None
        elif has_ended and place.member is member:
            status = member.exitcode
            self._lose(place, member.how_it_ended(), member.error(), is_sure=status is not None and status >= 0)

    def _hear(self, place: _Place, message: Mapping[str, Any]) -> None:
        worker = str(message.get("worker", ""))
        if message["kind"] == "ready":
            self._note_ready(place)
        elif message["kind"] == "lost":
            how, lost = f"{message['type']}: {message['text']}", self._lost([worker])
            row = self._log.note(worker, how=how, rows_lost=lost, detail=f"a thread of {place.post.name}")
            self._parts[worker] = row, self._clock()
            place.excused[worker] = self._clock() + self._policy.start_timeout_s
        elif message["kind"] == "back" and worker in self._parts:
            row, lost_s = self._parts.pop(worker)
            self._log.amend(row, replaced_by=worker, replaced_ms=_ms(self._clock() - lost_s))
            place.excused[worker] = self._clock()
        elif message["kind"] == "gone":
            place.excused[worker] = float("inf")
            if self._policy.when_spent == "stop":
                self._fail(error_of(worker, message))
        elif message["kind"] == "done":
            self._move(place, "done")

    def _note_ready(self, place: _Place) -> None:
        place.deaths = 0
        self._move(place, "working")
        if place.loss is not None:
            ms = _ms(self._clock() - place.lost_s)
            self._log.amend(place.loss, replaced_by=f"{place.post.name} (start {place.number})", replaced_ms=ms)
            _logger.info("%s was lost and replaced after %.0f ms.", place.post.name, ms)
            place.loss = None

    def _lose(self, place: _Place, how: str, error: Exception | None = None, *, is_sure: bool = False) -> None:
        """Take note of a process that is lost, and see that another one is started, or that the run ends.

        The run ends if the first one in a place failed with an error before it was ready, or `is_sure`: the next one
        would do so too.
        """
        role, name = place.state, place.post.name
        member, place.member = place.member, None
        if member is not None:
            self._await_ends([member], _KILL_S)
            member.release()
        place.lost_s = self._clock()
        rows_lost = self._lost(place.post.sources)
        detail = "" if error is None else f"{type(error).__name__}: {error}"
        place.loss = row = self._log.note(name, how=how, role=role, rows_lost=rows_lost, detail=detail)
        _logger.warning("%s is lost: %s%s", name, how, f" ({detail})" if detail else "")
        is_first = place.number == 1 and role == "starting"
        if is_first and (error is not None or "not ready" in how):  # it would happen again
            self._move(place, "closed")
            self._fail(
                error or TrainingError(f"{name} {how}: raise failure.start_timeout_s, or see what it waits for.")
            )
        elif self._budgets[place.post.kind].spend():
            place.deaths += role == "starting"
            backoff_s = min(_BACKOFF_S * 2**place.deaths, _MAX_BACKOFF_S) if place.deaths else 0.0
            self._move(place, "waiting", within_s=backoff_s)
        else:
            self._move(place, "closed")
            others = [each for each in self._places if each.post.kind == place.post.kind and each.state != "closed"]
            if self._policy.when_spent == "stop" or not others:
                spent = TrainingError(describe_spent(row, self._policy, least=1))
                spent.__cause__ = error
                self._fail(spent)

    def _move(self, place: _Place, state: str, *, within_s: float = 0.0) -> None:
        with self._changed:
            place.state, place.since_s = state, self._clock()
            place.due_s = place.since_s + within_s
            self._changed.notify_all()

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()


def _whatever_happens(act: Callable[[], object]) -> None:
    """Do it, and say what went wrong: the others are to be ended, too."""
    try:
        act()
    except Exception:  # one process that cannot be ended leaves the others to be ended
        _logger.warning("a process could not be ended in order:", exc_info=True)


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 1)
