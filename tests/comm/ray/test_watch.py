"""A cluster is watched without being in its way; how it notices that one is lost is tested with own clusters."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from ding_like.comm.ray.actors import ENVIRONMENT, load_ray
from ding_like.comm.ray.cluster import ClusterWatch, RayCluster, StoreUse
from ding_like.errors import ConfigError
from tests.support import wait_until

MIB = 2**20


@pytest.mark.ray
def test_a_cluster_that_lives_is_not_lost(ray_cluster: RayCluster) -> None:
    with ClusterWatch(ray_cluster, interval_s=0.05) as watch:
        wait_until(lambda: watch.store().total > 0)
        assert watch.lost is None


@pytest.mark.ray
@pytest.mark.slow
def test_what_the_object_store_holds_is_said(ray_cluster: RayCluster) -> None:
    ray = load_ray()
    with ClusterWatch(ray_cluster, interval_s=0.2) as watch:
        kept = ray.put(np.zeros(32 * MIB, np.uint8))
        wait_until(lambda: 32 * MIB <= watch.store().used < 40 * MIB)
        assert watch.store().total == 256 * MIB and watch.store().spilled == 0

        del kept
        wait_until(lambda: watch.store().used < 32 * MIB)


@pytest.mark.ray
@pytest.mark.slow
def test_an_object_store_that_is_nearly_full_is_warned_of_once(
    ray_cluster: RayCluster, caplog: pytest.LogCaptureFixture
) -> None:
    ray = load_ray()
    with caplog.at_level(logging.WARNING), ClusterWatch(ray_cluster, interval_s=0.1) as watch:
        kept = [ray.put(np.zeros(55 * MIB, np.uint8)) for _ in range(4)]
        wait_until(lambda: "object store is full or nearly so" in caplog.text)
        threading.Event().wait(0.5)  # time for a second warning, which there is not to be
        del kept
        wait_until(lambda: watch.store().used < 55 * MIB)

    assert caplog.text.count("object store is full") == 1


@pytest.mark.ray
def test_a_cluster_that_cannot_be_asked_is_lost(ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with ClusterWatch(ray_cluster, interval_s=0.05) as watch:

        def refuse() -> None:
            raise ConnectionError("no head")

        monkeypatch.setattr(load_ray(), "nodes", refuse)

        wait_until(lambda: watch.lost is not None)
        assert watch.lost is not None and "ConnectionError: no head" in watch.lost


@pytest.mark.ray
def test_an_answer_that_does_not_come_is_a_loss(ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = threading.Event()
    with ClusterWatch(ray_cluster, interval_s=0.05, answer_s=0.3) as watch:
        monkeypatch.setattr(load_ray(), "nodes", lambda: silent.wait(30.0) and [])

        wait_until(lambda: watch.lost is not None)
        silent.set()

    assert watch.lost == "its head (GCS) has not answered for 0.3 s"


@pytest.mark.ray
def test_a_node_that_is_gone_is_a_loss(ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = load_ray()
    here = ray.nodes()
    other = {"NodeID": "ff", "NodeManagerAddress": "10.0.0.9", "Alive": True}
    monkeypatch.setattr(ray, "nodes", lambda: [*here, dict(other)])
    with ClusterWatch(ray_cluster, interval_s=0.05) as watch:
        wait_until(lambda: watch.store().total > 0)
        other["Alive"] = False

        wait_until(lambda: watch.lost is not None)

    assert watch.lost == "its node 10.0.0.9 has ended"


def test_use_is_said_in_one_line_and_as_numbers_for_the_metrics() -> None:
    assert str(StoreUse(3 * MIB, 100 * MIB, None)) == "3 of 100 MiB"
    assert str(StoreUse(3 * MIB, 100 * MIB, 5 * MIB)) == "3 of 100 MiB, 5 MiB on disk"
    assert StoreUse(3, 100, None).numbers() == {"store_used_bytes": 3.0, "store_total_bytes": 100.0}
    assert StoreUse(3, 100, 5).numbers()["store_spilled_bytes"] == 5.0


ROOT = Path(__file__).parents[3]


def run(code: str, **environment: str) -> str:
    """Return what a fresh Python prints."""
    env = {name: value for name, value in os.environ.items() if name not in ENVIRONMENT}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**env, **environment}, cwd=ROOT, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_where_ray_is_missing_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr("ding_like.comm.ray.actors.ENVIRONMENT", {})

    with pytest.raises(ConfigError, match=r'pip install "ding-like\[ray\]"'):
        load_ray()


def test_schemes_and_their_workers_load_without_ray() -> None:
    code = "import sys, ding_like.comm.ray.actors, ding_like.pipeline.ray.scheme; print('ray' in sys.modules)"

    assert run(code) == "False\n"


@pytest.mark.ray
@pytest.mark.slow
def test_workers_are_told_to_run_at_normal_priority_unless_the_user_has_said_otherwise() -> None:
    code = "from ding_like.comm.ray.actors import load_ray; load_ray(); import os; print(os.environ[{!r}])"
    code = code.format("RAY_worker_niceness")

    assert run(code) == "0\n"
    assert run(code, RAY_worker_niceness="5") == "5\n"


@pytest.mark.ray
@pytest.mark.slow
def test_pages_of_the_node_manager_are_not_printed_and_lines_of_workers_are() -> None:
    code = """
from ding_like.comm.ray.actors import load_ray
ray = load_ray()
assert load_ray() is ray
for pid, line in (("raylet", "a page"), (17, "a line")):
    ray._private.worker.print_to_stdstream({"lines": [line], "pid": pid, "is_err": False, "ip": "", "job": ""}, True)
"""

    assert run(code) == "a line\n"
