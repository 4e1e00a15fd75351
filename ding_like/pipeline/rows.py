"""Rows of a run: what remote collectors return, the store, and the ratio of updates to what was collected."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ding_like.comm.channels import Batch, CollectRequest, Segment, Version
from ding_like.config import FrozenConfig
from ding_like.data.batch import TransitionBatch
from ding_like.data.records import PREFIX, mean_metrics, of_stats
from ding_like.data.rows import as_batch
from ding_like.errors import SchemaError
from ding_like.pipeline.statistics import MergedStatistics, Statistics
from ding_like.report.details import Details
from ding_like.types import Array, Setting, State
from ding_like.utils.log import one_time_warning
from ding_like.utils.measure import Interval
from ding_like.utils.metrics import MetricsSink

if TYPE_CHECKING:  # the command line imports this module, and needs no torch
    from ding_like.worker import BaseLearner, IBuffer


@dataclass(frozen=True)
class UpdateRatio:
    """Ratio of updates to env steps: after `warmup_steps` random ones, `updates` follow each `steps`.

    Collectors may be ahead by `max_lead` env steps. In one process a step is what a `RowQueue` counts.
    """

    warmup_steps: int
    steps: int
    updates: int
    max_lead: int

    def allowed_updates(self, env_step: int) -> int:
        """Return how many updates may have been taken when `env_step` steps have."""
        return max(0, env_step - self.warmup_steps) * self.updates // self.steps

    def credit(self, env_step: int, granted: int) -> int:
        """Return how many more env steps may be taken while `granted` updates have been handed out."""
        if not self.updates:
            return self.max_lead  # nothing is learned that collecting could run ahead of
        needed = self.warmup_steps + -(-granted * self.steps // self.updates)
        return max(0, needed + self.max_lead - env_step)

    @property
    def lasting_credit(self) -> int:
        """Credit that there is, at least, whenever all updates that are allowed were handed out."""
        return max(1, self.max_lead - -(-self.steps // max(self.updates, 1)))


@dataclass(frozen=True)
class OnPolicyRatio:
    """Ratio of on-policy runs: a batch of `batch_rows` rows by the newest weights, one update with it, and so on.

    With `batch_segments` a batch is so many segments of whole episodes, however many rows they have, and a request of
    one row stands for one of them.
    """

    batch_rows: int
    batch_segments: int = 0


def least_lead(*, warmup_steps: int, steps: int, updates: int, segment_steps: int, batch_steps: int) -> int:
    """Return the smallest lead, in env steps, with which neither side waits for the other for ever.

    Collectors are given a whole segment, of `segment_steps` env steps, or nothing, an update needs `steps / updates`
    env steps, and the first needs a whole batch, which takes `batch_steps`, even where there is no warm-up.
    """
    return max(0, batch_steps - warmup_steps) + segment_steps + -(-steps // updates)


class RowQueue:
    """Queue between collecting and learning in one process, in the ratio of a config; threads may share it.

    With a replay buffer each row (of a config with `n_episode`, each episode) allows its part of `update_per_collect`
    updates; without one each segment is learned from once. Updates that are due while the buffer has fewer rows than a
    batch, or than `least_rows`, are skipped. `newest` returns the version of the learner's weights.
    """

    def __init__(
        self,
        cfg: FrozenConfig,
        buffer: IBuffer | None,
        *,
        newest: Callable[[], Version],
        env_step: int = 0,  # taken before
        least_rows: int = 0,
    ) -> None:
        collect, learn = cfg.policy.collect, cfg.policy.learn
        self._buffer = buffer
        self._batch: Batch | None = None  # the newest segment's rows, without a buffer
        self._newest, self._least_rows, self._batch_size = newest, least_rows, learn.batch_size
        self._segment_rows = collect.get("n_sample") or collect.get("n_episode") or 1
        self._counts: str = "segments" if buffer is None else "rows" if collect.get("n_sample") else "episodes"
        each, updates = (1, 1) if buffer is None else (self._segment_rows, learn.update_per_collect)
        self._ratio = UpdateRatio(warmup_steps=0, steps=each, updates=updates, max_lead=each)
        self._has_priorities = bool(cfg.policy.get("priority"))
        self.env_step = env_step
        self.num_rows = 0  # that came
        self.num_drawn = 0  # batches that were handed out
        self._collected = 0  # segments, rows or episodes that allow updates
        self._granted = 0  # updates that were handed out or skipped
        self._drawn: Batch | None = None
        self._lock = threading.RLock()

    def put(self, segment: Segment, *, asked: int | None = None) -> CollectRequest:
        """Store a segment's rows, and return the next request.

        `asked` is how many episodes it was to have where episodes are counted, by default those of a request.
        """
        with self._lock:
            self.put_random(segment)
            if self._counts == "episodes":
                self._collected += self._segment_rows if asked is None else asked
            else:
                self._collected += len(segment.batch) if self._counts == "rows" else 1
            return self.order()

    def put_random(self, segment: Segment) -> None:
        """Store a segment of random actions, which are collected before a run's first update and allow none."""
        with self._lock:
            self.env_step += segment.env_steps
            self.num_rows += len(segment.batch)
            if self._buffer is None:
                self._batch = segment.batch
            else:
                self._buffer.push(segment.batch, cur_collector_envstep=self.env_step)

    def drop(self, segment: Segment) -> None:
        """Count the env steps of a segment whose rows are not learned from."""
        with self._lock:
            self.env_step += segment.env_steps

    def order(self) -> CollectRequest:
        """Return how many rows may be collected now; 0 while updates are behind."""
        with self._lock:
            rows = self._segment_rows if self._ratio.credit(self._collected, self._granted) > 0 else 0
            return CollectRequest(False, rows, self.env_step, self._newest())

    def next(self) -> Batch | None:
        """Return a batch if the ratio allows an update and the store has as many rows, else None."""
        with self._lock:
            allowed = self._ratio.allowed_updates(self._collected)
            if self._granted >= allowed:
                return None
            if self._buffer is None:
                batch, self._batch = self._batch, None
            elif self._least_rows and self._buffer.count() < self._least_rows:
                batch = None
            else:
                batch = self._buffer.sample(self._batch_size, self._newest().update)
                if batch is None:
                    warn_of_few_rows(self._batch_size)
            self._granted = allowed if batch is None else self._granted + 1
            self._drawn = batch
            self.num_drawn += batch is not None
            return batch

    def train_next(self, learner: BaseLearner) -> bool:
        """Train a learner on the next batch; return False if there is none."""
        batch = self.next()
        if batch is None:
            return False
        learner.train(batch, self.env_step)
        self.update_priorities(learner.priority_info.get("priority"))
        return True

    def update_priorities(self, priority: Array | None) -> None:
        """Store the priorities [B] of the last batch. Raises SchemaError where the config wants some, for None."""
        if self._buffer is not None and self._has_priorities:
            with self._lock:
                update_priorities(self._buffer, self._drawn, priority)

    def state_dict(self, *, num_lost: int = 0) -> State:
        """Return how much was collected and how many updates were made of it; the store saves itself.

        `num_lost` batches were handed out and not learned from: they are handed out again.
        """
        with self._lock:
            return {"collected": self._collected, "granted": self._granted - num_lost}

    def load_state_dict(self, state: State) -> None:
        """Resume from what `state_dict` returned."""
        with self._lock:
            self._collected, self._granted = state["collected"], state["granted"]


def warn_of_few_rows(batch_size: int) -> None:
    """Warn, once, that a buffer had fewer rows than a batch."""
    one_time_warning(
        f"the replay buffer holds fewer rows than batch_size {batch_size}: updates begin when it has as many. "
        "policy.random_collect_size fills it first, where random actions can be learned from."
    )


def update_priorities(store: IBuffer, batch: Batch | None, priority: Array | None) -> None:
    """Give a store the priorities of the rows, or windows, of a batch. Raises SchemaError if the policy gave none."""
    if priority is None:
        raise SchemaError(
            "policy.priority is True, but the policy gave no priorities: return them as the second value of "
            "`grad` (in DI-engine's style, as 'priority'), or set policy.priority=False."
        )
    rows = as_batch(batch)
    # Windows have a priority each, so their places stand apart from their rows' columns.
    columns = getattr(batch, "per_window", {}) if rows is None else rows.columns
    places = {name: columns.get(name) for name in ("replay_buffer_idx", "replay_unique_id")}
    store.update({"priority": priority, **places})


_WINDOW_S = 10.0  # rates are those of so long
_METRICS_S = 1.0
_RECENT = 100  # lags and ages that are averaged


@dataclass
class _Collector:
    """Report of one collector."""

    mean_return: float = math.nan  # of its last episodes
    mean_length: float = math.nan
    metrics: Mapping[str, float] = field(default_factory=dict)  # of its envs
    taken: deque[tuple[float, int, int]] = field(default_factory=deque)  # (when it came, env steps, rows)
    version: int = 0  # of the weights that it acted with last: updates


class RemoteCollectors:
    """Collectors of other processes: what they collected, and how old it was when it was learned from.

    `PolicyLag` is the number of updates between the weights that collected rows and the learner's when these are put;
    `data_age_s` is how long they were on their way. Once a second the means go into the metrics.
    """

    def __init__(self, metrics: MetricsSink | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.envstep = 0
        self.setting: Setting = {}  # sent to a collector last
        self.dropped_rows = 0  # that were too old
        self.beside: Callable[[], Mapping[str, float]] = dict  # what else goes into the metrics with the rates
        self._metrics = metrics
        self._clock = clock
        self._collectors: dict[str, _Collector] = {}
        self._lags: deque[float] = deque(maxlen=_RECENT)
        self._ages_s: deque[float] = deque(maxlen=_RECENT)
        self._rounds_s: deque[float] = deque(maxlen=_RECENT)
        self._metrics_due = Interval(_METRICS_S)

    # --- recording

    def note(self, worker: str, segment: Segment) -> None:
        """Record a segment that a collector returned."""
        each = self._collectors.setdefault(worker, _Collector())
        setting = dict(segment.stats)
        mean_return, mean_length = setting.pop("return", None), setting.pop("length", None)
        each.mean_return = each.mean_return if mean_return is None else float(mean_return)
        each.mean_length = each.mean_length if mean_length is None else float(mean_length)
        each.metrics = of_stats(setting) or each.metrics
        each.version = segment.version.update
        each.taken.append((self._clock(), segment.env_steps, len(segment.batch)))
        while len(each.taken) > 2 and each.taken[-1][0] - each.taken[1][0] >= _WINDOW_S:
            each.taken.popleft()
        self.setting = {name: value for name, value in setting.items() if not name.startswith(PREFIX)}

    def note_put(self, *, train_iter: int, version: int, age_s: float) -> None:
        """Record rows that were stored, collected by the weights of `version`, and their age."""
        self._lags.append(train_iter - version)
        self._ages_s.append(age_s)
        if self._metrics is not None and self._metrics_due.pass_s():
            self._metrics.write("collector", self._numbers(), env_step=self.envstep, train_iter=train_iter)

    def note_round(self, duration_s: float) -> None:
        """Record the duration of a synchronous round."""
        self._rounds_s.append(duration_s)

    def keep(self, workers: Collection[str]) -> None:
        """Forget collectors that are no longer there."""
        self._collectors = {name: each for name, each in self._collectors.items() if name in workers}

    # --- reporting

    @property
    def mean_return(self) -> float:
        """Return the mean over collectors of what their last episodes returned; NaN before the first."""
        return _mean(each.mean_return for each in self._collectors.values())

    @property
    def mean_length(self) -> float:
        """Return the mean over collectors of the lengths of their last episodes, in env steps."""
        return _mean(each.mean_length for each in self._collectors.values())

    @property
    def mean_metrics(self) -> dict[str, float]:
        """Return the means over collectors of the envs' own metrics."""
        return mean_metrics(each.metrics for each in self._collectors.values())

    def rates(self) -> dict[str, tuple[float, float]]:
        """Return env steps and rows per second by collector, over the last ten seconds."""
        return {name: _rates(each) for name, each in list(self._collectors.items())}

    def report_of(self, name: str, newest: int) -> dict[str, Any]:  # Any: arguments of a ProcessReport
        """Return the rates and the policy lag of a collector, by fields of a ProcessReport; any thread may call it.

        `newest` is the learner's iteration; without rows of the collector nothing is known.
        """
        each = self._collectors.get(name)
        if each is None:
            return {}
        steps, rows = _rates(each)
        return {"env_steps_per_s": steps, "rows_per_s": rows, "policy_lag": float(newest - each.version)}

    def details(self) -> Details:
        """Return how old rows are, and how many were dropped; any thread may call it."""
        lag, age_s = _mean(list(self._lags)), _mean(list(self._ages_s))
        return Details(
            lost_rows={"too old": self.dropped_rows} if self.dropped_rows else {},
            policy_lag=None if math.isnan(lag) else lag,
            data_age_s=None if math.isnan(age_s) else age_s,
        )

    def describe(self) -> dict[str, str]:
        """Return the rows of a run's panel."""
        rates = self.rates()
        said = {"collectors": str(len(rates)), "policy lag": f"{_mean(self._lags):.3g} updates"}
        said["data age"] = f"{1000 * _mean(self._ages_s):.3g} ms"
        if self._rounds_s:
            said["round"] = f"{1000 * _mean(self._rounds_s):.3g} ms"
        if self.dropped_rows:
            said["rows too old"] = f"{self.dropped_rows:,}"
        return {**said, **{name: f"{steps:,.0f} env steps/s" for name, (steps, _) in rates.items()}}

    def _numbers(self) -> dict[str, float]:
        steps, rows = zip(*self.rates().values(), strict=True) if self._collectors else ((), ())
        numbers = {
            "reward_mean": self.mean_return,
            "avg_envstep_per_episode": self.mean_length,
            **self.mean_metrics,
            "PolicyLag": _mean(self._lags),
            "data_age_s": _mean(self._ages_s),
            "round_s": _mean(self._rounds_s),
            "envstep_per_sec": sum(steps),
            "rows_per_sec": sum(rows),
            "dropped_rows": float(self.dropped_rows),
            **self.beside(),
            **{name: float(value) for name, value in self.setting.items() if isinstance(value, (int, float))},
        }
        return {name: value for name, value in numbers.items() if not math.isnan(value)}

    # --- what a run asks of its collector

    def state_dict(self) -> State:
        """Return the counts; open episodes of collectors begin anew in a resumed run."""
        return {"envstep": self.envstep, "dropped_rows": self.dropped_rows}

    def load_state_dict(self, state: State) -> None:
        """Go on from what `state_dict` returned."""
        self.envstep, self.dropped_rows = state["envstep"], state["dropped_rows"]

    def close(self) -> None:
        """Do nothing: the worker set ends the collectors."""


def _mean(values: Any) -> float:  # Any: an iterable of numbers, some of which may be NaN
    finite = [value for value in values if value == value]
    return sum(finite) / len(finite) if finite else math.nan


def _rates(each: _Collector) -> tuple[float, float]:
    """Return env steps and rows per second between the first and the last that came."""
    taken = list(each.taken)
    if len(taken) < 2:
        return 0.0, 0.0
    seconds, later = max(taken[-1][0] - taken[0][0], 1e-9), taken[1:]
    return sum(steps for _, steps, _ in later) / seconds, sum(rows for _, _, rows in later) / seconds


# Columns of numbers that every worker counts from 0.
_NUMBERED = ("lane", "env_id", "episode_id")
_LANES_APART = 1 << 20  # from a worker's lanes to the next one's


class Collected(NamedTuple):
    """Segment that a worker returned, when it came, and how many rows (or whole episodes) were asked for."""

    worker: str
    segment: Segment
    came_s: float
    asked: int


@dataclass(eq=False)
class RowReceiver:
    """Receiver of segments, which it puts into `rows` and counts in `report`; wrappers' statistics are merged.

    Rows that were collected with weights more than `max_policy_lag` updates older than the learner's, which `newest`
    returns, are dropped and counted. With `follows_episodes` each worker has lanes of its own for ever, and episodes
    keep their numbers, so that a buffer finds the rows of an episode which came with several segments.
    """

    rows: RowQueue
    report: RemoteCollectors
    newest: Callable[[], Version]
    merged: MergedStatistics | None = None
    max_policy_lag: float = math.inf
    follows_episodes: bool = False
    _workers: dict[str, int] = field(default_factory=dict)  # by name, in order of appearance

    def put(self, parts: Sequence[Collected], order: CollectRequest) -> CollectRequest:
        """Put what came as one segment and return the next order, or `order` where there is nothing to learn from."""
        update = self.newest().update
        fresh = [part for part in parts if update - part.segment.version.update <= self.max_policy_lag]
        for part in parts:
            self._note(part.worker, part.segment)
            if part not in fresh:
                self.rows.drop(part.segment)
                self.report.dropped_rows += len(part.segment.batch)
        if fresh:
            joined = self._joined(fresh)
            order = self.rows.put(joined, asked=sum(part.asked for part in fresh))
            self.report.envstep = order.env_step
            age_s = time.monotonic() - fresh[0].came_s
            self.report.note_put(train_iter=update, version=joined.version.update, age_s=age_s)
        self.report.envstep = self.rows.env_step
        return order

    def put_random(self, parts: Sequence[Collected]) -> int:
        """Put rows of random actions, which allow no updates; return how many there are."""
        if not parts:
            return 0
        for part in parts:
            self._note(part.worker, part.segment)
        joined = self._joined(parts)
        self.rows.put_random(joined)
        self.report.envstep = self.rows.env_step
        return len(joined.batch)

    def count_elsewhere(self, worker: str, segment: Segment, *, age_s: float) -> None:
        """Count a segment whose rows another process learns from."""
        self._note(worker, segment)
        self.rows.drop(segment)
        self.rows.num_rows += len(segment.batch)
        self.report.envstep = self.rows.env_step
        self.report.note_put(train_iter=self.newest().update, version=segment.version.update, age_s=age_s)

    def statistics(self) -> Statistics:
        """Return what the envs' wrappers have observed, by wrapper and field."""
        return {} if self.merged is None else self.merged.weights()

    def _note(self, worker: str, segment: Segment) -> None:
        self.report.note(worker, segment)
        if self.merged is not None and segment.observed:
            self.merged.merge(segment.observed)

    def _joined(self, parts: Sequence[Collected]) -> Segment:
        """Return one segment of all rows, in order, with the oldest version; the lanes of each part are its own."""
        segments = [part.segment for part in parts]
        batches: list[Any] = [each.batch for each in segments]
        if not all(isinstance(batch, TransitionBatch) for batch in batches):
            batch: Any = [row for batch in batches for row in batch]
        elif self.follows_episodes:
            batch = TransitionBatch.concat([self._with_own_lanes(part) for part in parts])
        else:
            batch = TransitionBatch.concat(_apart(batches))
        version, env_steps = min(each.version for each in segments), sum(each.env_steps for each in segments)
        return Segment(batch, version, env_steps, segments[-1].stats)

    def _with_own_lanes(self, part: Collected) -> TransitionBatch:
        """Return a worker's rows with lanes that no other worker has."""
        batch, number = part.segment.batch, self._workers.setdefault(part.worker, len(self._workers))
        assert isinstance(batch, TransitionBatch), "the caller saw to it"
        return batch.with_columns(lane=batch["lane"] + number * _LANES_APART) if "lane" in batch.columns else batch


def _apart(batches: Sequence[TransitionBatch]) -> list[TransitionBatch]:
    """Return batches of several workers, all of which number from 0, so that no two have a number in common.

    Policies that follow a trajectory through a batch find it by these numbers. The first batch stays as it is.
    """
    firsts = dict.fromkeys(_NUMBERED, 0)
    found = []
    for batch in batches:
        numbers = {name: batch[name] + firsts[name] for name in _NUMBERED if name in batch.columns and firsts[name]}
        found.append(batch.with_columns(**numbers) if numbers else batch)
        firsts.update({name: _after(found[-1][name], firsts[name]) for name in _NUMBERED if name in batch.columns})
    return found


def _after(numbers: Any, least: int) -> int:  # Any: a column of numbers [B]
    """Return the first number above all of a column's."""
    return max(least, int(numbers.max()) + 1) if len(numbers) else least


def shares(rows: int, number: int) -> list[int]:
    """Return how many of `rows` each of a number of workers collects, the first ones one more where need be."""
    each, more = divmod(rows, max(number, 1))
    return [each + (place < more) for place in range(number)]
