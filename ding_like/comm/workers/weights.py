"""Send weights to the workers of a host: encoded once, stored once, taken while a worker's calls go on.

Each worker has at most one version under way, and one, the newest, that is sent when it has come: whoever is slow
passes versions over, and holds nobody up. No version is kept longer than one of these needs it; the newest is kept for
workers that are started later.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, TypeAlias

from ding_like.comm.channels import Receipt, Version, Weights
from ding_like.comm.weights.encode import Encoded, WireDtype, decode, encode
from ding_like.comm.weights.newest import NewestWeights
from ding_like.comm.workers.host import Call, Host, WorkerHandle, WorkerLostError
from ding_like.errors import CommError

logger = logging.getLogger(__name__)

CLOSE_S = 5.0  # for workers to take the last version

# A version of a policy's weights, and what stands for its bytes where the host runs workers.
_Sent: TypeAlias = tuple[str, Version, Any]  # Any: what Host.share returns


class HostWeightReader(NewestWeights):
    """Be the worker's end: a control call brings what the publisher has encoded, `newest` returns it.

    A worker holds one and has a method `set_weights` that hands on to it.
    """

    def set_weights(self, encoded: Encoded) -> None:
        """Decode weights and keep them, unless there are newer ones. Raises CommError for what `encode` never makes.

        The arrays of `encoded` may be read-only, and are copied then: the weights are this process's own, and the
        host's bytes are free when this returns.
        """
        weights = decode(Encoded(*encoded))
        held = self.newest(weights.policy_id)
        if held is None or weights.version > held.version:
            self.put(weights)


class _Line:
    """Say what is on its way to one worker; the publisher's lock is held."""

    def __init__(self, worker: WorkerHandle) -> None:
        self.worker = worker
        self.under_way: tuple[Call, str, Version] | None = None
        self.next: dict[str, _Sent] = {}  # the newest of each policy that is to be sent
        self.taken: dict[str, Version] = {}
        self.failed: dict[str, Version] = {}
        self.is_lost = False  # the worker

    def needs(self, sent: _Sent) -> bool:
        """Tell whether these weights are neither there nor on their way."""
        policy_id, version, _ = sent
        is_under_way = self.under_way is not None and self.under_way[1:] == (policy_id, version)
        return not (self.has_taken(policy_id, version) or is_under_way or policy_id in self.next or self.is_lost)

    def has_taken(self, policy_id: str, version: Version) -> bool:
        taken = self.taken.get(policy_id)
        return taken is not None and taken >= version

    def has_failed(self, policy_id: str, version: Version) -> bool:
        failed = self.failed.get(policy_id)
        return failed is not None and failed >= version


class HostWeightPublisher:
    """Implement WeightPublisher over a host, for those workers that `workers` returns at each publication.

    Weights arrive by a control call of `method` with one argument, of type Encoded. "bfloat16" as `dtype` halves the
    bytes; see `encode.Layout.of`.
    """

    def __init__(
        self,
        host: Host,
        workers: Callable[[], Sequence[WorkerHandle]],
        *,
        method: str = "set_weights",
        dtype: WireDtype = "exact",
    ) -> None:
        self._host = host
        self._workers = workers
        self._method = method
        self._dtype = dtype
        self._changed = threading.Condition()
        self._lines: dict[str, _Line] = {}  # by name of the worker
        self._newest: dict[str, _Sent] = {}  # by policy
        self._is_closed = False
        self._done: SimpleQueue[_Line | None] = SimpleQueue()  # lines whose call is done; None: end
        self._thread = threading.Thread(target=self._run, name="weights", daemon=True)
        self._thread.start()

    def publish(self, weights: Weights, *, to: Sequence[str] | None = None, wait_s: float | None = None) -> Receipt:
        """Send weights to workers; see `WeightPublisher`.

        Without `wait_s` nobody is known to have them yet, and only workers that are known to be lost have failed. A
        worker that has taken a newer version has them, too. Raises CommError for tensors that cannot be sent, and if
        the host is lost.
        """
        with self._changed:
            if self._is_closed:
                raise CommError("weights are published after the publisher was closed.")
            present = {worker.name: worker for worker in self._workers()}
            names = tuple(present) if to is None else tuple(dict.fromkeys(to))
            before = self._newest.get(weights.policy_id)
            if before is not None and weights.version <= before[1]:
                return Receipt(skipped=names)
            sent = (weights.policy_id, weights.version, self._host.share(encode(weights, dtype=self._dtype)))
            self._newest[weights.policy_id] = sent
            self._forget(present)
            lines = [self._lines.setdefault(name, _Line(present[name])) for name in names if name in present]
            for line in lines:
                line.next[weights.policy_id] = sent
                if line.under_way is None:
                    self._send_next(line)
            del sent
            return self._receipt(weights.policy_id, weights.version, names, lines, wait_s)

    def send_to(self, worker: WorkerHandle) -> Call | None:
        """Send the newest weights to one worker, which need not be one of `workers` yet: a standby that takes over.

        Return the call, done when the worker has them; None if nothing has been published.
        """
        with self._changed:
            if self._is_closed:
                raise CommError("weights are sent after the publisher was closed.")
            call = None
            for _, _, shared in self._newest.values():  # done in order: the last one tells of all
                call = worker.control(self._method, shared)
            return call

    def bring(self, *, wait_s: float) -> list[WorkerHandle]:
        """Send the newest weights to those of `workers` that are not known to have them, and wait until they do.

        Return those that have not by then, or that raised; not those that are lost, of which others tell.
        """
        with self._changed:
            lines = [self._lines.setdefault(worker.name, _Line(worker)) for worker in self._workers()]
            for line in lines:
                for sent in filter(line.needs, self._newest.values()):
                    line.failed.pop(sent[0], None)
                    line.next[sent[0]] = sent
                if line.under_way is None:
                    self._send_next(line)
            newest = [sent[:2] for sent in self._newest.values()]

            def has_all(line: _Line) -> bool:
                return line.is_lost or all(line.has_taken(*each) for each in newest)

            def is_settled(line: _Line) -> bool:
                return line.is_lost or all(line.has_taken(*each) or line.has_failed(*each) for each in newest)

            self._changed.wait_for(lambda: all(map(is_settled, lines)), wait_s)
            return [line.worker for line in lines if not has_all(line)]

    def close(self) -> None:
        """Let workers take what is under way or comes next, for at most CLOSE_S; see `WeightPublisher`."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._changed.wait_for(lambda: all(line.under_way is None for line in self._lines.values()), CLOSE_S)
            for line in self._lines.values():
                line.next.clear()
            self._lines.clear()
            self._newest.clear()
        self._done.put(None)
        self._thread.join(CLOSE_S)

    def _receipt(
        self, policy_id: str, version: Version, names: Sequence[str], lines: Sequence[_Line], wait_s: float | None
    ) -> Receipt:
        """Return who has a version; wait for them first, if so asked."""

        def is_settled(line: _Line) -> bool:
            return line.has_taken(policy_id, version) or line.has_failed(policy_id, version)

        if wait_s is not None:
            self._changed.wait_for(lambda: all(map(is_settled, lines)), wait_s)
        delivered = {line.worker.name for line in lines if line.has_taken(policy_id, version)}
        waiting = {line.worker.name for line in lines if not is_settled(line)} if wait_s is None else set()
        return Receipt(
            tuple(name for name in names if name in delivered),
            tuple(name for name in names if name not in delivered | waiting),
        )

    def _forget(self, present: dict[str, WorkerHandle]) -> None:
        """Drop the lines of workers that are gone."""
        for name in self._lines.keys() - present.keys():
            if self._lines[name].under_way is None:
                del self._lines[name]

    def _send_next(self, line: _Line) -> None:
        """Begin to send what is next to a worker that nothing is on its way to."""
        if not line.next:
            return
        policy_id, version, shared = line.next.pop(next(iter(line.next)))
        call = line.worker.control(self._method, shared)
        line.under_way = (call, policy_id, version)
        call.on_done(lambda: self._done.put(line))

    # --- the thread's side

    def _run(self) -> None:
        # Without a deadline: `close` puts a None.
        while (line := self._done.get()) is not None:
            with self._changed:
                self._settle(line)
                self._send_next(line)
                self._changed.notify_all()

    def _settle(self, line: _Line) -> None:
        assert line.under_way is not None
        call, policy_id, version = line.under_way
        line.under_way = None
        try:
            call.result()
        except WorkerLostError:  # whoever started the worker tells of it
            line.failed.update({policy_id: version, **{name: sent[1] for name, sent in line.next.items()}})
            line.next.clear()
            line.is_lost = True
        except Exception as error:  # a worker's code may raise anything; the failure is logged and counted
            logger.warning("worker %s could not take weights of version %s: %s", line.worker.name, version, error)
            line.failed[policy_id] = version
        else:
            line.taken[policy_id] = version
