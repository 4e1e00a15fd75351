"""`python -m benchmarks` runs its contenders in turn, compares those of one round, and writes what it measured."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from benchmarks import buffer, rounds
from benchmarks.__main__ import main
from benchmarks.buffer_cases import CASES
from benchmarks.provenance import DirtyTreeError, provenance
from benchmarks.rounds import Measured, Series, measure, summarise
from benchmarks.table import BENCHMARKS, Bar, Benchmark, Contender

TWO = Benchmark(
    ("speed",), {"ours": Contender("x_ours"), "peer": Contender("x_peer")}, bars=(Bar("ours", "peer", 2.0),)
)


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[float | Exception]]:
    """Replace the processes of contenders by lists of the values that they print, one a run; an error is raised."""
    queues: dict[str, list[float | Exception]] = {}
    order: list[float | Exception] = queues.setdefault("all", [])

    def run_once(contender: Contender, **_: object) -> list[dict[str, object]]:
        value = queues[contender.script].pop(0)
        order.append(value)
        if isinstance(value, Exception):
            raise value
        return [{"metric": "speed", "value": value, "unit": "1/s"}, {"versions": {"python": "3"}}]

    monkeypatch.setattr(rounds, "run_once", run_once)
    monkeypatch.setitem(BENCHMARKS, "two", TWO)
    return queues


def run(*arguments: str, folder: Path, name: str = "two") -> tuple[object, list[dict[str, object]]]:
    """Return (exit status, rows of the file) of `python -m benchmarks`."""
    with pytest.raises(SystemExit) as left:
        main(["--only", name, "--rounds", "1", "--out", str(folder), *arguments])
    return left.value.code, [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def test_contenders_run_in_turn_and_one_that_fails_is_left_out(
    printed: dict[str, list[float | Exception]], capsys: pytest.CaptureFixture[str]
) -> None:
    printed.update(x_ours=[1.0, 2.0], x_peer=[3.0, 4.0])
    measured = measure(TWO.contenders, rounds=2, timeout_s=1)
    assert printed["all"] == [1.0, 3.0, 2.0, 4.0]
    assert [(one.name, one.values) for one in measured.series] == [("ours", [1.0, 2.0]), ("peer", [3.0, 4.0])]
    shown = capsys.readouterr().err.splitlines()
    assert len(shown) == 4 and shown[-1] == "round 2 of 2, peer: speed 4.0 1/s"

    printed.update(x_ours=[1.0, 2.0], x_peer=[3.0, subprocess.TimeoutExpired("x_peer", 1)])
    measured = measure(TWO.contenders, rounds=2, timeout_s=1)
    assert [one.name for one in measured.series] == ["ours"] and "timed out" in measured.errors["peer"]


def test_a_ratio_is_the_median_of_the_ratios_within_rounds() -> None:
    # Both slow down threefold in round 2: the ratios, 2 2 3, do not notice, and their median is 2.
    series = [
        Series("ours", "speed", "1/s", [60.0, 20.0, 90.0]),
        Series("peer", "speed", "1/s", [30.0, 10.0, 30.0]),
    ]

    rows = {row["name"]: row for row in summarise(TWO, Measured(series, {}, {}))}

    assert (rows["ours"]["value"], rows["ours"]["lo"], rows["ours"]["hi"], rows["ours"]["n"]) == (60.0, 20.0, 90.0, 3)
    assert (rows["ours / peer"]["value"], rows["ours / peer"]["hi"], rows["ours / peer"]["is_met"]) == (2.0, 3.0, True)
    assert summarise(TWO, Measured(series, {}, {}), is_short=True)[-1]["is_met"] is None


def test_bars_are_either_lower_or_upper() -> None:
    assert Bar("a", "b", at_least=2.0).is_met(2.0) and not Bar("a", "b", at_least=2.0).is_met(1.9)
    assert Bar("a", "b", at_most=0.5).is_met(0.5) and not Bar("a", "b", at_most=0.5).is_met(0.6)
    named = [(one.contenders, bar.ours, bar.against) for one in BENCHMARKS.values() for bar in one.bars]
    named += [(case.contenders, bar.ours, bar.against or bar.ours) for case in CASES.values() for bar in case.bars]
    assert [each for each in named if not {*each[1:]} <= each[0].keys()] == []


def test_the_file_has_a_row_a_figure_and_the_circumstances(
    printed: dict[str, list[float | Exception]], tmp_path: Path
) -> None:
    printed.update(x_ours=[4.0], x_peer=[2.0])
    status, (*rows, last) = run(folder=tmp_path)
    assert status == 0 and last["versions"] == {"ours": {"python": "3"}, "peer": {"python": "3"}}
    assert {row["name"]: row["value"] for row in rows} == {"ours": 4.0, "peer": 2.0, "ours / peer": 2.0}

    printed.update(x_ours=[rounds.ContenderError("broken")], x_peer=[2.0])
    assert run(folder=tmp_path)[0] == 1

    printed.update(x_ours=[4.0], x_peer=[])
    assert [row["name"] for row in run("--no-peers", folder=tmp_path)[1]] == ["ours", "circumstances"]


def test_a_buffer_is_held_to_an_upper_bar_that_needs_both_figures() -> None:
    measured = Measured([Series("ours", "us", "us", [2.0, 9.0]), Series("sb3", "us", "us", [1.0, 3.0])], {}, {})

    rows = [buffer.judge(buffer.Bar("ours", "sb3", limit), measured) for limit in (2.51, 2.49)]
    missing = buffer.judge(buffer.Bar("ours", "cpprb", 0.5), measured)

    assert [(row["value"], row["is_met"]) for row in rows] == [(2.5, True), (2.5, False)]  # of 2/1 and 9/3
    assert (missing["is_met"], missing["missing"]) == (None, ["cpprb"])


def test_a_tree_that_differs_from_its_commit_is_refused_by_the_name_of_the_file(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, "commit", "-q", "--allow-empty", "-m", "x"], cwd=tmp_path, check=True)
    (tmp_path / "new.py").write_text("")

    with pytest.raises(DirtyTreeError, match=r"new\.py.*--allow-dirty"):
        provenance(root=tmp_path)


def test_our_contender_prints_rates_updates_and_versions() -> None:
    rows = rounds.run_once(BENCHMARKS["end_to_end"].contenders["ours"], timeout_s=100, extra=["--steps", "1200"])

    values = {row["metric"]: row["value"] for row in rows if "metric" in row}
    assert values.pop("env_steps_cpu") > 0 and values.pop("env_steps_wall") > 0
    assert list(values.values()) == [25]
    assert any({"torch", "gymnasium"} <= row.get("versions", {}).keys() for row in rows)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("end_to_end", 1200),
        ("end_to_end_ppo", 1200),
        ("envs_subprocess_cartpole", 800),
        ("learners_ppo_small", 768),
        ("updates_dqn", 20),
        ("updates_r2d2", 20),
        ("weights_10mb", 2),
        ("seed_inference_mlp_2x8", 3000),
        ("seed_parallel", 4000),
        pytest.param("ray_ppo_work", 4096, marks=pytest.mark.ray),
        pytest.param("parallel_busy_500us", 1000, marks=pytest.mark.ray),
    ],
)
def test_every_kind_of_benchmark_runs(name: str, steps: int, tmp_path: Path) -> None:
    status, rows = run("--no-peers", "--steps", str(steps), folder=tmp_path, name=name)

    assert status == 0 and all(row["value"] > 0 for row in rows if str(row.get("unit")).endswith("/s"))


@pytest.mark.slow
def test_the_buffers_run(tmp_path: Path) -> None:
    assert buffer.run(list(CASES), peers=False, short=True, out=tmp_path)
