"""R2D2 in `parallel`: its sequences come to the learner as the serial run has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.pipeline.parallel.runs import configs, running, spy_on_batches

BURN_IN, STEPS = 2, 4


@pytest.mark.parametrize("policy", ["r2d2", pytest.param("drqn", marks=pytest.mark.slow)])
def test_sequences_with_their_state_train_at_the_serial_ratio(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configs(
        policy,
        env=dict(wrappers=[dict(type="obs_select", indices=[0, 2])]),
        nstep=3,
        burnin_step=BURN_IN,
        learn_unroll_len=STEPS,
        learn=dict(update_per_collect=2),
        collect=dict(n_sample=6),
        other=dict(replay_buffer=dict(replay_buffer_size=80)),
    )
    with running(tmp_path, config, max_env_step=1200) as run:
        batches = spy_on_batches(run, monkeypatch)

        result = run.train()

        assert result["train_iter"] == run.core.env_step * 2 // (6 * STEPS) >= 90
        assert run.core.book.count == 80, "the capacity is of rows"
    length = BURN_IN + STEPS
    for batch in batches:
        check(batch, length)
    assert any((batch["state/h"] != 0).any() for batch in batches)


def check(batch: Any, length: int) -> None:
    """Compare the shapes of a batch, its order in time and what is beyond its ends with what R2D2 learns from."""
    assert batch["obs"].shape == (16, length + 1, 2) and batch["state/h"].shape == batch["state/c"].shape == (16, 8)
    valid = np.arange(length) < batch["num_steps"][:, None]
    steps, first = batch["step"], batch["step"][:, :1]
    assert (steps[valid] == (first + np.arange(length))[valid]).all(), "a row is of one episode, in order"
    begins = (first == 0) & valid
    assert (batch["mask"] == (valid & (begins | (np.arange(length) >= BURN_IN)))).all()
