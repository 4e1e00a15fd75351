"""Hold callers to a rate, each for itself."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from ding_like.comm.rest.refusal import RefusedError

_MAX_CALLERS = 10_000  # remembered; one that was forgotten begins with a full allowance


class RateLimit:
    """Allow each caller `per_s` requests a second, and `burst` at once (a token bucket). Threads may share one."""

    def __init__(self, per_s: float, burst: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._lock = threading.Lock()
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # caller -> (tokens, when)

    def check(self, caller: str) -> None:
        """Count a request. Raises RefusedError 429, which says when to ask again."""
        now = self._clock()
        with self._lock:
            tokens, at = self._left.get(caller, (self._burst, now))
            tokens = min(tokens + (now - at) * self._per_s, self._burst)
            allowed = tokens >= 1.0
            self._left[caller] = (tokens - 1.0 if allowed else tokens, now)
            self._left.move_to_end(caller)
            if len(self._left) > _MAX_CALLERS:
                self._left.popitem(last=False)
        if not allowed:
            raise RefusedError("quota", f"{caller} asks too often", retry_after_s=(1.0 - tokens) / self._per_s)
