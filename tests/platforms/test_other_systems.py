"""On macOS and Windows all is imported and serial runs work; an error of what needs POSIX names what works instead."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.data.mapped import OpenFile
from ding_like.entry.dist_entry import launch_collector, launch_learner
from ding_like.entry.parallel_entry import launch_coordinator, parallel_pipeline
from ding_like.entry.ray_entry import ray_pipeline
from ding_like.entry.seed_entry import seed_pipeline
from ding_like.entry.serial_entry import ranks_pipeline, serial_pipeline
from ding_like.entry.studies import run_seeds
from ding_like.envs import EnvFactory, create_env_manager
from ding_like.envs.manager.game import GameProcess
from ding_like.errors import ConfigError
from ding_like.utils import fork_server
from ding_like.utils.files import FolderLock
from ding_like.utils.fork_server import ForkServer

ROOT = Path(__file__).parents[2]
SIMULATED = Path(__file__).parent / "simulated.py"
CARTPOLE = ROOT / "dizoo/classic_control/cartpole/config/cartpole_dqn_config.py"
SHORT = ("--env-step", "300", "--exp-name", "exp", "policy.random_collect_size=100")
WORKER = {"config": CARTPOLE, "coordinator": "http://127.0.0.1:7000", "key_file": None}

STARTS: dict[str, tuple[Callable[[], Any], str]] = {
    "parallel": (partial(parallel_pipeline, CARTPOLE), "Use ding -m serial"),
    "coordinator": (partial(launch_coordinator, CARTPOLE), "Use ding -m serial"),
    "collector": (partial(launch_collector, **WORKER), "Use ding -m serial"),
    "learner": (partial(launch_learner, **WORKER), "Use ding -m serial"),
    "ray": (partial(ray_pipeline, CARTPOLE), "Use ding -m serial"),
    "seed": (partial(seed_pipeline, CARTPOLE), "Use ding -m serial"),
    "ranks": (partial(ranks_pipeline, CARTPOLE), "Use ding -m serial"),
    "learners": (partial(serial_pipeline, CARTPOLE, learners=2), "Leave --learners out"),
    "seeds": (partial(run_seeds, CARTPOLE, range(2)), "with one -s"),
    "envs in processes": (
        partial(create_env_manager, dict(type="subprocess"), [EnvFactory(dict(env_id="CartPole-v1"))]),
        "env.manager.type=base",
    ),
    "a game in a process": (partial(GameProcess, b"", step_timeout_s=1, reset_timeout_s=1), "env.manager.type=base"),
}


def run(system: str, place: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SIMULATED), system, place, *arguments]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=200, check=False)


@pytest.mark.parametrize("name", STARTS)
def test_a_start_that_needs_posix_says_on_windows_what_works(
    name: str, in_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, fix = STARTS[name]
    monkeypatch.setattr(sys, "platform", "win32")

    with pytest.raises(ConfigError, match="needs Linux or macOS") as caught:
        start()

    assert fix in str(caught.value) and "WSL" in str(caught.value)
    assert not list(in_tmp.iterdir())


def test_a_fork_server_says_that_it_needs_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "IS_POSSIBLE", False)

    with pytest.raises(ConfigError, match="needs Linux"):
        ForkServer("ding_like.entry.cli:main")


def test_rows_of_a_file_are_the_same_without_preadv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    (tmp_path / "rows").write_bytes(b"head" + values.tobytes())
    monkeypatch.delattr(os, "preadv")

    column = OpenFile(tmp_path / "rows").column(4, values.dtype, values.shape)

    rows = np.array([49, 0, 7, 7])
    np.testing.assert_array_equal(column.take(rows, axis=0), values[rows])


@pytest.mark.slow
@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_every_module_is_imported(system: str, tmp_path: Path) -> None:
    done = run(system, "tests.platforms.simulated:import_all", folder=tmp_path)

    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["failed"] == [] and found["modules"] > 250


@pytest.mark.slow
@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_a_serial_run_trains_and_holds_its_folder(system: str, tmp_path: Path) -> None:
    ding = partial(run, system, "ding_like.entry.cli:main", folder=tmp_path)

    done = ding("-m", "serial", "-c", str(CARTPOLE), *SHORT)

    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads((tmp_path / "exp/result.json").read_text())
    assert result["env_step"] >= 300 and result["train_iter"] > 0
    with FolderLock(tmp_path / "exp"):
        refused = ding("--resume", "exp")
    assert refused.returncode == 1 and f"process {os.getpid()} on" in refused.stderr
