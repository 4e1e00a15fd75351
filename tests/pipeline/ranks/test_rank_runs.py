"""Runs by ranks: one collecting rank is the serial run, bit for bit; a run names a lost rank, and saves a point."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ding_like.pipeline.record import resume_store
from tests.pipeline.ranks.runs import ranks
from tests.pipeline.ray import runs
from tests.pipeline.ray.test_equality import assert_equal

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_tmp", "no_pictures")]

ROOT = Path(__file__).parents[3]
CONFIG = """
from tests.pipeline.ray.runs import dqn
main_config, create_config = dqn()
"""


@contextmanager
def run(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start a run that would not end, and wait until it trains."""
    Path("config.py").write_text(CONFIG)
    command = [sys.executable, "-m", "ding_like", "-m", "ranks", "-c", "config.py", "--collect-ranks", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [*command, "--exp-name", "exp", "--train-iter", "1e9", *arguments], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if "is the best so far" in line:
                    break
            yield process
        finally:
            process.kill()


def rank_of(process: subprocess.Popen[str], rank: int) -> int:
    """Return the process id of a rank that a run has started."""
    found = subprocess.run(["pgrep", "-P", str(process.pid), "-f", f'"RANK": "{rank}"'], capture_output=True, text=True)
    return int(found.stdout)


def test_a_rank_that_is_killed_is_named_and_the_run_goes_on_from_its_saved_point() -> None:
    with run() as process:
        other = rank_of(process, 1)
        os.kill(rank_of(process, 2), signal.SIGKILL)
        said = process.communicate(timeout=100)[0]

    assert process.returncode == 1
    assert "RunnerLostError: rank 2 of 3 was killed by SIGKILL" in said and "ding --resume exp" in said
    assert not Path(f"/proc/{other}").exists()
    before = max(resume_store("exp").steps())
    arguments = ["--resume", "exp", "--env-step", str(before + 100)]
    again = subprocess.run(
        [sys.executable, "-m", "ding_like", *arguments], env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=120
    )
    assert again.returncode == 0 and max(resume_store("exp").steps()) >= before + 100


def test_a_rank_that_hangs_costs_the_deadline() -> None:
    with run("system.ranks.timeout_s=15.0") as process:
        rank = rank_of(process, 1)
        os.kill(rank, signal.SIGSTOP)
        began_s = time.monotonic()
        said = process.communicate(timeout=100)[0]
        took_s = time.monotonic() - began_s

    assert process.returncode == 1 and "RunnerLostError: rank 1 of 3" in said and "ding --resume exp" in said
    assert took_s < 60.0 and not Path(f"/proc/{rank}").exists()


def test_ctrl_c_ends_all_ranks_with_a_saved_point() -> None:
    with run() as process:
        ranks = [rank_of(process, rank) for rank in (1, 2)]
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=100)[0]

    assert process.returncode == 130 and "saved, go on with  ding --resume exp" in said
    assert not any(Path(f"/proc/{rank}").exists() for rank in ranks)


UPDATES = 200


@pytest.mark.parametrize("configs", [runs.dqn, runs.ppo, runs.sac], ids=["dqn", "ppo", "sac"])
def test_one_collecting_rank_equals_serial(configs: Any) -> None:
    alone = runs.serial(configs(), seed=3, max_train_iter=UPDATES, exp_name="alone")

    by_ranks = ranks(configs(), seed=3, max_train_iter=UPDATES)

    assert_equal(alone, by_ranks)
    found, expected = runs.result("ranks"), runs.result("alone")
    assert found["train_iter"] == expected["train_iter"] >= UPDATES
    assert found["env_step"] == expected["env_step"] and found["eval_value_raw"] == expected["eval_value_raw"]


@pytest.mark.parametrize("is_sync", [True, False])
def test_two_collecting_ranks_train(is_sync: bool) -> None:
    ranks(runs.dqn(), collect_ranks=2, max_train_iter=UPDATES, system={"sync": is_sync})

    assert runs.result("ranks")["train_iter"] >= UPDATES
