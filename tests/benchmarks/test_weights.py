"""Weights to four workers are measured right, and what the page says of them is what was recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import weights_page
from benchmarks.contenders import weights_work as work
from benchmarks.differential.purposes import PURPOSES, Purpose, Purposes
from benchmarks.rounds import run_once
from benchmarks.table import BENCHMARKS, Contender

METRICS = {"versions_per_s", "applied_p50", "applied_least", "send_blocks_p50", "sender_cpu_p50"}
REPORT = json.loads(weights_page.UPDATER.read_text())
CASES = {case["case"]: case for case in REPORT["cases"]}
ASPECTS = {"result", "text", "words", "order", "sent", "calls", "keys", "counters"}


# --- the measurement


@pytest.mark.parametrize("megabytes", [10, 100])
def test_a_module_has_the_size_and_some_dozens_of_tensors(megabytes: int) -> None:
    state = work.make_module(megabytes).state_dict()

    nbytes = sum(each.numel() * each.element_size() for each in state.values())
    assert nbytes == pytest.approx(megabytes * 1e6, rel=0.03)
    assert 24 <= len(state) <= 99
    assert {each.dtype for each in state.values()} == {torch.float32}


def test_a_worker_notices_an_older_version_and_one_number_that_is_wrong() -> None:
    module = work.make_module(1)
    expected = work.Expected(module)
    expected.put(module, 2)
    expected.check(module, 2, all_numbers=True)

    with pytest.raises(RuntimeError, match="version 3"):
        expected.check(module, 3)

    next(iter(module.parameters()))[-1] += 1
    with pytest.raises(RuntimeError, match="version 2"):
        expected.check(module, 2, all_numbers=True)


def test_our_floor_prints_times_and_versions() -> None:
    rows = run_once(
        Contender("weights_ours", ("--way", "in_process", "--megabytes", "1")), timeout_s=60, extra=["--steps", "3"]
    )

    values = {row["metric"]: row["value"] for row in rows if "metric" in row}
    assert values.keys() == METRICS and min(values.values()) > 0
    assert values["applied_least"] <= values["applied_p50"]
    assert any("torch" in row.get("versions", {}) for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name, one in BENCHMARKS["weights_10mb"].contenders.items() if one.venv is None]
)
def test_every_way_brings_the_right_weights_to_four_workers(name: str) -> None:
    rows = run_once(BENCHMARKS["weights_10mb"].contenders[name], timeout_s=120, extra=["--steps", "2"])

    assert {row["metric"] for row in rows if "metric" in row} == METRICS


# --- the page


def test_the_page_says_what_was_measured() -> None:
    page = weights_page.PAGE.read_text()

    assert weights_page.fill(page, weights_page.parts()) == page, "run python -m benchmarks.pages"
    assert page.count("<!-- measured: ") == 2


def test_every_way_has_a_name_on_the_page() -> None:
    named = {name for benchmark in weights_page.SIZES for name in BENCHMARKS[benchmark].contenders}

    assert named == weights_page.NAMES.keys()


def test_a_row_holds_what_was_recorded_and_its_ratio_to_the_pipe() -> None:
    small = {("pipe_pickle", name): 50.0 for name in METRICS} | {("ours_files", name): 20.04 for name in METRICS}
    large = {("pipe_pickle", name): 1500.0 for name in METRICS}

    table = weights_page.times_table({"weights_10mb": small, "weights_100mb": large})

    assert "| files in memory | 20 | 20 | 20 | 20 | 2.5 | - | - | - | - | - |" in table
    assert "| a pipe of pickles | 50 | 50 | 50 | 50 | 1 | 1,500 | 1,500 | 1,500 | 1,500 | 1 |" in table


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    weights_page.draw(weights_page.load_figures(), tmp_path / "weights.png")

    assert (tmp_path / "weights.png").read_bytes()[:4] == b"\x89PNG"
    assert weights_page.PICTURE.stat().st_size < 60_000


# --- our updater beside TorchRL's


def test_nothing_differs_from_torchrl_that_was_not_meant() -> None:
    assert {name: case["unexpected"] for name, case in CASES.items() if case["unexpected"]} == {}
    assert len(CASES) >= 50


@pytest.mark.parametrize("case", ["push_weights(), 1 worker", "push_weights(None, 2)"])
def test_a_plain_push_to_a_rank_says_the_same_words_in_the_same_order_as_torchrl(case: str) -> None:
    rank = "2" if "2" in case else "1"
    words = [f"set NODE_{rank}_in update_weights", f"get NODE_{rank}_out updated"]

    assert CASES[case]["torchrl"]["words"] == CASES[case]["ours"]["words"] == {rank: words}
    assert ASPECTS - set(CASES[case]["equal"]) == {"keys"}


def test_a_plain_push_to_three_ranks_differs_from_torchrl_in_who_is_awaited_when_alone() -> None:
    assert ASPECTS - set(CASES["push_weights(), 3 workers"]["equal"]) == {"keys", "order"}


@pytest.mark.parametrize("trainer", ["torchrl", "ours"])
def test_weights_that_one_updater_pushed_to_the_workers_of_the_other_arrived(trainer: str) -> None:
    pushes = REPORT["crossed"][trainer]

    assert len({push["trainer"] for push in pushes}) == len(pushes) == 3
    for push in pushes:
        assert push["workers"] == [push["trainer"]] * 2


def test_every_aspect_of_every_case_is_equal_or_meant_for_the_reason_that_is_listed() -> None:
    for name, case in CASES.items():
        assert {*case["equal"], *case["on_purpose"], *case["unexpected"]} == ASPECTS, name
        for aspect in case["equal"]:
            assert case["ours"][aspect] == case["torchrl"][aspect], (name, aspect)
        for aspect, reason in case["on_purpose"].items():
            assert PURPOSES.reason(name, aspect, case["ours"]["result"]) == reason, (name, aspect)


def test_a_reason_holds_for_its_cases_its_aspects_and_what_our_call_is_to_give() -> None:
    purposes = Purposes([Purpose(("push*",), ("text",), "why", ("None",))])

    assert purposes.reason("push_weights()", "text", ["None"]) == "why"
    assert purposes.reason("push_weights()", "text", ["raises ValueError"]) is None
    assert purposes.reason("push_weights()", "words", ["None"]) is None
    assert purposes.reason("hooks", "text", ["None"]) is None


def test_a_reason_that_nothing_differs_by_any_more_is_named() -> None:
    purposes = Purposes([Purpose(("a",), ("text",), "old"), Purpose(("b",), ("text",), "new")])

    assert purposes.unused([{"on_purpose": {"text": "new"}}]) == ["old"]
