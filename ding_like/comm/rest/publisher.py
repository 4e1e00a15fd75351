"""Publish weights beside training: a thread writes and announces the newest; older offers are passed over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch

from ding_like.errors import CommError

CLOSE_S = 30.0
_LOOK_S = 5.0

State = Mapping[str, torch.Tensor]


class _Offer(NamedTuple):
    version: int
    state: State


class Publisher:
    """Call `publish(version, state)` for the newest offer, one at a time, in a thread of its own.

    What the thread raises is raised by the next `offer`, or by `close`.
    """

    def __init__(self, publish: Callable[[int, State], None]) -> None:
        self._publish = publish
        self._changed = threading.Condition()
        self._newest: _Offer | None = None
        self._is_closed = False
        self._is_idle = True  # nothing is offered and nothing under way
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
        self._thread.start()

    def offer(self, version: int, state: State) -> None:
        """Have a copy of `state` published soon, in place of an older offer that was not begun."""
        copied = {name: tensor.detach().cpu().clone() for name, tensor in state.items()}
        with self._changed:
            self._raise_failure()
            self._newest, self._is_idle = _Offer(version, copied), False
            self._changed.notify_all()

    def flush(self, *, timeout_s: float = CLOSE_S) -> None:
        """Return when what was offered last is published. Raises CommError if that takes longer than `timeout_s`."""
        with self._changed:
            is_out = self._changed.wait_for(lambda: self._failure is not None or self._is_idle, timeout_s)
            self._raise_failure()
        if not is_out:
            raise CommError(f"the last weights could not be published in {timeout_s:g} s.")

    def close(self, *, timeout_s: float = CLOSE_S) -> None:
        """Publish what was offered last, and end the thread; may be called again.

        Raises CommError if that takes longer than `timeout_s`.
        """
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise CommError(f"the last weights could not be published in {timeout_s:g} s.")
        self._raise_failure()

    def abandon(self, *, timeout_s: float) -> bool:
        """End the thread without publishing what was offered last; return whether it has ended in time.

        What it raised does not matter any more.
        """
        with self._changed:
            self._is_closed, self._newest = True, None
            self._changed.notify_all()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._newest is not None or self._is_closed, _LOOK_S):
                    continue
                offer, self._newest = self._newest, None
                self._is_idle = offer is None
            if offer is None:
                return
            try:
                self._publish(offer.version, offer.state)
            except BaseException as error:  # whatever it is, the learner's thread is to raise it
                with self._changed:
                    self._failure = error
                    self._changed.notify_all()
                return
            with self._changed:
                self._is_idle = self._newest is None
                self._changed.notify_all()
