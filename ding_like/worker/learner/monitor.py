"""Keep what a learner reports as references, so that an iteration never waits for a number."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from ding_like.types import State

WINDOW = 10  # iterations that an average covers, as in the original


class LogDict(dict[str, Any]):
    """Hold values by name; a tensor that is part of a graph is detached on its way in, so that the graph is freed."""

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        super().__init__({name: _detached(value) for name, value in values.items()} if values else {})

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, _detached(value))

    def update(self, *args: Any, **kwargs: Any) -> None:
        for name, value in dict(*args, **kwargs).items():
            self[name] = value


class LearnerMonitor:
    """Remember the scalars of the last iterations; reading them is left to the caller."""

    def __init__(self, names: Iterable[str], *, window: int = WINDOW) -> None:
        self.names = list(names)
        self._recent: deque[Mapping[str, Any]] = deque(maxlen=window)

    def record(self, scalars: Mapping[str, Any]) -> None:
        """Keep a reference to one iteration's scalars; what is added to them later counts."""
        self._recent.append(scalars)

    def averages(self) -> dict[str, float]:
        """Return the mean of each name over the window; waits for the device. Names without a value are left out."""
        columns = {name: [row[name] for row in self._recent if name in row] for name in self.names}
        return {name: _mean(values) for name, values in columns.items() if values}

    def state_dict(self) -> State:
        """Return copies on the host, of the same types, so that later averages are equal to the last bit."""
        return {"recent": [{name: _copied(row[name]) for name in self.names if name in row} for row in self._recent]}

    def load_state_dict(self, state: State) -> None:
        self._recent.clear()
        self._recent.extend(state["recent"])


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) and value.requires_grad else value


def _mean(values: list[Any]) -> float:
    if all(isinstance(value, torch.Tensor) for value in values):
        if len({value.shape for value in values}) > 1:  # some were averaged over learners, some were not
            values = [value.float().mean() for value in values]
        return float(torch.stack(values).float().mean())
    return float(np.mean([float(value) for value in values]))


def _copied(value: Any) -> Any:
    return value.detach().cpu().clone() if isinstance(value, torch.Tensor) else value
