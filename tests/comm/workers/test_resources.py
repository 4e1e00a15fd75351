"""What a worker is given, read from a dict of Ray's options."""

from __future__ import annotations

import logging

import pytest

from ding_like.comm.workers.resources import Resources, resources_of
from ding_like.errors import ConfigError
from ding_like.utils import log


def test_options_of_ray_are_read() -> None:
    found = resources_of({"num_cpus": 0.5, "num_gpus": 0.2, "memory": 2**30, "resources": {"licence": 1}})

    assert found == Resources(num_cpus=0.5, num_gpus=0.2, memory=2**30, custom={"licence": 1.0})


def test_without_options_a_worker_has_a_cpu() -> None:
    assert resources_of({}) == Resources(num_cpus=1.0, num_gpus=0.0, memory=None)


def test_that_object_store_memory_has_no_effect_is_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_warned", set())
    with caplog.at_level(logging.WARNING, "ding_like"):
        for _ in range(2):
            assert resources_of({"object_store_memory": 2**31}) == Resources()

    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "object_store_memory of workers has no effect"
    ]


def test_options_that_make_no_sense_are_refused() -> None:
    for options, word in (
        ({"cpus": 1}, "there is no 'cpus'"),
        ({"num_cpus": -1}, "num_cpus is -1"),
        ({"num_gpus": "one"}, "num_gpus is 'one'"),
        ({"num_cpus": True}, "num_cpus is True"),
        ({"num_cpus": float("nan")}, "num_cpus is nan"),
        ({"num_cpus": None}, "num_cpus is None"),
        ({"resources": 3}, "resources is 3"),
        ({"resources": {"licence": "x"}}, "licence is 'x'"),
    ):
        with pytest.raises(ConfigError, match=word):
            resources_of(options)
