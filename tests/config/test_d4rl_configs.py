"""Configs in DI-engine's form on D4RL's ids run unchanged on data of one's own."""

from __future__ import annotations

import json
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from ding_like.config import compile_config, read_config
from ding_like.data.demonstrations import Demonstrations
from ding_like.entry import serial_pipeline_offline
from ding_like.errors import ConfigError

pytest.importorskip("mujoco")
pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")

FOLDER = Path(__file__).parent / "d4rl_files"
CONFIGS = sorted(FOLDER.glob("*_config.py"))
SMALL = ["policy.cuda=False", "env.evaluator_env_num=1", "env.n_evaluator_episode=1", "env.manager.type=base"]


@pytest.fixture
def data(in_tmp: Path) -> None:
    for name, env_id in (("hopper", "Hopper-v5"), ("halfcheetah", "HalfCheetah-v5")):
        env = gymnasium.make(env_id, max_episode_steps=100)
        env.action_space.seed(0)
        rows: dict[str, list[object]] = {key: [] for key in ("obs", "action", "reward", "next_obs")}
        ends: dict[str, list[bool]] = {"terminated": [], "truncated": []}
        obs, _ = env.reset(seed=0)
        for _ in range(300):
            action = env.action_space.sample()
            next_obs, reward, terminated, truncated, _ = env.step(action)
            for key, value in (("obs", obs), ("action", action), ("reward", reward), ("next_obs", next_obs)):
                rows[key].append(value)
            ends["terminated"].append(terminated), ends["truncated"].append(truncated)
            obs = env.reset()[0] if terminated or truncated else next_obs
        columns = {key: np.array(value, np.float32) for key, value in rows.items()}
        Path("data", name).mkdir(parents=True)
        flags = {key: np.array(value) for key, value in ends.items()}
        Demonstrations({**columns, **flags}, {"env_id": env_id}).save(f"data/{name}/medium.safetensors")


def test_there_are_ten_files() -> None:
    assert len(CONFIGS) == 10


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
@pytest.mark.usefixtures("data")
def test_a_file_runs_on_the_data_that_its_id_names(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    serial_pipeline_offline(str(path), seed=0, max_train_iter=2, overrides=SMALL, exp_name="run")

    assert json.loads(Path("run/result.json").read_text())["train_iter"] == 2
    name = path.stem.split("_")[0]
    line = f"policy.collect.data_path is not set: env_id '{name}-medium-v0' names data/{name}/medium.safetensors"
    assert caplog.text.count(line) == 1
    assert "was collected in" not in caplog.text


def test_hidden_layers_of_di_engines_cloning_are_those_of_our_model() -> None:
    main, create = read_config(FOLDER / "hopper_medium_bc_config.py")[:2]

    model = compile_config(main, create, save=False).policy.model

    assert (model.encoder_hidden_size_list, model.head_layer_num) == ([256, 256], 0)
    assert "actor_head_hidden_size" not in model


def test_data_that_are_not_there_are_one_error_with_the_command() -> None:
    with pytest.raises(ConfigError, match="there is no data/hopper/medium.safetensors.*--levels medium --steps 100000"):
        serial_pipeline_offline(read_config(FOLDER / "hopper_medium_cql_config.py")[:2], seed=0)
