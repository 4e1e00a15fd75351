"""Scripts in the form of DI-engine's documentation run with `ding.` read as `ding_like.`, and nothing else changed."""

from __future__ import annotations

import re
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ding_like.data.segment_file import load_columns
from ding_like.entry import serial_pipeline
from ding_like.worker import NaiveReplayBuffer

SCRIPTS = Path(__file__).with_name("di_engine_scripts")

Load = Callable[[str], Any]  # a module


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Return a function that runs a script in a folder of its own; like `__main__`, no process can import it."""
    monkeypatch.chdir(tmp_path)

    def run(name: str) -> types.ModuleType:
        source = re.sub(r"^((?:from|import) )ding\.", r"\1ding_like.", (SCRIPTS / name).read_text("utf-8"), flags=re.M)
        module = types.ModuleType(f"di_engine_script_{Path(name).stem}")
        exec(compile(source, name, "exec"), vars(module))
        return module

    return run


@pytest.mark.slow
def test_the_loop_of_dqn_solves_cartpole(load: Load, tmp_path: Path) -> None:
    script = load("cartpole_dqn_main.py")

    stop, info, envstep = script.main(script.main_config, seed=0, max_env_step=25_000)

    assert stop and min(info["eval_episode_return"]) >= 150 and envstep < 25_000
    assert (tmp_path / "cartpole_dqn_main/ckpt/ckpt_best.pth.tar").is_file()


def test_a_script_that_makes_every_part_by_its_factory_trains_sac(load: Load, tmp_path: Path) -> None:
    script = load("pendulum_sac_main.py")

    done = script.main(script.main_config, max_env_step=200)

    assert done["envstep"] == 200 and done["train_iter"] == 10
    assert (tmp_path / "pendulum_sac_main/total_config.py").is_file()


@pytest.mark.parametrize(
    "make, manager", [pytest.param("WalkEnv", "subprocess", marks=pytest.mark.slow), ("mountain_car", "base")]
)
def test_an_env_of_ones_own_given_as_a_lambda_trains(load: Load, make: str, manager: str) -> None:
    script = load("custom_env.py")

    policy = script.main(script.main_config, max_env_step=60, make=getattr(script, make), manager=manager)

    assert policy.learn_mode.state_dict()["num_updates"] > 0


@pytest.mark.slow
def test_envs_stepped_by_hand_in_subprocesses_are_recorded(load: Load, tmp_path: Path) -> None:
    script = load("manager_by_hand.py")

    done = script.main(script.main_config)

    assert len(done["returns"]) == 4 and min(done["returns"]) > 5  # two episodes of each env
    assert done["action"] in (0, 1) and done["seconds"] > 0
    assert all(len(list(tmp_path.glob(f"video/env_{i}/*.gif"))) >= 2 for i in range(2))


@pytest.mark.usefixtures("no_pictures")
def test_a_policy_of_ones_own_that_wraps_its_models_trains(load: Load) -> None:
    script = load("model_wrap_dqn.py")

    policy = serial_pipeline((script.main_config, script.create_config), max_env_step=64)

    model, target = policy._model.state_dict(), policy._target_model.state_dict()
    assert all(not torch.equal(model[name], target[name]) for name in model)  # which follows by a tenth at a time
    assert policy._learn_model.forward(torch.zeros(3, 4))["action"].shape == (3,)


@pytest.mark.usefixtures("no_pictures")
def test_demonstrations_of_a_trained_policy_are_saved_as_columns(load: Load, tmp_path: Path) -> None:
    load("collect_demo_data_main.py").main(expert_data_path="cartpole.data", collect_count=33, max_env_step=80)

    rows = load_columns(tmp_path / "cartpole.data")
    assert {name: rows[name].shape for name in ("obs", "action", "next_obs")} == dict(
        obs=(33, 4), action=(33,), next_obs=(33, 4)
    )
    buffer = NaiveReplayBuffer(NaiveReplayBuffer.config)
    buffer.load_data(str(tmp_path / "cartpole.data"))
    assert buffer.count() == 33


def test_a_parallel_config_is_compiled_by_hand(load: Load, tmp_path: Path) -> None:
    cfg = load("parallel_config.py").main()

    assert (cfg.system.coordinator.host, cfg.system.coordinator.port) == ("127.0.0.1", 50515)
    assert cfg.system.coordinator.heartbeat_s == 3.0 and cfg.main.policy.type == "dqn"
    assert (tmp_path / "cartpole_parallel/total_config.py").is_file()
