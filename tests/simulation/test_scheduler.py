"""Threads on virtual time behave as real ones do, and what goes wrong with them is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.primitives import fake_threading
from tests.simulation.scheduler import KilledError, SimulationFailure, World


def run(world: World, *targets: Callable[[], None]) -> None:
    """Run threads of one process until they have ended."""
    process = world.process("p", "worker")
    threads = [process.spawn(target, f"t{number}") for number, target in enumerate(targets)]

    def look() -> None:
        world.is_done = all(thread.has_ended for thread in threads)
        if not world.is_done:
            world.after(1.0, look)

    world.after(1.0, look)
    try:
        world.run()
    finally:
        world.close()


def test_time_passes_only_while_all_wait() -> None:
    world = World(0)
    ends: list[float] = []

    def wait(seconds: float) -> Callable[[], None]:
        return lambda: (world.sleep(seconds), ends.append(world.now_s - 1000.0))[0]

    run(world, wait(2.0), wait(0.5), wait(1000.0))

    assert ends == [0.5, 2.0, 1000.0]


def test_a_condition_wakes_who_waits_and_times_out() -> None:
    world = World(0)
    threading = fake_threading(world)
    changed = threading.Condition()
    items: list[int] = []
    found: list[object] = []

    def take() -> None:
        with changed:
            found.append(changed.wait_for(lambda: items, 5.0))
            found.append(changed.wait(3.0))

    def put() -> None:
        world.sleep(1.0)
        with changed:
            items.append(1)
            changed.notify_all()

    run(world, take, put)

    assert found == [[1], False] and 1004.0 <= world.now_s <= 1006.0


def test_a_lock_is_one_threads() -> None:
    world = World(0)
    lock = fake_threading(world).Lock()
    inside: list[int] = []

    def work() -> None:
        for _ in range(20):
            with lock:
                inside.append(1)
                world.sleep(0.1)
                assert sum(inside) == 1
                inside.pop()

    run(world, work, work, work)

    assert world.now_s >= 1006.0


def test_a_killed_process_unwinds_and_touches_nothing() -> None:
    world = World(0)
    threading = fake_threading(world)
    event, seen = threading.Event(), []

    def work() -> None:
        try:
            event.wait(100.0)
        finally:
            with pytest.raises(KilledError):
                event.wait(1.0)
            seen.append("unwound")

    process = world.process("p", "worker")
    process.spawn(work, "t")
    world.after(1.0, lambda: world.kill(process))
    world.after(2.0, lambda: setattr(world, "is_done", True))
    world.run()

    assert seen == ["unwound"] and not process.threads


def test_a_paused_process_goes_on_where_it_was() -> None:
    world = World(0)
    ends: list[float] = []

    def work() -> None:
        for _ in range(3):
            world.sleep(1.0)
            ends.append(world.now_s - 1000.0)

    process = world.process("p", "worker")
    process.spawn(work, "t")
    world.after(1.5, lambda: world.pause(process))
    world.after(20.0, lambda: world.go_on(process))
    world.after(30.0, lambda: setattr(world, "is_done", True))
    world.run()
    world.close()

    assert ends == [1.0, 20.0, 21.0]


def test_a_deadlock_is_found() -> None:
    world = World(0)
    threading = fake_threading(world)
    one, two = threading.Lock(), threading.Lock()

    def take(first: object, second: object) -> Callable[[], None]:
        def work() -> None:
            with first:  # type: ignore[attr-defined]
                world.sleep(1.0)
                with second:  # type: ignore[attr-defined]
                    pass

        return work

    process = world.process("p", "worker")
    process.spawn(take(one, two), "t1")
    process.spawn(take(two, one), "t2")

    with pytest.raises(SimulationFailure, match="deadlock"):
        world.run()
    world.close()


def test_threads_that_spin_are_found() -> None:
    world = World(0)
    event = fake_threading(world).Event()

    def spin() -> None:
        while not event.is_set():
            world.sleep(0.0)

    with pytest.raises(SimulationFailure, match="spin"):
        run(world, spin, spin)
