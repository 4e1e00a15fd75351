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
from ding_like.utils.registries import POLICY_REGISTRY, REWARD_MODEL_REGISTRY

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
# Classes that are not here yet.
WAITS_FOR = ("rnd", "icm", "trex", "sqil", "sqil_sac", "dqfd")
_EXPERTS = {"cartpole": "cartpole_dqn", "lunarlander": "lunarlander_dqn", "pendulum": "pendulum_sac"}
# Keys that have another form here.
_OTHERWISE = {"reward_model.hidden_size": "reward_model.hidden_size_list"}


def marked(name: str, *marks: pytest.MarkDecorator) -> Any:  # Any: of pytest
    kind = FILES[name][1]
    is_waiting = kind in WAITS_FOR and kind not in (*REWARD_MODEL_REGISTRY.names(), *POLICY_REGISTRY.names())
    return pytest.param(name, marks=(*marks, *([pytest.mark.skip(f"waits for '{kind}'")] if is_waiting else [])))


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


@pytest.mark.parametrize("name", [marked(name) for name in FILES])
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


@pytest.mark.parametrize("name", [marked(name) for name in FILES])
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
    "name", [marked(name, *([] if name == "cartpole_dqn_gail" else [pytest.mark.slow])) for name in FILES]
)
@pytest.mark.usefixtures("in_tmp", "no_pictures")
def test_the_file_runs_by_its_mode(name: str) -> None:
    exp_name, more = read_config(file_of(name)).main_config["exp_name"], []
    if learns_from_expert(name):
        more = [f"expert.config={_EXPERTS[name.split('_')[0]]}", "expert.env_step=3000", "expert.num_episodes=2"]

    ding(["-m", FILES[name][0], "-c", str(file_of(name)), "--env-step", "500", *more])

    assert json.loads(Path(exp_name, "result.json").read_text())["env_step"] >= 500
    assert Path(exp_name, "expert_data.safetensors").is_file() == learns_from_expert(name)
