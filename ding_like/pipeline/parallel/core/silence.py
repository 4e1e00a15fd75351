"""Notice a learner that goes on learning and publishes no weights: collectors would act with old weights for ever."""

from __future__ import annotations

# Between two reports of a learner; what is longer was spent waiting for data.
_LONGEST_S = 5.0


class SilenceWatch:
    """Count the seconds in which updates were reported and no newer weights published."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Start over: weights were published, or another attempt has begun."""
        self.silent_s = 0.0
        self._learn_iter = -1
        self._reported_s: float | None = None

    def report(self, learn_iter: int, now_s: float) -> None:
        """Take the news of updates up to `learn_iter`."""
        if learn_iter <= self._learn_iter:
            return
        if self._reported_s is not None:
            self.silent_s += min(now_s - self._reported_s, _LONGEST_S)
        self._learn_iter, self._reported_s = learn_iter, now_s

    def excuse(self, seconds: float) -> None:
        """Give the learner more time: it said why it is silent."""
        self.silent_s = -seconds
