"""Cut hosts off the net, as network namespaces, and look at what is lost, who owns what, and how soon they go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ding_like.comm.keys import make_keys
from tests.chaos.audit import audit
from tests.chaos.kills import CONFIG, wait_for_ledgers
from tests.chaos.ledger import FOLDER, read_ledgers
from tests.chaos.live_run import ROOT
from tests.chaos.report import Report
from tests.entry.test_namespaces import HOSTS, Net, ip

_LOOK_S = 0.02
_LINKS = {name: f"v{number}" for number, name in enumerate(HOSTS)}  # at the switch


def run_partitions(*, cuts: tuple[tuple[str, float], ...]) -> Report:
    """Cut hosts off, one after another: (host, seconds). Files travel through the coordinator. Needs root."""
    report = Report("partitions", cuts=[list(cut) for cut in cuts])
    net = Net()
    with tempfile.TemporaryDirectory(prefix="ding-chaos-") as name:
        folder = Path(name)
        parts = _start(net, folder)
        back = []
        try:
            wait_for_ledgers(folder / "ledger", collectors=2, timeout_s=90)
            time.sleep(3.0)
            for host, seconds in cuts:
                ip("-n", net.switch, "link", "set", _LINKS[host], "down")
                time.sleep(seconds)
                ip("-n", net.switch, "link", "set", _LINKS[host], "up")
                back.append(_back(folder / "ledger", parts[host].pid, time.time()))
                time.sleep(3.0)
            dead = [host for host, part in parts.items() if part.poll() is not None]
            assert not dead, {host: (folder / f"{host}.txt").read_text()[-1500:] for host in dead}
        finally:
            for host, part in parts.items():
                if host != "coordinator":
                    part.send_signal(signal.SIGTERM)
            for part in parts.values():
                _end(part)
            net.close()
        _judge(report, folder, cuts, back)
    return report


def _start(net: Net, folder: Path) -> dict[str, subprocess.Popen[bytes]]:
    make_keys(folder / "keys.json")
    (folder / "ledger").mkdir()
    config = folder / "my_config.py"
    config.write_text(CONFIG.read_text() + "\nsystem_config = dict(segment_rows=64)\n")
    common = ["-c", str(config), "--key-file", str(folder / "keys.json")]
    url = f"http://{HOSTS['coordinator']}:7000"
    where = ["--host", HOSTS["coordinator"], "--port", "7000", "--exp-name", "run"]
    parts = {"coordinator": _launch(net, folder, "coordinator", ["-M", "coordinator", *common, *where])}
    for host, role in (("learner", "learner"), ("one", "collector"), ("two", "collector")):
        parts[host] = _launch(net, folder, host, ["-M", role, *common, "--coordinator", url])
    return parts


def _launch(net: Net, folder: Path, host: str, arguments: list[str]) -> subprocess.Popen[bytes]:
    (folder / host).mkdir()
    with open(folder / f"{host}.txt", "wb") as output:
        return subprocess.Popen(
            ["ip", "netns", "exec", net.name(host), sys.executable, "-m", "ding_like.entry.cli", "-m", "dist"]
            + arguments,
            cwd=folder / host,
            env={**os.environ, FOLDER: str(folder / "ledger"), "PYTHONPATH": str(ROOT)},
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def _end(part: subprocess.Popen[bytes]) -> None:
    try:
        part.wait(20)
    except subprocess.TimeoutExpired:
        part.send_signal(signal.SIGINT)
        part.wait(60)


def _back(ledger: Path, pid: int, healed: float) -> float:
    """Wait for a worker to go on after a moment; return how many seconds that took."""
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        time.sleep(_LOOK_S)
        later = [line["t"] for role in ("collector", "learner") for line in _work(ledger, role) if line["pid"] == pid]
        later = [at for at in later if at >= healed]
        if later:
            return later[0] - healed
    return float("nan")


def _work(ledger: Path, role: str) -> list[dict[str, Any]]:
    return [line for line in read_ledgers(ledger, role) if line["kind"] in ("ack", "batch")]


def _judge(report: Report, folder: Path, cuts: tuple[tuple[str, float], ...], back: list[float]) -> None:
    acks = _work(folder / "ledger", "collector")
    batches = _work(folder / "ledger", "learner")
    found = audit(folder / "coordinator/run/coordinator.sqlite", folder / "coordinator/run/files/data", acks)
    report.figures = {
        "back_s": [
            {"host": host, "cut_s": seconds, "back_s": round(took, 2)}
            for (host, seconds), took in zip(cuts, back, strict=True)
        ],
        "segments": found.segments,
        "rows": found.rows,
        "acked_segments": len(acks),
    }
    for (host, seconds), took in zip(cuts, back, strict=True):
        report.at_most(f"{host} cut off for {seconds:g} s: healing to next work, s", took, 5)
    report.at_most("acknowledged rows lost", found.lost_rows, 0)
    report.at_most("rows doubled in the index", found.doubled_rows + found.overlapping, 0)
    report.at_most("rows torn or mixed, segments unreadable", found.torn_rows + found.unreadable, 0)
    report.at_most("rows torn in a training batch", max((each["torn"] for each in batches), default=float("nan")), 0)
    report.at_most("attempts with two owners", _two_owners(acks), 0)
    report.at_most("acknowledgements to an owner of before", _late_acks(acks), 0)


def _two_owners(acks: list[dict[str, Any]]) -> int:
    """Return how many attempts at a task more than one worker was acknowledged for."""
    owners: dict[tuple[str, int], set[str]] = {}
    for ack in acks:
        owners.setdefault((ack["task"], ack["attempt"]), set()).add(ack["worker"])
    return sum(len(each) > 1 for each in owners.values())


def _late_acks(acks: list[dict[str, Any]]) -> int:
    """Return how many acknowledgements came for an attempt after one for a later attempt."""
    newest: dict[str, int] = {}
    late = 0
    for ack in acks:
        late += ack["attempt"] < newest.get(ack["task"], 0)
        newest[ack["task"]] = max(newest.get(ack["task"], 0), ack["attempt"])
    return late
