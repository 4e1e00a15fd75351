"""Two lines train, to what the command trains of the same config."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import ding_like
from ding_like.agent.checkpoints import find_checkpoint
from ding_like.config import read_config
from ding_like.entry import cli
from ding_like.errors import ConfigError
from ding_like.pipeline.record import RunResult
from ding_like.utils.checkpoint import load_state

SMALL: dict[str, Any] = dict(learn=dict(update_per_collect=1, batch_size=8), random_collect_size=16)
FEW: dict[str, Any] = dict(evaluator_env_num=2, n_evaluator_episode=2)


pytestmark = pytest.mark.usefixtures("in_tmp")


def train(*args: Any, env_step: int = 64, **kwargs: Any) -> ding_like.Run:
    """Train a little."""
    kwargs.setdefault("env", FEW)
    return ding_like.train(*args, env_step=env_step, **kwargs)


@pytest.mark.parametrize("policy, mode", [("dqn", "serial"), ("ppo", "serial_onpolicy")])
def test_the_same_config_by_the_command_trains_the_same_weights(policy: str, mode: str) -> None:
    keep = {"policy.learn.learner.hook.save_ckpt_after_run": True}
    run = train(policy, "CartPole-v1", env_step=800, seed=3, overrides=keep)

    cli.main(["-m", mode, "-c", f"{run.folder}/total_config.py", "-s", "3", "--env-step", "800", "--exp-name", "again"])

    mine, theirs = (load_state(find_checkpoint(Path(folder), "last")) for folder in (run.folder, "again"))
    assert mine["last_iter"] == theirs["last_iter"] > 0
    assert all(torch.equal(mine["model"][name], theirs["model"][name]) for name in mine["model"])
    assert run.result.eval_value_raw == ding_like.Run("again").result.eval_value_raw


def test_a_run_tells_its_result_agent_and_picture() -> None:
    run = train("dqn", "CartPole-v1", env_step=300, policy=SMALL)

    assert run.folder == Path("cartpole_dqn_seed0") and run.is_finished
    assert isinstance(run.result, RunResult) and run.result.env_step >= 300 and run.result.train_iter > 0
    assert run.agent.act(np.zeros(4, np.float32)) in (0, 1) and run.agent is run.agent
    picture = run.plot()
    assert picture.path == run.folder / "curve.png"
    assert (picture._repr_png_() or b"").startswith(b"\x89PNG")
    shown = run._repr_html_()
    assert "300" in shown.replace("304", "300") and "data:image/svg+xml;base64," in shown
    assert repr(run).startswith("Run('cartpole_dqn_seed0', 30")


def test_resume_goes_on_with_a_run() -> None:
    run = train("dqn", "CartPole-v1", env_step=100, policy=SMALL)
    before, agent = run.result, run.agent

    same = run.resume(env_step=200)

    assert same is run and run.result.env_step >= 200 > before.env_step
    assert run.agent.version.env_step is not None and (
        run.agent is not agent or run.result.best_eval == before.best_eval
    )


def test_settings_go_before_those_of_the_shipped_config(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        run = train("dqn", "CartPole-v1", policy=SMALL, overrides={"policy.learn.learning_rate": 0.25}, stop_value=7)

    cfg = read_config(run.folder / "total_config.py").main_config
    assert "dizoo/classic_control/cartpole/config/cartpole_dqn_config.py" in caplog.text
    assert cfg["policy"]["nstep"] == 3, "the shipped config's"
    assert cfg["policy"]["learn"]["batch_size"] == 8 and cfg["policy"]["learn"]["learning_rate"] == 0.25
    assert cfg["env"]["stop_value"] == 7 and cfg["env"]["n_evaluator_episode"] == 2


def test_an_env_without_a_shipped_config_gets_defaults() -> None:
    run = train("sac", "MountainCarContinuous-v0", env_step=40, policy=dict(SMALL))

    cfg = read_config(run.folder / "total_config.py").main_config
    assert run.folder == Path("mountaincarcontinuous_sac_seed0")
    assert cfg["policy"]["discount_factor"] == 0.99 and cfg["env"]["collector_env_num"] == 8


def test_a_config_file_may_stand_for_the_names() -> None:
    Path("mine.py").write_text(
        "env = dict(env_id='CartPole-v1', collector_env_num=2, evaluator_env_num=2)\n"
        "main_config = dict(exp_name='mine', env=env)\n"
        "create_config = dict(env=dict(type='gymnasium'), env_manager=dict(type='base'), policy=dict(type='dqn'))\n"
    )

    run = train(config="mine.py", policy=dict(collect=dict(n_sample=8)), overrides=["policy.learn.batch_size=4"])

    assert run.folder == Path("mine") and run.result.env_step >= 64


class Line(gymnasium.Env[Any, Any]):
    """Walk on a line."""

    def __init__(self, size: int = 3) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 1, (size,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._time = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        self._time += 1
        return self.observation_space.sample(), float(action), self._time == 5, False, {}


def test_an_env_may_be_a_class_a_path_or_a_function() -> None:
    by_class, by_path = (train("dqn", each, policy=SMALL) for each in (Line, f"{__name__}:Line"))
    by_function = train("dqn", lambda: Line(size=4), policy=SMALL, exp_name="function")

    assert by_class.agent.observation_space.shape == (3,) and by_class.folder == Path("line_dqn_seed0")
    types = [read_config(run.folder / "total_config.py").create_config["env"]["type"] for run in (by_class, by_path)]
    assert types == [f"{__name__}:Line"] * 2
    assert by_function.agent.observation_space.shape == (4,)


WRONG = {
    "a policy that is not there": (("dqm", "CartPole-v1"), {}, r"unknown policy 'dqm'; did you mean 'dqn'"),
    "an env that is not there": (("dqn", "CartPol-v1"), {}, r"did you mean 'CartPole-v1'"),
    "actions that a policy does not take": (
        ("dqn", "MountainCarContinuous-v0"),
        {},
        r"policy 'dqn' takes actions of Discrete, MountainCarContinuous-v0 has Box.*policies that do: .*\bsac\b",
    ),
    "an env that was made": (("dqn", Line()), {}, r"one object; expected what makes one"),
    "a function with arguments": (("dqn", lambda size: Line(size)), {}, r"needs arguments.*lambda: MyEnv"),
    "no env": (("dqn", 3), {}, r"the env is 3; expected a gymnasium id"),
    "no names": ((), {}, r"needs a policy and an env.*train\(config='FILE'\)"),
    "names and a file": (("dqn", "CartPole-v1"), dict(config="x.py"), "give one of the two"),
    "settings that are none": (("dqn", "CartPole-v1"), dict(policy=3), r"expected its settings, such as policy=dict"),
    "an unknown key": (("dqn", "CartPole-v1"), dict(policy=dict(lern=1)), r"policy.lern\s+unknown key; did you mean"),
    "a limit below 1": (("dqn", "CartPole-v1"), dict(env_step=-5), r"env_step is -5, expected a number from 1"),
    "a limit that is a text": (
        ("dqn", "CartPole-v1"),
        dict(train_iter="1e3"),
        r"train_iter is the text '1e3', expected",
    ),
    "an argument of other libraries": (
        ("dqn", "CartPole-v1"),
        dict(total_timesteps=500, sead=1),
        r"takes no argument 'total_timesteps'; did you mean env_step\?\n.*'sead'; did you mean seed\?\n.*, exp_name",
    ),
    "the env first": (("CartPole-v1", "dqn"), {}, r"the env is 'dqn', which is a policy: .*train\('dqn', ENV\)"),
    "a class of an env first": ((Line, "dqn"), {}, r"the env is 'dqn', which is a policy"),
}


def test_wrong_input_is_one_clear_error_and_leaves_no_folder() -> None:
    for name in WRONG:
        args, kwargs, message = WRONG[name]

        with pytest.raises(ConfigError, match=message):
            ding_like.train(*args, **kwargs)
        assert not list(Path().iterdir())


def test_how_to_register_a_policy_of_ones_own_is_said_once() -> None:
    with pytest.raises(ConfigError) as caught:
        ding_like.train("mine", "CartPole-v1")

    assert str(caught.value).count("import_names=") == 1


def test_ctrl_c_ends_a_run_that_can_be_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    from ding_like.worker import BaseLearner

    original = BaseLearner.train

    def interrupt(self: Any, *args: Any, **kwargs: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        monkeypatch.setattr(BaseLearner, "train", original)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(BaseLearner, "train", interrupt)

    with pytest.raises(KeyboardInterrupt):
        train("dqn", "CartPole-v1", env_step=200, policy=SMALL)
    run = ding_like.Run("cartpole_dqn_seed0")

    assert not run.is_finished and "not finished" in run._repr_html_() and "not finished" in repr(run)
    with pytest.raises(ConfigError, match=r"no result.json.*resume\(\) goes on"):
        run.result  # noqa: B018
    assert run.resume().result.env_step >= 200


def test_a_run_trains_in_a_running_event_loop() -> None:
    async def cell() -> ding_like.Run:
        return train("dqn", "CartPole-v1", policy=SMALL)

    assert asyncio.run(cell()).is_finished


def test_a_run_trains_in_a_thread() -> None:
    runs: list[ding_like.Run] = []
    thread = threading.Thread(target=lambda: runs.append(train("dqn", "CartPole-v1", policy=SMALL)))

    thread.start()
    thread.join(120)

    assert runs and runs[0].is_finished


def test_a_folder_without_a_run_is_refused() -> None:
    with pytest.raises(ConfigError, match="'nowhere' is not an experiment folder"):
        ding_like.Run("nowhere")


def test_what_the_package_offers_is_imported_on_use() -> None:
    assert {"load", "train", "Run", "Agent"} <= set(dir(ding_like))
    with pytest.raises(AttributeError, match="module 'ding_like' has no attribute 'trian'"):
        ding_like.trian  # noqa: B018
