"""Demonstrations, and any other data sets: steps of episodes as columns, with what made them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from ding_like.data.batch import TransitionBatch, columns_to_obs
from ding_like.data.mapped import pieces
from ding_like.data.rollout import Rollout
from ding_like.data.segment_file import columns_info, map_columns, save_columns
from ding_like.errors import ConfigError, SchemaError
from ding_like.types import Array, Json, Obs

# Of a step, as a collector's log has it. Where an episode begins and ends is seen in `terminated` and `truncated` too.
STEP_COLUMNS = ("action", "reward", "terminated", "truncated", "lane", "episode_id", "step")
_NEEDED = ("action", "reward", "terminated", "truncated")
NOT_SET = (  # of a key that names a file
    "is not set: give the file of demonstrations that `ding collect` wrote, or expert.config=cartpole_dqn, say"
)
_ANOTHER = "it was collected in another env, or with other wrappers."


@dataclass(frozen=True)
class Demonstrations:
    """Steps [N] of episodes, one episode after another: an expert's, or those of any policy.

    `columns` are `obs`, `action`, `reward`, `next_obs`, `terminated` and `truncated`; those of `ding collect` have
    `lane` (0), `episode_id` and `step` too. They may stay in a file, and are read in pieces then. `info` says what made
    them: at least `env_id` where it is known. Raises SchemaError for a column that is missing, shorter than the others,
    or not finite, with its row.
    """

    columns: Mapping[str, Array]
    info: Mapping[str, Json] = field(default_factory=dict)
    source: str = "demonstrations"  # as errors name them

    def __post_init__(self) -> None:
        missing = [name for name in _NEEDED if name not in self.columns]
        missing += [name for name in ("obs", "next_obs") if not self._has_obs(name)]
        if missing:
            raise SchemaError(
                f"{self.source} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}: it is no data set of "
                "steps, such as `ding collect` writes."
            )
        lengths = {name: len(column) if column.ndim else 0 for name, column in self.columns.items()}
        if len(set(lengths.values())) > 1 or not len(self):
            raise SchemaError(f"{self.source} has columns of other lengths than one, or none: {lengths}.")
        for name in ("reward", "terminated", "truncated"):
            if self.columns[name].ndim != 1:
                shape = list(self.columns[name].shape[1:])
                raise SchemaError(f"{self.source} has rows '{name}' of shape {shape}, expected a number in each.")
        for name, column in self.columns.items():
            if name.partition("/")[0] == "obs" and self.columns[f"next_{name}"].shape != column.shape:
                own, after = (list(each.shape[1:]) for each in (column, self.columns[f"next_{name}"]))
                raise SchemaError(f"{self.source} has rows '{name}' of shape {own}, but 'next_{name}' of {after}.")
            self._check_finite(name, column)

    def _has_obs(self, name: str) -> bool:
        if name == "next_obs":  # one for each part of an observation
            own = [column for column in self.columns if column.partition("/")[0] == "obs"]
            return bool(own) and all(f"next_{column}" in self.columns for column in own)
        return name in self.columns or any(column.startswith(f"{name}/") for column in self.columns)

    def _check_finite(self, name: str, column: Array) -> None:
        if column.dtype.kind not in "biuf":
            raise SchemaError(f"{self.source} has a column '{name}' of {column.dtype}, expected numbers.")
        for start, (part,) in pieces(column) if column.dtype.kind == "f" else ():
            if not (finite := np.isfinite(part)).all():
                row = start + int(np.argwhere(~finite)[0][0])
                raise SchemaError(f"{self.source} has a number in column '{name}', row {row}, that is not finite.")

    def __len__(self) -> int:
        return len(self.columns["action"])

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Demonstrations:
        """Return what a file of `save` holds; the columns stay there.

        Raises ConfigError where there is none, CheckpointError for a foreign one.
        """
        if not Path(path).is_file():
            raise ConfigError(f"there is no file of demonstrations '{path}': write one with `ding collect`.")
        return cls(map_columns(path), columns_info(path), str(path))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the columns and `info` to a file, whole or not at all."""
        save_columns(path, self.columns, self.info)

    @cached_property
    def ends(self) -> Array:
        """Numbers [K] of the last rows of the episodes, in order."""
        ids = self.columns.get("episode_id")
        found, last = [], None
        for start, parts in pieces(*(self.columns[name] for name in ("terminated", "truncated")), *_those(ids)):
            ended = parts[0].astype(bool) | parts[1].astype(bool)
            if ids is not None:
                ended[:-1] |= parts[2][1:] != parts[2][:-1]
                if start and parts[2][0] != last:
                    found.append(np.array([start - 1]))
                last = parts[2][-1]
            found.append(start + np.flatnonzero(ended))
        return np.unique(np.concatenate([*found, [len(self) - 1]]))

    @cached_property
    def returns(self) -> Array:
        """Undiscounted return [K] of each episode."""
        total, before = np.zeros(len(self.ends)), 0
        for start, (reward,) in pieces(self.columns["reward"]):
            stop = int(np.searchsorted(self.ends, start + len(reward) - 1))  # the episode of the last row
            of_row = np.searchsorted(self.ends, np.arange(start, start + len(reward)))
            total[before : stop + 1] += np.bincount(of_row - before, reward, minlength=stop + 1 - before)
            before = stop
        return total

    @property
    def num_episodes(self) -> int:
        """Number of episodes, K."""
        return len(self.ends)

    def rollout(self) -> Rollout:
        """Return the steps as a collector's log of one lane, of which a policy makes training rows."""
        return Rollout.over({"lane": np.zeros(len(self), np.int64), **self.columns})  # zeros take no memory, unwritten

    def batch(self) -> TransitionBatch:
        """Return the steps as rows of one step each, in memory."""
        return TransitionBatch({name: np.array(column) for name, column in self.columns.items()})

    def check_obs(self, obs: Obs) -> None:
        """Raise SchemaError where observations have another shape than one row of an env's."""
        if (own := _shapes(columns_to_obs("obs", self.columns))) != (wanted := _shapes(obs)):
            raise SchemaError(f"{self.source} has rows 'obs' of shape {own}, the env's are {wanted}: {_ANOTHER}")

    def check_actions(self, size: int, choices: Sequence[int] | None) -> None:
        """Raise SchemaError for an action that an env does not take: `size` numbers, discrete ones below `choices`."""
        whole = self.columns["action"]
        width, wrong = int(np.prod(whole.shape[1:])), None
        if width != size or whole.dtype.kind not in ("f" if choices is None else "iub"):
            wrong = 0
        elif choices is not None:
            for start, (part,) in pieces(whole):
                action = part.reshape(len(part), -1)
                if (faulty := ((action < 0) | (action >= choices)).any(axis=1)).any():
                    wrong = start + int(faulty.argmax())
                    break
        if wrong is not None:
            takes = f"{size} real numbers" if choices is None else f"one of {' x '.join(map(str, choices))} choices"
            raise SchemaError(
                f"{self.source} has the action {whole[wrong].tolist()} in row {wrong}, and the env takes {takes}: "
                f"{_ANOTHER}"
            )


def _those(*columns: Array | None) -> list[Array]:
    return [column for column in columns if column is not None]


def _shapes(value: Obs | Array) -> object:
    if isinstance(value, dict):
        return {key: _shapes(inner) for key, inner in value.items()}
    return list(value.shape[1:])
