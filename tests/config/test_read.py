"""A config file gives its configs, or one clear error."""

from __future__ import annotations

import functools
import math
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ding_like.config import FrozenConfig, compile_config, read_config
from ding_like.config.read import apply_overrides, parse_value
from ding_like.config.report import find_lines
from ding_like.config.tree import literal
from ding_like.envs import create_env_manager, get_vec_env_setting
from ding_like.errors import ConfigError, RegistryError
from ding_like.utils.registries import POLICY_REGISTRY, hint_of_missing


def written(folder: Path, text: str, name: str = "some_config.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_file_unpacks_into_two_configs_as_scripts_of_di_engine_expect(tmp_path: Path) -> None:
    path = written(tmp_path, "main_config = dict(a=1)\ncreate_config = {'b': 2}\nsystem_config = {'c': 3}\n")

    main, create = file = read_config(path)

    assert (main, create, file.system_config) == ({"a": 1}, {"b": 2}, {"c": 3})


def test_main_block_does_not_run(tmp_path: Path) -> None:
    path = written(tmp_path, "main_config = create_config = {}\nif __name__ == '__main__':\n    raise SystemExit\n")

    assert read_config(path).main_config == {}


def test_file_may_import_modules_beside_it(tmp_path: Path) -> None:
    written(tmp_path, "SIZE = 3\n", "sizes_beside.py")
    path = written(tmp_path, "from sizes_beside import SIZE\nmain_config = dict(size=SIZE)\ncreate_config = {}\n")

    assert read_config(path).main_config == {"size": 3}


def test_what_is_no_config_file_is_one_error_with_its_line_or_fix(tmp_path: Path) -> None:
    written(tmp_path, "", "cartpole_dqn_config.py")
    written(tmp_path, "main_config = {}\ncreate_config = dict(\n", "syntax.py")
    written(tmp_path, "main_config = {}\nimport package_that_is_not_installed\n", "imports.py")
    written(tmp_path, "cartpole_config = dict()\ncreate_config = dict()\n", "named.py")
    written(tmp_path, "main_config = [1]\ncreate_config = {}\n", "listed.py")
    for name, message in (
        ("cartpole_dqm_config.py", "no config file .*cartpole_dqm_config.py'; did you mean .*cartpole_dqn"),
        ("config.yaml", "a config is a Python file with the ending .py"),
        ("", "is a folder; give a config file, such as cartpole_dqn_config.py"),
        ("syntax.py", r"syntax.py, line 2: "),
        ("imports.py", r"line 2: ModuleNotFoundError: .*package_that_is_not_installed"),
        ("named.py", "defines no main_config; is it 'c.*_config'"),
        ("listed.py", "main_config must be a dict or an EasyDict, got list"),
    ):
        with pytest.raises(ConfigError, match=message) as caught:
            read_config(tmp_path / name)
        assert isinstance(caught.value.__cause__, ModuleNotFoundError) == (name == "imports.py")
    with pytest.raises(ConfigError, match="dizoo.*pendulum_sac_config.py"):  # a shipped one
        read_config("pendulum_sac_confg.py")


def test_second_reading_sees_the_changed_file(tmp_path: Path) -> None:
    path = written(tmp_path, "main_config = dict(a=1)\ncreate_config = {}\n")
    read_config(path)

    written(tmp_path, "main_config = dict(a=2)\ncreate_config = {}\n")

    assert read_config(path).main_config == {"a": 2}


SPELLINGS = """\
from easydict import EasyDict
base = {"a": 1, "nested": {
    "b": 2}}
more = dict(
    c=3)
main_config = EasyDict(dict(
    **more,
    first=base,
    d=dict(x=1) | {
        "y": 2},
))
main_config.first.e = 5
main_config["first"]["f"] = 6
create_config: dict = {}
create_config: dict = EasyDict(policy=dict(
    type="dqn"))
create_config = EasyDict(create_config)
"""


def test_lines_are_found_however_a_dict_is_spelled(tmp_path: Path) -> None:
    for path, line in [
        ("c", 5),
        ("first", 8),
        ("first.a", 2),
        ("first.nested.b", 3),
        ("d.x", 9),
        ("d.y", 10),
        ("first.e", 12),
        ("first.f", 13),
        ("create_config.policy.type", 16),
    ]:
        assert find_lines(str(written(tmp_path, SPELLINGS)))[path] == line


def test_value_is_a_literal_or_text() -> None:
    for raw, expected in [
        ("128", 128),
        ("-1", -1),
        ("3e-4", 3e-4),
        ("True", True),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("None", None),
        ("inf", math.inf),
        ("-inf", -math.inf),
        ("[128, 64]", [128, 64]),
        ("(1,)", (1,)),
        ("{'a': 1}", {"a": 1}),
        ("'128'", "128"),
        ("CartPole-v1", "CartPole-v1"),
        ("a=b", "a=b"),
        ("", ""),
        ("[1", "[1"),
        ("{[1]: 2}", "{[1]: 2}"),
    ]:
        value = parse_value(raw)

        assert value == expected
        assert type(value) is type(expected)


def test_override_wins_over_the_file_and_one_with_a_dict_is_merged(create: dict[str, Any]) -> None:
    main = {"policy": {"learn": {"batch_size": 32, "learning_rate": 0.1}}}

    for override, batch_size in (("policy.learn.batch_size=128", 128), ("policy.learn={'batch_size': 2}", 2)):
        learn = compile_config(main, create, overrides=[override], save=False).policy.learn
        assert (learn.batch_size, learn.learning_rate) == (batch_size, 0.1)


def test_last_of_two_overrides_wins_and_is_named(create: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    overrides = ["policy.nstep=2", "policy.nstep=3", "policy.nstep=3", "seed=1", "seed=1"]

    cfg = compile_config({}, create, overrides=overrides, save=False)

    assert cfg.policy.nstep == 3
    assert caplog.messages == ["policy.nstep=3 replaces policy.nstep=2: the last one holds"]


def test_a_single_override_replaces_nothing_even_if_it_is_not_equal_to_itself() -> None:
    applied = apply_overrides(["env.stop_value=nan"], {}, {}, [])

    assert applied["env.stop_value"].replaced == ""


def test_override_takes_a_text_as_it_is_and_a_class_wherever_it_is_named(create: dict[str, Any]) -> None:
    cfg = compile_config({}, create, overrides=["exp_name=007", "env.env_id=1e3"], save=False)
    assert (cfg.exp_name, cfg.env.env_id) == ("007", "1e3")

    main, given = {"env": {"type": "cfg_env"}}, {**create, "env": {"type": "cfg_env"}}
    assert compile_config(main, given, overrides=["env.type=cfg_open"], save=False).env.type == "cfg_open"


def test_faulty_override_is_named(create: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        compile_config({}, create, overrides=["policy.learn.batchsize=3", "policy.nstep=x"], save=False)

    text = str(caught.value)
    assert "did you mean 'batch_size' (default 64)? (override policy.learn.batchsize=3)" in text
    assert "expected int, got str 'x' (override policy.nstep=x)" in text


def test_argument_that_is_no_override_is_told(create: dict[str, Any]) -> None:
    for text in ["policy.nstep", "=3", "policy..nstep=3", ".nstep=3"]:
        with pytest.raises(ConfigError, match="is not an override; write path.to.key=value"):
            compile_config({}, create, overrides=[text], save=False)


def test_override_of_an_original_changes_its_copy_and_one_of_the_copy_is_refused(create: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="is a copy of env.n_evaluator_episode; set that instead"):
        compile_config({}, create, overrides=["policy.eval.evaluator.n_episode=50"], save=False)
    saved = compile_config({}, create, save=False)

    cfg = compile_config(saved, create, overrides=["env.n_evaluator_episode=50"], save=False)

    assert cfg.policy.eval.evaluator.n_episode == 50


FILES = ("total_config.py", "formatted_total_config.py")


def compiled_again(path: Path, **kwargs: Any) -> FrozenConfig:
    saved = read_config(path)
    return compile_config(saved.main_config, saved.create_config, renew_dir=False, save=False, **kwargs)


@pytest.mark.parametrize("name", FILES)
def test_saved_file_compiles_to_an_equal_config(create: dict[str, Any], name: str) -> None:
    create["policy"]["type"] = "cfg_fake_command"
    main = {
        "exp_name": "deep/run",
        "env": {"stop_value": float("inf"), "kwargs": {"x": -float("inf"), "size": (3,), "name": 'it\'s "so"\n'}},
        "policy": {"unroll_len": 4, "collect": {"n_episode": 3}, "model": {"hidden": [128, 64]}},
    }

    cfg = compile_config(main, create, seed=7, overrides=["policy.learn.batch_size=8"])

    assert compiled_again(Path("deep/run") / name) == cfg


def test_saved_files_name_their_folder_and_which_values_are_overrides(create: dict[str, Any]) -> None:
    compile_config({"exp_name": "run"}, create)
    overrides = ["policy.learn.batch_size=8", "create.env.type=cfg_open"]
    cfg = compile_config({"exp_name": "run"}, create, overrides=overrides)

    assert read_config(Path(cfg.exp_name) / "total_config.py").main_config["exp_name"] == cfg.exp_name
    text = (Path(cfg.exp_name) / "formatted_total_config.py").read_text()
    assert '"batch_size": 8,  # override: "policy.learn.batch_size=8"\n' in text
    assert '"type": "cfg_open",  # override: "create.env.type=cfg_open"\n' in text


def test_diff_lists_exactly_what_differs_from_the_defaults(create: dict[str, Any]) -> None:
    main = {"exp_name": "run", "env": {"stop_value": 475}, "policy": {"nstep": 1, "learn": {"batch_size": 8}}}

    compile_config(main, create, seed=3)

    rows = [line.split() for line in Path("run/config_diff.txt").read_text().splitlines()]
    assert rows[0] == ["key", "default", "value"]
    changed = {row[0]: row[1:] for row in rows[1:] if not row[0].endswith(".type")}
    assert changed == {
        "exp_name": ['"default_experiment"', '"run"'],
        "seed": ["0", "3"],
        "env.stop_value": ["10000000000.0", "475.0"],
        "policy.learn.batch_size": ["64", "8"],
        "policy.eval.evaluator.stop_value": ["10000000000.0", "475.0"],
    }


def test_folder_that_cannot_be_written_is_told(create: dict[str, Any]) -> None:
    Path("run").mkdir()
    (Path("run") / "total_config.py").mkdir()

    with pytest.raises(ConfigError, match=r"cannot write total_config.py in 'run'"):
        compile_config({"exp_name": "run"}, create, renew_dir=False)


KEYS = st.from_regex(r"[a-z][a-z0-9_/ é'\"-]{0,8}", fullmatch=True).filter(lambda key: not hasattr(dict, key))
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10) | st.binary(max_size=5)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple) | st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=20,
)
TREES = st.dictionaries(KEYS, VALUES, max_size=5)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=TREES)
def test_any_free_section_survives_saving_and_reading(create: dict[str, Any], tree: dict[str, Any]) -> None:
    cfg = compile_config({"exp_name": "run", "policy": {"model": tree}}, create, renew_dir=False)

    for name in FILES:
        # As text: NaN is not equal to itself.
        assert literal(compiled_again(Path("run") / name)) == literal(cfg)


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


def test_a_file_that_registers_an_id_joins_the_import_names_of_the_env_whenever_it_is_read(own_id: Path) -> None:
    create = read_config(own_id).create_config

    assert create["env"]["import_names"] == [str(own_id)]
    assert "import_names" not in create["policy"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_config(own_id).create_config == create


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


def test_a_missing_module_says_where_python_looked_and_what_is_near(tmp_path, monkeypatch) -> None:
    (tmp_path / "my_walkers.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))

    with pytest.raises(RegistryError, match=rf"did you mean 'my_walkers'.*python looked in .*{tmp_path}"):
        POLICY_REGISTRY.get("walk", ["my_walker"])
    with pytest.raises(RegistryError, match="my_walkers"):
        POLICY_REGISTRY.get("my_walker:Walk")
    assert hint_of_missing("my_walker").startswith("; did you mean 'my_walkers'? (python looked in ")
