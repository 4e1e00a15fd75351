"""`ding -m ray` on a real cluster: one of its own, and the one that the tests share."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ding_like.comm.ray.cluster import RayCluster

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
CARTPOLE = ROOT / "dizoo/classic_control/cartpole/config"
CONFIG = CARTPOLE / "cartpole_dqn_config.py"
# A cluster of the tests that use others' ports and memory must be small.
FEW = ["env.n_evaluator_episode=5", "env.evaluator_env_num=5"]


@pytest.fixture(autouse=True)
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path


def command(*arguments: str) -> Sequence[str]:
    return [sys.executable, "-m", "ding_like.entry.cli", *arguments]


def ding(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), env={**os.environ, **env}, capture_output=True, text=True, timeout=200, check=False
    )


def result_of(folder: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(folder, "result.json").read_text())
    return found


def processes_of(folder: str) -> list[str]:
    """Return the command lines of processes that name a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue  # it has ended meanwhile
        if folder in line:
            found.append(line)
    return found


def test_a_run_brings_its_own_cluster_and_leaves_nothing_of_it() -> None:
    run = ding("-m", "ray", "-c", str(CONFIG), "--env-step", "2000", "--exp-name", "exp", *FEW)

    assert run.returncode == 0, run.stderr
    assert result_of("exp")["env_step"] >= 2000 and result_of("exp")["train_iter"] > 0
    assert Path("exp/curve.png").is_file() and Path("exp/agent.gif").is_file()
    measures = [json.loads(line) for line in Path("exp/metrics.jsonl").read_text().splitlines()]
    assert any(
        {"PolicyLag", "rows_per_sec", "store_used_bytes", "store_spilled_bytes"} <= each.keys() for each in measures
    )
    (folder,) = re.findall(r"with its files in (\S+)", run.stdout)
    assert not Path(folder).exists() and not processes_of(folder)


@contextmanager
def under_way() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield a run that has collected, and what it has printed."""
    arguments = ["-m", "ray", "-c", str(CONFIG), "--exp-name", "exp", "env.stop_value=1000", *FEW]
    with subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        assert run.stdout is not None
        said = ""
        for line in run.stdout:
            said += line
            if " env step " in line:
                break
        yield run, said


@pytest.mark.slow
def test_a_signal_saves_a_point_from_which_it_goes_on_with_other_workers() -> None:
    with under_way() as (run, said):
        run.send_signal(signal.SIGTERM)
        said += run.stdout.read() if run.stdout else ""

    assert run.returncode == 128 + signal.SIGTERM, said
    (steps, updates) = re.findall(r"interrupted at env step ([\d,]+), iteration ([\d,]+): saved", said)[0]
    assert "go on with  ding --resume exp" in said
    (folder,) = re.findall(r"with its files in (\S+)", said)
    assert not Path(folder).exists() and not processes_of(folder)

    more = int(steps.replace(",", "")) + 500
    again = ding("--resume", "exp", "--workers", "1", "--env-step", str(more))

    assert again.returncode == 0, again.stderr
    assert f"resumed exp at env step {steps}, iteration {updates}" in again.stdout
    assert "collectors: 1, where the run had 2" in again.stdout
    assert more <= result_of("exp")["env_step"] < more + 2000


@pytest.mark.slow
def test_a_cluster_that_is_lost_leaves_a_point_within_a_minute() -> None:
    with under_way() as (run, said):
        (folder,) = re.findall(r"with its files in (\S+)", said)
        (head,) = [
            int(process.name)
            for process in Path("/proc").glob("[0-9]*")
            if (line := _command_of(process)).startswith("gcs_server", line.rfind("/", 0, line.find(" ")) + 1)
            and folder in line
        ]
        began = time.monotonic()
        os.kill(head, signal.SIGKILL)
        said += run.stdout.read() if run.stdout else ""

    assert run.returncode == 1 and time.monotonic() - began < 60, said
    assert "is lost" in said and "go on with  ding --resume exp" in said
    assert "Traceback" not in said
    assert ding("--resume", "exp", "--env-step", "3").returncode == 0


@pytest.mark.slow
def test_a_killed_agent_of_ray_leaves_the_line_that_goes_on() -> None:
    with under_way() as (run, said):
        raylet = _child_of(run.pid, "raylet")
        os.kill(_child_of(raylet, "ray::DashboardA"), signal.SIGKILL)
        said += run.stdout.read() if run.stdout else ""

    # Ray ends the driver in a tenth of a second: a point of that moment is saved where the driver is faster.
    assert run.returncode == 1, said
    assert "on with  ding --resume exp" in said and "Traceback" not in said


def _child_of(pid: int, name: str) -> int:
    children = [
        child for task in Path(f"/proc/{pid}/task").glob("*") for child in (task / "children").read_text().split()
    ]
    (found,) = [int(child) for child in children if Path(f"/proc/{child}/comm").read_text().strip() == name]
    return found


def _command_of(process: Path) -> str:
    try:
        return (process / "cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def test_a_stranger_is_refused_with_a_line_that_names_the_token(ray_cluster: RayCluster, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text("0" * 64)

    run = ding(
        "-m", "ray", "-c", str(CONFIG), "--address", ray_cluster.address, "--dry-run",
        RAY_AUTH_TOKEN_PATH=str(token), RAY_AUTH_MODE="token",
    )  # fmt: skip

    assert run.returncode == 1 and "Traceback" not in run.stderr
    assert f"refuses this token: RAY_AUTH_MODE=token, the token file {token}" in run.stderr


def test_with_its_token_a_cluster_that_runs_is_asked_what_it_has(ray_cluster: RayCluster) -> None:
    assert ray_cluster.folder is not None

    run = ding(
        "-m", "ray", "-c", str(CONFIG), "--address", ray_cluster.address, "--dry-run",
        "--workers", "20", "policy.collect.n_sample=64",
        RAY_AUTH_TOKEN_PATH=str(ray_cluster.folder / "token"), RAY_AUTH_MODE="token",
    )  # fmt: skip

    assert run.returncode == 1, run.stderr
    assert "does not fit: 20 CPU are wanted in all, and" in run.stdout
