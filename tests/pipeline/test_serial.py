import json
import signal
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

from ding_like.entry import eval as evaluate
from ding_like.entry import resume_pipeline, serial_pipeline, serial_pipeline_onpolicy
from ding_like.errors import ConfigError
from ding_like.worker import evaluator as evaluators

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")


def make_configs(**changes):
    main = dict(
        exp_name="exp",
        env=dict(env_id="CartPole-v1", collector_env_num=4, evaluator_env_num=2, n_evaluator_episode=2, stop_value=1e9),
        policy=dict(
            nstep=3,
            random_collect_size=40,
            model=dict(encoder_hidden_size_list=[16, 16]),
            learn=dict(update_per_collect=2, batch_size=16),
            collect=dict(n_sample=8, collector=dict(collect_print_freq=20)),
            eval=dict(evaluator=dict(eval_freq=50)),
        ),
    )
    main["policy"].update(changes)
    return main, dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="dqn"))


def read(path) -> list[dict]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{k: v for k, v in line.items() if "time" not in k and "per_sec" not in k} for line in lines]


def test_run_writes_the_experiment_folder(tmp_path):
    serial_pipeline(make_configs(), seed=1, max_env_step=400)

    exp = tmp_path / "exp"
    result = json.loads((exp / "result.json").read_text())
    assert result["env_step"] >= 400 and len(result["eval_value_raw"]) == 20 and result["stop"] is False
    assert result["eval_value"] == pytest.approx(np.mean(result["eval_value_raw"]))
    for name in ("ckpt/ckpt_best.pth.tar", "total_config.py", "formatted_total_config.py", "config_diff.txt"):
        assert (exp / name).is_file()
    assert (exp / f"ckpt/iteration_{result['train_iter']}.pth.tar").is_file()
    sources = {line["source"] for line in read(exp / "metrics.jsonl")}
    assert sources == {"collector", "learner", "evaluator"}


def test_limits_stop_the_run():
    policy = serial_pipeline(make_configs(), seed=0, max_train_iter=10)

    assert 10 <= policy._num_updates < 12


def test_updates_keep_their_ratio_to_samples(tmp_path):
    serial_pipeline(make_configs(), seed=0, max_env_step=840)

    result = json.loads((tmp_path / "exp/result.json").read_text())
    # 2 updates for 8 samples; n-step windows make the first samples wait.
    assert result["train_iter"] == pytest.approx((result["env_step"] - 40) / 4, abs=6)


def test_two_runs_of_one_seed_are_equal_and_another_seed_is_not(tmp_path):
    vectors = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        policy = serial_pipeline(make_configs(), seed=seed, max_env_step=400, exp_name=name)
        vectors.append(policy._params.data_vector.clone())

    assert torch.equal(vectors[0], vectors[1])
    assert not torch.equal(vectors[0], vectors[2])
    assert read(tmp_path / "a/metrics.jsonl") == read(tmp_path / "b/metrics.jsonl")


def test_evaluation_does_not_change_training(tmp_path):
    often = make_configs(eval=dict(evaluator=dict(eval_freq=10)))
    rarely = make_configs(eval=dict(evaluator=dict(eval_freq=1000)))

    first = serial_pipeline(often, seed=0, max_env_step=300, exp_name="often")
    second = serial_pipeline(rarely, seed=0, max_env_step=300, exp_name="rarely")

    assert torch.equal(first._params.data_vector, second._params.data_vector)


def test_eval_plays_a_checkpoint(tmp_path):
    serial_pipeline(make_configs(), seed=0, max_env_step=200)

    value = evaluate(make_configs(), seed=0, load_path=str(tmp_path / "exp/ckpt/ckpt_best.pth.tar"))

    assert 1 <= value <= 500


def test_env_setting_replaces_the_configs_env(tmp_path):
    made = []

    def env_fn(cfg):
        made.append(cfg)
        return gymnasium.make("CartPole-v1", max_episode_steps=cfg["steps"])

    setting = (env_fn, [{"steps": 7}] * 3, [{"steps": 5}] * 2)
    serial_pipeline(make_configs(), seed=0, env_setting=setting, max_env_step=100)

    result = json.loads((tmp_path / "exp/result.json").read_text())
    assert max(result["eval_value_raw"]) <= 5
    assert [cfg["steps"] for cfg in made] == [7, 7, 7, 5, 5, 5]  # the last one is looked at for agent.json


def test_any_env_class_by_import_path_trains(tmp_path):
    main, create = make_configs()
    main["env"].pop("env_id")
    create["env"]["type"] = "gymnasium.envs.classic_control.acrobot:AcrobotEnv"
    main["env"]["wrappers"] = [dict(type="TimeLimit", max_episode_steps=20)]

    serial_pipeline((main, create), seed=0, max_env_step=200)

    assert json.loads((tmp_path / "exp/result.json").read_text())["eval_value"] == -20.0


def test_a_model_of_ones_own_is_used():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def q(self, x):
            return self.layer(x)

    policy = serial_pipeline(make_configs(), seed=0, model=Net(), max_env_step=100)

    assert isinstance(policy.get_attribute("model"), Net)


def test_a_model_shape_that_contradicts_the_env_is_a_config_error():
    with pytest.raises(ConfigError, match=r"policy.model.action_shape is 3, the env has 2"):
        serial_pipeline(make_configs(model=dict(action_shape=3)), max_env_step=10)


def test_an_action_space_that_no_policy_takes_is_a_config_error():
    main, create = make_configs()
    main["env"]["env_id"] = "Pendulum-v1"

    with pytest.raises(ConfigError, match="Box"):
        serial_pipeline((main, create), max_env_step=10)


def test_saved_config_runs_again_and_equally(tmp_path):
    first = serial_pipeline(make_configs(), seed=5, max_env_step=200)

    again = serial_pipeline(str(tmp_path / "exp/total_config.py"), seed=5, max_env_step=200, exp_name="again")

    assert torch.equal(first._params.data_vector, again._params.data_vector)


def test_load_path_starts_from_a_checkpoint(tmp_path):
    serial_pipeline(make_configs(), seed=0, max_train_iter=20)

    ckpt = tmp_path / "exp/ckpt/iteration_20.pth.tar"
    policy = serial_pipeline(make_configs(), seed=0, max_train_iter=30, exp_name="second", load_path=str(ckpt))

    assert 30 <= policy._num_updates < 33


def test_an_experiment_may_have_an_absolute_folder(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    serial_pipeline(make_configs(), seed=0, exp_name=str(tmp_path / "exp"), max_env_step=100)

    assert (tmp_path / "exp/log/evaluator").is_dir() and (tmp_path / "exp/result.json").is_file()
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("policy", ["ppo", "a2c"])
def test_random_actions_before_an_on_policy_run_are_refused_when_it_is_built(policy):
    main, create = make_configs(random_collect_size=40, nstep=1)
    del main["policy"]["learn"]
    create["policy"]["type"] = policy

    with pytest.raises(ConfigError, match="random_collect_size"):
        serial_pipeline_onpolicy((main, create), max_env_step=100)


def test_train_iterations_of_the_config_limit_a_run_unless_the_call_does():
    main, create = make_configs()
    main["policy"]["learn"]["learner"] = dict(train_iterations=10)

    assert 10 <= serial_pipeline((main, create))._num_updates < 12
    assert 20 <= serial_pipeline((main, create), max_train_iter=20)._num_updates < 22


def test_a_signal_breaks_off_an_evaluation_which_is_due_again(monkeypatch):
    steps = [0]
    watch = evaluators.watch

    def signalled(*args):
        for ended in watch(*args):
            steps[0] += 1
            if steps[0] == 5:
                signal.raise_signal(signal.SIGTERM)
            yield ended

    monkeypatch.setattr(evaluators, "watch", signalled)
    with pytest.raises(SystemExit):
        serial_pipeline(make_configs(), max_env_step=64)
    assert steps[0] == 5

    resume_pipeline("exp")

    evaluations = [line for line in read(Path("exp/metrics.jsonl")) if line["source"] == "evaluator"]
    assert evaluations[0]["train_iter"] == 0
