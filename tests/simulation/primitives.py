"""Stand in for the modules threading, time, random and secrets: the same calls, on a world's virtual time."""

from __future__ import annotations

import random
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from tests.simulation.scheduler import SimThread, World


class Lock:
    """Simulated `threading.Lock` or, re-entrant, `threading.RLock`."""

    def __init__(self, world: World, *, is_reentrant: bool) -> None:
        self._world = world
        self._is_reentrant = is_reentrant
        self._owner: Any = None  # a SimThread, or the world outside of all threads
        self._depth = 0
        self._waiting: deque[tuple[SimThread, int]] = deque()

    def _me(self) -> Any:
        return self._world.current or self._world

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        self._world.maybe_give_way()
        deadline_s = None if timeout < 0 else self._world.now_s + timeout
        while self._is_taken():
            if not blocking:
                return False
            if not self._world.block(deadline_s, lambda thread, token: self._waiting.append((thread, token))) and (
                self._is_taken()
            ):
                return False
        self._owner = self._me()
        self._depth += 1
        return True

    def _is_taken(self) -> bool:
        owner = self._owner
        if owner is None or (self._is_reentrant and owner is self._me()):
            return False
        return not (isinstance(owner, SimThread) and not owner.process.is_alive)

    def release(self) -> None:
        self._world.check_alive()
        if self._owner is None:
            raise RuntimeError("release of a lock that no thread holds")
        self._depth -= 1
        if self._depth == 0:
            self._owner = None
            self._wake_one()

    def _wake_one(self) -> None:
        while self._waiting:
            if self._world.wake(*self._waiting.popleft()):
                return

    def locked(self) -> bool:
        return self._owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()

    # What a condition needs.
    def is_mine(self) -> bool:
        return self._owner is self._me()

    def let_go(self) -> int:
        depth, self._depth, self._owner = self._depth, 0, None
        self._wake_one()
        return depth

    def take_again(self, depth: int) -> None:
        while self._is_taken():
            self._world.block(None, lambda thread, token: self._waiting.append((thread, token)))
        self._owner, self._depth = self._me(), depth


class Condition:
    """Simulated `threading.Condition`."""

    def __init__(self, world: World, lock: Lock | None = None) -> None:
        self._world = world
        self._lock = lock or Lock(world, is_reentrant=True)
        self._waiting: deque[tuple[SimThread, int]] = deque()
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        if not self._lock.is_mine():
            raise RuntimeError("wait without the lock")
        deadline_s = None if timeout is None else self._world.now_s + max(timeout, 0.0)

        def register(thread: SimThread, token: int) -> None:
            self._waiting.append((thread, token))
            depths.append(self._lock.let_go())

        depths: list[int] = []
        is_woken = self._world.block(deadline_s, register)
        self._lock.take_again(depths[0])
        return is_woken

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        deadline_s = None if timeout is None else self._world.now_s + timeout
        result = predicate()
        while not result:
            left_s = None if deadline_s is None else deadline_s - self._world.now_s
            if left_s is not None and left_s <= 0:
                break
            self.wait(left_s)
            result = predicate()
        return result

    def notify(self, n: int = 1) -> None:
        if not self._lock.is_mine():
            self._world.check_alive()
            raise RuntimeError("notify without the lock")
        while n > 0 and self._waiting:
            n -= self._world.wake(*self._waiting.popleft())

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class Event:
    """Simulated `threading.Event`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._is_set = False
        self._waiting: list[tuple[SimThread, int]] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self._world.wake(*each)

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        self._world.check_alive()
        if not self._is_set:
            deadline_s = None if timeout is None else self._world.now_s + max(timeout, 0.0)
            self._world.block(deadline_s, lambda thread, token: self._waiting.append((thread, token)))
        return self._is_set


class Thread:
    """Simulated `threading.Thread`."""

    def __init__(
        self,
        world: World,
        target: Callable[..., Any],
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        daemon: bool | None = None,
    ) -> None:
        self._world = world
        self._call = lambda: target(*args, **(kwargs or {}))
        self.name = name or "thread"
        self.daemon = daemon
        self._thread: SimThread | None = None

    def start(self) -> None:
        self._world.check_alive()
        assert self._world.current is not None, "threads are started by threads"
        self._thread = self._world.current.process.spawn(self._call, self.name)

    def is_alive(self) -> bool:
        return self._thread is not None and not self._thread.has_ended

    def join(self, timeout: float | None = None) -> None:
        self._world.check_alive()
        thread = self._thread
        if thread is None:
            raise RuntimeError("cannot join a thread before it is started")
        if not thread.has_ended:
            deadline_s = None if timeout is None else self._world.now_s + max(timeout, 0.0)
            self._world.block(deadline_s, lambda waiting, token: thread.joiners.append((waiting, token)))


class Local:
    """Simulated `threading.local`."""

    def __init__(self, world: World) -> None:
        object.__setattr__(self, "_world", world)
        object.__setattr__(self, "_by_thread", {})

    def __getattr__(self, name: str) -> Any:
        try:
            return self._by_thread[self._world.current][name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self._by_thread.setdefault(self._world.current, {})[name] = value


def fake_threading(world: World) -> SimpleNamespace:
    """Return what stands for the module threading; whatever is missing fails loudly."""
    return SimpleNamespace(
        Lock=lambda: Lock(world, is_reentrant=False),
        RLock=lambda: Lock(world, is_reentrant=True),
        Condition=lambda lock=None: Condition(world, lock),
        Event=lambda: Event(world),
        Thread=lambda target=None, **kwargs: Thread(world, target, **kwargs),
        local=lambda: Local(world),
        get_ident=lambda: id(world.current),
        current_thread=lambda: world.current,
        main_thread=lambda: None,
    )


def fake_time(world: World) -> SimpleNamespace:
    """Return what stands for the module time."""
    return SimpleNamespace(
        monotonic=world.monotonic,
        perf_counter=world.monotonic,
        time=world.wall,
        sleep=world.sleep,
        strftime=time.strftime,
        gmtime=time.gmtime,
        localtime=time.localtime,
    )


def fake_random(world: World) -> SimpleNamespace:
    """Return what stands for the module random."""
    rng = random.Random(f"{world.seed}/random")
    names = ("random", "uniform", "randint", "randrange", "choice", "shuffle", "sample", "getrandbits")
    return SimpleNamespace(**{name: getattr(rng, name) for name in names}, Random=random.Random)


def fake_secrets(world: World) -> SimpleNamespace:
    """Return what stands for the module secrets."""
    rng = random.Random(f"{world.seed}/secrets")
    return SimpleNamespace(
        token_hex=lambda nbytes=32: rng.randbytes(nbytes).hex(),
        token_bytes=lambda nbytes=32: rng.randbytes(nbytes),
        randbelow=rng.randrange,
        compare_digest=secrets.compare_digest,
    )
