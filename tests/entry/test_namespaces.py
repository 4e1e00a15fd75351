"""Hosts as network namespaces: a coordinator, a learner and two collectors train over a net of their own.

Needs root and iproute2; `make test-namespaces`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ding_like.comm.keys import make_keys
from tests.entry.test_parallel import CONFIG, environment

pytestmark = [pytest.mark.namespaces, pytest.mark.timeout(300)]

HOSTS = {"coordinator": "10.77.0.1", "learner": "10.77.0.2", "one": "10.77.0.3", "two": "10.77.0.4"}


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=20)


class Net:
    """Network namespaces connected by a switch in one more of them; each host has one address and no other net."""

    def __init__(self) -> None:
        self.prefix = f"ding{os.getpid() % 100000}"
        self.switch = f"{self.prefix}-switch"
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
        ip("-n", self.switch, "link", "set", "br0", "up")
        for number, (name, address) in enumerate(HOSTS.items()):
            host = self.name(name)
            ip("netns", "add", host)
            ip("-n", host, "link", "set", "lo", "up")
            ip("-n", host, "link", "add", "eth0", "type", "veth", "peer", "name", f"v{number}", "netns", self.switch)
            ip("-n", host, "addr", "add", f"{address}/24", "dev", "eth0")
            ip("-n", host, "link", "set", "eth0", "up")
            ip("-n", self.switch, "link", "set", f"v{number}", "master", "br0")
            ip("-n", self.switch, "link", "set", f"v{number}", "up")

    def name(self, host: str) -> str:
        return f"{self.prefix}-{host}"

    def start(self, host: str, folder: Path, *arguments: str) -> subprocess.Popen[str]:
        """Start `ding` on a host, in a folder of its own."""
        (folder / host).mkdir(exist_ok=True)
        return subprocess.Popen(
            ["ip", "netns", "exec", self.name(host), sys.executable, "-m", "ding_like.entry.cli", *arguments],
            cwd=folder / host,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def cut(self, host: str, seconds: float) -> None:
        """Take a host off the net for some seconds."""
        link = f"v{[*HOSTS].index(host)}"  # at the switch
        ip("-n", self.switch, "link", "set", link, "down")
        time.sleep(seconds)
        ip("-n", self.switch, "link", "set", link, "up")

    def __enter__(self) -> Net:
        return self

    def __exit__(self, *_: object) -> None:
        for name in (*map(self.name, HOSTS), self.switch):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True, timeout=20)


@pytest.fixture
def net() -> Iterator[Net]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.fail("namespaces need root and the command `ip` of iproute2")
    with Net() as made:
        yield made


def test_hosts_do_not_see_each_others_loopback(net: Net, tmp_path: Path) -> None:
    """If they did, the runs below would show nothing."""
    make_keys(tmp_path / "keys.json")
    config = ["-c", str(CONFIG), "--key-file", str(tmp_path / "keys.json")]
    coordinator = net.start(
        "coordinator", tmp_path, "-m", "dist", "-M", "coordinator", *config, "--port", "7000", "--exp-name", "run"
    )
    try:
        assert coordinator.stdout is not None
        while "join with" not in coordinator.stdout.readline():
            assert coordinator.poll() is None
        dial = ["--coordinator", "http://127.0.0.1:7000", "--retry-s", "1"]
        learner = net.start("learner", tmp_path, "-m", "dist", "-M", "learner", *config, *dial)
        said, _ = learner.communicate(timeout=60)
        assert learner.returncode == 1 and "Connection refused" in said
    finally:
        coordinator.terminate()
        coordinator.communicate(timeout=30)


@pytest.mark.parametrize("shared", [True, False])
def test_a_run_over_several_hosts_is_solved(net: Net, tmp_path: Path, shared: bool) -> None:
    make_keys(tmp_path / "keys.json")
    text = CONFIG.read_text()
    if shared:
        paths = {"path_data": str(tmp_path / "nfs/data"), "path_policy": str(tmp_path / "nfs/policy")}
        text += f"\nsystem_config = {paths!r}\n"
    (tmp_path / "my_config.py").write_text(text)
    config = ["-c", str(tmp_path / "my_config.py"), "--key-file", str(tmp_path / "keys.json"), "-s", "1"]
    where = ["--host", HOSTS["coordinator"], "--port", "7000", "--env-step", "30000", "--exp-name", "run"]
    parts = {"coordinator": net.start("coordinator", tmp_path, "-m", "dist", "-M", "coordinator", *config, *where)}
    dial = ["--coordinator", f"http://{HOSTS['coordinator']}:7000", "--retry-s", "60"]
    parts["learner"] = net.start("learner", tmp_path, "-m", "dist", "-M", "learner", *config, *dial)
    for host in ("one", "two"):
        parts[host] = net.start(host, tmp_path, "-m", "dist", "-M", "collector", *config, *dial)
    try:
        said = {host: part.communicate(timeout=240)[0] for host, part in parts.items()}
    finally:
        for part in parts.values():
            part.kill()

    assert {host: part.returncode for host, part in parts.items()} == dict.fromkeys(parts, 0), said
    result = json.loads((tmp_path / "coordinator/run/result.json").read_text())
    assert result["stop"] and result["eval_value"] >= 400, result
    assert ("are sent through the coordinator" in said["one"]) is not shared
    if shared:
        assert not list((tmp_path / "nfs/data").iterdir()), "used segments are deleted"
