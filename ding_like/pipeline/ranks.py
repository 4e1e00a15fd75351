"""Runs by the ranks of a torch.distributed group: rank 0 learns, the others collect. See docs/ranks.md.

Rows travel as safetensors bytes, with what belongs to them as JSON in the metadata: nothing in them is executed.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import torch

from ding_like.comm import DistributedWeightUpdater
from ding_like.comm.channels import CollectRequest, Segment, Version, Weights
from ding_like.comm.learner_group import LearnerGroup, Pair
from ding_like.comm.tensors import from_bytes, to_bytes
from ding_like.comm.update_worker import CONTINUE, DOWN, SHUTDOWN, NodeStore, WeightUpdateWorker, key_of
from ding_like.data.batch import TransitionBatch
from ding_like.errors import CommError
from ding_like.pipeline.collect import PolicyWeights, RolloutWorker
from ding_like.pipeline.learners.synced import processes_of
from ding_like.pipeline.rows import Collected, shares
from ding_like.pipeline.scheme_parts import LearnerSide
from ding_like.pipeline.settings import RankSettings
from ding_like.pipeline.statistics import flat_names
from ding_like.pipeline.training_loop import RemoteRunner
from ding_like.report.details import Details, ProcessReport
from ding_like.types import Array
from ding_like.utils.registries import RANK_COLLECTOR_REGISTRY

_LOOK_S = 1.0  # between two looks at whether the trainer lives
TRAINER = 0
DROP = "drop"  # what the trainer answers to rows that it does not take any more
_SEGMENT, _ROWS, _OBSERVED = "segment", "rows/", "observed/"


@RANK_COLLECTOR_REGISTRY.register("rank")
class RankCollector(WeightUpdateWorker):
    """Collecting rank of a run: `continue` collects what the trainer has ordered, `update_weights` brings weights.

    `make_end(rank)` builds envs, policy and collector. An order is a JSON text under `NODE_{r}_order`; rows are
    announced by a header in the store, and sent once the trainer asks for them: `timeout_s` is the longest that sending
    may take then, in seconds.
    """

    def __init__(self, group: LearnerGroup, make_end: Callable[[int], RolloutWorker], *, timeout_s: float) -> None:
        super().__init__(group.store, group.rank, timeout_s=timeout_s)
        self._group = group
        self._end = make_end(group.rank)
        self._state: Weights | None = None
        self._order = CollectRequest(False, 0, 0, None)
        self._rows: Pair | None = None
        self._end.connect(PolicyWeights(self._end.policy), self)
        group.announce(f"ready/{group.rank}")

    def serve(self) -> None:
        """Follow words until `shutdown`. Raises CommError if the trainer is lost, and what collecting raises."""
        word: str | None = ""
        while word != SHUTDOWN:
            word = self.step(timeout_s=_LOOK_S)
            if word is None:
                self._group.check(TRAINER)

    def update(self, weights: Weights) -> None:
        """Keep weights; the next order names their version, and its collection loads them."""
        self._state = weights

    def collect(self) -> None:
        """Collect what the newest order asks for, and send the rows."""
        text = self._store.get(key_of(self.rank, "order"), timeout_s=self._timeout_s)
        order = json.loads(text or "{}")
        version = Version(*order["newest"])
        self._order = CollectRequest(False, int(order["rows"]), int(order["env_step"]), version)
        if order.get("statistics"):
            self._end.statistics.use_flat({name: np.array(each) for name, each in order["statistics"].items()})
        if self._state is not None:
            self._end.weights.put(self._state._replace(version=version))
            self._state = None
        self._end.collect(self._order)

    def seed(self, number: int) -> int:
        """Seed the envs: their next episodes begin from it."""
        self._end.envs.seed(number)
        return number

    # --- where its rows go: a RowSink

    def put(self, segment: Segment) -> CollectRequest:
        """Send a segment to the trainer; return the order it was collected for."""
        body = torch.from_numpy(encode_segment(segment))
        number = self._group.store.add("num_rows", 1)
        self._group.announce(f"rows/{number}", json.dumps([self.rank, body.numel()]))
        if self._group.wait_for(f"take/{number}", of=[TRAINER], delete=True) == DROP:
            return self._order  # the run has ended
        if self._rows is None:
            self._rows = Pair(self._group.store, f"rows/{self.rank}", member=1, timeout_s=self._timeout_s)
        self._rows.send(body, timeout_s=self._timeout_s)
        return self._order

    def order(self, *, timeout_s: float) -> CollectRequest:
        """Return the newest order."""
        return self._order

    def close(self) -> None:
        """Close the envs and the connections; may be called again."""
        if self._rows is not None:
            self._rows.close()
        self._end.close()
        super().close()


def encode_segment(segment: Segment) -> Array:
    """Return a segment as bytes, uint8 [N]. Raises CommError for rows that are no columns of numbers."""
    batch = segment.batch
    if not isinstance(batch, TransitionBatch) or any(each.dtype.kind not in "biuf" for each in batch.columns.values()):
        raise CommError(
            f"ranks send rows as columns of numbers, and the policy makes {type(batch).__name__}s of others: give its "
            "rows numbers of equal shapes, or run it with `ding -m serial`."
        )
    columns = {f"{_ROWS}{name}": each for name, each in batch.columns.items()}
    columns |= {f"{_OBSERVED}{name}": np.asarray(each) for name, each in segment.observed.items()}
    # torch takes arrays that may be written to.
    state = {name: torch.from_numpy(each if each.flags.writeable else each.copy()) for name, each in columns.items()}
    head = {"version": list(segment.version), "env_steps": segment.env_steps, "stats": dict(segment.stats)}
    return to_bytes(state, {_SEGMENT: json.dumps(head)})


def decode_segment(body: Array) -> Segment:
    """Return the segment; its columns are views of `body` (uint8 [N]). Raises CommError for other bytes."""
    state, metadata = from_bytes(body)
    try:
        head = json.loads(metadata[_SEGMENT])
        version, env_steps, stats = Version(*map(int, head["version"])), int(head["env_steps"]), dict(head["stats"])
    except (LookupError, TypeError, ValueError) as error:
        raise CommError(f"the header of rows does not describe them ({type(error).__name__}: {error}).") from error
    columns, observed = (
        {name.removeprefix(prefix): each.numpy() for name, each in state.items() if name.startswith(prefix)}
        for prefix in (_ROWS, _OBSERVED)
    )
    return Segment(TransitionBatch(columns), version, env_steps, stats, observed)


logger = logging.getLogger(__name__)

_LEAVE_S = 10.0  # for all ranks to answer `shutdown`


class CollectingRanks:
    """Collecting ranks of a run, at the trainer's side: sends orders, and receives rows as they come.

    Each rank has one order at a time. All methods raise CommError, which names the rank, if one is lost, or takes
    longer than `timeout_s`.
    """

    def __init__(self, group: LearnerGroup, *, timeout_s: float) -> None:
        self.ranks = list(range(1, group.world_size))
        self.version = 0  # pushes of weights that have reached the ranks
        self._group = group
        self._timeout_s = timeout_s
        self._store = NodeStore(group.store)
        self._asked: dict[int, int] = {}  # rows, by rank, that are under way
        self._num_received = 0
        self._pairs: dict[int, Pair] = {}

    def increment_version(self) -> None:
        """Count a push of weights; the weight updater calls this after each."""
        self.version += 1

    @property
    def idle(self) -> list[int]:
        """Ranks that have no order."""
        return [rank for rank in self.ranks if rank not in self._asked]

    @property
    def busy(self) -> list[int]:
        """Ranks that are collecting."""
        return list(self._asked)

    def wait_ready(self, *, timeout_s: float) -> None:
        """Wait until all ranks can collect."""
        for rank in self.ranks:
            self._group.wait_for(f"ready/{rank}", of=[rank], timeout_s=timeout_s)

    def check(self) -> None:
        """Raise CommError if a rank is lost."""
        for rank in self.ranks:
            self._group.check(rank)

    def find_lost(self) -> str:
        """Return, after a failed call, which ranks are lost and how; "" if within seconds no loss becomes known."""
        return self._group.find_lost()

    def processes(self) -> list[ProcessReport]:
        """Return the processes of the ranks."""
        return processes_of(self._group, "")

    def give(self, rank: int, rows: int, *, env_step: int, newest: Version, statistics: Mapping[str, Array]) -> None:
        """Order rows, which the rank collects with the weights that were pushed last, `newest`."""
        order = {"rows": rows, "env_step": env_step, "newest": list(newest)}
        if statistics:
            order["statistics"] = {name: each.tolist() for name, each in statistics.items()}
        self._store.set(key_of(rank, "order"), json.dumps(order))
        self._store.set(key_of(rank, "in"), CONTINUE)
        self._asked[rank] = rows

    def take(self) -> Collected:
        """Wait for the rows that come first, and receive them."""
        number = self._num_received + 1
        announced = self._group.wait_for(f"rows/{number}", of=self.busy, timeout_s=self._timeout_s, delete=True)
        rank, num_bytes = json.loads(announced)
        body = torch.empty(num_bytes, dtype=torch.uint8)
        self._group.announce(f"take/{number}")
        try:
            if rank not in self._pairs:
                name = f"rows/{rank}"
                self._pairs[rank] = Pair(self._group.store, name, member=0, timeout_s=self._timeout_s)
            self._pairs[rank].receive(body, timeout_s=self._timeout_s)
        except CommError as error:
            raise CommError(f"rank {rank} was lost while it sent rows: {error}") from error
        self._num_received = number
        return Collected(f"rank{rank}", decode_segment(body.numpy()), time.monotonic(), self._asked.pop(rank))

    def close(self) -> None:
        """Have all ranks end that are still there; may be called again."""
        deadline_s = time.monotonic() + _LEAVE_S
        with suppress(CommError):  # the store is lost: the ranks notice that, too
            for rank in self.ranks:
                self._store.delete(key_of(rank, "out"))
                self._store.set(key_of(rank, "in"), SHUTDOWN)
            for rank in self.ranks:
                self._await_end(rank, deadline_s)
        for pair in self._pairs.values():
            pair.close()
        self._pairs.clear()
        self._store.close()
        self.ranks = []

    def _await_end(self, rank: int, deadline_s: float) -> None:
        """Wait until a rank has answered; rows that it still offers are dropped."""
        while (left_s := deadline_s - time.monotonic()) > 0:
            for number in range(self._num_received + 1, self._num_received + len(self._asked) + 1):
                self._group.announce(f"take/{number}", DROP)
            if self._store.get(key_of(rank, "out"), timeout_s=min(left_s, 1.0)) == DOWN:
                return
            with suppress(CommError):
                self._group.check(rank)
                continue
            return  # it is lost


class RankRunner(RemoteRunner):
    """Runner whose rows are collected by the other ranks, and whose updates are made in this process, rank 0.

    With `settings.sync` a step is a round: all ranks share the rows, which they collect with the newest weights.
    Without, each rank collects ahead: a step takes the rows that come first, pushes the newest weights to their rank
    and orders more, and then learns.
    """

    def __init__(
        self,
        side: LearnerSide,
        ranks: CollectingRanks,
        updater: DistributedWeightUpdater,
        settings: RankSettings,
        *,
        is_leaving: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(side, is_leaving)
        self._ranks, self._updater, self._settings = ranks, updater, settings
        self._segment_rows = side.segment_rows(settings.segment_rows, len(ranks.ranks))
        self._pushed: dict[int, Version] = {}  # by rank
        self._statistics: dict[str, Array] = {}
        updater.register_collector(ranks)
        updater.register_post_hook(updater.increment_version)

    def start(self) -> None:
        """Push the first weights, and collect the rows of random actions."""
        with self._or_lost():
            self._learn_statistics()  # those of a saved point
            self._push(self._ranks.ranks)
            while self.random_rows > 0 and not self._is_leaving():
                # Ranks act at random at a run's first env steps.
                parts = self._round(self.random_rows, env_step=0, most=self._side.random_share)
                self.random_rows -= self._receiver.put_random(parts)

    def step(self) -> None:
        """Collect, as one round or as it comes, and make the updates that this allows."""
        with self._or_lost():
            self._ranks.check()
            if self._settings.sync:
                self._take_round()
            else:
                self._take_arrived()
        while self._side.rows.train_next(self._side.parts.learner) and not self._is_leaving():
            pass  # until the rows allow no more updates

    def _take_round(self) -> None:
        order = self._side.rows.order()
        if order.rows:  # else updates are behind
            self._push(self._ranks.ranks)
            began_s = time.monotonic()
            parts = self._round(order.rows, env_step=order.env_step)
            self._receiver.report.note_round(time.monotonic() - began_s)
            self._receiver.put(parts, order)

    def _take_arrived(self) -> None:
        self._give_idle()
        if self._ranks.busy:  # else updates are behind
            part = self._ranks.take()
            self._learn_statistics(part)
            self._give_idle()
            self._receiver.put([part], self._side.rows.order())

    def _give_idle(self) -> None:
        """Push the newest weights to ranks without an order, and give them one, unless updates are behind."""
        order = self._side.rows.order()
        if order.rows and not self._is_leaving():
            idle = self._ranks.idle
            self._push(idle)
            for rank in idle:
                self._give(rank, self._segment_rows, env_step=order.env_step)

    def _round(self, rows: int, *, env_step: int, most: float = math.inf) -> list[Collected]:
        """Return what the ranks collect together, by rank: each its share, and the least that it can collect."""
        ranks = self._ranks.ranks
        for rank, share in zip(ranks, shares(rows, len(ranks)), strict=True):
            if share:
                self._give(rank, max(int(min(share, most)), self._side.least_share), env_step=env_step)
        parts = [self._ranks.take() for _ in self._ranks.busy]
        self._learn_statistics(*parts)
        return sorted(parts, key=lambda part: int(part.worker.removeprefix("rank")))

    def _give(self, rank: int, rows: int, *, env_step: int) -> None:
        self._ranks.give(rank, rows, env_step=env_step, newest=self._pushed[rank], statistics=self._statistics)

    def _push(self, ranks: Sequence[int]) -> None:
        """Push the learner's weights to those of these ranks that do not have them, and wait for their answers."""
        newest = self._side.newest()
        lacking = [rank for rank in ranks if self._pushed.get(rank) != newest]
        if lacking:
            handle = self._updater.push_weights(worker_ids=lacking)
            if handle is not None:
                handle.wait()
            self._pushed.update(dict.fromkeys(lacking, newest))

    def _learn_statistics(self, *parts: Collected) -> None:
        """Send what envs are normalised by with the next orders, where rows brought more of it."""
        if not parts or any(part.segment.observed for part in parts):
            self._statistics = flat_names(self._side.statistics())

    def _cause_of(self, error: CommError) -> str:
        """Return how a rank was lost, whichever call has noticed it first; else what the error says."""
        return f"{(self._ranks.find_lost() or str(error)).rstrip('.')}."

    def workers(self) -> Mapping[str, str]:
        """Return the status of the ranks: rows of the run's panel."""
        return {**self._side.describe(), "weights pushed": f"{self._ranks.version:,} times"}

    def details(self) -> Details:
        """Return the processes of the ranks, and how old their rows are."""
        report, newest = self._receiver.report, self._side.newest().update
        return replace(
            report.details(),
            processes=[
                replace(each, **report.report_of(each.name.replace(" ", ""), newest))
                for each in self._ranks.processes()
            ],
        )

    def close(self) -> None:
        """End the ranks; may be called again."""
        self._updater.close()
        self._ranks.close()
