"""What a config file registers, and modules beside it, are known in every process that reads the compiled config."""

from __future__ import annotations

import functools
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from ding_like.config import compile_config, read_config
from ding_like.envs import create_env_manager, get_vec_env_setting
from ding_like.errors import RegistryError
from ding_like.utils.registries import POLICY_REGISTRY, hint_of_missing

ROOT = Path(__file__).parents[2]

ENV = """
import gymnasium
import numpy as np


class {name}(gymnasium.Env):
    def __init__(self, size=3):
        self.observation_space = gymnasium.spaces.Box(0, 9, (size,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(self.observation_space.shape, np.float32), {{}}

    def step(self, action):
        self.time += 1
        return np.full(self.observation_space.shape, self.time, np.float32), 1.0, self.time == 9, False, {{}}
"""
WRAPPER = """
class Half(gymnasium.RewardWrapper):
    def reward(self, reward):
        return reward / 2
"""
CONFIG = """
main_config = dict(
    exp_name="own",
    env=dict({env} collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2, stop_value=99),
    policy=dict({policy} collect=dict(n_sample=8)),
)
create_config = dict(env=dict({create}), policy=dict(type={type!r}))
"""


def write(file: Path, text: str, *, env: str = "", policy: str = "", create: str, type: str = "dqn") -> Path:
    file.write_text(text + CONFIG.format(env=env, policy=policy, create=create, type=type))
    return file


def run_ding(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ding_like.entry.cli", *arguments],
        cwd=cwd,
        env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin", "HOME": str(cwd)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def own_id(tmp_path: Path) -> Path:
    text = ENV.format(name="Clock") + '\ngymnasium.register("Clock-v0", entry_point=Clock)\n'
    return write(tmp_path / "own_id_config.py", text, env='env_id="Clock-v0",', create='type="gymnasium"')


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """Return a config whose env, wrapper and policy are in a module beside it, by their import path."""
    policy = "\nfrom ding_like.policy.dqn import DQNPolicy\n\n\nclass Mine(DQNPolicy):\n    pass\n"
    (tmp_path / "beside_parts.py").write_text(ENV.format(name="Clock") + WRAPPER + policy)
    return write(
        tmp_path / "beside_config.py",
        "",
        env='wrappers=[dict(type="beside_parts:Half")],',
        create='type="beside_parts:Clock"',
        type="beside_parts:Mine",
    )


def test_a_file_that_registers_an_id_joins_the_import_names_of_the_env(own_id: Path) -> None:
    create = read_config(own_id).create_config

    assert create["env"]["import_names"] == [str(own_id)]
    assert "import_names" not in create["policy"]


def test_a_file_that_is_read_again_is_known_again_without_a_warning(own_id: Path) -> None:
    read_config(own_id)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = read_config(own_id).create_config

    assert again["env"]["import_names"] == [str(own_id)]


def test_a_file_that_registers_nothing_stays_as_it_is(tmp_path: Path) -> None:
    file = write(tmp_path / "plain_config.py", "", env='env_id="CartPole-v1",', create='type="gymnasium"')

    assert read_config(file).create_config == dict(env=dict(type="gymnasium"), policy=dict(type="dqn"))


@pytest.mark.parametrize(
    ("decorator", "part"),
    [("POLICY_REGISTRY", "policy"), ("MODEL_REGISTRY", "policy"), ("BUFFER_REGISTRY", "replay_buffer")],
)
def test_a_class_joins_the_part_that_builds_it(tmp_path: Path, decorator: str, part: str) -> None:
    name = f"own_{decorator.lower()}"
    registers = f"@{decorator}.register({name!r})\nclass Own:\n    pass\n"
    text = f"from ding_like.utils.registries import {decorator}\n\n\n{registers}"
    file = write(tmp_path / f"{name}_config.py", text, env='env_id="CartPole-v1",', create='type="gymnasium"')

    create = read_config(file).create_config

    assert create[part]["import_names"] == [str(file)]
    assert "import_names" not in create["env"]


def test_the_folder_joins_where_a_module_beside_the_config_is_named(beside: Path) -> None:
    cfg = compile_config(*read_config(beside), save=False, quiet=True)

    assert cfg.env.import_names == cfg.policy.import_names == [str(beside.parent)]


def test_a_python_file_may_be_an_import_name(tmp_path: Path) -> None:
    (tmp_path / "by_file.py").write_text(ENV.format(name="Clock"))
    file = tmp_path / "by_file_config.py"
    write(file, "", create='type="gymnasium", env_id="CartPole-v1", import_names=["by_file.py"]')

    assert read_config(file).create_config["env"]["import_names"] == [str(tmp_path / "by_file.py")]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_run_with_own_code_is_the_same_in_processes_and_from_its_saved_config(own_id: Path, beside: Path) -> None:
    """One run in env processes of an id of the config file; then the saved config of another, from another folder."""
    folder = own_id.parent
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()

    run_ding("-m", "serial", "-c", str(own_id), "--env-step", "32", "create.env_manager.type=subprocess", cwd=elsewhere)
    saved = str(elsewhere / "own/total_config.py")
    run_ding("-m", "serial", "-c", saved, "--env-step", "32", "--exp-name", "again", cwd=folder)
    run_ding("-m", "serial", "-c", str(beside), "--env-step", "32", "--exp-name", "paths", cwd=elsewhere)

    assert (folder / "again/result.json").is_file() and (elsewhere / "paths/result.json").is_file()


def test_envs_of_own_code_are_made_in_other_processes(own_id: Path, beside: Path) -> None:
    for config in (own_id, beside):
        cfg = compile_config(*read_config(config), save=False, quiet=True)
        env_fn, env_cfgs, _ = get_vec_env_setting(cfg.env)

        with create_env_manager(dict(type="subprocess"), [functools.partial(env_fn, env_cfgs[0])]) as manager:
            manager.launch()
            batch = manager.step(np.arange(1), np.zeros(1, np.int64))

        assert batch.next_obs.tolist() == [[1.0, 1.0, 1.0]]
        assert batch.reward.tolist() == [1.0 if config is own_id else 0.5]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", ["parallel", "seed", pytest.param("ray", marks=pytest.mark.ray)])
def test_own_code_is_known_to_the_workers_of_every_mode(mode: str, own_id: Path, beside: Path) -> None:
    elsewhere = own_id.parent / "elsewhere"
    elsewhere.mkdir()

    for config in (own_id, beside):
        run_ding("-m", mode, "-c", str(config), "--env-step", "64", "--exp-name", config.stem, cwd=elsewhere)

    assert (elsewhere / "own_id_config/result.json").is_file() and (elsewhere / "beside_config/result.json").is_file()


def test_an_unknown_name_says_how_to_name_a_class_of_ones_own() -> None:
    with pytest.raises(RegistryError) as caught:
        POLICY_REGISTRY.get("my_policy_of_mine")

    said = str(caught.value)
    assert all(
        part in said for part in ("module:Class", "@POLICY_REGISTRY.register('my_policy_of_mine')", "import_names")
    )
    assert "no module ding_like.policy.my_policy_of_mine" not in said


def test_a_missing_module_says_where_python_looked_and_what_is_near(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_walkers.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))

    with pytest.raises(RegistryError, match=rf"did you mean 'my_walkers'\?.*python looked in .*{tmp_path}"):
        POLICY_REGISTRY.get("walk", ["my_walker"])
    with pytest.raises(RegistryError, match="my_walkers"):
        POLICY_REGISTRY.get("my_walker:Walk")
    assert hint_of_missing("my_walker").startswith("; did you mean 'my_walkers'? (python looked in ")
