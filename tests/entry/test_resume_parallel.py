"""`ding --resume` goes on with a run that has a coordinator: interrupted, killed, or over and given more to do."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.entry.test_dist import Coordinator, work
from tests.entry.test_parallel import CONFIG, ding, environment, processes_in


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Return a process that has collected and learned for a while."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ding_like.entry.cli", *arguments],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    said = ""
    while " is the best so far" not in said:
        line = process.stdout.readline()
        assert line, said
        said += line
    return process


def result_in(folder: Path) -> dict[str, float]:
    found: dict[str, float] = json.loads((folder / "result.json").read_text())
    return found


@pytest.mark.timeout(240)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_parallel_run_that_was_stopped_goes_on_and_can_be_extended(tmp_path: Path, number: signal.Signals) -> None:
    limits = ["--env-step", "3000", "env.stop_value=1e9"]
    run = start(tmp_path, "-m", "parallel", "-c", str(CONFIG), "--exp-name", "par", *limits)
    refused = ding(tmp_path, "--resume", "par")
    run.send_signal(number)
    said, _ = run.communicate(timeout=60)

    again = ding(tmp_path, "--resume", "par")
    over = ding(tmp_path, "--resume", "par")
    steps = result_in(tmp_path / "par")["env_step"]
    longer = ding(tmp_path, "--resume", "par", "--env-step", "3500")

    assert refused.returncode == 1 and f"process {run.pid} on" in refused.stderr and "Traceback" not in refused.stderr
    assert number == signal.SIGKILL or "go on with  ding --resume par" in said, said
    assert again.returncode == 0, again.stderr
    begun = int(re.search(r"going on at env step ([\d,]+)", again.stdout)[1].replace(",", ""))  # type: ignore[index]
    assert 500 < begun < 3000 <= steps and "rows of the buffer" not in again.stdout
    assert over.returncode == 1 and "is over, at env step 3," in over.stderr and "--env-step" in over.stderr
    assert longer.returncode == 0 and "it fills anew" in longer.stdout, longer.stderr
    assert result_in(tmp_path / "par")["env_step"] >= 3500
    assert not (tmp_path / "par/files").exists() and processes_in(tmp_path) == []


@pytest.mark.timeout(180)
def test_a_coordinator_that_was_killed_is_started_again_by_one_word_and_its_workers_go_on(tmp_path: Path) -> None:
    first = Coordinator(tmp_path, "--env-step", "2500", "env.stop_value=1e9")
    workers = [work(tmp_path, module, first.url, "--key-file", "run/keys.json") for module in ("learner", "collector")]
    first.read_until(r"(env step [\d,]+ .* is the best so far)")
    first.process.kill()
    first.process.communicate(timeout=10)

    again = ding(tmp_path, "--resume", "run")

    assert again.returncode == 0, again.stderr
    assert first.url in again.stdout, "at the same address"
    for worker in workers:
        worker_said, _ = worker.communicate(timeout=30)
        assert worker.returncode == 0, worker_said
    assert result_in(tmp_path / "run")["env_step"] >= 2500
