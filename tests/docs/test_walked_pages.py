"""The pages that lead by the hand: every block runs in the order in which it stands, and prints what the page shows."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import ding_like
from ding_like.config import read_config
from ding_like.entry import cli

DOCS = Path(__file__).parents[2] / "docs"
SHORT_HOUR = {"--env-step 10000": "--env-step 600", "3000": "600", "4000": "700", "-n 2": "-n 1"}
ANSWER_TO_ANOTHER_MODEL = (
    "ConfigError: WideNet.q(obs) gave [5, 3] for obs of shape [5, 4]; DQNPolicy expects q(obs) -> [B, A], here [5, 2]."
)
# Page -> what is shortened, and what it must leave behind.
WALKED: dict[str, tuple[dict[str, str], list[str]]] = {
    "first_hour.md": (
        {**SHORT_HOUR, "0..4 -j 2": "0", "--trials 10 -j 2": "--trials 1 -j 1"},
        ["slower/result.json", "point/agent.pt", "plain/report.html", "compare.png", "study/best_config.py"],
    ),
    "own_algorithm.md": (
        {"--env-step 10000": "--env-step 400", "--resume mellow": "--resume mellow --env-step 700"},
        ["mellow/result.json", "slow_q/result.json"],
    ),
    "own_reward_model.md": (
        {"--env-step 10000": "--env-step 400", "--resume surprise": "--resume surprise --env-step 600"},
        ["surprise/result.json", "counts/result.json"],
    ),
    "concepts.md": ({}, []),
    "own_env.md": ({"--env-step 10000": "--env-step 1500"}, ["thermostat/result.json", "thermostat/agent.gif"]),
    "own_model.md": ({"--env-step 10000": "--env-step 800", ANSWER_TO_ANOTHER_MODEL: ""}, ["wide/result.json"]),
    "own_hook.md": ({}, ["halved/result.json"]),
    "own_buffer.md": ({}, ["recent/result.json"]),
    "own_loop.md": ({"max_env_step=20_000": "max_env_step=400"}, ["my_loop/metrics.jsonl", "my_loop/curve.png"]),
    "evaluation.md": ({}, ["judged/ckpt/ckpt_best.eval_seed7.json"]),
    "learning_rate.md": ({}, ["falling/result.json", "by_hook/result.json"]),
    "normalisation.md": ({}, ["normal/agent.gif"]),
    "from_sb3.md": ({"env_step=20_000": "env_step=400, exp_name='dqn'"}, ["dqn/result.json"]),
    "from_cleanrl.md": ({"20000": "600 --exp-name dqn"}, ["dqn/result.json"]),
    "from_rllib.md": ({"10000": "400"}, ["ppo/result.json"]),
}
IN_THE_SUITE = ("first_hour.md", "own_algorithm.md", "own_reward_model.md", "concepts.md")


@pytest.mark.parametrize(
    "name", [name if name in IN_THE_SUITE else pytest.param(name, marks=pytest.mark.slow) for name in WALKED]
)
@pytest.mark.timeout(300)
def test_every_block_of_the_page_runs_to_what_it_shows(name: str, in_tmp: Path) -> None:
    replaced, files = WALKED[name]

    with own_modules():
        walked = list(walk(DOCS / name, replaced=replaced))

    assert len(walked) >= 2
    assert [file for file in files if not (in_tmp / file).is_file()] == []
    for result in in_tmp.glob("*/result.json"):
        found = json.loads(result.read_text())
        assert found["env_step"] > 0 and (found["train_iter"] > 0 or name.startswith("from_"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_first_hour_with_its_seeds(in_tmp: Path) -> None:
    with own_modules():
        list(walk(DOCS / "first_hour.md", replaced={**SHORT_HOUR, "0..4": "0,1", "--trials 10": "--trials 2"}))

    assert [(in_tmp / f"plain/seed{seed}/result.json").is_file() for seed in range(2)] == [True, True]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_env_of_the_page_is_learned_as_the_page_runs_it(in_tmp: Path) -> None:
    with own_modules():
        list(walk(DOCS / "own_env.md", replaced={}))

    assert json.loads(Path("thermostat/result.json").read_text())["eval_value"] > 60


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_blocks_of_the_page_on_use_run(in_tmp: Path) -> None:
    few = dict(evaluator_env_num=2, n_evaluator_episode=2)
    ding_like.train("dqn", "CartPole-v1", env_step=600, env=few, exp_name="my_exp")
    names: dict[str, Any] = {}

    list(walk(DOCS / "use.md", replaced={}, names=names))

    assert names["action"] in (0, 1) and names["actions"].shape == (3,) and names["obs"].shape == (3, 4)
    run = names["run"]
    cfg = read_config(run.folder / "total_config.py").main_config
    assert run.folder == Path("two_lines") and run.result.env_step >= 2_000
    assert cfg["policy"]["learn"]["batch_size"] == 128 and cfg["policy"]["discount_factor"] == 0.99
    assert run.agent.wrappers == ["ObsNorm"] and ding_like.Run("cartpole_dqn_seed0").is_finished


def test_an_output_that_differs_is_noticed() -> None:
    assert is_shown("one ... 3\nfour", "zero\none  2 3\nother\nfour\n")
    assert not is_shown("one ... 3\nfour", "four\none 2 3\n")
    assert not is_shown("one 3", "one 2")


_BLOCK = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
NOT_HERE = re.compile(r"pip install |ding --version$|python cleanrl/|ding -m ray ")
_NAME = re.compile(r"# ([\w/]+\.py)\n")


class Block(NamedTuple):
    """Fenced block: its language ("" for a shell's), and its text."""

    language: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of a page in their order."""
    return [Block(match[2].strip(), match[3]) for match in _BLOCK.finditer(page.read_text(encoding="utf-8"))]


def walk(page: Path, *, replaced: dict[str, str], names: dict[str, Any] | None = None) -> Iterator[tuple[Block, str]]:
    """Run the blocks of a page in the working folder; yield each with what it printed.

    `replaced` shortens what would take long: texts of blocks -> what stands there instead; `names` receives the names
    of the Python blocks. Raises AssertionError where a block prints something else than the page shows, or a text of
    `replaced` is nowhere.
    """
    names = {} if names is None else names
    printed, unused = "", set(replaced)
    for block in blocks_of(page):
        text = block.text
        for old, new in replaced.items():
            if old in text:
                unused.discard(old)
                text = text.replace(old, new)
        if block.language == "text":
            assert is_shown(text, printed), f"{page.name} shows\n{text}\nbut the block before it printed\n{printed}"
        elif block.language == "python":
            printed = _run_python(text, names)
        elif block.language == "py":
            assert page.name.startswith("from_"), "`py` is another library's code, which is not installed here"
        elif block.language == "console":  # for a machine of its own: an installation
            assert all(NOT_HERE.match(line) for line in commands_of(text)), text
        elif block.language == "":
            printed = "".join(_run_line(line) for line in commands_of(text))
        else:
            raise AssertionError(f"{page.name} has a block of '{block.language}', which nothing runs")
        yield block, printed
    assert not unused, f"{page.name} has no longer {sorted(unused)}"


def is_shown(shown: str, printed: str) -> bool:
    """Tell whether lines of a page stand in what was printed, one after the other."""
    lines = iter(printed.splitlines())
    return all(any(_is_like(expected, line) for line in lines) for expected in shown.splitlines() if expected.strip())


def _is_like(expected: str, line: str) -> bool:
    pattern = ".*".join(re.escape(" ".join(part.split())) for part in expected.split("..."))
    return re.fullmatch(pattern.replace(r"\ .*", ".*"), " ".join(line.split())) is not None


def commands_of(text: str) -> list[str]:
    """Return the command lines of a shell's block, without comments; a backslash at its end continues a line."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line for line in (re.sub(r"(^|\s)#.*", "", line).strip() for line in lines) if line]


def _run_python(text: str, names: dict[str, Any]) -> str:
    named = _NAME.match(text)
    if named is not None:
        Path(named[1]).write_text(text, encoding="utf-8")
        return ""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(text, "page", "exec"), names)
    return out.getvalue()


def _run_line(line: str) -> str:
    command, *arguments = shlex.split(line)
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        if command == "ding":
            _run_ding(arguments)
        elif command == "python":
            runpy.run_path(arguments[0], run_name="__main__")
        elif command == "ls":
            print(*sorted(os.listdir(*arguments)), sep="\n")
        else:
            raise AssertionError(f"nothing here runs '{line}'")
    return out.getvalue()


def _run_ding(arguments: list[str]) -> None:
    try:
        cli.main(arguments)
    except SystemExit as stop:
        if stop.code:
            raise AssertionError(f"ding {shlex.join(arguments)} ended with {stop.code}") from stop


@contextlib.contextmanager
def own_modules() -> Iterator[None]:
    """Forget afterwards the modules that were imported within."""
    before = set(sys.modules)
    path = list(sys.path)
    sys.path.insert(0, "")
    try:
        yield
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file is not None and Path(file).resolve().is_relative_to(Path.cwd()):
                del sys.modules[name]
