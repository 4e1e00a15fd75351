"""Schemes on a real cluster: what the same schemes do in threads of one process."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pipeline.ray import runs
from tests.pipeline.ray.match_env import BEST
from tests.pipeline.ray.test_equality import assert_equal
from tests.pipeline.ray.test_scheme import COLLECTION, GRADIENTS, dqn, ppo

pytestmark = pytest.mark.ray

QUICK = [("rounds that end early", "central", ppo), ("each at its pace", "each its own", dqn)]
COMBINATIONS = [
    pytest.param(collect, grad, configs, marks=[] if (collect, grad, configs) in QUICK else [pytest.mark.slow])
    for collect in COLLECTION
    for grad in GRADIENTS
    for configs in (dqn, ppo)
    if collect != "central" or grad != "central"  # which needs no cluster
]


@pytest.fixture(autouse=True)
def in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ding_like.entry.serial_entry.write_pictures", lambda *args, **kwargs: None)


@pytest.mark.parametrize(("collect", "grad", "configs"), COMBINATIONS)
def test_every_legal_combination_reaches_the_optimum(ray_host: Any, collect: str, grad: str, configs: Any) -> None:
    chosen = runs.settings(**COLLECTION[collect], **GRADIENTS[grad])

    runs.scheme(configs(), chosen, seed=1, max_env_step=8000, host=ray_host)

    found = runs.result("scheme")
    assert found["stop"] and found["eval_value"] == BEST


@pytest.mark.parametrize("configs", [runs.dqn, pytest.param(runs.ppo, marks=pytest.mark.slow)])
def test_one_synchronous_worker_equals_serial(ray_host: Any, configs: Any) -> None:
    alone = runs.serial(configs(), seed=3, max_train_iter=200, exp_name="alone")

    by_scheme = runs.scheme(configs(), runs.settings(1), seed=3, max_train_iter=200, host=ray_host)

    assert_equal(alone, by_scheme)
