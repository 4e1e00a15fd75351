"""Publish weights beside training: a thread writes and announces the newest; older offers are passed over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch

from ding_like.errors import CommError

_CLOSE_S = 30.0
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
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
        self._thread.start()

    def offer(self, version: int, state: State) -> None:
        """Have a copy of `state` published soon, in place of an older offer that was not begun."""
        copied = {name: tensor.detach().cpu().clone() for name, tensor in state.items()}
        with self._changed:
            self._raise_failure()
            self._newest = _Offer(version, copied)
            self._changed.notify_all()

    def close(self) -> None:
        """Publish what was offered last, and end the thread; may be called again."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join(_CLOSE_S)
        if self._thread.is_alive():
            raise CommError(f"the last weights could not be published in {_CLOSE_S:g} s.")
        self._raise_failure()

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
            if offer is None:
                return
            try:
                self._publish(offer.version, offer.state)
            except BaseException as error:  # whatever it is, the learner's thread is to raise it
                with self._changed:
                    self._failure = error
                return
