"""A policy that can be followed with pen and paper: its only weight counts the updates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from ding_like.data.rows import LearnMode


class CountingPolicy:
    """Report 'loss' = number of updates so far, and keep what it was called with."""

    def __init__(self, *, minibatches: int = 1, priority: bool = False, extra: dict[str, Any] | None = None) -> None:
        self.num_minibatches = minibatches
        self.priority = priority
        self.extra = extra or {}
        self.updates = 0
        self.calls: list[str] = []
        self.batches: list[Any] = []

    def minibatches(self, batch: Any, rng: np.random.Generator) -> Iterator[Any]:
        self.batches.append(batch)
        yield from [batch] * self.num_minibatches

    def grad(self, batch: Any, **kwargs: Any) -> tuple[dict[str, Any], Any]:
        self.calls += ["grad", *(f"grad {name}={value}" for name, value in kwargs.items())]
        info = {"loss": torch.tensor(float(self.updates)), "lr": 0.5, **self.extra}
        return info, np.ones(len(batch)) if self.priority else None

    def apply(self) -> None:
        self.calls.append("apply")
        self.updates += 1

    def state_dict(self) -> dict[str, Any]:
        return {"model": {"updates": torch.tensor(self.updates)}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.updates = int(state["model"]["updates"])
        self.loaded_keys = set(state)

    @property
    def learn_mode(self) -> LearnMode:
        def nothing(*_args: Any) -> None:
            return None

        return LearnMode(
            forward=nothing,
            reset=nothing,
            info=lambda: "a policy that counts",
            monitor_vars=lambda: ["loss", "lr"],
            get_attribute=lambda name: 4 if name == "batch_size" else None,
            set_attribute=nothing,
            state_dict=self.state_dict,
            load_state_dict=self.load_state_dict,
            minibatches=self.minibatches,
            grad=self.grad,
            apply=self.apply,
        )


class RecordingWriter:
    """Stand-in for `MetricsSink` that records the written metrics."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, float], int, int]] = []

    def write(self, source: str, values: Any, *, env_step: int, train_iter: int) -> None:
        self.lines.append((source, dict(values), env_step, train_iter))
