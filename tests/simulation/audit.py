"""Keep account of what was acknowledged, granted, published and learned, and compare at every step."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.client import HttpCoordinator, read_weights
from ding_like.comm.rest.rows import BatchReader
from ding_like.pipeline.parallel.core import CoordinatorCore
from ding_like.pipeline.parallel.core.ledger import OnPolicyLedger, ReplayLedger, SegmentLedger
from ding_like.pipeline.parallel.core.state import LEASED
from ding_like.pipeline.rows import UpdateRatio
from tests.simulation.patches import Patches, replace_everywhere
from tests.simulation.stand_ins import updates_of

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

STALE_S = 10.0  # that weights may be old while the learner trains and nothing is broken
STUCK_S = 120.0  # that nothing may be done while nothing is broken

Attempt = tuple[str, int]  # (task, attempt)


class Audit:
    """Watch both sides of the wire, and the coordinator's file."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._world = simulation.world
        # Of the coordinator: what its file has, and what the transaction that is open will add.
        self._pending: list[tuple[str, Any]] = []
        self.accepted: dict[str, int] = {}  # segment -> env steps
        self._serials: dict[str, int] = {}  # segment -> serial
        self.names: dict[int, str] = {}  # serial -> segment
        self.granted: Counter[Attempt] = Counter()
        self.published: tuple[int, int] | None = None
        # Of the workers.
        self.acked: dict[str, int] = {}  # segment -> env steps
        self.announced: dict[str, m.SegmentInfo] = {}
        self.received: Counter[Attempt] = Counter()
        self.learned: Counter[Attempt] = Counter()
        self.owners: dict[Attempt, str] = {}
        self.learning: dict[str, Attempt] = {}  # process -> what it learns for
        self.numbers: dict[str, int] = {}  # worker -> number of its process
        self.loaded: dict[str, tuple[int, int]] = {}  # process -> weights it acts with
        self._collect_loaded: dict[str, tuple[int, int]] = {}
        self._kinds: dict[str, str] = {}  # process -> kind of its task
        self._behind: Any = None  # (attempt, newest weights) since when the learner has learned on
        self._behind_clean_s = 0.0
        self._progress: tuple[Any, float] = ((), 0.0)
        self.num_batches = 0

    def fail(self, kind: str, message: str) -> None:
        self._world.fail(kind, message)

    # --- hooks

    def install(self, patches: Patches) -> None:
        """Watch the package's classes until the patches are taken back."""
        self._watch_coordinator(patches)
        self._watch_client(patches)
        patches.wrap(BatchReader, "draw", self._on_draw)
        replace_everywhere(patches, {read_weights: self._read_weights})

    def _watch_coordinator(self, patches: Patches) -> None:
        def on_take(take: Any) -> Any:
            def wrapped(book: SegmentLedger, worker_id: str, info: m.SegmentInfo, *args: Any, **kw: Any) -> Any:
                is_new = take(book, worker_id, info, *args, **kw)
                if is_new:
                    self._pending.append(("take", info))
                return is_new

            return wrapped

        def on_add(add: Any) -> Any:
            def wrapped(index: Any, entry: Any) -> Any:
                self._pending.append(("add", entry))
                return add(index, entry)

            return wrapped

        def on_sample(sample: Any) -> Any:
            def wrapped(core: CoordinatorCore, worker_id: str, buffer_id: str, message: m.Sample) -> Any:
                reply = sample(core, worker_id, buffer_id, message)
                if reply.batches is not None:
                    grant = ((message.task_id, message.attempt), reply.batches.num_batches)
                    self._pending.append(("grant", grant))
                return reply

            return wrapped

        def on_publish(publish: Any) -> Any:
            def wrapped(core: CoordinatorCore, worker_id: str, policy_id: str, message: m.Publish) -> Any:
                reply = publish(core, worker_id, policy_id, message)
                self._on_published(message)
                return reply

            return wrapped

        patches.wrap(SegmentLedger, "take", on_take)
        patches.wrap(ReplayLedger, "add", on_add)
        patches.wrap(OnPolicyLedger, "add", on_add)
        patches.wrap(CoordinatorCore, "sample", on_sample)
        patches.wrap(CoordinatorCore, "publish", on_publish)

    def _watch_client(self, patches: Patches) -> None:
        watched = {
            "send_data": self._on_acked,
            "sample": self._on_sampled,
            "claim": self._on_claimed,
            "register": self._on_registered,
        }

        def watch(note: Any) -> Any:
            def make(ask: Any) -> Any:
                def wrapped(client: HttpCoordinator, *args: Any) -> Any:
                    if note == self._on_acked:
                        self.announced.update({info.name: info for info in args[-1].segments})
                    reply = ask(client, *args)
                    note(args, reply)
                    return reply

                return wrapped

            return make

        for name, note in watched.items():
            patches.wrap(HttpCoordinator, name, watch(note))

    # --- the coordinator's file

    def commit(self) -> None:
        """Take over what a transaction that is on file now has changed."""
        pending, self._pending = self._pending, []
        for kind, what in pending:
            if kind == "take":
                if what.name in self.accepted:
                    self.fail("doubled", f"segment {what.name} is taken a second time")
                self.accepted[what.name] = what.env_steps
            elif kind == "add":
                self._add(what)
            elif kind == "grant":
                self.granted[what[0]] += what[1]

    def rollback(self) -> None:
        """Forget what the open transaction had changed."""
        self._pending = []

    def _add(self, entry: Any) -> None:
        if self._serials.setdefault(entry.name, entry.serial) != entry.serial:
            self.fail("doubled", f"segment {entry.name} is {self._serials[entry.name]} and {entry.serial}")
        if self.names.setdefault(entry.serial, entry.name) != entry.name:
            self.fail("doubled", f"serial {entry.serial} is {self.names[entry.serial]} and {entry.name}")

    def _on_published(self, message: m.Publish) -> None:
        pair = (message.attempt, message.version)
        if self.published is not None and pair < self.published:
            self.fail("versions", f"{pair} is published after {self.published}")
        if pair != self.published:
            self._world.note(f"published {pair}")
        self.published = pair

    def check_core(self, core: CoordinatorCore) -> None:
        """Compare a core with what was seen of it; between two messages."""
        ratio = core.cfg.ratio
        if isinstance(ratio, UpdateRatio) and core.book.granted_updates > ratio.allowed_updates(core.env_step):
            allowed = ratio.allowed_updates(core.env_step)
            self.fail("ratio", f"{core.book.granted_updates} updates granted, {allowed} are allowed")
        holders = [task.worker_id for task in core.tasks.values() if task.status == LEASED]
        if len(set(holders)) != len(holders):
            self.fail("owners", f"a worker holds two tasks: {holders}")
        if core.failure is not None:
            self.fail("run_failed", core.failure)
        missing = [name for name in self.acked if name not in self.accepted]
        if missing:
            self.fail("lost", f"acknowledged, but not on file: {missing[:3]}")

    def check_books(self, core: CoordinatorCore) -> None:
        """Compare what is on file with what was accepted; where no transaction is open."""
        expected = sum(self.accepted.values())
        if core.env_step != expected:
            self.fail("env_steps", f"the books have {core.env_step} env steps, the accepted segments {expected}")
        if isinstance(core.book, ReplayLedger):
            live = core.book.new_segments(0, 2**60)
            names = [self.names[serial] for serial in sorted(self.names)][-len(live) :] if live else []
            if [each.name for each in live] != names:
                self.fail("index", f"the ledger has not the {len(live)} newest segments")

    # --- workers

    def _process(self) -> Any:
        assert self._world.current is not None
        return self._world.current.process

    def _on_registered(self, args: Any, reply: m.Registered) -> None:
        self.numbers[reply.worker_id] = self._process().number

    def _on_acked(self, args: Any, reply: m.SendDataReply) -> None:
        for name in (*reply.accepted, *reply.duplicate):
            self.acked[name] = self.announced[name].env_steps

    def _on_claimed(self, args: Any, reply: m.ClaimReply) -> None:
        task, worker_id = reply.task, args[0]
        if task is None:
            return
        attempt = (task.task_id, task.attempt)
        if self.owners.setdefault(attempt, worker_id) != worker_id:
            self.fail("owners", f"{attempt} is given to {self.owners[attempt]} and to {worker_id}")
        process = self._process()
        self._kinds[process.name] = task.kind
        self._world.note(f"does {task.task_id}, attempt {task.attempt}")
        if task.kind == "learn":
            self.learning[process.name] = attempt

    def _on_sampled(self, args: Any, reply: m.SampleReply) -> None:
        message: m.Sample = args[-1]
        attempt = (message.task_id, message.attempt)
        if reply.batches is not None:
            self.received[attempt] += reply.batches.num_batches
        if self.granted[attempt] != self.received[attempt]:
            self.fail(
                "updates_lost",
                f"{attempt} was granted {self.granted[attempt]} updates, and {self.received[attempt]} have come",
            )

    def _read_weights(self, folder: Any, policy_id: str, attempt: int, version: int, **kwargs: Any) -> Any:
        state = read_weights(folder, policy_id, attempt, version, **kwargs)
        if updates_of(state) != version:
            self.fail("weights", f"the file of {attempt}-{version} holds weights of {updates_of(state)} updates")
        name = self._process().name
        pair = (attempt, version)
        if self._kinds.get(name) == "collect":
            if pair < self._collect_loaded.get(name, (0, 0)):
                self.fail("versions", f"{name} loads {pair} after {self._collect_loaded[name]}")
            self._collect_loaded[name] = pair
        self.loaded[name] = pair
        return state

    # --- the learner

    def _on_draw(self, draw: Any) -> Any:
        def wrapped(reader: BatchReader) -> Any:
            batch = draw(reader)
            unique_ids = reader.drawn[-1][1]
            self.num_batches += 1
            self._check_rows(batch["obs"], unique_ids)
            return batch

        return wrapped

    def _check_rows(self, obs: Any, unique_ids: Any) -> None:
        """Compare what rows say of themselves with what the coordinator numbered so."""
        for serial in np.unique(unique_ids // m.ROWS_PER_SEGMENT):
            here = unique_ids // m.ROWS_PER_SEGMENT == serial
            name = self.names.get(int(serial))
            if name is None:
                self.fail("wrong_row", f"a batch has rows of segment {serial}, which no collector has sent")
                return
            worker_id, _, number = name.rpartition(".")
            rows = unique_ids[here] % m.ROWS_PER_SEGMENT
            expected = np.stack([np.full(len(rows), self.numbers[worker_id]), np.full(len(rows), int(number)), rows], 1)
            if not (obs[here, :3] == expected).all():
                self.fail("wrong_row", f"rows of {name} hold {obs[here, :3].tolist()}, expected {expected.tolist()}")

    def batch_is_taken(self, policy: Any, batch: Any) -> None:
        """Look at a batch that is about to be learned from."""
        attempt = self.learning[self._process().name]
        self.learned[attempt] += 1
        if self.learned[attempt] > self.received[attempt]:
            self.fail("updates", f"{attempt} learns from {self.learned[attempt]} batches")
        if self._simulation.plan.kind != "on_policy":
            return
        acted = set(zip(batch["reward"].astype(int).tolist(), batch["obs"][:, 3].astype(int).tolist(), strict=True))
        if acted != {(attempt[1], policy.updates)}:
            self.fail(
                "off_policy_rows",
                f"attempt {attempt[1]} at iteration {policy.updates} learns from rows of {sorted(acted)}",
            )

    def updated(self, policy: Any) -> None:
        """Look at the age of the weights, after an update."""
        self._simulation.count("update")
        world = self._world
        name = self._process().name
        attempt = self.learning[name]
        newest_attempt = max(each for each in self.owners if each[0] == attempt[0])
        if attempt != newest_attempt:
            return  # it does not know yet that another learns
        if self._behind != (attempt, self.published):  # the first update since weights were published
            self._behind, self._behind_clean_s = (attempt, self.published), world.clean_s
        last_s = self._behind_clean_s
        if world.clean_s - last_s > STALE_S:
            self.fail(
                "stale_weights",
                f"{attempt} trains on at iteration {policy.updates}; the newest weights are {self.published}, "
                f"{world.clean_s - last_s:.1f} s old",
            )

    # --- the whole run

    def check_progress(self) -> None:
        """Fail where nothing has been done for long while nothing was broken."""
        world = self._world
        done = (len(self.accepted), sum(self.learned.values()), self.published, len(self.owners))
        # A worker that was out of reach at the run's end looks for the coordinator as long as its patience lasts.
        if done != self._progress[0] or world.num_faults_active or self._simulation.is_over:
            self._progress = (done, world.clean_s)
        elif world.clean_s - self._progress[1] > STUCK_S:
            self.fail("stuck", f"nothing has happened for {STUCK_S:g} s: {self._simulation.describe()}")
        for process in world.processes:
            for thread in process.threads:
                since_s = thread.blocked_since_s
                if since_s is not None and not process.is_paused and world.now_s - since_s > 600.0:
                    self.fail("waits_for_ever", f"{process}/{thread.name} waits without a deadline since {since_s:.1f}")

    def check_end(self, core: CoordinatorCore) -> None:
        """Compare all sums at the end of a run."""
        self.check_core(core)
        self.check_books(core)
        last = max((attempt for attempt in self.owners if attempt[0].startswith("learn")), default=None)
        if last is None:
            self.fail("no_learner", "the run is over, and no learner has learned")
            return
        if self.granted[last] != self.received[last]:
            self.fail("updates_lost", f"{last} was granted {self.granted[last]}, and {self.received[last]} have come")
        if core.book.bad_rows:
            self.fail("files_lost", f"{core.book.bad_rows} rows could not be read: files were deleted too early")
