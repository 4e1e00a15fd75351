"""Every legal combination of patterns learns; every other is refused, with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.entry.training import load_config
from ding_like.errors import ConfigError
from ding_like.pipeline.ray import Learner, Scheme
from ding_like.pipeline.scheme_parts import SchemeFactories
from tests.pipeline.ray import runs
from tests.pipeline.ray.match_env import BEST

pytestmark = pytest.mark.usefixtures("in_tmp")

COLLECTION = {
    "central": dict(workers=0),
    "ahead": dict(workers=0, comm="async"),
    "rounds": dict(workers=2),
    "rounds that end early": dict(workers=2, fraction_workers=0.5, fraction_samples=0.5),
    "each at its pace": dict(workers=2, comm="async"),
}
GRADIENTS: dict[str, dict[str, Any]] = {
    "central": dict(),
    "ahead": dict(grad_comm="async"),
    "shared": dict(grad_workers=2),
    "each its own": dict(grad_workers=2, grad_comm="async"),
    "decentralised": dict(grad_workers=2, decentralized=True),
}


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


@pytest.mark.parametrize(
    ("collect", "grad", "configs"),
    [
        ("central", "central", dqn),
        ("ahead", "central", dqn),
        ("central", "ahead", dqn),
        pytest.param("ahead", "ahead", ppo, marks=pytest.mark.slow),
    ],
)
def test_a_combination_without_remote_workers_reaches_the_optimum(collect, grad, configs):
    runs.scheme(configs(), runs.settings(**COLLECTION[collect], **GRADIENTS[grad]), seed=1, max_env_step=12000)

    found = runs.result("scheme")
    assert found["stop"] and found["eval_value"] == BEST


# --- what is refused


def test_patterns_that_exclude_each_other_are_refused_with_the_reason():
    wrong: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        (
            dict(decentralized_update_execution=True),
            {},
            "decentralised updates are made by several gradient workers together, and gradients are central",
        ),
        (
            dict(decentralized_update_execution=True, num_grad_workers=2, grad_workers_communication="asynchronous"),
            {},
            "asynchronous gradients are not those of one step",
        ),
        (
            dict(num_col_workers=2, col_workers_communication="asynchronous"),
            dict(fraction_workers=0.5, fraction_samples=0.5),
            "ends a round, and asynchronous collection has none",
        ),
        (dict(), dict(fraction_workers=0.5, fraction_samples=0.5), "ends a round of several collectors, and collect"),
        (dict(num_col_workers=2), dict(fraction_workers=0.5), "ends no round while fraction_samples is 1"),
        (dict(num_col_workers=2), dict(fraction_samples=0.0), "fraction_samples is 0.0, expected more than 0"),
        (
            dict(num_col_workers=2, col_workers_communication="asynchronous"),
            dict(max_policy_lag=0),
            "asynchronous rows are older than an update almost always",
        ),
        (dict(col_workers_communication="sync"), {}, "expected 'synchronous' or 'asynchronous'"),
    ]
    for words, changes, reason in wrong:
        with pytest.raises(ConfigError, match=reason):
            made(ppo(), settings=runs.settings(**changes), **words)


def test_what_a_refused_scheme_had_opened_is_closed():
    # tests/leaks.py looks for threads.
    with pytest.raises(ConfigError):
        made(ppo(), num_col_workers=2, decentralized_update_execution=True)


# --- a loop of one's own


def made(configs: Any, *, settings: Any = None, **words: Any) -> Scheme:
    """Return a scheme as a user makes it, from factories alone."""
    factories = SchemeFactories.of(load_config(configs, seed=0, exp_name="own"), seed=0)
    return Scheme(
        factories.algo, factories.learning_actor, factories.storage, factories.train_envs, settings=settings, **words
    )


@pytest.mark.parametrize(
    "words",
    [
        dict(col_workers_communication="asynchronous"),
        dict(grad_workers_communication="asynchronous"),
        pytest.param(dict(num_col_workers=2), marks=[pytest.mark.ray, pytest.mark.slow]),
    ],
    ids=lambda words: "-".join(map(str, words.values())),
)
def test_a_learner_trains_by_a_scheme_until_its_target_of_env_steps(words):
    learner = Learner(made(dqn(), **words), target_steps=1500)
    try:
        rewards = []
        while not learner.done():
            info = learner.step()
            rewards += [info["Episodes"]["TrainReward"]] if "Episodes" in info else []
        learner.scheme.update_worker.settle()
        assert learner.scheme.env_step >= 1500
        assert learner.scheme.update_worker.actor_version > 300
        known = [reward for reward in rewards if reward == reward]
        assert np.mean(known[-9:]) > np.mean(known[:9]), "episodes get better"
    finally:
        learner.stop()


def test_a_learner_saves_prints_and_changes_parameters_while_it_runs(caplog):
    caplog.set_level("INFO", logger="ding_like")
    learner = Learner(made(dqn()), target_steps=500)
    try:
        learner.step()
        learner.print_info()
        assert learner.update_algorithm_parameter("lr", 0.5)
        learner.save_model("kept.pth.tar")
        learner.step()
        assert learner.scheme.update_worker.local_worker.algo.lr == 0.5
    finally:
        learner.stop()
        learner.stop()

    assert "env step" in caplog.text and Path("own/ckpt/kept.pth.tar").is_file()
