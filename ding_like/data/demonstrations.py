"""Demonstrations: steps of an expert's whole episodes, in a file of columns with what made them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ding_like.data.batch import TransitionBatch, columns_to_obs
from ding_like.data.rollout import Rollout
from ding_like.data.segment_file import columns_info, load_columns, save_columns
from ding_like.errors import ConfigError, SchemaError
from ding_like.types import Array, Json, Obs

STEP_COLUMNS = ("action", "reward", "terminated", "truncated", "lane", "episode_id", "step")
NOT_SET = (  # of a key that names a file
    "is not set: give the file of demonstrations that `ding collect` wrote, or expert.config=cartpole_dqn, say"
)
_ANOTHER = "it was collected in another env, or with other wrappers."


@dataclass(frozen=True)
class Demonstrations:
    """Steps [N] of whole episodes, one episode after another.

    `columns` are `obs`, `action`, `reward`, `next_obs`, `terminated`, `truncated`, `lane` (0), `episode_id` and `step`;
    `info` says what made them: at least `env_id` where it is known. Raises SchemaError for a column that is missing,
    shorter than the others, or not finite, with its row.
    """

    columns: Mapping[str, Array]
    info: Mapping[str, Json] = field(default_factory=dict)
    source: str = "demonstrations"  # as errors name them

    def __post_init__(self) -> None:
        missing = [name for name in STEP_COLUMNS if name not in self.columns]
        missing += [name for name in ("obs", "next_obs") if not self._has_obs(name)]
        if missing:
            raise SchemaError(
                f"{self.source} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}: it is no file of "
                "`ding collect`."
            )
        lengths = {name: len(column) for name, column in self.columns.items()}
        if len(set(lengths.values())) > 1 or not len(self.columns["action"]):
            raise SchemaError(f"{self.source} has columns of other lengths than one, or none: {lengths}.")
        for name, column in self.columns.items():
            if column.dtype.kind == "f" and not (finite := np.isfinite(column)).all():
                row = int(np.argwhere(~finite)[0][0])
                raise SchemaError(f"{self.source} has a number in column '{name}', row {row}, that is not finite.")

    def _has_obs(self, name: str) -> bool:
        return name in self.columns or any(column.startswith(f"{name}/") for column in self.columns)

    def __len__(self) -> int:
        return len(self.columns["action"])

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Demonstrations:
        """Read a file of `save`. Raises ConfigError where there is none, CheckpointError for a foreign one."""
        if not Path(path).is_file():
            raise ConfigError(f"there is no file of demonstrations '{path}': write one with `ding collect`.")
        return cls(load_columns(path), columns_info(path), str(path))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the columns and `info` to a file, whole or not at all."""
        save_columns(path, self.columns, self.info)

    @property
    def returns(self) -> Array:
        """Undiscounted return [K] of each episode."""
        _, of_step = np.unique(self.columns["episode_id"], return_inverse=True)
        return np.bincount(of_step, weights=self.columns["reward"])

    @property
    def num_episodes(self) -> int:
        """Number of episodes, K."""
        return len(np.unique(self.columns["episode_id"]))

    def rollout(self) -> Rollout:
        """Return the steps as a collector's log, of which a policy makes training rows."""
        log = Rollout(1, capacity=len(self))
        log.append(self.columns)
        return log

    def batch(self) -> TransitionBatch:
        """Return the steps as rows of one step each."""
        return TransitionBatch(self.columns)

    def check_obs(self, obs: Obs) -> None:
        """Raise SchemaError where observations have another shape than one row of an env's."""
        if (own := _shapes(columns_to_obs("obs", self.columns))) != (wanted := _shapes(obs)):
            raise SchemaError(f"{self.source} has rows 'obs' of shape {own}, the env's are {wanted}: {_ANOTHER}")

    def check_actions(self, size: int, choices: Sequence[int] | None) -> None:
        """Raise SchemaError for an action that an env does not take: `size` numbers, discrete ones below `choices`."""
        action = self.columns["action"].reshape(len(self), -1)
        if action.shape[1] != size or action.dtype.kind not in ("f" if choices is None else "iub"):
            row = 0
        elif choices is None or not (wrong := ((action < 0) | (action >= choices)).any(axis=1)).any():
            return
        else:
            row = int(wrong.argmax())
        takes = f"{size} real numbers" if choices is None else f"one of {' x '.join(map(str, choices))} choices"
        raise SchemaError(
            f"{self.source} has the action {self.columns['action'][row].tolist()} in row {row}, and the env takes "
            f"{takes}: {_ANOTHER}"
        )


def _shapes(value: Obs | Array) -> object:
    if isinstance(value, dict):
        return {key: _shapes(inner) for key, inner in value.items()}
    return list(value.shape[1:])
