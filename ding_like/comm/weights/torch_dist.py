"""Send weights from one process to others of a torch.distributed store, rank to rank (gloo), without files.

A message is announced in the store: what it is and how long. Its bytes go from rank to rank. A layout, which is the
same in every version, stands in the store once.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
import torch
from torch._C._distributed_c10d import FileStore, PrefixStore, ProcessGroupGloo

from ding_like.comm.channels import Receipt, Version, Weights
from ding_like.comm.learner_group import use_loopback
from ding_like.comm.weights.delta import apply_delta, delta
from ding_like.comm.weights.encode import Encoded, WireDtype, decode, encode
from ding_like.comm.weights.gloo_wire import GlooWire, receive_numbers, send_numbers, what_gloo_says
from ding_like.comm.weights.newest import NewestWeights
from ding_like.errors import CommError
from ding_like.types import Array

logger = logging.getLogger(__name__)

_LOOK_S = 0.5  # between two looks at whether the reader is closed
_END = "end"
_MAX_NBYTES = 2**36  # of a message: one that is announced as longer is nonsense
_TAKEN, _WHOLE = "taken", "whole"  # answers to a delta: it is applied; send all bytes


class _Sent(NamedTuple):
    """Hold the bytes of a policy's weights as they were sent or received last, and where its layout stands."""

    layout_key: str
    body: Array


class _Joined:
    """Be one rank of those that weights travel between; it stays apart from the process's default group.

    All `world_size` ranks join at the same time, within `timeout_s`. Raises CommError if they do not.
    """

    def __init__(self, store: str | os.PathLike[str], *, rank: int, world_size: int, timeout_s: float) -> None:
        use_loopback()
        self.rank, self.world_size = rank, world_size
        try:
            self.store = PrefixStore("weights", FileStore(str(store), world_size))
            # Any: torch's annotations of the class lack send and recv.
            self.group: Any = ProcessGroupGloo(self.store, rank, world_size, timedelta(seconds=timeout_s))
        except RuntimeError as error:
            raise CommError(f"rank {rank} of {world_size} cannot reach the others: {error}") from error


class DistWeightPublisher(_Joined):
    """Send weights to all other ranks, before `publish` returns: readers are named by their ranks, "1" say.

    A reader that has ended or does not answer within `timeout_s` is failed from then on. `dtype` says how numbers
    travel, as `Layout.of` does; with `sends_delta` a reader that has the version before gets the blocks that changed
    since, where these are fewer bytes than all, and says whether it could apply them: if not, it gets all.
    """

    def __init__(
        self,
        store: str | os.PathLike[str],
        *,
        rank: int,
        world_size: int,
        dtype: WireDtype = "exact",
        sends_delta: bool = False,
        timeout_s: float = 60.0,
    ) -> None:
        super().__init__(store, rank=rank, world_size=world_size, timeout_s=timeout_s)
        self.bytes_sent = 0  # to all readers, announcements aside
        self._dtype: WireDtype = dtype
        self._sends_delta = sends_delta
        self._timeout_s = timeout_s
        self._messages = {str(each): 0 for each in range(world_size) if each != rank}  # sent, by reader
        self._lost: set[str] = set()
        self._published: dict[str, Version] = {}
        self._layout_keys: set[str] = set()  # that stand in the store
        # For deltas, by policy: what was sent last, and by reader which version it has of it.
        self._last: dict[str, _Sent] = {}
        self._held: dict[tuple[str, str], Version] = {}
        self._is_closed = False

    def publish(self, weights: Weights, *, to: Sequence[str] | None = None, wait_s: float | None = None) -> Receipt:
        """Send weights; see `WeightPublisher`. `timeout_s` is the longest wait, whatever `wait_s` says."""
        if self._is_closed:
            raise CommError("weights are published after the publisher was closed.")
        names = tuple(self._messages) if to is None else tuple(to)
        policy_id, before = weights.policy_id, self._published.get(weights.policy_id)
        if before is not None and weights.version <= before:
            return Receipt(skipped=names)
        self._published[policy_id] = weights.version
        encoded = encode(weights, dtype=self._dtype)
        key = self._announce_layout(encoded)
        head = {**encoded.head, "layout": key, "nbytes": encoded.body.size}
        changes = self._delta_of(policy_id, key, encoded.body)
        delivered = []
        for name in names:
            has_before = before is not None and self._held.get((name, policy_id)) == before
            is_sent = changes is not None and has_before and self._send_delta(name, head, changes)
            if is_sent or self._send(name, head, encoded.body):
                delivered.append(name)
                self._held[name, policy_id] = weights.version
        if self._sends_delta:
            self._last[policy_id] = _Sent(key, encoded.body)
        return Receipt(delivered=tuple(delivered), failed=tuple(name for name in names if name not in delivered))

    def close(self) -> None:
        """Tell all readers that no more weights come; may be called again."""
        if not self._is_closed:
            self._is_closed = True
            for name, number in self._messages.items():
                self.store.set(f"{name}/{number}", _END)
            self.group = None  # its sockets are closed with it

    def _announce_layout(self, encoded: Encoded) -> str:
        """Put a layout into the store, if it is not there; return its key."""
        text = json.dumps(encoded.head["layout"])
        key = f"layout/{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        if key not in self._layout_keys:
            self.store.set(key, text)
            self._layout_keys.add(key)
        return key

    def _delta_of(self, policy_id: str, layout_key: str, body: Array) -> Array | None:
        last = self._last.get(policy_id)
        return None if last is None or last.layout_key != layout_key else delta(last.body, body)

    def _send_delta(self, name: str, head: dict[str, Any], changes: Array) -> bool:  # Any: of JSON
        """Return whether a reader has made the new weights of those that it has."""
        number = self._messages.get(name)
        if not self._send(name, {**head, "nbytes": changes.size, "is_delta": True}, changes):
            return False
        try:
            self.store.wait([f"{name}/{number}/answer"], timedelta(seconds=self._timeout_s))
        except RuntimeError as error:
            self._lose(name, error)
            return False
        return bool(self.store.get(f"{name}/{number}/answer") == _TAKEN.encode())

    def _send(self, name: str, head: dict[str, Any], body: Array) -> bool:  # Any: of JSON
        """Return whether a reader has taken a message: announced in the store, its numbers rank to rank."""
        if name not in self._messages or name in self._lost or self.store.check([f"{name}/left"]):
            return False
        self.store.set(f"{name}/{self._messages[name]}", json.dumps(head))
        self._messages[name] += 1
        try:
            send_numbers(GlooWire(self.group, int(name)), torch.from_numpy(body), timeout_s=self._timeout_s)
        except RuntimeError as error:
            self._lose(name, error)
            return False
        self.bytes_sent += body.size
        return True

    def _lose(self, name: str, error: RuntimeError) -> None:
        self._lost.add(name)
        logger.warning("reader %s of weights is lost: %s", name, what_gloo_says(error))


class DistWeightReader(_Joined):
    """Receive what rank `source` publishes, in a thread; what that raises is raised by the next call."""

    def __init__(
        self, store: str | os.PathLike[str], *, rank: int, world_size: int, source: int = 0, timeout_s: float = 60.0
    ) -> None:
        super().__init__(store, rank=rank, world_size=world_size, timeout_s=timeout_s)
        self._source = source
        self._timeout_s = timeout_s
        self._received = NewestWeights()
        self._layouts: dict[str, Any] = {}  # by key; Any: of JSON
        self._last: dict[str, _Sent] = {}  # by policy: what a delta changes
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="weights", daemon=True)
        self._thread.start()

    def newest(self, policy_id: str, *, newer_than: Version | None = None, timeout_s: float = 0.0) -> Weights | None:
        """Return the newest weights of a policy; see `WeightReader`."""
        return self._received.newest(policy_id, newer_than=newer_than, timeout_s=timeout_s)

    def close(self) -> None:
        """Receive no more, and end the thread; may be called again."""
        if not self._is_closed:
            self._is_closed = True
            self.store.set(f"{self.rank}/left", "")
            self._thread.join(self._timeout_s + _LOOK_S)
            if self._thread.is_alive():  # gloo's own deadline has passed, and it still receives
                logger.warning("the thread that receives weights has not ended after %g s", self._timeout_s)
            self.group = None  # its sockets are closed with it

    def _run(self) -> None:
        number = 0
        try:
            while not self._is_closed:
                if not self._wait_for(f"{self.rank}/{number}"):
                    continue
                text = self.store.get(f"{self.rank}/{number}")
                if text == _END.encode():
                    return
                self._take(json.loads(text), answer_key=f"{self.rank}/{number}/answer")
                number += 1
        except (RuntimeError, ValueError, CommError) as error:
            self._received.fail(error)

    def _wait_for(self, key: str) -> bool:
        try:
            self.store.wait([key], timedelta(seconds=_LOOK_S))
        except RuntimeError as error:
            if "timeout" in str(error).lower():
                return False
            raise
        return True

    def _take(self, head: Any, *, answer_key: str) -> None:  # Any: of JSON
        """Receive a message and keep its weights. Raises CommError for nonsense."""
        nbytes = head.get("nbytes") if isinstance(head, dict) else None
        if not isinstance(nbytes, int) or isinstance(nbytes, bool) or not 0 <= nbytes < _MAX_NBYTES:
            raise CommError(f"weights are announced with {nbytes!r} bytes.")
        body = np.empty(nbytes, np.uint8)
        receive_numbers(GlooWire(self.group, self._source), torch.from_numpy(body), timeout_s=self._timeout_s)
        layout_key, policy_id = str(head.get("layout")), str(head.get("policy_id"))
        if head.get("is_delta") is True:
            try:
                body = self._applied(policy_id, layout_key, body)
            except CommError as error:
                logger.warning("all of the weights are asked for: %s", error)
                self.store.set(answer_key, _WHOLE)
                return
        weights = decode(Encoded({**head, "layout": self._layout(layout_key)}, body))
        self._last[policy_id] = _Sent(layout_key, body)
        self._received.put(weights)
        if head.get("is_delta") is True:
            self.store.set(answer_key, _TAKEN)

    def _layout(self, key: str) -> Any:  # Any: of JSON
        if key not in self._layouts:
            if not key.startswith("layout/") or not self.store.check([key]):
                raise CommError(f"weights have the layout {key[:80]!r}, which was not announced.")
            self._layouts[key] = json.loads(self.store.get(key))
        return self._layouts[key]

    def _applied(self, policy_id: str, layout_key: str, changes: Array) -> Array:
        last = self._last.get(policy_id)
        if last is None or last.layout_key != layout_key:
            raise CommError(f"there are no weights of {policy_id[:80]!r} that the changes could be made to.")
        return apply_delta(last.body, changes)
