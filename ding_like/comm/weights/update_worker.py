"""Follow a trainer's control words in a store, as a worker rank whose weights it updates."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

import torch

from ding_like.comm.channels import Weights
from ding_like.comm.learner_group import Pair
from ding_like.comm.weights.encode import Encoded, decode, parse_head
from ding_like.comm.weights.extract import load_into, named_like, state_of
from ding_like.comm.weights.node_store import (
    ALIVE,
    BUSY,
    CONTINUE,
    DONE,
    DOWN,
    GIVEN_UP,
    PUSHED_IN_PROCESS,
    SEEDED,
    SEEDING,
    SHUTDOWN,
    TRAINER_STATUS,
    UPDATE_WEIGHTS,
    UPDATED,
    AnyStore,
    NodeStore,
    key_of,
)
from ding_like.errors import CommError, SchemaError

logger = logging.getLogger(__name__)

_MAX_REASON = 500  # characters of an answer
_MAX_SEED_DIGITS = 19


class LostTransferError(CommError):
    """Loss of weights that were announced: the trainer has ended, hangs, or gave up."""


class NodeWordError(CommError, RuntimeError):
    """Unknown word under `NODE_{r}_in`."""


class WeightUpdateWorker:
    """Worker rank of a weight updater: follows the trainer's words, one in a `step`, all until `shutdown` in `serve`.

    | word | what the worker does | answer |
    |---|---|---|
    | `continue` | `collect()`: `on_continue()` is called | none; `NODE_{r}_status` is busy, then done |
    | `update_weights` | `update(weights)`: they are loaded | `updated`, or `failed: ` and why |
    | `seeding_N` | `seed(N)`: `on_seed(N)` is called; its result, or N, is written under `NODE_{r}_seed` | `seeded` |
    | `shutdown` | `serve` returns | `down` |

    Weights go into `target` in place (a module, a state dict, a nested dict, a TensorDict), to `on_weights`, or both. A
    subclass may do something else by `collect`, `update` and `seed`, and receive weights another way by `_receive`.
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
    ) -> None:
        if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
            raise SchemaError(f"rank is {rank!r}; expected a worker's rank, 1 or more: rank 0 is the trainer.")
        if target is None and on_weights is None and type(self).update is WeightUpdateWorker.update:
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
        self._store = NodeStore(store)
        self._life = secrets.token_hex(8)
        self._pair_id = ""
        self._pair: Pair | None = None
        self._served = ""  # the last push that was answered
        self._say("status", DONE)

    # --- what the words are for

    def collect(self) -> None:
        """Collect the next batch: call `on_continue`."""
        if self._on_continue is not None:
            self._on_continue()

    def update(self, weights: Weights) -> None:
        """Load weights that were received. Raises CommError for those that do not fit."""
        if self._target is not None:
            load_into(self._target, named_like(state_of(self._target).keys(), weights.state))
        if self._on_weights is not None:
            self._on_weights(weights)

    def seed(self, number: int) -> int:
        """Set a seed; return the one in use."""
        used = None if self._on_seed is None else self._on_seed(number)
        return number if used is None else used

    # --- following them

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
        word = self._store.get(key_of(self.rank, "in"), timeout_s=timeout_s)
        if word is None:
            return None
        # Before the word is followed, so that the next one is not deleted unread.
        self._store.delete(key_of(self.rank, "in"))
        self._say("status", BUSY)
        try:
            self._follow(word)
        finally:
            self._say("status", DONE)
        return word

    def close(self) -> None:
        """Release connections; may be called again."""
        self._drop()
        self._store.close()

    def __enter__(self) -> WeightUpdateWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _follow(self, word: str) -> None:
        number = word.removeprefix(SEEDING)
        is_seed = number != word and number.isascii() and number.isdigit() and len(number) <= _MAX_SEED_DIGITS
        if word == CONTINUE:
            self.collect()
        elif word == UPDATE_WEIGHTS:
            self._take_push()
        elif word == SHUTDOWN:
            self._say("out", DOWN)
        elif is_seed:
            self._say("seed", str(self.seed(int(number))))
            self._say("out", SEEDED)
        else:
            known = f"{CONTINUE}, {SHUTDOWN}, {UPDATE_WEIGHTS}, {SEEDING}N with a whole number N, 0 or more"
            message = f"worker rank {self.rank} was told {word[:80]!r}; expected one of {known}."
            self._say("out", f"failed: {message}")
            raise NodeWordError(message)

    def _take_push(self) -> None:
        push_id = self._store.get(key_of(self.rank, "push"), timeout_s=0.0) or ""
        if push_id and push_id == self._served:
            return  # this push was answered before its word was read
        self._served = push_id
        try:
            weights = self._receive(push_id)
            if weights is None:
                return  # given up meanwhile; the word of the next push follows
            self.update(weights)
        except Exception as error:  # the transport and `update` may raise anything; the trainer gets it too
            self._answer_push(push_id, f"failed: {error}"[:_MAX_REASON])
            raise
        self._answer_push(push_id, UPDATED)

    def _answer_push(self, push_id: str, answer: str) -> None:
        if push_id:
            self._say("done", push_id)  # first: the trainer reads it after the answer
        self._say("out", answer)

    def _receive(self, push_id: str) -> Weights | None:
        """Return the weights of a push; None if the trainer has given it up.

        `push_id` is "" where the trainer has taken the push back, or is another program, which writes none.
        Raises LostTransferError if they do not arrive within `timeout_s`, CommError if they cannot be read.
        """
        if not push_id:
            return None
        if self._store.is_of_process:
            encoded = PUSHED_IN_PROCESS.get(push_id)
            return None if encoded is None else decode(encoded._replace(body=encoded.body.copy()))
        deadline = monotonic() + self._timeout_s
        asks, described = (key_of(self.rank, f"{what}_{push_id}") for what in ("ready", "head"))
        self._store.set(asks, self._life)
        try:
            said = self._store.get(described, timeout_s=self._timeout_s)
        finally:
            self._store.delete(asks)
            self._store.delete(described)
        if said is None:
            raise LostTransferError(
                f"the trainer has not sent the weights of push {push_id} within {self._timeout_s:g} s: it has ended or "
                "hangs."
            )
        return None if said == GIVEN_UP else self._receive_described(_parse(said), deadline)

    def _receive_described(self, described: Mapping[str, Any], deadline: float) -> Weights:  # Any: of JSON
        layout = parse_head(described["head"])[2]
        body = torch.empty(layout.nbytes, dtype=torch.uint8)
        try:
            if self._pair is None or described["pair"] != self._pair_id:
                self._drop()
                self._pair_id = described["pair"]
                self._pair = Pair(self._store.raw, self._pair_id, member=1, timeout_s=deadline - monotonic())
            self._pair.receive(body, timeout_s=deadline - monotonic())
        except CommError as error:
            self._drop()
            self._life = secrets.token_hex(8)  # a new id, so that the trainer makes a new connection as well
            raise LostTransferError(f"the trainer was lost while it sent weights: {error}") from error
        return decode(Encoded(dict(described["head"]), body.numpy()))

    def _drop(self) -> None:
        if self._pair is not None:
            self._pair.close()
        self._pair, self._pair_id = None, ""

    def _say(self, what: str, value: str) -> None:
        self._store.set(key_of(self.rank, what), value)


def _parse(text: str) -> dict[str, Any]:  # Any: of JSON
    """Return the description of a push. Raises CommError for anything else."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict) or not isinstance(value.get("pair"), str) or not isinstance(value.get("head"), dict):
        raise CommError(f"the store has {text[:80]!r}; expected a JSON object with pair and head.")
    return value
