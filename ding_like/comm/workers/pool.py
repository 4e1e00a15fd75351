"""Keep a number of workers at work on a host: start them, have others stand by, and replace those that are lost.

Each worker has a thread of the pool's own that waits until it is ready and then until it ends, so that the death of an
idle worker is known as soon as that of one that works: a host's `wait` cannot be told of calls that begin meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ding_like.comm.workers.ending import end_workers, join_threads
from ding_like.comm.workers.failures import FailureLog, FailurePolicy, FailureRow, RestartBudget, describe_spent
from ding_like.comm.workers.host import Call, Host, Resources, WorkerHandle, WorkerLostError
from ding_like.errors import CommError, ConfigError, TrainingError

_LOOK_S = 60.0  # the longest wait for a worker's end; then its thread waits again
_GRACE_S = 1.0  # for a thread to report what the caller waits for too


@dataclass(eq=False)
class _Place:
    """Be what one worker after another works at."""

    member: _Member | None = None  # that works here or is to; None: whoever is ready next
    is_open: bool = True  # False: it was given up
    loss: FailureRow | None = None  # that is to be made good
    lost_s: float = 0.0


@dataclass(eq=False)
class _Member:
    """Hold what the pool knows of one worker."""

    worker: WorkerHandle
    place: _Place | None  # where it works, is to, or has worked
    state: str = "starting"  # then "standby", "preparing" for a place, "working", and at last "gone"
    info: Any = None  # Any: what its `ready` returned
    error: Exception | None = None  # why it could not start
    row: FailureRow | None = None  # of its loss
    thread: threading.Thread | None = None


class WorkerPool:
    """Have `number` workers at work, and `standby` more that are ready to take over; threads may share it.

    `make(index)` returns what makes the worker of that index where it runs; indexes begin at 1 and are never used
    again, and the worker is named by kind and index ("collector3"). A worker has the methods `ready()`, which returns
    when it can work, and `stop()`. `prepare` is called before a worker is given work, to send it the newest weights
    say; it may return a call to wait for. `last_action` returns what a lost worker did last, "" if that is not known.

    A worker that is lost is replaced by one that stands by, and another one is started for that one; each such loss
    takes one restart of the policy's budget, and so does one of a worker that stands by or starts. Once there is none
    left, a lost worker's place stays empty ("shrink", down to `least` workers) or the pool has failed ("stop"):
    `check` and `lost` raise what went wrong in the pool's threads, so call `check` once a turn.

    Raises, having ended all workers, what a worker's `make` or `ready` raised, and TrainingError if the workers are
    not ready in time.
    """

    def __init__(
        self,
        host: Host,
        make: Callable[[int], Callable[[], object]],
        *,
        kind: str,
        number: int,
        resources: Resources,
        log: FailureLog,
        policy: FailurePolicy | None = None,
        standby: int = 1,
        prepare: Callable[[WorkerHandle], Call | None] | None = None,
        least: int = 1,
        last_action: Callable[[WorkerHandle], str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if number < 0 or standby < 0 or least < 0:
            raise ConfigError(f"a pool of {number} workers, {standby} standing by, at least {least}: set none below 0.")
        self._host = host
        self._make = make
        self._kind = kind
        self._resources = resources
        self._log = log
        self._policy = FailurePolicy() if policy is None else policy
        self._prepare = prepare
        self._least = least
        self._last_action = last_action
        self._clock = clock
        self._changed = threading.Condition()  # holds all below
        self._budget = RestartBudget(self._policy.restarts_per_10min, clock=clock)
        self._places: list[_Place] = []
        self._members: dict[str, _Member] = {}  # all that there ever were, by name
        self._standbys: deque[_Member] = deque()  # that are ready
        self._num_standbys = standby
        self._num_coming = 0  # that are about to be started
        self._next_index = 1
        self._failure: Exception | None = None
        self._spent_on: FailureRow | None = None  # the loss that the budget was too small for
        self._is_stopping = False
        try:
            self.add(number)
            for index in self._take_indexes(standby):
                self._start(index)
        except BaseException:
            self.stop()
            raise

    # --- what there is

    @property
    def workers(self) -> list[WorkerHandle]:
        """Return the workers that work now, by place; one that is being replaced is missing."""
        with self._changed:
            members = [place.member for place in self._places]
        return [member.worker for member in members if member is not None and member.state == "working"]

    @property
    def taking_over(self) -> list[WorkerHandle]:
        """Return the workers that are being prepared for a place."""
        with self._changed:
            return [member.worker for member in self._members.values() if member.state == "preparing"]

    @property
    def standbys(self) -> list[WorkerHandle]:
        """Return the workers that stand by and are ready."""
        with self._changed:
            return [member.worker for member in self._standbys]

    def info(self, worker: WorkerHandle) -> Any:  # Any: as the worker's class has it
        """Return what a worker's `ready` returned."""
        return self._member(worker).info

    def place_of(self, worker: WorkerHandle) -> int | None:
        """Return the place, from 0, that a worker has or had; None for one without, or whose place was given up."""
        member = self._member(worker)
        with self._changed:
            return self._places.index(member.place) if member.place in self._places else None

    def check(self) -> None:
        """Raise what went wrong in the pool's threads: a budget that is spent, a host that is lost."""
        with self._changed:
            if self._spent_on is not None:
                raise TrainingError(describe_spent(self._spent_on, self._policy, least=self._least))
            if self._failure is not None:
                raise self._failure

    @property
    def has_failed(self) -> bool:
        """Tell whether `check` raises."""
        with self._changed:
            return self._failure is not None

    def wait_ready(self, *, timeout_s: float, standbys: bool = True) -> bool:
        """Wait until every place has its worker, and all `standbys` are ready; tell whether they are by then.

        Raises what `check` raises.
        """

        def is_complete() -> bool:
            return all(map(_is_filled, self._places)) and (not standbys or len(self._standbys) >= self._num_standbys)

        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or is_complete(), timeout_s)
            is_ready = is_complete()
        self.check()
        return is_ready

    def _member(self, worker: WorkerHandle) -> _Member:
        with self._changed:
            if worker.name not in self._members:
                raise CommError(f"{worker.name} is no worker of this pool of kind '{self._kind}'.")
            return self._members[worker.name]

    # --- more and fewer

    def add(self, number: int) -> list[WorkerHandle]:
        """Start more workers, all at once, and return them when they are ready.

        Raises what `make` or `ready` raised of one that cannot start, and TrainingError if they are not ready in time;
        then none is added.
        """
        self.check()
        places = [_Place() for _ in range(number)]
        try:
            indexes = self._take_indexes(number)
            starting = [self._start(index, place) for index, place in zip(indexes, places, strict=True)]
            self._await_filled(places, starting)
        except BaseException:
            self._withdraw(places)
            raise
        with self._changed:
            return [place.member.worker for place in places if place.member is not None]

    def _await_filled(self, places: Sequence[_Place], starting: Sequence[_Member]) -> None:
        def has_failed() -> bool:
            return self._failure is not None or any(member.error is not None for member in starting)

        timeout_s = self._policy.start_timeout_s
        with self._changed:
            is_over = self._changed.wait_for(
                lambda: has_failed() or all(map(_is_filled, places)), timeout_s + _GRACE_S if places else 0.0
            )
        self.check()
        for member in starting:
            if member.error is not None:
                raise member.error
        if not is_over:
            raise self._late("Workers died while they started, and others took their place")

    def _withdraw(self, places: Sequence[_Place]) -> None:
        with self._changed:
            members = [place.member for place in places if place.member is not None]
            self._give_up(places, members)
        self._end(members, timeout_s=0.0)

    def _give_up(self, places: Sequence[_Place], members: Sequence[_Member]) -> None:
        for member in members:
            member.state = "gone"
        for place in places:
            place.is_open, place.member = False, None
            if place in self._places:
                self._places.remove(place)
        self._changed.notify_all()

    def remove(self, names: Iterable[str], *, timeout_s: float = 10.0) -> None:
        """Stop workers, by name, and give up their places. Raises ConfigError for names of none that works."""
        with self._changed:
            found = {place.member.worker.name: place for place in self._places if place.member is not None}
            names = list(dict.fromkeys(names))
            unknown = [name for name in names if name not in found]
            if unknown:
                raise ConfigError(f"no worker is named {', '.join(unknown)}; there are {', '.join(found) or 'none'}.")
            if len(self._places) - len(names) < self._least:
                raise ConfigError(
                    f"{len(names)} of {len(self._places)} workers cannot be removed: at least {self._least} must stay."
                )
            places = [found[name] for name in names]
            members = [place.member for place in places if place.member is not None]
            self._give_up(places, members)
        self._end(members, timeout_s=timeout_s)

    # --- the life of a worker

    def _take_indexes(self, number: int) -> range:
        with self._changed:
            first, self._next_index = self._next_index, self._next_index + number
        return range(first, first + number)

    def _start(self, index: int, place: _Place | None = None) -> _Member:
        """Start a worker, for a place or to stand by, and the thread that looks after it."""
        name = f"{self._kind}{index}"
        worker = self._host.start(self._make(index), name=name, resources=self._resources)
        member = _Member(worker, place)
        member.thread = threading.Thread(target=self._look_after, args=(member,), name=f"watch {name}", daemon=True)
        with self._changed:
            self._members[name] = member
            is_wanted = not self._is_stopping
            if place is not None and is_wanted:
                place.member = member
                self._places.append(place)
        if is_wanted:
            member.thread.start()
        else:  # the pool was stopped meanwhile
            member.state = "gone"
            self._host.kill(worker)
        return member

    def _look_after(self, member: _Member) -> None:
        try:
            loss = self._bring_up(member)
            while loss is None and member.state != "gone":
                if self._host.wait([member.worker.ended], timeout_s=_LOOK_S):
                    loss = ("process died", _said_by(member.worker.ended))
            if loss is not None:
                self._lose(member, *loss)
        except Exception as error:  # any error of this thread; `check` raises it
            self._fail(error)

    def _bring_up(self, member: _Member) -> tuple[str, str] | None:
        """Wait until a worker is ready, and take it in; or return how it was lost."""
        ready = member.worker.call("ready")
        if not self._host.wait([ready], timeout_s=self._policy.start_timeout_s):
            late = f"not ready {self._policy.start_timeout_s:g} s after its start"
            return self._refuse(member, late, self._late(f"{member.worker.name} was {late}"))
        try:
            info = ready.result()
        except WorkerLostError as lost:
            return "process died while it started", str(lost)
        except Exception as error:  # a worker's code may raise anything; `_refuse` reports it
            return self._refuse(member, "could not start", error)
        with self._changed:
            if member.state == "gone":
                return None
            member.info = info
            pairs = []
            if member.place is None:
                member.state = "standby"
                self._standbys.append(member)
                pairs = self._match()
            else:
                pairs, member.state = [(member, member.place)], "preparing"
            self._changed.notify_all()
        for each, place in pairs:
            self._employ(each, place)
        return None

    def _refuse(self, member: _Member, how: str, error: Exception) -> tuple[str, str] | None:
        """Leave it to whoever waits for a new place's first worker to raise why it could not start."""
        detail = f"{type(error).__name__}: {error}"
        if member.place is None:
            return how, detail
        with self._changed:
            if member.state != "gone":
                member.row = self._log.note(member.worker.name, how=how, detail=detail, role="starting")
                member.state, member.error = "gone", error
                self._changed.notify_all()
        return None

    def _match(self) -> list[tuple[_Member, _Place]]:
        """Pair empty places with workers that stand by; the lock is held."""
        pairs = []
        for place in self._places:
            if place.member is None and self._standbys:
                member = self._standbys.popleft()
                member.state, member.place, place.member = "preparing", place, member
                pairs.append((member, place))
        return pairs

    def _employ(self, member: _Member, place: _Place) -> None:
        """Prepare a worker for its place, and count it among those that work."""
        if self._host.wait([member.worker.ended], timeout_s=0.0):
            return self._lose(member, "process died", _said_by(member.worker.ended))
        try:
            under_way = None if self._prepare is None else self._prepare(member.worker)
            if under_way is not None:
                timeout_s = min(self._policy.start_timeout_s, self._policy.step_timeout_s)
                if not self._host.wait([under_way], timeout_s=timeout_s):
                    return self._lose(member, f"no answer for {timeout_s:g} s when it was to take over")
                under_way.result()
        except WorkerLostError as lost:
            return self._lose(member, "process died", str(lost))
        except Exception as error:  # `prepare` is the caller's code and may raise anything; `check` raises it
            return self._fail(error)
        with self._changed:
            if member.state != "preparing":  # it was lost, or the pool stopped, meanwhile
                return None
            member.state = "working"
            if place.loss is not None:
                replaced_ms = round(1000 * (self._clock() - place.lost_s), 3)
                self._log.amend(place.loss, replaced_by=member.worker.name, replaced_ms=replaced_ms)
                place.loss = None
            self._changed.notify_all()
        return None

    # --- losses

    def lost(
        self,
        worker: WorkerHandle,
        *,
        how: str,
        rows_lost: int = 0,
        last: str = "",
        detail: str = "",
        wait_s: float | None = None,
    ) -> WorkerHandle | None:
        """End a worker that is lost or hung, and return the one that has its place; None: the place was given up.

        `how` says in a few words how that is known, `detail` what it raised, say, and `last` what it did last. May be
        called for a worker whose loss is known already. Where no worker stands by, waits for one that starts:
        for at most `start_timeout_s`, then raises TrainingError (or returns None where the pool may shrink: the place
        is taken later). With `wait_s` it waits for as long, and returns None then. Raises what `check` raises.
        """
        member = self._member(worker)
        self._lose(member, how, detail, rows_lost=rows_lost, last=last)
        place, may_shrink = member.place, self._policy.when_spent == "shrink"
        with self._changed:
            if place is not None:
                self._changed.wait_for(
                    lambda: self._failure is not None or self._is_stopping or not place.is_open or _is_filled(place),
                    self._policy.start_timeout_s if wait_s is None else wait_s,
                )
            found = place.member.worker if place is not None and place.member and _is_filled(place) else None
            is_late = found is None and place is not None and place.is_open and not self._is_stopping
        self.check()
        if is_late and wait_s is None and not may_shrink:
            raise self._late(f"{worker.name} was lost ({how}), and no other took its place")
        return found

    def _lose(self, member: _Member, how: str, detail: str = "", *, rows_lost: int = 0, last: str = "") -> None:
        """Take note of a loss, once, and make it good as far as the budget goes."""
        if not last and member.row is None and self._last_action is not None:
            last = self._last_action(member.worker)
        with self._changed:
            if member.row is not None and (rows_lost or last):
                self._log.amend(member.row, rows_lost=member.row.rows_lost + rows_lost, last=last or member.row.last)
            if member.row is not None or member.state == "gone" or self._is_stopping:
                return
            member.row = self._log.note(
                member.worker.name, how=how, detail=detail, rows_lost=rows_lost, last=last, role=_ROLES[member.state]
            )
            if member in self._standbys:
                self._standbys.remove(member)
            member.state = "gone"
            if member.place is not None:
                member.place.member = None
                if member.place.loss is None:  # of two in a row the first is made good
                    member.place.loss, member.place.lost_s = member.row, self._clock()
            is_replaced = self._failure is None and self._budget.spend()
            self._num_coming += is_replaced
            pairs = self._pairs_after(member.row, is_replaced=is_replaced)
            self._changed.notify_all()
        self._host.kill(member.worker)  # a hung one must not come back
        for each, place in pairs:
            self._employ(each, place)
        if is_replaced:
            try:
                self._start(*self._take_indexes(1))
            finally:
                with self._changed:
                    self._num_coming -= 1

    def _pairs_after(self, row: FailureRow, *, is_replaced: bool) -> list[tuple[_Member, _Place]]:
        """Say who takes which place after a loss; the lock is held."""
        if is_replaced:
            return self._match()
        if self._failure is not None or self._policy.when_spent == "stop":
            self._fail_on(row)
            return []
        pairs = self._match()
        supply = self._num_coming + sum(
            member.state == "starting" and member.place is None for member in self._members.values()
        )
        for place in [place for place in self._places if place.member is None][supply:]:
            if len(self._places) <= self._least:
                self._fail_on(row)
                return pairs
            self._places.remove(place)
            place.is_open = False
        return pairs

    def _fail_on(self, row: FailureRow) -> None:
        if self._failure is None:
            self._spent_on, self._failure = row, TrainingError(row.worker)  # `check` says it, with all that is known

    def _fail(self, error: Exception) -> None:
        with self._changed:
            if self._failure is None and not self._is_stopping:
                self._failure = error
                self._changed.notify_all()

    def _late(self, what: str) -> TrainingError:
        need = self._resources
        return TrainingError(
            f"{what} within failure.start_timeout_s={self._policy.start_timeout_s:g} s. See that num_cpus="
            f"{need.num_cpus:g} and num_gpus={need.num_gpus:g} are free for each worker, or raise start_timeout_s."
        )

    # --- the end

    def stop(self, *, timeout_s: float = 10.0) -> None:
        """End all workers: ask them to `stop`, for half of the time, then kill them; may be called again.

        A worker does what it was called for before; whoever wants it to end early tells it so before.
        """
        with self._changed:
            self._is_stopping = True
            members = [member for member in self._members.values() if member.state != "gone"]
            starting = [member.worker for member in members if member.state == "starting"]
            self._give_up(list(self._places), members)
            self._standbys.clear()
            threads = [member.thread for member in self._members.values() if member.thread is not None]
        deadline_s = time.monotonic() + timeout_s
        self._end(members, timeout_s=timeout_s, starting=starting)
        join_threads(threads, deadline_s)

    def _end(self, members: Sequence[_Member], *, timeout_s: float, starting: Sequence[WorkerHandle] = ()) -> None:
        deadline_s = time.monotonic() + timeout_s + _GRACE_S
        ready = [member.worker for member in members if member.worker not in starting]
        end_workers(self._host, ready, timeout_s=timeout_s, starting=starting)
        join_threads([member.thread for member in members if member.thread is not None], deadline_s)


_ROLES = {"starting": "starting", "standby": "standby", "preparing": "standby", "working": "working"}


def _is_filled(place: _Place) -> bool:
    return place.member is not None and place.member.state == "working"


def _said_by(ended: Call) -> str:
    try:
        ended.result()
    except WorkerLostError as lost:
        return str(lost)
    return ""
