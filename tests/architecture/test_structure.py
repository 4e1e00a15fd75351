"""The structure stays as lean as it was made, and the script that says so counts right."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.architecture.structure import (
    LIMITS,
    ROOT,
    Hand,
    has_any,
    lines_of_class,
    main,
    measure,
    missing_hands,
    places_that_call,
    stop_loops,
    way_of_a_row,
)


def parsed(**sources: str) -> dict[str, ast.Module]:
    return {path.replace("__", "/") + ".py": ast.parse(text) for path, text in sources.items()}


def test_no_figure_is_above_its_limit() -> None:
    figures = measure(ROOT)

    assert set(figures) == set(LIMITS)
    above = {name: (value, LIMITS[name]) for name, value in figures.items() if value > LIMITS[name]}
    assert not above, "(value, limit): say why it must be, and move the limit, or leave it as it was"


def test_everyone_whom_a_row_goes_through_is_there() -> None:
    hands = way_of_a_row()

    assert missing_hands(hands, ROOT) == []
    assert len(set(hands)) == len(hands) > 10


def test_a_hand_that_is_gone_is_named() -> None:
    gone = [Hand("data/rollout.py", "Rollout.gone"), Hand("data/gone.py", "gone")]

    assert missing_hands([Hand("data/rollout.py", "Rollout.append"), *gone], ROOT) == gone


def test_a_package_that_builds_is_one_place() -> None:
    sources = parsed(
        pipeline__build__envs="create_env_manager(cfg, [])",
        pipeline__build__other="factory.create_env_manager(cfg, [])",
        entry__enjoy="def enjoy():\n    return create_env_manager(cfg, [])",
        envs__factory="def create_env_manager(cfg, fns):\n    return None",
    )

    assert places_that_call(sources, frozenset(("create_env_manager",))) == ["entry/enjoy.py", "pipeline/build"]


def test_only_while_loops_that_step_a_loop_are_stop_loops() -> None:
    sources = parsed(
        one="while not done:\n    for episode in loop.step(setting):\n        pass",
        other="while True:\n    env.step(1)\nfor each in range(3):\n    loop.step({})",
    )

    assert stop_loops(sources) == ["one.py:1"]


def test_lines_of_a_class_are_counted_from_its_name_to_its_end() -> None:
    sources = parsed(a="import os\n\nclass Long:\n    x = 1\n\n    def f(self):\n        pass\n\n\ny = 1")

    assert lines_of_class(sources, "Long") == 5 and lines_of_class(sources, "Gone") == 0


@pytest.mark.parametrize(
    ("signature", "expected"),
    [
        ("a: int", False),
        ("a: Any", True),
        ("a: dict[str, Any] | None", True),
        ("*, a: int, **more: Any", True),
        ("a: AnyOf", False),
        ("a", False),
    ],
)
def test_any_is_seen_wherever_a_signature_says_it(signature: str, expected: bool) -> None:
    function = ast.parse(f"def f({signature}) -> None: ...").body[0]
    assert isinstance(function, ast.FunctionDef)

    assert has_any(function) is expected
    assert has_any(ast.parse("def f() -> list[Any]: ...").body[0])  # type: ignore[arg-type]


def test_the_script_prints_each_figure_with_its_limit(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "ding_like").mkdir()
    (tmp_path / "ding_like/a.py").write_text("def f(x: Any): ...\ndef g(x: int): ...\n")

    main([str(tmp_path)])

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(LIMITS)
    assert lines[0].split() == ["hands", "of", "a", "row", "-", "at", "most", "27"]
    assert next(line for line in lines if "Any" in line).split()[-4] == "50.0"
