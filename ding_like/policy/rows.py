"""Training rows cut out of a rollout: rows of one or several steps, and rows that are sequences.

A sequence has T steps of one lane that are learned from, behind up to `burn_in` steps that only warm up recurrent
state. Each step of an episode is learned from in exactly one row:

    episode    |0 1 2 3 4 5 6 7 8 9|        burn_in=2, T=3: b warms up, x is learned from, . is beyond the end
    row 0      |x x x x x|                  the state before an episode is known: nothing to warm up
    row 1            |b b x x x|
    row 2                  |b b x x .|

Its columns are [L, ...] with L = burn_in + T, its observations [L + 1, ...]: behind the last step stands what came
after it, from which returns bootstrap. Recurrent state is that before the first step, [S...].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast

import numpy as np

from ding_like.data.batch import BONUS_WEIGHT, TransitionBatch
from ding_like.data.rollout import Rollout
from ding_like.errors import ConfigError
from ding_like.rl_utils.returns import nstep_return
from ding_like.types import Array


class Rows(Protocol):
    """Rows that are drawn by their numbers: those of a batch, or rows that are gathered when they are drawn."""

    @property
    def columns(self) -> Mapping[str, Array]:
        """Return what the rows are made of, by name."""

    def __len__(self) -> int: ...

    def take(self, rows: Array) -> TransitionBatch:
        """Return these rows [B], in fresh memory."""


class RowMaker(Protocol):
    """What makes a policy's rows, without its networks."""

    def segment(self, rollout: Rollout) -> tuple[TransitionBatch, Array]:
        """Return (rows, steps to keep per lane [E]) of a rollout."""

    def num_ready(self, length: Array, ended: Array) -> int:
        """Return how many rows `segment` makes of stretches of these lengths [S], some `ended` [S]."""


# Columns of the last step of a row, as `next_obs/...` are; others are of its first one.
_OF_END = ("next_obs", "next_action", "has_next_action", "is_open", "terminated", "truncated")


@dataclass(frozen=True)
class NStepRows:
    """Maker of n-step rows: what `Policy.segment` does, without a policy."""

    nstep: int
    gamma: float

    def segment(self, rollout: Rollout) -> tuple[TransitionBatch, Array]:
        """Return (n-step rows, rows to keep per lane [E]) of a rollout."""
        columns = self._steps(rollout)
        if self.nstep == 1:
            return TransitionBatch(columns), np.zeros(rollout.num_lanes, np.int64)
        lanes = rollout.as_lanes()
        done = (columns["terminated"] | columns["truncated"])[lanes.row]
        window = nstep_return(columns["reward"][lanes.row], done, gamma=self.gamma, n=self.nstep, valid=lanes.valid)
        time, lane = (window.complete & lanes.valid).nonzero()
        first, last = lanes.row[time, lane], lanes.row[window.last[time, lane], lane]
        rows = {}
        for name, column in columns.items():
            is_of_end = name in _OF_END or name.startswith("next_obs/")
            rows[name] = column.take(last if is_of_end else first, axis=0)
        rows["reward"], rows["discount"] = window.return_[time, lane], window.discount[time, lane]
        return TransitionBatch(rows), (lanes.valid & ~window.complete).sum(axis=0)

    def num_ready(self, length: Array, ended: Array) -> int:
        """Return how many rows `segment` makes of stretches of these lengths [S], some `ended` [S]."""
        waiting = np.where(ended, 0, np.minimum(length, self.nstep - 1))
        return int((length - waiting).sum())

    def _steps(self, rollout: Rollout) -> dict[str, Array]:
        """Return the columns of steps: a row has those of its window's first one, but for what its end decides."""
        return rollout.columns()


ONE_STEP = "one_step/"


@dataclass(frozen=True)
class OneAndNStepRows(NStepRows):
    """Maker of n-step rows that hold their first step too: its reward, `next_obs` and end, as `one_step/reward`, ..."""

    def _steps(self, rollout: Rollout) -> dict[str, Array]:
        columns = rollout.columns()
        of_end = ("reward", "terminated", *(name for name in columns if name.split("/")[0] == "next_obs"))
        return {**columns, **{f"{ONE_STEP}{name}": columns[name] for name in of_end}}


@dataclass(frozen=True)
class NextActionRows(NStepRows):
    """Maker of n-step rows with `next_action` [R, A], the action behind their last step, and `has_next_action` [R].

    Where an episode ends there is none, and `next_action` is 0. A row waits where that action is still to come.
    """

    def segment(self, rollout: Rollout) -> tuple[TransitionBatch, Array]:
        """Return (rows, rows to keep per lane [E]) of a rollout."""
        batch, keep = super().segment(rollout)
        is_open = batch["is_open"]
        waits = np.bincount(batch["lane"][is_open], minlength=rollout.num_lanes)
        ready = batch.select([name for name in batch.columns if name != "is_open"]).take(np.flatnonzero(~is_open))
        return ready, keep + waits

    def num_ready(self, length: Array, ended: Array) -> int:
        """Return how many rows `segment` makes of stretches of these lengths [S], some `ended` [S]."""
        return int((length - np.where(ended, 0, np.minimum(length, self.nstep))).sum())

    def _steps(self, rollout: Rollout) -> dict[str, Array]:
        columns, lanes = rollout.columns(), rollout.as_lanes()
        follows, ended = lanes.valid[1:], episode_ends(columns)
        step, after = lanes.row[:-1][follows], lanes.row[1:][follows]
        is_last = np.ones(len(ended), bool)
        is_last[step] = False
        has = ~(ended | is_last)
        next_action = np.zeros_like(columns["action"])
        next_action[step] = columns["action"][after]
        next_action[~has] = 0
        return {**columns, "next_action": next_action, "has_next_action": has, "is_open": is_last & ~ended}


# Of a row's first step alone; other columns are of every step.
_OF_FIRST = frozenset(("lane", "env_id", "episode_id", "policy_version"))
STATE = "state/"


class Windows(NamedTuple):
    """Rows [W, L] of a log of N steps that make up W windows."""

    row: Array  # [W, L] int64, numbers of rows; the last valid one again where a window is beyond its stretch
    valid: Array  # [W, L] bool
    begins: Array  # [W] bool, whether nothing of the stretch comes before the window


@dataclass(frozen=True)
class SequenceShape:
    """Length of rows; raises ConfigError for lengths that leave nothing to learn from.

    `num_steps` are those learned from in each row (T), `burn_in` those before them.
    """

    num_steps: int
    burn_in: int = 0

    def __post_init__(self) -> None:
        if self.num_steps < 1 or self.burn_in < 0:
            raise ConfigError(
                f"a sequence has {self.num_steps} steps to learn from behind {self.burn_in} of burn-in; expected "
                "at least 1 and 0"
            )

    @property
    def length(self) -> int:
        """Return the steps of a row, L."""
        return self.burn_in + self.num_steps

    def num_windows(self, length: Array, ended: Array) -> Array:
        """Return how many windows [S] stretches of these lengths [S] make; of those not `ended` [S] only full ones."""
        beyond = length - self.length  # of the first window
        if_open = np.where(beyond < 0, 0, 1 + beyond // self.num_steps)
        if_ended = np.where(beyond <= 0, 1, 1 - (-beyond // self.num_steps))
        return np.where(ended, if_ended, if_open) * (length > 0)


def windows_of(
    lane: Array, ended: Array, shape: SequenceShape, *, num_lanes: int, closes: bool = False
) -> tuple[Windows, Array]:
    """Return (windows of a log of N steps, the steps to keep per lane [E], with which the next window begins).

    `lane` [N] says whose each step is, `ended` [N] that none of its stretch follows. With `closes` stretches that are
    open end with the log, and nothing is kept.
    """
    order = lane.argsort(kind="stable")
    of_lane, ends = lane[order], ended[order].copy()
    if len(order):
        last_of_lane = np.append(of_lane[1:] != of_lane[:-1], True)
        boundary = ends | last_of_lane
        if closes:
            ends |= last_of_lane
    else:
        boundary = ends
    stop = np.flatnonzero(boundary) + 1  # of each stretch, in `order`
    start = np.concatenate([[0], stop[:-1]]) if len(stop) else stop
    has_ended = ends[stop - 1]
    count = shape.num_windows(stop - start, has_ended)
    stretch = np.repeat(np.arange(len(stop)), count)
    number = np.arange(len(stretch)) - np.repeat(count.cumsum() - count, count)  # of a window in its stretch
    first = start[stretch] + number * shape.num_steps
    at = first[:, None] + np.arange(shape.length)
    last = stop[stretch][:, None] - 1
    windows = Windows(order[np.minimum(at, last)], at <= last, number == 0)
    keep = np.zeros(num_lanes, np.int64)
    is_open = ~has_ended
    keep[of_lane[start[is_open]]] = (stop - start - count * shape.num_steps)[is_open]
    return windows, keep


@dataclass(frozen=True)
class SequenceRows:
    """Maker of rows that are sequences.

    Beside the steps' own columns, a row has `mask` bool [L], the steps to learn from, and `num_steps` int64, how many
    there are before it goes beyond its episode. What is beyond is zero.
    """

    shape: SequenceShape

    def segment(self, rollout: Rollout) -> tuple[TransitionBatch, Array]:
        """Return (rows that are sequences, the steps to keep per lane [E])."""
        columns, shape = rollout.columns(), self.shape
        windows, keep = windows_of(columns["lane"], episode_ends(columns), shape, num_lanes=rollout.num_lanes)
        begins = windows.begins & (columns["step"][windows.row[:, 0]] == 0) if "step" in columns else windows.begins
        batch = TransitionBatch(gather(columns, windows, burn_in=shape.burn_in, begins=begins))
        # Where steps were dropped, a lane may have nothing but burn-in left of an episode.
        learns = batch["mask"].any(axis=1)
        return (batch if learns.all() else batch.take(np.flatnonzero(learns))), keep

    def num_ready(self, length: Array, ended: Array) -> int:
        """Return how many rows stretches of these lengths [S] make, some `ended` [S]."""
        return int(self.shape.num_windows(length, ended).sum())


def episode_ends(columns: Mapping[str, Array]) -> Array:
    """Return after which steps [N] of a log the same lane goes on with another episode, or not at all."""
    lane, episode = columns["lane"], columns.get("episode_id")
    ended: Array = columns["terminated"] | columns["truncated"]
    if episode is None or not len(lane):
        return ended
    # A lane whose steps were dropped goes on with another episode.
    order = lane.argsort(kind="stable")
    changes = np.zeros(len(lane), bool)
    same_lane = lane[order][1:] == lane[order][:-1]
    changes[order[:-1]] = same_lane & (episode[order][1:] != episode[order][:-1])
    return ended | changes


def gather(columns: Mapping[str, Array], windows: Windows, *, burn_in: int, begins: Array) -> dict[str, Array]:
    """Return the columns [W, ...] of windows; those that `begins` [W] marks have nothing to warm up."""
    row, valid = windows.row, windows.valid
    beyond = ~valid
    has_beyond = bool(beyond.any())
    num_steps = valid.sum(axis=1)
    out: dict[str, Array] = {}
    for name, column in columns.items():
        if name in _OF_FIRST or name.startswith(STATE):
            out[name] = column[row[:, 0]]
        elif name == "obs" or name.startswith("obs/"):
            out[name] = _with_last(column, columns[f"next_{name}"], windows, num_steps)
        elif name != "next_obs" and not name.startswith("next_obs/"):
            steps = column[row]
            if has_beyond:
                steps[beyond] = 0
            out[name] = steps
    mask = valid.copy()
    mask[:, :burn_in] &= begins[:, None]
    return {**out, "mask": mask, "num_steps": num_steps}


def _with_last(column: Array, next_column: Array, windows: Windows, num_steps: Array) -> Array:
    """Return observations [W, L + 1, O...]: of the steps, of what came after the last one, and zeros."""
    count, length = windows.row.shape
    obs = np.zeros((count, length + 1, *column.shape[1:]), column.dtype)
    obs[:, :length] = column[windows.row]
    obs[:, :length][~windows.valid] = 0
    obs[np.arange(count), num_steps] = next_column[windows.row[:, -1]]
    return obs


@dataclass(frozen=True)
class SequenceReturns(SequenceRows):
    """Maker of sequences whose `reward`, `discount` and `terminated` [R, L] are of n-step windows within the row."""

    nstep: int
    gamma: float

    def segment(self, rollout: Rollout) -> tuple[TransitionBatch, Array]:
        """Return (rows that are sequences, the steps to keep per lane [E])."""
        rows, keep = super().segment(rollout)
        valid = np.arange(self.shape.length) < rows["num_steps"][:, None]
        done = rows["terminated"] | rows["truncated"]
        window = nstep_return(rows["reward"].T, done.T, gamma=self.gamma, n=self.nstep, valid=valid.T)
        return rows.with_columns(
            reward=np.ascontiguousarray(window.return_.T),
            discount=np.ascontiguousarray(window.discount.T),
            terminated=np.take_along_axis(rows["terminated"], window.last.T, axis=1),
        ), keep


@dataclass(frozen=True)
class ArmRows(SequenceReturns):
    """Maker of sequences with the weight of the bonus [R] and the discount [R, L] of the arm that acted."""

    betas: tuple[float, ...]
    gammas: tuple[float, ...]

    def segment(self, rollout: Rollout) -> tuple[TransitionBatch, Array]:
        """Return (rows that are sequences, the steps to keep per lane [E])."""
        rows, keep = super().segment(rollout)
        arm = rows[f"{STATE}arm"].argmax(axis=1)
        discount = np.array(self.gammas, np.float32)[arm][:, None].repeat(self.shape.length, axis=1)
        return rows.with_columns(discount=discount, **{BONUS_WEIGHT: np.array(self.betas, np.float32)[arm]}), keep


@dataclass(frozen=True)
class SequencesWithLogProb(SequenceRows):
    """Maker of sequence rows with the log probabilities [R, L] when acting.

    Of random actions it is that of an even draw among the `sizes` choices that are legal; None: no such draw is known.
    """

    sizes: tuple[int, ...] | None

    def segment(self, rollout: Rollout) -> tuple[TransitionBatch, Array]:
        """Return (sequences, the steps to keep per lane [E])."""
        batch, keep = super().segment(rollout)
        if "log_prob" not in batch.columns:
            batch = batch.with_columns(log_prob=self._log_prob_at_random(batch))
        return batch, keep

    def _log_prob_at_random(self, batch: TransitionBatch) -> Array:
        if self.sizes is None:
            raise ConfigError(
                "policy.random_collect_size needs discrete actions, whose log probability is known: leave it out."
            )
        steps = batch["mask"].shape
        legal = batch.columns.get("obs/action_mask")
        if legal is None:
            return np.full(steps, -np.log(self.sizes).sum(), np.float32)
        choices = np.split(legal[:, :-1].reshape(*steps, -1), np.cumsum(self.sizes)[:-1], axis=2)
        # Beyond an episode nothing is legal.
        counts = np.stack([np.maximum(np.count_nonzero(choice, axis=2), 1) for choice in choices])
        return cast(Array, -np.log(counts).sum(axis=0).astype(np.float32))


class EpisodeWindows:
    """Windows of up to L steps of whole episodes, one from each step on, which are gathered when they are drawn.

    `columns` [N, ...] hold every step once, episode by episode, and `last` [N] is the row in which the episode of each
    ends. A window has the columns [L, ...] and `mask` bool [L], the steps of the episode; what is beyond is zero.
    """

    def __init__(self, columns: Mapping[str, Array], last: Array, length: int) -> None:
        self.columns, self._last, self._length = columns, last, length

    def __len__(self) -> int:
        return len(self._last)

    def take(self, rows: Array) -> TransitionBatch:
        """Return the windows that begin with these rows [B], in fresh memory."""
        at, last = rows[:, None] + np.arange(self._length), self._last[rows][:, None]
        mask = at <= last
        windows = {name: column[np.minimum(at, last)] for name, column in self.columns.items()}
        for column in windows.values():
            column[~mask] = 0
        return TransitionBatch({**windows, "mask": mask})


@dataclass(frozen=True)
class ContextRows:
    """Maker of rows that are windows of `length` steps, with the return to go of each step: of all of its episode.

    Their columns are observations, `action`, `return_to_go` and `step`; episodes that are open wait.
    """

    length: int

    def segment(self, rollout: Rollout) -> tuple[TransitionBatch, Array]:
        """Return (windows, the steps to keep per lane [E])."""
        windows, keep = self.windows(rollout)
        return windows.take(np.arange(len(windows))), keep

    def windows(self, rollout: Rollout, *, closes: bool = False) -> tuple[EpisodeWindows, Array]:
        """Return (windows, the steps to keep per lane [E]); with `closes` the log's end ends the episodes."""
        columns = rollout.columns()
        order = columns["lane"].argsort(kind="stable")
        lane, ended = columns["lane"][order], episode_ends(columns)[order]
        is_last = np.append(lane[1:] != lane[:-1], True)[: len(lane)]  # of its lane
        stop = np.flatnonzero(ended | is_last) + 1
        length = np.diff(stop, prepend=0)
        is_whole = ended[stop - 1] | closes
        keep = np.zeros(rollout.num_lanes, np.int64)
        keep[lane[stop - 1][~is_whole]] = length[~is_whole]
        step = np.arange(len(lane)) - np.repeat(stop - length, length)
        chosen = np.repeat(is_whole, length)
        row, length = order[chosen], length[is_whole]
        last = np.repeat(length.cumsum() - 1, length)
        reward = columns["reward"][row].astype(np.float64)
        so_far = reward.cumsum()
        own = {name: column[row] for name, column in columns.items() if name == "action" or name.split("/")[0] == "obs"}
        own["return_to_go"] = (so_far[last] - so_far + reward).astype(np.float32)
        own["step"] = columns["step"][row] if "step" in columns else step[chosen]
        return EpisodeWindows(own, last, self.length), keep

    def num_ready(self, length: Array, ended: Array) -> int:
        """Return how many rows stretches of these lengths [S] make: as many as the steps of those that `ended` [S]."""
        return int(length[ended].sum())
