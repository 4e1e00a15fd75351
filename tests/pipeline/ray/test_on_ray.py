"""Schemes on a cluster reach the optimum of a toy env, and one synchronous collector equals a serial run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.ray import runs
from tests.pipeline.ray.gcs_kills import is_ok, kill_heads
from tests.pipeline.ray.match_env import BEST
from tests.pipeline.ray.test_equality import assert_equal
from tests.pipeline.ray.test_scheme import COLLECTION, GRADIENTS, dqn, ppo

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("in_tmp", "no_pictures", "ray_cluster")]


@pytest.mark.parametrize(
    ("collect", "grad", "configs"),
    [
        ("rounds that end early", "central", ppo),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (
                ("rounds", "central", dqn),
                ("each at its pace", "each its own", dqn),
                ("central", "shared", ppo),
                ("rounds", "shared", ppo),
                ("rounds", "decentralised", dqn),
            )
        ),
    ],
)
def test_every_legal_combination_reaches_the_optimum(collect: str, grad: str, configs: Any) -> None:
    chosen = runs.settings(**COLLECTION[collect], **GRADIENTS[grad])

    runs.scheme(configs(), chosen, seed=1, max_env_step=16000)

    found = runs.result("scheme")
    assert found["stop"] and found["eval_value"] == BEST


@pytest.mark.parametrize("configs", [runs.dqn, pytest.param(runs.ppo, marks=pytest.mark.slow)])
def test_one_synchronous_worker_equals_serial(configs: Any) -> None:
    alone = runs.serial(configs(), seed=3, max_train_iter=200, exp_name="alone")

    by_scheme = runs.scheme(configs(), runs.settings(1), seed=3, max_train_iter=200)

    assert_equal(alone, by_scheme)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_whose_head_is_killed_goes_on(tmp_path: Path) -> None:
    found, goes_on = kill_heads(tmp_path, kills=2, seed=0)

    assert is_ok(found, kills=2, goes_on=goes_on), found
