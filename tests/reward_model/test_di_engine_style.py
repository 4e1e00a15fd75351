"""Reward models in DI-engine's style give a batch its rewards whether `estimate` returns rows or writes into them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ding_like.errors import SchemaError
from ding_like.reward_model import BaseRewardModel, create_reward_model
from tests.reward_model.rows import DISCRETE, rows_of, step


class Doubling(BaseRewardModel):
    """Model that counts the rows it was shown, and doubles rewards."""

    def __init__(self, config: Any, device: str, tb_logger: Any) -> None:
        super().__init__(config, device, tb_logger)
        self.kept: list[Any] = []
        self.seen = 0

    def collect_data(self, data: list[dict[str, Any]]) -> None:
        self.kept += data

    def train(self) -> Any:
        self.seen += len(self.kept)
        return {"seen": self.seen}

    def clear_data(self) -> None:
        self.kept.clear()

    def estimate(self, data: list[dict[str, Any]]) -> Any:
        return [{**row, "reward": 2 * row["reward"]} for row in data]

    def state_dict(self) -> Any:
        return {"seen": self.seen}

    def load_state_dict(self, state: Any) -> None:
        self.seen = state["seen"]


class Writing(Doubling):
    """Model that writes rewards into the rows it is given."""

    def estimate(self, data: list[dict[str, Any]]) -> None:
        for row in data:
            row["reward"] = 2 * row["reward"]


class Lossy(Doubling):
    """Model that loses a row."""

    def estimate(self, data: list[dict[str, Any]]) -> Any:
        return data[1:]


def make(cls: type[Doubling]) -> Any:
    kind = f"{__name__}:{cls.__name__}"
    return create_reward_model({"type": kind}, DISCRETE, seed=0, rng=np.random.default_rng(0))


@pytest.mark.parametrize("cls", [Doubling, Writing])
def test_rewards_are_those_of_the_model_and_the_batch_given_stays(cls: type[Doubling]) -> None:
    model, batch = make(cls), rows_of()
    before = batch["reward"].copy()

    for _ in range(2):
        found = step(model, batch)

    np.testing.assert_array_equal(found["reward"], 2 * before)
    assert found["reward"].dtype == np.float32
    np.testing.assert_array_equal(batch["reward"], before)
    assert model.model.seen == 2 * len(batch) and model.model.kept == []


def test_what_it_reports_and_its_own_state_are_kept() -> None:
    one, other = make(Doubling), make(Doubling)
    one.collect(rows_of())

    assert one.train() == {"seen": 12}
    other.load_state_dict(one.state_dict())
    assert other.model.seen == 12


def test_a_model_that_loses_rows_is_refused_by_its_name() -> None:
    with pytest.raises(SchemaError, match=r"Lossy.estimate\(\) gave no rows with a reward for each of the 12"):
        step(make(Lossy), rows_of())
