"""Config files written for DI-engine run as they are: what has no use here is named once, a misspelt key is an error.

`tests/config/di_engine/` holds files in the form in which DI-engine's users have them, written down from its
documentation, and `di_engine_files.py` variants of them; nothing in them is adapted to this package.
"""

from __future__ import annotations

import copy
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from ding_like.config import compile_config, read_config
from ding_like.config.di_engine import RENAMED_KEYS
from ding_like.config.tree import get_path, leaves, set_path
from ding_like.entry import serial_pipeline, serial_pipeline_onpolicy
from ding_like.entry.cli import main as ding
from ding_like.errors import ConfigError
from ding_like.policy import get_policy_cls
from tests.config.di_engine_files import FOLDER, names, write

# One of each kind runs in every test run, the others with those marked slow.
QUICK = {"cartpole_c51", "cartpole_ppo"}
# What stands for values that are no plain ones, or another form of ours: see RENAMED_KEYS for the others.
_SAID_OTHERWISE = {
    "policy.learn.lr_scheduler": "policy.learn.schedule",
    "policy.model.activation": "policy.model.activation",
}
_ABSENT = object()


def test_every_key_is_taken_over_or_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="ding_like")
    wrong: dict[str, object] = {}
    for name in names():
        main, create = read_config(write(name, tmp_path))
        caplog.clear()
        cfg = compile_config(main, create, source=name, save=False)

        listings = [message for message in caplog.messages if "\n" in message]
        said = {line.split()[0] for message in listings for line in message.splitlines()[1:]}
        lost = {path for path, value in leaves(main) if not (_is_taken(cfg, path, value) or said & _prefixes(path))}
        if any("torch sees no GPU" in message for message in caplog.messages):
            lost ^= {"policy.cuda"}
        # One message about keys ignored, one about those without effect.
        if lost or not len(listings) == len(set(listings)) <= 2:
            wrong[name] = sorted(lost) or listings

    assert not wrong


def _is_taken(cfg: Any, path: str, value: Any) -> bool:  # Any: a config, and what stands in one
    """Tell whether a value stands where the config says, or where the key stands here."""
    if value == {}:
        return True  # a section that says nothing
    for name, ours in _SAID_OTHERWISE.items():
        if path == name or path.startswith(f"{name}."):
            return get_path(cfg, ours) is not None
    return any(get_path(cfg, place, _ABSENT) == value for place in (path, RENAMED_KEYS.get(path, path)))


def _prefixes(path: str) -> set[str]:
    keys = path.split(".")
    return {".".join(keys[:end]) for end in range(1, len(keys) + 1)}


def test_a_misspelt_key_is_an_error_with_a_suggestion(tmp_path: Path) -> None:
    for name in names():
        main, create = (copy.deepcopy(config) for config in read_config(write(name, tmp_path)))
        batch_size = main["policy"]["learn"].pop("batch_size")
        set_path(main, "policy.learn.batch_sise", batch_size)

        with pytest.raises(ConfigError) as raised:
            compile_config(main, create, save=False)

        said = str(raised.value)
        assert re.search(r"policy\.learn\.batch_sise +unknown key; did you mean 'batch_size'", said), (name, said)
        assert said.startswith("1 problem in"), (name, said)


def of_td3(folder: Path, *, name: str = "pendulum_td3", entry: str = "serial_pipeline", keys: str = "") -> Path:
    """Return the path of a config of TD3 whose main calls `entry`; `keys` join its section `collect`."""
    text = (FOLDER / "pendulum_td3_config.py").read_text()
    path = folder / f"{name}_config.py"
    path.write_text(text.replace("serial_pipeline", entry).replace("n_sample=48,", f"n_sample=48, {keys}"))
    return path


@pytest.mark.parametrize(
    "changes, said",
    [
        (dict(entry="serial_pipeline_sqil"), "SQIL, imitation of an expert, as it calls serial_pipeline_sqil"),
        (
            dict(keys="model_path='expert.pth.tar',"),
            "learning from an expert (SQIL, GAIL, DQfD, ...), as it has policy.collect.model_path",
        ),
        (dict(name="pendulum_rnd_td3"), "RND, an exploration reward, as its name says"),
    ],
)
def test_a_config_of_a_method_that_is_not_here_is_refused(changes: Any, said: str, tmp_path: Path) -> None:
    path = of_td3(tmp_path, **changes)
    main, create = read_config(path)

    with pytest.raises(ConfigError, match=re.escape(f"{path.name} is a config of DI-engine for {said}.")) as raised:
        compile_config(main, create, source=str(path), save=False)

    assert "To train plain 'td3' by the rewards of the env, give --ignore-missing" in str(raised.value)


@pytest.mark.usefixtures("in_tmp", "no_pictures")
def test_the_plain_policy_of_a_missing_method_trains_where_that_is_asked_for(tmp_path: Path) -> None:
    path = of_td3(tmp_path, entry="serial_pipeline_gail", keys="model_path='expert.pth.tar',")
    with path.open("a") as file:
        file.write("\nmain_config.reward_model = dict(type='gail', input_size=4)\n")

    ding(["-m", "serial", "-c", str(path), "--ignore-missing", "--env-step", "48", "policy.random_collect_size=48"])

    assert json.loads((tmp_path / "pendulum_td3_seed0/result.json").read_text())["env_step"] >= 48


def test_a_file_that_collects_demonstrations_is_a_config_like_any_other(tmp_path: Path) -> None:
    path = of_td3(tmp_path, name="pendulum_offline_td3", entry="collect_demo_data", keys="data_path='demo',")
    main, create = read_config(path)

    assert compile_config(main, create, source=str(path), save=False).policy.type == "td3"


@pytest.mark.timeout(600)  # Pong's episodes are long, and its evaluations are its own
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else (pytest.mark.slow,)) for name in names()]
)
@pytest.mark.usefixtures("in_tmp", "no_pictures")
def test_the_file_trains_for_1000_env_steps(name: str, tmp_path: Path) -> None:
    path = write(name, tmp_path)
    main, create = read_config(path)
    is_on_policy = get_policy_cls(create["policy"]).default_config().on_policy
    pipeline = serial_pipeline_onpolicy if is_on_policy else serial_pipeline

    pipeline(str(path), seed=0, max_env_step=1000)

    result = json.loads((tmp_path / main["exp_name"] / "result.json").read_text())
    assert result["env_step"] >= 1000
    assert result["eval_value"] is not None
    again = read_config(tmp_path / main["exp_name"] / "total_config.py")
    saved = compile_config(again.main_config, again.create_config, save=False, renew_dir=False)
    assert not re.search(r"<class|object at 0x", str(saved))
