"""A study whose processes are killed goes on, and ends with every trial once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ding_like.entry.studies import resume_study
from tests.support import wait_until

pytest.importorskip("optuna")
ROOT = Path(__file__).parents[2]
CONFIG = Path(__file__).with_name("small_config.py")
PARAMS = ["--param", "policy.learn.learning_rate=log:1e-5..1e-2", "--param", "policy.nstep=int:1..5"]


@pytest.fixture(autouse=True)
def config(in_tmp: Path) -> None:
    shutil.copy(CONFIG, in_tmp / "config.py")


def start(*arguments: str) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "ding_like.entry.cli", "tune", *arguments]
    return subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL
    )


def ended(study: Path) -> set[str]:
    return {path.parent.name for path in study.glob("trial*/result.json")}


def children_of(study: Path) -> dict[str, int]:
    """Return the processes at work by the trial that they run."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        text = words[-2].decode(errors="replace") if len(words) > 2 else ""
        if b"ding_like.entry.child_run" in words and f"{study.name}/trial" in text:
            found["trial" + text.split(f"{study.name}/trial")[1].split('"')[0]] = int(entry.name)
    return found


def kill_study(process: subprocess.Popen[bytes], study: Path, *, at: int) -> None:
    """Kill a child, and the study itself, once `at` trials have ended; return when all its processes have gone."""
    wait_until(lambda: len(ended(study)) >= at and bool(children_of(study)), f"trial {at}", 500)
    number = next(iter(children_of(study).values()))
    os.kill(number, signal.SIGKILL)
    process.kill()
    process.wait()
    wait_until(lambda: not children_of(study), "the end of the children")


def check_all_once(study: Path, trials: int) -> None:
    found = resume_study(study, jobs=2).get_trials(deepcopy=False)

    assert [trial.number for trial in found] == list(range(trials))
    assert {trial.state.name for trial in found} == {"COMPLETE"}
    for trial in found:
        folder = study / f"trial{trial.number}"
        assert trial.value == json.loads((folder / "result.json").read_text())["eval_value"]
        assert (
            f"learning_rate={trial.params['policy.learn.learning_rate']!r}"
            in (folder / "formatted_total_config.py").read_text()
            or repr(trial.params["policy.learn.learning_rate"]) in (folder / "total_config.py").read_text()
        )
    told = [json.loads(line) for line in (study / "journal.log").read_text().splitlines()]
    ends = [line["trial_id"] for line in told if line["op_code"] == 6 and line["state"] == 1]
    assert sorted(ends) == list(range(trials))  # each told once
    assert (study / "best_config.py").is_file() and (study / "study.png").is_file()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_study_of_twenty_trials_that_was_killed_twice_ends_with_twenty() -> None:
    study = Path("study")
    arguments = ["-c", "config.py", *PARAMS, "--env-step", "1000", "--trials", "20", "-j", "2", "--study", "study"]
    kill_study(start(*arguments), study, at=6)
    # The same command again goes on.
    kill_study(start(*arguments), study, at=13)

    assert 13 <= len(ended(study)) < 20
    check_all_once(study, 20)
