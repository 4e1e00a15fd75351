"""Send encoded weights to worker ranks, and receive them there: in one process, by gloo, or by any WeightPublisher.

`RankSender` and `RankReceiver` are the protocols of the two ends, so that a test or another transport can implement
them. A sender starts to send to several ranks at once and returns a future for each; a receiver is told which push to
receive.
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
    """Hold the weights of one push, and its id, which is unique among the pushes of all updaters."""

    push_id: str
    encoded: Encoded

    @property
    def weights(self) -> Weights:
        """Return the weights; their tensors are views of the parcel."""
        return decode(self.encoded)


class LostTransferError(CommError):
    """Report weights that were announced and did not arrive: the sender was lost, or gave up."""


class RankSender(Protocol):
    """Send weights to ranks."""

    def start(self, ranks: Sequence[int], parcel: Parcel, *, timeout_s: float) -> Mapping[int, Future[None]]:
        """Begin to send to each rank and return at once.

        A future ends within `timeout_s` or a little later: when the rank has the weights, or with CommError.
        """

    def close(self) -> None:
        """Release resources; may be called again."""


class RankReceiver(Protocol):
    """Receive weights, as one rank."""

    def receive(self, push_id: str, *, timeout_s: float) -> Weights | None:
        """Return the weights of a push; None if its sender has given it up meanwhile.

        Raises LostTransferError if they do not arrive within `timeout_s`, CommError if they cannot be read.
        """

    def close(self) -> None:
        """Release resources; may be called again."""


class InProcessSender:
    """Hand weights to threads of one process that use the same store."""

    def __init__(self, store: AnyStore) -> None:
        self._store = store  # `PerObject` needs it held
        self._changed = threading.Condition()
        self._parcels: dict[int, Parcel] = {}  # the newest for each rank

    @classmethod
    def of(cls, store: AnyStore) -> InProcessSender:
        """Return the sender of a store, one for all its users."""
        sender: InProcessSender = _in_process.of(store, lambda: cls(store))
        return sender

    def start(self, ranks: Sequence[int], parcel: Parcel, *, timeout_s: float) -> Mapping[int, Future[None]]:
        """Keep the weights for each rank to take; see `RankSender`."""
        with self._changed:
            self._parcels.update(dict.fromkeys(ranks, parcel))
            self._changed.notify_all()
        return {rank: _settled(None) for rank in ranks}

    def take(self, rank: int, push_id: str, *, timeout_s: float) -> Weights | None:
        """Return the weights of a push, in memory of their own; see `RankReceiver.receive`."""

        def found() -> Parcel | None:
            parcel = self._parcels.get(rank)
            return parcel if parcel is not None and _is_or_follows(parcel.push_id, push_id) else None

        with self._changed:
            parcel = self._changed.wait_for(found, timeout_s)
        if parcel is None:
            raise LostTransferError(
                f"the weights of push {push_id} have not reached rank {rank} within {timeout_s:g} s."
            )
        if parcel.push_id != push_id:
            return None
        encoded = parcel.encoded
        return decode(encoded._replace(body=encoded.body.copy()))

    def close(self) -> None:
        """Delete the weights that no rank has taken."""
        with self._changed:
            self._parcels.clear()


class InProcessReceiver:
    """Take what `InProcessSender` has for one rank."""

    def __init__(self, store: AnyStore, rank: int) -> None:
        self._sender = InProcessSender.of(store)
        self._rank = rank

    def receive(self, push_id: str, *, timeout_s: float) -> Weights | None:
        """Return the weights of a push; see `RankReceiver`."""
        return self._sender.take(self._rank, push_id, timeout_s=timeout_s)

    def close(self) -> None:
        """Do nothing: the sender belongs to the updater."""


class PublisherSender:
    """Send through a WeightPublisher, whose readers are named by their ranks: "1", "2".

    A push to some ranks of `num_workers` needs a publisher that can publish to some readers alone.
    """

    def __init__(self, publisher: WeightPublisher, num_workers: int) -> None:
        self._publisher = publisher
        self._num_workers = num_workers

    def start(self, ranks: Sequence[int], parcel: Parcel, *, timeout_s: float) -> Mapping[int, Future[None]]:
        """Publish once for all ranks, in a thread; see `RankSender`."""
        futures: dict[int, Future[None]] = {rank: Future() for rank in ranks}
        in_thread(lambda: self._publish(futures, parcel, timeout_s), list(futures.values()), "weights")
        return futures

    def _publish(self, futures: Mapping[int, Future[None]], parcel: Parcel, timeout_s: float) -> None:
        # None where all are meant: some publishers reach all readers at once, and refuse names.
        to = None if len(futures) == self._num_workers else [str(rank) for rank in futures]
        receipt = self._publisher.publish(parcel.weights, to=to, wait_s=timeout_s)
        for rank, future in futures.items():
            if str(rank) in receipt.skipped:
                future.set_exception(CommError("the publisher has already published weights that are as new or newer."))
            elif str(rank) in receipt.failed or (to is not None and str(rank) not in receipt.delivered):
                future.set_exception(CommError(f"the publisher could not deliver to reader '{rank}'."))
            else:  # a reader that the publisher does not know by name may have them: the rank itself answers
                future.set_result(None)

    def close(self) -> None:
        """Do nothing: the publisher belongs to the caller."""


class ReaderReceiver:
    """Receive through a WeightReader what `PublisherSender` has published."""

    def __init__(self, reader: WeightReader, policy_id: str) -> None:
        self._reader = reader
        self._policy_id = policy_id

    def receive(self, push_id: str, *, timeout_s: float) -> Weights | None:
        """Return the weights of a push or newer ones; see `RankReceiver`."""
        deadline = monotonic() + timeout_s
        update, seen = update_of(push_id), None
        while True:
            weights = self._reader.newest(self._policy_id, newer_than=seen, timeout_s=deadline - monotonic())
            if weights is None:
                raise LostTransferError(
                    f"the reader has not received the weights of push {push_id} within {timeout_s:g} s."
                )
            if weights.version.update >= update:
                return weights
            seen = weights.version

    def close(self) -> None:
        """Do nothing: the reader belongs to the caller."""


def update_of(push_id: str) -> int:
    """Return the number of a push among those of its updater."""
    number = push_id.rpartition("-")[2]
    if not number.isascii() or not number.isdigit():
        raise CommError(f"the id of a push is {push_id[:80]!r}; expected TOKEN-NUMBER, as an updater writes it.")
    return int(number)


def _is_or_follows(push_id: str, other: str) -> bool:
    """Tell whether a push is the other one, or a later one of the same updater."""
    return push_id == other or (
        push_id.rpartition("-")[0] == other.rpartition("-")[0] and update_of(push_id) > update_of(other)
    )


def in_thread(run: Callable[[], None], futures: Sequence[Future[None]], name: str) -> None:
    """Run a function that settles futures in a thread; if it raises, the others get its exception."""

    def settle() -> None:
        try:
            run()
        except BaseException as error:  # any error; the futures raise it in the thread that waits
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
