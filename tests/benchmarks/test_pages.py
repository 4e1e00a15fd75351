"""The algorithms' pages say what was recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.pages import DOCS, ablation_table, draw, draw_ablation, fill, fill_index, load, table

PAGES = sorted((DOCS / "algorithms").glob("*.md"))
RECORD = {
    "episodes": 20,
    "runs": [
        {
            "seed": 0,
            "eval_value": 499.96,
            "env_step": 12345,
            "train_iter": 678,
            "wall_s": 4.4,
            "history": [[0, 9.0], [10, 400.0]],
        }
    ],
}

ABLATION = {
    "episodes": 20,
    "variants": [
        # The second seed has an evaluation less.
        {
            "name": name,
            "mean_of_evaluations": 400.6,
            "runs": [*RECORD["runs"], {**RECORD["runs"][0], "history": [[0, 9]]}],
        }
        for name in ("all", "no x")
    ],
}


def test_a_row_holds_what_the_file_holds() -> None:
    assert table(RECORD).splitlines()[-1] == "| 0 | 500.0 | 12,345 | 678 | 4 |"


def test_what_stands_between_the_marks_is_written_afresh_and_the_rest_stays() -> None:
    page = "a\n<!-- recorded: cartpole_x -->\nold\n<!-- end of recorded -->\nb\n"

    filled = fill(page, {"cartpole_x": RECORD})

    assert filled.startswith("a\n") and filled.endswith("\nb\n") and "old" not in filled and "12,345" in filled
    assert fill(filled, {"cartpole_x": RECORD}) == filled


def test_a_mark_without_a_record_says_that_there_is_none_yet() -> None:
    page = "a\n<!-- recorded: cartpole_x -->\nold\n<!-- end of recorded -->\nb\n"

    assert "Not recorded yet." in fill(page, {}) and "old" not in fill(page, {})


def test_a_marked_row_of_the_index_is_written_from_its_record_and_others_stay() -> None:
    record = {"config": "x.py", "median_eval_value": 500.0, "worst_eval_value": 479.96, "median_env_step": 9088}
    index = "| A | `x.py` | 1 |\n| A, `ray` <!-- a_ray --> | `x.py` | - | - | - | - |\n| B <!-- b --> | `y.py` | - |\n"

    filled = fill_index(index, {"a_ray": {**record, "most_env_steps": 11104}})

    assert filled.splitlines() == [
        "| A | `x.py` | 1 |",
        "| A, `ray` <!-- a_ray --> | `x.py` | 500.0 | 480.0 | 9,088 | 11,104 |",
        "| B <!-- b --> | `y.py` | - |",
    ]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_pages_are_up_to_date(path: Path) -> None:
    text = path.read_text()

    assert fill_index(fill(text, load()), load()) == text, "run python -m benchmarks.pages"


def test_every_record_is_on_a_page_with_its_picture() -> None:
    text = "".join(path.read_text() for path in PAGES)

    for name in load():
        assert f"<!-- recorded: {name} -->" in text, name
        assert (DOCS / "algorithms" / f"{name}.png").stat().st_size < 60_000


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    draw("cartpole_x", RECORD, tmp_path / "x.png")
    draw_ablation("cartpole_x", ABLATION, tmp_path / "y.png")

    assert all((tmp_path / name).read_bytes()[:4] == b"\x89PNG" for name in ("x.png", "y.png"))


def test_a_row_of_an_ablation_holds_what_became_of_a_variant() -> None:
    assert ablation_table(ABLATION).splitlines()[-1] == "| no x | 401 | 500, 500 |"


def results(name: str) -> list[dict[str, Any]]:
    """Return the rows of a recorded benchmark."""
    lines = (DOCS.parent / f"benchmarks/results/{name}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("parallel_cartpole", "CartPole-v1, evaluations of the config included"),
        ("parallel_cartpole_training", "CartPole-v1, no evaluations between"),
        ("parallel_slow", "steps of 0.5 ms, evaluations included"),
        ("parallel_slow_training", "steps of 0.5 ms, no evaluations between"),
    ],
)
def test_the_page_on_parallel_runs_says_how_fast_they_were(name: str, what: str) -> None:
    found = {(row["name"], row["metric"]): row["value"] for row in results(name) if "metric" in row}
    rate, startup = "env_steps_wall", found["ours", "startup"]
    ratio = found["ours / ours_serial", rate]

    row = f"| {what} | {found['ours', rate]:,.0f} | {found['ours_serial', rate]:,.0f} | {ratio:.2f} | {startup:.1f} |"

    assert row in (DOCS / "parallel.md").read_text()


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("learners_sac", "Pendulum SAC, networks 512 wide, batches of 512"),
        ("learners_ppo", "CartPole PPO, networks 512 wide, minibatches of 256"),
        ("learners_ppo_small", "CartPole PPO as it is shipped, minibatches of 64"),
    ],
)
def test_the_page_on_several_learners_says_how_fast_they_were(name: str, what: str) -> None:
    found = {(row["name"], row["metric"]): row for row in results(name) if "metric" in row}
    one, two = "ours_1_learner", "ours_2_learners"
    rates = [found[each, rate]["value"] for rate in ("updates_wall", "env_steps_wall") for each in (one, two)]
    ratio = found[f"{two} / {one}", "updates_wall"]

    cells = " | ".join(f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}" for rate in rates)
    row = f"| {what} | {cells} | {ratio['value']:.2f} ({ratio['lo']:.2f} to {ratio['hi']:.2f}) |"

    assert row in (DOCS / "several_learners.md").read_text()


def test_the_page_on_buffers_says_how_many_bytes_a_stack_of_frames_takes() -> None:
    (value,) = {
        row["value"]
        for row in results("buffer")
        if row.get("case") == "atari_memory" and row["name"] == "ours" and "bar" not in row
    }

    assert f"{value:,.0f} bytes a transition" in (DOCS / "buffers.md").read_text()


# Tables of figures, by how their heads begin, whose rows a test makes from a recorded file.
HELD = (
    "| seed | fresh ",  # here
    "| env | parallel | serial |",  # here
    "| config | updates/s, 1 learner |",  # here
    "| to 4 workers, all applied |",  # tests/benchmarks/test_weights.py
    "| | config | median |",  # tests/learning/test_index.py
    "| seed | matrix game",  # tests/learning/test_games.py
    "| seed | simple_spread",  # tests/learning/test_games.py
    "| what was done | lost |",  # tests/chaos/test_docs.py
    "| server, collectors |",  # tests/chaos/test_docs.py
    "| 2 processors | ours | RLlib |",  # tests/benchmarks/test_ray_page.py
    "| DQN, env steps/s | 2 workers |",  # tests/benchmarks/test_ray_page.py
    "| 2 workers, 5 seeds |",  # tests/benchmarks/test_ray_page.py
    "| what happens, milliseconds |",  # tests/benchmarks/test_ray_page.py
    "| observations per CPU-second |",  # tests/benchmarks/test_seed_page.py
    "| CNN, env steps/s |",  # tests/benchmarks/test_seed_page.py
    "| 2 actor threads | random seeds |",  # tests/benchmarks/test_seed_page.py
    "| | env steps | updates |",  # tests/benchmarks/test_seed_page.py
    "| | what was held to a bar |",  # tests/benchmarks/test_seed_page.py
)


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: path.relative_to(DOCS).as_posix())
def test_every_table_of_figures_is_held_to_a_file(path: Path) -> None:
    lines = path.read_text().splitlines()
    heads = [number - 1 for number, line in enumerate(lines) if line.startswith("|--")]

    loose = [lines[head] for head in heads if _has_figures(lines[head + 2]) and not lines[head].startswith(HELD)]

    assert loose == [], "make its rows from a recorded file in a test, and name it in HELD"


def _has_figures(row: str) -> bool:
    """Tell whether a row of a table has two numbers or more beside its first cell."""
    cells = [cell.strip() for cell in row.split("|")[2:-1]]
    return sum(cell.replace(",", "").replace(".", "").lstrip("-").isdigit() for cell in cells) >= 2
