"""Worker ranks whose weights a trainer updates: they follow its control words in a store.

The words are those of the documentation of `torchrl.collectors.distributed`: the trainer writes a word under
`NODE_{r}_in`, rank r answers under `NODE_{r}_out` and reports under `NODE_{r}_status` whether it is busy;
`TRAINER_status` is `alive` while there is a trainer. Worker ranks count from 1; rank 0 is the trainer.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
from collections.abc import Callable, MutableMapping
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import Any, TypeAlias

import torch
from torch._C._distributed_c10d import Store

from ding_like.comm.channels import Weights
from ding_like.comm.learner_group import Pair
from ding_like.comm.tensors import Encoded, decode_weights, load_into, named_like, state_of
from ding_like.errors import CommError, SchemaError

logger = logging.getLogger(__name__)

# Words, and the answers to them.
CONTINUE = "continue"  # collect the next batch; not answered
SHUTDOWN, DOWN = "shutdown", "down"
UPDATE_WEIGHTS, UPDATED = "update_weights", "updated"
SEEDING, SEEDED = "seeding_", "seeded"  # "seeding_7"; the seed in use is written under `NODE_{r}_seed`
BUSY, DONE, ALIVE = "busy", "done", "alive"
TRAINER_STATUS = "TRAINER_status"
GIVEN_UP = "given up"  # in place of the description of weights

_LOOK_S = 0.05  # a write into a plain dict by other code wakes no thread: a waiting one looks again after this long
_MAX_REASON = 500  # characters of an answer
_MAX_SEED_DIGITS = 19
_dicts_changed = threading.Condition()
# Weights by id of a push that is under way: workers take them where trainer and workers are threads of one process.
PUSHED_IN_PROCESS: dict[str, Encoded] = {}

# Any: dicts, torch's stores and other objects with their methods have no type in common.
AnyStore: TypeAlias = Any


class LostTransferError(CommError):
    """Loss of weights that were announced: the trainer has ended, hangs, or gave up."""


class NodeWordError(CommError, RuntimeError):
    """Unknown word under `NODE_{r}_in`."""


# --- the store of words


def key_of(rank: int, what: str) -> str:
    """Return a key of a rank, such as `NODE_1_in`."""
    return f"NODE_{rank}_{what}"


class NodeStore:
    """Short texts under keys that the trainer and its worker ranks share.

    `store` is a dict, for threads of one process, a store of torch.distributed (TCPStore, FileStore, HashStore,
    PrefixStore), or another object with its methods `set`, `get` and `delete_key`. A store with a method `clone` is
    reached by a connection of its own: torch's serve one thread at a time, also while it waits. All methods raise
    CommError where the store is lost.
    """

    def __init__(self, store: AnyStore) -> None:
        self._is_dict = isinstance(store, MutableMapping)
        if not self._is_dict and not all(callable(getattr(store, name, None)) for name in ("set", "get", "delete_key")):
            raise CommError(
                f"a {type(store).__name__} is no store: give a dict, a TCPStore or another store of torch.distributed, "
                "or an object with their set, get and delete_key."
            )
        self._raw = self._call(store.clone) if callable(getattr(store, "clone", None)) else store

    @property
    def raw(self) -> AnyStore:
        """The store itself. Raises CommError after `close`."""
        if self._raw is None:
            raise CommError("the store is used after it was closed; open it again.")
        return self._raw

    @property
    def is_of_process(self) -> bool:
        """Whether the store joins threads of this process only: it is a dict, or another object that is not torch's."""
        return not isinstance(self.raw, Store)

    def set(self, key: str, value: str) -> None:
        """Write a text."""
        if not self._is_dict:
            self._call(lambda: self.raw.set(key, value.encode()))
            return
        with _dicts_changed:
            self.raw[key] = value.encode()
            _dicts_changed.notify_all()

    def get(self, key: str, *, timeout_s: float) -> str | None:
        """Return a text, None if none is there within `timeout_s`; a FileStore looks at its deadline once a second."""
        if not self._is_dict:
            value = self._call(lambda: self._get(key, timeout_s))
        else:
            deadline = monotonic() + timeout_s
            with _dicts_changed:
                while (value := self.raw.get(key)) is None and (left := deadline - monotonic()) > 0:
                    _dicts_changed.wait(min(left, _LOOK_S))
        return value.decode(errors="replace") if isinstance(value, (bytes, bytearray)) else value

    def delete(self, *keys: str) -> None:
        """Delete keys, as far as they are there."""
        for key in keys:
            if self._is_dict:
                self.raw.pop(key, None)
            else:
                self._call(partial(self.raw.delete_key, key))

    def close(self) -> None:
        """Release the store; a connection that nothing else uses is closed with it."""
        self._raw = None

    def _get(self, key: str, timeout_s: float) -> Any:  # Any: bytes or text
        if timeout_s <= 0 and hasattr(self.raw, "check"):
            return self.raw.get(key) if self.raw.check([key]) else None
        if hasattr(self.raw, "wait"):
            self.raw.wait([key], timedelta(seconds=max(timeout_s, 0.001)))  # torch takes 0 for no limit
        return self.raw.get(key)

    def _call(self, call: Callable[[], Any]) -> Any:  # Any: of a store of any kind
        """Return the result of a call, None where it timed out or the key is missing."""
        try:
            return call()
        except (KeyError, TimeoutError):
            return None
        except (RuntimeError, OSError) as error:
            if "timeout" in str(error).lower():
                return None
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise CommError(
                f"the store is lost ({reason}): has the process that holds it, mostly the trainer, ended?"
            ) from error


def send_word(store: AnyStore, rank: int, word: str, *, timeout_s: float = 60.0) -> str | None:
    """Send a word to a worker rank and return its answer; None after `continue`, which is not answered.

    For `update_weights` use a DistributedWeightUpdater, which sends the tensors as well. Raises CommError if the rank
    does not answer within `timeout_s`.
    """
    nodes = NodeStore(store)
    nodes.delete(key_of(rank, "out"))
    nodes.set(key_of(rank, "in"), word)
    if word == CONTINUE:
        return None
    answer = nodes.get(key_of(rank, "out"), timeout_s=timeout_s)
    nodes.delete(key_of(rank, "in" if answer is None else "out"))
    if answer is None:
        raise CommError(
            f"worker rank {rank} has not answered {word!r} within {timeout_s:g} s: it has ended, hangs or is busy."
        )
    return answer


# --- the worker's side


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
        target: object = None,  # see `tensors.load_into`
        *,
        on_weights: Callable[[Weights], object] | None = None,
        on_continue: Callable[[], object] | None = None,
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
        self._target, self._on_weights, self._on_continue, self._on_seed = target, on_weights, on_continue, on_seed
        self._timeout_s, self._idle_timeout_s = timeout_s, idle_timeout_s
        self._store = NodeStore(store)
        self._life = secrets.token_hex(8)
        self._pair_id = ""
        self._pair: Pair | None = None
        self._served = ""  # the last push that was answered
        self._write("status", DONE)

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
                    f"worker rank {self.rank} has received no word for {self._idle_timeout_s:g} s: the trainer has "
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
        self._write("status", BUSY)
        try:
            self._follow(word)
        finally:
            self._write("status", DONE)
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
        if word == CONTINUE:
            self.collect()
        elif word == UPDATE_WEIGHTS:
            self._take_push()
        elif word == SHUTDOWN:
            self._write("out", DOWN)
        elif number != word and number.isascii() and number.isdigit() and len(number) <= _MAX_SEED_DIGITS:
            self._write("seed", str(self.seed(int(number))))
            self._write("out", SEEDED)
        else:
            known = f"{CONTINUE}, {SHUTDOWN}, {UPDATE_WEIGHTS}, {SEEDING}N with a whole number N, 0 or more"
            message = f"worker rank {self.rank} received the word {word[:80]!r}; expected one of {known}."
            self._write("out", f"failed: {message}")
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
            self._answer(push_id, f"failed: {error}"[:_MAX_REASON])
            raise
        self._answer(push_id, UPDATED)

    def _answer(self, push_id: str, answer: str) -> None:
        if push_id:
            self._write("done", push_id)  # first: the trainer reads it after the answer
        self._write("out", answer)

    def _receive(self, push_id: str) -> Weights | None:
        """Return the weights of a push; None if the trainer has given it up.

        `push_id` is "" where the trainer has taken the push back, or is another program, which writes none.
        Raises LostTransferError if they do not arrive within `timeout_s`, CommError if they cannot be read.
        """
        if not push_id:
            return None
        if self._store.is_of_process:
            encoded = PUSHED_IN_PROCESS.get(push_id)
            return None if encoded is None else decode_weights(encoded.copy())
        deadline = monotonic() + self._timeout_s
        asks, described = (key_of(self.rank, f"{what}_{push_id}") for what in ("ready", "head"))
        self._store.set(asks, self._life)
        try:
            text = self._store.get(described, timeout_s=self._timeout_s)
        finally:
            self._store.delete(asks, described)
        if text is None:
            raise LostTransferError(
                f"the trainer has not sent the weights of push {push_id} within {self._timeout_s:g} s: it has ended or "
                "hangs."
            )
        if text == GIVEN_UP:
            return None
        try:
            pair_id, nbytes = json.loads(text)
            body = torch.empty(nbytes, dtype=torch.uint8)
        except (ValueError, TypeError, RuntimeError) as error:
            raise CommError(f"the store has {text[:80]!r}; expected JSON: a connection and a size.") from error
        try:
            if self._pair is None or pair_id != self._pair_id:
                self._drop()
                self._pair_id = pair_id
                self._pair = Pair(self._store.raw, pair_id, member=1, timeout_s=deadline - monotonic())
            self._pair.receive(body, timeout_s=deadline - monotonic())
        except CommError as error:
            self._drop()
            self._life = secrets.token_hex(8)  # a new id, so that the trainer makes a new connection as well
            raise LostTransferError(f"the trainer was lost while it sent weights: {error}") from error
        return decode_weights(body.numpy())

    def _drop(self) -> None:
        if self._pair is not None:
            self._pair.close()
        self._pair, self._pair_id = None, ""

    def _write(self, what: str, value: str) -> None:
        self._store.set(key_of(self.rank, what), value)
