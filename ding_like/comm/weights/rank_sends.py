"""Send encoded weights to worker ranks, and receive them there: in one process, by gloo, or by any WeightPublisher.

A transport starts to send to several ranks at once and returns a future for each; the receiver of a rank is told the
number of the push that it is to receive. `RankSends` is the protocol of both ends' first half, so that a test, or a
transport of another kind, can take its place.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from time import monotonic
from typing import NamedTuple, Protocol

from ding_like.comm.channels import WeightPublisher, WeightReader, Weights
from ding_like.comm.weights.encode import Encoded, decode
from ding_like.comm.weights.node_store import AnyStore, PerObject
from ding_like.errors import CommError


class Parcel(NamedTuple):
    """Hold the weights of one push, and its number: no two pushes have the same, whoever makes them."""

    push_id: str
    encoded: Encoded

    @property
    def weights(self) -> Weights:
        """Return the weights; their tensors are views of the parcel."""
        return decode(self.encoded)


class LostTransferError(CommError):
    """Report weights that were announced and have not come: the sender was lost, or gave up, on the way."""


class RankSends(Protocol):
    """Send weights to ranks."""

    def start(self, ranks: Sequence[int], parcel: Parcel, *, timeout_s: float) -> Mapping[int, Future[None]]:
        """Begin to send to each rank and return at once.

        A future ends within `timeout_s` or a little later: when the rank has taken the weights, or with CommError.
        """

    def close(self) -> None:
        """Release resources; may be called again."""


class RankReceives(Protocol):
    """Receive weights, as one rank."""

    def receive(self, push_id: str, *, timeout_s: float) -> Weights | None:
        """Return the weights of a push; None if its sender has given it up meanwhile.

        Raises LostTransferError if they do not come, by `timeout_s` at the latest; CommError for what can't be read.
        """

    def close(self) -> None:
        """Release resources; may be called again."""


class InProcess:
    """Hand weights to threads of one process that have the same store: both ends."""

    def __init__(self, store: AnyStore) -> None:
        self._store = store  # held for `of`
        self._changed = threading.Condition()
        self._parcels: dict[int, Parcel] = {}  # the newest for each rank

    @classmethod
    def of(cls, store: AnyStore) -> InProcess:
        """Return what the holders of a store share."""
        ends: InProcess = _in_process.of(store, lambda: cls(store))
        return ends

    def start(self, ranks: Sequence[int], parcel: Parcel, *, timeout_s: float) -> Mapping[int, Future[None]]:
        """Lay the weights down for each rank; see `RankSends`."""
        with self._changed:
            self._parcels.update(dict.fromkeys(ranks, parcel))
            self._changed.notify_all()
        return {rank: _settled(None) for rank in ranks}

    def take(self, rank: int, push_id: str, *, timeout_s: float) -> Weights | None:
        """Return the weights of a push, in memory of their own; see `RankReceives`."""

        def found() -> Parcel | None:
            parcel = self._parcels.get(rank)
            return parcel if parcel is not None and _is_or_follows(parcel.push_id, push_id) else None

        with self._changed:
            parcel = self._changed.wait_for(found, timeout_s)
        if parcel is None:
            raise LostTransferError(f"the weights of push {push_id} have not come to rank {rank}: {timeout_s:g} s.")
        if parcel.push_id != push_id:
            return None
        encoded = parcel.encoded
        return decode(encoded._replace(body=encoded.body.copy()))

    def close(self) -> None:
        """Forget the weights that nobody has taken."""
        with self._changed:
            self._parcels.clear()


class InProcessReceives:
    """Take what `InProcess` has for one rank."""

    def __init__(self, store: AnyStore, rank: int) -> None:
        self._ends = InProcess.of(store)
        self._rank = rank

    def receive(self, push_id: str, *, timeout_s: float) -> Weights | None:
        """Return the weights of a push; see `RankReceives`."""
        return self._ends.take(self._rank, push_id, timeout_s=timeout_s)

    def close(self) -> None:
        """Do nothing: the sender's end is its owner's."""


class PublisherSends:
    """Send through a WeightPublisher, whose readers are named by their ranks: "1", "2".

    To some ranks of `num_workers` it sends only if it can publish to some readers alone.
    """

    def __init__(self, publisher: WeightPublisher, num_workers: int) -> None:
        self._publisher = publisher
        self._num_workers = num_workers

    def start(self, ranks: Sequence[int], parcel: Parcel, *, timeout_s: float) -> Mapping[int, Future[None]]:
        """Publish once for all ranks, in a thread; see `RankSends`."""
        futures: dict[int, Future[None]] = {rank: Future() for rank in ranks}
        in_thread(lambda: self._publish(futures, parcel, timeout_s), list(futures.values()), "weights")
        return futures

    def _publish(self, futures: Mapping[int, Future[None]], parcel: Parcel, timeout_s: float) -> None:
        # All: some publishers show everything to everyone, and refuse names.
        to = None if len(futures) == self._num_workers else [str(rank) for rank in futures]
        receipt = self._publisher.publish(parcel.weights, to=to, wait_s=timeout_s)
        for rank, future in futures.items():
            if str(rank) in receipt.skipped:
                future.set_exception(CommError("the publisher has published weights that are as new or newer."))
            elif str(rank) in receipt.failed or (to is not None and str(rank) not in receipt.delivered):
                future.set_exception(CommError(f"the publisher could not deliver to reader '{rank}'."))
            else:  # a reader that the publisher does not know by name may have them: the rank itself answers
                future.set_result(None)

    def close(self) -> None:
        """Do nothing: the publisher is its owner's."""


class ReaderReceives:
    """Receive through a WeightReader what `PublisherSends` has published."""

    def __init__(self, reader: WeightReader, policy_id: str) -> None:
        self._reader = reader
        self._policy_id = policy_id

    def receive(self, push_id: str, *, timeout_s: float) -> Weights | None:
        """Return the weights of a push or newer ones; see `RankReceives`."""
        deadline = monotonic() + timeout_s
        update, seen = update_of(push_id), None
        while True:
            weights = self._reader.newest(self._policy_id, newer_than=seen, timeout_s=deadline - monotonic())
            if weights is None:
                raise LostTransferError(f"the weights of push {push_id} have not come by the reader: {timeout_s:g} s.")
            if weights.version.update >= update:
                return weights
            seen = weights.version

    def close(self) -> None:
        """Do nothing: the reader is its owner's."""


def update_of(push_id: str) -> int:
    """Return the number of a push among those of its updater."""
    number = push_id.rpartition("-")[2]
    if not number.isascii() or not number.isdigit():
        raise CommError(f"{push_id[:80]!r} is no number of a push of weights.")
    return int(number)


def _is_or_follows(push_id: str, other: str) -> bool:
    """Tell whether a push is the other, or a later one of the same updater."""
    return push_id == other or (
        push_id.rpartition("-")[0] == other.rpartition("-")[0] and update_of(push_id) > update_of(other)
    )


def in_thread(run: Callable[[], None], futures: Sequence[Future[None]], name: str) -> None:
    """Run in a thread what settles futures; those that it leaves when it raises get its exception."""

    def settle() -> None:
        try:
            run()
        except BaseException as error:  # it goes on to whoever waits
            for future in futures:
                if not future.done():
                    future.set_exception(error)

    # daemon: each ends by its deadline, and none is worth holding the process for
    threading.Thread(target=settle, name=name, daemon=True).start()


def _settled(result: None) -> Future[None]:
    future: Future[None] = Future()
    future.set_result(result)
    return future


_in_process = PerObject()
