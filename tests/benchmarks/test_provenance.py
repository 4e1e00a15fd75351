"""Recordings say which code they were made with, and which of them are old."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from benchmarks.provenance import DirtyTreeError, provenance
from benchmarks.stale import ages, commits_of, main, recordings
from benchmarks.table import BENCHMARKS

ROOT = Path(__file__).parents[2]
# They want a machine with nothing beside them. Take a name off when its file is there.
NOT_RECORDED_YET: set[str] = set()


class Tree:
    """Keep a small checkout."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "-q")

    def git(self, *args: str) -> str:
        who = ("-c", "user.name=somebody", "-c", "user.email=some@body", "-c", "commit.gpgsign=false")
        done = subprocess.run(["git", *who, *args], cwd=self.root, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def commit(self, name: str, text: str) -> str:
        """Change one file in a commit of its own and return its hash."""
        self.write(name, text)
        self.git("add", "-A")
        self.git("commit", "-qm", "change")
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(tmp_path)
    made.commit("ding_like/comm/rest/wire.py", "0")
    return made


def test_a_clean_tree_has_its_commit(tree: Tree) -> None:
    found = provenance(root=tree.root)

    assert tree.git("rev-parse", "HEAD").startswith(str(found.commit)) and found.changed == ()
    assert found.to_plain() == {"commit": found.commit}


@pytest.mark.parametrize("name", ["ding_like/comm/rest/wire.py", "ding_like/new.py"])
def test_changed_and_new_files_are_refused_by_name(tree: Tree, name: str) -> None:
    tree.write(name, "1")

    with pytest.raises(DirtyTreeError, match=f"{name}.*--allow-dirty"):
        provenance(root=tree.root)

    assert provenance(allow_dirty=True, root=tree.root).to_plain()["changed_files"] == [name]


def test_earlier_recordings_of_the_same_session_are_no_change(tree: Tree) -> None:
    tree.write("benchmarks/results/collect.jsonl", "{}")
    tree.write("docs/learning/x.json", "{}")

    assert provenance(root=tree.root).changed == ()


def test_a_folder_that_is_no_checkout_has_no_commit(tmp_path: Path) -> None:
    assert provenance(root=tmp_path).to_plain() == {"commit": None}


def test_a_recording_is_as_old_as_the_changes_of_what_it_depends_on(
    tree: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    made_with = tree.git("rev-parse", "HEAD")
    tree.commit("docs/reports/chaos_partitions.json", json.dumps({"commit": made_with}))
    for number in range(3):
        tree.commit("ding_like/comm/rest/wire.py", f"{number + 1}")
        tree.commit("README.md", f"{number}")  # nothing depends on it

    (age,) = ages(tree.root)
    main(["--limit", "2", "--root", str(tree.root)])
    said = capsys.readouterr().out

    assert (age.behind, age.is_told) == (3, True)
    assert "python -m tests.chaos --only partitions" in said and "1 of 1 recordings" in said


def test_a_recording_within_the_limit_is_not_listed(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    tree.commit("docs/reports/chaos_partitions.json", json.dumps({"commit": tree.git("rev-parse", "HEAD")}))
    tree.commit("ding_like/comm/rest/wire.py", "1")

    main(["--limit", "1", "--root", str(tree.root)])

    assert capsys.readouterr().out.startswith("0 of 1 recordings")


def test_a_recording_that_names_no_commit_counts_from_its_last_change(tree: Tree) -> None:
    tree.commit("docs/reports/chaos_partitions.json", "{}")
    tree.commit("ding_like/comm/rest/wire.py", "1")

    (age,) = ages(tree.root)

    assert (age.behind, age.is_told) == (1, False)


def test_of_parts_recorded_at_different_times_the_oldest_counts(tree: Tree) -> None:
    old = tree.git("rev-parse", "HEAD")
    new = tree.commit("ding_like/league/x.py", "1")
    tree.commit("docs/reports/games.json", json.dumps({"a": {"commit": new}, "b": {"commit": old}}))

    (age,) = ages(tree.root)

    assert (age.behind, age.commit) == (1, old)


def test_every_recording_of_this_tree_can_be_made_again_from_files_that_exist() -> None:
    found = list(recordings(ROOT))

    assert len(found) >= 30
    for each in found:
        for path in each.depends_on:
            assert list(ROOT.glob(path)), f"{each.path} depends on {path}, which is not there"
    made = {each.path: each.command for each in found}
    missing = {name for name in BENCHMARKS if f"benchmarks/results/{name}.jsonl" not in made}
    assert missing <= NOT_RECORDED_YET


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks/results").glob("*.jsonl")), ids=lambda path: path.stem)
def test_every_row_of_a_result_file_says_where_its_figure_comes_from(path: Path) -> None:
    *rows, last = [json.loads(line) for line in path.read_text().splitlines()]

    assert last["name"] == "circumstances" and commits_of(path)
    for row in rows:
        assert row["from"] == "this run" or row["from"].startswith("elsewhere: "), row


def test_the_page_tells_of_every_figure_from_elsewhere() -> None:
    for benchmark in BENCHMARKS.values():
        for given in benchmark.given:
            page = (ROOT / given.page).read_text()
            assert f"ratio of {given.value}" in page
            assert "83.6 s in parallel and 11.6 s in serial" in " ".join(page.split())
            assert "83.6 s in parallel and 11.6 s in serial" in given.source
