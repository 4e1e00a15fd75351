"""Contenders on Ray measure what they say: marks of a run, and short runs of ours and of RLlib's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.contenders import ray_work as work
from benchmarks.contenders.ray_work import Mark, Run, report_solve, report_work, run_measured
from benchmarks.rounds import run_once
from benchmarks.table import BENCHMARKS, Bar, Contender

# Says where it is after 0.2 s of work each.
MARKED = (
    "import time\nfrom benchmarks.contenders.ray_work import be_measured, mark\nbe_measured()\n"
    "def busy(s):\n    end = time.process_time() + s\n    while time.process_time() < end: pass\n"
    "busy(0.2)\nmark('started', env_steps=1024, updates=16)\nbusy(0.2)\nmark('trained', env_steps=3072, updates=48)\n"
)


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {row["metric"]: row["value"] for row in rows}


def a_run(marks: dict[str, Mark], **changed: Any) -> Run:
    return Run(marks, **{**dict(wall_s=20.0, cpu_s=12.5, memory_bytes=512 << 20, how="cgroup", killed=[]), **changed})


def test_time_is_read_where_a_run_says_that_it_is() -> None:
    run = run_measured([sys.executable, "-c", MARKED], timeout_s=30.0)

    started, trained = run.marks["started"], run.marks["trained"]
    assert 0.2 <= started.cpu_s and 0.19 <= trained.cpu_s - started.cpu_s <= 0.4
    assert started.facts == {"env_steps": 1024, "updates": 16} and run.killed == []
    assert started.wall_s < trained.wall_s <= run.wall_s and trained.cpu_s <= run.cpu_s


def test_a_run_that_nobody_measures_goes_on_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BENCH_MARKS", raising=False)

    work.be_measured()
    work.mark("started")


def test_a_run_ends_with_whoever_measures_it(tmp_path: Path) -> None:
    inner = (
        "import os, time\nfrom benchmarks.contenders.ray_work import be_measured, mark\nbe_measured()\n"
        "print(os.getpid(), flush=True)\nmark('started')\ntime.sleep(60)\n"
    )
    outer = (
        "import sys\nfrom benchmarks.contenders.ray_work import run_measured\n"
        f"run_measured([sys.executable, '-c', {inner!r}], timeout_s=60)"
    )
    process = subprocess.Popen([sys.executable, "-c", outer], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    pid = int(process.stderr.readline())

    process.kill()
    process.wait(10)

    with process.stderr:
        process.stderr.read()  # until the run has ended, which has the other end too
    assert not Path(f"/proc/{pid}/exe").exists()


@pytest.mark.parametrize(("code", "timeout_s"), [("raise SystemExit(3)", 20.0), ("import time; time.sleep(60)", 0.5)])
def test_a_run_that_fails_or_takes_too_long_is_an_error(code: str, timeout_s: float) -> None:
    with pytest.raises(RuntimeError, match="ended with status"):
        run_measured([sys.executable, "-c", code], timeout_s=timeout_s)


def test_a_rate_is_that_between_the_marks_and_the_start_is_apart(capsys: pytest.CaptureFixture[str]) -> None:
    marks = {
        "started": Mark(8.0, 7.0, {"env_steps": 1024, "updates": 16}),
        "trained": Mark(10.0, 9.0, {"env_steps": 5120, "updates": 80}),
    }

    report_work(a_run(marks))

    values = printed(capsys)
    assert (values["env_steps_cpu"], values["env_steps_wall"]) == (2048.0, 2048.0)
    assert (values["startup_cpu"], values["startup"], values["peak_memory"]) == (7.0, 8.0, 512.0)
    assert values["updates_per_batch"] == 16.0


@pytest.mark.parametrize("solved", [True, False])
def test_solving_costs_all_from_the_start_to_the_last_process_and_says_whether_it_was(
    solved: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    done = Mark(18.0, 11.0, {"solved": solved, "env_steps": 9000, "mean_return": 480.04})

    report_solve(a_run({"done": done}, killed=["raylet"]))

    values = printed(capsys)
    assert (values["cpu_to_475"], values["solved"], values["mean_return"]) == (12.5, int(solved), 480.0)
    assert (values["wall_to_475"], values["processes_left"]) == (20.0, 1)


def test_bars_are_either_lower_or_upper() -> None:
    assert Bar("a", "b", at_least=2.0).is_met(2.0) and not Bar("a", "b", at_least=2.0).is_met(1.9)
    assert Bar("a", "b", at_most=0.5).is_met(0.5) and not Bar("a", "b", at_most=0.5).is_met(0.6)
    for bar in (Bar("a", "b"), Bar("a", "b", at_least=1.0, at_most=2.0)):
        with pytest.raises(ValueError, match="either at_least or at_most"):
            bar.is_met(1.5)


# --- the contenders themselves

WORK = {"env_steps_cpu", "env_steps_wall", "peak_memory", "startup_cpu", "startup", "updates_per_batch"}
SOLVE = {"cpu_to_475", "wall_to_475", "solved", "env_steps", "mean_return", "peak_memory"}
COUNTED = {"cpu_counted_by_kernel", "processes_left"}


def run_short(contender: Contender, steps: int) -> dict[str, float]:
    if not contender.python.exists():
        pytest.skip(f"bash benchmarks/setup.sh {contender.venv} makes the environment")
    limits = ["--limit-s", "30", "--timeout-s", "140"]
    rows = run_once(contender, timeout_s=150, extra=["--steps", str(steps), *limits])
    assert any({"ray", "torch", "gymnasium"} <= row.get("versions", {}).keys() for row in rows)
    return {row["metric"]: row["value"] for row in rows if "metric" in row}


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("name", list(BENCHMARKS["ray_ppo_work"].contenders))
def test_each_contender_does_the_same_work_and_leaves_nothing(name: str) -> None:
    pytest.importorskip("ray")
    values = run_short(BENCHMARKS["ray_ppo_work"].contenders[name], 4096)

    assert values.keys() == WORK | COUNTED and values["processes_left"] == 0
    # RLlib learns from a row more for each episode that ends: 17 minibatches instead of 16.
    assert 16 <= values["updates_per_batch"] <= (16 if name.startswith("ours") else 17.5)
    assert values["env_steps_cpu"] > 0 and values["peak_memory"] > 100


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("algorithm", ["ppo", "impala"])
@pytest.mark.parametrize("name", ["ours", "rllib"])
def test_a_contender_that_gives_up_says_that_it_has_not_solved_it(algorithm: str, name: str) -> None:
    pytest.importorskip("ray")
    values = run_short(BENCHMARKS[f"ray_{algorithm}_solve"].contenders[name], 600)

    assert values.keys() == SOLVE | COUNTED and values["processes_left"] == 0
    assert values["solved"] == 0 and values["env_steps"] >= 600


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("benchmark", ["ray_cartpole", "ray_slow_env"])
def test_dqn_on_ray_prints_the_rates_of_serial(benchmark: str) -> None:
    pytest.importorskip("ray")

    for contender in BENCHMARKS[benchmark].contenders.values():
        rows = run_once(contender, timeout_s=100, extra=["--steps", "1000"])

        values = {row["metric"]: row["value"] for row in rows if "metric" in row}
        assert values.keys() == {"env_steps_wall", "updates_per_step", "startup", "whole_runs"}
        assert values["updates_per_step"] == pytest.approx(1.0, abs=0.1)


def test_files_of_the_work_are_where_the_contenders_look_for_them() -> None:
    from benchmarks.contenders import ray_ours

    assert all(isinstance(path, Path) and path.exists() for path in ray_ours.TUNED.values())
