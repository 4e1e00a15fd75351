"""Tasks and workers of a run, and its state file in SQLite with the journal of answers: saved before it is answered."""

from __future__ import annotations

import json
import logging
import math
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.client import weights_file
from ding_like.comm.rest.messages import MAX_COUNT, ROUTES, RefusedError, Stamp, check_id, decode, encode
from ding_like.comm.rest.worker import host_name
from ding_like.data.segment_file import segment_file
from ding_like.errors import CheckpointError, SchemaError
from ding_like.types import Json
from ding_like.utils.files import atomic_write
from ding_like.utils.processes import runs_with

logger = logging.getLogger(__name__)

STATE_FILE = "coordinator.sqlite"
WORKERS_CONFIG = "parallel_config.py"  # by which workers on this machine are started
_FORMAT = 2
# One table: a row is (kind, key, JSON). Kinds: run, task, segment, stream, policy, worker, secret, answer.
_SCHEMA = "CREATE TABLE IF NOT EXISTS item (kind TEXT, key TEXT, value TEXT, PRIMARY KEY (kind, key)) WITHOUT ROWID"
_FIRST_WAIT_S, _MAX_WAIT_S = 0.05, 1.0  # between two tries to write
_WORD_S = 60.0  # between two warnings
_BUSY_MS = 500  # that SQLite itself waits for a lock, before this tries again


class StateUnwritableError(CheckpointError):
    """The state file could not be written in time: what is in memory must not be sent to any worker."""


@dataclass(eq=False)
class StateStore:
    """Store of items by kind and key; changes made in one `transaction` are saved together or not at all.

    They are written when the outermost transaction ends. A disk that is full, locked or faulty is tried again for
    `patience_s`; `wait(seconds)` returns True where there is no time left for that. `durable` waits for the disk at
    every transaction, so that it survives a power cut and not only the process's death.

    Beside it, `{path}.start.json` holds which run was started last (`run_id`), how often (`epoch`), and whether the
    file was closed in order (`is_clean`), so that no write-ahead log is left. One thread at a time may use the store.
    Raises CheckpointError for a file that cannot be used, or that is not what the last start left.
    """

    path: Path
    durable: bool = False
    patience_s: float = 600.0
    wait: Callable[[float], bool] = field(default_factory=lambda: threading.Event().wait)
    clock: Callable[[], float] = field(default_factory=lambda: time.monotonic)

    def __post_init__(self) -> None:
        self._log = self.path.with_name(f"{self.path.name}-wal")
        self._mark = self.path.with_name(f"{self.path.name}.start.json")
        self._depth = 0
        self._pending: dict[tuple[str, str], str | None] = {}  # None: to be deleted
        self._failure: str | None = None  # why nothing is written any more
        self._is_closed = False
        self._left = self._read_mark()
        try:
            self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=5.0)
            self._open()
        except sqlite3.Error as error:
            raise CheckpointError(f"{self.path} cannot be used as the coordinator's state: {error}.") from error

    def _open(self) -> None:
        execute = self._db.execute
        try:
            execute("PRAGMA journal_mode=WAL")
            execute(f"PRAGMA synchronous={'FULL' if self.durable else 'NORMAL'}")
            (found,) = execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise sqlite3.DatabaseError(found)
            execute(_SCHEMA)
            (found,) = execute("PRAGMA user_version").fetchone()
            if found not in (0, _FORMAT):
                raise CheckpointError(f"{self.path} has format {found}, this version reads {_FORMAT}.")
            execute(f"PRAGMA user_version={_FORMAT}")
            execute(f"PRAGMA busy_timeout={_BUSY_MS}")
        except BaseException:
            self._db.close()
            raise

    # --- starts

    def _read_mark(self) -> dict[str, Json] | None:
        """Return what the last start left. Raises CheckpointError if files that it left are gone."""
        try:
            mark: dict[str, Json] = json.loads(self._mark.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise CheckpointError(f"{self._mark} cannot be read ({error}). Delete it to start without it.") from error
        for path in (self.path,) if mark["is_clean"] else (self.path, self._log):
            if not path.exists():
                raise self._lost(f"{path} is gone, but run {mark['run_id']} was started there {mark['epoch']} times")
        return mark

    def check_start(self, run_id: str | None, epoch: int) -> None:
        """Raise CheckpointError unless the run found here, None for no run, is what the last start left."""
        mark = self._left
        if mark is not None and (run_id != mark["run_id"] or epoch < mark["epoch"]):
            found = "holds no run" if run_id is None else f"holds run {run_id}, started {epoch} times"
            raise self._lost(f"{self.path} {found}, but run {mark['run_id']} was started there {mark['epoch']} times")

    def _lost(self, what: str) -> CheckpointError:
        return CheckpointError(
            f"{what}. Put the files back as they were; or, to continue with what is there and lose the rest, delete "
            f"{self._mark} and start again."
        )

    def mark_start(self, run_id: str, epoch: int) -> None:
        """Note a start whose transaction is saved, so that a later loss of the file, or of its log, is noticed."""

        def mark() -> None:
            # What the mark names must be in the file itself, not in the log beside it.
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._write_mark({"run_id": run_id, "epoch": epoch, "is_clean": False})

        self._try_until_done(mark)

    def _write_mark(self, mark: dict[str, Json]) -> None:
        with atomic_write(self._mark, durable=self.durable) as file:
            file.write(json.dumps(mark).encode())
        self._left = mark

    # --- items

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Save all changes of the block together; an error in it saves none. A block in a block is part of that.

        Raises StateUnwritableError if that cannot be done in time; nothing is saved from then on.
        """
        self._depth += 1
        try:
            yield
        except BaseException:
            if self._depth == 1:
                self._pending.clear()
            raise
        finally:
            self._depth -= 1
        if self._depth == 0 and self._pending:
            self._try_until_done(self._write)
            self._pending.clear()

    def put(self, kind: str, key: str, value: dict[str, Json]) -> None:
        """Save an item, in place of an older one."""
        with self.transaction():
            self._pending[kind, key] = json.dumps(value)

    def delete(self, kind: str, key: str) -> None:
        """Forget an item."""
        with self.transaction():
            self._pending[kind, key] = None

    def items(self, kind: str) -> list[tuple[str, dict[str, Json]]]:
        """Return (key, value) of all saved items of a kind, by key."""
        rows = self._db.execute("SELECT key, value FROM item WHERE kind = ? ORDER BY key", (kind,))
        return [(key, json.loads(value)) for key, value in rows]

    def dump(self) -> dict[str, Json]:
        """Return all items by kind and key."""
        items: dict[str, dict[str, Json]] = {}
        for kind, key, value in self._db.execute("SELECT kind, key, value FROM item ORDER BY kind, key"):
            items.setdefault(kind, {})[key] = json.loads(value)
        return {"format": _FORMAT, "items": items}

    def load(self, state: Mapping[str, Json]) -> None:
        """Replace all items by what `dump` returned. Raises CheckpointError for another format."""
        if state.get("format") != _FORMAT:
            raise CheckpointError(f"the state has format {state.get('format')!r}, this version reads {_FORMAT}.")
        with self.transaction():
            for kind, key in self._db.execute("SELECT kind, key FROM item").fetchall():
                self.delete(kind, key)
            for kind, items in state["items"].items():
                for key, value in items.items():
                    self.put(kind, key, value)
        self._left = None
        self._mark.unlink(missing_ok=True)  # it belongs to the run that was here before

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._failure = self._failure or f"{self.path} is closed"
        has_log = True
        try:
            has_log = bool(self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
        except sqlite3.Error as error:
            logger.warning("%s keeps its log: %s", self.path, error)
        self._db.close()
        if self._left is not None and not (has_log and self._log.exists()):
            try:
                self._write_mark({**self._left, "is_clean": True})
            except OSError:
                self._mark.unlink(missing_ok=True)  # deleting needs no room

    # --- writing

    def _write(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for (kind, key), value in self._pending.items():
                if value is None:
                    self._db.execute("DELETE FROM item WHERE kind = ? AND key = ?", (kind, key))
                else:
                    self._db.execute("INSERT OR REPLACE INTO item VALUES (?, ?, ?)", (kind, key, value))
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # some faults have rolled back already
                self._db.execute("ROLLBACK")
            raise

    def _try_until_done(self, act: Callable[[], None]) -> None:
        """Do what writes to the disk, again and again while its fault may pass."""
        if self._failure is not None:
            raise StateUnwritableError(self._failure)
        started_s, wait_s, warned_s = self.clock(), _FIRST_WAIT_S, None
        while True:
            try:
                act()
            except (sqlite3.Error, OSError) as error:
                now = self.clock()
                may_pass = isinstance(error, (sqlite3.OperationalError, OSError))
                if not may_pass or now - started_s >= self.patience_s or self.wait(wait_s):
                    self._failure = (
                        f"{self.path} could not be written for {now - started_s:.0f} s: {error}. Make room or fix the "
                        "disk, then start the coordinator again in the same folder "
                        "(policy.learn.resume_training=True): it goes on from what was written, and workers that still "
                        "wait go on with it."
                    )
                    raise StateUnwritableError(self._failure) from error
                if warned_s is None or now - warned_s >= _WORD_S:
                    warned_s = now
                    logger.warning("%s cannot be written (%s): nothing is answered until it can", self.path, error)
                wait_s = min(2 * wait_s, _MAX_WAIT_S)
            else:
                if warned_s is not None:
                    logger.warning("%s is written again, after %.1f s", self.path, self.clock() - started_s)
                return


_CHANNELS = 32  # of one worker; the one that was silent longest makes room
_LEFT_KEPT = 256  # workers that have left
_REPLIES: dict[str, Json] = {
    each.__name__: each for each in (m.ErrorBody, *dict.fromkeys(route.reply for route in ROUTES.values()))
}


class Journal:
    """Secret of each worker, and the last reply on each of its channels; kept for the last workers that left, too.

    A message that is repeated gets the same reply, a RefusedError too, also from a coordinator that was restarted: each
    reply is saved in the transaction of the message that it answers.
    """

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self.secrets = {worker_id: item["secret"] for worker_id, item in store.items("secret")}
        self._replies: dict[str, OrderedDict[str, tuple[int, Any]]] = {}  # (number, reply) by channel
        self._left: OrderedDict[str, None] = OrderedDict()  # workers that have left, in this order
        for key, plain in store.items("answer"):
            worker_id, _, channel = key.partition("/")  # ids have no slash
            reply = decode(_REPLIES[plain["kind"]], plain["body"].encode())
            self._replies.setdefault(worker_id, OrderedDict())[channel] = (plain["number"], reply)

    def find(self, worker_id: str, stamp: Stamp) -> Any:
        """Return the reply that this message had, None for a new one.

        Raises RefusedError as the message did before, and `old_message` for a number below its channel's last.
        """
        check_id(stamp.channel, "the channel")
        if not 1 <= stamp.number < MAX_COUNT:
            raise RefusedError("malformed", f"the number of a message is from 1 to {MAX_COUNT - 1}")
        number, reply = self._replies.get(worker_id, OrderedDict()).get(stamp.channel, (0, None))
        if stamp.number < number:
            raise RefusedError(
                "old_message", f"message {stamp.number} of {stamp.channel} is older than {number}, the last"
            )
        if stamp.number > number:
            return None
        if isinstance(reply, m.ErrorBody):
            raise RefusedError(reply.code, reply.message)
        return reply

    def keep(self, worker_id: str, stamp: Stamp, reply: Any) -> None:
        """Save the reply to a message, a RefusedError too."""
        if isinstance(reply, RefusedError):
            reply = m.ErrorBody(reply.code, reply.message, reply.retryable)
        replies = self._replies.setdefault(worker_id, OrderedDict())
        replies[stamp.channel] = (stamp.number, reply)
        replies.move_to_end(stamp.channel)
        plain = {"number": stamp.number, "kind": type(reply).__name__, "body": encode(reply).decode()}
        self._store.put("answer", f"{worker_id}/{stamp.channel}", plain)
        if len(replies) > _CHANNELS:
            oldest, _ = replies.popitem(last=False)
            self._store.delete("answer", f"{worker_id}/{oldest}")

    def add_worker(self, worker_id: str, secret: str) -> None:
        """Keep the secret of a worker that has registered."""
        self._left.pop(worker_id, None)
        self.secrets[worker_id] = secret
        self._store.put("secret", worker_id, {"secret": secret})

    def worker_left(self, worker_id: str) -> None:
        """Forget the workers that left longest ago, beyond the last `_LEFT_KEPT`."""
        self._left[worker_id] = None
        self._left.move_to_end(worker_id)
        if len(self._left) > _LEFT_KEPT:
            oldest, _ = self._left.popitem(last=False)
            self.secrets.pop(oldest, None)
            self._store.delete("secret", oldest)
            for channel in self._replies.pop(oldest, {}):
                self._store.delete("answer", f"{oldest}/{channel}")


class SavedRun:
    """State file of a run that no coordinator has open, until `close`.

    Raises CheckpointError for a file that cannot be used.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._store = StateStore(self._folder / STATE_FILE)
        self._run: dict[str, Json] = dict(self._store.items("run")).get("run", {})

        book = self._run.get("book", {})
        self.has_begun = bool(self._run)  # whether the coordinator saved anything of the run
        self.is_over = bool(self._run.get("is_over"))  # or failed
        self.failure: str | None = self._run.get("failure")
        self.env_step = int(book.get("env_step", 0))
        self.train_iter = int(self._run.get("learn_iter", 0))  # updates that the learner has reported
        self.close = self._store.close  # may be called again

    def workers_here(self) -> list[int]:
        """Return the ids of the run's workers that still live on this machine."""
        known = [worker["pid"] for _, worker in self._store.items("worker") if worker["host"] == host_name()]
        config = f"{self._folder.resolve().name}/{WORKERS_CONFIG}"  # another process may have the id by now
        return [pid for pid in known if runs_with(pid, config)]

    def reopen(self, *, data: Path, policy: Path) -> int:
        """Let the run continue with other workers, from the files that are there; return how many rows are lost.

        A run that is over is so no longer; weights and rows whose files are gone are forgotten.
        """
        assert self._run, "there is a run to resume"
        with self._store.transaction():
            segments = self._store.items("segment")
            # Rows whose files are gone in part are found out, and left out, by the run.
            are_gone = not any(segment_file(data, entry["name"]).exists() for _, entry in segments)
            for kind in ("worker", "secret", "answer", *(["segment"] if are_gone else [])):
                for key, _ in self._store.items(kind):
                    self._store.delete(kind, key)
            if are_gone:
                self._run["book"]["numbers"] = None  # on-policy, segments are numbered from 1 again
            for policy_id, version in self._store.items("policy"):
                if not weights_file(policy, policy_id, version["attempt"], version["version"]).exists():
                    self._store.delete("policy", policy_id)
            if self._run["is_over"]:
                self._run.update(is_over=False, failure=None)
                self._run["commander"].update(stop=False, final_policy=None, unconfirmed=None, learn_result=None)
            self._queue_tasks()
            self._store.put("run", "run", self._run)
        return sum(entry["rows"] for _, entry in segments) if are_gone else 0

    def _queue_tasks(self) -> None:
        """Queue all tasks; the next learner knows by the attempt that it continues from what an earlier one saved."""
        has_learner = False
        for task_id, plain in self._store.items("task"):
            task = TaskEntry(**plain)
            if task.status in (FINISHED, FAILED) or task.kind == "eval":  # of weights that may be gone
                self._store.delete("task", task_id)
                continue
            has_learner |= task.kind == "learn"
            task.status, task.worker_id, task.is_asked_back, task.failures, task.failed_by = QUEUED, None, False, 0, []
            self._store.put("task", task_id, task.to_plain())
        if has_learner:
            return
        self._run["_num_tasks"] += 1
        task_id = f"learn-{self._run['_num_tasks']}"
        task = TaskEntry(task_id, "learn", "buffer", "policy", {}, attempt=max(self._run["book"]["learner_attempt"], 1))
        self._store.put("task", task_id, task.to_plain())


QUEUED, LEASED, FINISHED, FAILED = "queued", "leased", "finished", "failed"


@dataclass
class TaskEntry:
    """One task; all but times by the coordinator's clock is saved."""

    task_id: str
    kind: str  # collect, eval or learn
    buffer_id: str
    policy_id: str
    cfg: dict[str, Json]
    status: str = QUEUED
    attempt: int = 0  # counts the workers it was given to
    failures: int = 0
    failed_by: list[int] = field(default_factory=list)  # indices of the workers at which it failed
    worker_id: str | None = None
    deadline_s: float = 0.0  # of the lease, by the coordinator's clock
    is_asked_back: bool = False  # the worker is to finish it early
    policy: dict[str, Json] | None = None  # PolicyVersion that an evaluation is of
    leased_s: float = float("-inf")  # when it was given to its worker; not known after a restart

    def to_plain(self) -> dict[str, Json]:
        """Return what is saved."""
        return {name: value for name, value in vars(self).items() if name not in ("deadline_s", "leased_s")}

    @property
    def is_open(self) -> bool:
        """Whether the task is queued or being done."""
        return self.status in (QUEUED, LEASED)


class TaskTable(dict[str, TaskEntry]):
    """Tasks by id, with their leases."""

    def check(self, task_id: str, attempt: int, worker_id: str) -> TaskEntry:
        """Return the task if this attempt at it is the current one of this worker. Raises RefusedError."""
        task = self.get(task_id)
        if task is None:
            raise RefusedError("unknown", f"there is no task {task_id}")
        if attempt != task.attempt or (task.status == LEASED and task.worker_id != worker_id):
            why = f"attempt {attempt} at {task_id} is over; the current one is {task.attempt}"
            raise RefusedError("stale_attempt", why)
        if task.status != LEASED:
            raise RefusedError("stale_attempt" if task.is_open else "finished", f"{task_id} is {task.status}")
        return task

    def of_worker(self, worker_id: str) -> list[TaskEntry]:
        """Return the tasks that a worker holds."""
        return [task for task in self.values() if task.status == LEASED and task.worker_id == worker_id]

    def release(self, task: TaskEntry) -> None:
        """Put a leased task back into the queue: its worker has gone."""
        task.status, task.worker_id, task.is_asked_back = QUEUED, None, False

    def queued(self, kind: str) -> list[TaskEntry]:
        """Return the tasks of a kind that wait for a worker."""
        return [task for task in self.values() if task.kind == kind and task.status == QUEUED]

    def first(self, kind: str) -> TaskEntry | None:
        """Return the first task of a kind, in whatever state."""
        return next((task for task in self.values() if task.kind == kind), None)


@dataclass
class WorkerEntry:
    """One registered worker."""

    worker_id: str
    role: str
    host: str
    pid: int
    index: int  # the smallest number that no other worker of the role has
    deadline_s: float = 0.0  # by which it must be heard of
    stats: dict[str, Json] = field(default_factory=dict)
    state: str = "new"
    env_steps: int = 0
    rows: int = 0  # that were taken from it
    policy_version: int = 0  # that it acted with last
    credit: int = 0  # rows it was allowed and has not sent yet
    waits_since_s: float | None = None  # for such an allowance
    heard_s: float = 0.0  # when it asked for one last
    has_worked: bool = False  # rows of its were taken, or batches given to it

    def to_plain(self) -> dict[str, Json]:
        """Return what is saved."""
        return {"role": self.role, "host": self.host, "pid": self.pid, "index": self.index}


# Between two reports of a learner; what is longer was spent waiting for data.
_LONGEST_S = 5.0


class SilenceWatch:
    """Watch over the seconds in which updates were reported and no newer weights published."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Start over: weights were published, or another attempt has begun."""
        self.silent_s = 0.0
        self._learn_iter = -1
        self._reported_s: float | None = None

    def report(self, learn_iter: int, now_s: float) -> None:
        """Take the news of updates up to `learn_iter`."""
        if learn_iter <= self._learn_iter:
            return
        if self._reported_s is not None:
            self.silent_s += min(now_s - self._reported_s, _LONGEST_S)
        self._learn_iter, self._reported_s = learn_iter, now_s


# --- what workers report, against what they can have done

_MAX_RETURN = 1e30  # of an episode: sums and squares of many stay finite
_SLACK_S = 5.0  # by which the duration of an evaluation may exceed its lease: clocks differ, and processes are paused
_MAX_STATS = 64  # numbers that a worker shows beside its work
_LISTS = ("returns", "lengths", "eval_value_raw", "eval_lengths")  # of a result, a number for each episode
# The smallest number by its name, of evaluations and of a learner.
_LEAST = {
    **dict.fromkeys(("returns", "eval_value_raw", "eval_value"), -_MAX_RETURN),
    **dict.fromkeys(("lengths", "eval_lengths", "train_iter", "last_iter", "judge_s", "train_s"), 0.0),
}


def check_evaluation(result: Mapping[str, Json], *, n_episode: int, version: int | None, leased_s: float) -> None:
    """Raise SchemaError unless a result, of numbers, is that of an evaluation of `n_episode` with these weights."""
    for name in ("returns", "lengths"):
        values = result.get(name)
        if not isinstance(values, (list, tuple)) or len(values) != n_episode:
            raise SchemaError(f"a result of {n_episode} episodes has {name} {values!r:.80}.")
    least, most = (0, MAX_COUNT) if version is None else (version, version)
    if not _is_number(result.get("version"), least, most):
        raise SchemaError(f"an evaluation is of version {result.get('version')!r:.80}; expected {version}.")
    if not _is_number(result.get("duration_s"), 0.0, leased_s + _SLACK_S):
        raise SchemaError(
            f"an evaluation took {result.get('duration_s')!r:.80} s (duration_s); it was given {leased_s:.1f} s ago."
        )


def check_numbers(result: Mapping[str, Json]) -> None:
    """Raise SchemaError unless a result has numbers, or lists and metrics of such, where they are expected."""
    for name, bound in _LEAST.items():
        value = result.get(name, [] if name in _LISTS else bound)
        is_list = isinstance(value, (list, tuple))
        values = value if is_list else [value]
        if is_list != (name in _LISTS) or not all(_is_number(each, bound, _MAX_RETURN) for each in values):
            raise SchemaError(f"a result has {name} {value!r:.80}; expected numbers from {bound:g}.")
    for name in ("metrics", "eval_metrics"):
        metrics = result.get(name, {})
        is_short = isinstance(metrics, Mapping) and len(metrics) <= _MAX_STATS
        if not is_short or not all(_is_number(value, -_MAX_RETURN, _MAX_RETURN) for value in metrics.values()):
            raise SchemaError(f"a result has {name} {metrics!r:.80}; expected up to {_MAX_STATS} numbers by name.")


def bounded_stats(stats: Mapping[str, Json]) -> dict[str, Json]:
    """Return what of a worker's numbers is shown: so many, and those of which means can be taken."""
    kept = {
        name: value
        for name, value in stats.items()
        if not isinstance(value, (int, float)) or _is_number(value, -_MAX_RETURN, _MAX_RETURN)
    }
    return dict(islice(kept.items(), _MAX_STATS))


def _is_number(value: Any, least: float, most: float) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    # Not math.isfinite: an int of 400 digits has no float.
    return is_number and least <= value <= most and abs(value) != math.inf
