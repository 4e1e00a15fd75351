"""Every example in Python of README and docs runs, cut short; marked `learning`, it is run to what it promises."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from torch import nn

from ding_like.config import compile_config, read_config
from ding_like.data.batch import TransitionBatch
from ding_like.entry import cli, serial_entry
from ding_like.envs import check_env, make_env
from ding_like.envs.adapters import as_lane_env
from ding_like.envs.team import Team
from ding_like.pipeline.parallel.settings import WeightSettings, read_system
from ding_like.pipeline.settings import RankSettings, read_ranks
from ding_like.worker import create_buffer
from tests.docs.test_commands import CARTPOLE, PAGES, ROOT
from tests.docs.test_walked_pages import WALKED, own_modules

# tests/serve/test_page.py runs serve.md, test_walked_pages.py runs use.md, others are run here.
WITH_PYTHON = (
    "README.md buffers.md environments.md first_minute.md imitation.md ranks.md ray_parts.md resume.md seed_agent.md "
    "seeds.md self_play.md serve.md teams.md trackers.md use.md weights.md"
).split()
TICTACTOE = ROOT / "dizoo/petting_zoo/config/tictactoe_dqn_config.py"
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


def blocks(page: str) -> list[str]:
    """Return the blocks of Python of a page of docs, or of the README."""
    path = ROOT / page if page == "README.md" else ROOT / "docs" / page
    return re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)


@pytest.fixture(autouse=True)
def here(in_tmp: Path) -> Iterator[Path]:
    """Work in a folder that holds the repository's configs."""
    (in_tmp / "dizoo").symlink_to(ROOT / "dizoo")
    with own_modules():
        yield in_tmp


def test_every_page_with_python_is_run() -> None:
    pages = [page for page in PAGES if page.name not in WALKED and page.parent.name != "algorithms"]

    assert sorted(page.name for page in pages if "```python" in page.read_text()) == WITH_PYTHON


def test_the_two_lines_of_the_readme_train_and_act(capsys: Any) -> None:
    block, _ = blocks("README.md")

    exec(block.replace("20_000", "400"), {})

    value, action = capsys.readouterr().out.split()
    assert float(value) > 0 and action in ("0", "1")


def test_the_example_of_the_readme_trains(here: Path, no_pictures: None, monkeypatch: pytest.MonkeyPatch) -> None:
    _, block = blocks("README.md")
    pipeline = serial_entry.serial_pipeline

    def short(*args: Any, max_env_step: int, **kwargs: Any) -> Any:
        return pipeline(*args, max_env_step=min(max_env_step, 1100), **kwargs)

    monkeypatch.setattr(serial_entry, "serial_pipeline", short)
    exec(block, {})

    result = json.loads((here / "acrobot_dqn/result.json").read_text())
    assert result["env_step"] >= 1100 and result["train_iter"] >= 40


@pytest.mark.learning
@pytest.mark.timeout(600)
def test_the_example_of_the_readme_solves_its_env(here: Path) -> None:
    _, block = blocks("README.md")

    exec(block, {})

    result = json.loads((here / "acrobot_dqn/result.json").read_text())
    assert result["stop"] is True, "an evaluation reached stop_value"
    assert result["eval_value"] >= -100 and result["env_step"] < 60_000


@pytest.mark.learning
@pytest.mark.timeout(600)
def test_the_first_minute_ends_solved(here: Path) -> None:
    assert "-s 0 --env-step 20000" in (ROOT / "docs/first_minute.md").read_text()

    cli.main(["-m", "serial", "-c", str(CARTPOLE), "-s", "0", "--env-step", "20000", "--exp-name", "first"])

    result = json.loads((here / "first/result.json").read_text())
    assert result["stop"] is True and result["eval_value"] >= 475


def test_the_line_of_the_first_minute_adds_a_handler() -> None:
    (block,) = blocks("first_minute.md")
    root = logging.getLogger("ding_like")
    before = list(root.handlers)

    exec(block, {})

    (added,) = [handler for handler in root.handlers if handler not in before]
    assert isinstance(added, logging.NullHandler)
    root.removeHandler(added)


def test_the_pair_of_the_resume_page_saves_and_loads() -> None:
    (block,) = blocks("resume.md")
    names: dict[str, Any] = {}
    exec(block, names)
    saved, fresh = (SimpleNamespace(_model=nn.Linear(2, 2), _target=nn.Linear(2, 2), _updates=n) for n in (7, 0))

    names["_load_state_dict_learn"](fresh, names["_state_dict_learn"](saved))

    assert fresh._updates == 7 and bool((fresh._target.weight == saved._target.weight).all())


def test_the_examples_of_the_imitation_page_play_and_learn(here: Path, no_pictures: None) -> None:
    config, collect, call = blocks("imitation.md")
    names: dict[str, Any] = {}
    exec(config, names)
    main, create = names["main_config"], names["create_config"]
    names["config"], names["expert_config"] = (main, create), ({"env": main["env"]}, create)
    serial_entry.serial_pipeline(names["expert_config"], max_env_step=100, exp_name="expert")

    exec(collect, names)
    main["expert"] |= {"env_step": 100, "num_episodes": 2}
    exec(call.replace("100_000", "100"), names)

    assert len(names["demonstrations"].returns) == 20
    assert (here / "gail/expert/result.json").is_file() and (here / "gail/result.json").is_file()


@pytest.mark.slow
def test_the_example_of_the_seeds_page_is_an_experiment(here: Path) -> None:
    (block,) = blocks("seeds.md")
    names: dict[str, Any] = {}

    exec(block, names)

    assert len(names["experiment"].scores) == 2 and (here / "acrobot_seeds/scores.md").is_file()


def test_the_check_of_the_environments_page_finds_what_it_shows(here: Path, capsys: Any) -> None:
    page = (ROOT / "docs/environments.md").read_text()
    assert "ding check-env my_module:MyEnv size=8" in page
    (here / "my_module.py").write_text(MY_MODULE)

    with pytest.raises(SystemExit):
        cli.main(["check-env", "my_module:MyEnv", "size=8", "--steps", "100"])

    (shown,) = re.findall(r"fault    observation: (in step, .*?)  \(", page)
    assert shown in capsys.readouterr().out


def test_the_wrapper_and_the_env_class_of_the_environments_page_play() -> None:
    wrapper, _, env_class = blocks("environments.md")
    names: dict[str, Any] = {}

    exec(wrapper, names)
    exec(env_class, {})
    envs = [make_env(dict(type="slippery_lake", slippery=slippery)) for slippery in (False, True)]

    assert names["timestep"].reward.shape == (1,)
    assert [env.spec.kwargs["is_slippery"] for env in envs if env.spec is not None] == [False, True]
    names["env"].close()


@pytest.mark.slow
def test_the_manager_of_the_environments_page_records_in_processes(here: Path) -> None:
    _, block, _ = blocks("environments.md")
    names: dict[str, Any] = {}

    exec(block, names)

    assert sorted(names["timesteps"]) == [0, 1]
    assert all((here / f"video/env_{index}/episode_0.gif").is_file() for index in range(2))


def test_the_buffer_of_the_buffers_page_samples_the_newest() -> None:
    (block,) = blocks("buffers.md")
    exec(block, {})

    buffer = create_buffer(dict(type="newest", replay_buffer_size=3000))
    buffer.push(TransitionBatch({"number": np.arange(3000)}), 0)
    sample: Any = buffer.sample(500, 0)

    assert sample["number"].min() >= 2000
    buffer.close()


def test_the_configs_of_the_self_play_page_compile() -> None:
    first, league = blocks("self_play.md")
    names: dict[str, Any] = {"main_config": read_config(TICTACTOE).main_config}

    exec(first, names)
    assert compile_config(names["main_config"], names["create_config"], save=False).env.manager.type == "game"
    exec(league, names)
    cfg = compile_config(names["main_config"], names["create_config"], save=False)

    assert cfg.policy.other.league.main_player.one_phase_step == 2000


def test_the_env_of_the_teams_page_is_a_team_without_a_fault() -> None:
    (block,) = blocks("teams.md")
    names: dict[str, Any] = {}
    exec(block, names)

    team = as_lane_env(names["MyTeam"]())
    assert isinstance(team, Team) and team.num_agents == 3
    assert [each for each in check_env(names["MyTeam"], num_steps=60) if each.level == "fault"] == []


def test_the_trackers_of_the_page_fit_a_config() -> None:
    (block,) = blocks("trackers.md")
    names: dict[str, Any] = {}
    exec(block, names)

    cfg = compile_config(names["main_config"], read_config(CARTPOLE).create_config, save=False)

    assert cfg.trackers.wandb.entity == "my-team" and cfg.trackers.mlflow.experiment == "pole"


def test_the_weights_of_the_weights_page_arrive(tmp_path: Path, capsys: Any) -> None:
    module, updater, system = blocks("weights.md")
    cfg = compile_config(*read_config(CARTPOLE)[:2], save=False)
    names: dict[str, Any] = {}

    exec(module, {})
    exec(updater, {})
    exec(system, names)

    paths = {"path_data": str(tmp_path / "data"), "path_policy": str(tmp_path / "policy")}
    assert capsys.readouterr().out == "version 1\nversion 2\n"
    assert read_system({**names["system_config"], **paths}, cfg).weights == WeightSettings("exact", delta=False)


def test_the_settings_of_the_ranks_page_are_the_defaults() -> None:
    (block,) = blocks("ranks.md")
    names: dict[str, Any] = {}
    exec(block, names)

    assert read_ranks(names["system_config"], compile_config(*read_config(CARTPOLE)[:2], save=False)) == RankSettings()
