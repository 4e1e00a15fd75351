"""`ding -m seed` and the Trainer, from the command line down: on threads of this process, and once on processes."""

from __future__ import annotations

import json
import logging
import pickle
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from ding_like.comm.workers.processes import ChildThread
from ding_like.config import compile_config, read_config, to_plain
from ding_like.entry import resume_pipeline, seed_entry, seed_pipeline
from ding_like.entry.seed_entry import SeedMode, Trainer
from ding_like.entry.training import RunArguments
from ding_like.errors import ConfigError, EnvError, RegistryError
from ding_like.pipeline.record import resume_store
from ding_like.pipeline.settings import Config
from ding_like.pipeline.training_loop import RunnerLostError
from ding_like.utils.checkpoint import load_state
from tests.entry.typed import status_of
from tests.pipeline.ray import runs

ROOT = Path(__file__).parents[2]
CARTPOLE = ROOT / "dizoo/classic_control/cartpole/config"
CONFIG = CARTPOLE / "cartpole_dqn_config.py"
QUICK = [
    "env.collector_env_num=2",
    "env.evaluator_env_num=2",
    "env.n_evaluator_episode=2",
    "policy.random_collect_size=20",
]


pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")


@pytest.fixture
def in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seed_entry, "seed_runner", partial(seed_entry.seed_runner, run_as=ChildThread))


def result_of(folder: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(folder, "result.json").read_text())
    return found


def lines_of(folder: str, source: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in Path(folder, "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["source"] == source]


# --- what is wrong


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["system.seed.actor_process=3"], ["unknown key; did you mean 'actor_processes' (default 2)?"]),
        (["system.sead.actor_processes=3"], ["system.sead", "not of mode seed, which reads system.seed alone"]),
        (["system.seed.comm=both", "policy.batch=3"], ["policy.batch"]),
        (["--learners", "2"], ["--learners is of modes serial, serial_onpolicy, serial_offline,", "not of mode seed"]),
        (["--workers", "2"], ["--workers is of mode ray, not of mode seed", "system.seed.actor_processes"]),
        (["--load-path", "no.pth.tar"], ["no.pth.tar"]),
        (["system.seed.transport=tcp", "system.seed.host=0.0.0.0"], ["system.seed.key_file", "ding keys FILE --curve"]),
        (["--host", "nosuchhost.invalid"], ["system.seed.host", "'nosuchhost.invalid'", "a name of this machine"]),
        (["-M", "actor", "--address", "nosuchhost.invalid:7000"], ["--address names the host 'nosuchhost.invalid'"]),
        (["create.league.type=one_vs_one", "create.env_manager.type=game"], ["policy.other.league"]),
    ],
)
def test_what_is_wrong_is_one_message_and_nothing_is_left(
    arguments: list[str], words: list[str], capsys: Any, tmp_path: Path
) -> None:
    status = status_of("-m", "seed", "-c", str(CONFIG), *arguments)

    error = capsys.readouterr().err
    assert status == 1 and "Traceback" not in error
    for word in words:
        assert word in error
    assert not list(tmp_path.iterdir()), "no folder of a run that never began"


def test_an_on_policy_config_is_refused_with_the_modes_that_run_it(capsys: Any) -> None:
    assert status_of("-m", "seed", "-c", str(CARTPOLE / "cartpole_ppo_config.py")) == 1

    error = capsys.readouterr().err
    assert "'ppo' is on-policy" in error and "`ding -m serial_onpolicy`" in error and "use 'impala'" in error


def test_without_pyzmq_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setitem(sys.modules, "zmq", None)

    assert status_of("-m", "seed", "-c", str(CONFIG)) == 1

    assert 'pip install "ding-like[seed]"' in capsys.readouterr().err


# --- dry runs


def test_a_dry_run_says_who_would_do_what_and_starts_nothing(tmp_path: Path, capsys: Any) -> None:
    options = ["system.seed.actor_processes=3", "system.seed.inference_batchsize=2", "system.seed.broadcast_period=1.5"]

    status = status_of("-m", "seed", "-c", str(CONFIG), "--dry-run", *options)

    said = capsys.readouterr().out
    assert status == 0 and not list(tmp_path.iterdir())
    assert "dqn on CartPole-v1, seed 0, as cartpole_dqn_seed0/" in said
    assert "3 processes of 1 thread with 8 envs each; asynchronous" in said
    assert "1 server on cpu; a batch is 2 requests at most; weights every 1.5 s" in said
    assert "ipc, in a folder of this user alone" in said


# --- runs


@pytest.mark.usefixtures("in_threads")
def test_a_serial_config_trains_and_leaves_the_files_of_a_serial_run(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        seed_pipeline(CONFIG, seed=3, max_env_step=600, exp_name="exp", overrides=QUICK)

    found = result_of("exp")
    assert found["env_step"] >= 600 and found["train_iter"] > 0 and np.isfinite(found["eval_value"])
    for name in ("total_config.py", "formatted_total_config.py", "config_diff.txt", "metrics.jsonl", "ckpt/resume"):
        assert Path("exp", name).exists(), name
    assert "actors      2 processes of 1 thread with 2 envs each; asynchronous" in caplog.text


@pytest.mark.usefixtures("in_threads")
def test_the_metrics_say_how_inference_and_each_actor_fare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ding_like.pipeline.rows._METRICS_S", 0.0)
    monkeypatch.setattr("ding_like.pipeline.seed.servers._STATS_S", 0.05)
    seed_pipeline(CONFIG, max_env_step=1500, exp_name="exp", overrides=QUICK)

    last = [line for line in lines_of("exp", "collector") if "mean_batch" in line][-1]

    assert 1 <= last["mean_batch"] <= 4 and 0 < last["inference_p50_ms"] <= last["inference_p99_ms"]
    assert last["queue_depth"] >= 0 and last["PolicyLag"] >= 0 and last["data_age_s"] > 0
    rates = [name for line in lines_of("exp", "collector") for name in line if name.startswith("envstep_per_sec/")]
    assert {"envstep_per_sec/actor1", "envstep_per_sec/actor2"} <= set(rates)


@pytest.mark.usefixtures("in_threads")
def test_its_total_config_runs_again() -> None:
    overrides = [*QUICK, "system.seed.comm=sync", "policy.learn.batch_size=32", "system.seed.failure.step_timeout_s=9"]
    seed_pipeline(CONFIG, seed=3, max_env_step=100, exp_name="exp", overrides=overrides)

    for name in ("total_config.py", "formatted_total_config.py"):
        again = SeedMode.of(f"exp/{name}", RunArguments("seed", 3)).plan
        assert again.settings.comm == "sync" and again.settings.failure.step_timeout_s == 9.0
        assert again.cfg.policy.learn.batch_size == 32


@pytest.mark.usefixtures("in_threads")
def test_a_resumed_run_goes_on_from_where_it_was() -> None:
    first = seed_pipeline(CONFIG, seed=3, max_env_step=500, exp_name="exp", overrides=QUICK)
    before = result_of("exp")
    assert resume_store("exp").newest_meta()["arguments"]["mode"] == "seed"

    for options, words in (({"workers": 3}, "of mode ray"), ({"learners": 2}, "of mode seed")):
        with pytest.raises(ConfigError, match=words):
            resume_pipeline("exp", **options)  # type: ignore[arg-type]
    second = resume_pipeline("exp", max_env_step=1000)

    after = result_of("exp")
    assert after["env_step"] >= 1000 > before["env_step"] and after["train_iter"] > before["train_iter"]
    assert after["duration_s"] > before["duration_s"]
    steps = [line["env_step"] for line in lines_of("exp", "collector")]
    assert steps == sorted(steps)
    weights = [policy.collect_mode.state_dict()["model"] for policy in (first, second)]
    assert any(not torch.equal(value, weights[1][name]) for name, value in weights[0].items())


@pytest.mark.usefixtures("in_threads")
def test_statistics_of_obs_norm_are_those_of_all_actors() -> None:
    main, create = runs.dqn()
    main["env"]["wrappers"] = ["obs_norm"]

    seed_pipeline((main, create), max_env_step=800, exp_name="exp")

    [[wrapper]] = load_state("exp/ckpt/ckpt_best.pth.tar")["env_wrappers"]["lanes"]
    assert float(wrapper["state"]["count"]) >= 40 and np.abs(np.asarray(wrapper["state"]["mean"])).max() > 0


# --- the Trainer


@pytest.mark.usefixtures("in_threads")
def test_a_trainer_trains_for_its_duration() -> None:
    config = Config(actor_threads=2, inference_batchsize=2, minimum_buffer_size=100, broadcast_period=0.2)

    found = Trainer("rainbow", config, "CartPole-v1", exp_name="exp").start(2.0)

    assert found.seconds >= 2.0
    assert found.updates > 0 and found.env_step > 100 and np.isfinite(found.eval_value) and found.exp_name == "exp"


def three_steps() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("CartPole-v1", max_episode_steps=3)


@pytest.mark.usefixtures("in_threads")
def test_a_trainer_takes_a_function_that_makes_an_env() -> None:
    config = Config(actor_threads=2, minimum_buffer_size=10, inference_batchsize=0, inference_delay=0.0)

    found = Trainer("dqn", config, three_steps, exp_name="exp").start(0.5)

    assert found.eval_value == 3.0, "every episode has three steps"


def settings_of(trainer: Trainer) -> Mapping[str, Any]:
    cfg = trainer._plan().cfg
    return {"nstep": cfg.policy.nstep, "eps": cfg.policy.other.get("eps"), "env": cfg.env}


def test_a_configs_steps_and_epsilon_stand_in_place_of_the_agents_which_stays_as_it_is() -> None:
    file = read_config(CARTPOLE / "cartpole_rainbow_config.py")
    given = to_plain(file.main_config), to_plain(file.create_config)
    before = pickle.dumps(given)

    found = settings_of(Trainer(given, Config(n_step=2, epsilon=0.3, max_environment_steps=77), "CartPole-v1"))

    assert pickle.dumps(given) == before
    assert found["nstep"] == 2 and (found["eps"].start, found["eps"].end) == (0.3, 0.3)
    assert found["env"].env_id == "CartPole-v1" and found["env"].type == "gymnasium"
    assert [to_plain(each) for each in found["env"].wrappers] == [{"type": "time_limit", "max_episode_steps": 77}]
    assert found["env"].collector_env_num == file.main_config.env.collector_env_num


@pytest.mark.parametrize("kind", ["file", "section"])
def test_an_agent_may_be_a_file_or_a_compiled_policy_section(kind: str) -> None:
    path = CARTPOLE / "cartpole_c51_config.py"
    file = read_config(path)
    section = compile_config(file.main_config, file.create_config, save=False).policy

    trainer = Trainer(str(path) if kind == "file" else section, Config(), "CartPole-v1")

    cfg = trainer._plan().cfg
    assert cfg.policy.type == "c51" and cfg.policy.nstep == 3
    assert cfg.policy.learn.batch_size == file.main_config.policy.learn.batch_size


def test_what_does_not_go_together_is_said_when_a_trainer_is_made() -> None:
    for agent, config, environment, error, words in [
        ("rainbouw", Config(), "CartPole-v1", RegistryError, "rainbow"),
        ("ppo", Config(), "CartPole-v1", ConfigError, "on-policy"),
        ("sac", Config(epsilon=0.3), "Pendulum-v1", ConfigError, "epsilon is 0.3"),
        ("impala", Config(n_step=5), "CartPole-v1", ConfigError, "n_step is 5"),
        ("dqn", Config(), lambda: None, ConfigError, "define it at the top of a module"),
        ("dqn", Config(), 3, ConfigError, "a gymnasium id, or a function"),
        ({"nstep": 3}, Config(), "CartPole-v1", ConfigError, "without 'type'"),
    ]:
        with pytest.raises(error, match=words):
            Trainer(agent, config, environment)


def test_a_duration_is_above_0() -> None:
    for duration in [0, -1.0, float("inf"), float("nan")]:
        with pytest.raises(ConfigError, match="give seconds above 0"):
            Trainer("dqn", Config(), "CartPole-v1").start(duration)


# --- what fails


class FailingEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Env that fails in every episode."""

    def step(self, action: Any) -> Any:
        raise EnvError("the motor is on fire")


def failing() -> gymnasium.Env[Any, Any]:
    return FailingEnv(gymnasium.make("CartPole-v1"))


@pytest.mark.usefixtures("in_threads")
def test_an_env_that_always_fails_ends_the_run_with_its_error() -> None:
    with pytest.raises(RunnerLostError, match="the motor is on fire"):
        Trainer("dqn", Config(actor_threads=1, inference_batchsize=0), failing, exp_name="exp").start(20.0)

    assert "the motor is on fire" in Path("exp/failures.jsonl").read_text()


@pytest.mark.slow
def test_a_run_in_processes_leaves_its_logs_and_nothing_else(tmp_path: Path) -> None:
    status = status_of("-m", "seed", "-c", str(CONFIG), "--env-step", "400", "--exp-name", "exp", *QUICK)

    assert status == 0 and result_of("exp")["env_step"] >= 400
    logs = {path.name for path in Path("exp/log/seed").iterdir()}
    assert logs == {"server1.txt", "actor_process1.txt", "actor_process2.txt"}
