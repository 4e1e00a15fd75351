import json

import pytest

from benchmarks import buffer, rounds
from benchmarks.buffer_cases import CASES, Bar
from benchmarks.rounds import ContenderError, Measured, Series

TWO_ROUNDS = Measured([Series("ours", "us", "us", [2.0, 9.0]), Series("sb3", "us", "us", [1.0, 3.0])], {}, {})


@pytest.fixture
def printed(monkeypatch):
    """Let every contender print what `printed` holds for its script (1.0 if nothing), and keep the arguments."""
    values, calls = {}, []

    def run_once(contender, **_):
        calls.append(contender)
        value = values.get(contender.script, 1.0)
        if isinstance(value, Exception):
            raise value
        return [{"metric": "us_per_sample", "value": value, "unit": "us"}]

    monkeypatch.setattr(rounds, "run_once", run_once)
    monkeypatch.setattr("benchmarks.table.VENVS", buffer.RESULTS)  # so that no peer depends on this machine
    values["calls"] = calls
    return values


def lines(folder):
    return [json.loads(line) for line in (folder / "buffer.jsonl").read_text().splitlines()]


def test_a_bar_against_a_peer_is_a_ratio_within_rounds():
    row = buffer.judge(Bar("ours", "sb3", 2.5), TWO_ROUNDS)  # 2/1 and 9/3, so 2.5 in the middle

    assert (row["name"], row["value"], row["lo"], row["hi"], row["is_met"]) == ("ours / sb3", 2.5, 2.0, 3.0, True)


def test_a_bar_just_above_the_figure_is_met_and_just_below_is_missed():
    verdicts = [buffer.judge(Bar("ours", "sb3", limit), TWO_ROUNDS)["is_met"] for limit in (2.51, 2.49)]

    assert verdicts == [True, False]


def test_a_bar_without_a_peer_is_about_the_figure_itself():
    row = buffer.judge(Bar("ours", None, 5.0), TWO_ROUNDS)

    assert (row["name"], row["value"], row["is_met"]) == ("ours", 5.5, False)


def test_a_bar_whose_contender_did_not_run_is_neither_met_nor_missed():
    row = buffer.judge(Bar("ours", "cpprb", 0.5), TWO_ROUNDS)

    assert (row["value"], row["is_met"], row["missing"]) == (None, None, ["cpprb"])


def test_a_short_run_judges_nothing():
    assert buffer.judge(Bar("ours", "sb3", 9.0), TWO_ROUNDS, is_short=True)["is_met"] is None


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_bar_is_about_contenders_of_its_case(case):
    named = {name for bar in case.bars for name in (bar.ours, bar.against) if name is not None}

    assert case.bars
    assert named <= case.contenders.keys()
    assert all(case.contenders[bar.ours].is_ours for bar in case.bars)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_shortened_cases_keep_their_contenders_and_hold_few_rows(case):
    short = buffer.shortened(case).contenders

    rows = [int(one.args[one.args.index("--rows") + 1]) for one in short.values()]
    assert short.keys() == case.contenders.keys()
    assert max(rows) <= 20_000


def test_a_failed_contender_is_named_and_makes_the_exit_status_1(printed, capsys):
    printed["buffer_ours"] = ContenderError("unknown buffer 'sequence'")

    with pytest.raises(SystemExit) as left:
        buffer.main(["--case", "sequence_64x40", "--no-peers"])

    out, err = capsys.readouterr()
    assert left.value.code == 1
    assert "NOT MEASURED: no ours, tianshou" in out
    assert "sequence_64x40: ours FAILED: unknown buffer 'sequence'" in err


def test_a_missing_environment_is_named_and_makes_the_exit_status_1(printed, capsys):
    with pytest.raises(SystemExit) as left:
        buffer.main(["--case", "sequence_64x40"])

    assert left.value.code == 1
    assert "sequence_64x40: tianshou has no environment" in capsys.readouterr().err


def test_rounds_count_for_all_cases_but_those_without_a_clock(printed):
    buffer.run(["sample_256", "atari_memory"], rounds=3, peers=False)

    assert [one.args[1] for one in printed["calls"]] == ["uniform", "replacing", "collected"] * 3 + ["atari"]


def test_a_run_writes_medians_verdicts_and_circumstances(printed, tmp_path):
    printed["buffer_ours"] = 7200.0

    assert buffer.run(["atari_memory"], peers=False, out=tmp_path)

    median, verdict, circumstances = lines(tmp_path)
    assert (median["case"], median["name"], median["value"]) == ("atari_memory", "ours", 7200.0)
    assert (verdict["bar"], verdict["is_met"]) == (7300, True)
    assert circumstances["short"] is False


def test_a_part_of_a_run_leaves_the_recorded_results_alone(printed, monkeypatch, tmp_path):
    monkeypatch.setattr(buffer, "RESULTS", tmp_path)
    monkeypatch.setattr(buffer, "OWN", tmp_path)

    with pytest.raises(SystemExit):
        buffer.main(["--case", "push_8", "--no-peers"])
    with pytest.raises(SystemExit, match="--record is of a full run"):
        buffer.main(["--case", "push_8", "--no-peers", "--record"])

    assert not list(tmp_path.iterdir())


def test_a_full_run_is_recorded_only_where_that_is_asked_for(printed, monkeypatch, tmp_path):
    for name in ("RESULTS", "OWN"):
        monkeypatch.setattr(buffer, name, tmp_path / name)
    monkeypatch.setattr(buffer, "CASES", {"push_8": CASES["push_8"]})

    with pytest.raises(SystemExit):
        buffer.main(["--no-peers", "--allow-dirty"])
    assert [path.parent.name for path in tmp_path.rglob("*.jsonl")] == ["OWN"]
    with pytest.raises(SystemExit):
        buffer.main(["--no-peers", "--allow-dirty", "--record"])

    assert {path.parent.name for path in tmp_path.rglob("*.jsonl")} == {"OWN", "RESULTS"}


def test_list_names_every_case(capsys):
    buffer.main(["--list"])

    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(CASES)
