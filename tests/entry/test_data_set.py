"""Runs that learn from a file: epochs, limits, evaluations, an exact resume, and one error for each bad file."""

from __future__ import annotations

import json
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ding_like
from ding_like.data.batch import TransitionBatch
from ding_like.data.data_files import write_data
from ding_like.data.demonstrations import Demonstrations
from ding_like.data.mapped import FileColumn
from ding_like.data.segment_file import save_columns
from ding_like.entry import resume_pipeline, serial_pipeline, serial_pipeline_bc, serial_pipeline_offline
from ding_like.errors import CheckpointError, ConfigError, DingError, SchemaError
from ding_like.pipeline.data_set import DataSet, batches_per_epoch, build_from_data
from ding_like.pipeline.record import resume_store
from ding_like.policy.dqn import DQNPolicy
from ding_like.policy.offline import FromData
from ding_like.policy.rows import NStepRows
from ding_like.report.experiment import read_run
from ding_like.utils.checkpoint import load_state
from tests import experts
from tests.contracts.policy_cases import assert_equal_states
from tests.entry.typed import status_of
from tests.experts import balance, demonstrate
from tests.pipeline.test_resume import lines

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")

STEPS = 300  # three episodes of 100
BATCH = 32
EPOCH = 9  # updates


@pytest.fixture(autouse=True)
def data(in_tmp: Path) -> Demonstrations:
    found = demonstrate(balance, "CartPole-v1", episodes=3, max_steps=100)
    found.save("data.safetensors")
    return found


def configs(policy: str = "bc", **settings: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    own: dict[str, Any] = dict(
        model=dict(encoder_hidden_size_list=[16], head_layer_num=0),
        learn=dict(batch_size=BATCH, train_epoch=2),
        collect=dict(data_path="data.safetensors"),
        eval=dict(evaluator=dict(eval_freq=5)),
    )
    env = dict(env_id="CartPole-v1", evaluator_env_num=2, n_evaluator_episode=2, stop_value=1e9)
    create = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type=policy))
    return dict(exp_name="run", env=env, policy={**own, **settings}), create


def result(run: str = "run") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(run, "result.json").read_text())
    return found


# ---- rows


def rows_of(number: int) -> TransitionBatch:
    return TransitionBatch({"obs": np.arange(number)[:, None].astype(np.float32), "action": np.arange(number)})


@pytest.mark.parametrize(("number", "batch_size"), [(100, 32), (90, 90), (7, 32), (97, 10)])
def test_an_epoch_has_each_row_once_in_minibatches_of_nearly_equal_size(number: int, batch_size: int) -> None:
    rng = np.random.default_rng(0)
    data, batches = DataSet(rows_of(number), batch_size, rng, source="file"), batches_per_epoch(number, batch_size)

    epochs = [[data.draw()["action"] for _ in range(batches)] for _ in range(2)]

    for epoch in epochs:
        assert sorted(np.concatenate(epoch)) == list(range(number))
        assert max(map(len, epoch)) - min(map(len, epoch)) <= 1
    first, second = (np.concatenate(epoch) for epoch in epochs)
    assert not np.array_equal(first, second) and not np.array_equal(first, np.arange(number))
    assert data.epoch == 2


def test_the_order_goes_on_where_it_was_saved_even_at_the_end_of_an_epoch() -> None:
    for place in range(8):
        data = DataSet(rows_of(20), 5, np.random.default_rng(1), source="file")
        for _ in range(place):
            data.draw()
        other = DataSet(rows_of(20), 5, np.random.default_rng(2), source="file")
        other.load_state_dict(data.state_dict())
        for _ in range(9):
            assert np.array_equal(data.draw()["action"], other.draw()["action"])


def test_rows_in_a_file_are_loaded_where_they_fit_and_drawn_alike_either_way(data: Demonstrations) -> None:
    rows, _ = NStepRows(1, 0.9).segment(Demonstrations.load("data.safetensors").rollout())
    drawn = []
    for limit in (0, 10**6):
        found = DataSet(rows, 32, np.random.default_rng(0), source="file", max_loaded_bytes=limit)
        assert isinstance(found.rows["obs"], FileColumn) == (limit == 0)
        drawn.append([found.draw().columns for _ in range(12)])
    for one, other in zip(*drawn, strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in ("obs", "action", "reward", "next_obs"))
    assert np.array_equal(np.sort(np.concatenate([each["obs"] for each in drawn[0][:9]]), 0), np.sort(rows["obs"], 0))


# ---- runs


def test_a_run_learns_for_its_epochs_and_evaluates_every_so_many_updates() -> None:
    policy = serial_pipeline_bc(configs(), seed=0)

    found = result()
    assert (found["train_iter"], found["env_step"], found["mode"]) == (2 * EPOCH, 0, "serial_offline")
    evaluations = [line["train_iter"] for line in lines(Path("run")) if line["source"] == "evaluator"]
    assert evaluations == [0, 5, 10, 15, 18]
    run = read_run(Path("run"))
    assert list(run.evaluation.env_step) == evaluations and run.evaluation.unit == "updates"
    assert ding_like.load("run", which="last").act(np.zeros(4, np.float32)) in (0, 1)
    assert policy.cfg.type == "bc"


def test_limits_are_updates_or_epochs_or_a_value_and_no_env_steps() -> None:
    serial_pipeline_bc(configs(), seed=0, max_iter=7, exp_name="seven")
    serial_pipeline_bc(configs(), seed=0, max_train_iter=30, exp_name="thirty")  # more than the epochs
    main, create = configs()
    main["env"]["stop_value"] = 1  # not before the first update
    serial_pipeline_bc((main, create), seed=0, exp_name="stopped")

    assert [result(run)["train_iter"] for run in ("seven", "thirty", "stopped")] == [7, 30, 5]
    with pytest.raises(ConfigError, match="takes no env steps, but --env-step is 100: give --train-iter"):
        serial_pipeline_bc(configs(), max_env_step=100)


@pytest.mark.parametrize("first", [5, 9, 13])
def test_a_run_in_two_parts_equals_one_in_one(first: int) -> None:
    whole = serial_pipeline_bc(configs(), seed=3, max_iter=25, exp_name="whole")
    serial_pipeline_bc(configs(), seed=3, max_iter=first, exp_name="parts")
    resumed: Any = resume_pipeline("parts", max_train_iter=25)

    assert_equal_states(whole.learn_mode.state_dict(), resumed.learn_mode.state_dict())
    assert lines(Path("whole")) == lines(Path("parts"))
    assert result("whole")["eval_value_raw"] == result("parts")["eval_value_raw"]


def test_points_are_saved_under_updates_and_a_run_that_is_over_says_so() -> None:
    main, create = configs()
    main["resume"] = dict(save_every_env_steps=4)
    serial_pipeline_bc((main, create), seed=0)

    assert resume_store("run").steps() == [18, 16]
    with pytest.raises(ConfigError, match="is over, at env step 0 and iteration 18.* --train-iter 36"):
        resume_pipeline("run")


def test_a_run_does_not_go_on_with_other_rows() -> None:
    serial_pipeline_bc(configs(), seed=0, max_iter=5)
    demonstrate(balance, "CartPole-v1", episodes=2, max_steps=100).save("data.safetensors")

    with pytest.raises(CheckpointError, match="data.safetensors is not the file that this run began with"):
        resume_pipeline("run", max_train_iter=9)


def test_the_seed_decides_order_and_weights() -> None:
    runs = [serial_pipeline_bc(configs(), seed=seed, exp_name=name) for name, seed in (("a", 1), ("b", 1), ("c", 2))]
    first, second, third = (run.learn_mode.state_dict() for run in runs)

    assert_equal_states(first, second)
    with pytest.raises(AssertionError):
        assert_equal_states(first, third)


class FromFile(FromData, DQNPolicy):
    """DQN whose rows come from a file: any policy of rows learns from one."""

    config = dict(type="from_file", nstep=3)


def test_any_policy_of_rows_learns_from_a_file() -> None:
    settings: dict[str, Any] = dict(
        learn=dict(batch_size=BATCH), collect=dict(data_path="data.safetensors"), model={}, random_collect_size=10
    )
    policy = serial_pipeline_bc(configs(f"{__name__}:FromFile", **settings), seed=0, max_iter=20)

    assert result()["train_iter"] == 20 and policy.cfg.nstep == 3


def test_continuous_actions_are_learned() -> None:
    rng, number = np.random.default_rng(0), 40
    ends = np.arange(number) % 20 == 19
    columns: dict[str, Any] = {
        "obs": rng.normal(size=(number, 3)).astype(np.float32),
        "action": rng.uniform(-2, 2, (number, 1)).astype(np.float32),
        "reward": np.ones(number, np.float32),
        "next_obs": rng.normal(size=(number, 3)).astype(np.float32),
        "terminated": np.zeros(number, bool),
        "truncated": ends,
        "lane": np.zeros(number, np.int64),
        "episode_id": np.arange(number) // 20,
        "step": np.arange(number) % 20,
    }
    Demonstrations(columns, {}).save("pendulum.safetensors")
    main, create = configs(loss_type="nll_loss", eval=dict(evaluator=dict(eval_freq=1000)))
    main["env"]["env_id"] = "Pendulum-v1"

    serial_pipeline_bc((main, create), seed=0, max_iter=3, data_path="pendulum.safetensors")

    assert result()["train_iter"] == 3


CONTROL = Path(ding_like.__file__).parents[1] / "dizoo/classic_control"


def test_the_shipped_config_learns_from_the_file_that_it_names() -> None:
    experts.cartpole("cartpole_expert.safetensors", episodes=2)

    serial_pipeline_bc(str(CONTROL / "cartpole/config/cartpole_bc_config.py"), seed=0, max_iter=5)

    assert result("cartpole_bc_seed0")["train_iter"] == 5


@pytest.mark.parametrize("path", ["data.hdf5", "minari:cartpole/test-v0"])
def test_a_run_learns_alike_from_each_form(path: str, data: Demonstrations, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(Path("minari").resolve()))
    write_data(data, path)

    runs = [
        serial_pipeline_bc(configs(collect=dict(data_path=each)), seed=0, max_iter=20, exp_name=f"run{number}")
        for number, each in enumerate(("data.safetensors", path))
    ]

    assert_equal_states(runs[0].learn_mode.state_dict(), runs[1].learn_mode.state_dict())


# ---- the command line


def write_config(path: str = "bc_config.py") -> str:
    main, create = configs()
    Path(path).write_text(f"main_config = {main!r}\ncreate_config = {create!r}\n")
    return path


def test_the_command_trains_resumes_and_plans(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("-m", "serial_bc", "-c", write_config(), "--train-iter", "6") == 0
    assert status_of("--resume", "run", "--train-iter", "12") == 0
    assert result()["train_iter"] == 12
    capsys.readouterr()

    assert status_of("-m", "serial_bc", "-c", "bc_config.py", "--dry-run") == 0

    out = capsys.readouterr().out
    assert "data.safetensors: 3 episodes, 300 steps, mean return 100; an epoch is 9 updates" in out
    assert "until       18 updates" in out


# ---- several learners, normalised observations, and going on online


def test_two_learners_make_the_update_of_one() -> None:
    one = serial_pipeline_offline(configs(learn=dict(batch_size=30)), seed=3, max_iter=12, exp_name="one")
    two = serial_pipeline_offline(configs(learn=dict(batch_size=30)), seed=3, max_iter=12, exp_name="two", learners=2)

    assert result("two")["train_iter"] == 12
    for name, value in one.learn_mode.state_dict()["model"].items():
        assert torch.allclose(value, two.learn_mode.state_dict()["model"][name], atol=1e-5), name


def normalised(path: str = "run", **settings: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    main, create = configs(**settings)
    main["env"]["wrappers"] = [dict(type="obs_norm", clip=1.5)]
    return {**main, "exp_name": path}, create


def test_obs_norm_goes_by_the_data_in_rows_and_envs_alike(data: Demonstrations) -> None:
    obs = data.columns["obs"].astype(np.float64)
    expected = np.clip((obs - obs.mean(axis=0)) / np.sqrt(obs.var(axis=0) + 1e-8), -1.5, 1.5)

    serial_pipeline_offline(normalised(), seed=0, max_iter=3)
    parts, drawn = build_from_data(ding_like.config.compile_config(*normalised("other")), data, seed=0)
    with closing(parts):
        rows = [drawn.draw() for _ in range(EPOCH)]

    for name in ("obs", "next_obs"):
        found = np.concatenate([each[name] for each in rows])
        raw = data.columns[name].astype(np.float64)
        wanted = np.clip((raw - obs.mean(axis=0)) / np.sqrt(obs.var(axis=0) + 1e-8), -1.5, 1.5)
        assert np.allclose(np.sort(found, axis=0), np.sort(wanted, axis=0), atol=1e-4), name
    (lane,) = load_state("run/ckpt/ckpt_best.pth.tar")["env_wrappers"]["lanes"]
    assert np.allclose(lane[0]["state"]["mean"], obs.mean(axis=0), atol=1e-6)
    assert np.allclose(lane[0]["state"]["var"], obs.var(axis=0), atol=1e-6)
    agent = ding_like.load("run")
    raw = data.columns["obs"][:5]
    logits = agent.policy.get_attribute("model").actor(torch.from_numpy(expected[:5].astype(np.float32)))
    assert np.array_equal(agent.act(raw), logits.argmax(dim=1).numpy())


def test_evaluations_are_scored_by_the_references_of_the_data(data: Demonstrations) -> None:
    Demonstrations(data.columns, {"reference": {"random": 20.0, "expert": 70.0}}).save("data.safetensors")

    serial_pipeline_offline(configs(), seed=0, max_iter=1)

    found = result()
    assert found["eval_metrics"]["normalized_score"] == pytest.approx(2.0 * (found["eval_value"] - 20.0))


def test_an_expert_that_is_no_better_than_random_actions_gives_no_score(data: Demonstrations) -> None:
    Demonstrations(data.columns, {"reference": {"random": -200.0, "expert": -200.0}}).save("data.safetensors")

    serial_pipeline_offline(configs(), seed=0, max_iter=1)

    assert result()["eval_metrics"] == {}


def going_online(**learn: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    settings: dict[str, Any] = dict(
        learn=dict(batch_size=BATCH, **learn), collect=dict(data_path="data.safetensors", n_sample=8), model={}
    )
    return configs(f"{__name__}:FromFile", **settings, random_collect_size=40)


def test_a_run_goes_on_online_with_the_data_in_its_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    grad = DQNPolicy.grad

    def noted(self: DQNPolicy, batch: TransitionBatch) -> Any:
        seen.append((len(batch), int(np.count_nonzero(batch["is_expert"]))))
        return grad(self, batch)

    monkeypatch.setattr(FromFile, "grad", noted, raising=False)

    serial_pipeline_offline(going_online(data_share=0.25), seed=0, max_iter=5, max_env_step=100, then="serial")

    assert all(own == of_data for own, of_data in seen[:5])  # whole minibatches of the data set
    assert set(seen[5:]) == {(BATCH, BATCH // 4)}
    assert result()["env_step"] >= 100 and result()["train_iter"] > 5


@pytest.mark.parametrize("updates", [3, 30])  # 5 of the data set, then online
def test_a_run_that_goes_on_online_resumes_exactly(updates: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = dict(seed=3, max_iter=5, max_env_step=128, then="serial")
    whole = serial_pipeline_offline(going_online(), **given, exp_name="whole")
    made = []

    def interrupted(self: DQNPolicy, batch: TransitionBatch) -> Any:
        made.append(len(batch))
        if len(made) == updates:
            signal.raise_signal(signal.SIGINT)
        return DQNPolicy.grad(self, batch)

    monkeypatch.setattr(FromFile, "grad", interrupted, raising=False)
    with pytest.raises(KeyboardInterrupt):
        serial_pipeline_offline(going_online(), **given, exp_name="parts")

    resumed = resume_pipeline("parts")

    assert_equal_states(whole.learn_mode.state_dict(), resumed.learn_mode.state_dict())


@pytest.mark.parametrize(
    ("config", "given", "message"),
    [
        (configs, dict(then="serial"), "policy 'bc' learns nothing of rows that it collects"),
        (going_online, dict(then="serial"), "there is no limit: give --train-iter, or policy.learn.train_epoch"),
        (going_online, dict(then="parallel"), "--then is 'parallel': .*goes on with `--then serial`"),
        (going_online, dict(then="serial", max_iter=3, learners=2), "is of one learner, not of 2"),
    ],
)
def test_what_cannot_follow_is_one_error(config: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        serial_pipeline_offline(config(), seed=0, **given)


# ---- what cannot be


def spoiled(data: Demonstrations, name: str, value: Any) -> None:
    columns = {key: column.copy() for key, column in data.columns.items()}
    columns[name][17] = value
    save_columns("data.safetensors", columns, dict(data.info))


def cut(data: Demonstrations) -> None:
    save_columns("data.safetensors", {name: column[:0] for name, column in data.columns.items()}, {})


def of_acrobot(data: Demonstrations) -> None:
    obs = np.zeros((len(data), 6), np.float32)
    save_columns("data.safetensors", {**data.columns, "obs": obs, "next_obs": obs}, {})


def of_numbers(data: Demonstrations) -> None:
    save_columns("data.safetensors", {**data.columns, "action": data.columns["action"].astype(np.float32)}, {})


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (lambda data: Path("data.safetensors").unlink(), ConfigError, "no file of demonstrations 'data.safetensors'"),
        (lambda data: Path("data.safetensors").write_text("hello"), DingError, "data.safetensors"),
        (cut, SchemaError, "data.safetensors has columns of other lengths than one, or none"),
        (lambda data: spoiled(data, "obs", np.nan), SchemaError, "column 'obs', row 17, that is not finite"),
        (of_acrobot, SchemaError, r"rows 'obs' of shape \[6\], the env's are \[4\]: it was collected in another env"),
        (lambda data: spoiled(data, "action", 2), SchemaError, r"action 2 in row 17, .*one of 2 choices: .*another"),
        (of_numbers, SchemaError, r"action [01].0 in row 0, .*one of 2 choices: .*another env"),
    ],
)
def test_a_bad_file_is_one_error(data: Demonstrations, spoil: Any, error: Any, message: str) -> None:
    spoil(data)

    with pytest.raises(error, match=message):
        serial_pipeline_bc(configs(), seed=0)


def test_a_config_without_a_file_is_one_error() -> None:
    with pytest.raises(ConfigError, match="policy.collect.data_path is not set: give the file"):
        serial_pipeline_bc(configs(collect={}), seed=0)


def test_a_file_of_another_env_is_warned_of(caplog: pytest.LogCaptureFixture, data: Demonstrations) -> None:
    Demonstrations(data.columns, {"env_id": "CartPole-v0"}).save("data.safetensors")

    serial_pipeline_bc(configs(), seed=0, max_iter=1)

    assert "was collected in CartPole-v0, and the run evaluates in CartPole-v1" in caplog.text


def test_wrappers_that_learn_from_rewards_are_refused() -> None:
    main, create = configs()
    main["env"]["wrappers"] = [dict(type="obs_norm"), dict(type="reward_norm")]

    with pytest.raises(ConfigError, match="RewardNorm, ObsNorm, which learn from what is collected: "):
        serial_pipeline_bc((main, create), seed=0)


def test_policies_that_a_file_cannot_train_are_refused() -> None:
    env = configs()[0]["env"]
    for policy, message in (
        ("ppo", "has just collected itself"),
        ("r2d2", "its own actor remembers"),
        ("dqn", "collects"),
    ):
        main = dict(exp_name="run", env=env, policy={})
        create = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type=policy))
        with pytest.raises(ConfigError, match=f"policy '{policy}' learns from .*{message}: a data set"):
            serial_pipeline_bc((main, create), seed=0)


def test_other_modes_name_the_one_of_the_policy() -> None:
    with pytest.raises(ConfigError, match="run it with `ding -m serial_offline`"):
        serial_pipeline(configs(), seed=0)
    with pytest.raises(ConfigError, match="run it with `ding -m serial_offline`"):
        ding_like.train("bc", "CartPole-v1", env_step=100)
