"""`create_config.defaults` may take those of DI-engine, and a config of DI-engine may carry what it carries."""

from __future__ import annotations

import importlib
import logging
from pathlib import Path
from typing import Any

import pytest

from ding_like.config import FrozenConfig, compile_config, read_config
from ding_like.config.di_engine import POLICY_DEFAULTS
from ding_like.config.tree import get_path, set_path
from ding_like.entry.cli import main as ding
from ding_like.errors import ConfigError
from ding_like.pipeline.parallel.settings import serial_parts
from ding_like.policy import get_policy_cls
from ding_like.policy.from_experts import FromExperts
from tests.config.di_engine_page import page

DIZOO = "dizoo.classic_control.cartpole.envs.cartpole_env"
ENV = {"type": "cartpole", "import_names": [DIZOO]}


def compiled(policy: dict[str, Any], create: dict[str, Any], **kwargs: Any) -> FrozenConfig:
    return compile_config({"policy": policy}, create, **{"save": False, **kwargs})


def switched(name: str, policy: dict[str, Any] | None = None) -> FrozenConfig:
    create: dict[str, Any] = {"env": ENV, "policy": {"type": name}, "defaults": "di_engine"}
    data = {"collect": {"data_path": "FILE"}} if issubclass(get_policy_cls({"type": name}), FromExperts) else {}
    return compiled(policy or data, create)


def test_the_switch_takes_every_default_of_a_policy() -> None:
    wrong = {}
    for name, defaults in POLICY_DEFAULTS.items():
        cfg = switched(name)
        wrong |= {(name, path): get_path(cfg, path) for path, default in defaults.items()
                  if get_path(cfg, path) != default.value}  # fmt: skip

    assert wrong == {}


def test_the_switch_decides_what_the_config_leaves_open() -> None:
    without = compiled({}, {"env": ENV, "policy": {"type": "ppo"}})

    assert (without.policy.recompute_adv, without.policy.learn.value_norm) == (False, False)
    assert switched("td3", {"random_collect_size": 100}).policy.random_collect_size == 100
    assert switched("dqn").env.env_id == "CartPole-v0", "the env's defaults are DI-engine's, too"
    with pytest.raises(ConfigError, match=r"create_config\.defaults +is 'di-engine', expected .*mean 'di_engine'"):
        compiled({}, {"env": ENV, "policy": {"type": "dqn"}, "defaults": "di-engine"})


def test_a_default_goes_where_a_config_says_it_under_another_name() -> None:
    for name, policy, path, expected in [
        ("a2c", {"discount_factor": 0.95}, "policy.collect.discount_factor", None),
        ("a2c", {"learn": {"eps": 1e-3}}, "policy.learn.optimizer.eps", 1e-3),
        ("pg", {"learn": {"grad_norm": 1.0}}, "policy.learn.grad_clip_norm", 1.0),
        ("impala", {"learn": {"clip_value": 5}}, "policy.learn.clip_value", 5),
        ("qmix", {"learn": {"double_q": True}}, "policy.double", True),
    ]:
        assert get_path(switched(name, policy), path) == expected


def test_a_saved_config_needs_no_switch(tmp_path: Path) -> None:
    create: dict[str, Any] = {"env": ENV, "policy": {"type": "rainbow"}, "defaults": "di_engine"}
    cfg = compiled({}, create, save=True, exp_name=str(tmp_path / "run"))

    file = read_config(tmp_path / "run" / "total_config.py")

    assert "defaults" not in file.create_config
    assert compile_config(file.main_config, file.create_config, save=False, renew_dir=False) == cfg


@pytest.mark.usefixtures("no_pictures")
def test_the_command_line_has_the_switch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a_config.py").write_text(
        f"main_config = dict(env=dict(collector_env_num=1, evaluator_env_num=1, n_evaluator_episode=1))\n"
        f"create_config = dict(env={ENV!r}, policy=dict(type='ppo'))\n"
    )

    ding(["-m", "serial_onpolicy", "-c", "a_config.py", "--di-engine", "--exp-name", "run", "--env-step", "10",
          "policy.collect.n_sample=16", "policy.learn.epoch_per_collect=1"])  # fmt: skip

    saved = read_config(tmp_path / "run" / "total_config.py").main_config
    assert saved["policy"]["recompute_adv"] is True
    assert saved["env"]["env_id"] == "CartPole-v0"


def test_resume_does_not_take_the_switch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "total_config.py").write_text("")

    with pytest.raises(SystemExit):
        ding(["--resume", str(tmp_path), "--di-engine"])

    assert "--resume takes the run's own config" in capsys.readouterr().err


def test_the_page_is_what_the_data_say() -> None:
    assert (Path(__file__).parents[2] / "docs/di_engine_defaults.md").read_text() == page()


# ---- what a config of DI-engine may carry


@pytest.mark.parametrize("create", [{"env": ENV}, {"env": {"type": "cartpole"}, "defaults": "di_engine"}])
def test_cuda_without_a_gpu_falls_back_in_a_config_of_di_engine(create: dict[str, Any], monkeypatch, caplog) -> None:
    importlib.import_module(DIZOO)  # one of the configs names the env and not its module
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)

    cfg = compiled({"cuda": True}, {**create, "policy": {"type": "dqn"}})

    assert cfg.policy.cuda is False
    assert [record.levelno for record in caplog.records if "torch sees no GPU" in record.message] == [logging.WARNING]


def test_cuda_without_a_gpu_stays_in_another_config_and_in_an_override(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    create: dict[str, Any] = {"env": {"type": "gymnasium"}, "policy": {"type": "dqn"}}

    other = compile_config({"env": {"env_id": "CartPole-v1"}, "policy": {"cuda": True}}, create, save=False)
    override = compiled({}, {"env": ENV, "policy": {"type": "dqn"}}, overrides=["policy.cuda=True"])

    assert (other.policy.cuda, override.policy.cuda) == (True, True)


def test_a_key_without_effect_has_its_default_and_is_an_error_in_an_override(caplog) -> None:
    cfg = compiled({"learn": {"update_per_collect": 5}}, {"env": ENV, "policy": {"type": "ppo"}})

    assert cfg.policy.learn.update_per_collect == 1
    assert "policy.learn.update_per_collect   is 5, but has no effect" in caplog.text
    with pytest.raises(ConfigError, match=r"policy\.learn\.update_per_collect +is 5, but has no effect"):
        compiled({}, {"env": ENV, "policy": {"type": "ppo"}}, overrides=["policy.learn.update_per_collect=5"])


@pytest.mark.parametrize(("name", "expected"), [("sac", 0.9), ("rainbow", 0.8)])
def test_of_two_discount_factors_the_one_is_read_that_di_engine_reads(name: str, expected: float, caplog) -> None:
    policy = {"discount_factor": 0.8, "learn": {"discount_factor": 0.9}}

    assert compiled(policy, {"env": ENV, "policy": {"type": name}}).policy.discount_factor == expected
    assert "discount_factor   DI-engine reads policy." in caplog.text


def test_lr_scheduler_is_a_schedule_in_env_steps() -> None:
    learn = {"learning_rate": 1e-3, "lr_scheduler": {"epoch_num": 100, "min_lr_lambda": 0.1}}

    policy = compiled({"learn": learn, "collect": {"n_sample": 64}}, {"env": ENV, "policy": {"type": "ppo"}}).policy

    assert policy.learn.schedule.env_steps == 6400
    assert policy.learn.schedule.lr_end == pytest.approx(1e-4)


def test_lr_scheduler_of_another_form_is_an_unknown_key() -> None:
    with pytest.raises(ConfigError, match=r"policy\.learn\.lr_scheduler +unknown key"):
        compiled({"learn": {"lr_scheduler": {"gamma": 0.9}}}, {"env": ENV, "policy": {"type": "ppo"}})


def test_evaluator_episode_num_is_of_each_env() -> None:
    env = {"evaluator_env_num": 2, "evaluator_episode_num": 3}

    cfg = compile_config({"env": env}, {"env": ENV, "policy": {"type": "dqn"}}, save=False)

    assert (cfg.env.n_evaluator_episode, cfg.policy.eval.evaluator.n_episode) == (6, 6)


def test_an_evaluation_plays_an_episode_in_each_env_if_nobody_counts_them() -> None:
    cfg = compile_config({"env": {"evaluator_env_num": 7}}, {"env": ENV, "policy": {"type": "dqn"}}, save=False)

    assert cfg.env.n_evaluator_episode == 7


@pytest.mark.parametrize(
    ("name", "closest"), [("acer", "'impala' and 'ppo_offpolicy'"), ("averaged_dqn_command", "'dqn' and 'qrdqn'")]
)
def test_a_policy_that_is_not_here_is_one_error_with_the_closest(name: str, closest: str) -> None:
    create: dict[str, Any] = {"env": {"type": "cart_pole_too", "import_names": [DIZOO]}, "policy": {"type": name}}

    with pytest.raises(ConfigError, match=f"is not here; closest are {closest}") as caught:
        compiled({"learn": {"tau": 1}}, create)

    assert str(caught.value).startswith("1 problem in")


def test_a_reward_model_that_is_not_named_is_one_error() -> None:
    main = {"reward_model": {"input_size": 5}, "policy": {"collect": {"tau": 1}}}

    with pytest.raises(ConfigError, match=r"reward_model\.type +is missing; .*`ding -q reward_model` lists") as caught:
        compile_config(main, {"env": ENV, "policy": {"type": "dqn"}}, save=False)

    assert "tau" not in str(caught.value)


def of_gail(model: dict[str, Any], *, main: dict[str, Any] | None = None) -> Any:  # Any: a config
    """Return the compiled config of DQN with GAIL, in DI-engine's form."""
    create = {"env": ENV, "policy": {"type": "dqn"}, "reward_model": {"type": "gail"}}
    return compile_config({"reward_model": model, **(main or {})}, create, save=False)


def test_keys_of_a_reward_model_of_di_engine_are_read_here_or_named(caplog: pytest.LogCaptureFixture) -> None:
    given = {"input_size": 5, "hidden_size": 64, "collect_count": 100, "clear_buffer_per_iters": 1}

    section = of_gail({**given, "expert_data_path": "d.safetensors", "batch_size": 32}).reward_model

    assert (section.hidden_size_list, section.data_path, section.batch_size) == ([64], "d.safetensors", 32)
    (message,) = [each for each in caplog.messages if "are ignored" in each]
    named = {line.split()[0] for line in message.splitlines()[1:]}
    assert named == {f"reward_model.{key}" for key in ("input_size", "collect_count", "clear_buffer_per_iters")}
    with pytest.raises(ConfigError, match="reward_model.lerning_rate +unknown key; did you mean 'learning_rate'"):
        of_gail({"lerning_rate": 1e-3, "data_path": "d.safetensors"})


def test_placeholders_of_an_expert_are_what_the_stages_make() -> None:
    model = {"expert_model_path": "model_path_placeholder", "data_path": "data_path_placeholder"}
    policy = {"collect": {"model_path": "model_path_placeholder"}}

    cfg = of_gail(model, main={"exp_name": "run", "expert": {"config": "cartpole_dqn"}, "policy": policy})

    assert cfg.reward_model.data_path == "run/expert_data.safetensors"
    assert cfg.expert.checkpoint == "best"
    with pytest.raises(ConfigError, match="reward_model.data_path +is not set"):
        of_gail(model)


@pytest.mark.parametrize("place", ["policy.collect.model_path", "reward_model.expert_model_path"])
def test_a_checkpoint_of_an_expert_is_the_experts(place: str) -> None:
    main: dict[str, Any] = {"exp_name": "run", "reward_model": {}}
    set_path(main, place, "expert/ckpt/ckpt_best.pth.tar")

    cfg = of_gail(main.pop("reward_model"), main=main)

    assert cfg.expert.checkpoint == "expert/ckpt/ckpt_best.pth.tar"
    assert cfg.reward_model.data_path == "run/expert_data.safetensors"


def test_a_parallel_config_says_so_in_another_mode() -> None:
    collector = {"type": "zergling", "import_names": ["ding.worker.collector.zergling_parallel_collector"]}

    with pytest.raises(ConfigError, match=r"create_config\.collector\.type +'zergling' .*`ding -m parallel -c FILE`"):
        compiled({}, {"env": ENV, "policy": {"type": "dqn_command"}, "collector": collector})


def test_a_parallel_config_compiles_in_its_mode(caplog: pytest.LogCaptureFixture) -> None:
    env = {"collector_env_num": 8, "collector_episode_num": 2, "evaluator_env_num": 5, "evaluator_episode_num": 1}
    policy = {
        "learn": {"batch_size": 64, "learner": {"learner_num": 1, "send_policy_freq": 1}},
        "collect": {"n_sample": 16, "collector": {"collector_num": 2, "update_policy_second": 3}},
        "eval": {"evaluator": {"eval_freq": 50}},
        "other": {"commander": {"collector_task_space": 2, "learner_task_space": 1, "eval_interval": 5}},
    }
    create: dict[str, Any] = {
        "env": ENV,
        "policy": {"type": "dqn_command"},
        "learner": {"type": "base", "import_names": ["ding.worker.learner.base_learner"]},
        "collector": {"type": "zergling", "import_names": ["ding.worker.collector.zergling_parallel_collector"]},
        "commander": {"type": "solo", "import_names": ["ding.worker.coordinator.solo_parallel_commander"]},
        "comm_learner": {"type": "flask_fs", "import_names": ["ding.worker.learner.comm.flask_fs_learner"]},
        "comm_collector": {"type": "flask_fs", "import_names": ["ding.worker.collector.comm.flask_fs_collector"]},
    }

    cfg = compile_config(*serial_parts({"env": env, "policy": policy}, create), save=False)

    assert (cfg.policy.type, cfg.env.n_evaluator_episode, cfg.policy.collect.n_sample) == ("dqn", 5, 16)


def test_no_more_envs_collect_than_there_are_episodes(caplog: pytest.LogCaptureFixture) -> None:
    create: dict[str, Any] = {"env": ENV, "policy": {"type": "pg"}, "collector": {"type": "episode"}}
    main = {"env": {"collector_env_num": 8}, "policy": {"collect": {"n_episode": 2}}}

    assert compile_config(main, create, save=False).env.collector_env_num == 2
    assert "env.collector_env_num   2 envs are used" in caplog.text


def test_pg_makes_rows_of_episodes_by_default() -> None:
    create: dict[str, Any] = {"env": ENV, "policy": {"type": "pg"}, "collector": {"type": "episode"}}

    assert compiled({"collect": {"n_episode": 8}}, create).policy.collect.collector.get_train_sample is True
