"""Every `ding ...` command of README and docs is one that the command line takes, of configs that there are."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from ding_like.config import read_config
from ding_like.entry import cli
from ding_like.entry.modes import MODES
from ding_like.entry.training import load_config
from tests.docs.test_walked_pages import WALKED

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name != "decisions"),
]
CARTPOLE = ROOT / "dizoo/classic_control/cartpole/config/cartpole_dqn_config.py"
# What stands for something else in the pages -> what is put in its place.
PLACEHOLDERS = {
    **{"CONFIG": str(CARTPOLE), "EXP": "exp", "my_exp": "exp", "cartpole_dqn_seed0": "exp", "ID": "CartPole-v1"},
    **{"cartpole_bc_seed0": "exp", "clone": "exp"},
    **{"H": "127.0.0.1", "P": "7000", "K": "keys.json", "HOST": "127.0.0.1", "FILE": "out", "STUDY": "study"},
    **{"OTHER": "other", "MODE": "serial"},
}
# What a mode calls: from here on it trains, serves or works.
CALLED = {
    "serial_entry": ("serial_pipeline", "serial_pipeline_onpolicy", "ranks_pipeline"),
    "data_set_entry": ("serial_pipeline_offline",),
    "parallel_entry": ("parallel_pipeline", "launch_coordinator"),
    "ray_entry": ("ray_pipeline",),
    "seed_entry": ("seed_pipeline", "join_run"),
    "dist_entry": ("launch_collector", "launch_learner"),
    "stages": tuple(mode.pipeline.partition(":")[2] for mode in MODES.values() if mode.pipeline.startswith("stages:")),
    "train": ("resume_pipeline",),
    "studies": ("resume_seeds",),
    "eval_entry": ("eval",),
}


def commands() -> Iterator[tuple[str, str]]:
    """Yield (page, command line) of every `ding ...` in a block or between backticks."""
    for page in PAGES:
        text = page.read_text()
        fenced = [] if page.name in WALKED else re.findall(r"```(?:text)?\n(.*?)```", text, re.DOTALL)
        inline = re.findall(r"`(ding [^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
        for line in [*"\n".join(fenced).splitlines(), *inline]:
            found = re.match(r"(?:next)?\s*(?:\$ )?(ding (?!_).*)", line)
            for command in re.split(r" {3,}(?=ding )", found[1]) if found else ():
                yield page.name, re.sub(r"\s{2,}#.*|\s+\[[^\]]*\]", "", command).strip()


def arguments_of(command: str) -> list[str]:
    words = shlex.split(command.replace("...", ""))[1:]
    return [re.sub(r"\b(?:" + "|".join(PLACEHOLDERS) + r")\b", lambda it: PLACEHOLDERS[it[0]], word) for word in words]


@pytest.fixture
def called(in_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace what trains, serves or works by a check of its config; return what was called."""
    (in_tmp / "dizoo").symlink_to(ROOT / "dizoo")
    (in_tmp / "study").mkdir()
    for name in ("exp/total_config.py", "study/best_config.py"):
        (in_tmp / name).parent.mkdir(exist_ok=True)
        (in_tmp / name).write_bytes(CARTPOLE.read_bytes())
    (in_tmp / "exp/ckpt").mkdir()
    (in_tmp / "exp/ckpt/ckpt_best.pth.tar").touch()
    names: list[str] = []

    def stand_in(module: str, name: str) -> object:
        def call(config: str, *args: object, overrides: Sequence[str] = (), **kwargs: object) -> object:
            names.append(name)
            own = [each for each in overrides if not each.startswith("system.")]
            if Path(config).is_file():
                load_config(config, seed=0, overrides=own, save=False, renew_dir=False)
            return [], True

        return call

    def run_command(options: dict[str, object], config: str) -> None:
        names.append("run_command")
        read_config(config)

    def dry_run(mode: object) -> tuple[list[str], bool]:
        names.append("dry_run")
        return [], True

    for name in ("ray_entry.RayMode", "seed_entry.SeedMode"):
        monkeypatch.setattr(f"ding_like.entry.{name}.dry_run", dry_run)
    for module, functions in CALLED.items():
        for function in functions:
            monkeypatch.setattr(f"ding_like.entry.{module}.{function}", stand_in(module, function))
    monkeypatch.setattr("ding_like.entry.studies.run_command", run_command)
    return names


def expected_of(arguments: list[str]) -> str:
    """Return what a command calls: '' if only its help is asked for."""
    if arguments[0] == "--resume":
        return "resume_pipeline"
    if arguments[0] != "-m" or len(arguments) == 2:
        return ""
    mode, after = arguments[1], dict(pairwise(arguments))
    if mode == "dist":
        return f"launch_{after['-M']}"
    if mode == "seed" and "-M" in after:
        return "join_run"
    if "--dry-run" in arguments:
        return "dry_run"
    if re.search(r"\.\.|,", after.get("-s", "")) or arguments.count("-s") > 1:
        return "run_command"
    return MODES[mode].pipeline.partition(":")[2]


def test_the_command_lines_of_the_pages_are_taken(called: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    wrong, by_arguments = [], {tuple(arguments_of(command)): page for page, command in set(commands())}
    for arguments, page in sorted(by_arguments.items()):
        if arguments in (("--resume",), ("-q", "policy")):
            continue
        expected, status = expected_of([*arguments]), 0
        called.clear()
        try:
            cli.main([*arguments] if expected else [*arguments, "--help"])
        except SystemExit as stop:
            status = int(stop.code or 0)
        if status or called != [expected] * bool(expected):
            wrong.append((page, " ".join(arguments), status, called[:], capsys.readouterr().err[-300:]))

    assert len(by_arguments) > 80 and {"README.md", "first_minute.md"} <= {page for page, _ in commands()}
    assert not wrong, "\n".join(map(str, wrong))
