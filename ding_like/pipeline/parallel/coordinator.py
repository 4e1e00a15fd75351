"""Coordinator of a parallel run: the one process that listens keeps tasks, data and weights, and saves that state."""

from __future__ import annotations

import functools
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from ding_like.comm.http_server import CoordinatorServer, make_app
from ding_like.comm.keys import Keys, load_keys, make_keys
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.client import CoordinatorService, prune_weights
from ding_like.comm.rest.messages import ROUTES, RefusedError, Stamp
from ding_like.comm.rest.worker import host_name, mark_shared
from ding_like.config import FrozenConfig
from ding_like.data.segment_file import SegmentError, remove_segments, set_aside
from ding_like.errors import CommError
from ding_like.pipeline.checks import has_league, required, steps_per_row, warmup_steps
from ding_like.pipeline.components import build_buffer
from ding_like.pipeline.parallel.core import CoordinatorCore, CoreConfig
from ding_like.pipeline.parallel.core.ledger import BUFFER_ID
from ding_like.pipeline.parallel.core.state import STATE_FILE, StateStore
from ding_like.pipeline.parallel.settings import SystemConfig, batch_rows, buffer_size, class_of, read_system
from ding_like.pipeline.rows import OnPolicyRatio, UpdateRatio
from ding_like.pipeline.self_play import make_league
from ding_like.types import Config, Json
from ding_like.utils.files import FolderLock, make_folder
from ding_like.utils.log import build_logger, close_logger
from ding_like.utils.measure import Interval
from ding_like.utils.registries import COORDINATOR_REGISTRY
from ding_like.worker import create_parallel_commander
from ding_like.worker.commander import NaiveCommander

logger = logging.getLogger(__name__)

_TICK_S = 0.5
_JOIN_S = 10.0
_WORD_S = 60.0  # between two words about files that cannot be deleted
_CORE_SETTINGS = ("lease_ttl_s", "heartbeat_s", "max_failures", "publish_timeout_s")

MAX_WAIT_S = 5.0
_LONGEST_S = 60.0  # that may be asked for
_BUSY_S = 2.0  # for the lock; it is held for long only while the state file cannot be written

# Messages that wait, up to their `wait_s`: when an answer is worth giving at once.
_ENOUGH: dict[str, Callable[[Any], bool]] = {
    "claim": lambda reply: reply.task is not None,
    "task_info": lambda reply: reply.finish or reply.credit > 0,
    "sample": lambda reply: reply.finish or reply.batches is not None or bool(reply.new_segments),
}


P = ParamSpec("P")
R = TypeVar("R")


class LockedService(CoordinatorService):
    """Service of one core for many threads. `wait_s` of a message is how long its answer may be waited for.

    While the state file cannot be written, the writing thread keeps the lock, as memory is ahead of the file: others
    are refused with `not_ready` after two seconds, and are to ask again.
    """

    def __init__(self, core: CoordinatorCore, *, max_waiting: int = 8) -> None:
        """At most `max_waiting` callers wait at once; others are answered at once, and are to ask again later."""
        self._core = core
        self._changed = threading.Condition()
        self._news = threading.Event()  # apart from the lock, for callers that must not wait for it
        self._max_waiting = max_waiting
        self._waiting = 0

    def answer(self, name: str, worker_id: str, ids: tuple[str, ...], message: Any, stamp: Stamp | None) -> Any:
        """Answer a message by the method `name`, or repeat the answer that the same stamp of this worker had.

        It is asked until the answer is worth giving, or the time is over; the journal is looked at each time.
        """
        if name not in ROUTES:
            raise RefusedError("unknown", f"there is no message {name}")

        def ask() -> Any:
            return getattr(self._core, name)(worker_id, *ids, message)

        if name == "heartbeat":  # it changes nothing that a repetition would change again
            with self.changing():
                return ask()
        wait_s = getattr(message, "wait_s", 0.0)
        if not 0.0 <= wait_s <= _LONGEST_S:
            raise RefusedError("malformed", f"wait_s is {wait_s:g}; expected 0 to {_LONGEST_S:g}")
        deadline = time.monotonic() + min(wait_s, MAX_WAIT_S)
        with self.locked():
            # There is one learner, and all others wait for it.
            may_wait = name == "sample" or self._waiting < self._max_waiting
            self._waiting += may_wait
            try:
                while True:
                    self._check_halted()
                    left = deadline - time.monotonic() if may_wait and not self._core.is_over else 0.0
                    # The last answer is kept, whatever it is.
                    is_final = _ENOUGH.get(name) if left > 0.0 else None
                    reply, is_done = self._core.once(worker_id, stamp, ask, is_final=is_final)
                    if is_done:
                        return reply
                    self._changed.wait(left)
            finally:
                self._waiting -= may_wait
                self._tell()

    def secret_of(self, worker_id: str) -> str | None:
        """Return the secret that a worker registered with; None for a worker that is not there."""
        return self._core.secret_of(worker_id)

    def hello(self) -> m.Hello:
        return self._core.hello()

    def register(self, message: m.Register) -> m.Registered:
        with self.changing() as core:
            return core.register(message)

    def call(self, name: str, worker_id: str, message: Any, item: str = "") -> Any:
        """Answer the message of a route, for workers in this process."""
        return self.answer(name, worker_id, (item,) if item else (), message, None)

    def status(self) -> dict[str, Json]:
        with self.locked():
            return self._core.status()

    def halt(self, why: str) -> None:
        """Answer nothing any more, though the run is not over. Needs no lock: a stuck thread may hold it."""
        self._core.halt(why)
        self._news.set()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep the core as it is while it is looked at. Raises RefusedError `not_ready` if others have it for long."""
        if not self._changed.acquire(timeout=_BUSY_S):
            raise RefusedError("not_ready", "the coordinator waits until its state file can be written")
        try:
            yield
        finally:
            self._changed.release()

    def wait(self, timeout_s: float) -> None:
        """Return when something has changed since the last call, or after `timeout_s`."""
        self._news.wait(timeout_s)
        self._news.clear()

    @contextmanager
    def changing(self) -> Iterator[CoordinatorCore]:
        """Hold the lock while the block changes the core. Raises RefusedError `not_ready` once the core has halted."""
        with self.locked():
            self._check_halted()
            try:
                with self._core.saving():
                    yield self._core
            finally:
                # An answer that waits asks again whenever something changes: two of them would wake each other.
                if not self._core.is_saving:  # the block is no part of an answer
                    self._tell()

    def _check_halted(self) -> None:
        if self._core.halted is not None:
            raise RefusedError("not_ready", f"the coordinator is about to end: {self._core.halted}")

    def _tell(self) -> None:
        self._changed.notify_all()
        self._news.set()


def _locked(method: Callable[Concatenate[CoordinatorCore, P], R]) -> Callable[Concatenate[Coordinator, P], R]:
    """Return a method of the core as one of the coordinator, which any thread may call."""

    @functools.wraps(method)
    def call(coordinator: Coordinator, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with coordinator.service.changing() as core:
            return method(core, *args, **kwargs)

    return call


@COORDINATOR_REGISTRY.register("flask_fs")
class Coordinator:
    """Manager of the tasks and data of a run, served over HTTP between `start` and `close`.

    `cfg` holds `main`, a compiled config; `system`, what `read_system` returns or takes; `seed`; `max_env_step`;
    `key_file`, made if it is not there, without which any worker of this machine is taken; and `lock`, which holds the
    run's folder, taken if there is none, and let go in `close`. State is saved in `{exp_name}/coordinator.sqlite`: a
    coordinator made in the same folder continues from it.

    The routes of workers' messages call the methods `deal_with_*`: a sub-class that overrides one changes the run. They
    raise RefusedError for a task or a buffer that is not there, and change nothing then.
    """

    def __init__(self, cfg: Config) -> None:
        """Open the run's folder and its state. Raises ConfigError for a missing key or a folder in use."""
        required(cfg, "main", of="a coordinator")
        self._cfg = cfg
        self._main = cfg["main"]
        system = cfg.get("system")
        self.system = system if isinstance(system, SystemConfig) else read_system(system, self._main, in_memory=False)
        self._folders: dict[str, Any] = {"segments": self.system.path_data, "weights": self.system.path_policy}
        folder = Path(self._main.exp_name)
        make_folder(str(folder), exist_ok=True)
        self._gives_up = threading.Event()  # a state file that cannot be written is not waited for any more
        self._server: CoordinatorServer | None = None
        self._is_closed = self._has_begun = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="coordinator", daemon=True)
        self._words = Interval(_WORD_S, starts_due=True, clock=time.monotonic)
        with ExitStack() as parts:  # what is open is closed where a later part fails
            self._lock: FolderLock = cfg.get("lock") or FolderLock(folder)
            parts.callback(self._lock.close)
            given = self.system.coordinator
            self._store = StateStore(
                folder / STATE_FILE, durable=given.durable, patience_s=given.state_timeout_s, wait=self._gives_up.wait
            )
            parts.callback(self._store.close)
            self._logger, _ = build_logger(folder / "log", "coordinator")
            parts.callback(close_logger, self._logger)
            self._make_core()
            self._parts = parts.pop_all()

    def _make_core(self) -> None:
        seed, limit = int(self._cfg.get("seed") or 0), float(self._cfg.get("max_env_step") or float("inf"))
        self.core, self.commander = make_core(self._main, self.system, store=self._store, seed=seed, max_env_step=limit)
        self.core.callbacks = self
        self.service = LockedService(self.core)

    # --- life

    def start(self) -> None:
        """Open the port. Raises CommError if it is in use, ConfigError for a host of others without keys."""
        at = self.system.coordinator
        self._server = CoordinatorServer(self.service, self._begin(), host=at.host, port=at.port, **self._folders)
        self._server.start()
        self._watch_from_now(f"listening at {self.url}")

    def start_behind(self) -> Any:
        """Begin without a port of its own; return the WSGI application that a server is to serve in this process."""
        app = make_app(self.service, self._begin(), **self._folders)
        self._watch_from_now("served by another server")
        return app

    def _watch_from_now(self, where: str) -> None:
        self._has_begun = True
        self._thread.start()
        self.info(f"{where}, run {self.core.run_id}, start {self.core.epoch}")

    def _begin(self) -> Keys | None:
        """Mark the folders and return the keys."""
        for folder in self._folders.values():
            mark_shared(folder, self.core.run_id)
        key_file = self._cfg.get("key_file")
        if key_file is None:
            return None
        return load_keys(key_file) if Path(key_file).exists() else make_keys(key_file)

    @property
    def url(self) -> str:
        """Address at which workers reach the coordinator. Raises CommError before `start`."""
        if self._server is None:
            raise CommError("the coordinator has not been started.")
        return self._server.url

    @property
    def system_shutdown_flag(self) -> bool:
        """Whether the run is over: solved, at its limit, or failed."""
        return self.core.is_over

    def give_up(self) -> None:
        """Wait no more for a state file that cannot be written: this process is to end."""
        self._gives_up.set()

    @property
    def is_done(self) -> bool:
        """Whether the saved state is that of a run that is over and cannot be resumed."""
        try:
            with self.service.locked():
                return any(run["is_over"] for _, run in self._store.items("run"))
        except (sqlite3.Error, RefusedError) as error:
            logger.warning("whether the run is over cannot be read (%s): nothing is deleted", error)
            return False

    def wait_for_workers(self, timeout_s: float) -> list[str]:
        """Let the workers of a run that is over hear of it and leave; return those that have not."""
        deadline = time.monotonic() + timeout_s
        while self.core.halted is None:
            left = list(self.core.workers)  # a copy; without the lock, which a full disk may hold
            if not left or time.monotonic() >= deadline:
                return left
            self.service.wait(max(deadline - time.monotonic(), 0.0))
        return []

    def close(self) -> None:
        """Close port, buffers and state; files of a run that is over are deleted. May be called again."""
        if self._is_closed:
            return
        self._is_closed = True
        self._stop.set()
        self.give_up()
        if self._server is not None:
            self._server.close()
        if self._has_begun:
            self._thread.join(_JOIN_S)
            if self.is_done:
                self.core.book.removable += self.core.book.live_segments()
                self._tidy()
            for folder in self._folders.values():
                (folder / f"{self.core.run_id}.run").unlink(missing_ok=True)
        self.core.book.close()
        self._parts.close()

    def __del__(self) -> None:
        if hasattr(self, "_parts"):  # the constructor came to its end
            self.close()

    def state_dict(self) -> dict[str, Json]:
        """Return all that a coordinator needs to continue, as plain data."""
        with self.service.locked():
            return self._store.dump()

    def load_state_dict(self, state_dict: Mapping[str, Json]) -> None:
        """Continue from what `state_dict` returned. Raises CommError once the coordinator was started."""
        if self._server is not None:
            raise CommError("a coordinator that was started takes no other state: make a new one.")
        self._store.load(state_dict)
        self.core.book.close()
        self._make_core()

    def _keep(self) -> None:
        """Take tasks back from workers that have gone, and delete files that are not needed any more."""
        try:
            while not self._stop.wait(_TICK_S) and self.core.halted is None:
                try:
                    with self.service.changing() as core:
                        core.tick()
                    self._tidy()
                except RefusedError as error:
                    if not error.retryable:  # another thread waits for the disk
                        raise
                if self._server is not None and not self._server.is_alive and not self._is_closed:
                    raise CommError("the thread that answers requests has ended")
        except Exception as error:  # any error of this thread halts the service, which reports it
            logger.exception("the coordinator's own thread failed")
            self.service.halt(
                f"the coordinator failed: {type(error).__name__}: {error}. Started again in the same folder "
                "(policy.learn.resume_training=True) it goes on from what was written."
            )

    def _tidy(self) -> None:
        """Delete, or set aside, files that are not needed any more; what fails is tried again the next time."""
        book, data = self.core.book, self.system.path_data
        with self.service.locked():
            removable, spoiled = book.take_files()
            pinned, policies = self.core.pinned(), list(self.core.policies)
        unmoved = self._for_each(spoiled, lambda name: set_aside(data, [name]))
        undeleted = self._for_each(removable, lambda name: remove_segments(data, [name]))
        # Only now: other threads may have named more during the slow work on files.
        book.spoiled += unmoved
        book.removable += undeleted
        self._for_each(policies, lambda policy_id: prune_weights(self.system.path_policy, policy_id, pinned))

    def _for_each(self, names: Iterable[str], act: Callable[[str], None]) -> list[str]:
        """Do something with files; return the names with which it did not work, and warn once a minute."""
        left: list[str] = []
        for name in names:
            try:
                act(name)
            except (OSError, SegmentError) as error:
                left.append(name)
                if self._words.pass_s():
                    logger.warning("%s cannot be deleted or moved (%s): it is tried again", name, error)
        return left

    def lost_worker(self, pid: int, reason: str) -> bool:
        """Take back the tasks of a process of this machine that has died; return whether it had done anything."""
        try:
            with self.service.changing() as core:
                return core.lost(host_name(), pid, reason)
        except RefusedError as error:
            if not error.retryable:
                raise
            return True  # the state file cannot be written now, no fault of the worker: its lease will expire

    # --- callbacks: every message that carries data, a batch, a report or a result goes through one of them

    deal_with_collector_send_data = _locked(CoordinatorCore.deal_with_collector_send_data)
    deal_with_collector_finish_task = _locked(CoordinatorCore.deal_with_collector_finish_task)
    deal_with_learner_get_data = _locked(CoordinatorCore.deal_with_learner_get_data)
    deal_with_learner_send_info = _locked(CoordinatorCore.deal_with_learner_send_info)
    deal_with_learner_finish_task = _locked(CoordinatorCore.deal_with_learner_finish_task)

    def deal_with_increase_collector(self) -> None:
        """Have a task made for a collector that has come."""
        with self.service.changing() as core:
            core.deal_with_increase_collector()
            self.info(f"a collector has come: there are {core.num_workers('collector')}")

    def deal_with_decrease_collector(self) -> None:
        """Let a task go that was made for a collector that has left."""
        with self.service.changing() as core:
            core.deal_with_decrease_collector()
            self.info(f"a collector has left: there are {core.num_workers('collector')}")

    def info(self, s: str) -> None:
        """Write a line to the coordinator's log."""
        self._logger.info(s)

    def error(self, s: str) -> None:
        """Write an error to the coordinator's log."""
        self._logger.error(s)


def make_core(
    cfg: FrozenConfig, system: SystemConfig, *, store: StateStore, seed: int, max_env_step: float
) -> tuple[CoordinatorCore, NaiveCommander]:
    """Return (core, commander) of a compiled config, going on from what the store holds."""
    evaluator = cfg.policy.eval.evaluator
    commander_cfg, league = dict(cfg.policy.other.get("commander") or {}), {}
    commander_cfg.update(eval_freq=int(evaluator.eval_freq), n_episode=int(evaluator.n_episode))
    commander_cfg.update(stop_value=float(cfg.env.stop_value), max_env_step=max_env_step)
    if has_league(cfg):
        commander_cfg.setdefault("type", "one_vs_one")
        # Snapshots are versions that were published already: there is nothing to copy.
        league["league"] = make_league(cfg, seed=seed, save_checkpoint=lambda *_: None)
    commander = create_parallel_commander(commander_cfg, **league)
    settings = CoreConfig(
        _ratio(cfg.policy, system),
        buffer_size(cfg),
        system.segment_rows,
        **{name: getattr(system.coordinator, name) for name in _CORE_SETTINGS},
        steps_per_row=steps_per_row(cfg.policy),
        first_batch_rows=0 if cfg.policy.on_policy else batch_rows(cfg.policy),
        segment_episodes=system.segment_episodes,
    )
    make_buffer = functools.partial(build_buffer, cfg, seed=seed, name=BUFFER_ID)
    core = CoordinatorCore(
        settings, clock=time.monotonic, wall_clock=time.time, store=store, commander=commander, make_buffer=make_buffer
    )
    return core, commander


def _ratio(policy: FrozenConfig, system: SystemConfig) -> UpdateRatio | OnPolicyRatio:
    collect, episodes = policy.collect, system.segment_episodes
    if policy.on_policy and episodes:
        return OnPolicyRatio(1, batch_segments=-(-int(collect.n_episode) // episodes))
    if policy.on_policy:
        return OnPolicyRatio(int(collect.n_sample))
    steps = int(collect.n_episode) if episodes else int(collect.n_sample) * steps_per_row(policy)
    return UpdateRatio(warmup_steps(policy), steps, int(policy.learn.update_per_collect), system.max_lead_rows)


def create_coordinator(cfg: Config) -> Coordinator:
    """Build the coordinator that `cfg.system.coordinator.type` names, a registered name or "module:Class".

    `import_names` beside it says where it may be registered. Raises RegistryError (a KeyError) for an unknown name.
    """
    system = cfg.get("system")
    section = vars(system.coordinator) if isinstance(system, SystemConfig) else (system or {}).get("coordinator")
    return class_of(COORDINATOR_REGISTRY, section, Coordinator)(cfg)
