from __future__ import annotations

import math
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ding_like.data.batch import TransitionBatch
from ding_like.worker.replay_buffer.presets import AdvancedReplayBuffer

CAPACITY, ALPHA, BETA, MAX_USE, MAX_STALENESS = 5, 0.7, 0.5, 3, 4
PRIORITIES = st.floats(0, 10, width=32)


class SlowModel:
    """Reference buffer, a list of dicts, oldest first; it checks the form of a sample, not which rows are in it."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.next_id = 0
        self.max_priority = 1.0

    def push(self, given: list[float | None], collect_iter: int) -> None:
        default = self.max_priority
        for priority in given:
            stored = default if priority is None else priority + 1e-5
            self.max_priority = max(self.max_priority, stored)
            self.rows.append(
                dict(id=self.next_id, priority=stored, use=0, collect_iter=collect_iter, value=self.next_id * 10)
            )
            self.next_id += 1
        del self.rows[:-CAPACITY]

    def live(self) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["priority"] > 0]

    def remove_stale(self, learner_iter: int) -> None:
        for row in self.rows:
            if learner_iter - row["collect_iter"] >= MAX_STALENESS:
                row["priority"] = 0.0

    def check_sample(self, batch: TransitionBatch, learner_iter: int) -> None:
        by_id = {row["id"]: row for row in self.live()}
        smallest = min(row["priority"] ** ALPHA for row in self.live())
        ids = batch["replay_unique_id"].tolist()
        for row_id in ids:
            by_id[row_id]["use"] += 1
        for i, row_id in enumerate(ids):
            row = by_id[row_id]
            assert batch["value"][i] == row["value"]
            assert batch["use"][i] == row["use"]
            assert batch["staleness"][i] == learner_iter - row["collect_iter"]
            assert math.isclose(batch["priority"][i], row["priority"], rel_tol=1e-6)
            assert math.isclose(batch["weight"][i], (row["priority"] ** ALPHA / smallest) ** -BETA, rel_tol=1e-5)
        for row in by_id.values():
            if row["use"] >= MAX_USE:
                row["priority"] = 0.0

    def update(self, ids: list[int], priorities: list[float]) -> None:
        for row_id, priority in zip(ids, priorities, strict=True):
            for row in self.live():
                if row["id"] == row_id:
                    row["priority"] = priority + 1e-5
                    self.max_priority = max(self.max_priority, priority + 1e-5)


class AdvancedBufferMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.model = SlowModel()
        self.learner_iter = 0
        self.seen: list[tuple[int, int]] = []
        self.buffer = self.build()

    def build(self) -> AdvancedReplayBuffer:
        cfg = dict(
            replay_buffer_size=CAPACITY,
            alpha=ALPHA,
            beta=BETA,
            anneal_step=0,
            max_use=MAX_USE,
            max_staleness=MAX_STALENESS,
        )
        return AdvancedReplayBuffer(cfg, None, self.folder.name, rng=np.random.default_rng(self.learner_iter))

    def teardown(self) -> None:
        self.buffer.close()
        self.folder.cleanup()

    @rule(given=st.lists(PRIORITIES, min_size=1, max_size=12), says_priority=st.booleans())
    def push(self, given: list[float], says_priority: bool) -> None:
        values = (np.arange(len(given)) + self.model.next_id) * 10
        columns = {"value": values, "collect_iter": np.full(len(given), self.learner_iter)}
        if says_priority:
            columns["priority"] = np.array(given)
        self.buffer.push(TransitionBatch(columns), 0)
        self.model.push(list(given) if says_priority else [None] * len(given), self.learner_iter)

    @rule(size=st.integers(1, 7))
    def sample(self, size: int) -> None:
        self.model.remove_stale(self.learner_iter)
        batch = self.buffer.sample(size, self.learner_iter)
        if batch is None:
            assert len(self.model.live()) < size or not self.model.rows
            return
        assert len(batch) == size <= len(self.model.live())
        self.model.check_sample(batch, self.learner_iter)
        self.seen += zip(batch["replay_unique_id"].tolist(), batch["replay_buffer_idx"].tolist(), strict=True)

    @precondition(lambda self: self.seen)
    @rule(data=st.data(), priorities=st.lists(PRIORITIES, min_size=1, max_size=4))
    def update(self, data: st.DataObject, priorities: list[float]) -> None:
        chosen = [data.draw(st.sampled_from(self.seen)) for _ in priorities]
        ids = [row_id for row_id, _ in chosen]
        places = [place for _, place in chosen]
        self.buffer.update({"replay_unique_id": ids, "replay_buffer_idx": places, "priority": priorities})
        self.model.update(ids, priorities)

    @rule()
    def time_passes(self) -> None:
        self.learner_iter += 1

    @rule()
    def clear(self) -> None:
        self.buffer.clear()
        self.model.rows.clear()
        self.model.max_priority = 1.0

    @rule()
    def resume(self) -> None:
        resumed = self.build()
        resumed.load_state_dict(self.buffer.state_dict())
        self.buffer.close()
        self.buffer = resumed

    @rule()
    def save_and_load_data(self) -> None:
        path = str(Path(self.folder.name, "rows"))
        self.buffer.save_data(path)
        other = self.build()
        other.load_data(path)
        one, two = (each.state_dict()["data"] for each in (self.buffer, other))
        assert len(one) == len(two)
        for name in one:
            np.testing.assert_array_equal(one[name], two[name])
        other.close()

    @invariant()
    def holds_the_rows_of_the_model(self) -> None:
        assert self.buffer.count() == len(self.model.live())
        state = self.buffer.state_dict()
        assert math.isclose(state["max_priority"], self.model.max_priority, rel_tol=1e-6)
        if self.model.rows:
            assert state["data"]["value"].tolist() == [row["value"] for row in self.model.rows]
            expected = [row["priority"] for row in self.model.rows]
            np.testing.assert_allclose(state["data"]["priority"], expected, rtol=1e-6)
            assert state["use"].tolist() == [row["use"] for row in self.model.rows]


AdvancedBufferMachine.TestCase.settings = settings(
    max_examples=15, stateful_step_count=15, deadline=None, derandomize=True
)
TestAdvancedBuffer = AdvancedBufferMachine.TestCase


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
