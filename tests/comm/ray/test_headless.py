"""When the head of a cluster has died, whoever has a host is not held up: the run is to be saved."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.comm.ray.headless_child import CLOSE_S

ROOT = Path(__file__).parents[3]


@pytest.mark.ray
@pytest.mark.slow
def test_a_host_serves_living_workers_and_closes_in_time_when_the_head_has_died() -> None:
    command = [sys.executable, "-m", "tests.comm.ray.headless_child"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)

    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["living"] and said["nothing"] and said["lost"]
    # Ray ends such a process after 60 s; a kill that asks the head waits until then.
    assert said["seconds"] < CLOSE_S + 20.0
