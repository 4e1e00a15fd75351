"""The mutations fit today's code, and the runner tells a mutation that was noticed from one that was not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation.__main__ import MUTATIONS
from tests.mutation.runner import Mutation, fault, judge, run

SOURCE = "def double(x):\n    return x + x\n"
TEST = "from ding_like.maths import double\n\ndef test_double():\n    assert double(3) == 6\n"


def label(mutation: Mutation) -> str:
    return f"{Path(mutation.file).stem}: {mutation.new.strip()[:40]}"


@pytest.mark.parametrize("mutation", MUTATIONS, ids=label)
def test_it_fits_the_code_and_its_killers_exist(mutation: Mutation) -> None:
    assert fault(mutation) is None, "change its text or its killers with the code; `python -m tests.mutation` runs it"


def test_there_are_enough_of_them_and_none_comes_twice() -> None:
    assert len(MUTATIONS) >= 60
    assert len({(each.file, each.old, each.new) for each in MUTATIONS}) == len(MUTATIONS)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a tree of one module and one test."""
    root = tmp_path / "root"
    for name in ("ding_like", "dizoo", "tests", "benchmarks", "docs"):
        (root / name).mkdir(parents=True)
    (root / "ding_like/maths.py").write_text(SOURCE)
    (root / "tests/test_maths.py").write_text(TEST)
    return root


def mutation(old: str = "x + x", new: str = "x * x", killer: str = "tests/test_maths.py::test_double") -> Mutation:
    return Mutation("ding_like/maths.py", old, new, (killer,))


def test_a_slip_that_a_test_notices_is_killed_and_one_that_none_does_survives(tree: Path, tmp_path: Path) -> None:
    noticed, overlooked = mutation(), mutation(new="2 * x")

    outcomes = list(run([noticed, overlooked], tmp_path / "copies", root=tree))

    assert [(each.mutation, each.verdict, each.is_killed) for each in outcomes] == [
        (noticed, "killed", True),
        (overlooked, "survived", False),
    ]
    assert (tree / "ding_like/maths.py").read_text() == SOURCE, "the tree itself is only read"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (dict(old="y + y"), "occurs 0 times"),
        (dict(old="x"), "occurs 3 times"),
        (dict(new="x + x"), "changes nothing"),
        (dict(killer="tests/test_maths.py::test_gone"), "no test tests/test_maths.py::test_gone"),
        (dict(killer="tests/test_gone.py::test_double"), "no test tests/test_gone.py::test_double"),
    ],
)
def test_a_mutation_that_no_longer_fits_counts_as_a_failure(tree: Path, changes: dict[str, str], said: str) -> None:
    outcome = judge(mutation(**changes), tree)

    assert (outcome.verdict, outcome.is_killed) == ("does not fit", False) and said in outcome.detail


def test_a_mutant_whose_tests_cannot_even_be_collected_is_not_taken_for_killed(tree: Path) -> None:
    outcome = judge(mutation(new="(x"), tree)

    assert (outcome.verdict, outcome.is_killed) == ("broken", False)


def test_killers_that_fail_without_a_mutation_stop_the_run(tree: Path, tmp_path: Path) -> None:
    (tree / "tests/test_maths.py").write_text(TEST.replace("6", "7"))

    with pytest.raises(RuntimeError, match="fail without any mutation"):
        list(run([mutation()], tmp_path / "copies", root=tree))
