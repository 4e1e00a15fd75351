import importlib.util
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from ding_like.errors import ConfigError
from ding_like.report.curve import average, group_runs, plot_groups, plot_run, save_plot, smooth, thin
from ding_like.report.plot import COLOURS
from ding_like.report.runs import read_run
from tests.report.run_folder import RESULT, report, training_and_evaluation, write_run


def make_run(folder, **kwargs):
    lines = training_and_evaluation(**kwargs)
    return read_run(write_run(folder, lines, result=RESULT))


@pytest.fixture
def no_matplotlib(monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else find_spec(name))


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


def test_only_seeds_of_one_name_in_one_place_belong_together(tmp_path):
    names = ["a/dqn_seed0", "a/dqn_seed1", "a/ppo_seed0", "a/dqn_seed0_261120_204235", "b/dqn_seed0"]

    groups = group_runs([make_run(tmp_path / name) for name in names])

    assert {name: len(members) for name, members in groups.items()} == {
        "a/dqn": 2,
        "a/ppo_seed0": 1,
        "a/dqn_seed0_261120_204235": 1,
        "b/dqn_seed0": 1,
    }


def test_picture_of_one_run_shows_training_evaluation_band_and_stop_value(tmp_path):
    plot = plot_run(make_run(tmp_path / "exp"))

    raw, smoothed, evaluation = plot.curves
    assert plot.title == "CartPole-v1, dqn, seed 0" and plot.stop_value == 475.0
    assert plot.subtitle.startswith("last model: 480 [460, 500] over 2 fresh episodes, after 8,000")
    assert raw.width == 0 and raw.dot_size > 0 and smoothed.width > 0
    assert evaluation.band is not None and (evaluation.band[0] < evaluation.y).all()


def test_comparison_has_a_curve_for_each_experiment_and_a_band_over_seeds(tmp_path):
    runs = [make_run(tmp_path / name, gain=gain) for name, gain in (("a_seed0", 0.1), ("a_seed1", 0.2), ("b", 0.3))]

    plot = plot_groups(runs)

    named = {curve.label: curve for curve in plot.curves if curve.label}
    assert list(named) == ["a (2 seeds, range)", "b"]
    assert named["a (2 seeds, range)"].band is not None and named["b"].band is None
    assert plot.y_label == "evaluation return"


def test_comparison_goes_by_training_where_a_run_has_no_evaluation(tmp_path):
    with_both = make_run(tmp_path / "a")
    without = read_run(write_run(tmp_path / "b", [report("collector", step, 1.0) for step in (100, 200)]))
    without_training = read_run(write_run(tmp_path / "c", [report("evaluator", 100, 1.0)]))

    plot = plot_groups([with_both, without, without_training])

    assert plot.y_label == "training return, smoothed"
    assert [len(curve.x) for curve in plot.curves] == [40, 2, 1]


def run_in(folder, env, lines):
    run = read_run(write_run(folder, lines))
    return replace(run, result={"env": env})


def test_runs_of_different_envs_are_drawn_on_scales_of_their_own(tmp_path):
    pole = run_in(tmp_path / "pole", "CartPole-v1", [report("evaluator", 10 * k, 100.0 * k) for k in range(6)])
    swing = run_in(tmp_path / "swing", "Pendulum-v1", [report("evaluator", 10 * k, -1500.0 + k) for k in range(6)])

    plot = plot_groups([pole, swing])

    assert plot.title == "CartPole-v1, Pendulum-v1" and plot.stop_value is None
    assert plot.subtitle.startswith("different envs, which do not compare") and plot.y_label.endswith("scaled by env")
    assert [(curve.y.min(), curve.y.max()) for curve in plot.curves] == [(0.0, 1.0)] * 2
    assert [curve.label for curve in plot.curves] == [
        "pole: CartPole-v1, 0 to 500",
        "swing: Pendulum-v1, -1,500 to -1,495",
    ]


@pytest.mark.parametrize(("suffix", "env_step"), [(".png", 0), (".svg", 512)])
def test_runs_of_one_point_are_seen(tmp_path, suffix, env_step):
    runs = [read_run(write_run(tmp_path / name, [report("evaluator", env_step, 90.0)])) for name in "ab"]

    path = save_plot(plot_groups(runs), tmp_path / f"compare{suffix}")

    if suffix == ".svg":
        drawing = path.read_text().partition("</g>")[0]
        assert 'r="5.6"' in drawing and f'fill="{COLOURS[0]}"' in drawing
        return
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB"))[:450]  # without the legend
    assert (pixels == (0xD5, 0x5E, 0x00)).all(axis=2).sum() >= 50, "a dot of 8 points"


def test_the_interval_of_a_lone_evaluation_is_a_line(tmp_path):
    run = read_run(write_run(tmp_path / "exp", [report("evaluator", 100, 90.0, std=20.0)], stop_value=1e10))

    drawing = save_plot(plot_run(run), tmp_path / "curve.svg").read_text()

    (line,) = [each for each in drawing.splitlines() if each.endswith('stroke-width="2" opacity="0.5"/>')]
    top, bottom = (float(line.partition(f'{name}="')[2].partition('"')[0]) for name in ("y2", "y1"))
    assert bottom - top > 100 and "<polygon" not in drawing


def test_png_is_900_by_540_and_not_empty(tmp_path):
    path = save_plot(plot_run(make_run(tmp_path / "exp")), tmp_path / "curve.png")

    with Image.open(path) as image:
        assert image.size == (900, 540)
        colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 20)}
    assert (0x00, 0x72, 0xB2) in colours and (0xD5, 0x5E, 0x00) in colours


def test_svg_holds_curves_band_labels_and_legend(tmp_path):
    path = save_plot(plot_run(make_run(tmp_path / "exp")), tmp_path / "curve.svg")

    root = ElementTree.parse(path).getroot()
    space = {"svg": "http://www.w3.org/2000/svg"}
    texts = [element.text for element in root.iterfind(".//svg:text", space)]
    assert len(root.findall(".//svg:polyline", space)) == 2 and len(root.findall(".//svg:polygon", space)) == 1
    for text in (
        "env steps",
        "episode return",
        "training, smoothed",
        "stop value 475",
        "2k",
        "CartPole-v1, dqn, seed 0",
    ):
        assert text in texts


def test_svg_points_stay_inside_the_picture(tmp_path):
    path = save_plot(plot_run(make_run(tmp_path / "exp")), tmp_path / "curve.svg")

    lines = [line for line in path.read_text().splitlines() if line.startswith(("<polyline", "<polygon"))]
    points = np.array([point.split(",") for line in lines for point in line.split('"')[1].split()], float)
    assert (points >= 0).all() and (points <= (900, 540)).all()


def test_without_matplotlib_the_picture_is_an_svg(tmp_path, no_matplotlib):
    path = save_plot(plot_run(make_run(tmp_path / "exp")), tmp_path / "curve.png")

    assert path == tmp_path / "curve.svg"
    assert path.read_text().startswith("<svg")


def test_other_formats_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"\.png or \.svg, not as 'curve\.pdf'"):
        save_plot(plot_run(make_run(tmp_path / "exp")), tmp_path / "curve.pdf")
