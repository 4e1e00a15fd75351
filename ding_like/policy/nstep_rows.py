"""Cut a rollout into rows of one or several steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ding_like.data.batch import TransitionBatch
from ding_like.data.rollout import Rollout
from ding_like.rl_utils.returns import nstep_return
from ding_like.types import Array


@dataclass(frozen=True)
class NStepRows:
    """Maker of n-step rows: what `Policy.segment` does, without a policy."""

    nstep: int
    gamma: float

    def segment(self, rollout: Rollout) -> tuple[TransitionBatch, Array]:
        """Return (n-step rows, rows to keep per lane [E]) of a rollout."""
        return nstep_rows(rollout, nstep=self.nstep, gamma=self.gamma)

    def num_ready(self, length: Array, ended: Array) -> int:
        """Return how many rows `segment` makes of stretches of these lengths [S], some `ended` [S]."""
        waiting = np.where(ended, 0, np.minimum(length, self.nstep - 1))
        return int((length - waiting).sum())


def nstep_rows(rollout: Rollout, *, nstep: int, gamma: float) -> tuple[TransitionBatch, Array]:
    """Return (rows, rows to keep per lane [E]) of a rollout; windows that are not complete wait.

    A row holds the discounted sum of its window's rewards, the window's last `next_obs`, `terminated` and
    `truncated`, and `discount`, what multiplies the value of that `next_obs`.
    """
    columns = rollout.columns()
    if nstep == 1:
        return TransitionBatch(columns), np.zeros(rollout.num_lanes, np.int64)
    lanes = rollout.as_lanes()
    done = (columns["terminated"] | columns["truncated"])[lanes.row]
    window = nstep_return(columns["reward"][lanes.row], done, gamma=gamma, n=nstep, valid=lanes.valid)
    time, lane = (window.complete & lanes.valid).nonzero()
    first, last = lanes.row[time, lane], lanes.row[window.last[time, lane], lane]
    rows = {name: column.take(last if _is_of_window_end(name) else first, axis=0) for name, column in columns.items()}
    rows["reward"], rows["discount"] = window.return_[time, lane], window.discount[time, lane]
    return TransitionBatch(rows), (lanes.valid & ~window.complete).sum(axis=0)


def _is_of_window_end(name: str) -> bool:
    """Tell whether a column of an n-step row comes from the last step of its window."""
    return name in ("next_obs", "terminated", "truncated") or name.startswith("next_obs/")
