"""The single-worker synchronous scheme is the serial run, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.pipeline.ray import runs

UPDATES = 1000


@pytest.fixture(autouse=True)
def in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ding_like.entry.serial_entry.write_pictures", lambda *args, **kwargs: None)


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


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("configs", [runs.dqn, runs.ppo, runs.sac], ids=lambda each: each.__name__)
def test_one_synchronous_worker_equals_serial(configs, workers):
    alone = runs.serial(configs(), seed=3, max_train_iter=UPDATES, exp_name="alone")

    by_scheme = runs.scheme(configs(), runs.settings(workers), seed=3, max_train_iter=UPDATES)

    assert_equal(alone, by_scheme)
    found, expected = runs.result("scheme"), runs.result("alone")
    assert found["train_iter"] == expected["train_iter"] >= UPDATES
    assert found["env_step"] == expected["env_step"] and found["eval_value_raw"] == expected["eval_value_raw"]
