"""Push weights to worker ranks by one deadline: tell all, then await each, and report which ranks were updated."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from time import monotonic

from ding_like.comm.weights.node_store import UPDATE_WEIGHTS, UPDATED, NodeStore, key_of
from ding_like.comm.weights.rank_transport import Parcel, RankSender, in_thread
from ding_like.errors import CommError

logger = logging.getLogger(__name__)

_GRACE_S = 0.5  # more than the sender's own deadline, so that its error comes first


class WeightUpdateError(CommError, RuntimeError):
    """Report a push that did not reach all of its ranks, or was refused before it began.

    Ranks in `updated` have the weights; `failed` gives by rank the reason why it does not, or may not, have them; ranks
    in `not_tried` were told nothing, because the store was lost before.
    """

    def __init__(
        self,
        message: str,
        *,
        updated: Sequence[int] = (),
        failed: Mapping[int, str] | None = None,
        not_tried: Sequence[int] = (),
    ) -> None:
        super().__init__(message)
        self.updated = tuple(updated)
        self.failed = dict(failed or {})
        self.not_tried = tuple(not_tried)


class Push:
    """Send one parcel to ranks; all of them have `timeout_s` seconds from now."""

    def __init__(self, store: NodeStore, sender: RankSender, parcel: Parcel, ranks: Sequence[int], timeout_s: float):
        self._store = store
        self._sender = sender
        self._parcel = parcel
        self._ranks = tuple(ranks)
        self._timeout_s = timeout_s
        self._deadline = monotonic() + timeout_s
        self._sending: Mapping[int, Future[None]] = {}
        self._failed: dict[int, str] = {}
        self._not_tried: tuple[int, ...] = ()

    @property
    def deadline(self) -> float:
        """Return the deadline of `finish`, in seconds of `time.monotonic`."""
        return self._deadline

    def tell(self) -> None:
        """Tell all ranks and begin to send; wait for none."""
        for place, rank in enumerate(self._ranks):
            try:
                # An answer to an earlier push, or a second one, must not be taken for this one's.
                self._store.delete(key_of(rank, "out"))
                self._store.set(key_of(rank, "push"), self._parcel.push_id)
                self._store.set(key_of(rank, "in"), UPDATE_WEIGHTS)
            except CommError as error:
                self._failed[rank] = str(error)
                self._not_tried = self._ranks[place + 1 :]
                break
        told = [rank for rank in self._ranks if rank not in self._failed and rank not in self._not_tried]
        try:
            self._sending = self._sender.start(told, self._parcel, timeout_s=self._left()) if told else {}
        except Exception:  # a transport may raise anything; it is raised again
            for rank in told:
                self._take_back(rank)
            raise

    def finish(self) -> None:
        """Await the answers of all ranks that were told. Raises WeightUpdateError unless all were updated."""
        updated = []
        for rank, sending in self._sending.items():
            try:
                self._await(rank, sending)
                updated.append(rank)
            except Exception as error:  # a transport may raise anything; the other ranks go on
                self._failed[rank] = str(error) or type(error).__name__
                self._take_back(rank)
        if self._failed or self._not_tried:
            raise self._error(updated)

    def _await(self, rank: int, sending: Future[None]) -> None:
        try:
            # Its own deadline is the same, and it knows more of what went wrong.
            failure = sending.exception(timeout=self._left() + _GRACE_S)
        except FutureTimeoutError:
            raise CommError(f"it has not taken the weights within {self._timeout_s:g} s.") from None
        if failure is not None:
            # Its text alone: raised here, it would hold this frame, which holds it, and so the connections.
            raise CommError(str(failure) or type(failure).__name__)
        while (answer := self._store.get(key_of(rank, "out"), timeout_s=self._left())) is not None:
            answered = self._store.get(key_of(rank, "done"), timeout_s=0.0)
            self._store.delete(key_of(rank, "out"))
            # What was deleted may have been the answer to this push, come behind an older one that was read: the worker
            # writes the number first.
            if answered not in (None, self._parcel.push_id):
                answered = self._store.get(key_of(rank, "done"), timeout_s=0.0)
            if answered not in (None, self._parcel.push_id):
                continue
            if answer != UPDATED:
                raise CommError(f"Expected '{UPDATED}' but got status {answer!r}.")
            return
        raise CommError(f"it has not answered within {self._timeout_s:g} s: it has ended, hangs or is busy.")

    def _take_back(self, rank: int) -> None:
        """Delete the word, so that a worker that reads it later does not wait for weights that are no longer sent."""
        try:
            self._store.delete(key_of(rank, "in"))
            self._store.delete(key_of(rank, "push"))
        except CommError:
            logger.debug("the store is lost; there is no word to take back from rank %d", rank)

    def _error(self, updated: Sequence[int]) -> WeightUpdateError:
        why = "; ".join(f"rank {rank}: {reason}" for rank, reason in sorted(self._failed.items()))
        return WeightUpdateError(
            f"the weights have reached ranks {list(updated)}, and not {sorted(self._failed)}: {why} Not tried: "
            f"{list(self._not_tried)}. The version was not increased; push again, to all or to those ranks.",
            updated=updated,
            failed=self._failed,
            not_tried=self._not_tried,
        )

    def _left(self) -> float:
        return max(self._deadline - monotonic(), 0.0)


class PushHandle:
    """Follow a push that runs in a thread; `push_weights` returns one with `sync=False`."""

    def __init__(self, push: Push, finish: Callable[[], None], after: Callable[[], None]) -> None:
        self._deadline = push.deadline
        self._has_answered = threading.Event()
        self._future: Future[None] = Future()
        in_thread(lambda: self._run(finish, after), [self._future], "push of weights")

    def done(self) -> bool:
        """Tell whether all ranks have answered and the hooks have run, or the push has failed."""
        return self._future.done()

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until the push is done, at most `timeout_s` (None: the rest of the push's own time, and 1 s for hooks).

        Raises WeightUpdateError as a synchronous push does, what a hook raised, and CommError if it is not done.
        """
        if timeout_s is None:
            timeout_s = max(self._deadline - monotonic(), 0.0) + 1.0
        try:
            self._future.result(timeout=timeout_s)
        except FutureTimeoutError:
            raise CommError(f"the push of weights is not done after {timeout_s:g} s: wait again.") from None
        finally:
            del self  # the exception holds this frame, and this frame would hold the exception

    def wait_for_answers(self) -> None:
        """Wait until all ranks have answered or the deadline has passed; raise nothing."""
        self._has_answered.wait(max(self._deadline - monotonic(), 0.0) + 1.0)

    def _run(self, finish: Callable[[], None], after: Callable[[], None]) -> None:
        try:
            try:
                finish()
            finally:
                self._has_answered.set()
            after()
        except Exception as error:  # logged, as `wait` may never be called
            logger.warning("a push of weights, or a hook behind it, has failed: %s", error)
            raise
        self._future.set_result(None)
