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
from tests.report.recorded import scores_of, write_recorded
from tests.report.run_folder import RESULT, training_and_evaluation, write_run, write_seeds

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
