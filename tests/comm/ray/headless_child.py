"""Kill the head of a cluster of this process's own, and say as JSON what its host does then.

Workers that live go on, whatever has to ask the head does not hold this process up.
"""

from __future__ import annotations

import json
import os
import signal
import time

import numpy as np

from ding_like.comm.ray.cluster import RayCluster
from ding_like.comm.ray.host import RayHost
from ding_like.comm.ray.own_cluster import Amounts
from ding_like.comm.workers.host import Resources
from tests.contracts.host_worker import Recorder

CLOSE_S = 3.0


def main() -> None:
    with RayCluster(amounts=Amounts(num_cpus=2, object_store_bytes=100 * 2**20)) as cluster:
        host = RayHost()
        worker = host.start(Recorder, name="worker", resources=Resources(num_cpus=0.5))
        call = worker.call("noted")
        assert host.wait([call], timeout_s=60.0) == [call]
        os.kill(cluster.processes["gcs_server"], signal.SIGKILL)

        call = worker.call("total", host.share(np.ones(1000)))
        living = host.wait([call], timeout_s=20.0) == [call] and call.result()[0] == 1000.0
        started = time.monotonic()
        late = host.start(Recorder, name="late", resources=Resources(num_cpus=0.5))
        unmade = late.call("noted")
        nothing = host.wait([unmade], timeout_s=0.1) == []
        host.kill(late)
        lost = host.wait([unmade], timeout_s=60.0) == [unmade]
        host.close(timeout_s=CLOSE_S)
        seconds = time.monotonic() - started
    print(json.dumps(dict(living=living, nothing=nothing, lost=lost, seconds=seconds)))


if __name__ == "__main__":
    main()
