"""`ding -m ray`, from the command line down: on threads of this process, and marked `ray` on a cluster."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ding_like.comm.ray.host import WorkerTracebackError
from ding_like.comm.workers.threads import ThreadHost
from ding_like.config import read_config
from ding_like.entry import cli, ray_entry, ray_pipeline, resume_pipeline
from ding_like.entry.learners import RunArguments
from ding_like.entry.ray_plan import plan_run
from ding_like.entry.serial_entry import NO_LIMIT
from ding_like.errors import CheckpointError, ConfigError, EnvError, TrainingError
from ding_like.pipeline.checkpoint import resume_store

ROOT = Path(__file__).parents[2]
CARTPOLE = ROOT / "dizoo/classic_control/cartpole/config"
CONFIG = CARTPOLE / "cartpole_dqn_config.py"


@pytest.fixture(autouse=True)
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def host() -> Iterator[ThreadHost]:
    host = ThreadHost()
    yield host
    host.close()


def status_of(*arguments: str) -> int:
    try:
        cli.main(list(arguments))
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def result_of(folder: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(folder, "result.json").read_text())
    return found


# --- what is wrong


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--workers", "-1"], ["system.ray.collect.workers", "is -1; give 0 or more"]),
        (["system.ray.collect.worker=3"], ["unknown key; did you mean 'workers' (default 2)?"]),
        (["system.ray.colect.workers=3"], ["system.ray.colect", "did you mean 'collect'"]),
        (["system.rey.collect.workers=3"], ["system.rey", "not of mode ray, which reads system.ray alone"]),
        (["system.ray.collect.workers=3", "policy.batch=3"], ["policy.batch"]),
        (["system.=3"], ["is not an override"]),
        (["--learners", "2"], ["--learners is not of mode ray", "system.ray.grad.workers=N"]),
        (["--address", "nowhere"], ["the address of a Ray cluster is host:port", "'nowhere'"]),
        (["--address", "ray://127.0.0.1:10001"], ["ray:// (Ray Client) cannot be used"]),
        (["--address", "127.0.0.1:1"], ["nothing answers at 127.0.0.1:1", "RAY_AUTH_TOKEN_PATH"]),
        (["system.ray.collect.resources.num_gpus=8"], ["the workers do not fit", "no node has that"]),
        (["--load-path", "no.pth.tar"], ["no.pth.tar"]),
        (["create.league.type=one_vs_one", "create.env_manager.type=game"], ["policy.other.league"]),
    ],
)
def test_what_is_wrong_is_one_message_and_nothing_is_left(
    arguments: list[str], words: list[str], capsys: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text("0" * 64)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))

    status = status_of("-m", "ray", "-c", str(CONFIG), *arguments)

    error = capsys.readouterr().err
    assert status == 1 and "Traceback" not in error
    for word in words:
        assert word in error
    assert [path.name for path in tmp_path.iterdir()] == ["token"], "no folder of a run that never began"


@pytest.mark.parametrize(
    "arguments",
    [
        ["-m", "serial", "-c", str(CONFIG), "--workers", "2"],
        ["-m", "parallel", "-c", str(CONFIG), "--address", "127.0.0.1:6379"],
        ["-m", "serial", "-c", str(CONFIG), "--dry-run"],
    ],
)
def test_the_options_of_mode_ray_are_refused_elsewhere(arguments: list[str], capsys: Any) -> None:
    assert status_of(*arguments) == 1

    assert "of mode ray, not of mode" in capsys.readouterr().err


def test_without_ray_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)

    assert status_of("-m", "ray", "-c", str(CONFIG)) == 1

    assert "pip install 'ding-like[ray]'" in capsys.readouterr().err


# --- dry runs


def test_a_dry_run_says_what_would_run_where_and_starts_nothing(tmp_path: Path, capsys: Any) -> None:
    status = status_of("-m", "ray", "-c", str(CONFIG), "--dry-run", "--workers", "3", "system.ray.grad.workers=2")

    said = capsys.readouterr().out
    assert status == 0 and not list(tmp_path.iterdir())
    assert "dqn on CartPole-v1, seed 0, as cartpole_dqn_seed0/" in said
    assert "3 workers of 8 envs each, asynchronous; 1 standby" in said
    assert "gradients   2 workers, synchronous; applied in this process" in said
    assert [line.split()[:3] for line in said.splitlines() if line.startswith(("collector", "gradient w"))] == [
        ["collector", "3", "1"],
        ["gradient", "worker", "2"],
    ]
    assert said.splitlines()[-1] == "fits"


def test_a_dry_run_of_what_does_not_fit_ends_with_status_1(capsys: Any) -> None:
    assert status_of("-m", "ray", "-c", str(CONFIG), "--dry-run", "system.ray.collect.resources.num_gpus=9") == 1

    assert "does not fit: 2 of 2 collectors (1 CPU, 9 GPU each): no node has that" in capsys.readouterr().out


def test_a_run_without_workers_needs_no_cluster(capsys: Any) -> None:
    assert status_of("-m", "ray", "-c", str(CONFIG), "--dry-run", "--workers", "0") == 0

    assert "no cluster: this process does it all" in capsys.readouterr().out
