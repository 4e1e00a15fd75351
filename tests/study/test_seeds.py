"""How far seeds are, from the metrics that their processes write."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ding_like.pipeline.process import StopSignal
from ding_like.report.experiment import SeedsPlan
from ding_like.report.run_console import Limits
from ding_like.study import seeds as seeds_run
from ding_like.study.child_runs import ChildRuns, MetricsTail, text_hash
from ding_like.study.seeds import SeedRuns, SeedsStatus, SeedsView
from ding_like.utils.checkpoint import ResumeStore
from tests.report.run_folder import report
from tests.support import Clock


def add(path: Path, *lines: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines))


def test_a_tail_takes_what_is_new_and_leaves_half_a_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = MetricsTail(path)
    tail.read()
    assert tail.env_step == 0 and math.isnan(tail.eval_return)
    add(path, report("collector", 100, 5.0), report("evaluator", 120, 30.0), report("evaluator", 240, 20.0))
    with open(path, "a") as file:
        file.write('{"source": "evaluator", "env_s')

    tail.read()

    assert (tail.env_step, tail.train_return, tail.eval_return, tail.best_eval) == (240, 5.0, 20.0, 30.0)
    with open(path, "a") as file:
        file.write('tep": 300, "train_iter": 3, "reward_mean": 40.0}\n')
    tail.read()
    assert (tail.env_step, tail.eval_return, tail.best_eval) == (300, 40.0, 40.0)


def test_a_tail_follows_a_run_that_goes_on_from_an_earlier_point(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    add(path, report("collector", 500, 5.0))
    tail = MetricsTail(path)
    tail.read()

    add(path, report("collector", 200, 4.0))
    tail.read()

    assert tail.env_step == 200


def test_a_file_that_was_cut_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    add(path, report("collector", 500, 5.0), report("evaluator", 500, 9.0))
    tail = MetricsTail(path)
    tail.read()

    path.write_text("")
    add(path, report("collector", 100, 1.0))
    tail.read()

    assert tail.env_step == 100 and math.isnan(tail.best_eval)


def test_lines_that_are_no_json_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('nonsense\n[]\n{"env_step": "many"}\n')
    tail = MetricsTail(tmp_path / "metrics.jsonl")

    tail.read()

    assert tail.env_step == 0


@pytest.fixture
def clock() -> Clock:
    return Clock(0.0)


def status_of(folder: Path, clock: Clock, *, seeds: int = 3) -> SeedsStatus:
    return SeedsStatus(range(seeds), lambda seed: folder / str(seed), Limits(max_env_step=1000), clock=clock)


def test_the_line_has_the_progress_of_each_seed_and_the_time_left(tmp_path: Path, clock: Clock) -> None:
    found = status_of(tmp_path, clock)
    found.seeds[0].state, found.seeds[1].state = "ended", "runs"
    add(tmp_path / "1", report("collector", 500, 7.0))
    clock.now = 60.0
    found.look()

    # One and a half of three seeds took a minute.
    assert found.line() == "3 seeds: 1 ended, 1 at work, 1 waiting | seed 1 at 500 (50%) return 7 | 0:01:00 left"


def test_time_left_counts_from_where_the_seeds_were_resumed(tmp_path: Path, clock: Clock) -> None:
    add(tmp_path / "0", report("collector", 800, 7.0))
    found = status_of(tmp_path, clock, seeds=1)
    found.seeds[0].state = "runs"
    assert found.eta_text == "?"

    add(tmp_path / "0", report("collector", 900, 7.0))
    clock.now = 30.0
    found.look()

    assert found.eta_text == "0:00:30" and found.seeds[0].speed.speeds[0] == pytest.approx(100 / 30)


def test_without_a_budget_nothing_is_left_to_say(tmp_path: Path, clock: Clock) -> None:
    found = SeedsStatus([0], lambda seed: tmp_path / "0", Limits(), clock=clock)
    found.seeds[0].state = "runs"

    assert found.line().endswith("seed 0 at 0 no episode has ended yet | ? left")


def test_the_panel_has_a_line_for_each_seed(tmp_path: Path, clock: Clock) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, height=30, color_system=None)
    found = status_of(tmp_path, clock)
    found.seeds[0].state, found.seeds[0].note = "failed", "ConfigError: no"
    found.seeds[1].state = "runs"
    add(tmp_path / "1", report("evaluator", 500, 30.0))
    found.look()
    panel = SeedsView(console, "exp")

    panel.show(found)
    panel.close()
    panel.close()

    shown = screen.getvalue()
    for words in ("seed 0", "failed", "ConfigError: no", "seed 1", "eval 30 (best 30)", "seed 2", "waits", "1 failed"):
        assert words in shown


def test_a_panel_of_many_seeds_fits_the_terminal_and_shows_those_at_work(tmp_path: Path, clock: Clock) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, height=12, color_system=None)
    found = status_of(tmp_path, clock, seeds=50)
    for seed in range(45):
        found.seeds[seed].state = "ended"
    panel = SeedsView(console, "exp")

    panel.show(found)
    panel.close()

    last = screen.getvalue().rpartition("exp")[2]
    assert all(f"seed {seed} " in last for seed in range(45, 50)) and last.count("seed ") <= 12


def test_a_folders_name_may_look_like_markup(tmp_path: Path, clock: Clock) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, height=12, color_system=None)
    panel = SeedsView(console, "exp[/x]")

    panel.show(status_of(tmp_path, clock))
    panel.close()

    assert "exp[/x]" in screen.getvalue()


def test_elsewhere_it_is_a_line_of_the_log(tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="ding_like")

    view = SeedsView(None, "exp")
    view.show(status_of(tmp_path, clock))
    view.close()

    assert caplog.messages == ["3 seeds: 3 waiting | ? left"]
    assert view.every_s == 10.0


class Children(ChildRuns):
    """Child processes that are not started: it records what they would run."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.commands: dict[str, list[str]] = {}
        started.append(self)

    def start(self, name: str, arguments: Callable[[], Sequence[str]], *, log: Path) -> None:
        self.commands[name] = list(arguments())


started: list[Children] = []


def plan(folder: Path, *, arguments: tuple[str, ...]) -> SeedsPlan:
    config = folder / "config.py"
    config.write_text("")
    given: dict[str, Any] = {"max_env_step": 4000, "max_train_iter": 10**10}
    return SeedsPlan(
        seeds=(0, 1),
        mode="serial",
        command="",
        config=str(config),
        config_sha256=text_hash(config),
        overrides=("policy.nstep=1",),
        arguments=arguments,
        **given,
    )


def test_a_seed_goes_on_to_the_limits_of_the_experiment_and_another_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seeds_run, "ChildRuns", Children)
    arguments = ("--env-step", "4000", "--load-path", "x.pth.tar")
    # Its point is of before the limit was raised, and was saved by a resume that was interrupted.
    ResumeStore(tmp_path / "seed0/ckpt/resume").save(2000, {"run": {}}, {"arguments": {"max_env_step": 2000}})

    with StopSignal() as signals:
        SeedRuns(tmp_path, plan(tmp_path, arguments=arguments), jobs=1).run(signals)

    commands = started[-1].commands
    assert commands["0"] == ["--resume", str(tmp_path / "seed0"), "--env-step", "4000"]
    assert commands["1"][:2] == ["-m", "serial"] and commands["1"][-1] == "policy.nstep=1"
