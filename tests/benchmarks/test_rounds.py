import json
import subprocess

import pytest

from benchmarks import __main__ as entry
from benchmarks import rounds
from benchmarks.__main__ import main
from benchmarks.provenance import OWN, DirtyTreeError, Provenance
from benchmarks.rounds import Measured, Series, measure, summarise
from benchmarks.table import BENCHMARKS, Bar, Benchmark, Contender, Given

TWO = Benchmark(("speed",), {"ours": Contender("x_ours"), "peer": Contender("x_peer")})


@pytest.fixture
def tree(monkeypatch):
    """Let the tree differ from its commit by these files."""
    changed = []

    def provenance(*, allow_dirty):
        if changed and not allow_dirty:
            raise DirtyTreeError(f"results are not written from a tree that differs: {changed}; give --allow-dirty")
        return Provenance("abc", tuple(changed))

    monkeypatch.setattr(entry, "provenance", provenance)
    return changed


@pytest.fixture
def printed(monkeypatch, tree):
    """Let contenders print these values of `speed`, one a run, instead of running; an error is raised."""
    queues = {}

    def run_once(contender, **_):
        value = queues[contender.script].pop(0)
        if isinstance(value, Exception):
            raise value
        return [{"metric": "speed", "value": value, "unit": "1/s"}, {"versions": {"python": "3"}}]

    monkeypatch.setattr(rounds, "run_once", run_once)
    return queues


def test_measure_runs_the_contenders_in_turn(printed):
    printed.update(x_ours=[1.0, 2.0], x_peer=[3.0, 4.0])

    measured = measure(TWO.contenders, rounds=2, timeout_s=1)

    assert [(one.name, one.values) for one in measured.series] == [("ours", [1.0, 2.0]), ("peer", [3.0, 4.0])]
    assert measured.versions == {"ours": {"python": "3"}, "peer": {"python": "3"}}


def test_measure_leaves_out_a_contender_that_fails_in_any_round(printed):
    printed.update(x_ours=[1.0, 2.0], x_peer=[3.0, subprocess.TimeoutExpired("x_peer", 1)])

    measured = measure(TWO.contenders, rounds=2, timeout_s=1)

    assert [one.name for one in measured.series] == ["ours"]
    assert "timed out" in measured.errors["peer"]


def test_a_script_that_prints_nothing_is_an_error_with_its_output():
    with pytest.raises(rounds.ContenderError, match="No module named .*nobody"):
        rounds.run_once(Contender("nobody"), timeout_s=60)


def test_summarise_takes_ratios_within_rounds():
    # Both slow down threefold in round 2: the ratios, 2 2 3, do not notice, and their median is 2.
    series = [
        Series("ours", "speed", "1/s", [60.0, 20.0, 90.0]),
        Series("peer", "speed", "1/s", [30.0, 10.0, 30.0]),
    ]

    rows = {row["name"]: row for row in summarise(TWO, Measured(series, {}, {}))}

    assert rows["ours"] == {
        **dict(name="ours", metric="speed", value=60.0, unit="1/s", n=3, lo=20.0, hi=90.0),
        "from": "this run",
    }
    assert rows["ours / peer"]["value"] == 2.0
    assert (rows["ours / peer"]["lo"], rows["ours / peer"]["hi"]) == (2.0, 3.0)


@pytest.mark.parametrize(("peer", "is_short", "is_met"), [(2.0, False, True), (3.0, False, False), (2.0, True, None)])
def test_a_ratio_is_held_to_its_bar(peer, is_short, is_met):
    series = [Series("ours", "speed", "1/s", [4.0]), Series("peer", "speed", "1/s", [peer])]
    benchmark = TWO._replace(bars=(Bar("ours", "peer", 1.5),))

    *_, row = summarise(benchmark, Measured(series, {}, {}), is_short=is_short)

    assert (row["name"], row["bar"], row["is_met"]) == ("ours / peer", 1.5, is_met)


@pytest.mark.parametrize(("peer", "is_met"), [(8.0, True), (6.0, False)])
def test_a_bar_may_be_an_upper_one_and_of_another_metric(peer, is_met):
    series = [Series(name, "memory", "MiB", [value]) for name, value in (("ours", 4.0), ("peer", peer))]
    benchmark = TWO._replace(metrics=("speed", "memory"), bars=(Bar("ours", "peer", at_most=0.5, metric="memory"),))

    *_, row = summarise(benchmark, Measured(series, {}, {}))

    assert (row["metric"], row["bar"], row["bar_is"], row["is_met"]) == ("memory", 0.5, "at most", is_met)


def test_contenders_are_told_the_number_of_the_round(monkeypatch):
    told = []
    monkeypatch.setattr(rounds, "_run", lambda contender, *, number, **_: told.append(number) or Done())

    measure({"x": Contender("x")}, rounds=3, timeout_s=1)

    assert told == [0, 1, 2]


class Done:
    """Be a process that has printed a measurement."""

    returncode = 0
    stdout = '{"metric": "speed", "value": 1.0, "unit": ""}'
    stderr = ""


def test_main_writes_one_line_a_row_and_the_circumstances(printed, tmp_path, monkeypatch):
    monkeypatch.setitem(BENCHMARKS, "two", TWO)
    printed.update(x_ours=[4.0], x_peer=[2.0])

    with pytest.raises(SystemExit) as left:
        main(["--only", "two", "--rounds", "1", "--out", str(tmp_path)])

    assert left.value.code == 0
    *rows, last = [json.loads(line) for line in (tmp_path / "two.jsonl").read_text().splitlines()]
    assert {row["name"]: row["value"] for row in rows} == {"ours": 4.0, "peer": 2.0, "ours / peer": 2.0}
    assert last["versions"] == {"ours": {"python": "3"}, "peer": {"python": "3"}}
    assert last["date"]


def test_main_exits_1_if_a_contender_failed(printed, tmp_path, monkeypatch):
    monkeypatch.setitem(BENCHMARKS, "two", TWO)
    printed.update(x_ours=[rounds.ContenderError("broken")], x_peer=[2.0])

    with pytest.raises(SystemExit) as left:
        main(["--only", "two", "--rounds", "1", "--out", str(tmp_path)])

    assert left.value.code == 1


def test_without_peers_only_ours_runs(printed, tmp_path, monkeypatch):
    monkeypatch.setitem(BENCHMARKS, "two", TWO)
    printed.update(x_ours=[4.0], x_peer=[])

    with pytest.raises(SystemExit):
        main(["--only", "two", "--rounds", "1", "--no-peers", "--out", str(tmp_path)])

    assert [json.loads(line)["name"] for line in (tmp_path / "two.jsonl").read_text().splitlines()][:-1] == ["ours"]


def test_a_pattern_names_several_benchmarks(printed, tmp_path, monkeypatch):
    for name in ("two_a", "two_b"):
        monkeypatch.setitem(BENCHMARKS, name, TWO)
    printed.update(x_ours=[4.0, 6.0], x_peer=[2.0, 2.0])

    with pytest.raises(SystemExit):
        main(["--only", "two_*", "--rounds", "1", "--out", str(tmp_path)])

    assert {path.name for path in tmp_path.iterdir()} == {"two_a.jsonl", "two_b.jsonl"}


def test_a_name_that_no_benchmark_has_is_refused_with_those_there_are(capsys):
    with pytest.raises(SystemExit) as left:
        main(["--only", "weihgts_10mb"])

    assert left.value.code == 2
    assert "no benchmark is named weihgts_10mb; there are end_to_end, " in capsys.readouterr().err


def test_list_names_every_benchmark(capsys):
    main(["--list"])

    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(BENCHMARKS)


def test_a_figure_from_elsewhere_says_so_and_has_no_rounds():
    given = Given("peer / peer_serial", "speed", 0.5, "another machine", "page.md")

    *_, row = summarise(TWO._replace(given=(given,)), Measured([], {}, {}))

    assert row == {
        **dict(name="peer / peer_serial", metric="speed", value=0.5, unit="ratio"),
        "from": "elsewhere: another machine; page.md",
    }


@pytest.fixture
def folders(monkeypatch, tmp_path):
    """Put recordings and what anybody measures in folders of this test."""
    for name in ("OWN", "RESULTS"):
        monkeypatch.setattr(entry, name, tmp_path / name)
    return tmp_path


def test_what_anybody_measures_leaves_the_recordings_alone(printed, tree, folders, monkeypatch):
    monkeypatch.setitem(BENCHMARKS, "two", TWO)
    printed.update(x_ours=[4.0], x_peer=[2.0])
    tree.append("ding_like/x.py")

    with pytest.raises(SystemExit):
        main(["--only", "two", "--rounds", "1"])

    assert [path.relative_to(folders).as_posix() for path in folders.rglob("*.jsonl")] == ["OWN/two.jsonl"]


def test_record_writes_among_the_recordings(printed, folders, monkeypatch):
    monkeypatch.setitem(BENCHMARKS, "two", TWO)
    printed.update(x_ours=[4.0], x_peer=[2.0])

    with pytest.raises(SystemExit):
        main(["--only", "two", "--rounds", "1", "--record"])

    assert [path.relative_to(folders).as_posix() for path in folders.rglob("*.jsonl")] == ["RESULTS/two.jsonl"]


def test_record_and_another_folder_contradict(printed, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(BENCHMARKS, "two", TWO)

    with pytest.raises(SystemExit):
        main(["--only", "two", "--record", "--out", str(tmp_path)])

    assert "leave --out out" in capsys.readouterr().err


def test_git_ignores_what_anybody_measures():
    done = subprocess.run(["git", "check-ignore", "-q", str(OWN / "two.jsonl")], cwd=OWN.parent, check=False)

    assert done.returncode == 0


def test_a_tree_that_differs_from_its_commit_records_nothing(printed, tree, folders, monkeypatch):
    monkeypatch.setitem(BENCHMARKS, "two", TWO)
    tree.append("ding_like/x.py")

    with pytest.raises(SystemExit, match="ding_like/x.py.*--allow-dirty"):
        main(["--only", "two", "--rounds", "1", "--record"])

    assert not list(folders.iterdir())


def test_what_a_changed_tree_gave_says_so(printed, tree, folders, monkeypatch):
    monkeypatch.setitem(BENCHMARKS, "two", TWO)
    printed.update(x_ours=[4.0], x_peer=[2.0])
    tree.append("ding_like/x.py")

    with pytest.raises(SystemExit):
        main(["--only", "two", "--rounds", "1", "--record", "--allow-dirty"])

    last = json.loads((folders / "RESULTS" / "two.jsonl").read_text().splitlines()[-1])
    assert (last["commit"], last["changed_files"]) == ("abc", ["ding_like/x.py"])
