"""`ding -m serial_gail` and its like: an expert is trained and plays demonstrations, of which a policy learns."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ding_like.config import deep_merge, read_config
from ding_like.data.demonstrations import Demonstrations
from ding_like.entry import serial_pipeline_gail, serial_pipeline_reward_model_offpolicy
from ding_like.entry import stages as stages_module
from ding_like.entry.cli import main as ding
from ding_like.entry.demonstrations import collect_demonstrations
from ding_like.entry.stages import run_stages
from ding_like.errors import CheckpointError, ConfigError
from ding_like.policy import DQNPolicy
from tests.support import wait_until

pytestmark = [pytest.mark.usefixtures("in_tmp", "no_pictures"), pytest.mark.timeout(300)]

CREATE = {"env": {"type": "gymnasium"}, "policy": {"type": "dqn"}}
DQN = {
    "exp_name": "expert_run",
    "env": {
        "env_id": "CartPole-v1",
        "collector_env_num": 2,
        "evaluator_env_num": 2,
        "n_evaluator_episode": 2,
        "max_episode_steps": 50,
    },
    "policy": {
        "model": {"encoder_hidden_size_list": [8]},
        "learn": {"batch_size": 8, "update_per_collect": 1},
        "collect": {"n_sample": 4},
    },
}
EXPERT = (DQN, CREATE)


def config(**changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a config of DQN with GAIL, whose expert trains for 60 env steps and plays three episodes."""
    own = {
        "exp_name": "run",
        "reward_model": {"type": "gail", "update_per_collect": 1, "batch_size": 8},
        "expert": {"config": EXPERT, "env_step": 60, "num_episodes": 3},
    }
    return deep_merge(deep_merge(DQN, own), changes), CREATE


def learn(cfg: Any = None, *, max_env_step: int = 60, **given: Any) -> Any:
    return serial_pipeline_gail(config() if cfg is None else cfg, max_env_step=max_env_step, **given)


def stages(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what the stages of the last call did, and forget it."""
    told = [message for message in caplog.messages if message.startswith("stage ")]
    caplog.clear()
    return told


@pytest.fixture(autouse=True)
def _console(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="ding_like")


def test_one_command_trains_the_expert_plays_demonstrations_and_learns(caplog: pytest.LogCaptureFixture) -> None:
    policy = learn()

    assert isinstance(policy, DQNPolicy)
    told = stages(caplog)
    assert [line[:14] for line in told] == ["stage 1 of 3: ", "stage 2 of 3: ", "stage 3 of 3: "]
    assert "the expert, dqn on CartPole-v1: training in run/expert/" in told[0]
    assert "run/expert/ckpt/ckpt_best.pth.tar plays 3 episodes" in told[1]
    assert "the policy, dqn on CartPole-v1: training in run/" in told[2]
    demonstrations = Demonstrations.load("run/expert_data.safetensors")
    assert demonstrations.num_episodes == 3
    assert demonstrations.info["policy"] == "dqn"
    for folder in ("run", "run/expert"):
        assert json.loads(Path(folder, "result.json").read_text())["env_step"] == 60
    saved = read_config("run/total_config.py").main_config
    assert saved["reward_model"]["data_path"] == "run/expert_data.safetensors"


def test_a_stage_that_is_done_is_not_done_again(caplog: pytest.LogCaptureFixture) -> None:
    learn()
    stages(caplog)
    files = ["run/expert/result.json", "run/expert_data.safetensors", "run/result.json"]
    before = [os.stat(file).st_mtime_ns for file in files]

    policy = learn()

    assert isinstance(policy, DQNPolicy)
    assert ["already" in line for line in stages(caplog)] == [True] * 3
    assert [os.stat(file).st_mtime_ns for file in files] == before
    assert sorted(path.name for path in Path().iterdir() if path.name.startswith("run")) == ["run"]


def test_what_has_changed_is_made_again_and_the_rest_is_used_again(caplog: pytest.LogCaptureFixture) -> None:
    learn()
    stages(caplog)

    learn(config(reward_model={"learning_rate": 0.01}))
    told = stages(caplog)
    assert ["already" in line for line in told] == [True, True, False]
    assert "; run/ is of another config, seed or limit" in told[2]
    learn(seed=1)
    assert ["already" in line for line in stages(caplog)] == [True, True, False]
    learn(config(expert={"num_episodes": 4}))
    told = stages(caplog)
    assert ["already" in line for line in told] == [True, False, False]
    assert "those in the file are of another expert, seed or number" in told[1]
    assert Demonstrations.load("run/expert_data.safetensors").num_episodes == 4
    learn(config(expert={"env_step": 64}))
    told = stages(caplog)
    assert ["already" in line for line in told] == [False, False, False]
    assert "run/expert/ is of another config, seed or limit" in told[0]
    # The first run of all is still known, though the demonstrations are others now.
    learn()
    assert ["already" in line for line in stages(caplog)] == [True, False, True]


def test_demonstrations_of_the_user_are_used_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    learn()
    collect_demonstrations("run/expert", num_episodes=2, out="mine.safetensors")
    before = os.stat("mine.safetensors").st_mtime_ns
    stages(caplog)

    learn(config(exp_name="other", reward_model={"data_path": "mine.safetensors"}))

    assert stages(caplog) == []
    assert not Path("other/expert").exists()
    assert os.stat("mine.safetensors").st_mtime_ns == before


def test_an_expert_that_is_there_is_not_trained(caplog: pytest.LogCaptureFixture) -> None:
    learn()
    stages(caplog)
    checkpoint = "run/expert/ckpt/ckpt_best.pth.tar"

    for name, named in (("a", {"config": EXPERT}), ("b", {"config": ""})):  # without a config: that of its run
        learn(config(exp_name=name, expert={"checkpoint": checkpoint, **named}))

        told = stages(caplog)
        assert [line[:14] for line in told] == ["stage 1 of 2: ", "stage 2 of 2: "]
        assert f"{checkpoint} plays 3 episodes" in told[0]
        assert not Path(name, "expert").exists()
    with pytest.raises(CheckpointError, match=r"no checkpoint 'gone\.pth\.tar', which expert\.checkpoint names"):
        learn(config(exp_name="c", expert={"checkpoint": "gone.pth.tar"}))


def test_the_expert_of_di_engines_signature_stands_in_place_of_the_configs(caplog: pytest.LogCaptureFixture) -> None:
    main, create = config(expert={"config": ""})
    other = deep_merge(DQN, {"policy": {"nstep": 2}})

    serial_pipeline_gail((main, create), (other, CREATE), 0, None, None, None, 10, 60, collect_data=True)

    assert read_config("run/expert/total_config.py").main_config["policy"]["nstep"] == 2
    assert json.loads(Path("run/result.json").read_text())["train_iter"] <= 10
    with pytest.raises(ConfigError, match="there is no file of demonstrations 'new/expert_data.safetensors'"):
        serial_pipeline_gail((main, create), (other, CREATE), exp_name="new", collect_data=False)


def test_an_expert_is_a_file_or_a_shipped_config(capsys: pytest.CaptureFixture[str]) -> None:
    Path("expert_config.py").write_text(f"main_config = {DQN!r}\ncreate_config = {CREATE!r}\n")
    main, create = config(expert={"config": "expert_config.py"})
    Path("gail_config.py").write_text(f"main_config = {main!r}\ncreate_config = {create!r}\n")

    ding(["-m", "serial_gail", "-c", "gail_config.py", "--env-step", "60"])
    with pytest.raises(SystemExit):
        ding(["-m", "serial_gail", "-c", "gail_config.py", "expert.config=cartpole_dqm"])

    assert Path("run/result.json").is_file()
    assert "neither a file nor the name of a shipped config. Did you mean 'cartpole_dqn'?" in capsys.readouterr().err
    assert stages_module.expert_input("cartpole_dqn").endswith("cartpole_dqn_config.py")  # type: ignore[union-attr]


def test_another_mode_names_the_one_that_makes_the_demonstrations(capsys: pytest.CaptureFixture[str]) -> None:
    main, create = config()
    Path("gail_config.py").write_text(f"main_config = {main!r}\ncreate_config = {create!r}\n")

    for mode in ("serial", "ray", "parallel"):
        with pytest.raises(SystemExit):
            ding(["-m", mode, "-c", "gail_config.py", "--env-step", "60"])

        error = capsys.readouterr().err
        assert "no file of demonstrations 'run/expert_data.safetensors', which reward_model.data_path names" in error
        assert "`ding -m serial_gail` with this config has the expert play them" in error
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("mode", "changes", "words"),
    [
        ("serial_gail", {"reward_model": None}, "the config names none: give reward_model.type=NAME"),
        ("serial_sqil", {}, "is of policies that learn from demonstrations, and 'dqn' does not"),
        ("serial_trex_onpolicy", {}, "policy 'dqn' is off-policy: run it with `ding -m serial_trex`"),
        ("serial_gail", {"expert": {"config": ({},)}}, "expected a file, the name of a shipped config"),
    ],
)
def test_a_config_of_another_mode_is_refused(mode: str, changes: dict[str, Any], words: str) -> None:
    main, create = config()
    main.update(changes)
    main = {key: value for key, value in main.items() if value is not None}

    with pytest.raises(ConfigError, match=words):
        run_stages(mode, (main, create), max_env_step=60)


def test_several_seeds_are_refused_with_the_way_to_run_them(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        ding(["-m", "serial_gail", "-e", "cartpole", "-p", "dqn", "-s", "0..2"])

    assert "give one -s, then run `ding -m serial` with all of them and the data_path" in capsys.readouterr().err


def test_a_reward_model_with_its_demonstrations_runs_like_any_policy(caplog: pytest.LogCaptureFixture) -> None:
    learn()
    collect_demonstrations("run/expert", num_episodes=2, out="mine.safetensors")
    main, create = config(exp_name="plain", reward_model={"data_path": "mine.safetensors"})
    del main["expert"]
    stages(caplog)

    serial_pipeline_reward_model_offpolicy((main, create), max_env_step=60)

    assert stages(caplog) == []
    assert json.loads(Path("plain/result.json").read_text())["env_step"] == 60


def test_what_is_interrupted_while_the_expert_plays_goes_on_there(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def interrupt(*args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(stages_module, "play_and_save", interrupt)
        learn()
    assert "interrupted in stage 2 of 3: the same command goes on with it" in caplog.messages
    stages(caplog)

    learn()

    assert ["already" in line for line in stages(caplog)] == [True, False, False]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_command_goes_on_with_the_stage_that_stopped(number: signal.Signals) -> None:
    # The point of each kill is taken by the env steps of a saved point, and the end equals that of a whole run.
    main, create = config(expert={"env_step": 4000}, resume={"save_every_env_steps": 400})
    main["expert"]["config"] = (deep_merge(DQN, {"resume": {"save_every_env_steps": 400}}), CREATE)
    Path("gail_config.py").write_text(f"main_config = {main!r}\ncreate_config = {create!r}\n")
    command = [sys.executable, "-m", "ding_like", "-m", "serial_gail", "-c", "gail_config.py", "--env-step", "4000"]

    for folder in ("run/expert", "run"):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            wait_until(lambda where=folder: any(Path(where, "ckpt/resume").glob("[0-9]*")), f"a point of {folder}")
            process.send_signal(number)
            process.wait(60)
        assert not Path(folder, "result.json").exists()
    last = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)

    assert "trained already, in run/expert/" in last.stderr + last.stdout
    assert "training goes on in run/" in last.stderr + last.stdout
    whole = subprocess.run([*command, "--exp-name", "whole"], check=True, capture_output=True, text=True, timeout=120)
    assert "training in whole/expert/" in whole.stderr + whole.stdout
    for name in ("expert/result.json", "result.json"):
        found = [json.loads(Path(folder, name).read_text())["eval_value_raw"] for folder in ("run", "whole")]
        assert found[0] == found[1]
