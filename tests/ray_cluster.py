"""One Ray cluster for all tests of a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ding_like.comm.ray.cluster import RayCluster

NUM_CPUS = 16  # more than there are: actors of tests do little, and none is to wait for another test's
_STORE_BYTES = 256 * 2**20


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    """Start a cluster of 16 logical CPUs once, for every test that asks for it, and end it after the last."""
    with RayCluster(num_cpus=NUM_CPUS, object_store_bytes=_STORE_BYTES) as cluster:
        yield cluster
