"""What becomes of trials: they end, fail, are killed, pruned, or found ended; their processes are played here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ding_like.config.read import parse_value
from ding_like.entry.studies import resume_study
from ding_like.errors import ConfigError, TrainingError
from ding_like.pipeline.process import StopSignal
from ding_like.study.child_runs import ChildRuns, Ended, text_hash
from ding_like.study.plan import Param, StudyPlan, parse_param, parse_params, read_study_plan, trial_folder

optuna = pytest.importorskip("optuna")

from ding_like.study import trials as module  # noqa: E402
from ding_like.study.trials import ask, open_study  # noqa: E402

ROOT = Path(__file__).parents[2]
STUDY = Path("study")
# A child's name and its arguments -> how its process ended.
Play = Callable[[str, list[str]], int]


class PlayedChildren(ChildRuns):
    """Child processes that are played: each has ended at once, as `play` returns."""

    play: Play
    started: list[tuple[str, list[str]]]

    def __init__(self, limit: int) -> None:
        self.ended: list[Ended] = []
        self.stopped: list[str] = []

    def __enter__(self) -> PlayedChildren:
        return self

    def __exit__(self, *error: object) -> None:
        return

    def start(self, name: str, arguments: Any, *, log: Path) -> None:
        words = list(arguments())
        type(self).started.append((name, words))
        self.ended.append(Ended(name, type(self).play(name, words), 1.0))

    @property
    def running(self) -> list[str]:
        return [each.name for each in self.ended]

    @property
    def is_over(self) -> bool:
        return not self.ended

    def wait(self, timeout_s: float) -> list[Ended]:
        ended, self.ended = self.ended, []
        return ended

    def stop(self, name: str) -> None:
        self.stopped.append(name)

    def stop_all(self) -> None:
        return


@pytest.fixture(autouse=True)
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "ChildRuns", PlayedChildren)
    PlayedChildren.started = []
    STUDY.mkdir()


def make_plan(**changes: Any) -> StudyPlan:
    settings: dict[str, Any] = dict(
        config="c.py", config_sha256="", mode="serial", params=("policy.nstep=int:1..5",), overrides=("a=1",), trials=6,
        seeds=1, first_seed=0, limits=("--env-step", "100"), budget=100, budget_unit="env_step", prune=False,
        sampler_seed=0, command="ding tune",
    )  # fmt: skip
    return StudyPlan(**{**settings, **changes})


def write_result(number: int, value: float) -> None:
    folder = trial_folder(STUDY, number)
    folder.mkdir(exist_ok=True)
    (folder / "result.json").write_text(json.dumps({"eval_value": value}))


def ends_with_its_nstep(name: str, words: list[str]) -> int:
    write_result(int(name), float(words[-1].partition("=")[2]))
    return 0


def run(plan: StudyPlan, play: Play, jobs: int = 1) -> Any:
    PlayedChildren.play = staticmethod(play)
    study = open_study(STUDY, plan)
    module.TrialRuns(STUDY, plan, study, jobs=jobs).run(StopSignal())
    return study


def states(study: Any) -> list[str]:
    return [trial.state.name for trial in study.get_trials(deepcopy=False)]


def test_every_trial_is_a_run_with_its_settings_and_is_worth_its_result() -> None:
    study = run(make_plan(), ends_with_its_nstep)

    assert states(study) == ["COMPLETE"] * 6
    assert [trial.value for trial in study.get_trials()] == [t.params["policy.nstep"] for t in study.get_trials()]
    name, words = PlayedChildren.started[2]
    expected = ["-m", "serial", "-c", "c.py", "--exp-name", "study/trial2", "-s", "0", "--env-step", "100", "a=1"]
    assert name == "2" and words[:-1] == expected and words[-1].startswith("policy.nstep=")


def test_the_same_seed_draws_the_same_settings_also_after_a_stop() -> None:
    whole = [trial.params for trial in run(make_plan(), ends_with_its_nstep).get_trials()]
    for path in sorted(STUDY.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    run(make_plan(trials=3), ends_with_its_nstep)

    study = run(make_plan(), ends_with_its_nstep)

    assert [trial.params for trial in study.get_trials()] == whole


def test_a_config_that_changes_meanwhile_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    Path("c.py").write_text("changed = True")

    run(make_plan(config_sha256="of what it was"), ends_with_its_nstep)

    assert [m for m in caplog.messages if "was changed" in m] == [
        "c.py was changed since the study began: trials from 0 on are of it"
    ]


def test_a_trial_that_fails_by_itself_is_noted_and_the_others_go_on() -> None:
    study = run(make_plan(), lambda name, words: 1 if name == "2" else ends_with_its_nstep(name, words))

    assert states(study) == ["COMPLETE"] * 2 + ["FAIL"] + ["COMPLETE"] * 3


def test_a_study_whose_first_trials_all_fail_ends() -> None:
    with pytest.raises(TrainingError, match="the first 3 trials failed"):
        run(make_plan(), lambda name, words: 1)

    assert len(PlayedChildren.started) == 3


@pytest.mark.parametrize("status", [-9, 143], ids=["killed", "asked to leave"])
def test_a_trial_whose_process_is_killed_is_started_again(status: int) -> None:
    deaths = {"1": 2}

    def play(name: str, words: list[str]) -> int:
        if deaths.get(name):
            deaths[name] -= 1
            return status
        return ends_with_its_nstep(name, words)

    study = run(make_plan(), play)

    assert states(study) == ["COMPLETE"] * 6
    assert [name for name, _ in PlayedChildren.started].count("1") == 3


def test_a_trial_that_is_always_killed_has_failed() -> None:
    study = run(make_plan(), lambda name, words: -9 if name == "1" else ends_with_its_nstep(name, words))

    assert states(study).count("FAIL") == 1
    assert [name for name, _ in PlayedChildren.started].count("1") == 4


def test_trials_under_way_when_the_study_was_killed_are_taken_up_once() -> None:
    plan = make_plan()
    study = open_study(STUDY, plan)
    for _ in range(3):
        ask(study, plan)
    write_result(0, 5.0)  # it ended while no process of the study ran

    study = run(plan, ends_with_its_nstep)

    assert states(study) == ["COMPLETE"] * 6 and study.trials[0].value == 5.0
    assert [name for name, _ in PlayedChildren.started] == ["1", "2", "3", "4", "5"]


def test_a_trial_whose_settings_were_cut_off_gets_the_rest() -> None:
    plan = make_plan(params=("policy.nstep=int:1..5", "policy.learn.batch_size=int:8..64"))
    study = open_study(STUDY, plan)
    study.ask().suggest_int("policy.nstep", 1, 5)
    with open(STUDY / "journal.log", "a", encoding="utf-8") as file:
        file.write('{"op_code": 5, "wor')  # the process was killed as it wrote

    study = run(plan, lambda name, words: (write_result(int(name), 1.0), 0)[1])

    assert states(study) == ["COMPLETE"] * 6
    assert set(study.trials[0].params) == {"policy.nstep", "policy.learn.batch_size"}


def test_a_trial_behind_the_others_is_ended_early() -> None:
    def play(name: str, words: list[str]) -> int:
        folder = trial_folder(STUDY, int(name))
        folder.mkdir()
        value = 0.0 if name == "5" else 10.0
        said = {"source": "evaluator", "env_step": 40, "train_iter": 4, "reward_mean": value}
        (folder / "metrics.jsonl").write_text(json.dumps(said) + "\n")
        return ends_with_its_nstep(name, words) if value else -15

    class SlowChildren(PlayedChildren):
        def wait(self, timeout_s: float) -> list[Ended]:
            self.rounds = getattr(self, "rounds", 0) + 1
            return super().wait(timeout_s) if self.rounds % 2 == 0 else []

    module.ChildRuns = SlowChildren  # type: ignore[attr-defined, misc]
    SlowChildren.play = staticmethod(play)
    plan = make_plan(prune=True)
    study = open_study(STUDY, plan)
    module.TrialRuns(STUDY, plan, study, jobs=1).run(StopSignal())

    assert states(study) == ["COMPLETE"] * 5 + ["PRUNED"]
    assert study.trials[5].user_attrs["pruned_at"] == ["env step", 40]


def test_a_trial_of_several_seeds_is_worth_their_mean() -> None:
    def play(name: str, words: list[str]) -> int:
        assert words[6:10] == ["-s", "0", "-s", "1"] and words[10:12] == ["-j", "1"]
        for seed, value in ((0, 1.0), (1, 3.0)):
            folder = trial_folder(STUDY, int(name)) / f"seed{seed}"
            folder.mkdir(parents=True)
            (folder / "result.json").write_text(json.dumps({"eval_value": value}))
        return 0

    study = run(make_plan(seeds=2, trials=2), play)

    assert [trial.value for trial in study.trials] == [2.0, 2.0]


_HOLDS = """
import sys
from ding_like.utils.files import FolderLock
with FolderLock("study"):
    print("holds", flush=True)
    sys.stdin.read()
"""


def test_a_study_is_of_one_process_at_a_time() -> None:
    Path("c.py").write_text("")
    make_plan(config_sha256=text_hash("c.py")).save(STUDY)
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDS], env={**os.environ, "PYTHONPATH": str(ROOT)}, **pipes
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "holds\n"

        with pytest.raises(ConfigError, match=r"(?s)is in use: process.*ding tune --resume study.*another --study"):
            resume_study(STUDY)

        other.communicate(timeout=20)


def test_the_plan_is_read_as_it_was_written() -> None:
    make_plan().save(STUDY)

    assert read_study_plan(STUDY) == make_plan()
    (STUDY / "study.json").write_text("{")
    with pytest.raises(ConfigError, match="study.json is damaged"):
        read_study_plan(STUDY)


def test_the_best_config_runs_and_the_table_names_all_trials() -> None:
    def play(name: str, words: list[str]) -> int:
        value = ends_with_its_nstep(name, words)
        text = f"# Written by ding\nexp_config = {{'exp_name': 'study/trial{name}', 'n': {name}}}\n"
        (trial_folder(STUDY, int(name)) / "total_config.py").write_text(f"{text}main_config = exp_config\n")
        return value

    plan = make_plan()
    study = run(plan, lambda name, words: 1 if name == "3" else play(name, words))
    path = module.write_best_config(study, plan, STUDY)
    table = module.write_table(study, plan, STUDY).read_text()

    assert path is not None
    found: dict[str, Any] = {}
    exec(path.read_text(), found)
    assert found["main_config"] == {"exp_name": "study_best", "n": study.best_trial.number}
    assert table.count("\n| ") == 8 and "| failed: " in table
    assert module.importances(study).keys() == {"policy.nstep"}


def test_a_range_is_read() -> None:
    for text, param in [
        ("a.b=log:1e-5..1e-2", Param("a.b", "log", 1e-5, 1e-2)),
        ("a=0.9..0.999", Param("a", "float", 0.9, 0.999)),
        ("a=float:1..5", Param("a", "float", 1.0, 5.0)),
        ("a=float:0..1:0.25", Param("a", "float", 0.0, 1.0, 0.25)),
        ("a = int:1..5", Param("a", "int", 1.0, 5.0)),
        ("a=int:32..256:32", Param("a", "int", 32.0, 256.0, 32.0)),
        ("a=logint:16..1024", Param("a", "logint", 16.0, 1024.0)),
        ("a=-1.5..-.5", Param("a", "float", -1.5, -0.5)),
        ("a=[True,False]", Param("a", "choice", choices=("True", "False"))),
        ("a=[relu, tanh]", Param("a", "choice", choices=("relu", "tanh"))),
        ("a=['relu', 'tanh']", Param("a", "choice", choices=("relu", "tanh"))),
        ("a=[[64, 64], [128]]", Param("a", "choice", choices=("[64, 64]", "[128]"))),
        ("a=[None, 0.5]", Param("a", "choice", choices=("None", "0.5"))),
    ]:
        assert parse_param(text) == param


def test_what_is_no_range_is_refused() -> None:
    for text, said in [
        ("a", "is no KEY=RANGE"),
        ("=1..2", "is no KEY=RANGE"),
        ("a=", "is no KEY=RANGE"),
        ("a=1e-3", "is no range; give LOW..HIGH"),
        ("a=1..5", "Give int:1..5, or float:1..5"),
        ("a=lgo:0.1..1.0", "unknown kind of range 'lgo'"),
        ("a=5.0..1.0", "give the smaller number first"),
        ("a=log:0..1.0", "begin above 0"),
        ("a=int:1..2.5", "give whole ones"),
        ("a=log:0.1..1.0:0.1", "steps are above 0, and of int and float"),
        ("a=int:1..5:0", "steps are above 0"),
        ("a=[True]", "fewer than two values"),
        ("a=[1, 1]", "fewer than two values"),
    ]:
        with pytest.raises(ConfigError, match=said):
            parse_params([text])


def test_all_faults_are_in_one_error() -> None:
    with pytest.raises(ConfigError) as error:
        parse_params(["a=1", "b=5.0..1.0", "c=int:1..2", "c=int:1..3"])

    assert len(str(error.value).splitlines()) == 3
    assert "--param c is given twice" in str(error.value)


def test_a_study_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="a study needs something to vary"):
        parse_params([])


def test_what_is_drawn_is_read_back_as_an_override() -> None:
    for text in ["a=[True, None]", "a=[[64, 64], [128]]", "a=int:1..5", "a=log:1e-5..1e-2"]:
        samples = parse_param(text).samples()
        values: list[Any] = [parse_value(each.partition("=")[2]) for each in samples]

        assert values in ([True, None], [[64, 64], [128]], [1, 5], [1e-5, 1e-2])
