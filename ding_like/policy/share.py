"""Say which rows of a batch are for one learner, of several that act as one."""

from __future__ import annotations

from typing import NamedTuple


class Share(NamedTuple):
    """Be learner `rank` of `num_learners`; alone by default."""

    rank: int = 0
    num_learners: int = 1

    def of(self, num_rows: int) -> slice:
        """Return this learner's rows of so many; all of them where there are fewer rows than learners."""
        if num_rows < self.num_learners:
            return slice(0, num_rows)
        return slice(num_rows * self.rank // self.num_learners, num_rows * (self.rank + 1) // self.num_learners)

    def weight(self, num_rows: int) -> float:
        """Return what the mean over this learner's rows counts in the mean over all."""
        rows = self.of(num_rows)
        return 1.0 / self.num_learners if num_rows < self.num_learners else (rows.stop - rows.start) / num_rows
