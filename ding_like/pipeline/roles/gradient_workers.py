"""Have gradient workers compute: who is free, what each is sent, what came back, and who was lost with it.

A worker holds a replica of the policy and nothing else. With each part of a minibatch it is sent what has changed of
`grad_state` since the version that it has, whole if it has none; what is sent is stored once for all workers that want
the same. So a worker that is lost takes nothing with it: its part is given to another one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ding_like.comm.workers.host import Call, Host, WorkerHandle, WorkerLostError
from ding_like.comm.workers.pool import WorkerPool
from ding_like.comm.workers.states import PackedState, pack_state, unpack_state
from ding_like.policy import Policy
from ding_like.policy.sharing import Part, begun_of
from ding_like.types import Array, Info, State

_LOOK_S = 1.0  # the longest wait for a worker that is being replaced, before the caller looks at its deadline again


@dataclass(frozen=True)
class GradientTask:
    """Say which gradient is to be computed; whoever asks for it numbers it."""

    number: int
    part: Part
    begun: PackedState  # of the minibatch, see `begun_of`
    noise_seed: int | None = None
    batch: Any = None  # Any: rows of any kind; the batch that it is of, for whoever asked


@dataclass(frozen=True)
class Computed:
    """Hold what came of a task; without a gradient its worker was lost, and it is to be given again."""

    task: GradientTask
    version: int  # updates that the policy had taken which it was computed with
    gradient: State | None = None
    info: Info | None = None
    priority: Array | None = None


@dataclass(frozen=True)
class _UnderWay:
    task: GradientTask
    worker: WorkerHandle
    call: Call
    begun_s: float
    version: int
    state_version: dict[str, int]  # that the worker has once it answers


class GradientWorkers:
    """Give each worker of a pool one task at a time; threads do not share it.

    `policy` is the one that gradients are applied to, and `train_iter` says how many it has taken. A worker that dies,
    or hangs for `step_timeout_s`, is lost to the pool.
    """

    def __init__(
        self,
        host: Host,
        pool: WorkerPool,
        policy: Policy,
        *,
        train_iter: Callable[[], int],
        step_timeout_s: float = 120.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self.pool = pool
        self.policy = policy
        self._train_iter = train_iter
        self._step_timeout_s = step_timeout_s
        self._clock = clock
        self._under_way: dict[str, _UnderWay] = {}  # by worker
        self._held: dict[str, dict[str, int]] = {}  # version of the state that a worker has
        self._shared: dict[int, Any] = {}  # Any: what a host returns; of the newest state, by what it leaves out
        self._shared_number = 0

    @property
    def idle(self) -> list[WorkerHandle]:
        """Return the workers without a task, by place."""
        return [worker for worker in self.pool.workers if worker.name not in self._under_way]

    @property
    def tasks(self) -> list[GradientTask]:
        """Return the tasks under way, the oldest first."""
        return [each.task for each in self._under_way.values()]

    @property
    def begun(self) -> PackedState:
        """Return what the policy's `minibatches` has begun with the minibatch that it gave last."""
        return pack_state(begun_of(self.policy))

    def begin(self, worker: WorkerHandle, task: GradientTask) -> None:
        """Give a task to a worker that has none, to be computed with the policy as it is now."""
        state, state_version = self._newest_state(self._held.get(worker.name))
        call = worker.call(
            "get_grads",
            task.part.rows,
            state,
            share=tuple(task.part.share),
            begun=task.begun,
            version=self._train_iter(),
            noise_seed=task.noise_seed,
        )
        self._under_way[worker.name] = _UnderWay(task, worker, call, self._clock(), self._train_iter(), state_version)

    def _newest_state(self, held: dict[str, int] | None) -> tuple[Any, dict[str, int]]:  # Any: what a host returns
        """Return (what stands for what has changed since the version `held`, the version that it leads to)."""
        state = self.policy.grad_state(held)
        version: dict[str, int] = state["version"]
        if version["number"] != self._shared_number:
            self._shared, self._shared_number = {}, version["number"]
        since = state.get("since", {}).get("number", 0)
        if since not in self._shared:
            self._shared[since] = self._host.share(pack_state(state))
        return self._shared[since], version

    def ready(self, *, timeout_s: float) -> list[Computed]:
        """Return what came back, by place of the workers; wait for the first for at most `timeout_s`.

        Raises what computing raised, CommError if the host is lost, and TrainingError where no worker may be replaced
        any more.
        """
        self.pool.check()
        if not self._under_way:
            if not self.pool.workers:
                self.pool.wait_ready(timeout_s=min(timeout_s, _LOOK_S), standbys=False)
            return []
        end_s = self._clock() + timeout_s
        oldest_s = min(each.begun_s for each in self._under_way.values()) + self._step_timeout_s
        calls = [each.call for each in self._under_way.values()]
        done = {id(call) for call in self._host.wait(calls, timeout_s=max(min(end_s, oldest_s) - self._clock(), 0.0))}
        now = self._clock()
        found = [
            each
            for each in self._under_way.values()
            if id(each.call) in done or now - each.begun_s >= self._step_timeout_s
        ]
        for each in found:
            del self._under_way[each.worker.name]
        silence = f"no answer for {self._step_timeout_s:g} s"
        computed = []
        for each in found:
            taken = self._take(each) if id(each.call) in done else None
            if taken is None:
                how = "process died" if id(each.call) in done else silence
                self._held.pop(each.worker.name, None)
                # One that stands by takes milliseconds; for one that has to start, the others are not kept waiting.
                self.pool.lost(each.worker, how=how, wait_s=min(max(end_s - self._clock(), 0.0), _LOOK_S))
                taken = Computed(each.task, each.version)
            computed.append(taken)
        return computed

    def _take(self, done: _UnderWay) -> Computed | None:
        """Return what a worker found, None if it was lost."""
        try:
            answer = unpack_state(done.call.result())
        except WorkerLostError:
            return None
        self._held[done.worker.name] = done.state_version
        return Computed(done.task, done.version, answer["gradient"], answer["info"], answer.get("priority"))
