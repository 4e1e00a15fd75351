"""One Ray cluster for all tests of a session, and on it a host of workers for each test that asks for one."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from ding_like.comm.ray.cluster import RayCluster
from ding_like.comm.ray.host import RayHost
from ding_like.comm.ray.library import load_ray
from ding_like.comm.ray.own_cluster import Amounts

NUM_CPUS = 16  # more than there are: actors of tests do little, and none is to wait for another test's
_STORE_BYTES = 256 * 2**20
_FREE_S = 10.0  # for the actors of a test to be gone


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    """Start a cluster of 16 logical CPUs once, for every test that asks for it, and end it after the last."""
    with RayCluster(amounts=Amounts(num_cpus=NUM_CPUS, object_store_bytes=_STORE_BYTES)) as cluster:
        yield cluster


@pytest.fixture
def ray_host(ray_cluster: RayCluster) -> Iterator[RayHost]:
    """Return a host on the session's cluster; its workers end with the test, and what they had is free again."""
    host = RayHost()
    yield host
    host.close()
    ray = load_ray()
    deadline_s = time.monotonic() + _FREE_S
    while (free := ray.available_resources().get("CPU", 0.0)) < NUM_CPUS:
        if time.monotonic() > deadline_s:
            pytest.fail(f"actors of the test still have {NUM_CPUS - free:g} CPUs", pytrace=False)
        time.sleep(0.02)
