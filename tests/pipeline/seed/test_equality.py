"""One actor thread, one inference server, in rounds: the serial run, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pipeline.ray import runs
from tests.pipeline.ray.test_equality import assert_equal
from tests.pipeline.seed import runs as seed_runs

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")

UPDATES = 200


@pytest.mark.parametrize(
    "configs",
    [runs.dqn, *(pytest.param(each, marks=pytest.mark.slow) for each in (seed_runs.rainbow, runs.sac, seed_runs.r2d2))],
    ids=["dqn", "rainbow", "sac", "r2d2"],
)
def test_one_actor_and_one_server_in_rounds_equal_serial(configs: Any) -> None:
    alone = runs.serial(configs(), seed=3, max_train_iter=UPDATES, exp_name="alone")

    by_servers = seed_runs.seed(configs(), seed_runs.one(), seed=3, max_train_iter=UPDATES)

    assert_equal(alone, by_servers)
    found, expected = runs.result("seed"), runs.result("alone")
    assert found["train_iter"] == expected["train_iter"] >= UPDATES
    assert found["env_step"] == expected["env_step"] and found["eval_value_raw"] == expected["eval_value_raw"]


def test_a_policy_with_row_code_of_its_own_is_built_in_the_actor_and_equals_serial() -> None:
    def configs() -> Any:
        main, create = runs.dqn()
        return main, {**create, "policy": dict(type="tests.pipeline.seed.test_remote_actors:OwnRows")}

    alone = runs.serial(configs(), seed=3, max_train_iter=40, exp_name="alone")
    by_servers = seed_runs.seed(configs(), seed_runs.one(), seed=3, max_train_iter=40)

    assert_equal(alone, by_servers)
