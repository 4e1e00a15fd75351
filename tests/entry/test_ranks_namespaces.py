"""A trainer and two collecting ranks on three hosts; the folder of the run is on the trainer's alone.

Hosts are network namespaces; needs root and iproute2: `make test-namespaces`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.entry.test_namespaces import HOSTS, Net, net
from tests.entry.test_parallel import CONFIG, environment

__all__ = ["net"]  # a fixture

pytestmark = [pytest.mark.namespaces, pytest.mark.timeout(300)]


def start(net: Net, host: str, folder: Path, rank: int) -> subprocess.Popen[str]:
    """Start a rank on a host, in a folder of its own, as a launcher does."""
    (folder / host).mkdir()
    launched = dict(RANK=str(rank), WORLD_SIZE="3", MASTER_ADDR=HOSTS["coordinator"], MASTER_PORT="7000")
    return subprocess.Popen(
        [
            *("ip", "netns", "exec", net.name(host), sys.executable, "-m", "ding_like", "-m", "ranks"),
            *("-c", str(CONFIG), "--env-step", "2000", "--exp-name", "run", "env.stop_value=10000"),
        ],
        cwd=folder / host,
        env={**environment(), **launched, "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GLOO_SOCKET_IFNAME": "eth0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_ranks_of_three_hosts_train_together(net: Net, tmp_path: Path) -> None:
    parts = {host: start(net, host, tmp_path, rank) for rank, host in enumerate(("coordinator", "one", "two"))}
    try:
        said = {host: part.communicate(timeout=200)[0] for host, part in parts.items()}
    finally:
        for part in parts.values():
            part.kill()

    assert {host: part.returncode for host, part in parts.items()} == dict.fromkeys(parts, 0), said
    result = json.loads((tmp_path / "coordinator/run/result.json").read_text())
    assert result["env_step"] >= 2000 and result["train_iter"] > 0
    assert not list((tmp_path / "one").iterdir()), "a collecting rank leaves no folder where the run has none"
