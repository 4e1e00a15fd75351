"""Follow a trainer's control words in a store, as a worker rank whose weights it updates."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ding_like.comm.channels import WeightReader, Weights
from ding_like.comm.weights.extract import load_into, state_of
from ding_like.comm.weights.gloo_transport import GlooReceiver, is_torch_store
from ding_like.comm.weights.names import named_like
from ding_like.comm.weights.node_store import (
    ALIVE,
    BUSY,
    CONTINUE,
    DONE,
    DOWN,
    SEEDED,
    SEEDING,
    SHUTDOWN,
    TRAINER_STATUS,
    UPDATE_WEIGHTS,
    UPDATED,
    AnyStore,
    key_of,
    open_store,
)
from ding_like.comm.weights.rank_transport import InProcessReceiver, LostTransferError, RankReceiver, ReaderReceiver
from ding_like.errors import CommError, SchemaError

logger = logging.getLogger(__name__)

_MAX_SEED_DIGITS = 19
_MAX_REASON = 500  # characters of an answer


class NodeWordError(CommError, RuntimeError):
    """Report an unknown word under `NODE_{r}_in`."""


class WeightUpdateWorker:
    """Follow the trainer's words to worker `rank`, 1 or more: one in a `step`, all until `shutdown` in `serve`.

    | word | what the worker does | answer |
    |---|---|---|
    | `continue` | `on_continue()` is called: collect the next batch | none; `NODE_{r}_status` is busy, then done |
    | `update_weights` | weights are received and loaded | `updated`, or `failed: ` and why |
    | `seeding_N` | `on_seed(N)` is called; its result, or N, is written under `NODE_{r}_seed` | `seeded` |
    | `shutdown` | `serve` returns | `down` |

    Weights go into `target` in place (a module, a state dict, a nested dict, a TensorDict), to `on_weights`, or both.
    `reader` receives them where the updater's transport is a WeightPublisher; it is named by the rank. `receiver` does
    where the transport is another one, or the trainer is another program that writes no id of a push under
    `NODE_{r}_push`.
    `timeout_s` is the longest wait for a trainer in the beginning and for weights that were announced, `idle_timeout_s`
    that for the next word in `serve`, both in seconds.

    A restarted worker makes a new object over the same store, and is updated by the next push. One thread at a time may
    use a worker.
    """

    def __init__(
        self,
        store: AnyStore,
        rank: int,
        target: Any = None,  # Any: see `extract.load_into`
        *,
        on_weights: Callable[[Weights], Any] | None = None,
        on_continue: Callable[[], Any] | None = None,
        on_seed: Callable[[int], int | None] | None = None,
        timeout_s: float = 60.0,
        idle_timeout_s: float = 600.0,
        reader: WeightReader | None = None,
        receiver: RankReceiver | None = None,
        policy_id: str = "policy",
    ) -> None:
        if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
            raise SchemaError(f"rank is {rank!r}; expected a worker's rank, 1 or more: rank 0 is the trainer.")
        if target is None and on_weights is None:
            raise SchemaError(
                "a worker needs a target to load weights into, or on_weights, a function that takes them."
            )
        self.rank = rank
        self._target = target
        self._on_weights = on_weights
        self._on_continue = on_continue
        self._on_seed = on_seed
        self._timeout_s = timeout_s
        self._idle_timeout_s = idle_timeout_s
        self._store = open_store(store)
        self._takes_unnamed = receiver is not None
        self._receiver: RankReceiver
        if receiver is not None:
            self._receiver = receiver
        elif reader is not None:
            self._receiver = ReaderReceiver(reader, policy_id)
        elif is_torch_store(store):
            self._receiver = GlooReceiver(self._store, rank)  # type: ignore[arg-type]  # torch's become a TorchStore
        else:
            self._receiver = InProcessReceiver(store, rank)
        self._served = ""  # the last push that was answered
        self._say("status", DONE)

    def serve(self) -> None:
        """Follow words until `shutdown`. Lost transfers of weights are logged, and the next word is awaited.

        Raises CommError if there is no trainer, no word comes within `idle_timeout_s`, or the store is lost; and other
        errors of `step`.
        """
        if self._store.get(TRAINER_STATUS, timeout_s=self._timeout_s) != ALIVE:
            raise CommError(f"worker rank {self.rank} has found no trainer in the store within {self._timeout_s:g} s.")
        word: str | None = ""
        while word != SHUTDOWN:
            try:
                word = self.step(timeout_s=self._idle_timeout_s)
            except LostTransferError as error:
                # Another push or another trainer may follow; without one, the deadline of the next word ends this.
                logger.warning("worker rank %d keeps its weights: %s", self.rank, error)
            if word is None:
                raise CommError(
                    f"worker rank {self.rank} has been told nothing for {self._idle_timeout_s:g} s: the trainer has "
                    "ended, or idle_timeout_s is shorter than its pauses."
                )

    def step(self, *, timeout_s: float = 0.0) -> str | None:
        """Follow the next word and return it; None if no word comes within `timeout_s`.

        Raises, after the trainer was answered, RuntimeError for an unknown word, and CommError for weights that do not
        arrive or do not fit, or a store that is lost.
        """
        word = self._store.get(self._key("in"), timeout_s=timeout_s)
        if word is None:
            return None
        # Before the word is followed, so that the next one is not deleted unread.
        self._store.delete(self._key("in"))
        self._say("status", BUSY)
        try:
            self._follow(word)
        finally:
            self._say("status", DONE)
        return word

    def close(self) -> None:
        """Release connections; may be called again."""
        self._receiver.close()
        self._store.close()

    def __enter__(self) -> WeightUpdateWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _follow(self, word: str) -> None:
        if word == CONTINUE:
            if self._on_continue is not None:
                self._on_continue()
        elif word == UPDATE_WEIGHTS:
            self._update()
        elif word == SHUTDOWN:
            self._say("out", DOWN)
        elif word.startswith(SEEDING):
            self._seed(word.removeprefix(SEEDING))
        else:
            known = f"{CONTINUE}, {SHUTDOWN}, {UPDATE_WEIGHTS}, {SEEDING}N"
            message = f"worker rank {self.rank} was told {word[:80]!r}; expected one of {known}."
            self._say("out", f"failed: {message}")
            raise NodeWordError(message)

    def _update(self) -> None:
        push_id = self._store.get(self._key("push"), timeout_s=0.0)
        if push_id is None and not self._takes_unnamed:
            return  # the trainer has deleted the push
        if push_id is not None and push_id == self._served:
            return  # this push was answered before its word was read
        self._served = push_id = push_id or ""
        try:
            weights = self._receiver.receive(push_id, timeout_s=self._timeout_s)
            if weights is None:
                return  # given up meanwhile; the word of the next push follows
            if self._target is not None:
                load_into(self._target, named_like(state_of(self._target).keys(), weights.state))
            if self._on_weights is not None:
                self._on_weights(weights)
        except Exception as error:  # the transport and the user's hook may raise anything; the trainer gets it too
            self._answer_push(push_id, f"failed: {error}"[:_MAX_REASON])
            raise
        self._answer_push(push_id, UPDATED)

    def _answer_push(self, push_id: str, answer: str) -> None:
        if push_id:
            self._say("done", push_id)  # first: the trainer reads it after the answer
        self._say("out", answer)

    def _seed(self, number: str) -> None:
        if not (number.isascii() and number.isdigit() and len(number) <= _MAX_SEED_DIGITS):
            message = f"worker rank {self.rank} was told the seed {number[:80]!r}; expected a whole number, 0 or more."
            self._say("out", f"failed: {message}")
            raise NodeWordError(message)
        used = None if self._on_seed is None else self._on_seed(int(number))
        self._say("seed", str(int(number) if used is None else used))
        self._say("out", SEEDED)

    def _say(self, what: str, value: str) -> None:
        self._store.set(self._key(what), value)

    def _key(self, what: str) -> str:
        return key_of(self.rank, what)
