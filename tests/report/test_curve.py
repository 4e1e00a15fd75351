import sys
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from ding_like.entry.results import plot as entry_plot
from ding_like.entry.results import report as entry_report
from ding_like.errors import ConfigError
from ding_like.report.curve import average, plot_experiments, plot_run, smooth, thin
from ding_like.report.drawing import save_plot
from ding_like.report.experiment import Experiment, Member, read_experiments, read_run
from tests.report.run_folder import RESULT, report, training_and_evaluation, write_run


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
