"""A folder of one run, of several seeds, and siblings of old are each one experiment."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ding_like import load
from ding_like.entry.agents import enjoy
from ding_like.errors import ConfigError
from ding_like.report.compare import markdown, summary_of, table_lines, write_scores
from ding_like.report.experiment import SeedsPlan, names_of, read_experiment, read_experiments, read_plan
from ding_like.serve import Blueprint
from tests.report.run_folder import training_and_evaluation, write_run, write_seeds


def test_a_run_is_an_experiment_of_one(tmp_path: Path) -> None:
    write_run(tmp_path / "exp", training_and_evaluation(), seed=3)

    found = read_experiment(tmp_path / "exp")

    assert [member.seed for member in found.members] == [3] and found.plan is None
    assert found.scores == [] and found.env == "CartPole-v1" and found.policy == "dqn"


def test_a_folder_of_seeds_holds_those_of_its_plan(tmp_path: Path) -> None:
    folder = write_seeds(tmp_path / "exp", {0: 480.0, 1: 300.0, 4: None})
    write_run(folder / "seed9", training_and_evaluation())  # not of the plan

    found = read_experiment(folder)

    assert [(each.seed, each.score) for each in found.members] == [(0, 480.0), (1, 300.0), (4, None)]
    assert found.scores == [480.0, 300.0] and found.name == "exp"
    assert [run.name for run in found.runs] == ["seed0", "seed1", "seed4"]


def test_a_seed_that_has_not_begun_is_a_member_without_a_run(tmp_path: Path) -> None:
    folder = write_seeds(tmp_path / "exp", {0: 480.0}, more=(1,))

    found = read_experiment(folder)

    assert [member.run is None for member in found.members] == [False, True]
    assert summary_of(found)["seeds"][1] == {"seed": 1, "state": "not begun", "folder": "seed1"}


def test_no_returns_at_all_is_an_error_that_names_the_logs(tmp_path: Path) -> None:
    folder = write_seeds(tmp_path / "exp", {}, more=(0, 1))

    with pytest.raises(ConfigError, match=r"no seed of '.*exp' has returns yet.*exp/log/"):
        read_experiment(folder)


def test_siblings_of_old_are_found_by_their_stem(tmp_path: Path) -> None:
    for seed in (2, 10, 1):
        write_run(tmp_path / f"exp_seed{seed}", training_and_evaluation(), seed=seed)
    write_run(tmp_path / "exp_seedling", training_and_evaluation())

    assert [member.seed for member in read_experiment(tmp_path / "exp").members] == [1, 2, 10]
    with pytest.raises(ConfigError, match="no experiment folder"):
        read_experiment(tmp_path / "other")


def test_siblings_that_are_given_are_joined_and_others_are_not(tmp_path: Path) -> None:
    for name in ("a_seed0", "a_seed1", "b_seed0", "c"):
        write_run(tmp_path / name, training_and_evaluation())

    found = read_experiments([tmp_path / name for name in ("a_seed0", "c", "b_seed0", "a_seed1", "a_seed0")])

    assert [(each.name, len(each.members)) for each in found] == [("a", 2), ("c", 1), ("b_seed0", 1)]


def test_names_have_as_many_parents_as_it_takes(tmp_path: Path) -> None:
    for name in ("x/a_seed0", "x/a_seed1", "y/a_seed1", "y/b"):
        write_run(tmp_path / name, training_and_evaluation())

    found = read_experiments([tmp_path / name for name in ("x/a_seed0", "x/a_seed1", "y/b")])
    twice = read_experiments([tmp_path / name for name in ("x/a_seed1", "y/a_seed1")])

    assert names_of(found) == ["a", "b"] and names_of(twice) == ["x/a_seed1", "y/a_seed1"]


def test_a_damaged_plan_is_named(tmp_path: Path) -> None:
    for text, words in [
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ('{"format": 9}', "of format 9"),
        ('{"format": 1}', "is damaged"),
    ]:
        (tmp_path / "experiment.json").write_text(text)

        with pytest.raises(ConfigError, match=words):
            read_experiment(tmp_path)


def test_a_plan_with_values_of_another_kind_is_damaged(tmp_path: Path) -> None:
    for name, value in [("seeds", ["a"]), ("seeds", 3), ("overrides", "nstep=1")]:
        SeedsPlan((0, 7), "serial", "ding ...", "c.py", "00", ("a=1",), (), 5, 10**10).save(tmp_path)
        path = tmp_path / "experiment.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))

        with pytest.raises(ConfigError, match="is damaged"):
            read_plan(tmp_path)


def test_a_plan_survives_being_written(tmp_path: Path) -> None:
    plan = SeedsPlan((0, 7), "serial", "ding ...", "c.py", "00", ("a=1",), ("--env-step", "5"), 5, 10**10)

    plan.save(tmp_path)

    assert read_plan(tmp_path) == plan
    assert json.loads((tmp_path / "experiment.json").read_text())["format"] == 1


def test_the_table_has_each_seed_and_their_mean(tmp_path: Path) -> None:
    folder = write_seeds(tmp_path / "exp", {0: 100.0, 1: 200.0, 2: 300.0, 3: 400.0, 4: 1000.0})

    summary = write_scores(read_experiment(folder))

    assert summary["mean"]["value"] == 400.0 and summary["iqm"]["value"] == 300.0
    assert json.loads((folder / "scores.json").read_text()) == summary
    assert (folder / "scores.md").read_text() == markdown(summary)
    lines = table_lines(summary)
    assert lines[1].split()[:3] == ["0", "ended", "100"]
    assert lines[-2].startswith("mean 400 [180, 720], interquartile mean 300 [133.3, ")
    assert "of 5 seeds" in lines[-2]


def test_the_table_names_the_seeds_that_do_not_count(tmp_path: Path) -> None:
    summary = summary_of(read_experiment(write_seeds(tmp_path / "exp", {0: 100.0, 1: 200.0, 2: None})))

    assert "of 2 of 3 seeds; the others have not ended" in "\n".join(table_lines(summary))


def test_the_table_of_one_seed_warns(tmp_path: Path) -> None:
    lines = table_lines(summary_of(read_experiment(write_seeds(tmp_path / "exp", {0: 100.0}))))

    assert "a single seed is no evidence about others" in lines[-1] and "[" not in lines[-1]


def test_what_is_of_one_run_names_the_seeds(tmp_path: Path) -> None:
    folder = write_seeds(tmp_path / "exp", {0: 1.0, 2: 1.0, 10: None})
    shutil.copy(folder / "seed0" / "total_config.py", folder)

    for ask in (enjoy, load, lambda path: Blueprint(str(path))):
        with pytest.raises(ConfigError, match=r"several seeds; give the folder of one: .*seed0, .*seed2, .*seed10"):
            ask(folder)
