"""Contenders of central inference do the same work, and measure what they say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.contenders import image_env, inference_ours, seed_ours
from benchmarks.contenders.ray_work import Mark, Run
from benchmarks.rounds import run_once
from benchmarks.table import BENCHMARKS, Contender

INFERENCE = {"observations_cpu", "observations_wall", "mean_batch", "latency_p50", "latency_p99", "startup"}


def run_short(contender: Contender, *extra: str) -> dict[str, float]:
    rows = run_once(contender, timeout_s=150, extra=extra)
    assert any({"torch", "pyzmq"} <= row.get("versions", {}).keys() for row in rows)
    return {row["metric"]: row["value"] for row in rows if "metric" in row}


def test_the_env_shows_frames_of_an_atari_game_and_is_cut_off_by_time() -> None:
    env = image_env.CheapImage()
    first, _ = env.reset(seed=3)

    steps = [env.step(0) for _ in range(image_env.EPISODE_STEPS)]

    assert first.shape == (4, 84, 84) and first.dtype == np.uint8
    assert [step[3] for step in steps] == [False] * (image_env.EPISODE_STEPS - 1) + [True]
    assert not any(step[2] for step in steps)
    assert np.array_equal(first, image_env.CheapImage().reset(seed=3)[0])


def test_a_rate_counts_observations_and_processor_time_between_the_marks(capsys: pytest.CaptureFixture[str]) -> None:
    marks = {
        "started": Mark(8.0, 10.0, {"observations": 1000}),
        "acted": Mark(12.0, 18.0, {"observations": 5000}),
        "told": Mark(12.1, 18.1, {"mean_batch": 12.345, "p50_ms": 4.0, "p99_ms": 9.0, "cpu_s": {"proxy": 0.2}}),
    }

    inference_ours.report(Run(marks, wall_s=13.0, cpu_s=19.0, memory_bytes=1 << 30, how="cgroup", killed=[]))

    values = {row["metric"]: row["value"] for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert (values["observations_cpu"], values["observations_wall"], values["mean_batch"]) == (500.0, 1000.0, 12.35)
    assert (values["latency_p50"], values["latency_p99"], values["startup"]) == (4.0, 9.0, 8.0)
    assert values["cpu_proxy"] == 50.0


def test_the_rate_of_a_whole_run_is_that_of_its_last_two_thirds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    points = [(1.0, 600, 1), (11.0, 1100, 20), (13.0, 2100, 50), (16.0, 3000, 78)]
    lines = [{"source": "learner", "time_s": s, "env_step": step, "train_iter": n} for s, step, n in points]
    lines.append({"source": "evaluator", "time_s": 99.0, "env_step": 3000, "train_iter": 78})
    Path("bench").mkdir()
    Path("bench/metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))

    seed_ours.report(3000)

    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["value"] for row in rows] == [380.0, round(58 / 1900, 4)]


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("name", ["ours_central", "ours_central_waiting", "ours_local"])
@pytest.mark.parametrize("benchmark", ["seed_inference_cnn_2x8", "seed_inference_mlp_2x8"])
def test_actors_act_by_either_network_and_leave_nothing(benchmark: str, name: str) -> None:
    pytest.importorskip("zmq")

    values = run_short(BENCHMARKS[benchmark].contenders[name], "--steps", "3000", "--timeout-s", "140")

    used = {"cpu_actors"} if name == "ours_local" else {"cpu_actors", "cpu_proxy", "cpu_server"}
    assert values.keys() == INFERENCE | used | {"peak_memory", "cpu_counted_by_kernel", "processes_left"}
    assert values["processes_left"] == 0 and values["observations_cpu"] > 0
    assert 8 <= values["mean_batch"] <= 16
    assert 0 < values["latency_p50"] <= values["latency_p99"]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", list(BENCHMARKS["seed_parallel"].contenders))
def test_whole_runs_print_their_rate_and_keep_to_the_ratio_of_updates(name: str) -> None:
    pytest.importorskip("zmq")

    values = run_short(BENCHMARKS["seed_parallel"].contenders[name], "--steps", "4000")

    assert values.keys() == {"env_steps_wall", "updates_per_step"} and values["env_steps_wall"] > 0
    assert values["updates_per_step"] == pytest.approx(1 / seed_ours.N_SAMPLE, rel=0.25)
