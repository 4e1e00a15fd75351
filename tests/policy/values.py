"""Small value-based policies and made-up rows for their tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ding_like.config import deep_merge, to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.policy import create_policy, get_policy_cls

OBS, ACTIONS = 3, 4


# Any: tests read what the policies of one algorithm alone have.
def make_policy(name: str = "dqn", **changes: Any) -> Any:
    """Return a policy of two hidden layers of 8, its weights drawn with seed 0."""
    torch.manual_seed(0)
    cfg = deep_merge(
        to_plain(get_policy_cls({"type": name}).default_config()),
        dict(type=name, model=dict(obs_shape=OBS, action_shape=ACTIONS, encoder_hidden_size_list=[8, 8])),
    )
    return create_policy(deep_merge(cfg, changes))


def make_rows(rows: int = 16, *, obs: int = OBS, actions: int = ACTIONS, seed: int = 0, **columns: Any) -> Any:
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


def with_masks(batch: TransitionBatch, *, actions: int = ACTIONS) -> TransitionBatch:
    """Return rows whose next actions are masked; the first two allow nothing: one is terminated, one is not."""
    mask = np.random.default_rng(1).random((len(batch), actions)) < 0.5
    columns, terminated = dict(batch.columns), batch["terminated"].copy()
    mask[:2], terminated[:2] = False, [True, False]
    for prefix, legal in (("obs", np.ones_like(mask)), ("next_obs", mask)):
        columns[f"{prefix}/board"], columns[f"{prefix}/action_mask"] = columns.pop(prefix), legal
    return TransitionBatch({**columns, "terminated": terminated})
