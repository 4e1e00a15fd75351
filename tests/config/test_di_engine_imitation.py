"""Config files of DI-engine that learn from an expert or by a reward model run by the mode that their main calls.

`tests/config/di_engine_imitation/` holds them in the form in which DI-engine's users have them, written down from its
documentation; nothing in them is adapted to this package.
"""

from __future__ import annotations

import copy
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from ding_like.config import FrozenConfig, compile_config, read_config
from ding_like.config.di_engine import RENAMED_KEYS
from ding_like.config.tree import get_path, leaves
from ding_like.entry.cli import main as ding
from ding_like.errors import ConfigError

FOLDER = Path(__file__).parent / "di_engine_imitation"
# File -> the mode that its main calls, and what the file has a class of.
FILES = {
    "cartpole_dqn_gail": ("serial_gail", "gail"),
    "lunarlander_dqn_gail": ("serial_gail", "gail"),
    "pendulum_sac_gail": ("serial_gail", "gail"),
    "cartpole_rnd_onppo": ("serial_reward_model", "rnd"),
    "cartpole_ppo_icm": ("serial_reward_model", "icm"),
    "cartpole_trex_dqn": ("serial_trex", "trex"),
    "cartpole_sqil": ("serial_sqil", "sqil"),
    "lunarlander_sqil": ("serial_sqil", "sqil"),
    "pendulum_sqil_sac": ("serial_sqil", "sqil_sac"),
    "cartpole_dqfd": ("serial_dqfd", "dqfd"),
}
_EXPERTS = {"cartpole": "cartpole_dqn", "lunarlander": "lunarlander_dqn", "pendulum": "pendulum_sac"}
# Keys that have another form here.
_OTHERWISE = {"reward_model.hidden_size": "reward_model.hidden_size_list"}


def file_of(name: str) -> Path:
    return FOLDER / f"{name}_config.py"


def learns_from_expert(name: str) -> bool:
    return FILES[name][0] != "serial_reward_model"


def compiled(name: str, main: Any = None) -> FrozenConfig:
    file = read_config(file_of(name))
    expert = {"expert": {"config": _EXPERTS[name.split("_")[0]]}} if learns_from_expert(name) else {}
    given = {**(main or file.main_config), **expert}
    return compile_config(given, file.create_config, source=str(file_of(name)), save=False)


def test_every_file_is_listed_with_its_mode() -> None:
    assert {path.name.removesuffix("_config.py") for path in FOLDER.glob("*_config.py")} == set(FILES)
    for name, (mode, _) in FILES.items():
        (entry,) = set(re.findall(r"serial_pipeline_(\w+)\(", file_of(name).read_text()))
        expected = {"serial_trex": "preference_based_irl", "serial_reward_model": "reward_model_onpolicy"}
        assert entry == expected.get(mode, mode.removeprefix("serial_"))


@pytest.mark.parametrize("name", FILES)
def test_every_key_is_taken_over_or_named(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="ding_like")
    main, _ = read_config(file_of(name))
    caplog.clear()

    cfg = compiled(name)

    listings = [message for message in caplog.messages if "\n" in message]
    named = {line.split()[0] for message in listings for line in message.splitlines()[1:]}
    for path, value in leaves(main):
        is_placeholder = isinstance(value, str) and "placeholder" in value
        is_moved = path in _OTHERWISE and get_path(cfg, _OTHERWISE[path]) == [value]
        is_taken = get_path(cfg, path) == value or path in named or is_moved
        assert is_placeholder or is_taken or _is_renamed(cfg, path, value), path
    data = f"{main['exp_name']}/expert_data.safetensors"
    if learns_from_expert(name):
        assert data in (get_path(cfg, "reward_model.data_path"), get_path(cfg, "policy.collect.data_path"))


def _is_renamed(cfg: FrozenConfig, path: str, value: Any) -> bool:
    return path in RENAMED_KEYS and get_path(cfg, RENAMED_KEYS[path]) == value


@pytest.mark.parametrize("name", FILES)
def test_a_misspelt_key_is_an_error_with_a_suggestion(name: str) -> None:
    main = copy.deepcopy(read_config(file_of(name)).main_config)
    section = "reward_model" if "reward_model" in main else "policy.learn"
    place: Any = get_path(main, section)
    key = "batch_size" if "batch_size" in place else "learning_rate"
    place[f"{key}s"] = place.pop(key)

    with pytest.raises(ConfigError, match=rf"{section}\.{key}s +unknown key; did you mean '{key}'"):
        compiled(name, main)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "cartpole_dqn_gail" else pytest.mark.slow) for name in FILES]
)
@pytest.mark.usefixtures("in_tmp", "no_pictures")
def test_the_file_runs_by_its_mode(name: str) -> None:
    exp_name, more = read_config(file_of(name)).main_config["exp_name"], []
    if learns_from_expert(name):
        more = [f"expert.config={_EXPERTS[name.split('_')[0]]}", "expert.env_step=3000", "expert.num_episodes=2"]

    ding(["-m", FILES[name][0], "-c", str(file_of(name)), "--env-step", "500", *more])

    assert json.loads(Path(exp_name, "result.json").read_text())["env_step"] >= 500
    assert Path(exp_name, "expert_data.safetensors").is_file() == learns_from_expert(name)


def ngu_config(**policy: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    both = dict(intrinsic_reward_type="add", obs_shape=4, action_shape=2, batch_size=32, hidden_size_list=[16, 16])
    main = dict(
        exp_name="ngu",
        env=dict(collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2, stop_value=195),
        rnd_reward_model=dict(**both, learning_rate=5e-4, type="rnd-ngu"),
        episodic_reward_model=dict(**both, learning_rate=1e-4, last_nonzero_reward_weight=1, type="episodic"),
        policy=dict(priority=True, priority_IS_weight=True, nstep=1, discount_factor=0.997, **policy),
    )
    env = dict(type="cartpole", import_names=["dizoo.classic_control.cartpole.envs.cartpole_env"])
    create = dict(env=env, policy=dict(type="ngu"))
    return main, create | dict(rnd_reward_model=dict(type="rnd-ngu"), episodic_reward_model=dict(type="episodic"))


def test_the_two_reward_models_of_ngu_are_read_as_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="ding_like")
    main, create = ngu_config()

    cfg = compile_config(main, create, save=False)

    assert (cfg.reward_model.type, cfg.reward_model.learning_rate) == ("ngu", 5e-4)
    assert cfg.reward_model.hidden_size_list == [16, 16]
    (message,) = [each for each in caplog.messages if "type='ngu'" in each]
    assert message.endswith("are left out: learning_rate=0.0001, last_nonzero_reward_weight=1")


def test_several_steps_of_ngu_and_a_third_reward_model_are_refused() -> None:
    main, create = ngu_config()
    with pytest.raises(ConfigError, match=r"policy\.nstep +must be 1, got 5: rewards are given step by step"):
        compile_config({**main, "policy": {**main["policy"], "nstep": 5}}, create, save=False)
    with pytest.raises(ConfigError, match=r"rnd_reward_model +unknown"):
        compile_config({**main, "reward_model": {"type": "rnd"}}, create, save=False)


@pytest.mark.slow
@pytest.mark.usefixtures("in_tmp", "no_pictures")
def test_a_config_of_ngu_runs_by_its_mode() -> None:
    small = dict(model=dict(encoder_hidden_size_list=[16, 16]), collect=dict(n_sample=8), learn=dict(batch_size=8))
    Path("config.py").write_text("main_config, create_config = {!r}, {!r}\n".format(*ngu_config(**small)))

    ding(["-m", "serial_ngu", "-c", "config.py", "--env-step", "500"])

    assert json.loads(Path("ngu/result.json").read_text())["env_step"] >= 500
