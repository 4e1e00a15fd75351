"""`ding -m ray` on a real cluster: one of its own, and the one that the tests share."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ding_like.comm.ray.cluster import RayCluster
from ding_like.comm.ray.host import RayHost
from ding_like.entry import ray_pipeline

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
CARTPOLE = ROOT / "dizoo/classic_control/cartpole/config"
CONFIG = CARTPOLE / "cartpole_dqn_config.py"
# A cluster of the tests that use others' ports and memory must be small.
FEW = ["env.n_evaluator_episode=5", "env.evaluator_env_num=5"]

# An env that breaks wherever it is not the driver's: all copies of it there, at their 40th step.
BROKEN_ENV = """
import os
from gymnasium.envs.classic_control import CartPoleEnv
class Broken(CartPoleEnv):
    steps = 0
    def step(self, action):
        self.steps += 1
        if os.environ["DRIVER"] != str(os.getpid()):
            self.move_motor()
        return super().step(action)
    def move_motor(self):
        raise RuntimeError("the motor is on fire")
"""
BROKEN = """
import os
import gymnasium
os.environ.setdefault("DRIVER", str(os.getpid()))  # workers inherit it
from dizoo_config import main_config, create_config
main_config["env"]["env_id"] = "broken_env:Broken-v0"
"""


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


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        CARTPOLE / "cartpole_ppo_config.py",
        CARTPOLE / "cartpole_r2d2_config.py",
        CARTPOLE / "cartpole_impala_config.py",
        ROOT / "dizoo/petting_zoo/config/tictactoe_dqn_config.py",
        ROOT / "dizoo/classic_control/pendulum/config/pendulum_sac_config.py",
    ],
    ids=lambda config: config.stem.removesuffix("_config"),
)
def test_any_serial_config_trains_on_a_cluster(config: Path, ray_host: RayHost) -> None:
    overrides = ["policy.random_collect_size=200"] if config.stem.startswith(("tictactoe", "pendulum")) else []

    ray_pipeline(config, max_env_step=2000, exp_name="exp", overrides=[*FEW, *overrides], host=ray_host)

    assert result_of("exp")["env_step"] >= 2000 and result_of("exp")["train_iter"] > 0
    assert Path("exp/curve.png").is_file()


@pytest.mark.slow
def test_what_a_worker_raises_is_one_message_with_the_users_own_line(tmp_path: Path) -> None:
    (tmp_path / "dizoo_config.py").write_text(CONFIG.read_text())
    (tmp_path / "broken_env.py").write_text(
        BROKEN_ENV + "import gymnasium\ngymnasium.register('Broken-v0', entry_point=Broken)\n"
    )
    (tmp_path / "broken_config.py").write_text(BROKEN)

    run = ding("-m", "ray", "-c", "broken_config.py", "--exp-name", "exp", "env.manager.max_retry=1", *FEW)

    assert run.returncode == 1
    assert "the motor is on fire" in run.stderr and "Traceback" not in run.stderr
    assert "broken_env.py" in run.stderr and "in move_motor" in run.stderr
    assert len(run.stderr.splitlines()) < 12, run.stderr


@pytest.mark.slow
def test_a_signal_saves_a_point_from_which_it_goes_on_with_other_workers() -> None:
    arguments = ["-m", "ray", "-c", str(CONFIG), "--exp-name", "exp", "env.stop_value=1000", *FEW]
    with subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        assert run.stdout is not None
        said = ""
        for line in run.stdout:
            said += line
            if " env step " in line:
                break
        run.send_signal(signal.SIGTERM)
        said += run.stdout.read()

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
    arguments = ["-m", "ray", "-c", str(CONFIG), "--exp-name", "exp", "env.stop_value=1000", *FEW]
    with subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        assert run.stdout is not None
        said = ""
        for line in run.stdout:
            said += line
            if " env step " in line:
                break
        (folder,) = re.findall(r"with its files in (\S+)", said)
        (head,) = [
            int(process.name)
            for process in Path("/proc").glob("[0-9]*")
            if (line := _command_of(process)).startswith("gcs_server", line.rfind("/", 0, line.find(" ")) + 1)
            and folder in line
        ]
        began = time.monotonic()
        os.kill(head, signal.SIGKILL)
        said += run.stdout.read()

    assert run.returncode == 1 and time.monotonic() - began < 60, said
    assert "is lost" in said and "go on with  ding --resume exp" in said
    assert "Traceback" not in said
    assert ding("--resume", "exp", "--env-step", "1").returncode == 0


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
    assert "collectors (1 CPU each): no room is left" in run.stdout and "wanted in all" in run.stdout
