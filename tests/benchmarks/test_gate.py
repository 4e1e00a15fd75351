"""The gate of speed: what is too slow, what is measured again, and what it says where it cannot measure."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks import gate
from benchmarks.gate import GateError, Workload, compare

OURS, RELEASED = Path("ours"), Path("released")


def measure(*ours: float, released: float = 1.0) -> Callable[[Workload, Path], float]:
    """Return what gives this tree these CPU seconds, round by round, and the released one always the same."""
    rounds: Iterator[float] = iter(ours)
    return lambda workload, tree: next(rounds) if tree == OURS else released


@pytest.mark.parametrize(
    ("ours", "slower"),
    [
        ((1.0, 1.0, 1.0), []),
        ((1 / 0.85, 1.3, 1.3), []),
        ((1 / 0.84, 1.3, 1.3, 1.3, 1.3), ["work"]),
        ((1.3, 1.3, 1.3, 1.0, 1.3), []),  # measured again
    ],
)
def test_a_workload_fails_below_the_limit(
    ours: tuple[float, ...], slower: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare({"work": Workload("none", ())}, measure(*ours), trees=(OURS, RELEASED)) == slower
    assert f"work       {1 / min(ours):.3f} of the released speed" in capsys.readouterr().out


@pytest.fixture
def unknown_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Let `released.txt` name a commit that does not exist, and return an empty folder in place of this checkout."""
    (tmp_path / "released.txt").write_text("0" * 40 + "\n")
    (tmp_path / "tree").mkdir()
    monkeypatch.setattr(gate, "RELEASED", tmp_path / "released.txt")
    monkeypatch.setattr(gate, "ROOT", tmp_path / "tree")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    return tmp_path / "tree"


def test_a_clone_that_lacks_the_commit_fails(unknown_commit: Path) -> None:
    subprocess.run(["git", "init", "-q", str(unknown_commit)], check=True)
    with pytest.raises(SystemExit, match=r"commit 000.* is not in this clone: correct the hash"):
        gate.main()


def test_a_copy_without_history_is_not_measured(unknown_commit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gate.main()
    assert "NOT MEASURED: commit 000" in capsys.readouterr().out


def test_a_contender_that_fails_is_no_measurement(tmp_path: Path) -> None:
    with pytest.raises(GateError, match=r"no_such_contender of .* failed with status 1"):
        gate.cpu_s(Workload("no_such_contender", ()), tmp_path)
