"""Ranks that torchrun or srun has started are joined; what does not fit is refused with what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from ding_like.entry.cli import ding
from ding_like.entry.serial_entry import adopt_launcher, first_node, ranks_pipeline
from ding_like.errors import ConfigError
from tests.pipeline.ray import runs

ROOT = Path(__file__).parents[2]
CONFIG = """
from tests.pipeline.ray.runs import ppo
main_config, create_config = ppo()
"""
_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID")


@pytest.fixture
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in _VARIABLES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return monkeypatch


def command() -> list[str]:
    Path("config.py").write_text(CONFIG)
    arguments = ["-m", "ranks", "-c", "config.py", "--train-iter", "100", "--exp-name", "exp"]
    return ["-m", "ding_like", *arguments]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more}


@pytest.mark.slow
def test_ranks_of_torchrun_are_joined(in_tmp: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]

    found = subprocess.run([*launcher, *command()], env=environment(), capture_output=True, text=True, timeout=200)

    assert found.returncode == 0, found.stderr
    assert runs.result("exp")["train_iter"] >= 100
    assert "0 learns, 1 to 2 collect with 4 envs each: synchronous, with the newest weights; joined" in found.stdout


@pytest.mark.slow
def test_tasks_of_srun_are_joined(in_tmp: Path) -> None:
    """A stand-in for srun: three processes with the variables that Slurm sets."""
    job = dict(SLURM_JOB_ID=str(10_000 + os.getpid() % 10_000), SLURM_NTASKS="3", SLURM_JOB_NODELIST="localhost")
    arguments = [sys.executable, *command()]
    with ExitStack() as stack:
        tasks = [
            stack.enter_context(subprocess.Popen(arguments, env=environment(**job, SLURM_PROCID=str(rank))))
            for rank in range(3)
        ]
        for task in tasks:
            stack.callback(task.kill)
        assert [task.wait(200) for task in tasks] == [0, 0, 0]

    assert runs.result("exp")["train_iter"] >= 100


def test_variables_of_srun_become_those_of_torchrun(no_launcher: pytest.MonkeyPatch) -> None:
    slurm = dict(SLURM_PROCID="2", SLURM_NTASKS="4", SLURM_JOB_ID="20007", SLURM_JOB_NODELIST="gpu[03-05,9],login")
    for name, value in slurm.items():
        no_launcher.setenv(name, value)

    adopt_launcher()

    assert [os.environ[name] for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")] == [
        "2",
        "4",
        "gpu03",
        "20007",
    ]


def test_a_launcher_that_does_not_say_where_rank_0_is_is_refused(no_launcher: pytest.MonkeyPatch) -> None:
    no_launcher.setenv("OMPI_COMM_WORLD_RANK", "1")
    no_launcher.setenv("OMPI_COMM_WORLD_SIZE", "2")

    with pytest.raises(ConfigError, match="MASTER_ADDR and MASTER_PORT are not set: export the host name of rank 0"):
        adopt_launcher()


def test_the_first_node_of_a_list() -> None:
    lists = {"a": "a", "a,b": "a", "n[1-3]": "n1", "n[07,9]": "n07", "x-1[2]": "x-12", "a,n[1-2]": "a"}

    assert {given: first_node(given) for given in lists} == lists


def test_numbers_of_ranks_that_do_not_fit_are_refused(no_launcher: pytest.MonkeyPatch, in_tmp: Path) -> None:
    for name, value in dict(RANK="0", WORLD_SIZE="3", MASTER_ADDR="localhost", MASTER_PORT="1").items():
        no_launcher.setenv(name, value)

    with pytest.raises(ConfigError, match="3 processes were started, and --collect-ranks is 3"):
        ranks_pipeline(runs.dqn(), collect_ranks=3)
    no_launcher.setenv("WORLD_SIZE", "1")
    with pytest.raises(ConfigError, match="1 processes were started: one of them trains"):
        ranks_pipeline(runs.dqn())
    assert not Path("exp").exists()


def test_the_option_is_of_its_mode() -> None:
    with pytest.raises(ConfigError, match="--collect-ranks is of mode ranks, not of mode serial"):
        ding.main(["-m", "serial", "-c", "x.py", "--collect-ranks", "2"], standalone_mode=False)
