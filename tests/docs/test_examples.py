"""Every example of README and docs runs: Python blocks are executed, `ding` command lines are given to the command.

Training is cut short here; marked `learning`, those that promise a result are run to it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ding_like.config import compile_config, read_config
from ding_like.data.batch import TransitionBatch
from ding_like.entry import cli, serial_entry
from ding_like.envs import make_env
from ding_like.pipeline.parallel.settings import read_system
from ding_like.pipeline.seeds.run import text_hash
from ding_like.pipeline.tune.plan import StudyPlan
from ding_like.worker import create_buffer
from tests.docs.test_own_pages import PAGES as OWN_PAGES
from tests.docs.test_walked_pages import WALKED

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name != "decisions"),
]
# Their blocks are run one after the other elsewhere.
RUN_WHOLE = {*WALKED, *OWN_PAGES}
CARTPOLE = ROOT / "dizoo/classic_control/cartpole/config/cartpole_dqn_config.py"
TICTACTOE = ROOT / "dizoo/petting_zoo/config/tictactoe_dqn_config.py"

# What stands for something else in the pages -> what is put in its place.
PLACEHOLDERS = {
    "CONFIG": str(CARTPOLE),
    "EXP": "exp",
    "my_exp": "exp",
    "cartpole_dqn_seed0": "exp",
    "ID": "CartPole-v1",
    "H": "127.0.0.1",
    "P": "7000",
    "K": "keys.json",
    "HOST": "127.0.0.1",
    "FILE": "out",
    "STUDY": "study",
    "OTHER": "other",
}
# The env that docs/environments.md checks.
MY_MODULE = """
import gymnasium, numpy as np
class MyEnv(gymnasium.Env):
    def __init__(self, size):
        self.observation_space = gymnasium.spaces.Box(-10, 10, (size,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(self.observation_space.shape, np.float32), {}
    def step(self, action):
        self.time += 1
        obs = np.zeros(self.observation_space.shape, np.float32)
        obs[2] = 12
        return obs, 1.0, self.time == 10, False, {}
"""


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def commands() -> Iterator[tuple[str, str]]:
    """Yield (page, command line) of every `ding ...` in a block or between backticks."""
    for page in PAGES:
        text = page.read_text()
        fenced = re.findall(r"```(?:text)?\n(.*?)```", text, re.DOTALL)
        if page.name in RUN_WHOLE:
            fenced = []
        inline = re.findall(r"`(ding [^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
        for line in [*"\n".join(fenced).splitlines(), *inline]:
            found = re.match(r"(?:next)?\s*(?:\$ )?(ding (?!_).*)", line)
            for command in re.split(r" {3,}(?=ding )", found[1]) if found else ():
                yield page.name, re.sub(r"\s{2,}#.*|\s+\[[^\]]*\]", "", command).strip()


def arguments_of(command: str) -> list[str]:
    words = shlex.split(command.replace("...", ""))[1:]
    return [re.sub(r"\b(?:" + "|".join(PLACEHOLDERS) + r")\b", lambda it: PLACEHOLDERS[it[0]], word) for word in words]


COMMANDS = sorted(set(commands()))


def test_the_pages_have_as_many_commands_as_they_seem_to() -> None:
    assert len(COMMANDS) >= 30
    assert {page for page, _ in COMMANDS} >= {"README.md", "first_minute.md", "parallel.md", "resume.md"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a short run."""
    folder = tmp_path_factory.mktemp("trained") / "exp"
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder.parent)
        monkeypatch.setattr(serial_entry, "write_pictures", lambda *args, **kwargs: None)
        serial_entry.serial_pipeline(CARTPOLE, seed=0, max_env_step=600, exp_name="exp")
    return folder


@pytest.fixture
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trained: Path) -> Iterator[Path]:
    """Work in a folder that holds the repository's configs and the experiment `exp`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dizoo").symlink_to(ROOT / "dizoo")
    for name in ("exp", "other"):
        shutil.copytree(trained, tmp_path / name)
    (tmp_path / "my_module.py").write_text(MY_MODULE)
    begin_study(tmp_path / "study")
    yield tmp_path
    sys.modules.pop("my_module", None)


def begin_study(folder: Path) -> None:
    """Write what a study that has begun has in its folder."""
    folder.mkdir()
    shutil.copy(CARTPOLE, folder / "best_config.py")
    StudyPlan(
        config=str(CARTPOLE), config_sha256=text_hash(CARTPOLE), mode="serial", params=("policy.nstep=int:1..5",),
        overrides=(), trials=2, seeds=1, first_seed=0, limits=("--env-step", "100"), budget=100,
        budget_unit="env_step", prune=False, sampler_seed=0, command="ding tune",
    ).save(folder)  # fmt: skip


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let nothing train, serve or work; return what would have."""
    names: list[str] = []

    def stands_for(name: str) -> Callable[..., SimpleNamespace]:
        def begin(*args: object, **kwargs: object) -> SimpleNamespace:
            names.append(name)
            return SimpleNamespace(policy=None)

        return begin

    for name in (
        "serial_entry._train",
        "parallel_entry.run_coordinator",
        "coordinator_entry.launch_coordinator",
        "ray_entry._run",
        "seed_entry.run_plan",
        "seed_join.join_run",
        "dist_entry.launch_learner",
        "dist_entry.launch_collector",
        "serve.serve",
        "tune._run",
        "seeds.run_seeds",
    ):
        monkeypatch.setattr(f"ding_like.entry.{name}", stands_for(name.partition(".")[2]))
    # A page's keys and cluster are not here.
    monkeypatch.setattr("ding_like.entry.seed_plan.load_seed_keys", lambda path: None)
    monkeypatch.setattr("ding_like.entry.ray_entry.dry_run", lambda *args, **kwargs: (["fits"], True))
    return names


BEGINS = {
    "serial": "_train",
    "serial_onpolicy": "_train",
    "parallel": "run_coordinator",
    "ray": "_run",
    "seed": "run_plan",
    "--resume": "_train",
    "serve": "serve",
    "tune": "_run",
}


def status_of(arguments: list[str]) -> int:
    try:
        cli.main(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_a_command_line_does_what_it_begins_with(page: str, command: str, in_tmp: Path, begun: list[str]) -> None:
    arguments = arguments_of(command)
    if len(arguments) == (2 if arguments[0] == "-m" else 1) and arguments != ["--resume"]:
        arguments += ["--help"]  # of what is spoken of without its arguments: `ding -m parallel`, `ding plot`
    if arguments == ["--resume"]:
        arguments.append("exp")
    if "exp/seed0" in arguments:  # one seed of several
        shutil.copytree("other", "exp/seed0")
    if arguments[0] == "check-env":
        arguments += ["--steps", "50"]
    has_fault = "my_module:MyEnv" in arguments

    assert status_of(arguments) == int(has_fault), page

    mode = arguments[1] if arguments[0] == "-m" else arguments[0]
    has_seeds = arguments.count("-s") > 1 or any(".." in word or re.fullmatch(r"\d+,.*", word) for word in arguments)
    if "--help" in arguments or "--dry-run" in arguments:
        assert begun == []
    elif mode == "dist":
        assert begun == [f"launch_{arguments[arguments.index('-M') + 1]}"]
    elif mode == "seed" and "-M" in arguments:
        assert begun == ["join_run"]
    elif has_seeds:
        assert begun == ["run_seeds"]
    else:
        assert set(begun) == ({BEGINS[mode]} if mode in BEGINS else set())


def test_the_check_of_the_environments_page_finds_what_it_shows(in_tmp: Path, capsys: Any) -> None:
    (command,) = {command for page, command in COMMANDS if page == "environments.md" and "my_module" in command}

    assert status_of([*arguments_of(command), "--steps", "100"]) == 1

    (shown,) = re.findall(r"fault    observation: (in step, .*?)  \(", (ROOT / "docs/environments.md").read_text())
    assert shown in capsys.readouterr().out


def test_pythons_blocks_are_all_known() -> None:
    pages = [page for page in PAGES if page.name not in RUN_WHOLE and page.parent.name != "algorithms"]
    found = {page.name: len(blocks(page, "python")) for page in pages}
    assert {name: count for name, count in found.items() if count} == {
        "README.md": 2,
        "buffers.md": 1,
        "environments.md": 3,
        "seeds.md": 1,
        "self_play.md": 2,
        "serve.md": 3,  # tests/serve/test_page.py runs them
        "use.md": 4,  # tests/docs/test_use_page.py runs them
        "weights.md": 4,
    }


def test_the_example_of_the_readme_trains(in_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, block = blocks(ROOT / "README.md", "python")
    pipeline = serial_entry.serial_pipeline

    def short(*args: Any, max_env_step: int, **kwargs: Any) -> Any:
        return pipeline(*args, max_env_step=min(max_env_step, 1100), **kwargs)

    monkeypatch.setattr(serial_entry, "write_pictures", lambda *args, **kwargs: None)
    monkeypatch.setattr(serial_entry, "serial_pipeline", short)
    exec(block, {})

    result = json.loads((in_tmp / "acrobot_dqn/result.json").read_text())
    assert result["env_step"] >= 1100 and result["train_iter"] >= 40


def test_the_two_lines_of_the_readme_train_and_act(in_tmp: Path, capsys: Any) -> None:
    block, _ = blocks(ROOT / "README.md", "python")

    exec(block.replace("20_000", "400"), {})

    value, action = capsys.readouterr().out.split()
    assert float(value) > 0 and action in ("0", "1")


@pytest.mark.learning
@pytest.mark.timeout(600)
def test_the_example_of_the_readme_solves_its_env(in_tmp: Path) -> None:
    _, block = blocks(ROOT / "README.md", "python")

    exec(block, {})

    result = json.loads((in_tmp / "acrobot_dqn/result.json").read_text())
    assert result["stop"] is True, "an evaluation reached stop_value"
    assert result["eval_value"] >= -100 and result["env_step"] < 60_000


@pytest.mark.learning
@pytest.mark.timeout(600)
def test_the_first_minute_ends_solved(in_tmp: Path) -> None:
    (command,) = {command for page, command in COMMANDS if page == "first_minute.md" and "--env-step 20000" in command}

    cli.main([*arguments_of(command), "--exp-name", "first"])

    result = json.loads((in_tmp / "first/result.json").read_text())
    assert result["stop"] is True and result["eval_value"] >= 475


@pytest.mark.slow
def test_the_example_of_the_seeds_page_is_an_experiment(in_tmp: Path) -> None:
    (block,) = blocks(ROOT / "docs/seeds.md", "python")
    names: dict[str, Any] = {}

    exec(block, names)

    assert len(names["experiment"].scores) == 2 and (in_tmp / "acrobot_seeds/scores.md").is_file()


def test_the_wrapper_of_the_environments_page_plays(in_tmp: Path) -> None:
    block, _, _ = blocks(ROOT / "docs/environments.md", "python")
    names: dict[str, Any] = {}

    exec(block, names)

    assert names["timestep"].reward.shape == (1,)
    names["env"].close()


@pytest.mark.slow
def test_the_manager_of_the_environments_page_records_in_processes(in_tmp: Path) -> None:
    _, block, _ = blocks(ROOT / "docs/environments.md", "python")
    names: dict[str, Any] = {}

    exec(block, names)

    assert sorted(names["timesteps"]) == [0, 1]
    assert all((in_tmp / f"video/env_{index}/episode_0.gif").is_file() for index in range(2))


def test_the_env_class_of_the_environments_page_reads_its_key() -> None:
    _, _, block = blocks(ROOT / "docs/environments.md", "python")
    exec(block, {})

    envs = [make_env(dict(type="slippery_lake", slippery=slippery)) for slippery in (False, True)]

    assert [env.spec.kwargs["is_slippery"] for env in envs if env.spec is not None] == [False, True]


def test_the_buffer_of_the_buffers_page_samples_the_newest(in_tmp: Path) -> None:
    (block,) = blocks(ROOT / "docs/buffers.md", "python")
    exec(block, {})

    buffer = create_buffer(dict(type="newest", replay_buffer_size=3000))
    buffer.push(TransitionBatch({"number": np.arange(3000)}), 0)
    sample: Any = buffer.sample(500, 0)

    assert sample["number"].min() >= 2000
    buffer.close()


def test_the_configs_of_the_self_play_page_compile(in_tmp: Path) -> None:
    shipped = read_config(TICTACTOE)
    first, league = blocks(ROOT / "docs/self_play.md", "python")
    names: dict[str, Any] = {"main_config": shipped.main_config}

    exec(first, names)
    assert compile_config(names["main_config"], names["create_config"], save=False).env.manager.type == "game"
    exec(league, names)
    cfg = compile_config(names["main_config"], names["create_config"], save=False)

    assert cfg.policy.other.league.main_player.one_phase_step == 2000


def test_the_weights_of_the_weights_page_arrive(tmp_path: Path, capsys: Any) -> None:
    module, memory, updater, system = blocks(ROOT / "docs/weights.md", "python")
    cfg = compile_config(*read_config(CARTPOLE)[:2], save=False)
    names: dict[str, Any] = {}

    exec(module, {})
    exec(memory.replace("run-1", f"page-{os.getpid()}"), {})
    exec(updater, {})
    exec(system, names)

    paths = {"path_data": str(tmp_path / "data"), "path_policy": str(tmp_path / "policy")}
    assert capsys.readouterr().out == "version 1\nversion 2\n"
    assert read_system({**names["system_config"], **paths}, cfg).weights == {"dtype": "exact", "delta": False}
