"""Take in what collectors of other processes return: into the rows of a run, once each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ding_like.comm.channels import Order, Segment, Version
from ding_like.comm.local import LocalRows
from ding_like.data.batch import TransitionBatch
from ding_like.pipeline.roles.remote_collectors import RemoteCollectors
from ding_like.pipeline.statistics import MergedStatistics

# Columns of numbers that every worker counts from 0.
_NUMBERED = ("lane", "env_id", "episode_id")
_LANES_APART = 1 << 20  # from a worker's lanes to the next one's


class Collected(NamedTuple):
    """Hold a segment that a worker returned, when it came, and how many rows (or whole episodes) were asked for."""

    worker: str
    segment: Segment
    came_s: float
    asked: int


class Intake:
    """Put segments into `rows`, and tell `report`; statistics of the envs' wrappers are merged.

    Rows that were collected with weights more than `max_policy_lag` updates older than the learner's, which `newest`
    returns, are dropped and counted. With `follows_episodes` each worker has lanes of its own for ever, and episodes
    keep their numbers, so that a buffer finds the rows of an episode which came with several segments.
    """

    def __init__(
        self,
        rows: LocalRows,
        report: RemoteCollectors,
        *,
        newest: Callable[[], Version],
        statistics: MergedStatistics | None = None,
        max_policy_lag: int | None = None,
        follows_episodes: bool = False,
    ) -> None:
        self._rows = rows
        self._statistics = statistics
        self._max_policy_lag = math.inf if max_policy_lag is None else max_policy_lag
        self._workers: dict[str, int] | None = {} if follows_episodes else None  # by name, in order of appearance
        self.report = report
        self.newest = newest

    @property
    def env_step(self) -> int:
        """Return the env steps of the run."""
        return self._rows.env_step

    def put(self, parts: Sequence[Collected], order: Order) -> Order:
        """Put what came as one segment and return the next order, or `order` where there is nothing to learn from."""
        update = self.newest().update
        fresh = [part for part in parts if update - part.segment.version.update <= self._max_policy_lag]
        for part in parts:
            self._note(part)
            if part not in fresh:
                self._drop(part)
        if fresh:
            joined = self._joined(fresh)
            order = self._rows.put(joined, asked=sum(part.asked for part in fresh))
            self.report.envstep = order.env_step
            self.report.note_put(train_iter=update, version=joined.version.update, came_s=fresh[0].came_s)
        self.report.envstep = self._rows.env_step
        return order

    def drop(self, part: Collected) -> None:
        """Count the env steps and the rows of a segment that is not to be learned from."""
        self._note(part)
        self._drop(part)
        self.report.envstep = self._rows.env_step

    def _drop(self, part: Collected) -> None:
        self._rows.drop(part.segment)
        self.report.dropped_rows += len(part.segment.batch)

    def put_random(self, parts: Sequence[Collected]) -> int:
        """Put rows of random actions, which allow no updates; return how many there are."""
        if not parts:
            return 0
        for part in parts:
            self._note(part)
        joined = self._joined(parts)
        self._rows.put_random(joined)
        self.report.envstep = self._rows.env_step
        return len(joined.batch)

    def _note(self, part: Collected) -> None:
        self.report.note(part.worker, part.segment)
        if self._statistics is not None and part.segment.observed:
            self._statistics.merge(part.segment.observed)

    def _joined(self, parts: Sequence[Collected]) -> Segment:
        """Return one segment of all rows, in order, with the oldest version; the lanes of each part are its own."""
        segments = [part.segment for part in parts]
        batches: list[Any] = [each.batch for each in segments]
        if not all(isinstance(batch, TransitionBatch) for batch in batches):
            batch: Any = [row for batch in batches for row in batch]
        elif self._workers is None:
            batch = TransitionBatch.concat(_apart(batches))
        else:
            batch = TransitionBatch.concat([self._with_own_lanes(part) for part in parts])
        version, env_steps = min(each.version for each in segments), sum(each.env_steps for each in segments)
        return Segment(batch, version, env_steps, segments[-1].stats)

    def _with_own_lanes(self, part: Collected) -> TransitionBatch:
        """Return a worker's rows with lanes that no other worker has."""
        assert self._workers is not None and isinstance(part.segment.batch, TransitionBatch)
        batch, number = part.segment.batch, self._workers.setdefault(part.worker, len(self._workers))
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
