"""Define a set of equal workers: a local one, and remote ones wherever a host runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from ding_like.comm.workers.changes import Changes
from ding_like.comm.workers.failures import FailureLog, FailurePolicy
from ding_like.comm.workers.host import Call, Host, WorkerHandle
from ding_like.comm.workers.pool import WorkerPool
from ding_like.comm.workers.resources import resources_of
from ding_like.comm.workers.threads import ThreadHost
from ding_like.pipeline.ray.worker import Worker


class WorkerSet:
    """Hold a local worker, of index 0, and `num_workers` remote ones on a host: threads here if none is given.

    Workers are `worker_class(index_worker=..., **worker_params)`; `local_params` stand in place of params of the local
    one. `remote_config` says what a remote one is given, see `resources_of`. The other settings are `WorkerPool`'s.
    """

    def __init__(
        self, worker_class: type[Worker], worker_params: Mapping[str, Any], *, num_workers: int = 1,
        remote_config: Mapping[str, Any] | None = None, local_params: Mapping[str, Any] | None = None,
        host: Host | None = None, kind: str = "worker", standby: int = 0, policy: FailurePolicy | None = None,
        log: FailureLog | None = None, prepare: Callable[[WorkerHandle], Call | None] | None = None,
        last_action: Callable[[WorkerHandle], str] | None = None,
    ) -> None:  # fmt: skip
        # Any: arguments of any class, options of Ray's
        self.worker_class = worker_class
        self.worker_params = dict(worker_params)
        self.remote_config = dict(remote_config or {})
        ignored = () if num_workers else ("object_store_memory",)  # what nobody is given needs no warning
        resources = resources_of({key: value for key, value in self.remote_config.items() if key not in ignored})
        self._local = worker_class(index_worker=0, **{**self.worker_params, **(local_params or {})})
        self._own_host: ThreadHost | None = None
        if host is None:
            host = self._own_host = ThreadHost()
        self.has_remote, self._changes = num_workers > 0, Changes()
        place, patience_s = host, (policy or FailurePolicy()).step_timeout_s

        def catch_up(worker: WorkerHandle) -> Call | None:
            call = self._changes.catch_up(worker)
            if prepare is None or (call is not None and not place.wait([call], timeout_s=patience_s)):
                return call  # the pool waits for it, and knows what to do where it does not come
            if call is not None:
                call.result()
            return prepare(worker)

        try:
            self.pool = WorkerPool(
                host, self._make, kind=kind, number=num_workers, resources=resources,
                standby=standby if num_workers else 0, policy=policy, log=log or FailureLog(), prepare=catch_up,
                last_action=last_action,
            )  # fmt: skip
        except BaseException:
            self._stop_local()
            raise

    def _make(self, index: int) -> Callable[[], object]:
        return partial(self.worker_class, index_worker=index, **self.worker_params)

    @property
    def num_workers(self) -> int:
        """Return the number of remote workers that work now."""
        return len(self.pool.workers)

    def local_worker(self) -> Worker:
        """Return the worker of this process."""
        return self._local

    def remote_workers(self) -> list[WorkerHandle]:
        """Return the remote workers that work now."""
        return self.pool.workers

    def tell(self, method: str, *args: Any, in_turn: bool = False, timeout_s: float = 10.0) -> bool:
        """Call a method of the remote workers, and of all that take over from them or are added; see `Changes`."""
        return self._changes.tell(self.pool, method, *args, in_turn=in_turn, timeout_s=timeout_s)

    def add_workers(self, num_workers: int) -> list[WorkerHandle]:
        """Start more remote workers, with indexes of their own, and return them when they are ready."""
        self.has_remote = True
        return self.pool.add(num_workers)

    def remove_workers(self, names: Iterable[str]) -> None:
        """Stop remote workers, by name."""
        self.pool.remove(names)

    def replace(self, worker: WorkerHandle, *, how: str = "replaced on request") -> WorkerHandle | None:
        """End a remote worker and return the one that has its place; see `WorkerPool.lost`."""
        return self.pool.lost(worker, how=how)

    def stop(self, *, timeout_s: float = 10.0) -> None:
        """End all workers, and the threads that this set has started; may be called again."""
        self.pool.stop(timeout_s=timeout_s)
        self._stop_local()

    def _stop_local(self) -> None:
        self._local.stop()
        if self._own_host is not None:
            self._own_host.close(timeout_s=1.0)
