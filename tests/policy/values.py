"""Made-up rows for the tests of value-based policies."""

from __future__ import annotations

from typing import Any

import numpy as np

from ding_like.data.batch import TransitionBatch


def make_rows(rows: int = 16, *, obs: int = 3, actions: int = 4, seed: int = 0, **columns: Any) -> TransitionBatch:
    """Return n-step rows with weights; some are terminated, others truncated."""
    rng = np.random.default_rng(seed)
    made = {
        "obs": rng.normal(size=(rows, obs)).astype(np.float32),
        "next_obs": rng.normal(size=(rows, obs)).astype(np.float32),
        "action": rng.integers(0, actions, rows),
        "reward": rng.normal(size=rows).astype(np.float32),
        "terminated": rng.random(rows) < 0.3,
        "truncated": rng.random(rows) < 0.3,
        "discount": rng.choice([0.97, 0.97**2], rows).astype(np.float32),
        "weight": rng.uniform(0.1, 1.0, rows).astype(np.float32),
    }
    return TransitionBatch({**made, **columns})


def with_masks(batch: TransitionBatch, *, actions: int = 4) -> TransitionBatch:
    """Return rows whose next actions are masked; the first two allow nothing: one is terminated, one is not."""
    mask = np.random.default_rng(1).random((len(batch), actions)) < 0.5
    columns, terminated = dict(batch.columns), batch["terminated"].copy()
    mask[:2], terminated[:2] = False, [True, False]
    for prefix, legal in (("obs", np.ones_like(mask)), ("next_obs", mask)):
        columns[f"{prefix}/board"], columns[f"{prefix}/action_mask"] = columns.pop(prefix), legal
    return TransitionBatch({**columns, "terminated": terminated})
