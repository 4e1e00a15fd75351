"""Build a run on virtual time, break it as a seed says, and see that it comes to its end with all accounts in order."""

from __future__ import annotations

import gc
import logging
import shutil
import tempfile
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from ding_like.comm import keys
from ding_like.comm.rest import client
from ding_like.config import compile_config
from ding_like.errors import CheckpointError, CommError
from ding_like.pipeline.parallel import comm_collector, comm_learner, coordinator
from ding_like.pipeline.parallel.core import state
from ding_like.pipeline.parallel.settings import read_system
from ding_like.utils import files
from tests.simulation import stand_ins
from tests.simulation.audit import Audit
from tests.simulation.disk import Connection, Disks
from tests.simulation.faults import KINDS, Faults
from tests.simulation.network import Network
from tests.simulation.patches import Patches, put_on_virtual_time, replace_everywhere
from tests.simulation.scheduler import Process, SimThread, SimulationFailure, TraceHandler, World

_CREATE = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"))
_ENOUGH = 10.0  # the value that ends a run
_CHECK_S = 1.0  # virtual seconds between two looks at everything
_END_S = 900.0  # in which a run must come to its end once nothing is broken any more
# In which workers must have ended after that: one that was out of reach then looks for the coordinator for 600 s.
_SEARCH_S = 700.0
_LEAVE_S = 15.0  # that workers have to leave a run that is over

FAULTS = tuple(KINDS)


@dataclass(frozen=True)
class Plan:
    """Settings of the run that a seed selects."""

    kind: str  # off_policy, priority or on_policy
    num_collectors: int
    num_learners: int
    step_s: float  # of an env step
    train_s: float  # of an update
    fault_every_s: float
    streams: bool  # segments and weights go through the coordinator
    eval_freq: int
    is_judged_worse: bool  # once, after an evaluation that was good enough

    @classmethod
    def of_seed(cls, seed: int, kind: str | None = None) -> Plan:
        rng = Random(f"{seed}/plan")
        drawn = rng.choice(["off_policy", "priority", "on_policy"])
        return cls(
            kind=kind or drawn,
            num_collectors=rng.randint(1, 4),
            num_learners=rng.choice([1, 1, 2]),
            step_s=rng.choice([0.01, 0.03, 0.06]),
            train_s=rng.choice([0.002, 0.01, 0.03]),
            fault_every_s=rng.choice([2.0, 4.0, 8.0]),
            streams=rng.random() < 0.25,
            eval_freq=rng.choice([10, 40, 100]),
            is_judged_worse=rng.random() < 0.3,
        )


@dataclass(frozen=True)
class Report:
    """Result of a simulation."""

    seed: int
    plan: Plan
    operations: int
    counts: Counter[str]
    virtual_s: float
    trace_hash: int


# What counts as an operation; the rest of the counts says how they went.
OPERATIONS = ("request", "copy_arrived", "file_write", "update", *FAULTS)


class Simulation:
    """Simulation of one run."""

    def __init__(
        self, seed: int, *, operations: int, faults: tuple[str, ...] = FAULTS, kind: str | None = None
    ) -> None:
        """Break things of the kinds `faults` for about `operations` operations, then let the run end."""
        self.seed = seed
        self.plan = Plan.of_seed(seed, kind)
        self.counts: Counter[str] = Counter()
        self.world = World(seed)
        self.rng = Random(f"{seed}/workers")
        self.network = Network(self.world, self.count)
        self.disks = Disks(self.world, self.count)
        self.audit = Audit(self)
        self.faults = Faults(self, faults)
        self._operations = operations
        self.num_operations = 0
        self._patches = Patches()
        self._processes: dict[str, Process] = {}  # by place: who is in it now
        self.coordinator: Any = None
        self.is_over = False  # the coordinator said so
        self._over_s = 0.0  # when
        self._quiet_since_s: float | None = None
        self._num_good = 0
        self._num_judged = 0
        self.batch_size = 16 if self.plan.kind == "on_policy" else 8
        self.world.on_thread_failed = self._thread_failed

    def count(self, what: str) -> None:
        self.counts[what] += 1
        if what in OPERATIONS:
            self.num_operations += 1

    # --- building

    def run(self) -> Report:
        """Run to the end. Raises SimulationFailure."""
        self._folder = Path(tempfile.mkdtemp(prefix="simulation-"))
        package = logging.getLogger("ding_like")
        handler, level, propagate = TraceHandler(self.world), package.level, package.propagate
        package.addHandler(handler)
        package.setLevel(logging.INFO)
        package.propagate = False
        gc.disable()  # finalisers run at the end, not in the middle of some thread
        try:
            self._install()
            self._start()
            self.world.run()
        finally:
            try:
                self.world.close()
                for process in self.world.processes:
                    self._drop(process)
                self.disks.close()
            finally:
                self._patches.undo()
                package.removeHandler(handler)
                package.setLevel(level)
                package.propagate = propagate
                shutil.rmtree(self._folder, ignore_errors=True)
                gc.enable()
        return Report(
            self.seed, self.plan, self.num_operations, self.counts, self.world.now_s - 1000.0, self.world.trace_hash
        )

    def _install(self) -> None:
        patches = self._patches
        replace_everywhere(patches, stand_ins.replacements(self))
        put_on_virtual_time(patches, self.world)
        self.audit.install(patches)
        self.disks.on_commit, self.disks.on_rollback = self.audit.commit, self.audit.rollback
        self.disks.on_killed = lambda process: self.world.after(0.0, self.faults.killed_at_commit)
        patches.set(state, "sqlite3", self.disks.sqlite3())
        patches.set(files, "open", self.disks.open)
        patches.set(client, "requests", self.network.requests())
        patches.set(client, "_MEMORY", self._folder)
        for cls in (coordinator.Coordinator, comm_learner.FlaskFileSystemLearner, files.FolderLock):
            patches.wrap(cls, "__init__", self._keep)

    def _keep(self, init: Any) -> Any:
        """Have objects that hold something of the system belong to the process that makes them."""

        def wrapped(made: Any, *args: Any, **kwargs: Any) -> None:
            assert self.world.current is not None
            self.world.current.process.kept.append(made)
            init(made, *args, **kwargs)

        return wrapped

    def _start(self) -> None:
        plan = self.plan
        self.disks.state_folder = str(self._folder / "run")
        self.main = _compile(plan, str(self._folder / "run"))
        paths = {"path_data": str(self._folder / "data"), "path_policy": str(self._folder / "policy")}
        system = {**paths, "num_collectors": plan.num_collectors, "publish_interval_s": 0.2, "num_batches": 8}
        if plan.kind != "on_policy":
            system["segment_rows"] = 8
        self.system = read_system(system, self.main)
        self._worker_cfg = {
            "main": self.main,
            "seed": 0,
            "coordinator": "http://127.0.0.1:80",
            "key_file": str(self._folder / "keys"),
            "num_batches": 8,
            "publish_interval_s": 0.2,
            "retry_s": 600.0,
            "communication_mode": "stream" if plan.streams else "auto",
            **paths,
        }
        keys.make_keys(self._folder / "keys")
        self._place("coordinator", "coordinator")
        for role, number in (("collector", plan.num_collectors), ("learner", plan.num_learners)):
            for place in range(number):
                self._place(role, f"{role}{place}")
        self.faults.start()
        self.world.after(_CHECK_S, self._look)

    def _place(self, role: str, place: str) -> None:
        process = self.world.process(place, role)
        self._processes[place] = process
        main = {"coordinator": self._coordinate, "collector": self._collect, "learner": self._learn}[role]
        process.spawn(lambda: self._live(process, main), "main")

    # --- processes

    def alive(self, role: str | None = None) -> list[Process]:
        return [
            each
            for each in self._processes.values()
            if each.is_alive and not each.has_ended and role in (None, each.role)
        ]

    @property
    def coordinator_process(self) -> Process:
        return self._processes["coordinator"]

    def died(self, process: Process) -> None:
        """Clean up after a process that was killed, as the system would."""
        if process.role == "coordinator":
            self.network.stop_listening()
        self._drop(process)

    def _drop(self, process: Process) -> None:
        for each in process.kept:
            if isinstance(each, Connection):
                each.drop()
            elif isinstance(each, files.FolderLock):
                if hasattr(each, "_descriptors"):
                    each.close()
            else:
                each.close = lambda: None  # what its finaliser calls: the dead close nothing
        process.kept.clear()

    def _bury(self, process: Process) -> None:
        """Take away what is left of a process that has ended by itself, and start another a second later."""
        self.world.kill(process)
        self.died(process)
        self.world.after(1.0, lambda: self.replace(process))

    def replace(self, process: Process) -> None:
        """Start a process anew that was killed."""
        if self._processes[process.name] is process and not self.is_over:
            self.world.note(f"{process.name} is started again")
            self._place(process.role, process.name)

    def _live(self, process: Process, main: Any) -> None:
        main(process)
        process.has_ended = True
        if not self.is_over:
            self.world.fail("left", f"{process.name} has ended, and the run is not over")

    def _thread_failed(self, thread: SimThread, error: BaseException) -> None:
        process = thread.process
        if thread.name == "main" and self.is_over and isinstance(error, CommError):
            process.has_ended = True  # the coordinator is gone
            return
        if process.role == "coordinator" and isinstance(error, CheckpointError) and self.disks.state_fault is not None:
            self.world.note(f"the coordinator cannot start: {error}")
            process.is_alive = False
            self.world.after(0.0, lambda: self._bury(process))
            return
        text = "".join(traceback.format_exception(error)[-8:])
        self.world.fail("process_exit", f"{process.name}/{thread.name} ends with {error!r}\n{text}")

    def _coordinate(self, process: Process) -> None:
        cfg = {"main": self.main, "system": self.system, "seed": self.seed, "key_file": str(self._folder / "keys")}
        made = coordinator.Coordinator(cfg)
        self.coordinator = made
        app = made.start_behind()
        self.network.listen(process, app)
        while not made.system_shutdown_flag and made.core.halted is None:
            made.service.wait(0.25)
            made.core.take_evaluations()
        if made.core.halted is not None:
            self.world.fail("halted", made.core.halted)
        self._see_the_end(made)
        made.wait_for_workers(_LEAVE_S)
        made.close()
        self.network.stop_listening()

    def _see_the_end(self, made: Any) -> None:
        core = made.core
        if core.failure is not None:
            self.world.fail("run_failed", core.failure)
        elif made.commander.learn_result is None:
            self.world.fail("run_failed", "the run is over, and its last model was not evaluated")
        self.audit.check_end(core)
        self.world.note(f"the run is over at env step {core.env_step}, {core.book.granted_updates} updates granted")
        self.is_over, self._over_s = True, self.world.now_s

    def _collect(self, process: Process) -> None:
        self._work(comm_collector.FlaskFileSystemCollector(self._worker_cfg))

    def _learn(self, process: Process) -> None:
        self._work(comm_learner.FlaskFileSystemLearner(self._worker_cfg))

    def _work(self, worker: Any) -> None:
        try:
            worker.start()
            worker.run()
        finally:
            worker.close()

    # --- what the stand-ins ask

    def value_of_policy(self) -> float:
        """Return what an evaluation finds: enough once nothing is broken any more."""
        return _ENOUGH if self._quiet_since_s is not None else 0.0

    def judged_value(self) -> float:
        """Return what the judge finds; at times the first model that was good enough is not."""
        self._num_judged += 1
        return 0.0 if self.plan.is_judged_worse and self._num_judged == 1 else _ENOUGH

    # --- looking

    def _look(self) -> None:
        world = self.world
        if self._quiet_since_s is None and self.num_operations >= self._operations:
            self._quiet_since_s = world.now_s
            self.faults.stop()
        if self.coordinator is not None and self.coordinator_process.is_alive and not self.is_over:
            self.audit.check_core(self.coordinator.core)
        self.audit.check_progress()
        if self.is_over:
            if world.now_s - self._over_s > _SEARCH_S:
                world.fail("left_behind", f"the run is over since {_SEARCH_S:g} s: {self.describe()}")
        elif self._quiet_since_s is not None and world.now_s - self._quiet_since_s > _END_S:
            world.fail("no_end", f"nothing is broken for {_END_S:g} s, and the run is not over: {self.describe()}")
        if self.is_over and all(process.has_ended or not process.is_alive for process in self._processes.values()):
            world.is_done = True
        world.after(_CHECK_S, self._look)

    def describe(self) -> str:
        """Return where everybody is."""
        parts = []
        for process in self._processes.values():
            is_what = "ended" if process.has_ended else "paused" if process.is_paused else "alive"
            parts.append(f"{process.name} {is_what if process.is_alive else 'dead'}")
        if self.coordinator is not None:
            core = self.coordinator.core
            tasks = [f"{each.task_id}:{each.status}:{each.worker_id}" for each in core.tasks.values()][-6:]
            parts.append(f"env step {core.env_step}, granted {core.book.granted_updates}, tasks {tasks}")
        return ", ".join(parts)


def _compile(plan: Plan, exp_name: str) -> Any:
    collect = dict(n_sample=16 if plan.kind == "on_policy" else 8)
    policy: dict[str, Any] = dict(collect=collect, eval=dict(evaluator=dict(eval_freq=plan.eval_freq)))
    if plan.kind == "on_policy":
        policy["learn"] = dict(batch_size=16, epoch_per_collect=2)
    else:
        policy["learn"] = dict(batch_size=8, update_per_collect=4)
        policy["random_collect_size"] = 16
        buffer: dict[str, Any] = dict(replay_buffer_size=200)
        if plan.kind == "priority":
            policy["priority"] = policy["priority_IS_weight"] = True
            buffer["type"] = "advanced"
        policy["other"] = dict(replay_buffer=buffer)
    main = dict(
        exp_name=exp_name,
        env=dict(
            env_id="CartPole-v1", collector_env_num=1, evaluator_env_num=1, n_evaluator_episode=1, stop_value=_ENOUGH
        ),
        policy=policy,
        resume=dict(save_every_s=5.0),
    )
    create = {**_CREATE, "policy": dict(type="ppo" if plan.kind == "on_policy" else "dqn")}
    return compile_config(main, create, seed=0, save=False, renew_dir=False)


def simulate(seed: int, **kwargs: Any) -> Report:
    """Run one simulation. Raises SimulationFailure with the line that plays it again and the end of its trace."""
    simulation = Simulation(seed, **kwargs)
    try:
        return simulation.run()
    except SimulationFailure as failure:
        failure.add_note(f"after {simulation.num_operations} operations; plan {simulation.plan}")
        failure.simulation = simulation  # type: ignore[attr-defined]
        raise
