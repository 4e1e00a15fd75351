"""A driver, an inference server and actors on three hosts train over tcp with CURVE; a fourth host is kept out.

Hosts are network namespaces; needs root and iproute2: `make test-namespaces`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ding_like.comm.keys import make_seed_keys, renew_clients
from tests.entry.test_namespaces import HOSTS, Net, net
from tests.entry.test_parallel import CONFIG, environment

__all__ = ["net"]  # a fixture

pytestmark = [pytest.mark.namespaces, pytest.mark.timeout(300)]

DRIVER, SERVER, ACTOR, STRANGER = "coordinator", "learner", "one", "two"  # as the net names its hosts
ENV_STEPS = 8_000
# A stranger who speaks no ZeroMQ, too: what he sends is nothing that anybody reads.
GARBAGE = """
import socket, sys, time
deadline = time.monotonic() + 30
while True:
    try:
        with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10) as connection:
            connection.sendall(bytes(range(256)) * 40)
        break
    except ConnectionRefusedError:  # the driver is on its way
        assert time.monotonic() < deadline
        time.sleep(0.1)
print("sent")
"""


class Run:
    """Run over three hosts, in a folder; `said` is the output of each."""

    def __init__(self, net: Net, folder: Path) -> None:
        self._net, self._folder = net, folder
        self.keys = folder / "keys.json"
        self.parts: dict[str, subprocess.Popen[str]] = {}
        self.said: dict[str, str] = {}

    def ding(self, host: str, *arguments: str) -> subprocess.Popen[str]:
        return self._net.start(host, self._folder, "-m", "seed", "-c", str(CONFIG), *arguments)

    def key_file(self, name: str) -> str:
        return str(self._folder / f"keys.{name}.json")

    def start(self) -> None:
        """Start driver, server and actors."""
        where = ["--host", HOSTS[DRIVER], "--port", "7000", "--key-file", str(self.keys)]
        far = [f"system.seed.{name}=0" for name in ("actor_processes", "inference_servers")]
        limit = ["--env-step", str(ENV_STEPS), "--exp-name", "run", "env.stop_value=10000"]
        self.parts[DRIVER] = self.ding(DRIVER, *where, *limit, *far)
        self.parts[SERVER] = self.join(SERVER, "inference", "server")
        self.parts[ACTOR] = self.join(ACTOR, "actor", "actor", "system.seed.actor_threads=2")

    def join(self, host: str, module: str, key: str, *more: str) -> subprocess.Popen[str]:
        dial = ["--address", f"{HOSTS[DRIVER]}:7000", "--key-file", self.key_file(key)]
        return self.ding(host, "-M", module, *dial, *more)

    def finish(self) -> None:
        self.said = {host: part.communicate(timeout=200)[0] for host, part in self.parts.items()}

    def kill(self) -> None:
        for part in self.parts.values():
            part.kill()
            part.communicate(timeout=10)


@pytest.fixture
def run(net: Net, tmp_path: Path) -> Iterator[Run]:
    make_seed_keys(tmp_path / "keys.json", ["server", "actor", "old"])
    made = Run(net, tmp_path)
    yield made
    made.kill()


def refused(part: subprocess.Popen[str]) -> str:
    """Return what a stranger says who cannot join, as one error."""
    said, _ = part.communicate(timeout=60)
    assert part.returncode == 1 and "Traceback" not in said, said
    return said


def test_hosts_train_together_and_strangers_are_kept_out(net: Net, run: Run, tmp_path: Path) -> None:
    (tmp_path / "keys.old.json").rename(tmp_path / "keys.revoked.json")
    renew_clients(run.keys, ["old"])
    run.start()

    dial = ["--address", f"{HOSTS[DRIVER]}:7000", "--retry-s", "10"]
    make_seed_keys(tmp_path / "other.json", ["mine"])
    # Without a key, with one that was renewed since, with one of another run, and without ZeroMQ.
    bare = run.ding(STRANGER, "-M", "actor", *dial)
    old = run.ding(STRANGER, "-M", "actor", *dial, "--key-file", run.key_file("revoked"))
    other = run.ding(STRANGER, "-M", "inference", *dial, "--key-file", str(tmp_path / "other.mine.json"))
    garbage = subprocess.run(
        ["ip", "netns", "exec", net.name(STRANGER), sys.executable, "-c", GARBAGE, HOSTS[DRIVER], "7000"],
        env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert garbage.stdout == "sent\n", garbage.stderr
    assert "there are no keys" in refused(bare)
    assert "this key is not listed" in refused(old)
    assert "this key is not listed" in refused(other)
    run.finish()

    assert {host: part.returncode for host, part in run.parts.items()} == dict.fromkeys(run.parts, 0), run.said
    result = json.loads((tmp_path / DRIVER / "run/result.json").read_text())
    assert result["env_step"] >= ENV_STEPS and result["train_iter"] > 0, result
    refused_keys = re.findall(r"a client was refused: its public key (\S+) is not", run.said[DRIVER])
    assert len(refused_keys) == 1  # the other stranger does not know the key of the server, and gets no further
    assert not (tmp_path / DRIVER / "run/failures.jsonl").exists()


def test_a_worker_that_is_lost_is_replaced_by_one_that_joins_later(net: Net, run: Run) -> None:
    run.start()
    stdout = run.parts[ACTOR].stdout
    assert stdout is not None
    while "joined the run" not in stdout.readline():
        assert run.parts[ACTOR].poll() is None
    run.parts[ACTOR].kill()
    run.parts["second"] = run.join(STRANGER, "actor", "old")  # a host with a key is none
    run.finish()

    assert run.parts[DRIVER].returncode == run.parts["second"].returncode == 0, run.said
