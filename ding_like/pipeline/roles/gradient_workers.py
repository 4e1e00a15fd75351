"""Have gradient workers compute: who is free, what each is sent, what came back, and who was lost with it.

A worker holds a replica of the policy and nothing else. With each part of a minibatch it is sent what has changed of
`grad_state` since the version that it has, whole if it has none; what is sent is stored once for all workers that want
the same. So a worker that is lost takes nothing with it: its part is given to another one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ding_like.comm.workers.calls import Returned, WorkerCalls
from ding_like.comm.workers.host import Host, WorkerHandle
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


class _Given(NamedTuple):
    """Hold what a worker was given, and with which policy."""

    task: GradientTask
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
        self._calls = WorkerCalls(
            host, pool, step_timeout_s=step_timeout_s, replaces_in_time=True, raised=(Exception,), clock=clock
        )
        self._given: dict[str, _Given] = {}  # by worker
        self._held: dict[str, dict[str, int]] = {}  # version of the state that a worker has
        self._shared: dict[int, Any] = {}  # Any: what a host returns; of the newest state, by what it leaves out
        self._shared_number = 0

    @property
    def idle(self) -> list[WorkerHandle]:
        """Return the workers without a task, by place."""
        return [worker for worker in self.pool.workers if worker.name not in self._calls.tasks]

    @property
    def tasks(self) -> list[GradientTask]:
        """Return the tasks under way, the oldest first."""
        return [self._given[name].task for name in self._calls.tasks]

    @property
    def begun(self) -> PackedState:
        """Return what the policy's `minibatches` has begun with the minibatch that it gave last."""
        return pack_state(begun_of(self.policy))

    def begin(self, worker: WorkerHandle, task: GradientTask) -> None:
        """Give a task to a worker that has none, to be computed with the policy as it is now."""
        state, state_version = self._newest_state(self._held.get(worker.name))
        version = self._train_iter()
        self._given[worker.name] = _Given(task, version, state_version)
        self._calls.begin(
            worker,
            "get_grads",
            task.part.rows,
            state,
            place=task.number,
            rows=0,  # are lost with a worker: they stay here
            share=tuple(task.part.share),
            begun=task.begun,
            version=version,
            noise_seed=task.noise_seed,
        )

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
        if not self._calls.tasks:
            if not self.pool.workers:
                self.pool.wait_ready(timeout_s=min(timeout_s, _LOOK_S), standbys=False)
            return []
        return [self._computed(back) for back in self._calls.ready(timeout_s=timeout_s)]

    def _computed(self, back: Returned) -> Computed:
        name = back.task.worker.name
        given = self._given.pop(name)
        if back.is_lost:
            self._held.pop(name, None)
            return Computed(given.task, given.version)
        self._held[name] = given.state_version
        answer = unpack_state(back.value)
        return Computed(given.task, given.version, answer["gradient"], answer["info"], answer.get("priority"))
