"""Exchange control words between a trainer and its worker ranks, under keys of a store that all of them reach.

The vocabulary is that of TorchRL's distributed collectors: the trainer writes a word under `NODE_{r}_in`, rank r
answers under `NODE_{r}_out` and reports under `NODE_{r}_status` whether it is busy; `TRAINER_status` is `alive` while
there is a trainer. Ranks count from 1; rank 0 is the trainer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, MutableMapping
from datetime import timedelta
from time import monotonic
from typing import Any, TypeAlias

from torch._C._distributed_c10d import Store

from ding_like.comm.weights.encode import Encoded
from ding_like.errors import CommError

# Words, and the answers to them.
CONTINUE = "continue"  # collect the next batch; not answered
SHUTDOWN, DOWN = "shutdown", "down"
UPDATE_WEIGHTS, UPDATED = "update_weights", "updated"
SEEDING, SEEDED = "seeding_", "seeded"  # "seeding_7"; the seed in use is written under `NODE_{r}_seed`
BUSY, DONE, ALIVE = "busy", "done", "alive"
TRAINER_STATUS = "TRAINER_status"
GIVEN_UP = "given up"  # in place of the description of weights

_LOOK_S = 0.05  # a write into a plain dict by other code wakes no thread: a waiting one looks again after this long
_dicts_changed = threading.Condition()

# Weights by id of a push that is under way: what workers take where trainer and workers are threads of one process.
PUSHED_IN_PROCESS: dict[str, Encoded] = {}

# Any: dicts, torch's stores and other objects with their methods have no type in common.
AnyStore: TypeAlias = Any


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
        self._is_dict = not all(callable(getattr(store, name, None)) for name in ("set", "get", "delete_key"))
        if self._is_dict and not isinstance(store, MutableMapping):
            raise CommError(
                f"a {type(store).__name__} is no store: give a dict, a TCPStore or another store of torch.distributed, "
                "or an object with their set, get and delete_key."
            )
        self._raw = store
        if not self._is_dict and callable(getattr(store, "clone", None)):
            self._raw = self._call(store.clone)

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

    def clone(self) -> NodeStore:
        """Return the same store for another thread."""
        return NodeStore(self.raw)

    def set(self, key: str, value: str) -> None:
        """Write a text."""
        data = value.encode()
        if not self._is_dict:
            self._call(lambda: self.raw.set(key, data))
            return
        with _dicts_changed:
            self.raw[key] = data
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

    def delete(self, key: str) -> None:
        """Delete a key, if there is one."""
        if self._is_dict:
            self.raw.pop(key, None)
        else:
            self._call(lambda: self.raw.delete_key(key))

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
        """Return what a call returns, None where it timed out or the key is missing."""
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


def tell(store: AnyStore, rank: int, word: str, *, timeout_s: float = 60.0) -> str | None:
    """Send a word to a worker rank and return its answer; None after `continue`, which is not answered.

    For `update_weights` use a DistributedWeightUpdater, which sends the tensors as well. Raises CommError if the rank
    does not answer within `timeout_s`.
    """
    nodes = NodeStore(store)
    try:
        nodes.delete(key_of(rank, "out"))
        nodes.set(key_of(rank, "in"), word)
        if word == CONTINUE:
            return None
        answer = nodes.get(key_of(rank, "out"), timeout_s=timeout_s)
        nodes.delete(key_of(rank, "in" if answer is None else "out"))
    finally:
        nodes.close()
    if answer is None:
        raise CommError(
            f"worker rank {rank} has not answered {word!r} within {timeout_s:g} s: it has ended, hangs or is busy."
        )
    return answer
