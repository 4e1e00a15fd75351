"""Break things, by a seed: kill, pause, cut off, fill disks, turn clocks; and mend them again."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.network import Weather

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

# Kind -> how often, beside the others.
KINDS = {
    "kill_collector": 3.0,
    "kill_learner": 3.0,
    "kill_coordinator": 2.0,
    "kill_at_commit": 3.0,
    "pause_collector": 2.0,
    "pause_learner": 3.0,
    "pause_coordinator": 2.0,
    "rough_network": 3.0,
    "cut_off": 2.0,
    "clock_jump": 2.0,
    "state_disk": 2.0,
    "data_disk": 2.0,
}


class Faults:
    """Break one thing after another until told to stop; then everything is mended."""

    def __init__(self, simulation: Simulation, kinds: tuple[str, ...]) -> None:
        self._simulation = simulation
        self._world = simulation.world
        self._kinds = kinds
        self.rng = Random(f"{simulation.world.seed}/faults")
        self._mend: dict[int, Callable[[], None]] = {}
        self._number = 0
        self.is_over = False

    def start(self) -> None:
        if self._kinds:
            self._world.after(self._pause_s(), self._next)

    def stop(self) -> None:
        """Mend everything, and break nothing more."""
        self.is_over = True
        self._world.note("faults are over")
        for number in list(self._mend):
            self._end(number)

    def _pause_s(self) -> float:
        return self.rng.expovariate(1.0 / self._simulation.plan.fault_every_s)

    def _next(self) -> None:
        if self.is_over or self._simulation.is_over:
            return
        kind = self.rng.choices(self._kinds, [KINDS[each] for each in self._kinds])[0]
        getattr(self, f"_{kind}")()
        self._world.after(self._pause_s(), self._next)

    def _begin(self, kind: str, what: str, seconds: float, mend: Callable[[], None]) -> None:
        """Count something as broken for so long."""
        self._simulation.count(kind)
        self._world.note(f"FAULT {kind} {what} for {seconds:.2f} s")
        self._number += 1
        number = self._number
        self._mend[number] = mend
        self._world.num_faults_active += 1
        self._world.after(seconds, lambda: self._end(number))

    def _end(self, number: int) -> None:
        mend = self._mend.pop(number, None)
        if mend is None:
            return
        mend()
        self._world.num_faults_active -= 1

    def _seconds(self) -> float:
        """Return how long something is broken: often a moment, at times beyond a lease."""
        return self.rng.choice([self.rng.uniform(0.05, 1.0), self.rng.uniform(1.0, 6.0), self.rng.uniform(6.0, 25.0)])

    # --- processes

    def _kill(self, role: str, kind: str) -> None:
        alive = self._simulation.alive(role)
        if not alive:
            return
        process = self.rng.choice(alive)
        seconds = self.rng.choice([0.1, self.rng.uniform(0.1, 3.0), self.rng.uniform(8.0, 15.0)])
        self._world.kill(process)
        self._simulation.died(process)
        self._begin(kind, process.name, seconds, lambda: self._simulation.replace(process))

    def _kill_collector(self) -> None:
        self._kill("collector", "kill_collector")

    def _kill_learner(self) -> None:
        self._kill("learner", "kill_learner")

    def _kill_coordinator(self) -> None:
        self._kill("coordinator", "kill_coordinator")

    def _kill_at_commit(self) -> None:
        """Let the coordinator die at its next commit, mostly when it is on file and before it is answered."""
        if self._simulation.alive("coordinator"):
            self._simulation.disks.kill_at_commit = self.rng.choice(["before", "after", "after"])

    def killed_at_commit(self) -> None:
        """Take the news that it did."""
        process = self._simulation.coordinator_process
        seconds = self.rng.uniform(0.1, 4.0)
        self._world.kill(process)
        self._simulation.died(process)
        self._begin("kill_at_commit", process.name, seconds, lambda: self._simulation.replace(process))

    def _pause(self, role: str) -> None:
        running = [each for each in self._simulation.alive(role) if not each.is_paused]
        if not running:
            return
        process = self.rng.choice(running)
        self._world.pause(process)
        self._begin(f"pause_{role}", process.name, self._seconds(), lambda: self._world.go_on(process))

    def _pause_collector(self) -> None:
        self._pause("collector")

    def _pause_learner(self) -> None:
        self._pause("learner")

    def _pause_coordinator(self) -> None:
        self._pause("coordinator")

    def _clock_jump(self) -> None:
        alive = self._simulation.alive()
        if not alive:
            return
        process = self.rng.choice(alive)
        process.wall_offset_s += self.rng.choice([-600.0, 600.0, self.rng.uniform(-900.0, 900.0)])
        self._begin("clock_jump", f"{process.name} to {process.wall_offset_s:.0f} s", 0.0, lambda: None)

    # --- network

    def _rough_network(self) -> None:
        network = self._simulation.network
        network.weather = Weather.ROUGH
        self._begin("rough_network", "all", self._seconds(), self._calm)

    def _calm(self) -> None:
        self._simulation.network.weather = Weather.CALM

    def _cut_off(self) -> None:
        workers = self._simulation.alive("collector") + self._simulation.alive("learner")
        if not workers:
            return
        name, cut_off = self.rng.choice(workers).name, self._simulation.network.cut_off
        if name not in cut_off:
            cut_off.add(name)
            self._begin("cut_off", name, self._seconds(), lambda: cut_off.discard(name))

    # --- disks

    def _state_disk(self) -> None:
        disks = self._simulation.disks
        if disks.state_fault is not None:
            return
        disks.state_fault = self.rng.choice(["full", "locked"])
        seconds = self.rng.choice([0.3, self.rng.uniform(0.1, 2.0), self.rng.uniform(2.0, 12.0)])
        self._begin("state_disk", str(disks.state_fault), seconds, lambda: setattr(disks, "state_fault", None))

    def _data_disk(self) -> None:
        disks = self._simulation.disks
        if disks.is_full:
            return
        disks.is_full = True
        self._begin("data_disk", "full", self._seconds(), lambda: setattr(disks, "is_full", False))
