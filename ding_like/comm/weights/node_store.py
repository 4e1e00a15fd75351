"""Exchange control words between a trainer and its worker ranks, under keys of a store that all of them reach.

The vocabulary is that of TorchRL's distributed collectors: the trainer writes a word under `NODE_{r}_in`, rank r
answers under `NODE_{r}_out` and reports under `NODE_{r}_status` whether it is busy; `TRAINER_status` tells that there
is a trainer. Tensors never go through a store: a TCPStore refuses values over 8 MiB.

A store is a dict, for threads of one process, or one of `torch.distributed`'s (TCPStore, FileStore, HashStore,
PrefixStore), or any object with their `set`, `get` and `delete_key`. Ranks count from 1; rank 0 is the trainer.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, MutableMapping
from datetime import timedelta
from time import monotonic
from typing import Any, Protocol, TypeAlias

from ding_like.errors import CommError

CONTINUE = "continue"  # collect the next batch
SHUTDOWN = "shutdown"  # answered by DOWN
UPDATE_WEIGHTS = "update_weights"  # answered by UPDATED
SEEDING = "seeding_"  # and a number; answered by SEEDED, with the seed in use under `NODE_{r}_seed`
DOWN, UPDATED, SEEDED = "down", "updated", "seeded"
BUSY, DONE, ALIVE = "busy", "done", "alive"
TRAINER_STATUS = "TRAINER_status"

# A write into a plain dict without this module wakes nobody, so a waiting thread looks again after this long.
_LOOK_S = 0.05
_SHORTEST_S = 0.001  # of a wait: torch takes 0 for no limit

# Any: dicts, torch's stores and other objects with their methods have no type in common.
AnyStore: TypeAlias = Any


def key_of(rank: int, what: str) -> str:
    """Return a key of a rank, such as `NODE_1_in`."""
    return f"NODE_{rank}_{what}"


class NodeStore(Protocol):
    """Keep short texts under keys, for several threads or processes."""

    def set(self, key: str, value: str) -> None:
        """Write a value. Raises CommError if the store cannot be reached."""

    def get(self, key: str, *, timeout_s: float) -> str | None:
        """Return a value, None if no value is there within `timeout_s`. Raises CommError if the store is lost."""

    def delete(self, key: str) -> None:
        """Delete a key, if there is one. Raises CommError if the store is lost."""

    def clone(self) -> NodeStore:
        """Return the same store for another thread: torch's stores serve one thread at a time, also while it waits."""

    def close(self) -> None:
        """Drop the connection, if it has one of its own; may be called again."""


def open_store(store: AnyStore) -> NodeStore:
    """Return a store of any kind as a NodeStore. Raises CommError for other objects."""
    if isinstance(store, (DictStore, TorchStore)):
        return store.clone()
    if all(callable(getattr(store, name, None)) for name in ("set", "get", "delete_key")):
        return TorchStore(store).clone()
    if isinstance(store, MutableMapping):
        shared: DictStore = _dict_stores.of(store, lambda: DictStore(store))
        return shared
    raise CommError(
        f"a {type(store).__name__} is no store: give a dict, a TCPStore or another store of torch.distributed, or an "
        "object with their set, get and delete_key."
    )


def tell(store: AnyStore, rank: int, word: str, *, timeout_s: float = 60.0) -> str | None:
    """Send a word to a worker rank and return its answer; None after `continue`, which is not answered.

    For `update_weights` use a DistributedWeightUpdater, which sends the tensors as well. Raises CommError if the rank
    does not answer within `timeout_s`.
    """
    opened = open_store(store)
    try:
        return _tell(opened, rank, word, timeout_s)
    finally:
        opened.close()


def _tell(opened: NodeStore, rank: int, word: str, timeout_s: float) -> str | None:
    opened.delete(key_of(rank, "out"))
    opened.set(key_of(rank, "in"), word)
    if word == CONTINUE:
        return None
    answer = opened.get(key_of(rank, "out"), timeout_s=timeout_s)
    if answer is None:
        opened.delete(key_of(rank, "in"))
        raise CommError(
            f"worker rank {rank} has not answered {word!r} within {timeout_s:g} s: it has ended, hangs or is busy."
        )
    opened.delete(key_of(rank, "out"))
    return answer


class DictStore:
    """Implement NodeStore over a dict that threads of one process share.

    All stores that `open_store` makes of one dict wake each other. Values are written as bytes, as torch's stores give
    them, and read as bytes or text.
    """

    def __init__(self, values: MutableMapping[str, Any]) -> None:  # Any: bytes or text
        self._values = values
        self._changed = threading.Condition()

    def set(self, key: str, value: str) -> None:
        """Write a value; see `NodeStore`."""
        with self._changed:
            self._values[key] = value.encode()
            self._changed.notify_all()

    def get(self, key: str, *, timeout_s: float) -> str | None:
        """Return a value; see `NodeStore`."""
        deadline = monotonic() + timeout_s
        with self._changed:
            while (value := self._values.get(key)) is None:
                left = deadline - monotonic()
                if left <= 0:
                    return None
                self._changed.wait(min(left, _LOOK_S))
            return _text(value)

    def delete(self, key: str) -> None:
        """Delete a key; see `NodeStore`."""
        with self._changed:
            self._values.pop(key, None)

    def clone(self) -> DictStore:
        """Return itself: threads may share it."""
        return self

    def close(self) -> None:
        """Do nothing: the dict is its owner's."""


class TorchStore:
    """Implement NodeStore over a store of `torch.distributed`, or an object with `set`, `get` and `delete_key`.

    Without a method `wait`, `get` is called once, and has to return or raise in its own time.
    """

    def __init__(self, store: AnyStore) -> None:
        self._raw = store

    @property
    def raw(self) -> AnyStore:
        """Return the store that was given. Raises CommError after `close`."""
        if self._raw is None:
            raise CommError("the store is used after it was closed; open it again.")
        return self._raw

    def set(self, key: str, value: str) -> None:
        """Write a value; see `NodeStore`."""
        self._call(lambda: self.raw.set(key, value.encode()))

    def get(self, key: str, *, timeout_s: float) -> str | None:
        """Return a value; see `NodeStore`. A FileStore looks at its deadline once a second only."""
        value = self._call(lambda: self._get(key, timeout_s))
        return None if value is None else _text(value)

    def delete(self, key: str) -> None:
        """Delete a key; see `NodeStore`."""
        self._call(lambda: self.raw.delete_key(key))

    def clone(self) -> TorchStore:
        """Return a store with a connection of its own, if this one can make another."""
        clone = getattr(self.raw, "clone", None)
        return TorchStore(self._call(clone) if callable(clone) else self.raw)

    def close(self) -> None:
        """Release the store; a connection that nothing else uses is closed with it."""
        self._raw = None

    def _get(self, key: str, timeout_s: float) -> Any:  # Any: bytes or text, None
        if timeout_s <= 0 and hasattr(self.raw, "check"):
            return self.raw.get(key) if self.raw.check([key]) else None
        if hasattr(self.raw, "wait"):
            self.raw.wait([key], timedelta(seconds=max(timeout_s, _SHORTEST_S)))
        return self.raw.get(key)

    def _call(self, call: Callable[[], Any]) -> Any:  # Any: of a store of any kind
        """Return what a call returns, None where it timed out or the key is missing."""
        try:
            return call()
        except (KeyError, TimeoutError):
            return None
        except (RuntimeError, OSError) as error:
            if "timeout" in str(error).lower():
                return None
            raise CommError(
                f"the store is lost ({_first_line(error)}): has the process that holds it, mostly the trainer, ended?"
            ) from error


class PerObject:
    """Make one companion for each object, kept while it is in use; for objects without weak references, as dicts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Each companion has to hold its object, so that no other object gets the same id meanwhile.
        self._companions: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def of(self, owner: object, make: Callable[[], Any]) -> Any:  # Any: a registry has companions of one type each
        """Return the companion of an object, made the first time."""
        with self._lock:
            companion = self._companions.get(id(owner))
            if companion is None:
                companion = self._companions[id(owner)] = make()
            return companion


_dict_stores = PerObject()


def _text(value: Any) -> str:  # Any: bytes or text
    return value.decode(errors="replace") if isinstance(value, (bytes, bytearray)) else str(value)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
