"""One collecting rank in rounds: the serial run, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pipeline.ranks.runs import ranks
from tests.pipeline.ray import runs
from tests.pipeline.ray.test_equality import assert_equal

pytestmark = [pytest.mark.usefixtures("in_tmp", "no_pictures"), pytest.mark.slow]

UPDATES = 200


@pytest.mark.parametrize("configs", [runs.dqn, runs.ppo, runs.sac], ids=["dqn", "ppo", "sac"])
def test_one_collecting_rank_equals_serial(configs: Any) -> None:
    alone = runs.serial(configs(), seed=3, max_train_iter=UPDATES, exp_name="alone")

    by_ranks = ranks(configs(), seed=3, max_train_iter=UPDATES)

    assert_equal(alone, by_ranks)
    found, expected = runs.result("ranks"), runs.result("alone")
    assert found["train_iter"] == expected["train_iter"] >= UPDATES
    assert found["env_step"] == expected["env_step"] and found["eval_value_raw"] == expected["eval_value_raw"]


@pytest.mark.parametrize("is_sync", [True, False])
def test_two_collecting_ranks_train(is_sync: bool) -> None:
    ranks(runs.dqn(), collect_ranks=2, max_train_iter=UPDATES, system={"sync": is_sync})

    assert runs.result("ranks")["train_iter"] >= UPDATES
