"""Comparisons of recorded runs, against a direct computation and against rliable."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ding_like.entry.results import Compared, compare
from ding_like.errors import ConfigError
from ding_like.report.compare import compare_experiments, comparison_lines
from ding_like.report.experiment import read_experiments
from ding_like.report.scores import (
    bootstrap_interval,
    estimate,
    improvement,
    interquartile_mean,
    mean,
    student_interval,
    student_quantile,
)
from tests.report.run_folder import RESULT, scores_of, training_and_evaluation, write_recorded, write_run, write_seeds

pytestmark = pytest.mark.usefixtures("in_tmp")

# What rliable 1.2.0 (arch 7.2, pandas 2.3, 50,000 resamples) says of the recorded scores.
RLIABLE = {
    ("dqn", "mean"): (366.55, 287.65, 441.13),
    ("dqn", "iqm"): (362.1666667, 260.05, 468.9333333),
    ("ppo", "mean"): (280.3, 202.93, 397.48),
    ("ppo", "iqm"): (233.7833333, 200.1833333, 429.0833333),
}
RLIABLE_IMPROVEMENT = (0.78, 0.4, 1.0)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    folder = tmp_path_factory.mktemp("compared")
    return compare([write_recorded(folder, name) for name in ("dqn", "ppo")], folder / "here/both.png")


@pytest.fixture
def figures(compared: Compared) -> dict:
    return json.loads(compared.figures.read_text())


def direct_mean(values: list[float]) -> float:
    return sum(values) / len(values)


def direct_iqm(values: list[float]) -> float:
    return sum(sorted(values)[1:-1]) / (len(values) - 2)  # of five seeds: without the best and the worst


def test_five_seeds_of_two_algorithms_equal_a_direct_computation(figures: dict) -> None:
    kinds: dict[str, Callable[[list[float]], float]] = {"mean": direct_mean, "iqm": direct_iqm}
    for row in figures["experiments"]:
        scores = scores_of(row["name"])
        assert row["scores"] == scores and row["num_ended"] == 5
        for kind, direct in kinds.items():
            every = [direct(list(drawn)) for drawn in itertools.product(scores, repeat=5)]
            low, high = np.quantile(every, (0.025, 0.975))
            assert row[kind]["value"] == pytest.approx(direct(scores), abs=1e-9)
            assert row[kind]["interval"] == pytest.approx([low, high], abs=0.01 * (high - low))


def test_the_probability_of_improvement_equals_a_direct_computation(figures: dict) -> None:
    dqn, ppo = scores_of("dqn"), scores_of("ppo")
    won = [[1.0 if x > y else 0.5 if x == y else 0.0 for y in ppo] for x in dqn]
    # The distinct resamples of five seeds, each with how many of the 3,125 it stands for.
    drawn: dict[tuple[int, ...], int] = {}
    for seeds in itertools.product(range(5), repeat=5):
        key = tuple(sorted(seeds))
        drawn[key] = drawn.get(key, 0) + 1
    every = [
        (sum(won[i][j] for i in a for j in b) / 25, weight_a * weight_b)
        for a, weight_a in drawn.items()
        for b, weight_b in drawn.items()
    ]
    every.sort()
    share = np.cumsum([weight for _, weight in every]) / 3125**2

    (row,) = figures["probability_of_improvement"]

    assert (row["better"], row["than"]) == ("dqn", "ppo")
    assert row["value"] == pytest.approx(sum(map(sum, won)) / 25)
    assert row["interval"][0] == pytest.approx(every[int(np.searchsorted(share, 0.025))][0], abs=0.02)
    assert row["interval"][1] == pytest.approx(every[int(np.searchsorted(share, 0.975))][0], abs=0.02)


def test_the_figures_are_rliables(figures: dict) -> None:
    for row in figures["experiments"]:
        for kind in ("mean", "iqm"):
            value, low, high = RLIABLE[row["name"], kind]
            assert row[kind]["value"] == pytest.approx(value, abs=1e-6)
            assert row[kind]["interval"] == pytest.approx([low, high], abs=0.01 * (high - low))
    (row,) = figures["probability_of_improvement"]
    assert (row["value"], *row["interval"]) == pytest.approx(RLIABLE_IMPROVEMENT, abs=0.02)


def test_the_picture_has_curves_and_bars_of_both(compared: Compared) -> None:
    assert (compared.picture.name, compared.figures.name) == ("both.png", "both.json")
    with Image.open(compared.picture) as image:
        width, height = image.size
        pixels = np.asarray(image.convert("RGB")).reshape(height, width, 3)
    for part in (pixels[: height // 2], pixels[height // 2 :]):
        colours = set(map(tuple, part.reshape(-1, 3)))
        assert {(0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)} <= colours


def lines_of(*folders: Path) -> str:
    return "\n".join(comparison_lines(compare_experiments(read_experiments(folders))))


def test_the_table_names_sizes_steps_and_every_pair(tmp_path: Path) -> None:
    third = write_seeds(tmp_path / "third", dict.fromkeys(range(5), 100.0))

    text = lines_of(write_recorded(tmp_path, "dqn"), write_recorded(tmp_path, "ppo"), third)

    assert "P(dqn > ppo)    0.78 [0.4, 1]" in text
    assert "P(dqn > third)  1 [1, 1]" in text and "P(ppo > third)  1 [1, 1]" in text
    row = next(line for line in text.splitlines() if line.startswith("dqn "))
    assert row.split()[1:3] == ["dqn", "5"] and "8,000" in row


def test_different_envs_are_refused(tmp_path: Path) -> None:
    a = write_seeds(tmp_path / "a", {0: 1.0, 1: 2.0})
    b = write_run(tmp_path / "b", training_and_evaluation(), result=RESULT, env_id="Acrobot-v1")

    with pytest.raises(ConfigError, match=r"different envs.*a is of CartPole-v1.*b is of Acrobot-v1"):
        compare([a, b])
    assert not Path("compare.png").exists()


def test_what_cannot_be_compared_is_one_clear_error(tmp_path: Path) -> None:
    for folders, words in [
        ([], "nothing to compare"),
        (["a"], r"only 'a' to compare; give two experiments at least:  ding compare A B"),
        (["a", "a/"], "only 'a'"),
        (["a", "nope"], "no experiment folder 'nope'"),
        (["a", "open"], r"no seed of 'open' has ended.*ding --resume open"),
    ]:
        write_seeds(tmp_path / "a", {0: 1.0, 1: 2.0})
        write_seeds(tmp_path / "open", {0: None})

        with pytest.raises(ConfigError, match=words):
            compare(folders)


def test_a_picture_of_another_kind_is_refused_before_anything_is_read() -> None:
    with pytest.raises(ConfigError, match=r"not as 'c\.pdf': --out c\.png"):
        compare(["a", "b"], "c.pdf")


def test_one_seed_few_seeds_and_open_ones_are_warned_of(tmp_path: Path) -> None:
    text = lines_of(write_seeds(tmp_path / "a", {0: 1.0}), write_seeds(tmp_path / "b", {0: 1.0, 1: 2.0, 2: None}))

    assert "warning: a has one seed: it has no interval" in text
    assert "warning: b has 2 seeds: intervals of fewer than 5 are too narrow" in text
    assert "warning: b: 1 of 3 seeds have not ended" in text
    assert "P(a > b)  0.25" in text and "env steps:" not in text


def test_other_budgets_are_warned_of(tmp_path: Path) -> None:
    a = write_seeds(tmp_path / "a", {0: 1.0, 1: 2.0}, env_step=8000)
    near, far = (write_seeds(tmp_path / name, {0: 1.0, 1: 2.0}, env_step=at) for name, at in (("n", 8192), ("f", 9000)))

    assert "different numbers of env steps: a 8,000, f 9,000" in lines_of(a, far)
    assert "different numbers" not in lines_of(a, near)


def test_seeds_that_reached_stop_value_are_named_where_budgets_differ(tmp_path: Path) -> None:
    a = write_seeds(tmp_path / "a", {0: 1.0, 1: 2.0})
    b = write_run(tmp_path / "b", training_and_evaluation(), result={**RESULT, "env_step": 3000})

    assert "b ended early at stop_value, which env.stop_value=1e9 switches off" in lines_of(a, b)


def test_equal_names_are_distinguished_by_their_folders(tmp_path: Path) -> None:
    text = lines_of(
        write_seeds(tmp_path / "x/exp", {0: 1.0, 1: 2.0}), write_seeds(tmp_path / "y/exp", {0: 1.0, 1: 2.0})
    )

    assert "P(x/exp > y/exp)" in text


def slow_iqm(values: list[float]) -> float:
    ordered, cut = sorted(values), len(values) // 4
    middle = ordered[cut : len(values) - cut]
    return sum(middle) / len(middle)


def slow_probability(x: list[float], y: list[float]) -> float:
    won = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a in x for b in y)
    return won / (len(x) * len(y))


def test_interquartile_mean_is_the_mean_of_the_middle_half() -> None:
    for count in range(1, 13):
        values = np.random.default_rng(count).normal(size=count).tolist()

        assert float(interquartile_mean(np.array(values))) == pytest.approx(slow_iqm(values))


@pytest.mark.parametrize(
    ("statistic", "slow"), [(mean, lambda values: sum(values) / 5), (interquartile_mean, slow_iqm)]
)
def test_the_interval_is_that_of_all_resamples(statistic, slow) -> None:
    scores = [392.1, 287.6, 406.8, 246.2, 500.0]
    every = [slow(list(drawn)) for drawn in itertools.product(scores, repeat=5)]  # 3,125 equally likely ones
    ends = np.quantile(every, (0.025, 0.975))

    found = estimate(scores, statistic)

    assert found["value"] == pytest.approx(slow(scores))
    assert found["interval"] == pytest.approx(ends, abs=0.01 * (ends[1] - ends[0]))


@pytest.mark.parametrize("seed", range(5))
def test_probability_of_improvement_counts_pairs_and_half_of_ties(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 6, 7).tolist(), rng.integers(0, 6, 4).tolist()

    assert improvement(x, y)["value"] == pytest.approx(slow_probability(x, y))
    assert improvement(x, y)["value"] + improvement(y, x)["value"] == pytest.approx(1.0)


def test_the_interval_of_an_improvement_draws_both_sides_apart() -> None:
    x, y = [1.0, 5.0, 9.0], [2.0, 5.0, 7.0]
    every = [
        slow_probability(list(a), list(b))
        for a in itertools.product(x, repeat=3)
        for b in itertools.product(y, repeat=3)
    ]

    found = improvement(x, y)

    assert found["value"] == pytest.approx(slow_probability(x, y))
    assert found["interval"] == pytest.approx(np.quantile(every, (0.025, 0.975)), abs=1e-9)


def test_one_seed_has_no_interval() -> None:
    assert estimate([7.0], interquartile_mean)["interval"] is None
    assert improvement([7.0], [1.0, 2.0])["interval"] is None and improvement([7.0], [1.0, 2.0])["value"] == 1.0


def test_equal_scores_have_an_interval_of_no_width() -> None:
    assert estimate([500.0] * 5, mean)["interval"] == [500.0, 500.0]


def test_the_same_scores_give_the_same_figures() -> None:
    scores = np.random.default_rng(0).normal(size=8).tolist()

    assert estimate(scores, mean) == estimate(scores, mean)
    assert improvement(scores, scores[:5]) == improvement(scores, scores[:5])


@pytest.mark.slow
def test_hundreds_of_seeds_are_drawn_in_pieces() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=300), rng.normal(size=300)

    found = estimate(x.tolist(), mean)

    error = x.std() / 300**0.5
    assert found["interval"] == pytest.approx([x.mean() - 1.96 * error, x.mean() + 1.96 * error], abs=0.1 * error)
    assert improvement(x.tolist(), y.tolist())["value"] == pytest.approx(slow_probability(x.tolist(), y.tolist()))


def test_bootstrap_agrees_with_students_interval_on_many_values() -> None:
    values = np.random.default_rng(0).normal(100, 20, 400)

    low, high = bootstrap_interval(values)

    half = 1.96 * values.std() / np.sqrt(400)
    assert low == pytest.approx(values.mean() - half, abs=0.2)
    assert high == pytest.approx(values.mean() + half, abs=0.2)


def test_equal_values_leave_nothing_open() -> None:
    for values in [[500.0] * 20, [3.0]]:
        assert bootstrap_interval(values) == [values[0], values[0]]


def test_bootstrap_stays_within_the_range_of_the_values() -> None:
    low, high = bootstrap_interval([0.0, 500.0, 500.0])

    assert 0.0 <= low < 333.3 < high <= 500.0


# From a table of Student's t.
def test_students_quantile_matches_the_table() -> None:
    for freedom, quantile in [(3, 3.182), (4, 2.776), (9, 2.262), (19, 2.093), (120, 1.980)]:
        assert student_quantile(np.array(freedom)) == pytest.approx(quantile, rel=0.02)


def test_students_interval_by_hand() -> None:
    # Four values 8, 10, 10, 12: mean 10, std sqrt(2), standard error sqrt(2 / 3), t = 3.182.
    low, high = student_interval(
        np.array([10.0]), np.array([2**0.5]), np.array([4]), low=np.array([0.0]), high=np.array([20.0])
    )

    assert high[0] - 10 == pytest.approx(3.182 * (2 / 3) ** 0.5, rel=0.02)
    assert 10 - low[0] == pytest.approx(high[0] - 10)


def test_students_interval_ends_at_the_extreme_values_and_is_a_point_for_one() -> None:
    mean, std, count = np.array([499.0, 7.0]), np.array([10.0, 0.0]), np.array([4, 1])

    low, high = student_interval(mean, std, count, low=np.array([480.0, 7.0]), high=np.array([500.0, 7.0]))

    assert high.tolist() == [500.0, 7.0]
    assert low[1] == 7.0
