from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np

from ding_like.data.batch import TransitionBatch
from ding_like.worker.replay_buffer.presets import AdvancedReplayBuffer

NUM_STATES = 6
DISCOUNT = 1 - 1 / NUM_STATES
STEP_SIZE = 0.25
MOST_UPDATES = 10_000


def memory() -> TransitionBatch:
    """Return the rows of all 2^n action sequences: only one in 2^(n+1) - 2 has a reward (Schaul et al. 2016, 3.1)."""
    rows: list[dict[str, Any]] = []
    for state in range(NUM_STATES):
        is_last = state == NUM_STATES - 1
        times = 2 ** (NUM_STATES - 1 - state)  # sequences that come so far and take either action
        rows += [dict(obs=state, action=0, reward=0.0, terminated=True)] * times
        rows += [dict(obs=state, action=1, reward=float(is_last), terminated=is_last)] * times
    return TransitionBatch({name: np.array([row[name] for row in rows]) for name in rows[0]})


def updates_until_learned(folder: Path, *, alpha: float, seed: int) -> int:
    """Return after how many one-row updates the table is the true Q to a mean squared error of 1e-3."""
    true_q = np.zeros((NUM_STATES, 2))
    true_q[:, 1] = DISCOUNT ** np.arange(NUM_STATES - 1, -1, -1)
    rng = np.random.default_rng(seed)
    q = rng.normal(0, 0.1, (NUM_STATES + 1, 2))
    buffer = AdvancedReplayBuffer(
        dict(replay_buffer_size=256, alpha=alpha, beta=0.0, anneal_step=0), None, str(folder), rng=rng
    )
    data = memory()
    order = rng.permutation(len(data))
    buffer.push(data.take(order), 0)
    for update in range(MOST_UPDATES):
        if ((q[:-1] - true_q) ** 2).mean() < 1e-3:
            break
        batch = buffer.sample(1, update)
        state, action = int(batch["obs"][0]), int(batch["action"][0])
        goes_on = not batch["terminated"][0]
        error = float(batch["reward"][0]) + DISCOUNT * goes_on * q[state + 1].max() - q[state, action]
        q[state, action] += STEP_SIZE * error
        buffer.update(
            {
                "priority": [abs(error)],
                "replay_buffer_idx": batch["replay_buffer_idx"],
                "replay_unique_id": batch["replay_unique_id"],
            }
        )
    buffer.close()
    return update


def test_priorities_learn_a_sparse_chain_in_fewer_updates(tmp_path: Path) -> None:
    uniform, prioritised = (
        statistics.median(updates_until_learned(tmp_path, alpha=alpha, seed=seed) for seed in range(5))
        for alpha in (0.0, 0.6)
    )

    assert uniform < MOST_UPDATES
    assert prioritised < 0.5 * uniform
