"""A folder of one run, of several seeds, and siblings of old are each one experiment."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from ding_like import load
from ding_like.entry.results import enjoy
from ding_like.entry.results import plot as entry_plot
from ding_like.entry.results import report as entry_report
from ding_like.errors import ConfigError
from ding_like.report.compare import markdown, summary_of, table_lines, write_scores
from ding_like.report.curve import average, plot_experiments, plot_run, smooth, thin
from ding_like.report.drawing import save_plot
from ding_like.report.experiment import (
    Experiment,
    Member,
    SeedsPlan,
    names_of,
    read_experiment,
    read_experiments,
    read_plan,
    read_run,
)
from ding_like.serve import Blueprint
from tests.report.run_folder import RESULT, report, training_and_evaluation, write_run, write_seeds


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


def test_run_is_read_from_its_folder(tmp_path):
    lines = [report("collector", 100, 9.0), report("learner", 100, 0.0), report("evaluator", 200, 20.0, count=5)]

    run = read_run(write_run(tmp_path / "exp", lines, seed=3, result=RESULT))

    assert (run.name, run.env, run.policy, run.stop_value) == ("exp", "CartPole-v1", "dqn", 475.0)
    assert run.config["seed"] == 3 and run.result["env_step"] == 8000
    assert run.training.env_step.tolist() == [100] and run.training.mean.tolist() == [9.0]
    assert run.evaluation.count.tolist() == [5] and run.evaluation.high.tolist() == [22.0]


def test_what_was_reported_beyond_a_resumed_point_is_void(tmp_path):
    before = [report("collector", step, 1.0) for step in (100, 200, 300, 400)]
    after = [report("collector", step, 2.0) for step in (250, 400, 500)]

    training = read_run(write_run(tmp_path, before + after)).training

    assert training.env_step.tolist() == [100, 200, 250, 400, 500]
    assert training.mean.tolist() == [1.0, 1.0, 2.0, 2.0, 2.0]


def test_line_that_is_being_written_is_left_out(tmp_path):
    folder = write_run(tmp_path, [report("evaluator", 100, 9.0)])
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"source": "evaluator", "env_s')

    assert read_run(folder).evaluation.env_step.tolist() == [100]


def test_reports_without_a_step_or_a_finite_return_are_left_out(tmp_path):
    lines = [report("evaluator", -1, 9.0), report("evaluator", 100, 1.0), {**report("evaluator", 200, 1.0)}]
    lines[2]["reward_mean"] = "nan"

    assert read_run(write_run(tmp_path, lines)).evaluation.env_step.tolist() == [100]


def test_default_stop_value_stands_for_none(tmp_path):
    run = read_run(write_run(tmp_path, [report("evaluator", 100, 9.0)], stop_value=1e10))

    assert run.stop_value is None


def test_folder_with_metrics_alone_can_be_read(tmp_path):
    folder = write_run(tmp_path, [report("evaluator", 100, 9.0)])
    (folder / "total_config.py").unlink()

    run = read_run(folder)

    assert (run.env, run.policy, run.stop_value, dict(run.result)) == ("", "", None, {})


def test_missing_folder_names_those_that_there_are(tmp_path):
    write_run(tmp_path / "cartpole_seed0", [])

    with pytest.raises(ConfigError, match=r"no experiment folder .*cartpole'\. There are: cartpole_seed0\.$"):
        read_run(tmp_path / "cartpole")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "holds no metrics.jsonl"),
        ("", "has no returns yet"),
        ('{"source": "learner", "env_step": 1}\n', "has no returns yet"),
        ("not json\n", "a line that is no JSON: 'not json'"),
    ],
)
def test_folder_without_a_run_is_one_clear_error(tmp_path, text, words):
    if text is not None:
        (tmp_path / "metrics.jsonl").write_text(text)

    with pytest.raises(ConfigError, match=words):
        read_run(tmp_path)


def test_torn_result_is_one_clear_error(tmp_path):
    folder = write_run(tmp_path, [report("evaluator", 100, 9.0)])
    (folder / "result.json").write_text('{"stop": tr')

    with pytest.raises(ConfigError, match=r"result\.json is no JSON"):
        read_run(folder)


def make_run(folder, **kwargs):
    lines = training_and_evaluation(**kwargs)
    return read_run(write_run(folder, lines, result=RESULT))


def test_smoothing_is_the_weighted_mean_under_a_gaussian():
    rng = np.random.default_rng(0)
    x, y, weight = np.sort(rng.uniform(0, 1000, 30)), rng.normal(size=30), rng.integers(1, 5, 30)

    smoothed = smooth(x, y, weight)

    scale = 0.02 * (x[-1] - x[0])
    for index in range(30):
        kernel = [np.exp(-0.5 * ((x[index] - other) / scale) ** 2) for other in x] * weight
        assert smoothed[index] == pytest.approx((kernel * y).sum() / kernel.sum())


def test_thinning_keeps_the_mean_and_leaves_short_curves():
    rng = np.random.default_rng(0)
    x, y, weight = np.arange(10_000.0), rng.normal(size=10_000), rng.integers(1, 5, 10_000)

    thin_x, thin_y, thin_weight = thin(x, y, weight)

    assert len(thin_x) == 800 and (np.diff(thin_x) > 0).all()
    assert thin_weight.sum() == weight.sum()
    assert np.average(thin_y, weights=thin_weight) == pytest.approx(np.average(y, weights=weight))
    assert len(thin(x[:800], y[:800], weight[:800])[0]) == 800


def test_average_holds_the_last_value_of_a_run_that_ended():
    # The first run solves at 200 with 10; the second goes on to 300.
    first = (np.array([100.0, 200.0]), np.array([0.0, 10.0]))
    second = (np.array([150.0, 300.0]), np.array([2.0, 8.0]))

    x, mean, (low, high) = average([first, second])

    assert x.tolist() == [150.0, 200.0, 300.0]
    assert mean.tolist() == [3.5, 7.0, 9.0]
    assert low.tolist() == [2.0, 4.0, 8.0] and high.tolist() == [5.0, 10.0, 10.0]


def test_five_runs_get_an_interval_that_is_narrower_than_their_range():
    x = np.array([0.0, 1.0])
    lines = [(x, np.array([0.0, value])) for value in (0.0, 4.0, 5.0, 6.0, 10.0)]

    _, mean, (low, high) = average(lines)

    # Student's t with 4 degrees of freedom: 2.776 standard errors.
    error = np.std([0, 4, 5, 6, 10], ddof=1) / 5**0.5
    assert high[1] - mean[1] == pytest.approx(2.776 * error, rel=0.02)
    assert 0.0 < low[1] < 5.0 and low[0] == high[0] == 0.0


def test_picture_of_one_run_shows_training_evaluation_band_and_stop_value(tmp_path):
    plot = plot_run(make_run(tmp_path / "exp"))

    raw, smoothed, evaluation = plot.curves
    assert plot.title == "CartPole-v1, dqn, seed 0" and plot.stop_value == 475.0
    assert plot.subtitle.startswith("last model: 480 [460, 500] over 2 fresh episodes, after 8,000")
    assert raw.width == 0 and raw.dot_size > 0 and smoothed.width > 0
    assert evaluation.band is not None and (evaluation.band[0] < evaluation.y).all()


def test_comparison_has_a_curve_for_each_experiment_and_a_band_over_seeds(tmp_path):
    folders = [make_run(tmp_path / name, gain=g).folder for name, g in (("a_seed0", 0.1), ("a_seed1", 0.2), ("b", 0.3))]

    plot = plot_experiments(read_experiments(folders))

    named = {curve.label: curve for curve in plot.curves if curve.label}
    assert list(named) == ["a (2 seeds, range)", "b"]
    assert named["a (2 seeds, range)"].band is not None and named["b"].band is None
    assert plot.y_label == "evaluation return"


def test_comparison_goes_by_training_where_a_run_has_no_evaluation(tmp_path):
    make_run(tmp_path / "a")
    write_run(tmp_path / "b", [report("collector", step, 1.0) for step in (100, 200)])
    write_run(tmp_path / "c", [report("evaluator", 100, 1.0)])

    plot = plot_experiments(read_experiments([tmp_path / name for name in "abc"]))

    assert plot.y_label == "training return, smoothed"
    assert [len(curve.x) for curve in plot.curves] == [40, 2, 1]


def run_in(folder, env, lines):
    run = replace(read_run(write_run(folder, lines)), result={"env": env})
    return Experiment(folder, folder.name, (Member(0, folder, run),))


def test_runs_of_different_envs_are_drawn_on_scales_of_their_own(tmp_path):
    pole = run_in(tmp_path / "pole", "CartPole-v1", [report("evaluator", 10 * k, 100.0 * k) for k in range(6)])
    swing = run_in(tmp_path / "swing", "Pendulum-v1", [report("evaluator", 10 * k, -1500.0 + k) for k in range(6)])

    plot = plot_experiments([pole, swing])

    assert plot.title == "CartPole-v1, Pendulum-v1" and plot.stop_value is None
    assert plot.subtitle.startswith("different envs, which do not compare") and plot.y_label.endswith("scaled by env")
    assert [(curve.y.min(), curve.y.max()) for curve in plot.curves] == [(0.0, 1.0)] * 2
    assert [curve.label for curve in plot.curves] == [
        "pole: CartPole-v1, 0 to 500",
        "swing: Pendulum-v1, -1,500 to -1,495",
    ]


def test_runs_of_one_point_are_seen(tmp_path):
    folders = [write_run(tmp_path / name, [report("evaluator", 0, 90.0)]) for name in "ab"]

    path = save_plot(plot_experiments(read_experiments(folders)), tmp_path / "compare.png")

    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB"))[:450]  # without the legend
    assert (pixels == (0xD5, 0x5E, 0x00)).all(axis=2).sum() >= 50, "a dot of 8 points"


def test_png_is_900_by_540_and_not_empty(tmp_path):
    path = save_plot(plot_run(make_run(tmp_path / "exp")), tmp_path / "curve.png")

    with Image.open(path) as image:
        assert image.size == (900, 540)
        colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 20)}
    assert (0x00, 0x72, 0xB2) in colours and (0xD5, 0x5E, 0x00) in colours


def test_svg_holds_its_texts_and_is_the_same_each_time(tmp_path):
    plot = plot_run(make_run(tmp_path / "exp"))

    first, second = (save_plot(plot, tmp_path / name).read_bytes() for name in ("a.svg", "b.svg"))

    texts = [element.text for element in ElementTree.fromstring(first).iter("{http://www.w3.org/2000/svg}text")]
    for text in ("env steps", "training, smoothed", "stop value 475", "2k", "CartPole-v1, dqn, seed 0"):
        assert text in texts
    assert first == second


def test_without_matplotlib_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "ding_like.report.drawing")
    make_run(tmp_path / "exp")

    with pytest.raises(ConfigError, match=r"needs matplotlib; install it with: .*ding-like\[viz\]"):
        entry_plot([tmp_path / "exp"])
    assert "needs matplotlib" in entry_report(tmp_path / "exp").read_text()


def test_other_formats_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"\.png or \.svg, not as 'curve\.pdf'"):
        save_plot(plot_run(make_run(tmp_path / "exp")), tmp_path / "curve.pdf")
