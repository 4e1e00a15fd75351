"""Runs of teams one of whose two agents leaves: rows, outcomes and returns are right in every way to train.

A policy for teams joins the suite with its name in `_ALL`.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ding_like.config import deep_merge
from ding_like.data.batch import TransitionBatch
from ding_like.entry import serial_pipeline, serial_pipeline_onpolicy
from ding_like.pipeline.settings import SeedSettings
from ding_like.policy import get_policy_cls
from ding_like.utils.registries import POLICY_REGISTRY
from ding_like.worker import BaseLearner
from tests.envs.leaving import LEAVES_AFTER, RETURNS, faults
from tests.pipeline.parallel.runs import running
from tests.pipeline.ray import runs as ray_runs
from tests.pipeline.seed import runs as seed_runs

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")

_OFF_POLICY: dict[str, Any] = {
    "random_collect_size": 32,
    "learn": {"batch_size": 16, "update_per_collect": 1},
    "collect": {"n_sample": 8},
    "other": {"replay_buffer": {"replay_buffer_size": 400}},
}
_ON_POLICY: dict[str, Any] = {"learn": {"epoch_per_collect": 1, "batch_size": 24}, "collect": {"n_sample": 48}}
# Name -> the policy section of a small run, and whether its actions are continuous.
_ALL: dict[str, tuple[dict[str, Any], bool]] = {
    **dict.fromkeys(("vdn", "qmix", "wqmix", "qtran", "idqn", "masac_discrete"), (_OFF_POLICY, False)),
    **dict.fromkeys(("maddpg", "matd3", "masac"), (_OFF_POLICY, True)),
    **dict.fromkeys(("ippo", "mappo", "happo"), (_ON_POLICY, False)),
}
POLICIES = {name: section for name, section in _ALL.items() if name in POLICY_REGISTRY}
WAYS = [("terminated", "truncated"), ("truncated", "terminated")]
MANAGERS = ["base", "gym_vector", pytest.param("subprocess", marks=pytest.mark.slow)]


def configs(policy: str, way: tuple[str, str], manager: str = "base") -> tuple[dict[str, Any], dict[str, Any]]:
    section, continuous = copy.deepcopy(POLICIES[policy])
    kwargs = {"leaves": way[0], "ends": way[1], "continuous": continuous, "mask": "" if continuous else "obs"}
    main = dict(
        exp_name="exp",
        env=dict(collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2, stop_value=1e9, kwargs=kwargs),
        policy=deep_merge({"eval": {"evaluator": {"eval_freq": 20}}}, section),
    )
    env = dict(type="tests.envs.leaving:Leaving")
    return main, dict(env=env, env_manager=dict(type=manager), policy=dict(type=policy))


def is_on_policy(policy: str) -> bool:
    return bool(get_policy_cls({"type": policy}).default_config().on_policy)


@pytest.fixture
def learned(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[TransitionBatch]]:
    """Collect what learners of this process learn from."""
    seen: list[TransitionBatch] = []
    original = BaseLearner.minibatches

    def minibatches(self: BaseLearner, data: Any, *arguments: Any, **named: Any) -> Any:
        seen.append(data)
        yield from original(self, data, *arguments, **named)

    monkeypatch.setattr(BaseLearner, "minibatches", minibatches)
    yield seen


def check(learned: list[TransitionBatch], way: tuple[str, str], exp_name: str) -> None:
    """Check the rows that were learned from, and the evaluation at the end."""
    rows = {name for batch in learned for name in faults(batch, leaves=way[0], ends=way[1])}
    assert learned and rows == set()
    times = {round(float(time)) for batch in learned for time in batch["obs/state"][:, 0]}
    assert min(times) < LEAVES_AFTER - 1 and max(times) > LEAVES_AFTER, "there are rows before and after it left"
    result = json.loads(Path(exp_name, "result.json").read_text())
    assert result["eval_value"] == pytest.approx(sum(RETURNS.values()))
    assert result["eval_metrics"] == {f"return_{name}": value for name, value in RETURNS.items()}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("manager", MANAGERS)
def test_serial(policy: str, way: tuple[str, str], manager: str, learned: list[Any]) -> None:
    train = serial_pipeline_onpolicy if is_on_policy(policy) else serial_pipeline

    train(configs(policy, way, manager), seed=0, max_train_iter=24)

    check(learned, way, "exp")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("way", WAYS)
def test_parallel(policy: str, way: tuple[str, str], learned: list[Any], tmp_path: Path) -> None:
    with running(tmp_path, configs(policy, way), max_env_step=240) as run:
        result = run.train()

    assert result["eval_value"] == pytest.approx(sum(RETURNS.values()))
    assert {fault for batch in learned for fault in faults(batch, leaves=way[0], ends=way[1])} == set()
    assert learned


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("workers", [0, 2])
def test_ray(policy: str, workers: int, learned: list[Any]) -> None:
    ray_runs.scheme(configs(policy, WAYS[0]), ray_runs.settings(workers), max_train_iter=24)

    check(learned, WAYS[0], "scheme")


@pytest.mark.parametrize("policy", [name for name in POLICIES if not is_on_policy(name)])
@pytest.mark.parametrize("way", WAYS)
def test_seed(policy: str, way: tuple[str, str], learned: list[Any]) -> None:
    seed_runs.seed(configs(policy, way), SeedSettings(), max_train_iter=24)

    check(learned, way, "seed")
