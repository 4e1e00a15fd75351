"""Every legal combination of patterns learns; every other is refused, with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pipeline.ray import runs
from tests.pipeline.ray.match_env import BEST

COLLECTION = {
    "central": dict(workers=0),
    "rounds": dict(workers=2),
    "rounds that end early": dict(workers=2, fraction_workers=0.5, fraction_samples=0.5),
    "each at its pace": dict(workers=2, comm="async"),
}
GRADIENTS: dict[str, dict[str, Any]] = {
    "central": dict(),
    "shared": dict(grad_workers=2),
    "each its own": dict(grad_workers=2, grad_comm="async"),
    "decentralised": dict(grad_workers=2, decentralized=True),
}


@pytest.fixture(autouse=True)
def in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def match(configs: Any) -> Any:
    """Return configs in the toy env, until its optimum is reached."""
    main, create = configs
    main["env"].pop("env_id")
    main["env"].update(stop_value=BEST, n_evaluator_episode=4)
    main["policy"]["discount_factor"] = 0.5
    main["policy"]["eval"] = dict(evaluator=dict(eval_freq=40))
    create["env"]["type"] = "tests.pipeline.ray.match_env:Match"
    return main, create


def dqn() -> Any:
    main, create = match(runs.dqn(nstep=1, random_collect_size=64))
    main["policy"]["learn"] = dict(update_per_collect=8, batch_size=32, learning_rate=0.01, target_update_freq=50)
    main["policy"]["collect"] = dict(n_sample=32)
    main["policy"]["other"] = dict(eps=dict(start=0.5, end=0.05, decay=500))
    return main, create


def ppo() -> Any:
    main, create = match(runs.ppo())
    main["policy"]["learn"] = dict(epoch_per_collect=4, batch_size=32, learning_rate=0.01)
    main["policy"]["collect"] = dict(n_sample=64)
    return main, create


@pytest.mark.parametrize("configs", [dqn, ppo], ids=["dqn", "ppo"])
@pytest.mark.parametrize("grad", GRADIENTS)
@pytest.mark.parametrize("collect", COLLECTION)
def test_every_legal_combination_reaches_the_optimum(collect, grad, configs):
    chosen = runs.settings(**COLLECTION[collect], **GRADIENTS[grad])

    runs.scheme(configs(), chosen, seed=1, max_env_step=8000)

    found = runs.result("scheme")
    assert found["stop"] and found["eval_value"] == BEST
