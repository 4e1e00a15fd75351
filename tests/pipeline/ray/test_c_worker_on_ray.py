"""Collect workers are on Ray what they are in threads: the same rows, told to stop in time, and known after a kill."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.comm.channels import Order, Version, Weights
from ding_like.comm.ray.host import RayHost
from ding_like.comm.weights.extract import state_of
from ding_like.comm.workers.host import Call, WorkerLostError
from ding_like.comm.workers.weights import HostWeightPublisher
from ding_like.pipeline.build.collect_end import segment_of
from ding_like.pipeline.build.factories import SchemeFactories
from ding_like.pipeline.ray import CWorkerSet
from tests.pipeline.ray.collecting import make_worker, small_config

pytestmark = pytest.mark.ray

WAIT_S = 60.0
CPU_ONLY = {"num_cpus": 0.5}


@pytest.fixture
def factories(tmp_path: Path) -> SchemeFactories:
    (tmp_path / "exp").mkdir()
    return SchemeFactories.of(small_config(tmp_path), seed=3)


@pytest.fixture
def make_set(ray_host: RayHost, factories: SchemeFactories) -> Iterator[Callable[..., CWorkerSet]]:
    made: list[CWorkerSet] = []

    def make(number: int, **params: Any) -> CWorkerSet:
        workers = CWorkerSet(
            number,
            0,
            factories.algo,
            factories.actor,
            factories.storage,
            train_envs_factory=factories.train_envs,
            worker_remote_config=CPU_ONLY,
            host=ray_host,
            **params,
        )
        made.append(workers)
        return workers

    yield make
    for each in made:
        each.stop()


def result(host: RayHost, call: Call) -> Any:
    assert host.wait([call], timeout_s=WAIT_S) == [call]
    return call.result()


@pytest.mark.parametrize("compress", [pytest.param(False, marks=pytest.mark.slow), True])
def test_rows_are_those_of_a_worker_in_this_process_with_weights_that_came_by_the_host(
    compress: bool, ray_host: RayHost, factories: SchemeFactories, make_set: Callable[..., CWorkerSet]
) -> None:
    policy, version = factories.learning_actor(), Version(1, 4)
    order = Order(False, 40, 10**6, version)
    weights = Weights("policy", version, state_of(policy.collect_mode))
    workers = make_set(2, compress_data_to_send=compress)
    publisher = HostWeightPublisher(ray_host, workers.remote_workers)
    assert publisher.publish(weights, wait_s=WAIT_S).failed == ()
    calls = [worker.call("collect_data", order=order) for worker in workers.remote_workers()]

    for index, call in enumerate(calls, start=1):
        segment = segment_of(*result(ray_host, call))
        here = make_worker(factories, index=index)
        here.set_weights(weights)
        expected, _ = here.collect_data(order=order)
        here.stop()
        assert segment.version == version and list(segment.batch.columns) == list(expected)
        for name, column in expected.items():
            assert np.array_equal(segment.batch[name], column) and segment.batch[name].flags.writeable, name
    publisher.close()
    # Logs lie in the run's folder, whatever folder a worker runs in.
    assert Path(factories.cfg.exp_name).is_absolute() and Path(factories.cfg.exp_name, "log").is_dir()


def test_a_signal_stops_a_collection_under_way(ray_host: RayHost, make_set: Callable[..., CWorkerSet]) -> None:
    workers = make_set(1, fraction_samples=0.0001)
    worker = workers.remote_workers()[0]
    result(ray_host, worker.call("collect_data"))
    call = worker.call("collect_data", listen_to=[("sync", 3)], order=Order(False, 3_000_000, 0, None))
    assert ray_host.wait([call], timeout_s=0.5) == []

    result(ray_host, worker.control("stop_collecting", 2))
    assert ray_host.wait([call], timeout_s=0.3) == []
    worker.control("stop_collecting", 3)
    rows, info = result(ray_host, call)

    assert 300 <= info["NumberSamples"] == len(rows["obs"]) < 3_000_000


def test_what_a_worker_did_last_is_known_after_a_kill(ray_host: RayHost, make_set: Callable[..., CWorkerSet]) -> None:
    workers = make_set(1)
    worker = workers.remote_workers()[0]
    pid = result(ray_host, worker.call("ready"))["pid"]
    call = worker.call("collect_data", order=Order(False, 10_000_000, 0, None))
    assert ray_host.wait([call], timeout_s=0.5) == []

    os.kill(pid, signal.SIGKILL)

    with pytest.raises(WorkerLostError):
        result(ray_host, call)
    said = workers.last_action(worker)
    assert said.startswith("step ") and said.count("env ") == 4
