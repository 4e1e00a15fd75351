"""Heartbeats of the ranks of a group: each writes one every second into the store that they share."""

from __future__ import annotations

import logging
import threading
import time
from datetime import timedelta
from typing import Any, NamedTuple

from torch._C._distributed_c10d import PrefixStore, Store

logger = logging.getLogger(__name__)

BEAT_S = 1.0
SILENT_S = 5.0  # this long without a beat, a rank is held to be lost where something has failed
_JOIN_S = 10.0  # for the thread to end; it may be in a call to the store


class Seen(NamedTuple):
    """Last known state of a rank."""

    silent_s: float  # since its last beat
    num_calls: int  # collectives it has begun
    ended: str | None  # how: "has left the group", say; None: not as far as is known


class Heartbeats:
    """Thread that writes the heartbeats of `rank` and reads those of all others, until `close`.

    `store` is this thread's own connection. A beat holds the number of collectives that the rank has begun, `num_calls`
    here. `wait_for_look` returns after each look.
    """

    def __init__(self, store: Store, *, rank: int, world_size: int, every_s: float = BEAT_S) -> None:
        self._store = PrefixStore("heartbeats", store)
        self._rank = rank
        self._others = [each for each in range(world_size) if each != rank]
        self._every_s = every_s
        self.num_calls = 0
        self._beats: dict[int, bytes] = {}
        self._beaten_s = dict.fromkeys(self._others, time.monotonic())
        self._calls = dict.fromkeys(self._others, 0)
        self._ended: dict[int, str] = {}
        self._told: dict[int, str] = {}  # how ranks ended that a parent saw end: the others are told
        self._last_word = ""
        self._looked = threading.Condition()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)
        self._thread.start()

    def seen(self) -> dict[int, Seen]:
        """Return the last known states of the other ranks."""
        now = time.monotonic()
        with self._looked:
            return {
                each: Seen(now - self._beaten_s[each], self._calls[each], self._ended.get(each))
                for each in self._others
            }

    def wait_for_look(self, timeout_s: float) -> None:
        """Return after the next look at the others' beats or the next `note_ended`, at the latest in `timeout_s`."""
        with self._looked:
            self._looked.wait(timeout_s)

    def note_ended(self, rank: int, how: str) -> None:
        """Record how a rank has ended ("was killed by SIGKILL"), and report it to the others. From any thread."""
        with self._looked:
            self._ended[rank] = self._told[rank] = how
            self._looked.notify_all()

    def close(self, reason: str = "") -> None:
        """Report to the others that this rank leaves, and why; may be called again."""
        if self._closing.is_set():
            return
        self._last_word = f"has ended: {reason}" if reason else "has left the group"
        self._closing.set()
        self._thread.join(_JOIN_S)
        if self._thread.is_alive():  # the store does not answer: nobody can be told
            logger.warning("the store of the learners has not answered for %g s", _JOIN_S)
        else:
            del self._store  # its socket is closed with it, whoever still holds this object

    def _run(self) -> None:
        number = 0
        while True:
            is_last = self._closing.wait(self._every_s if number else 0.0)
            try:
                self._beat(number, is_last=is_last)
            except RuntimeError as error:  # whoever kept the store has ended, and beats no more for anybody
                logger.debug("the store of the learners does not answer: %s", error)
            if is_last:
                return
            number += 1

    def _beat(self, number: int, *, is_last: bool) -> None:
        with self._looked:
            told, self._told = self._told, {}
        for rank, how in told.items():
            self._store.set(f"ended/{rank}", how)
        if is_last:
            self._store.set(f"ended/{self._rank}", self._last_word)
            return
        self._store.set(f"beat/{self._rank}", f"{number} {self.num_calls}")
        found = {each: (self._get(f"beat/{each}"), self._get(f"ended/{each}")) for each in self._others}
        now = time.monotonic()
        with self._looked:
            for each, (beat, ended) in found.items():
                if beat is not None and beat != self._beats.get(each):
                    self._beats[each], self._beaten_s[each] = beat, now
                    self._calls[each] = int(beat.split()[1])
                if ended is not None:
                    self._ended.setdefault(each, ended.decode(errors="replace"))
            self._looked.notify_all()

    def _get(self, key: str) -> bytes | None:
        return self._store.get(key) if self._store.check([key]) else None


def wait_for_key(store: Any, key: str, timeout_s: float) -> bool:  # Any: torch's stub of `wait` lacks the timeout
    """Return whether a key is set in a store, waiting for it so long; a file store counts whole seconds."""
    try:
        store.wait([key], timedelta(seconds=timeout_s))
    except RuntimeError as error:
        if "time" in str(error).lower():  # "Wait timeout" of a file store, "wait timeout after 1000ms" of others
            return False
        raise
    return True
