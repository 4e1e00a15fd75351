"""The single-worker synchronous scheme is the serial run, bit for bit."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
import torch

from ding_like.comm.channels import Version
from ding_like.entry.training import load_config
from ding_like.pipeline.process import training_process
from ding_like.pipeline.rows import RowQueue
from ding_like.pipeline.scheme_parts import build_driver
from tests.pipeline.ray import runs

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")

UPDATES = 300


def state_of(policy: Any) -> dict[str, Any]:
    """Return a policy's whole learning state as flat tensors and numbers."""
    flat: dict[str, Any] = {}

    def flatten(value: Any, name: str) -> None:
        if isinstance(value, dict):
            for key, each in value.items():
                flatten(each, f"{name}/{key}")
        elif isinstance(value, (list, tuple)):
            for key, each in enumerate(value):
                flatten(each, f"{name}/{key}")
        else:
            flat[name] = value

    flatten(policy.learn_mode.state_dict(), "")
    return flat


def assert_equal(one: Any, other: Any) -> None:
    first, second = state_of(one), state_of(other)
    assert first.keys() == second.keys() and len(first) > 4
    for name, value in first.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, second[name]), name
        else:
            assert value == second[name], name


@pytest.mark.parametrize(
    ("configs", "workers"),
    [
        (runs.dqn, 0),
        (runs.ppo, 0),
        pytest.param(runs.dqn, 1, marks=pytest.mark.ray),
        pytest.param(runs.ppo, 1, marks=pytest.mark.ray),
        pytest.param(runs.sac, 0, marks=pytest.mark.slow),
        pytest.param(runs.sac, 1, marks=[pytest.mark.ray, pytest.mark.slow]),
    ],
)
def test_one_synchronous_worker_equals_serial(configs, workers):
    alone = runs.serial(configs(), seed=3, max_train_iter=UPDATES, exp_name="alone")

    by_scheme = runs.scheme(configs(), runs.settings(workers), seed=3, max_train_iter=UPDATES)

    assert_equal(alone, by_scheme)
    found, expected = runs.result("scheme"), runs.result("alone")
    assert found["train_iter"] == expected["train_iter"] >= UPDATES
    assert found["env_step"] == expected["env_step"] and found["eval_value_raw"] == expected["eval_value_raw"]


@pytest.mark.ray
def test_random_rows_that_are_collected_by_several_calls_are_those_of_one_call(monkeypatch):
    monkeypatch.setattr("ding_like.pipeline.scheme_parts._RANDOM_STEPS", 18)  # not all 4 envs alike
    alone = runs.serial(runs.dqn(), seed=3, max_train_iter=60, exp_name="alone")

    by_scheme = runs.scheme(runs.dqn(), runs.settings(1), seed=3, max_train_iter=60)

    assert_equal(alone, by_scheme)
    assert runs.result("scheme")["env_step"] == runs.result("alone")["env_step"]


@pytest.mark.ray
def test_random_whole_episodes_are_as_many_as_a_serial_run_plays():
    def configs() -> Any:
        collect = dict(n_episode=4, collector=dict(get_train_sample=True, collect_print_freq=1000))
        main, create = runs.dqn(random_collect_size=150, collect=collect)
        return main, {**create, "collector": dict(type="episode")}

    alone = runs.serial(configs(), seed=3, max_train_iter=60, exp_name="alone")

    by_scheme = runs.scheme(configs(), runs.settings(1), seed=3, max_train_iter=60)

    assert_equal(alone, by_scheme)
    assert runs.result("scheme")["env_step"] == runs.result("alone")["env_step"]


@pytest.mark.ray
@pytest.mark.parametrize("configs", [runs.dqn, pytest.param(runs.ppo, marks=pytest.mark.slow)])
def test_two_synchronous_collectors_equal_serial_that_is_fed_the_same_rows_in_the_same_order(configs):
    fed: list[tuple[str, Any]] = []

    def record(make: Any) -> Any:
        def made(is_leaving: Any) -> Any:
            turns = make(is_leaving)
            rows = turns._scheme.side.rows
            for name in ("put", "put_random"):
                setattr(rows, name, _noting(getattr(rows, name), name, fed))
            return turns

        return made

    by_scheme = runs.scheme(configs(), runs.settings(2), seed=3, max_train_iter=200, wrap=record)

    cfg = load_config(configs(), seed=3, exp_name="fed")
    with training_process(), closing(build_driver(cfg, seed=3)) as parts:
        rows = RowQueue(cfg, parts.buffer, newest=lambda: Version(0, parts.learner.train_iter))
        for name, segment in fed:
            getattr(rows, name)(segment)
            while rows.train_next(parts.learner):
                pass
        assert parts.learner.train_iter >= 200
        assert_equal(parts.policy, by_scheme)


def _noting(put: Any, name: str, fed: list[tuple[str, Any]]) -> Any:
    def noted(segment: Any, **asked: int) -> Any:
        if not fed or fed[-1][1] is not segment:  # `put` stores its rows by `put_random`
            fed.append((name, segment))
        return put(segment, **asked)

    return noted
