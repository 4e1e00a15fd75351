"""A cluster is watched without being in its way; how it notices that one is lost is tested with own clusters."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from ding_like.comm.ray.cluster import RayCluster
from ding_like.comm.ray.library import load_ray
from ding_like.comm.ray.watch import ClusterWatch, StoreUse

pytestmark = pytest.mark.ray

MIB = 2**20


def wait_for(seen: Callable[[], bool], timeout_s: float = 15.0) -> bool:
    deadline_s = time.monotonic() + timeout_s
    while not seen() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return seen()


def test_a_cluster_that_lives_is_not_lost(ray_cluster: RayCluster) -> None:
    with ClusterWatch(ray_cluster, interval_s=0.05) as watch:
        assert wait_for(lambda: watch.store().total > 0)
        watch.check()
        assert watch.lost is None


def test_nothing_of_a_watch_is_left(ray_cluster: RayCluster) -> None:
    before = set(threading.enumerate())
    watch = ClusterWatch(ray_cluster, interval_s=0.01)
    time.sleep(0.1)

    watch.close()
    watch.close()

    assert set(threading.enumerate()) <= before


def test_what_the_object_store_holds_is_said(ray_cluster: RayCluster) -> None:
    ray = load_ray()
    with ClusterWatch(ray_cluster, interval_s=0.2) as watch:
        kept = ray.put(np.zeros(32 * MIB, np.uint8))
        assert wait_for(lambda: 32 * MIB <= watch.store().used < 40 * MIB)
        assert watch.store().total == 256 * MIB and watch.store().spilled == 0

        del kept
        assert wait_for(lambda: watch.store().used < 32 * MIB)


def test_an_object_store_that_is_nearly_full_is_warned_of_once(
    ray_cluster: RayCluster, caplog: pytest.LogCaptureFixture
) -> None:
    ray = load_ray()
    with caplog.at_level(logging.WARNING), ClusterWatch(ray_cluster, interval_s=0.1) as watch:
        kept = [ray.put(np.zeros(55 * MIB, np.uint8)) for _ in range(4)]
        assert wait_for(lambda: "object store is full or nearly so" in caplog.text)
        time.sleep(0.5)
        del kept
        assert wait_for(lambda: watch.store().used < 55 * MIB)

    assert caplog.text.count("object store is full") == 1


def test_a_cluster_that_cannot_be_asked_is_lost(ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    told = threading.Event()
    with ClusterWatch(ray_cluster, interval_s=0.05, on_lost=told.set) as watch:

        def refuse() -> None:
            raise ConnectionError("no head")

        monkeypatch.setattr(load_ray(), "nodes", refuse)

        assert told.wait(10.0) and watch.lost is not None and "ConnectionError: no head" in watch.lost


def test_a_node_that_has_ended_is_named(ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    told, nodes = threading.Event(), load_ray().nodes()
    with ClusterWatch(ray_cluster, interval_s=0.05, on_lost=told.set) as watch:
        assert wait_for(lambda: watch.store().total > 0)
        monkeypatch.setattr(load_ray(), "nodes", lambda: [{**node, "Alive": False} for node in nodes])

        assert told.wait(10.0)

    assert watch.lost == f"its node {nodes[0]['NodeManagerAddress']} has ended"


def test_an_answer_that_does_not_come_is_a_loss(ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    told, silent = threading.Event(), threading.Event()
    with ClusterWatch(ray_cluster, interval_s=0.05, answer_s=0.3, on_lost=told.set) as watch:
        monkeypatch.setattr(load_ray(), "nodes", lambda: silent.wait(30.0) and [])

        assert told.wait(10.0)
        silent.set()

    assert watch.lost == "its head (GCS) has not answered for 0.3 s"


def test_use_is_said_in_one_line() -> None:
    assert str(StoreUse(3 * MIB, 100 * MIB, None)) == "3 of 100 MiB"
    assert str(StoreUse(3 * MIB, 100 * MIB, 5 * MIB)) == "3 of 100 MiB, 5 MiB on disk"


def test_use_is_numbers_for_the_metrics_without_what_is_not_seen() -> None:
    assert StoreUse(3, 100, None).numbers() == {"store_used_bytes": 3.0, "store_total_bytes": 100.0}
    assert StoreUse(3, 100, 5).numbers()["store_spilled_bytes"] == 5.0
